package io.github.haul.client.internal.wire;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.security.Provider;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.crypto.Cipher;
import javax.crypto.spec.SecretKeySpec;
import org.jspecify.annotations.Nullable;

/**
 * Who computes GMAC: Amazon Corretto's provider where the user has it on the class path, for it is
 * native; else the JDK's, whose code is interpreted until it has run for a while.
 */
public final class GmacProvider {
    private static final String ALGORITHM = "AES/GCM/NoPadding";
    private static final String CORRETTO =
            "com.amazon.corretto.crypto.provider.AmazonCorrettoCryptoProvider";

    /**
     * Chunks after which the JDK's code is compiled. It counts calls and not bytes, and AES and
     * GHASH are the processor's own instructions only in a caller that is compiled: so short chunks
     * do.
     */
    private static final int WARM_CHUNKS = 3_000;

    private static final int WARM_CHUNK_BYTES = 256;
    private static final int KEY_BYTES = 32;
    private static final int NONCE_BYTES = 12;

    private static final @Nullable Provider FASTER = find();
    private static final AtomicBoolean IS_WARM = new AtomicBoolean();

    private GmacProvider() {}

    private static @Nullable Provider find() {
        try {
            Provider provider =
                    (Provider) Class.forName(CORRETTO).getDeclaredConstructor().newInstance();
            // A jar without the library for this platform has no cipher.
            Cipher.getInstance(ALGORITHM, provider);
            return provider;
        } catch (ReflectiveOperationException | GeneralSecurityException | LinkageError absent) {
            return null;
        }
    }

    /** Makes a cipher for GMAC. */
    static Cipher cipher() {
        try {
            return FASTER == null
                    ? Cipher.getInstance(ALGORITHM)
                    : Cipher.getInstance(ALGORITHM, FASTER);
        } catch (GeneralSecurityException missing) {
            throw new IllegalStateException("every Java platform has " + ALGORITHM, missing);
        }
    }

    /** Returns the name of the provider that computes GMAC here, as {@code SunJCE}. */
    public static String name() {
        return cipher().getProvider().getName();
    }

    /** Has the JDK compile GMAC on a thread of its own, once, so that no transfer waits for it. */
    public static void warmUp() {
        if (FASTER == null && IS_WARM.compareAndSet(false, true)) {
            Thread thread = new Thread(GmacProvider::compute, "haul warm-up");
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static void compute() {
        ChunkMac mac = ChunkMac.of(new SecretKeySpec(new byte[KEY_BYTES], "AES"), WARM_CHUNK_BYTES);
        ByteBuffer chunk = ByteBuffer.allocateDirect(WARM_CHUNK_BYTES);
        for (int number = 0; number < WARM_CHUNKS; number++) {
            mac.begin(ByteBuffer.allocate(NONCE_BYTES).putInt(number).array());
            mac.update(chunk.clear());
            mac.end();
        }
    }
}
