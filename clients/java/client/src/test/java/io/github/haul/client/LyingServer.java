package io.github.haul.client;

import io.github.haul.client.internal.net.ControlConnection;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.DataKeys;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.SpanDigest;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;

/**
 * A server that has the real one's key, believes what a client says, and lies about the rest.
 *
 * <p>Behind it the real server moves the files: each session is an honest one, but for what a
 * {@link Lie} makes of it. It knows the keys of the data streams, so what it changes there may be
 * signed as it should be.
 */
final class LyingServer implements AutoCloseable {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int DATA_STREAM = 0x89;
    private static final char[] NO_PASSWORD = {};

    private final HaulServer server;
    private final Lie lie;
    private final SSLContext tls;
    private final ServerSocket listener;
    private final Set<AutoCloseable> open = ConcurrentHashMap.newKeySet();

    /** Keys and digest of the session that was opened last. */
    private volatile byte[] keys = new byte[Limits.DATA_KEYS_BYTES];

    private volatile Digest digestKind = Digest.AES_GMAC;

    LyingServer(Path folder, HaulServer server, Lie lie) throws Exception {
        this.server = server;
        this.lie = lie;
        tls = identity(folder.resolve("state"));
        listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        daemon(this::accept);
    }

    private static SSLContext identity(Path state) throws Exception {
        byte[] der = Files.readAllBytes(state.resolve("certificate.der"));
        Certificate certificate =
                CertificateFactory.getInstance("X.509")
                        .generateCertificate(new ByteArrayInputStream(der));
        PKCS8EncodedKeySpec key =
                new PKCS8EncodedKeySpec(Files.readAllBytes(state.resolve("key.der")));
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, NO_PASSWORD);
        String algorithm = certificate.getPublicKey().getAlgorithm();
        store.setKeyEntry(
                "haul",
                KeyFactory.getInstance(algorithm).generatePrivate(key),
                NO_PASSWORD,
                new Certificate[] {certificate});
        KeyManagerFactory managers =
                KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        managers.init(store, NO_PASSWORD);
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(managers.getKeyManagers(), null, null);
        return context;
    }

    /** The URL by which a client gets here. */
    String url(String path) {
        String port = ":" + server.url().port() + "/";
        return server.url(path).replace(port, ":" + listener.getLocalPort() + "/");
    }

    /** The client's ear: what it is to hear. */
    static final class Words {
        private final OutputStream client;

        private Words(OutputStream client) {
            this.client = client;
        }

        /** Says a message. */
        void say(Control message) throws IOException {
            bytes(ControlMessages.encode(message));
        }

        /** Says bytes that may be no message. */
        void bytes(byte... bytes) throws IOException {
            client.write(bytes);
        }
    }

    /**
     * A frame of the real server.
     *
     * @param header its first bytes
     * @param body what is behind them: of a span its payload and trailer
     */
    record Frame(Frames.Header header, byte[] body) {
        byte[] payload() {
            return Arrays.copyOf(body, body.length - Frames.TRAILER_BYTES);
        }
    }

    /** The client's end of a data stream. */
    final class Data {
        private final Socket client;

        private Data(Socket client) {
            this.client = client;
        }

        void send(Frame frame) throws IOException {
            bytes(frame.header.encode());
            bytes(frame.body);
        }

        void bytes(byte... bytes) throws IOException {
            client.getOutputStream().write(bytes);
        }

        /** Sends a span as a server does that means it: its digest fits what it says. */
        void sign(Frames.Span header, byte[] payload, Frames.Status status) throws Exception {
            bytes(header.encode());
            bytes(payload);
            SpanDigest digest = SpanDigest.of(digestKind, new DataKeys(keys));
            digest.begin(header);
            digest.update(ByteBuffer.wrap(payload));
            bytes(new Frames.Trailer(status, digest.end(status)).encode());
        }

        void close() throws IOException {
            client.close();
        }
    }

    private static void daemon(Runnable work) {
        Thread thread = new Thread(work, "lying server");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        while (!listener.isClosed()) {
            try {
                Socket client = keep(listener.accept());
                daemon(() -> serve(client));
            } catch (IOException closed) {
                // The test is over, or the client has gone.
            }
        }
    }

    private <T extends AutoCloseable> T keep(T resource) {
        open.add(resource);
        return resource;
    }

    private void serve(Socket client) {
        try (client) {
            client.setTcpNoDelay(true);
            int first = client.getInputStream().read();
            if (first == DATA_STREAM) {
                stream(client);
            } else if (first >= 0) {
                control(client, first);
            }
        } catch (Exception gone) {
            // The client has had enough of it, or the lie ends here.
        }
    }

    private void control(Socket client, int first) throws Exception {
        InputStream consumed = new ByteArrayInputStream(new byte[] {(byte) first});
        HaulUrl url = server.url();
        InetSocketAddress address = new InetSocketAddress(url.host(), url.port());
        byte[] fingerprint = Objects.requireNonNull(url.token()).fingerprint();
        try (SSLSocket near =
                        (SSLSocket) tls.getSocketFactory().createSocket(client, consumed, true);
                ControlConnection far = ControlConnection.open(address, fingerprint, PATIENCE)) {
            near.startHandshake();
            far.accepted();
            daemon(() -> passOn(near, far));
            Words words = new Words(near.getOutputStream());
            while (true) {
                Control said = far.receive();
                if (said.hasOpened()) {
                    keys = said.getOpened().getDataKeys().toByteArray();
                    digestKind = said.getOpened().getDigest();
                }
                lie.control(said, words);
            }
        }
    }

    /** Passes on what the client says, word for word, for as long as the real server hears it. */
    private void passOn(SSLSocket near, ControlConnection far) {
        boolean isHeard = true;
        try (near) {
            DataInputStream input = new DataInputStream(near.getInputStream());
            while (true) {
                byte[] length = input.readNBytes(ControlMessages.LENGTH_BYTES);
                ByteArrayOutputStream message = new ByteArrayOutputStream();
                message.write(length);
                message.write(
                        input.readNBytes(Integer.reverseBytes(ByteBuffer.wrap(length).getInt())));
                ByteBuffer bytes = ByteBuffer.wrap(message.toByteArray());
                Control said = ControlMessages.decode(bytes, Limits.MESSAGE_BYTES_MAX);
                isHeard = isHeard && send(far, Objects.requireNonNull(said));
            }
        } catch (Exception gone) {
            far.abort();
        }
    }

    /** Says something to the real server; false where it has left, which may be for a lie. */
    private static boolean send(ControlConnection far, Control message) {
        try {
            far.send(message);
            return true;
        } catch (IOException gone) {
            return false;
        }
    }

    private void stream(Socket client) throws Exception {
        byte[] preface = new byte[Frames.PREFACE_BYTES];
        preface[0] = (byte) DATA_STREAM;
        new DataInputStream(client.getInputStream()).readFully(preface, 1, preface.length - 1);
        if (!lie.takesStream(client, Frames.Preface.decode(preface))) {
            return;
        }
        try (Socket far = new Socket(InetAddress.getLoopbackAddress(), server.url().port())) {
            keep(far);
            far.getOutputStream().write(preface);
            daemon(() -> carry(client, far));
            DataInputStream input = new DataInputStream(far.getInputStream());
            Data data = new Data(client);
            while (true) {
                byte[] header = new byte[Frames.HEADER_BYTES];
                input.readFully(header);
                Frames.Header decoded = Frames.Header.decode(header);
                byte[] body = new byte[bodyBytes(decoded)];
                input.readFully(body);
                lie.frame(new Frame(decoded, body), data);
            }
        }
    }

    private static int bodyBytes(Frames.Header header) {
        if (header instanceof Frames.Span span) {
            return Math.toIntExact(span.lenBytes()) + Frames.TRAILER_BYTES;
        }
        return header instanceof Frames.Pack pack ? Math.toIntExact(pack.lenBytes()) : 0;
    }

    private static void carry(Socket from, Socket to) {
        try {
            from.getInputStream().transferTo(to.getOutputStream());
            to.shutdownOutput();
        } catch (IOException gone) {
            closeQuietly(to);
        }
    }

    private static void closeQuietly(AutoCloseable resource) {
        try {
            resource.close();
        } catch (Exception gone) {
            // It is closed, which is all that was wanted.
        }
    }

    @Override
    public void close() throws IOException {
        listener.close();
        List.copyOf(open).forEach(LyingServer::closeQuietly);
    }
}
