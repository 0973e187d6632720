package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.Problem;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.Repeats;
import io.github.haul.client.internal.machine.TargetPath;
import io.github.haul.client.internal.proto.Direction;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.source.FileFacts;
import io.github.haul.client.internal.source.HoleScan;
import io.github.haul.client.internal.source.SourceWalk;
import io.github.haul.client.internal.target.NullTarget;
import io.github.haul.client.internal.target.ReceivePlace;
import io.github.haul.client.internal.target.Target;
import io.github.haul.client.internal.target.TargetFault;
import io.github.haul.client.internal.target.TargetOptions;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/** Transfers in both directions, ready to run. */
public final class Transfers {
    private static final int REGULAR_BIT = 0100000;
    private static final int DIRECTORY_BIT = 0040000;
    private static final int MODE_BITS = 07777;

    private Transfers() {}

    /**
     * A push.
     *
     * @param url the server, and the target below the token's root
     * @param token opens it
     * @param sources what is sent
     * @param options what else is to be done
     * @param isCancelled ends it once it is true
     * @return the transfer
     */
    public static Transfer push(
            HaulUrl url,
            HaulToken token,
            List<Path> sources,
            TransferOptions options,
            AtomicBoolean isCancelled) {
        List<Path> named = List.copyOf(sources);
        Open.Builder open =
                Open.newBuilder()
                        .setDirection(Direction.PUSH)
                        .addPaths(ByteString.copyFrom(url.path()))
                        .setIntoDirectory(goIntoDirectory(named))
                        .setContentsMode(contentsMode(named))
                        .setVerifyTarget(options.verifiesTarget());
        Transfer.Work work =
                (session, inbox, headway, tally) ->
                        new PushRole(
                                session,
                                new SourceWalk(named, new HoleScan()),
                                options,
                                inbox,
                                headway,
                                tally);
        return new Transfer(url, token, open, options, work, isCancelled);
    }

    /**
     * A pull.
     *
     * @param url the server
     * @param token opens it
     * @param paths what is asked for, below the token's root
     * @param target a directory, or the new name of the one source; null to throw away what comes
     * @param options what else is to be done
     * @param isCancelled ends it once it is true
     * @return the transfer
     * @throws HaulException if this client cannot do what is asked for
     */
    public static Transfer pull(
            HaulUrl url,
            HaulToken token,
            List<ByteString> paths,
            @Nullable Path target,
            TransferOptions options,
            AtomicBoolean isCancelled)
            throws HaulException {
        checkPull(paths, target, options);
        List<ByteString> asked = List.copyOf(paths);
        Open.Builder open = Open.newBuilder().setDirection(Direction.PULL).addAllPaths(asked);
        boolean intoDirectory = Asked.goIntoDirectory(asked);
        boolean isNew = target != null && !Files.exists(target);
        Transfer.Work work =
                (session, inbox, headway, tally) -> {
                    boolean isDirectory =
                            intoDirectory || target == null || Files.isDirectory(target);
                    Opened opened = session.granted().opened();
                    ReceivePlace place = open(target, isDirectory, options, session, headway);
                    if (isNew && intoDirectory && opened.getContentsMode() != 0) {
                        place.giveRootMode(opened.getContentsMode() & MODE_BITS);
                    }
                    TargetPath means =
                            isDirectory ? TargetPath.DIRECTORY : TargetPath.NAME_OF_ONE_SOURCE;
                    Receiver machine =
                            new Receiver(
                                    opened.getOffersMax(),
                                    opened.getOfferBytesMax(),
                                    means,
                                    Repeats.REFUSED);
                    return new PullRole(
                            session,
                            place,
                            new Asked(asked),
                            machine,
                            options,
                            inbox,
                            headway,
                            tally);
                };
        return new Transfer(url, token, open, options, work, isCancelled);
    }

    private static ReceivePlace open(
            @Nullable Path target,
            boolean isDirectory,
            TransferOptions options,
            OpenSession session,
            Headway headway)
            throws HaulException {
        long smaller = headway.smallerSpanBytes();
        TargetOptions rules =
                new TargetOptions(
                        Transfer.onConflict(options),
                        options.isDryRun(),
                        options.rechecks(),
                        session.granted().capabilities().contains(Transfer.RECHECK),
                        smaller > 0 ? smaller : options.spanBytes(),
                        session.digest(),
                        options.keepsMode(),
                        options.keepsTime(),
                        options.verifiesTarget());
        if (target == null) {
            return new NullTarget(rules);
        }
        try {
            return isDirectory ? Target.into(target, rules) : Target.named(target, rules);
        } catch (TargetFault fault) {
            throw new HaulException.Refused(Words.of(fault.fault()));
        }
    }

    /** Refuses names that come twice, and a look at a disk where there is none. */
    private static void checkPull(
            List<ByteString> paths, @Nullable Path target, TransferOptions options)
            throws HaulException {
        Set<ByteString> names = new HashSet<>();
        for (ByteString path : paths) {
            ByteString name = Asked.nameOf(path);
            if (!name.isEmpty() && !names.add(name)) {
                throw refused(
                        "two sources are called " + Words.name(name),
                        "names that differ at the target",
                        "one name twice",
                        "move them by a command each, into directories of their own");
            }
        }
        if (target == null && options.verifiesTarget()) {
            throw refused(
                    "cannot read the target back",
                    "a target that keeps what arrives",
                    "null:",
                    "leave out --verify-target, or pull to a directory");
        }
    }

    private static HaulException refused(String what, String needs, String found, String hint) {
        return new HaulException.Unsupported(new Problem("", "", "", what, needs, found, hint));
    }

    /** Whether sources go into the target as a directory: but for one file, they do. */
    private static boolean goIntoDirectory(List<Path> sources) {
        if (sources.size() != 1 || SourceWalk.nameOf(sources.get(0)).isEmpty()) {
            return true;
        }
        try {
            return FileFacts.of(sources.get(0)).kind() == FileKind.DIRECTORY;
        } catch (IOException missing) {
            return false;
        }
    }

    /** st_mode of the directories whose contents are sent: the bits that all of them have. */
    private static int contentsMode(List<Path> sources) {
        int mode = 0;
        for (Path source : sources) {
            if (SourceWalk.nameOf(source).isEmpty()) {
                try {
                    FileFacts facts = FileFacts.of(source);
                    int found = DIRECTORY_BIT | facts.mode();
                    mode = mode == 0 ? found : mode & found;
                } catch (IOException missing) {
                    // The walk says so.
                    mode = mode & ~REGULAR_BIT;
                }
            }
        }
        return mode;
    }
}
