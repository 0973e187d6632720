package io.github.haul.command;

import java.util.List;
import org.jspecify.annotations.Nullable;

/** Table 1 of the study that the bench repeats, with its own figures. */
final class StudyTable {
    private static final long BYTES_PER_MEGABYTE = 1_000_000;

    /** Who published it. */
    static final String SOURCE =
            "S. Palaniappan, P. B. Nagaraja: Efficient data transfer through zero copy, IBM"
                    + " developerWorks, table 1";

    /**
     * A row of the table.
     *
     * @param name the size as the study calls it
     * @param megabytes the size, as `haul bench files` takes it
     * @param traditionalMs read and write of 4 KiB
     * @param transferToMs {@code transferTo}
     */
    record Row(String name, long megabytes, long traditionalMs, long transferToMs) {
        long bytes() {
            return megabytes * BYTES_PER_MEGABYTE;
        }

        double ratio() {
            return (double) traditionalMs / transferToMs;
        }
    }

    private static final List<Row> ROWS =
            List.of(
                    new Row("7 MB", 7, 156, 45),
                    new Row("21 MB", 21, 337, 128),
                    new Row("63 MB", 63, 843, 387),
                    new Row("98 MB", 98, 1320, 617),
                    new Row("200 MB", 200, 2124, 1150),
                    new Row("350 MB", 350, 3631, 1762),
                    new Row("700 MB", 700, 13498, 4422),
                    new Row("1 GB", 1000, 18399, 8537));

    private StudyTable() {}

    /** The study's row of a size; null where it has none. */
    static @Nullable Row of(long bytes) {
        return ROWS.stream().filter(row -> row.bytes() == bytes).findFirst().orElse(null);
    }
}
