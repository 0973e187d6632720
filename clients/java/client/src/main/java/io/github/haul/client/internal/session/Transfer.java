package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.ConnectionChange;
import io.github.haul.client.FileResult;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.Problem;
import io.github.haul.client.SessionOpened;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.TransferResult;
import io.github.haul.client.internal.net.ControlConnection;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.OnConflict;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.proto.Protection;
import io.github.haul.client.internal.wire.ClientHandshake;
import io.github.haul.client.internal.wire.DataKeys;
import io.github.haul.client.internal.wire.GmacProvider;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SessionRefused;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.ssl.SSLException;
import org.jspecify.annotations.Nullable;

/** A transfer from its begin to its end, over as many sessions as it takes. */
public final class Transfer {
    /** The name that this client tells servers. */
    private static final String SOFTWARE = "haul-java 0.1.0";

    /** The capability of a side that can be told of durable spans that are lost after all. */
    static final int RECHECK = 2;

    private static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final int ID_BYTES = 16;
    private static final long PAUSE_MIN_MS = 100;
    private static final long PAUSE_MAX_MS = 3000;
    private static final int MODE = 1;
    private static final int MTIME = 2;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final HaulUrl url;
    private final HaulToken token;
    private final TransferOptions options;
    private final Open open;
    private final Work work;
    private final AtomicBoolean isCancelled;
    private final Headway headway;
    private final Tally tally = new Tally();
    private int connections;
    private long lostAtNs;
    private boolean targetIsName;
    private String server = "";

    /** Makes the role of each session. */
    interface Work {
        /**
         * Begins anew: everything is offered again.
         *
         * @param session the session
         * @param inbox what its thread waits for
         * @param headway whether the transfer gets on
         * @param tally the session's counts
         * @return the role
         * @throws ProtocolViolation if the server granted what was not asked for
         * @throws HaulException if nothing can be received here
         */
        Role role(OpenSession session, Inbox inbox, Headway headway, Tally tally)
                throws ProtocolViolation, HaulException;
    }

    Transfer(
            HaulUrl url,
            HaulToken token,
            Open.Builder open,
            TransferOptions options,
            Work work,
            AtomicBoolean isCancelled) {
        this.url = url;
        this.token = token;
        this.options = options;
        this.work = work;
        this.isCancelled = isCancelled;
        this.headway = new Headway(options.retryFor());
        this.open = complete(open, options, token);
    }

    private static Open complete(Open.Builder open, TransferOptions options, HaulToken token) {
        byte[] transfer = new byte[ID_BYTES];
        RANDOM.nextBytes(transfer);
        boolean isClear = options.protection() == TransferOptions.Protection.CLEAR;
        int preserve = (options.keepsMode() ? MODE : 0) | (options.keepsTime() ? MTIME : 0);
        return open.setTokenSecret(ByteString.copyFrom(token.secret()))
                .setTransfer(ByteString.copyFrom(transfer))
                .setProtection(isClear ? Protection.CLEAR : Protection.SAFE)
                .setDigest(isClear ? Digest.CRC32C : Digest.AES_GMAC)
                .setStreams(options.streams())
                .setFileOptions(
                        open.getFileOptions().toBuilder()
                                .setOnConflict(onConflict(options))
                                .setDryRun(options.isDryRun())
                                .setRecheck(options.rechecks())
                                .setPreserve(preserve))
                .build();
    }

    /** The rule for what is there already, as messages have it. */
    static OnConflict onConflict(TransferOptions options) {
        return switch (options.onConflict()) {
            case SKIP_SAME -> OnConflict.SKIP_SAME;
            case REPLACE -> OnConflict.REPLACE;
            case FAIL -> OnConflict.FAIL;
            case KEEP_BOTH -> OnConflict.KEEP_BOTH;
        };
    }

    /** Opens one session of a role that is no transfer; it is tried once. */
    static OpenSession openOne(
            HaulUrl url,
            HaulToken token,
            Open.Builder open,
            TransferOptions options,
            AtomicBoolean isCancelled)
            throws HaulException {
        Work none =
                (session, inbox, headway, tally) -> {
                    throw new IllegalStateException("it is no transfer");
                };
        try {
            return new Transfer(url, token, open, options, none, isCancelled).connect();
        } catch (Passing failure) {
            throw failure.exception;
        }
    }

    /**
     * Runs the transfer.
     *
     * @return what it did, every file being at the target
     * @throws HaulException if it does not come to its end, or a file failed
     * @throws InterruptedException if the calling thread was interrupted: the transfer ends then
     */
    public TransferResult run() throws HaulException, InterruptedException {
        long begunNs = System.nanoTime();
        String lost = null;
        long pauseMs = PAUSE_MIN_MS;
        while (true) {
            if (isCancelled.get()) {
                throw new CancellationException("the transfer was cancelled");
            }
            OpenSession session;
            try {
                session = connect();
            } catch (Passing failure) {
                long nowNs = System.nanoTime();
                if (lost == null) {
                    throw failure.exception;
                }
                if (headway.isOver(nowNs)) {
                    throw didNotComeBack(lost, failure.exception.problem().toString());
                }
                tellConnection(ConnectionChange.State.LOST, failure.exception.problem().found());
                pauseMs = pause(pauseMs);
                continue;
            }
            connections++;
            if (lost != null) {
                tellConnection(ConnectionChange.State.BACK, "");
            }
            options.listener().onSession(told(session));
            SessionEnd end = session(session);
            if (end instanceof SessionEnd.Finished) {
                return finished(begunNs);
            }
            lost = why(end);
            boolean hasGotOn = tally.headway() > 0;
            pauseMs = hasGotOn ? PAUSE_MIN_MS : pauseMs;
            lostAtNs = System.nanoTime();
            tellConnection(ConnectionChange.State.LOST, lost);
            if (headway.isOver(System.nanoTime())) {
                throw didNotComeBack(lost, "nothing more arrived");
            }
            pauseMs = pause(pauseMs);
        }
    }

    private String server() {
        String host = url.host().contains(":") ? "[" + url.host() + "]" : url.host();
        return host + ":" + url.port();
    }

    /** Tells what has become of the connection since it was lost. */
    private void tellConnection(ConnectionChange.State state, String why) {
        long nowNs = System.nanoTime();
        boolean isBack = state == ConnectionChange.State.BACK;
        Duration away = Duration.ofNanos(nowNs - lostAtNs);
        Duration left = Duration.ofNanos(isBack ? 0 : headway.leftNs(nowNs));
        Instant since = Instant.now().minus(away);
        options.listener()
                .onConnection(
                        new ConnectionChange(
                                state, server(), Words.printable(why), since, away, left));
    }

    private SessionOpened told(OpenSession session) {
        Opened opened = session.granted().opened();
        boolean isClear = opened.getProtection() == Protection.CLEAR;
        long smaller = headway.smallerSpanBytes();
        return new SessionOpened(
                HexFormat.of().formatHex(session.id()),
                server(),
                server,
                isClear ? "clear" : "safe",
                isClear ? "crc32c" : "aes-gmac",
                isClear ? "" : GmacProvider.name(),
                opened.getStreams(),
                smaller > 0 ? smaller : options.spanBytes(),
                session.control().roundTrip());
    }

    /** Waits, each time longer, but not beyond the time for coming back. */
    private long pause(long pauseMs) throws InterruptedException {
        long leftMs = TimeUnit.NANOSECONDS.toMillis(headway.leftNs(System.nanoTime()));
        long endNs = System.nanoTime() + 1_000_000 * Math.min(pauseMs, leftMs + PAUSE_MIN_MS);
        while (System.nanoTime() < endNs && !isCancelled.get()) {
            Thread.sleep(20);
        }
        return Math.min(2 * pauseMs, PAUSE_MAX_MS);
    }

    private SessionEnd session(OpenSession session) throws HaulException, InterruptedException {
        headway.beginSession();
        tally.beginSession();
        Inbox inbox = new Inbox();
        Role role;
        try {
            role = work.role(session, inbox, headway, tally);
        } catch (ProtocolViolation violation) {
            session.control().abort();
            throw broken(String.valueOf(violation.getMessage()));
        } catch (HaulException failed) {
            session.control().abort();
            throw failed;
        } catch (OutOfMemoryError error) {
            session.control().abort();
            throw Words.outOfMemory(error);
        }
        SessionEnd end = new SessionLoop(session.control(), inbox, isCancelled).run(role);
        if (end instanceof SessionEnd.Lost) {
            headway.verified(tally.headway());
            if (headway.sessionLost(System.nanoTime(), role.isAtWork())) {
                options.listener()
                        .onNotice(
                                new TransferNotice.Fallback(
                                        "path",
                                        "spans -> spans of "
                                                + headway.smallerSpanBytes()
                                                + " bytes",
                                        "connections are cut before a span is through"));
            }
        }
        return end;
    }

    /** Why another session is to be tried; throws where none is. */
    private String why(SessionEnd end) throws HaulException {
        if (end instanceof SessionEnd.Lost cut) {
            return Words.printable(cut.why());
        }
        if (end instanceof SessionEnd.Refused refused) {
            Fault fault = refused.fault();
            if (isPassing(fault.getCode())) {
                headway.broken(System.nanoTime());
                return Words.of(fault).toString();
            }
            throw fault.getCode() == FaultCode.PROTOCOL_VIOLATION
                    ? new HaulException.Protocol(Words.of(fault))
                    : new HaulException.Refused(Words.of(fault));
        }
        throw new CancellationException("the transfer was cancelled");
    }

    private static boolean isPassing(FaultCode code) {
        return code == FaultCode.SHUTTING_DOWN
                || code == FaultCode.TOO_MANY_SESSIONS
                || code == FaultCode.LOCKED;
    }

    private HaulException didNotComeBack(String lost, String last) {
        return new HaulException.ConnectionLost(
                new Problem(
                        "",
                        "path",
                        "",
                        "the connection to " + server() + " was lost (" + lost + ")",
                        "the server within " + options.retryFor().toSeconds() + " s (retryFor)",
                        last,
                        "run it again when it is reachable: it goes on where it stopped"));
    }

    private TransferResult finished(long begunNs) throws HaulException {
        boolean isClear = options.protection() == TransferOptions.Protection.CLEAR;
        TransferResult result =
                new TransferResult(
                        tally.doneFiles,
                        tally.skippedFiles,
                        tally.failedFiles,
                        tally.leftOut,
                        tally.plannedFiles,
                        tally.doneDirectories,
                        tally.skippedDirectories,
                        tally.plannedDirectories,
                        tally.doneBytes,
                        tally.skippedBytes,
                        tally.resumedBytes,
                        tally.holeBytes,
                        tally.plannedBytes,
                        tally.resentSpans,
                        connections,
                        Duration.ofNanos(System.nanoTime() - begunNs),
                        options.protection().name().toLowerCase(Locale.ROOT),
                        isClear ? "crc32c" : "aes-gmac by " + GmacProvider.name(),
                        server,
                        List.copyOf(tally.failures));
        options.listener().onProgress(tally.progress());
        if (!result.isComplete()) {
            FileResult first = tally.failures.get(0);
            Problem problem = first.problem();
            throw new HaulException.FilesFailed(
                    problem == null
                            ? new Problem("", "", first.name(), "failed", "", "", "")
                            : problem,
                    result);
        }
        return result;
    }

    /** A failure after which trying again may help. */
    private static final class Passing extends Exception {
        private static final long serialVersionUID = 1;
        final transient HaulException exception;

        Passing(HaulException exception) {
            super(exception);
            this.exception = exception;
        }
    }

    private OpenSession connect() throws HaulException, Passing {
        InetSocketAddress address = new InetSocketAddress(url.host(), url.port());
        if (address.isUnresolved()) {
            throw new Passing(unreachable("the name is not known", null));
        }
        ControlConnection control;
        try {
            control = ControlConnection.open(address, token.fingerprint(), PATIENCE);
        } catch (SSLException error) {
            if (isWrongKey(error)) {
                throw new HaulException.WrongServer(
                        new Problem(
                                "",
                                "",
                                "",
                                server() + " is not the server of this token",
                                "the server whose key the token names",
                                "another key",
                                "use the URL that this server prints now; if you did, somebody is"
                                        + " in between"),
                        error);
            }
            throw new Passing(unreachable(String.valueOf(error.getMessage()), error));
        } catch (IOException error) {
            throw new Passing(unreachable(String.valueOf(error.getMessage()), error));
        }
        boolean isOpen = false;
        try {
            OpenSession session = shakeHands(control);
            isOpen = true;
            return session;
        } catch (SessionRefused refused) {
            HaulException.Refused exception =
                    new HaulException.Refused(Words.refused(refused.fault()));
            if (isPassing(refused.fault().getCode())) {
                headway.broken(System.nanoTime());
                throw new Passing(exception);
            }
            throw exception;
        } catch (ProtocolViolation violation) {
            throw broken(String.valueOf(violation.getMessage()));
        } catch (IOException error) {
            throw new Passing(unreachable(String.valueOf(error.getMessage()), error));
        } finally {
            if (!isOpen) {
                control.abort();
            }
        }
    }

    private static boolean isWrongKey(Throwable error) {
        Throwable cause = error;
        while (cause != null) {
            if (cause instanceof java.security.cert.CertificateException) {
                return true;
            }
            cause = cause.getCause();
        }
        return false;
    }

    private HaulException unreachable(String found, @Nullable Throwable cause) {
        return new HaulException.Unreachable(
                new Problem(
                        "",
                        "path",
                        "",
                        "cannot open a session with " + server(),
                        "a running `haul serve` that this host can reach",
                        Words.printable(found),
                        "check host, port and firewall, and the server's messages"),
                cause == null ? new IOException(found) : cause);
    }

    private HaulException broken(String found) {
        return new HaulException.Protocol(
                new Problem(
                        "PROTOCOL_VIOLATION",
                        "",
                        "",
                        server() + " does not open a session",
                        "a `haul serve` on that port, of a version that tells its keys",
                        Words.printable(found),
                        "check that the port is haul's, and the server's version"));
    }

    private OpenSession shakeHands(ControlConnection control)
            throws IOException, ProtocolViolation, SessionRefused {
        ClientHandshake handshake =
                new ClientHandshake(List.of(RECHECK, ClientHandshake.TOLD_KEYS));
        long smaller = headway.smallerSpanBytes();
        Open asked =
                open.toBuilder()
                        .setTargetIsName(targetIsName)
                        .setSpanBytes(smaller > 0 ? smaller : options.spanBytes())
                        .build();
        for (Control message : handshake.start(SOFTWARE, asked)) {
            control.send(message);
        }
        ClientHandshake.Granted granted = null;
        while (granted == null) {
            Control message = control.receive(PATIENCE);
            if (message == null) {
                throw new IOException(
                        "no answer to the handshake within " + PATIENCE.toSeconds() + " s");
            }
            granted = handshake.handle(message);
        }
        control.accepted();
        Opened opened = granted.opened();
        check(granted);
        targetIsName = opened.getTargetIsName();
        server = Words.printable(granted.software());
        return new OpenSession(
                control,
                control.server(),
                granted,
                opened.getSession().toByteArray(),
                opened.getDigest(),
                new DataKeys(opened.getDataKeys().toByteArray()));
    }

    /** Refuses a session that is less than was asked for. */
    private void check(ClientHandshake.Granted granted) throws ProtocolViolation {
        Opened opened = granted.opened();
        if (!granted.capabilities().contains(ClientHandshake.TOLD_KEYS)) {
            throw new ProtocolViolation(
                    "a server that cannot tell the keys of the data streams (capability 4), which"
                            + " the JDK cannot export");
        }
        if (opened.getProtection() != open.getProtection()
                || opened.getDigest() != open.getDigest()) {
            throw new ProtocolViolation("a session of another protection than was asked for");
        }
        if (open.getStreams() > 0 && opened.getStreams() > open.getStreams()) {
            throw new ProtocolViolation(
                    "a session of "
                            + opened.getStreams()
                            + " data streams, where "
                            + open.getStreams()
                            + " were asked for");
        }
        if (opened.getVerifyTarget() != open.getVerifyTarget()) {
            throw new ProtocolViolation("a session that does not read files back, as was asked");
        }
    }
}
