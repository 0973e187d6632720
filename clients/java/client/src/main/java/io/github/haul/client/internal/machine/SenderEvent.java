package io.github.haul.client.internal.machine;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.SideReport;
import java.util.List;

/** An event that {@link Sender} tells its owner. Files, spans and streams are unsigned numbers. */
public sealed interface SenderEvent {
    /**
     * The receiver already has some of a file, from an earlier session.
     *
     * @param file the file
     * @param bytes how much
     * @param spanBytes the size of the file's spans
     * @param durable the spans
     * @param ctimeSeconds ctime of the source's inode when the first of them came; with {@code
     *     ctimeNanos} 0 where nobody knows
     * @param ctimeNanos the part of it below a second
     * @param digest digest of what they hold (SPEC.md, 7.6); empty where nobody knows
     */
    record Resumed(
            int file,
            long bytes,
            long spanBytes,
            SpanSet durable,
            long ctimeSeconds,
            int ctimeNanos,
            ByteString digest)
            implements SenderEvent {}

    /**
     * Bytes that {@link Resumed} told of are not there any more, and go out again.
     *
     * @param file the file
     * @param bytes how many
     */
    record Lost(int file, long bytes) implements SenderEvent {}

    /**
     * The receiver gives the file another name, as its own is taken by something that stays.
     *
     * @param file the file
     * @param name its name there
     */
    record StoredAs(int file, ByteString name) implements SenderEvent {}

    /**
     * Names at the receiver that were not offered are gone.
     *
     * @param names the names
     */
    record RemovedNames(List<ByteString> names) implements SenderEvent {}

    /**
     * Every span is verified: the owner is to look whether the source is still what was offered,
     * and to call {@link Sender#sourceChecked}.
     *
     * @param file the file
     */
    record CheckSource(int file) implements SenderEvent {}

    /**
     * A span arrived damaged, and goes out again.
     *
     * @param file its file
     * @param span its number
     * @param stream the stream that brought it
     */
    record SpanDamaged(int file, int span, int stream) implements SenderEvent {}

    /**
     * The receiver is done with a stream: its socket is to be shut down.
     *
     * @param stream the stream
     */
    record StreamOver(int stream) implements SenderEvent {}

    /**
     * An offer came out.
     *
     * @param file the file
     * @param outcome how
     * @param sourceFailed the source had failed by then: the answer to the offer was on its way
     */
    record Settled(int file, FileOutcome outcome, boolean sourceFailed) implements SenderEvent {}

    /**
     * The receiver told its progress.
     *
     * @param progress what it told
     */
    record Progressed(Progress progress) implements SenderEvent {}

    /**
     * The receiver has a word for the user.
     *
     * @param notice its word
     */
    record Noticed(Notice notice) implements SenderEvent {}

    /**
     * The session is over.
     *
     * @param report the receiver's report
     */
    record Finished(SideReport report) implements SenderEvent {}

    /**
     * The receiver ends the session.
     *
     * @param fault why
     */
    record Refused(Fault fault) implements SenderEvent {}
}
