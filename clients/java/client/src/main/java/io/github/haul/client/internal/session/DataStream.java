package io.github.haul.client.internal.session;

import java.io.IOException;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import org.jspecify.annotations.Nullable;

/** A data stream: one connection, and a thread of its own that lives as long. */
abstract class DataStream implements Runnable {
    private final int number;
    private final OpenSession session;
    private final Inbox inbox;
    private final long delayMs;
    private final Thread thread;
    private @Nullable SocketChannel channel;
    private boolean isClosed;

    /**
     * A stream that is not started yet.
     *
     * @param number its number in the session
     * @param delayMs the time before it connects
     */
    DataStream(int number, OpenSession session, Inbox inbox, long delayMs) {
        this.number = number;
        this.session = session;
        this.inbox = inbox;
        this.delayMs = delayMs;
        thread = new Thread(this, "haul stream " + Integer.toUnsignedString(number));
        thread.setDaemon(true);
    }

    /** Tells the machine that the stream is open. */
    abstract void opened() throws Exception;

    /** Moves spans until there are no more. */
    abstract void move(SocketChannel socket) throws Exception;

    /** Lets go of what the stream holds beside its connection. */
    void release() {}

    /** Bytes that this stream has moved so far. */
    abstract long movedBytes();

    final int number() {
        return number;
    }

    /** Wakes the session's thread. */
    final void wakeSession() {
        inbox.wake();
    }

    final void start() {
        thread.start();
    }

    /** Whether {@link #close} was called. */
    final synchronized boolean isClosed() {
        return isClosed;
    }

    /** Ends the connection at once. */
    final synchronized void close() {
        isClosed = true;
        if (channel != null) {
            try {
                channel.close();
            } catch (IOException gone) {
                // It is closed, which is all that was wanted.
            }
        }
    }

    final void interrupt() {
        thread.interrupt();
    }

    /** Waits for the end of the thread, until a moment of {@link System#nanoTime}. */
    final void join(long endNs) {
        long leftMs = (endNs - System.nanoTime()) / 1_000_000;
        if (leftMs > 0) {
            try {
                thread.join(leftMs);
            } catch (InterruptedException cancelled) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private synchronized SocketChannel keep(SocketChannel opened) throws IOException {
        channel = opened;
        if (isClosed) {
            opened.close();
            throw new IOException("the session is over");
        }
        return opened;
    }

    @Override
    public final void run() {
        String why = "it was closed";
        try {
            Thread.sleep(delayMs);
            try (SocketChannel socket = keep(SocketChannel.open())) {
                socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
                socket.connect(session.server());
                byte[] preface = session.keys().preface(number, session.id()).encode();
                ByteBuffer toSay = ByteBuffer.wrap(preface);
                while (toSay.hasRemaining()) {
                    socket.write(toSay);
                }
                opened();
                move(socket);
            }
        } catch (InterruptedException over) {
            why = "the session is over";
        } catch (Exception error) {
            why = error.getMessage() == null ? error.toString() : error.getMessage();
        } catch (OutOfMemoryError error) {
            // A stream in its place would find no more.
            inbox.exhausted(error);
        } finally {
            release();
            inbox.streamEnded(number, why);
        }
    }
}
