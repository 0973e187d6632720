package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.PackReader;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.SpanEnd;
import io.github.haul.client.internal.target.ReceivedFile;
import io.github.haul.client.internal.target.TargetFault;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import io.github.haul.client.internal.wire.Xxh3;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/**
 * A data stream that receives, on a thread of its own, through direct buffers: {@link
 * java.nio.channels.FileChannel#transferFrom} would copy a socket's bytes through the heap, 8 KiB
 * at a time.
 */
final class ReceiveStream extends DataStream {
    private static final int BUFFER_BYTES = 1 << 20;

    private final ReceiveShared shared;
    private final SpanDigest digest;

    /** What a span holds, for the journal of a file of several. */
    private final Xxh3 content = new Xxh3();

    private final BiConsumer<Integer, TargetFault> failures;

    /** What has arrived and was not looked at: from its position to its limit. */
    private final ByteBuffer arrived = ByteBuffer.allocateDirect(BUFFER_BYTES).flip();

    private @Nullable ByteBuffer packed;
    private long frames;
    private volatile long receivedBytes;
    private volatile boolean isOnStorage;

    ReceiveStream(
            int number,
            OpenSession session,
            ReceiveShared shared,
            Inbox inbox,
            SpanDigest digest,
            long delayMs,
            BiConsumer<Integer, TargetFault> failures) {
        super(number, session, inbox, delayMs);
        this.shared = shared;
        this.digest = digest;
        this.failures = failures;
    }

    /** Bytes that have arrived. */
    @Override
    long movedBytes() {
        return receivedBytes;
    }

    /** Whether it waits for the disk now, and not for the wire. */
    boolean isOnStorage() {
        return isOnStorage;
    }

    @Override
    void opened() throws ProtocolViolation {
        shared.run(machine -> machine.streamOpened(number()));
    }

    @Override
    void move(SocketChannel socket) throws IOException, ProtocolViolation, InterruptedException {
        byte[] encoded = new byte[Frames.HEADER_BYTES];
        while (true) {
            need(socket, encoded.length);
            arrived.get(encoded);
            Frames.Header header = Frames.Header.decode(encoded);
            if (header instanceof Frames.Span span) {
                int permit = shared.with(machine -> machine.spanStarts(number(), span));
                frames++;
                receiveSpan(socket, span, permit);
            } else if (header instanceof Frames.Pack pack) {
                receivePack(socket, pack);
            } else if (header instanceof Frames.End end) {
                ProtocolViolation.unless(
                        end.stream() == number() && end.sequence() == frames,
                        "the end of another stream, or out of its order");
                return;
            }
        }
    }

    /** Sees to it that this many bytes have arrived; at most as many as the buffer holds. */
    private void need(SocketChannel socket, int bytes) throws IOException {
        while (arrived.remaining() < bytes) {
            fill(socket);
        }
    }

    private void fill(SocketChannel socket) throws IOException {
        arrived.compact();
        try {
            int got = socket.read(arrived);
            if (got < 0) {
                throw new EOFException("the server closed a data connection within a frame");
            }
            receivedBytes += got;
        } finally {
            arrived.flip();
        }
    }

    private void receiveSpan(SocketChannel socket, Frames.Span header, int permit)
            throws IOException, InterruptedException {
        ReceivedFile file = permit == Receiver.DISCARD ? null : shared.file(header.file());
        boolean keepsDigests = file != null && file.keepsDigests();
        digest.begin(header);
        content.begin();
        long left = header.lenBytes();
        while (left > 0) {
            if (!arrived.hasRemaining()) {
                fill(socket);
            }
            int length = (int) Math.min(left, arrived.remaining());
            ByteBuffer payload = arrived.slice(arrived.position(), length);
            if (permit != Receiver.DISCARD) {
                digest.update(payload.duplicate());
            }
            if (keepsDigests) {
                content.update(payload.duplicate());
            }
            long offset = header.offsetBytes() + header.lenBytes() - left;
            if (file != null && !write(header.file(), file, payload, offset)) {
                file = null;
            }
            arrived.position(arrived.position() + length);
            left -= length;
        }
        need(socket, Frames.TRAILER_BYTES);
        byte[] trailer = new byte[Frames.TRAILER_BYTES];
        arrived.get(trailer);
        if (permit != Receiver.DISCARD) {
            end(header, permit, file, trailer);
        }
    }

    /** Writes a piece; false where the target cannot take it, which is told. */
    private boolean write(int number, ReceivedFile file, ByteBuffer payload, long offset)
            throws InterruptedException {
        shared.takePlace(number, file);
        isOnStorage = true;
        try {
            file.write(payload, offset);
            return true;
        } catch (TargetFault fault) {
            failures.accept(number, fault);
            return false;
        } finally {
            isOnStorage = false;
        }
    }

    /** Ends a payload: only what its digest agrees with is believed. */
    private void end(Frames.Span header, int span, @Nullable ReceivedFile file, byte[] encoded) {
        SpanEnd end;
        try {
            Frames.Trailer trailer = Frames.Trailer.decode(encoded);
            byte[] ours = digest.end(trailer.status());
            if (!MessageDigest.isEqual(ours, trailer.digest())) {
                end = SpanEnd.DAMAGED;
            } else if (file == null) {
                end = SpanEnd.ABANDONED;
            } else {
                end =
                        switch (trailer.status()) {
                            case WHOLE -> SpanEnd.VERIFIED;
                            case CONFIRMED -> SpanEnd.CONFIRMED;
                            case ABANDONED -> SpanEnd.ABANDONED;
                        };
            }
        } catch (ProtocolViolation damaged) {
            end = SpanEnd.DAMAGED;
        }
        SpanEnd ended = end;
        if (file != null && (ended == SpanEnd.VERIFIED || ended == SpanEnd.CONFIRMED)) {
            file.verified(span, file.keepsDigests() ? content.end() : new byte[0]);
        }
        boolean isUrgent =
                shared.with(
                        machine -> {
                            machine.spanEnded(number(), header.file(), span, ended);
                            return machine.isUrgent();
                        });
        if (isUrgent) {
            wakeSession();
        }
    }

    private void receivePack(SocketChannel socket, Frames.Pack pack)
            throws IOException, ProtocolViolation, InterruptedException {
        shared.run(machine -> machine.packStarts(number(), pack));
        ByteBuffer body = packed;
        if (body == null) {
            body = ByteBuffer.allocateDirect((int) Limits.PACK_BYTES_MAX);
            packed = body;
        }
        body.clear().limit((int) pack.lenBytes());
        while (body.hasRemaining()) {
            if (!arrived.hasRemaining()) {
                fill(socket);
            }
            int length = Math.min(body.remaining(), arrived.remaining());
            body.put(arrived.slice(arrived.position(), length));
            arrived.position(arrived.position() + length);
        }
        PackReader reader = new PackReader(pack, body.flip());
        for (PackReader.PackedSpan span = reader.next(); span != null; span = reader.next()) {
            Frames.Span header = span.header();
            int permit = shared.with(machine -> machine.spanStarts(number(), header));
            frames++;
            if (permit == Receiver.DISCARD) {
                continue;
            }
            ReceivedFile file = shared.file(header.file());
            digest.begin(header);
            digest.update(span.payload().duplicate());
            content.begin();
            if (file != null && file.keepsDigests()) {
                content.update(span.payload().duplicate());
            }
            if (file != null && !write(header.file(), file, span.payload(), header.offsetBytes())) {
                file = null;
            }
            byte[] trailer = new byte[Frames.TRAILER_BYTES];
            span.trailer().get(trailer);
            end(header, permit, file, trailer);
        }
    }
}
