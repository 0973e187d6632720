package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.Problem;
import io.github.haul.client.RemoteEntry;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Direction;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.FileOptions;
import io.github.haul.client.internal.proto.FilterRule;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.proto.Selection;
import io.github.haul.client.internal.wire.NameText;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * What a server has at a path and one level below it. A listing is a pull in a dry run, of which
 * each offer is an entry: the right to list is enough for it.
 */
public final class Listing {
    private static final int MODE_BITS = 07777;

    /** Sessions for one listing: the first, and one more where that was lost. */
    private static final int SESSIONS_MAX = 2;

    private final HaulUrl url;
    private final HaulToken token;
    private final ByteString path;
    private final int levels;
    private final TransferOptions options;
    private final AtomicBoolean isCancelled;

    /**
     * A listing, ready to run.
     *
     * @param url the server
     * @param token opens it
     * @param path the path below the token's root
     * @param levels 0 for what the path itself is, 1 for what it holds, too
     * @param options protection and listener
     * @param isCancelled ends it once it is true
     */
    public Listing(
            HaulUrl url,
            HaulToken token,
            ByteString path,
            int levels,
            TransferOptions options,
            AtomicBoolean isCancelled) {
        this.url = url;
        this.token = token;
        this.path = trimmed(path);
        this.levels = levels;
        // No hard links: each name has its size.
        this.options =
                TransferOptions.builder()
                        .dryRun(true)
                        .onConflict(TransferOptions.OnConflict.KEEP_BOTH)
                        .protection(options.protection())
                        .retryFor(options.retryFor())
                        .listener(options.listener())
                        .build();
        this.isCancelled = isCancelled;
    }

    /** A path without what stands for the contents of a directory at its end. */
    static ByteString trimmed(ByteString path) {
        ByteString trimmed = path;
        while (!trimmed.isEmpty() && trimmed.byteAt(trimmed.size() - 1) == '/') {
            trimmed = trimmed.substring(0, trimmed.size() - 1);
        }
        return trimmed;
    }

    /** The selection that leaves out what lies deeper below a path than this. */
    static Control selection(ByteString path, int levels) {
        int components = levels + 1 + (Asked.nameOf(path).isEmpty() ? 0 : 1);
        ByteString pattern = ByteString.copyFromUtf8("/*".repeat(components));
        FilterRule rule = FilterRule.newBuilder().setPattern(pattern).build();
        return Control.newBuilder().setSelection(Selection.newBuilder().addRules(rule)).build();
    }

    /** What opens the session of a pull of one path, whose selection follows. */
    static Open.Builder open(ByteString path) {
        return Open.newBuilder()
                .setDirection(Direction.PULL)
                .addPaths(path)
                .setFileOptions(FileOptions.newBuilder().setSelectionFollows(true));
    }

    /**
     * Asks the server.
     *
     * @return first what the path itself is, under an empty name, then what it holds
     * @throws HaulException if nothing is there, or the server cannot be asked
     * @throws InterruptedException if the calling thread was interrupted
     */
    public List<RemoteEntry> run() throws HaulException, InterruptedException {
        for (int sessions = 1; ; sessions++) {
            OpenSession session = Transfer.openOne(url, token, open(path), options, isCancelled);
            ListRole role = new ListRole(session, selection(path, levels));
            SessionEnd end = new SessionLoop(session.control(), new Inbox(), isCancelled).run(role);
            if (end instanceof SessionEnd.Finished) {
                return entries(role, session);
            }
            if (end instanceof SessionEnd.Refused refused) {
                throw failure(refused.fault(), path);
            }
            if (end instanceof SessionEnd.Cancelled) {
                throw new CancellationException("the listing was cancelled");
            }
            if (sessions == SESSIONS_MAX && end instanceof SessionEnd.Lost lost) {
                throw new HaulException.ConnectionLost(
                        new Problem(
                                "",
                                "path",
                                Words.name(path),
                                "the listing broke off",
                                "",
                                Words.printable(lost.why()),
                                "try again"));
            }
        }
    }

    /** The exception of a fault about a path. */
    static HaulException failure(Fault fault, ByteString path) {
        Problem problem = Words.of(fault, path);
        return switch (fault.getCode()) {
            case NOT_FOUND -> new HaulException.NotFound(problem);
            case SOURCE_CHANGED -> new HaulException.SourceChanged(problem);
            case PROTOCOL_VIOLATION -> new HaulException.Protocol(problem);
            default -> new HaulException.Refused(problem);
        };
    }

    private List<RemoteEntry> entries(ListRole role, OpenSession session) throws HaulException {
        boolean isNamed = !Asked.nameOf(path).isEmpty();
        for (Fault fault : role.failures()) {
            boolean isGone = fault.getCode() == FaultCode.NOT_FOUND && !role.offers().isEmpty();
            // Devices, pipes and sockets, and what was removed while it was listed.
            if (!isGone && fault.getCode() != FaultCode.KIND_UNSUPPORTED) {
                throw failure(fault, path);
            }
        }
        List<RemoteEntry> entries = new ArrayList<>();
        if (!isNamed) {
            int mode = session.granted().opened().getContentsMode() & MODE_BITS;
            entries.add(
                    new RemoteEntry("", RemoteEntry.Kind.DIRECTORY, 0, Instant.EPOCH, mode, null));
        }
        for (FileOffer offer : role.offers()) {
            entries.add(entry(offer, isNamed));
        }
        if (entries.isEmpty()) {
            throw failure(role.failures().get(0), path);
        }
        return entries;
    }

    /** An offer as an entry; without the first component of its name where that is the path's. */
    static RemoteEntry entry(FileOffer offer, boolean isNamed) {
        String name = NameText.of(offer.getName());
        String below = isNamed ? name.substring(endOfFirst(name)) : name;
        RemoteEntry.Kind kind =
                switch (offer.getKind()) {
                    case DIRECTORY -> RemoteEntry.Kind.DIRECTORY;
                    case SYMLINK -> RemoteEntry.Kind.SYMLINK;
                    default -> RemoteEntry.Kind.FILE;
                };
        boolean isLink = kind == RemoteEntry.Kind.SYMLINK;
        return new RemoteEntry(
                below,
                kind,
                offer.getSizeBytes(),
                instant(offer),
                offer.getMode(),
                isLink ? NameText.of(offer.getLinkTarget()) : null);
    }

    private static int endOfFirst(String name) {
        int slash = name.indexOf('/');
        return slash < 0 ? name.length() : slash + 1;
    }

    private static Instant instant(FileOffer offer) {
        try {
            return Instant.ofEpochSecond(offer.getMtimeS(), offer.getMtimeNs());
        } catch (DateTimeException beyond) {
            return offer.getMtimeS() < 0 ? Instant.MIN : Instant.MAX;
        }
    }
}
