package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;

/**
 * A journal laid out as crates/transfer/src/storage/journal.rs says, and not made by this client:
 * spans 0 to 2 with digests and BLAKE3 values, span 7 with a digest, and span 1 is lost.
 */
final class ProgramJournal {
    static final String HEX =
            ""
                    + "6861756c2d6a6e32ffff090000000000fbffffffffffffff0700000000000000"
                    + "0100000000000000020000000000000003000000000000000400000000000000"
                    + "0505050505050505050505050505050500000100000000000403020104000000"
                    + "f7ffffffffffffff08000000060606060606060606060606060606065883dbc7"
                    + "00000000030000c004030201fe451381000102030405060708090a0b0c0d0e0f"
                    + "101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f"
                    + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
                    + "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
                    + "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
                    + "0700000001000040040302016626660b09090909090909090909090909090909"
                    + "01000000010000200403020170eba70c";

    static final JournalIdentity IDENTITY =
            new JournalIdentity(
                    10 * (64 << 10) - 1,
                    -5,
                    7,
                    1,
                    2,
                    3,
                    4,
                    4,
                    ByteString.copyFrom(
                            new byte[] {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}));

    private ProgramJournal() {}
}
