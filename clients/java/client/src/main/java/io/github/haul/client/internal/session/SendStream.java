package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Sender;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.source.FileFacts;
import io.github.haul.client.internal.source.SourceEntry;
import io.github.haul.client.internal.source.SourceFaults;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import org.jspecify.annotations.Nullable;

/**
 * A data stream that sends, on a thread of its own: spans by {@link FileChannel#transferTo}, which
 * copies no byte, and small files in packs.
 *
 * <p>Where spans have a digest their bytes are read for it first, a piece at a time, and what was
 * just read is what the kernel sends. A writer in between changes one and not the other: the
 * receiver sees a damaged span then, and asks for it again.
 */
final class SendStream extends DataStream {
    /** Longest file that goes in a pack. */
    private static final long SMALL_FILE_BYTES_MAX = 128 << 10;

    /** Bytes that are read for the digest, and then sent, at a time. */
    private static final int PIECE_BYTES = 256 << 10;

    private static final int EDGE_BYTES = 256;

    private final SendShared shared;
    private final long shareBytes;
    private final SpanDigest digest;
    private final Watch watch = new Watch();

    /** Bytes of frames around payload, which go out with the next that come. */
    private final ByteBuffer edges = ByteBuffer.allocateDirect(EDGE_BYTES);

    private final ByteBuffer piece = ByteBuffer.allocateDirect(PIECE_BYTES);
    private @Nullable PackWriter pack;
    private @Nullable FileChannel file;
    private int fileNumber;
    private long sequence;
    private volatile long movedBytes;

    /** What the session's thread knows of a stream: whether anything gets through. */
    static final class Watch {
        long received;
        boolean isOnStorage;
        long seen = -1;
        long seenAtNs;
    }

    SendStream(
            int number,
            OpenSession session,
            SendShared shared,
            Inbox inbox,
            SpanDigest digest,
            long delayMs) {
        super(number, session, inbox, delayMs);
        this.shared = shared;
        shareBytes = StreamMemory.shareBytes(session.granted().opened().getStreams());
        this.digest = digest;
    }

    /** Bytes that were handed to the kernel so far. */
    @Override
    long movedBytes() {
        return movedBytes;
    }

    /** What the session's thread, and no other, keeps of this stream. */
    Watch watch() {
        return watch;
    }

    @Override
    void opened() throws ProtocolViolation {
        shared.run(machine -> machine.streamOpened(number()));
    }

    @Override
    void release() {
        closeFile();
    }

    @Override
    void move(SocketChannel socket) throws IOException, InterruptedException {
        send(socket);
        edges.put(new Frames.End(sequence, number()).encode());
        flush(socket);
        socket.shutdownOutput();
    }

    private void send(SocketChannel socket) throws IOException, InterruptedException {
        SendShared.Work work = shared.take(number(), this);
        while (work != null) {
            SendShared.Work next;
            if (isSmall(work)) {
                next = sendPack(socket, work);
            } else {
                sendSpan(socket, work);
                next = null;
            }
            if (next == null && !shared.isStopping()) {
                next = shared.takeNow(number());
            }
            if (next == null) {
                flush(socket);
                next = shared.take(number(), this);
            }
            work = next;
        }
    }

    private static boolean isSmall(SendShared.Work work) {
        return work.span().wholeFile() && work.span().lenBytes() <= SMALL_FILE_BYTES_MAX;
    }

    private Frames.Span header(Sender.Assignment span) {
        return new Frames.Span(
                span.file(), span.offsetBytes(), span.lenBytes(), sequence++, number());
    }

    /** Sends a small file and those that wait behind it; returns the first that was too long. */
    private SendShared.@Nullable Work sendPack(SocketChannel socket, SendShared.Work first)
            throws IOException {
        PackWriter writer = pack == null ? new PackWriter(shareBytes - PIECE_BYTES) : pack;
        pack = writer;
        writer.clear();
        long firstSequence = sequence;
        SendShared.Work work = first;
        while (work != null) {
            packFile(writer, work);
            work =
                    writer.hasRoom((int) SMALL_FILE_BYTES_MAX)
                            ? shared.takeSmall(number(), SMALL_FILE_BYTES_MAX)
                            : null;
        }
        if (writer.spans() > 0) {
            writeFully(socket, edgesAnd(writer.finish(number(), firstSequence)));
        }
        return null;
    }

    private void packFile(PackWriter writer, SendShared.Work work) {
        SourceEntry source = work.source();
        int length = (int) work.span().lenBytes();
        Fault fault = null;
        ByteBuffer payload = writer.payload(length);
        try (FileChannel content = source.open()) {
            fault = fill(source, content, 0, payload);
        } catch (IOException error) {
            fault = SourceFaults.of(source.name(), "cannot be read", error);
        }
        FileFacts now = null;
        if (fault == null) {
            try {
                now = source.look();
                fault = source.compare(now);
            } catch (IOException error) {
                fault = SourceFaults.of(source.name(), "cannot be looked at again", error);
            }
        }
        if (fault != null || now == null) {
            // Nothing of it goes out: no receiver waits for what was given up.
            shared.sourceFailed(
                    work.span().file(),
                    fault == null ? SourceFaults.changed(source.name(), "it is gone") : fault);
            return;
        }
        // The trailer of a file's only span may confirm it, if its inode has not changed.
        boolean isConfirmed =
                !source.isTouched(now)
                        && shared.with(machine -> machine.confirmWithSpan(work.span().file()));
        Frames.Status status = isConfirmed ? Frames.Status.CONFIRMED : Frames.Status.WHOLE;
        Frames.Span header = header(work.span());
        payload.clear().limit(length);
        digest.begin(header);
        digest.update(payload);
        Frames.Trailer trailer = new Frames.Trailer(status, digest.end(status));
        shared.keepSent(header, trailer);
        writer.add(header, trailer);
    }

    /**
     * Fills a buffer from a source, with zeros behind its end; the fault of one that ends early.
     */
    private static @Nullable Fault fill(
            SourceEntry source, FileChannel content, long offset, ByteBuffer buffer)
            throws IOException {
        int begin = buffer.position();
        while (buffer.hasRemaining()) {
            if (content.read(buffer, offset + buffer.position() - begin) < 0) {
                while (buffer.hasRemaining()) {
                    buffer.put((byte) 0);
                }
                return SourceFaults.changed(source.name(), "it became shorter");
            }
        }
        return null;
    }

    private void sendSpan(SocketChannel socket, SendShared.Work work) throws IOException {
        SourceEntry source = work.source();
        FileChannel content;
        Fault fault = null;
        try {
            content = open(work);
        } catch (IOException error) {
            fault = SourceFaults.of(source.name(), "cannot be read", error);
            shared.sourceFailed(work.span().file(), fault);
            return;
        }
        Frames.Span header = header(work.span());
        put(socket, header.encode());
        digest.begin(header);
        long end = header.offsetBytes() + header.lenBytes();
        for (long at = header.offsetBytes(); at < end; at += PIECE_BYTES) {
            int length = (int) Math.min(PIECE_BYTES, end - at);
            piece.clear().limit(length);
            Fault failed = fault;
            if (failed == null) {
                try {
                    failed = fill(source, content, at, piece);
                } catch (IOException error) {
                    failed = SourceFaults.of(source.name(), "cannot be read", error);
                }
            }
            while (piece.hasRemaining()) {
                piece.put((byte) 0);
            }
            piece.flip();
            digest.update(piece.duplicate());
            boolean isWhole = failed == null;
            if (failed != null && fault == null) {
                fault = failed;
                shared.sourceFailed(work.span().file(), fault);
            }
            sendPiece(socket, content, at, isWhole && header.lenBytes() > PIECE_BYTES);
        }
        Frames.Status status = fault == null ? Frames.Status.WHOLE : Frames.Status.ABANDONED;
        Frames.Trailer trailer = new Frames.Trailer(status, digest.end(status));
        if (fault == null) {
            shared.keepSent(header, trailer);
        }
        put(socket, trailer.encode());
    }

    /** Sends the piece that was just read: out of the file, or where that is no use the copy. */
    private void sendPiece(SocketChannel socket, FileChannel content, long at, boolean isZeroCopy)
            throws IOException {
        if (!isZeroCopy) {
            writeFully(socket, edgesAnd(piece));
            return;
        }
        flush(socket);
        while (piece.hasRemaining()) {
            long sent = content.transferTo(at + piece.position(), piece.remaining(), socket);
            if (sent <= 0) {
                // The file has become shorter since: the copy is what the digest is of.
                writeFully(socket, edgesAnd(piece));
                return;
            }
            piece.position(piece.position() + (int) sent);
            movedBytes += sent;
        }
    }

    private FileChannel open(SendShared.Work work) throws IOException {
        FileChannel opened = file;
        if (opened == null || fileNumber != work.span().file()) {
            closeFile();
            opened = work.source().open();
            file = opened;
            fileNumber = work.span().file();
        }
        return opened;
    }

    private void closeFile() {
        if (file != null) {
            try {
                file.close();
            } catch (IOException gone) {
                // It was only read.
            }
            file = null;
        }
    }

    /** Keeps bytes that go out with the payload that follows. */
    private void put(SocketChannel socket, byte[] bytes) throws IOException {
        if (edges.remaining() < bytes.length) {
            flush(socket);
        }
        edges.put(bytes);
    }

    private void flush(SocketChannel socket) throws IOException {
        if (edges.position() > 0) {
            writeFully(socket, new ByteBuffer[] {edges.flip()});
            edges.clear();
        }
    }

    private ByteBuffer[] edgesAnd(ByteBuffer payload) {
        return new ByteBuffer[] {edges.flip(), payload};
    }

    private void writeFully(SocketChannel socket, ByteBuffer[] buffers) throws IOException {
        ByteBuffer last = buffers[buffers.length - 1];
        while (last.hasRemaining()) {
            movedBytes += socket.write(buffers);
        }
        edges.clear();
    }
}
