package io.github.haul.client.internal.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.google.protobuf.ByteString;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** XXH3-128 against what xxhsum 0.8.1, of its author, says of the same bytes. */
final class Xxh3Test {
    /** Digests by length, where byte i is (i * 31 + 7) mod 251; each length takes another way. */
    private static final Map<Integer, String> VALUES =
            Map.ofEntries(
                    Map.entry(0, "7f498d4624c30160d8984701d306aa99"),
                    Map.entry(1, "1f81f4d045ca5c4ca40cf73e07625b49"),
                    Map.entry(2, "27ff1077c950e2a7aa5adea07a84b212"),
                    Map.entry(3, "5c003d173b09f71565153835b96cf646"),
                    Map.entry(4, "2a5741925dca87b9b3ead0b4ffeeef7f"),
                    Map.entry(8, "aa4b6deb6c83bb56c2c66c845a673c80"),
                    Map.entry(9, "7d82f59b5c58af13c2e5ff33c2445636"),
                    Map.entry(16, "affbef4cb03c460dc074c85c387c91da"),
                    Map.entry(17, "c8190e584844c395b42f4e2c8f5743d4"),
                    Map.entry(20, "3ea20854a886cb1d9c1a05975082e420"),
                    Map.entry(32, "8909018a067e3673336c9854a6b36b7e"),
                    Map.entry(33, "02c3daa785b8a02396139f10cef3fb97"),
                    Map.entry(128, "123a682c5b92775bae383a375043c322"),
                    Map.entry(129, "e18b565335e7d9d690203f89f7d8a7c4"),
                    Map.entry(159, "9cdbc524a40b87f93e26a4684a46f617"),
                    Map.entry(160, "50210921f601f09d223ccf4096d71f3c"),
                    Map.entry(240, "f88493f73343edc64bd20f92b8709de2"),
                    Map.entry(241, "7f2c9014bc5d52071aa90fedb83c1bf9"),
                    Map.entry(256, "e105ab88aa069ba46ff7c8d8e0e54c6e"),
                    Map.entry(257, "e566e19a7bb85a74461ea5764b97093e"),
                    Map.entry(320, "27c4d086b0d1d13d8a2c1210b81b0359"),
                    Map.entry(321, "c4ca8c6d0fd78c1ac91a1c4fa2db95fd"),
                    Map.entry(1024, "eec97bdb558689e2dffe1e9f1e1b3af5"),
                    Map.entry(1025, "9efbd6a32b654c13a772e7f6a0cc06a9"),
                    Map.entry(1088, "91aae90df8ffae33b80b3ed158c6fde3"),
                    Map.entry(2048, "f4808d65598aa763d3aacae129ddeeac"),
                    Map.entry(65536, "3134e079b8624c801e3eda5e5d740609"),
                    Map.entry(100000, "610eab5f5865c5dd5da4936c111721bc"));

    private static ByteBuffer bytes(int length) {
        ByteBuffer bytes = ByteBuffer.allocateDirect(length);
        for (int at = 0; at < length; at++) {
            bytes.put(at, (byte) ((at * 31L + 7) % 251));
        }
        return bytes;
    }

    @Test
    void eachLengthHasTheDigestOfTheReference() {
        VALUES.forEach(
                (length, value) -> {
                    ByteBuffer bytes = bytes(length);
                    assertEquals(
                            value, HexFormat.of().formatHex(Xxh3.of(bytes)), length + " bytes");
                    assertEquals(0, bytes.position());
                });
    }

    @Test
    void piecesOfAnySizeMakeTheSameDigest() {
        Random random = new Random(5);
        Xxh3 digest = new Xxh3();
        for (int length = 0; length < 2500; length++) {
            ByteBuffer bytes = bytes(length);
            ByteString whole = ByteString.copyFrom(Xxh3.of(bytes));
            int most = new int[] {3, 70, 300, 2000}[length % 4];
            // Of what was begun before nothing is left.
            digest.update(bytes(length % 777));
            digest.begin();
            while (bytes.position() < length) {
                int end = bytes.position() + 1 + random.nextInt(most);
                bytes.limit(Math.min(end, length));
                digest.update(bytes);
                assertEquals(bytes.limit(), bytes.position());
            }
            assertEquals(whole, ByteString.copyFrom(digest.end()), length + " bytes");
        }
    }

    /** SPEC.md, 7.6: each span's number and digest, one behind the other. */
    @Test
    void aDigestOfDurableSpansBindsEachToItsPlace() {
        DurableDigest all = new DurableDigest();
        ByteBuffer list = ByteBuffer.allocate(40).order(ByteOrder.LITTLE_ENDIAN);
        for (int span : new int[] {3, 9}) {
            byte[] digest = Xxh3.of(bytes(span));
            all.add(span, digest);
            list.putInt(span).put(digest);
        }
        assertEquals(ByteString.copyFrom(Xxh3.of(list.flip())), all.end());
    }
}
