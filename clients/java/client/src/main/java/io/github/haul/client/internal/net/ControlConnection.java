package io.github.haul.client.internal.net;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import org.jspecify.annotations.Nullable;

/**
 * The control connection of a session: messages, both ways, over TLS (SPEC.md, 3 and 4).
 *
 * <p>Any thread may send; one receives.
 */
public final class ControlConnection implements AutoCloseable {
    private static final int READ_BYTES = 16 << 10;

    private final Socket tcp;
    private final SSLSocket socket;
    private final InputStream input;
    private final Duration roundTrip;
    private final ReentrantLock sending = new ReentrantLock();
    private ByteBuffer arrived = ByteBuffer.allocate(READ_BYTES).flip();
    private int messageBytesMax = Limits.MESSAGE_BYTES_MAX_UNKNOWN;

    private ControlConnection(Socket tcp, SSLSocket socket, Duration roundTrip) throws IOException {
        this.roundTrip = roundTrip;
        this.tcp = tcp;
        this.socket = socket;
        this.input = socket.getInputStream();
    }

    /**
     * Connects to a server and sees that it is the right one. Nothing is sent before that.
     *
     * @param server its address
     * @param fingerprint 16 bytes, from the token
     * @param patience the longest time that connecting, and each answer of TLS, may take
     * @return the connection
     * @throws IOException if the server is not reached or is another one
     */
    public static ControlConnection open(
            InetSocketAddress server, byte[] fingerprint, Duration patience) throws IOException {
        int patienceMs = Math.toIntExact(patience.toMillis());
        Socket tcp = new Socket();
        try {
            tcp.setTcpNoDelay(true);
            long begunNs = System.nanoTime();
            tcp.connect(server, patienceMs);
            Duration roundTrip = Duration.ofNanos(System.nanoTime() - begunNs);
            tcp.setSoTimeout(patienceMs);
            SSLSocket tls =
                    (SSLSocket)
                            PinnedTls.socketsFor(fingerprint)
                                    .createSocket(
                                            tcp, server.getHostString(), server.getPort(), true);
            SSLParameters parameters = tls.getSSLParameters();
            parameters.setProtocols(new String[] {PinnedTls.VERSION});
            // The fingerprint says who the server is; its name goes to nobody on the path.
            parameters.setServerNames(List.of());
            tls.setSSLParameters(parameters);
            tls.startHandshake();
            return new ControlConnection(tcp, tls, roundTrip);
        } catch (IOException | RuntimeException failed) {
            tcp.close();
            throw failed;
        }
    }

    /**
     * Tells how long the TCP connection took to be made: one round trip.
     *
     * @return the time
     */
    public Duration roundTrip() {
        return roundTrip;
    }

    /** Allows the longer messages of a session whose token was accepted. */
    public void accepted() {
        messageBytesMax = Limits.MESSAGE_BYTES_MAX;
    }

    /**
     * Sends a message.
     *
     * @param message the message
     * @throws IOException if the connection is lost
     */
    public void send(Control message) throws IOException {
        byte[] bytes = ControlMessages.encode(message);
        sending.lock();
        try {
            socket.getOutputStream().write(bytes);
        } finally {
            sending.unlock();
        }
    }

    /**
     * Waits for a message.
     *
     * @param patience how long, more than zero
     * @return the message, or null if none came
     * @throws IOException if the connection is lost
     * @throws ProtocolViolation if the server said what it may not
     */
    public @Nullable Control receive(Duration patience) throws IOException, ProtocolViolation {
        long end = System.nanoTime() + patience.toNanos();
        while (true) {
            Control message = ControlMessages.decode(arrived, messageBytesMax);
            if (message != null) {
                return message;
            }
            long leftMs = Duration.ofNanos(end - System.nanoTime()).toMillis();
            if (leftMs <= 0 || !read((int) Math.min(leftMs, Integer.MAX_VALUE))) {
                return null;
            }
        }
    }

    /**
     * Waits for a message as long as the connection stands. Another thread may {@link #abort} it.
     *
     * @return the message
     * @throws IOException if the connection is lost
     * @throws ProtocolViolation if the server said what it may not
     */
    public Control receive() throws IOException, ProtocolViolation {
        while (true) {
            Control message = ControlMessages.decode(arrived, messageBytesMax);
            if (message != null) {
                return message;
            }
            read(0);
        }
    }

    /** Returns the server's address. */
    public InetSocketAddress server() {
        return (InetSocketAddress) tcp.getRemoteSocketAddress();
    }

    /** Ends the connection at once, whatever other threads do with it. */
    public void abort() {
        try {
            // The socket below TLS: to say goodbye could take as long as the peer likes.
            tcp.close();
        } catch (IOException gone) {
            // It is closed, which is all that was wanted.
        }
    }

    /** Reads what is there, within this time, 0 for any; whether there was anything. */
    private boolean read(int patienceMs) throws IOException {
        makeRoom();
        socket.setSoTimeout(patienceMs);
        try {
            int end = arrived.limit();
            int got = input.read(arrived.array(), end, arrived.capacity() - end);
            if (got < 0) {
                throw new EOFException("the server closed the control connection");
            }
            arrived.limit(end + got);
            return true;
        } catch (SocketTimeoutException silent) {
            return false;
        }
    }

    /**
     * Moves what has arrived to the front, and makes the buffer larger where that is not enough.
     */
    private void makeRoom() {
        if (arrived.limit() < arrived.capacity()) {
            return;
        }
        // A message is decoded or refused once its length is there, so this has an end.
        int capacity = arrived.position() > 0 ? arrived.capacity() : 2 * arrived.capacity();
        arrived = ByteBuffer.allocate(capacity).put(arrived).flip();
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
