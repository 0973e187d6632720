package io.github.haul.command;

import io.github.haul.client.FileResult;

/** Numbers of directories by outcome, and what a dry run would move. */
final class FileCounts {
    private long doneDirectories;
    private long skippedDirectories;
    private long plannedDirectories;
    private long plannedBytes;

    /** Counts a file that has come out. */
    void add(FileResult file) {
        long directory = file.isDirectory() ? 1 : 0;
        switch (file.status()) {
            case DONE -> doneDirectories += directory;
            case SKIPPED -> skippedDirectories += directory;
            case WOULD_COPY, WOULD_REPLACE -> {
                plannedDirectories += directory;
                plannedBytes += file.isDirectory() ? 0 : file.bytes();
            }
            case FAILED -> {}
        }
    }

    long doneDirectories() {
        return doneDirectories;
    }

    long skippedDirectories() {
        return skippedDirectories;
    }

    long plannedDirectories() {
        return plannedDirectories;
    }

    long plannedBytes() {
        return plannedBytes;
    }
}
