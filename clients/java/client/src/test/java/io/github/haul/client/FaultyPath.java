package io.github.haul.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/** A path between a client and a server that loses connections, damages bytes, and is slow. */
final class FaultyPath implements AutoCloseable {
    private static final int DATA_STREAM = 0x89;
    private static final int CHUNK_BYTES = 64 << 10;

    private final ServerSocket listener;
    private final int serverPort;
    private final Set<Socket> open = ConcurrentHashMap.newKeySet();
    private final AtomicLong dataBytes = new AtomicLong();
    private final AtomicInteger damaged = new AtomicInteger();
    private final AtomicBoolean isCut = new AtomicBoolean();

    /** Bytes on data streams, all together, after which everything is cut, once. */
    volatile long cutAllAfter = Long.MAX_VALUE;

    /** Bytes on data streams after which the one that carried them is cut, once. */
    volatile long cutStreamAfter = Long.MAX_VALUE;

    /** Bytes on data streams after which one bit of the next ones is flipped, once. */
    volatile long flipAfter = Long.MAX_VALUE;

    /** Milliseconds that each 64 KiB of data takes. */
    volatile long slowMs;

    FaultyPath(HaulUrl server) throws IOException {
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        serverPort = server.port();
        daemon(this::accept);
    }

    /** The URL by which a client goes over this path. */
    String through(String url) {
        return url.replace(":" + serverPort + "/", ":" + listener.getLocalPort() + "/");
    }

    /** How many bits were flipped. */
    int damaged() {
        return damaged.get();
    }

    /** Bytes that went over data streams. */
    long dataBytes() {
        return dataBytes.get();
    }

    /** Cuts all connections there are. */
    void cutAll() {
        open.forEach(FaultyPath::closeQuietly);
    }

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work, "faulty path");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                Socket client = listener.accept();
                Socket server = new Socket(InetAddress.getLoopbackAddress(), serverPort);
                open.add(client);
                open.add(server);
                AtomicBoolean isData = new AtomicBoolean();
                daemon(() -> carry(client, server, isData, true));
                daemon(() -> carry(server, client, isData, false));
            } catch (IOException closedOrRefused) {
                // A server that is gone refuses; the client tries again.
            }
        }
    }

    private void carry(Socket from, Socket to, AtomicBoolean isData, boolean isFromClient) {
        byte[] buffer = new byte[CHUNK_BYTES];
        boolean isFirst = true;
        try {
            InputStream input = from.getInputStream();
            OutputStream output = to.getOutputStream();
            for (int got = input.read(buffer); got >= 0; got = input.read(buffer)) {
                if (isFirst && isFromClient) {
                    isData.set((buffer[0] & 0xff) == DATA_STREAM);
                }
                isFirst = false;
                if (isData.get() && got > 64) {
                    disturb(buffer, got, from, to);
                }
                output.write(buffer, 0, got);
            }
            to.shutdownOutput();
        } catch (IOException cut) {
            closeQuietly(from);
            closeQuietly(to);
        } catch (InterruptedException nobodyDoes) {
            throw new IllegalStateException(nobodyDoes);
        }
    }

    private void disturb(byte[] buffer, int got, Socket from, Socket to)
            throws InterruptedException, IOException {
        long bytes = dataBytes.addAndGet(got);
        // In the middle of so many bytes is a payload, but for a chance of one in 20,000.
        if (bytes > flipAfter && got > CHUNK_BYTES / 2) {
            flipAfter = Long.MAX_VALUE;
            buffer[got / 2] ^= 4;
            damaged.incrementAndGet();
        }
        if (bytes > cutStreamAfter) {
            cutStreamAfter = Long.MAX_VALUE;
            from.close();
            to.close();
            throw new IOException("cut");
        }
        if (bytes > cutAllAfter && isCut.compareAndSet(false, true)) {
            cutAll();
            throw new IOException("cut");
        }
        if (slowMs > 0) {
            Thread.sleep(slowMs);
        }
    }

    private static void closeQuietly(Socket socket) {
        try {
            socket.close();
        } catch (IOException gone) {
            throw new UncheckedIOException(gone);
        }
    }

    /** Cuts everything, and takes no other connection. */
    void end() throws IOException {
        listener.close();
        cutAll();
    }

    @Override
    public void close() throws IOException {
        end();
    }
}
