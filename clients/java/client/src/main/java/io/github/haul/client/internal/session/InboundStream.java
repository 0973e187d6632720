package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.PackReader;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.SpanEnd;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.security.MessageDigest;

/**
 * A data stream that receives spans, on a thread of its own, through direct buffers: {@link
 * java.nio.channels.FileChannel#transferFrom} would copy a socket's bytes through the heap, 8 KiB
 * at a time. Its kinds say what becomes of a span's bytes.
 */
abstract class InboundStream extends DataStream {
    private final SharedMachine<Receiver> shared;

    /** Bytes that are taken from a connection at once where memory is scarce. */
    static final int BUFFER_BYTES_MIN = 256 << 10;

    private final SpanDigest digest;

    /** What has arrived and was not looked at: from its position to its limit. */
    private final ByteBuffer arrived;

    private long frames;
    private volatile long movedBytes;

    /**
     * A stream that is not started yet.
     *
     * @param bufferBytes the most bytes that it takes from its connection at once
     */
    InboundStream(
            int number,
            OpenSession session,
            SharedMachine<Receiver> shared,
            Inbox inbox,
            SpanDigest digest,
            long delayMs,
            int bufferBytes) {
        super(number, session, inbox, delayMs);
        this.shared = shared;
        this.digest = digest;
        arrived = StreamMemory.buffer(bufferBytes, BUFFER_BYTES_MIN).flip();
    }

    /** Begins a span that is wanted. */
    abstract void begin(Frames.Span header);

    /**
     * Takes the next bytes of the span that was begun.
     *
     * @param header the span's header
     * @param piece the bytes, which are gone afterwards
     * @param at bytes of the span before these
     */
    abstract void take(Frames.Span header, ByteBuffer piece, long at) throws InterruptedException;

    /** Ends the span that was begun: only what its digest agrees with may be believed. */
    abstract void end(Frames.Span header, int span, SpanEnd end);

    /** Whether it waits for the disk now, and not for the wire. */
    boolean isOnStorage() {
        return false;
    }

    /** Bytes that have arrived. */
    @Override
    final long movedBytes() {
        return movedBytes;
    }

    @Override
    final void opened() throws ProtocolViolation {
        shared.run(machine -> machine.streamOpened(number()));
    }

    @Override
    final void move(SocketChannel socket)
            throws IOException, ProtocolViolation, InterruptedException {
        byte[] encoded = new byte[Frames.HEADER_BYTES];
        while (true) {
            read(socket, encoded);
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

    /** The next bytes of the stream, at least one and at most this many. */
    private ByteBuffer next(SocketChannel socket, long bytesMax) throws IOException {
        while (!arrived.hasRemaining()) {
            fill(socket);
        }
        int length = (int) Math.min(bytesMax, arrived.remaining());
        ByteBuffer piece = arrived.slice(arrived.position(), length);
        arrived.position(arrived.position() + length);
        return piece;
    }

    private void read(SocketChannel socket, byte[] bytes) throws IOException {
        for (int at = 0; at < bytes.length; ) {
            ByteBuffer piece = next(socket, bytes.length - at);
            int length = piece.remaining();
            piece.get(bytes, at, length);
            at += length;
        }
    }

    /** Takes a header: the span's number, or {@link Receiver#DISCARD}. */
    private int starts(Frames.Span header) throws ProtocolViolation {
        int permit = shared.with(machine -> machine.spanStarts(number(), header));
        frames++;
        return permit;
    }

    private void receiveSpan(SocketChannel socket, Frames.Span header)
            throws IOException, ProtocolViolation, InterruptedException {
        int permit = starts(header);
        boolean isWanted = permit != Receiver.DISCARD;
        if (isWanted) {
            digest.begin(header);
            begin(header);
        }
        for (long at = 0; at < header.lenBytes(); ) {
            ByteBuffer piece = next(socket, header.lenBytes() - at);
            int length = piece.remaining();
            if (isWanted) {
                digest.update(piece.duplicate());
                take(header, piece, at);
            }
            at += length;
        }
        byte[] trailer = new byte[Frames.TRAILER_BYTES];
        read(socket, trailer);
        if (isWanted) {
            end(header, permit, endOf(trailer));
        }
    }

    private void receivePack(SocketChannel socket, Frames.Pack pack)
            throws IOException, ProtocolViolation, InterruptedException {
        shared.run(machine -> machine.packStarts(number(), pack));
        PackReader reader = new PackReader(pack.spans(), pack.lenBytes());
        byte[] encoded = new byte[Frames.HEADER_BYTES];
        while (reader.hasNext()) {
            read(socket, encoded);
            receiveSpan(socket, reader.next(encoded));
        }
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
