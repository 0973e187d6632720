package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.PackReader;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.SpanEnd;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;

/** A data stream that receives spans into memory, for a file that is read in parts. */
final class PartStream extends DataStream {
    private static final int BUFFER_BYTES = 256 << 10;

    private final PartShared shared;
    private final SpanDigest digest;

    /** What has arrived and was not looked at: from its position to its limit. */
    private final ByteBuffer arrived = ByteBuffer.allocateDirect(BUFFER_BYTES).flip();

    private long frames;
    private volatile long movedBytes;

    PartStream(
            int number,
            OpenSession session,
            PartShared shared,
            Inbox inbox,
            SpanDigest digest,
            long delayMs) {
        super(number, session, inbox, delayMs);
        this.shared = shared;
        this.digest = digest;
    }

    @Override
    long movedBytes() {
        return movedBytes;
    }

    @Override
    void opened() throws ProtocolViolation {
        shared.run(machine -> machine.streamOpened(number()));
    }

    @Override
    void move(SocketChannel socket) throws IOException, ProtocolViolation {
        byte[] encoded = new byte[Frames.HEADER_BYTES];
        while (true) {
            take(socket, encoded);
            Frames.Header header = Frames.Header.decode(encoded);
            if (header instanceof Frames.Span span) {
                receiveSpan(socket, span);
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

    /** Reads more, when all that has arrived was looked at. */
    private void fill(SocketChannel socket) throws IOException {
        arrived.clear();
        try {
            int got = socket.read(arrived);
            if (got < 0) {
                throw new EOFException("the server closed a data connection within a frame");
            }
            movedBytes += got;
        } finally {
            arrived.flip();
        }
    }

    /** Takes the next bytes of the stream, at least one and at most this many. */
    private ByteBuffer next(SocketChannel socket, long bytesMax) throws IOException {
        if (!arrived.hasRemaining()) {
            fill(socket);
        }
        int length = (int) Math.min(bytesMax, arrived.remaining());
        ByteBuffer piece = arrived.slice(arrived.position(), length);
        arrived.position(arrived.position() + length);
        return piece;
    }

    private void take(SocketChannel socket, byte[] bytes) throws IOException {
        for (int at = 0; at < bytes.length; ) {
            ByteBuffer piece = next(socket, bytes.length - at);
            int length = piece.remaining();
            piece.get(bytes, at, length);
            at += length;
        }
    }

    private void receiveSpan(SocketChannel socket, Frames.Span header)
            throws IOException, ProtocolViolation {
        int permit = shared.with(machine -> machine.spanStarts(number(), header));
        frames++;
        boolean isWanted = permit != Receiver.DISCARD;
        byte[] bytes = isWanted ? new byte[(int) header.lenBytes()] : new byte[0];
        digest.begin(header);
        for (long at = 0; at < header.lenBytes(); ) {
            ByteBuffer piece = next(socket, header.lenBytes() - at);
            int length = piece.remaining();
            if (isWanted) {
                digest.update(piece.duplicate());
                piece.get(bytes, (int) at, length);
            }
            at += length;
        }
        byte[] trailer = new byte[Frames.TRAILER_BYTES];
        take(socket, trailer);
        if (isWanted) {
            end(header, permit, bytes, trailer);
        }
    }

    private void receivePack(SocketChannel socket, Frames.Pack pack)
            throws IOException, ProtocolViolation {
        shared.run(machine -> machine.packStarts(number(), pack));
        ProtocolViolation.unless(
                pack.lenBytes() <= Limits.PACK_BYTES_MAX, "a pack of more than it may hold");
        byte[] body = new byte[(int) pack.lenBytes()];
        take(socket, body);
        PackReader reader = new PackReader(pack, ByteBuffer.wrap(body));
        for (PackReader.PackedSpan span = reader.next(); span != null; span = reader.next()) {
            Frames.Span header = span.header();
            int permit = shared.with(machine -> machine.spanStarts(number(), header));
            frames++;
            if (permit != Receiver.DISCARD) {
                byte[] bytes = new byte[(int) header.lenBytes()];
                span.payload().duplicate().get(bytes);
                digest.begin(header);
                digest.update(ByteBuffer.wrap(bytes));
                byte[] trailer = new byte[Frames.TRAILER_BYTES];
                span.trailer().get(trailer);
                end(header, permit, bytes, trailer);
            }
        }
    }

    /** Ends a payload: only what its digest agrees with is believed. */
    private void end(Frames.Span header, int span, byte[] bytes, byte[] encoded) {
        SpanEnd end = endOf(encoded);
        if (end == SpanEnd.VERIFIED || end == SpanEnd.CONFIRMED) {
            shared.arrived(number(), header.file(), span, bytes, end);
        } else {
            shared.run(machine -> machine.spanEnded(number(), header.file(), span, end));
        }
        wakeSession();
    }

    private SpanEnd endOf(byte[] encoded) {
        Frames.Trailer trailer;
        try {
            trailer = Frames.Trailer.decode(encoded);
        } catch (ProtocolViolation damaged) {
            return SpanEnd.DAMAGED;
        }
        if (!MessageDigest.isEqual(digest.end(trailer.status()), trailer.digest())) {
            return SpanEnd.DAMAGED;
        }
        return switch (trailer.status()) {
            case WHOLE -> SpanEnd.VERIFIED;
            case CONFIRMED -> SpanEnd.CONFIRMED;
            case ABANDONED -> SpanEnd.ABANDONED;
        };
    }
}
