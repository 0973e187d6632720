package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.proto.Direction;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.source.FileFacts;
import io.github.haul.client.internal.source.HoleScan;
import io.github.haul.client.internal.source.SourceWalk;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** Transfers in both directions, ready to run. */
public final class Transfers {
    private static final int REGULAR_BIT = 0100000;
    private static final int DIRECTORY_BIT = 0040000;

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
