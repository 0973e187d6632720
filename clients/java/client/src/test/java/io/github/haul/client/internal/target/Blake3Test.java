package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** BLAKE3 against what b3sum 1.8 says of the official test vectors' input, 0 to 250 repeated. */
final class Blake3Test {
    private static final Map<Integer, String> HASHES =
            Map.ofEntries(
                    Map.entry(
                            0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
                    Map.entry(
                            1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
                    Map.entry(
                            64, "4eed7141ea4a5cd4b788606bd23f46e212af9cacebacdc7d1f4c6dc7f2511b98"),
                    Map.entry(
                            65, "de1e5fa0be70df6d2be8fffd0e99ceaa8eb6e8c93a63f2d8d1c30ecb6b263dee"),
                    Map.entry(
                            1023,
                            "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"),
                    Map.entry(
                            1024,
                            "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
                    Map.entry(
                            1025,
                            "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"),
                    Map.entry(
                            2048,
                            "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"),
                    Map.entry(
                            2049,
                            "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"),
                    Map.entry(
                            3072,
                            "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"),
                    Map.entry(
                            5000,
                            "ee78d92070de3df1c57c37002abf0a6b1a6589acdeef4d8ffac7cf3d9e8f2836"),
                    Map.entry(
                            65_537,
                            "7c99f9840a73dfcb6e5bfe4ff6d1558acab7e015640790c26411818bdbe17eca"),
                    Map.entry(
                            1_048_580,
                            "fe3015c36090786d8568e3629f502388fdb0fe860f0063743226eed11717f600"));

    @Test
    void theHashesAreThoseOfTheReferenceProgram() {
        HASHES.forEach(
                (length, hash) -> {
                    byte[] bytes = new byte[length + 2];
                    Arrays.fill(bytes, (byte) 7);
                    for (int at = 0; at < length; at++) {
                        bytes[at + 1] = (byte) (at % 251);
                    }
                    byte[] found = Blake3.of(bytes, 1, length);
                    assertEquals(hash, HexFormat.of().formatHex(found), length + " bytes");
                });
    }
}
