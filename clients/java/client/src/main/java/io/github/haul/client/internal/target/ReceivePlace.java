package io.github.haul.client.internal.target;

import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileOffer;
import java.io.Closeable;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The place to which received files go: a directory, or nowhere. */
public sealed interface ReceivePlace extends Closeable permits Target, NullTarget {
    /**
     * Gives the target directory, which was made for this transfer, the mode of the one whose
     * contents come, and its owner all rights.
     *
     * @param mode permission bits
     */
    void giveRootMode(int mode);

    /**
     * Whether a file would be of several spans: it is open from its preparation on then.
     *
     * @param sizeBytes its size
     * @return whether it would
     */
    boolean isOfSeveralSpans(long sizeBytes);

    /**
     * Looks at an offer, decides, and opens the target.
     *
     * @param offer the offer, which the checks of the protocol let through
     * @return what is to be answered
     */
    Prepared prepare(FileOffer offer);

    /**
     * Commits entries that are complete and confirmed: all are forced out, then all get their
     * names, then each directory is synced once.
     *
     * @param entries files, links and directories
     * @return for each, the fault that kept it from its place, where there was one: it is let go
     *     of, and what a later run can go on from stays
     */
    Map<TargetEntry, Optional<Fault>> commit(List<? extends TargetEntry> entries);

    /**
     * Sets time and mode of the directories that were offered, children first, when nothing more is
     * made in them.
     *
     * @return the faults of those that could not be given theirs
     */
    List<Fault> finishDirectories();
}
