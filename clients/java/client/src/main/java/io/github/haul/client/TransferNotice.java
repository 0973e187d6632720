package io.github.haul.client;

import java.time.Duration;

/** Something that a user may want to know of a transfer, after which it goes on. */
public sealed interface TransferNotice {
    /**
     * The target has bytes of an earlier run.
     *
     * @param bytes how many
     * @param why where they come from, and whether they are believed
     */
    record Resumed(long bytes, String why) implements TransferNotice {}

    /**
     * Something else than was chosen is used from here on: another engine, or another size.
     *
     * @param side where: {@code source}, {@code target} or {@code path}
     * @param fromTo what was before and what is now, as {@code sendfile -> read-write}
     * @param why the reason
     */
    record Fallback(String side, String fromTo, String why) implements TransferNotice {}

    /**
     * A data connection brought nothing for a while.
     *
     * @param stage what it waits for: {@code network} or {@code storage}
     * @param still how long it brought nothing
     * @param what what is done about it
     */
    record Stall(String stage, Duration still, String what) implements TransferNotice {}

    /**
     * A source is read again, to be compared with what was sent of it.
     *
     * @param name its name
     * @param nameEncoded as in {@link FileResult}
     * @param why the reason
     */
    record Rereading(String name, String nameEncoded, String why) implements TransferNotice {}

    /**
     * A source that is neither sent nor a failure: a FIFO, a socket, a device.
     *
     * @param problem which, and why
     */
    record LeftOut(Problem problem) implements TransferNotice {}

    /**
     * A failure of what was not offered: a source that is missing, or a directory that is in place
     * and could not be given its time or mode.
     *
     * @param problem what failed; {@link TransferResult#failures} has a missing source too
     */
    record Failure(Problem problem) implements TransferNotice {}
}
