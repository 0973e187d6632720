package io.github.haul.client;

import java.security.AlgorithmParameters;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.NoSuchAlgorithmException;
import java.security.Provider;
import java.security.SecureRandom;
import java.security.Security;
import java.security.spec.AlgorithmParameterSpec;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import javax.crypto.Cipher;
import javax.crypto.CipherSpi;
import org.jspecify.annotations.Nullable;

/** A provider of AES-GCM that has the JDK's do it, and keeps which threads asked. */
public class StandInProvider extends Provider {
    /** The name by which reports know it. */
    static final String NAME = "StandIn";

    /** Names of the threads that have authenticated bytes. */
    static final Set<String> THREADS = ConcurrentHashMap.newKeySet();

    /** Opens with the first bytes. */
    static final CountDownLatch IS_ASKED = new CountDownLatch(1);

    /** What the first bytes wait for. */
    static final CountDownLatch MAY_GO_ON = new CountDownLatch(1);

    private static final long serialVersionUID = 1;
    private static final String ALGORITHM = "AES/GCM/NoPadding";

    @SuppressWarnings("this-escape")
    public StandInProvider() {
        super(NAME, "1", "AES-GCM by the JDK");
        putService(
                new Service(this, "Cipher", ALGORITHM, Delegate.class.getName(), null, null) {
                    @Override
                    public Object newInstance(@Nullable Object parameter)
                            throws NoSuchAlgorithmException {
                        return new Delegate();
                    }
                });
    }

    /** A cipher that notes its caller. */
    public static final class Delegate extends CipherSpi {
        private final Cipher jdk;

        public Delegate() throws NoSuchAlgorithmException {
            try {
                jdk = Cipher.getInstance(ALGORITHM, Security.getProvider("SunJCE"));
            } catch (GeneralSecurityException missing) {
                throw new NoSuchAlgorithmException(missing);
            }
        }

        @Override
        protected void engineUpdateAAD(byte[] bytes, int offset, int length) {
            THREADS.add(Thread.currentThread().getName());
            IS_ASKED.countDown();
            try {
                MAY_GO_ON.await();
            } catch (InterruptedException over) {
                throw new IllegalStateException(over);
            }
            jdk.updateAAD(bytes, offset, length);
        }

        @Override
        protected void engineUpdateAAD(java.nio.ByteBuffer bytes) {
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            engineUpdateAAD(copy, 0, copy.length);
        }

        @Override
        protected void engineSetMode(String mode) {}

        @Override
        protected void engineSetPadding(String padding) {}

        @Override
        protected int engineGetBlockSize() {
            return jdk.getBlockSize();
        }

        @Override
        protected int engineGetOutputSize(int inputLength) {
            return jdk.getOutputSize(inputLength);
        }

        @Override
        protected byte[] engineGetIV() {
            return jdk.getIV();
        }

        @Override
        protected AlgorithmParameters engineGetParameters() {
            return jdk.getParameters();
        }

        @Override
        protected void engineInit(int mode, Key key, @Nullable SecureRandom random) {
            throw new IllegalStateException("GCM has parameters");
        }

        @Override
        protected void engineInit(
                int mode,
                Key key,
                @Nullable AlgorithmParameterSpec parameters,
                @Nullable SecureRandom random) {
            try {
                jdk.init(mode, key, parameters);
            } catch (GeneralSecurityException wrong) {
                throw new IllegalStateException(wrong);
            }
        }

        @Override
        protected void engineInit(
                int mode,
                Key key,
                @Nullable AlgorithmParameters parameters,
                @Nullable SecureRandom random) {
            throw new IllegalStateException("nobody calls that");
        }

        @Override
        protected byte[] engineUpdate(byte[] input, int offset, int length) {
            return jdk.update(input, offset, length);
        }

        @Override
        protected int engineUpdate(byte[] input, int offset, int length, byte[] out, int at) {
            throw new IllegalStateException("nobody calls that");
        }

        @Override
        protected byte[] engineDoFinal(byte[] input, int offset, int length) {
            try {
                return length == 0 ? jdk.doFinal() : jdk.doFinal(input, offset, length);
            } catch (GeneralSecurityException wrong) {
                throw new IllegalStateException(wrong);
            }
        }

        @Override
        protected int engineDoFinal(byte[] input, int offset, int length, byte[] out, int at) {
            try {
                return length == 0
                        ? jdk.doFinal(out, at)
                        : jdk.doFinal(input, offset, length, out, at);
            } catch (GeneralSecurityException wrong) {
                throw new IllegalStateException(wrong);
            }
        }
    }
}
