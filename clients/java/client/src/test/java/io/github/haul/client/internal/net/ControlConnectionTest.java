package io.github.haul.client.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.HaulServer;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Direction;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.Hello;
import io.github.haul.client.internal.proto.HelloReply;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.proto.Ping;
import io.github.haul.client.internal.proto.Protection;
import io.github.haul.client.internal.wire.ClientHandshake;
import io.github.haul.client.internal.wire.ClientHandshake.Granted;
import io.github.haul.client.internal.wire.DataKeys;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SessionRefused;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A control connection to the real server. */
final class ControlConnectionTest {
    private static final Duration PATIENCE = Duration.ofSeconds(20);
    private static final byte[] TRANSFER = new byte[16];

    @TempDir Path folder;
    private Path root = Path.of("");

    @BeforeEach
    void makeRoot() throws IOException {
        root = Files.createDirectories(folder.resolve("root"));
    }

    private static ControlConnection connect(HaulUrl url) throws IOException {
        InetSocketAddress server = new InetSocketAddress(url.host(), url.port());
        byte[] fingerprint = Objects.requireNonNull(url.token()).fingerprint();
        return ControlConnection.open(server, fingerprint, PATIENCE);
    }

    private static Open push(byte[] secret) {
        return Open.newBuilder()
                .setTokenSecret(ByteString.copyFrom(secret))
                .setTransfer(ByteString.copyFrom(TRANSFER))
                .setDirection(Direction.PUSH)
                .addPaths(ByteString.EMPTY)
                .setIntoDirectory(true)
                .setProtection(Protection.SAFE)
                .setDigest(Digest.AES_GMAC)
                .build();
    }

    private static Granted open(ControlConnection control, Open open) throws Exception {
        ClientHandshake handshake = new ClientHandshake(List.of(ClientHandshake.TOLD_KEYS));
        for (Control message : handshake.start("haul-java-test", open)) {
            control.send(message);
        }
        Granted granted = null;
        while (granted == null) {
            Control message = control.receive(PATIENCE);
            assertNotNull(message, "the server says something");
            granted = handshake.handle(message);
        }
        control.accepted();
        return granted;
    }

    @Test
    void theServerOpensASessionAndTakesAStreamUnderTheToldKeys() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                ControlConnection control = connect(server.url())) {
            byte[] secret = Objects.requireNonNull(server.url().token()).secret();
            Granted granted = open(control, push(secret));
            assertEquals(List.of(ClientHandshake.TOLD_KEYS), granted.capabilities());
            assertEquals(Digest.AES_GMAC, granted.opened().getDigest());
            control.send(Control.newBuilder().setPing(Ping.newBuilder().setNumber(7)).build());
            Control pong = control.receive(PATIENCE);
            while (pong != null && !pong.hasPong()) {
                pong = control.receive(PATIENCE);
            }
            assertNotNull(pong);
            assertEquals(7, pong.getPong().getNumber());

            byte[] session = granted.opened().getSession().toByteArray();
            byte[] told = granted.opened().getDataKeys().toByteArray();
            assertTrue(isKept(server.url(), new DataKeys(told).preface(0, session).encode()));
            told[0] ^= 1;
            assertFalse(isKept(server.url(), new DataKeys(told).preface(1, session).encode()));
        }
    }

    /** Whether the server keeps a data stream with this preface for a second. */
    private static boolean isKept(HaulUrl url, byte[] preface) throws IOException {
        try (SocketChannel stream =
                SocketChannel.open(new InetSocketAddress(url.host(), url.port()))) {
            stream.socket().getOutputStream().write(preface);
            stream.socket().setSoTimeout(1000);
            return stream.socket().getInputStream().read() >= 0;
        } catch (java.net.SocketTimeoutException silent) {
            return true;
        }
    }

    @Test
    void aWrongTokenIsRefusedInTheServersWords() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                ControlConnection control = connect(server.url())) {
            SessionRefused refused =
                    assertThrows(SessionRefused.class, () -> open(control, push(new byte[16])));
            assertEquals(FaultCode.TOKEN_WRONG, refused.fault().getCode());
            assertFalse(refused.fault().getWhat().isEmpty());
        }
    }

    @Test
    void aServerOfOtherVersionsRefusesInItsWords() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                ControlConnection control = connect(server.url())) {
            byte[] secret = Objects.requireNonNull(server.url().token()).secret();
            ClientHandshake handshake = new ClientHandshake(List.of());
            List<Control> words = handshake.start("haul-java-test", push(secret));
            Hello later =
                    words.get(0).getHello().toBuilder().setVersionMin(98).setVersionMax(99).build();
            control.send(Control.newBuilder().setHello(later).build());
            control.send(words.get(1));
            Control answer = control.receive(PATIENCE);
            assertNotNull(answer);
            SessionRefused refused =
                    assertThrows(SessionRefused.class, () -> handshake.handle(answer));
            assertEquals(FaultCode.VERSION, refused.fault().getCode());
            assertTrue(refused.fault().toString().contains("98"), refused.fault().toString());
        }
    }

    @Test
    void aVersionThatNobodyOfferedIsAViolation() throws Exception {
        for (int version : new int[] {0, 2, 99}) {
            ClientHandshake handshake = new ClientHandshake(List.of());
            handshake.start("haul-java-test", push(new byte[16]));
            HelloReply reply = HelloReply.newBuilder().setVersion(version).build();
            Control answer = Control.newBuilder().setHelloReply(reply).build();
            assertThrows(ProtocolViolation.class, () -> handshake.handle(answer), "" + version);
        }
    }

    @Test
    void anotherServersCertificateIsRefusedBeforeAWordIsSaid() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root)) {
            InetSocketAddress address =
                    new InetSocketAddress(server.url().host(), server.url().port());
            byte[] fingerprint = Objects.requireNonNull(server.url().token()).fingerprint();
            fingerprint[15] ^= 1;
            IOException refused =
                    assertThrows(
                            IOException.class,
                            () -> ControlConnection.open(address, fingerprint, PATIENCE));
            assertTrue(
                    String.valueOf(refused.getMessage())
                            .contains("the server's key is not the one in the token"));
        }
    }

    @Test
    void silenceIsNoMessageAndAnEndIsAnError() throws Exception {
        try (HaulServer server = HaulServer.start(folder, root);
                ControlConnection control = connect(server.url())) {
            assertNull(control.receive(Duration.ofMillis(50)));
            server.end();
            assertThrows(IOException.class, () -> control.receive(PATIENCE));
        }
    }
}
