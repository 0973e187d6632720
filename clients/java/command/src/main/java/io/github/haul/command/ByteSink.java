package io.github.haul.command;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import org.jspecify.annotations.Nullable;

/**
 * A receiver on loopback that reads into a direct buffer and throws away, one connection after the
 * other; at the end of each it answers how many bytes came.
 */
final class ByteSink implements AutoCloseable {
    private static final int BUFFER_BYTES = 1 << 20;

    private final ServerSocketChannel server;
    private final Thread thread;
    private volatile @Nullable IOException failure;

    private ByteSink(ServerSocketChannel server) {
        this.server = server;
        thread = new Thread(this::serve, "haul bench sink");
        thread.setDaemon(true);
    }

    /** Starts a sink on a port that is free. */
    static ByteSink start() throws IOException {
        ServerSocketChannel server = ServerSocketChannel.open();
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        ByteSink sink = new ByteSink(server);
        sink.thread.start();
        return sink;
    }

    /** Where it listens. */
    InetSocketAddress address() throws IOException {
        return (InetSocketAddress) server.getLocalAddress();
    }

    private void serve() {
        ByteBuffer buffer = ByteBuffer.allocateDirect(BUFFER_BYTES);
        try {
            while (server.isOpen()) {
                try (SocketChannel socket = server.accept()) {
                    swallow(socket, buffer);
                }
            }
        } catch (AsynchronousCloseException closed) {
            // The bench is over.
        } catch (IOException error) {
            failure = error;
        }
    }

    private static void swallow(SocketChannel socket, ByteBuffer buffer) throws IOException {
        long count = 0;
        while (true) {
            buffer.clear();
            int read = socket.read(buffer);
            if (read < 0) {
                break;
            }
            count += read;
        }
        ByteBuffer answer = ByteBuffer.allocate(Long.BYTES).putLong(0, count);
        while (answer.hasRemaining()) {
            socket.write(answer);
        }
    }

    /** Waits until the sink says that it has all of a file. */
    static void awaitCount(ReadableByteChannel socket, long expected) throws IOException {
        ByteBuffer answer = ByteBuffer.allocate(Long.BYTES);
        while (answer.hasRemaining()) {
            if (socket.read(answer) < 0) {
                throw new EOFException("the sink ended before it said how much came");
            }
        }
        if (answer.getLong(0) != expected) {
            throw new IOException(answer.getLong(0) + " of " + expected + " bytes came");
        }
    }

    /** What broke the sink, if anything did. */
    @Nullable IOException failure() {
        return failure;
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
