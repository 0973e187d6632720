package io.github.haul.client.internal.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Random;
import java.util.stream.IntStream;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.Test;

/** Tags of chunks, in both ways. */
final class ChunkMacTest {
    private static final int PIECE = ChunkMac.Encrypted.PIECE_BYTES;
    private static final int CHUNK = ChunkMac.CHUNK_BYTES;

    private static SecretKeySpec key(Random random) {
        byte[] key = new byte[32];
        random.nextBytes(key);
        return new SecretKeySpec(key, "AES");
    }

    private static ChunkMac encrypted(SecretKeySpec key) {
        return new ChunkMac.Encrypted(key, GmacProvider.cipher());
    }

    private static ChunkMac associated(SecretKeySpec key) {
        return new ChunkMac.Associated(key, GmacProvider.cipher(), CHUNK);
    }

    /** The platform's own tag of associated data. */
    private static byte[] tag(SecretKeySpec key, byte[] nonce, byte[] chunk) throws Exception {
        Cipher cipher = Cipher.getInstance("AES/GCM/NoPadding");
        cipher.init(Cipher.ENCRYPT_MODE, key, new GCMParameterSpec(128, nonce));
        cipher.updateAAD(chunk);
        return cipher.doFinal();
    }

    private static byte[] tag(ChunkMac mac, byte[] nonce, byte[] chunk, Random random) {
        mac.begin(nonce);
        ByteBuffer all = ByteBuffer.allocateDirect(chunk.length).put(chunk).flip();
        while (all.hasRemaining()) {
            int most = random.nextBoolean() ? all.remaining() : Math.min(all.remaining(), 40);
            mac.update(all.limit(all.position() + 1 + random.nextInt(most)));
            all.limit(chunk.length);
        }
        return mac.end();
    }

    @Test
    void bothWaysTagAsThePlatformDoes() throws Exception {
        Random random = new Random(25);
        IntStream edges =
                IntStream.of(0, 1, 15, 16, 17, PIECE, 2 * PIECE, CHUNK)
                        .flatMap(edge -> IntStream.of(edge - 1, edge, edge + 1))
                        .filter(bytes -> bytes >= 0 && bytes <= CHUNK);
        IntStream others = random.ints(200, 0, CHUNK + 1);
        SecretKeySpec key = key(random);
        ChunkMac encrypted = encrypted(key);
        ChunkMac associated = associated(key);
        for (int bytes : IntStream.concat(edges, others).toArray()) {
            byte[] chunk = new byte[bytes];
            random.nextBytes(chunk);
            byte[] nonce = new byte[12];
            random.nextBytes(nonce);
            byte[] expected = tag(key, nonce, chunk);
            assertArrayEquals(expected, tag(encrypted, nonce, chunk, random), bytes + " bytes");
            assertArrayEquals(expected, tag(associated, nonce, chunk, random), bytes + " bytes");
        }
    }

    /** A chunk that was broken off leaves nothing to the next one. */
    @Test
    void aChunkThatBeginsForgetsTheOneBefore() throws Exception {
        Random random = new Random(7);
        SecretKeySpec key = key(random);
        byte[] chunk = {1, 2, 3};
        for (ChunkMac mac : new ChunkMac[] {encrypted(key), associated(key)}) {
            mac.begin(new byte[12]);
            mac.update(ByteBuffer.allocate(PIECE + 5));
            byte[] nonce = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
            assertArrayEquals(tag(key, nonce, chunk), tag(mac, nonce, chunk, random));
        }
    }

    /** Two chunks under one nonce would give the hash subkey away. */
    @Test
    void aNonceThatWasUsedBeginsNoChunk() {
        Random random = new Random(8);
        SecretKeySpec key = key(random);
        for (ChunkMac mac : new ChunkMac[] {encrypted(key), associated(key)}) {
            tag(mac, new byte[12], new byte[1], random);
            assertThrows(IllegalStateException.class, () -> mac.begin(new byte[12]));
        }
    }

    /** Test case 13 of McGrew and Viega's specification of GCM. */
    @Test
    void theTagOfNothingIsTheEncryptedCounter() throws Exception {
        SecretKeySpec key = new SecretKeySpec(new byte[32], "AES");
        byte[] expected = HexFormat.of().parseHex("530f8afbc74536b9a963b4f1c4cb738b");
        assertArrayEquals(expected, tag(encrypted(key), new byte[12], new byte[0], new Random()));
    }
}
