package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.SideReport;

/** An event that {@link Receiver} tells its owner. Files and streams are unsigned numbers. */
public sealed interface ReceiverEvent {
    /**
     * A file was offered: the owner answers with {@link Receiver#answer}.
     *
     * @param offer the file
     */
    record Offered(FileOffer offer) implements ReceiverEvent {}

    /**
     * A second file of a name was offered, and answered with a fault: it is settled.
     *
     * @param offer the file
     * @param fault the answer
     */
    record NameTaken(FileOffer offer, Fault fault) implements ReceiverEvent {}

    /**
     * No more files will be offered.
     *
     * @param files how many there were
     * @param bytes how many bytes they have
     */
    record OffersOver(long files, long bytes) implements ReceiverEvent {}

    /**
     * All spans of a file are verified; the sender's confirmation may follow.
     *
     * @param file the file
     */
    record AllVerified(int file) implements ReceiverEvent {}

    /**
     * A file may be committed: the owner syncs and renames it, then calls {@link
     * Receiver#committed}.
     *
     * @param file the file
     */
    record Commit(int file) implements ReceiverEvent {}

    /**
     * The sender gave a file up, or it cannot be had: what arrived is kept or removed. It is
     * settled.
     *
     * @param file the file
     * @param fault why
     */
    record GivenUp(int file, Fault fault) implements ReceiverEvent {}

    /**
     * The sender wants a stream closed: the owner shuts it down, then calls {@link
     * Receiver#streamClosed}.
     *
     * @param stream the stream
     * @param why what happened to it
     */
    record CloseStream(int stream, String why) implements ReceiverEvent {}

    /**
     * The sender has a word for the user.
     *
     * @param notice its word
     */
    record Noticed(Notice notice) implements ReceiverEvent {}

    /**
     * The sender is done and has said so.
     *
     * @param report its report
     */
    record Finished(SideReport report) implements ReceiverEvent {}

    /**
     * The sender ends the session.
     *
     * @param fault why
     */
    record Refused(Fault fault) implements ReceiverEvent {}
}
