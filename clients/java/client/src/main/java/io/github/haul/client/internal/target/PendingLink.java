package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Path;

/**
 * A symbolic or a hard link: made under a hidden name of its own, as no lock protects it, and
 * renamed. A hard link that nothing is in the way of has its name at once.
 */
final class PendingLink implements TargetEntry {
    private final TargetRoot root;
    private final FileOffer offer;
    private final ByteString name;
    private final Path hidden;
    private State state;
    private boolean keepsTime;

    /** How far a link has come. */
    enum State {
        NOT_MADE,
        HIDDEN,
        NAMED
    }

    private PendingLink(TargetRoot root, FileOffer offer, ByteString name, State state)
            throws TargetFault {
        this.root = root;
        this.offer = offer;
        this.name = name;
        this.state = state;
        hidden = NativeName.of(HiddenNames.link(HiddenNames.last(name)));
    }

    /** A symbolic link that is to be made. */
    static PendingLink symbolic(
            TargetRoot root, FileOffer offer, ByteString name, TargetOptions options)
            throws TargetFault {
        NativeName.of(offer.getLinkTarget());
        PendingLink link = new PendingLink(root, offer, name, State.NOT_MADE);
        link.keepsTime = options.keepsTime();
        return link;
    }

    /** Makes a hard link to a file. */
    static PendingLink hard(TargetRoot root, FileOffer offer, ByteString name, ByteString first)
            throws IOException {
        PendingLink link = new PendingLink(root, offer, name, State.HIDDEN);
        try (TargetRoot.Place from = root.parentOf(first);
                TargetRoot.Place to = root.parentOf(name)) {
            OpenDirectory directory = to.directory();
            try {
                directory.makeHardLink(to.last(), from.directory(), from.last());
                link.state = State.NAMED;
            } catch (FileAlreadyExistsException taken) {
                // Of a run that died.
                directory.remove(link.hidden);
                directory.makeHardLink(link.hidden, from.directory(), from.last());
            }
        }
        return link;
    }

    @Override
    public FileOffer offer() {
        return offer;
    }

    @Override
    public ByteString name() {
        return name;
    }

    @Override
    public void seal() throws TargetFault {
        if (state != State.NOT_MADE) {
            return;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            OpenDirectory directory = place.directory();
            Path target = NativeName.of(offer.getLinkTarget());
            directory.remove(hidden);
            directory.makeLink(hidden, target);
            state = State.HIDDEN;
            if (!keepsTime) {
                return;
            }
            try {
                directory.setTime(hidden, offer.getMtimeS(), offer.getMtimeNs());
            } catch (IOException notKept) {
                // A file system that keeps no times of links is no reason to fail.
            }
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be given its attributes", failed);
        }
    }

    @Override
    public void publish() throws TargetFault {
        if (state == State.NAMED) {
            return;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            OpenDirectory directory = place.directory();
            directory.rename(hidden, place.last());
            state = State.NAMED;
            if (offer.getKind() == FileKind.HARD_LINK) {
                // Of two names of one inode rename(2) leaves both.
                directory.remove(hidden);
            }
        } catch (IOException failed) {
            throw TargetFault.of(name, "cannot be put under its name", failed);
        }
    }

    @Override
    public int newLevels() {
        return 1;
    }

    @Override
    public void checkInPlace() {}

    @Override
    public void abandon(boolean keep) {
        if (state != State.HIDDEN) {
            return;
        }
        try (TargetRoot.Place place = root.parentOf(name)) {
            place.directory().remove(hidden);
        } catch (IOException notThere) {
            // The next run removes what is left of it.
        }
    }
}
