package io.github.haul.client.internal.source;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A file to be sent: what is offered of it, and where it is.
 *
 * @param offer what is offered
 * @param path where it is
 * @param isNamed the user named it: links are followed then, and not below it
 * @param links how many names its inode has
 * @param sizeBytes its size, also where the offer is a link to it
 */
public record SourceEntry(FileOffer offer, Path path, boolean isNamed, long links, long sizeBytes) {
    private static final LinkOption[] FOLLOWED = {};
    private static final LinkOption[] NOT_FOLLOWED = {LinkOption.NOFOLLOW_LINKS};

    /** Returns whether links are followed where the source is looked at. */
    private LinkOption[] linkOptions() {
        return isNamed ? FOLLOWED : NOT_FOLLOWED;
    }

    /**
     * Returns the name under which it is offered.
     *
     * @return the name
     */
    public ByteString name() {
        return offer.getName();
    }

    /**
     * Looks at the source again.
     *
     * @return what is there now
     * @throws IOException if nothing is, or it may not be looked at
     */
    public FileFacts look() throws IOException {
        return FileFacts.of(path, linkOptions());
    }

    /**
     * Opens the source for reading.
     *
     * @return its content, which may be another file's by now: {@link #check} tells
     * @throws IOException if it cannot be opened
     */
    public FileChannel open() throws IOException {
        Set<OpenOption> options =
                isNamed
                        ? Set.of(StandardOpenOption.READ)
                        : Set.of(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS);
        return FileChannel.open(path, options);
    }

    /**
     * Looks whether the source is still what was offered. Its ctime is not looked at.
     *
     * @return the fault of one that is not, or null
     */
    public @Nullable Fault check() {
        try {
            return compare(look());
        } catch (IOException error) {
            return SourceFaults.of(name(), "cannot be looked at again", error);
        }
    }

    /**
     * Compares the source with what was offered, but for its ctime.
     *
     * @param now what is there
     * @return the fault of one that is not the same, or null
     */
    public @Nullable Fault compare(FileFacts now) {
        if (now.kind() != kind()) {
            return SourceFaults.changed(name(), "it is of another kind");
        }
        if (now.inode() != offer.getInode() || now.device() != offer.getDevice()) {
            return SourceFaults.changed(name(), "another file has its name");
        }
        if (offer.getKind() == FileKind.DIRECTORY) {
            // Files come and go in it, and its time with them.
            return null;
        }
        if (now.sizeBytes() != sizeBytes) {
            return SourceFaults.changed(
                    name(), "its size was " + sizeBytes + " bytes, it is " + now.sizeBytes());
        }
        boolean isOfThatTime =
                now.mtimeSeconds() == offer.getMtimeS() && now.mtimeNanos() == offer.getMtimeNs();
        return isOfThatTime
                ? null
                : SourceFaults.changed(name(), "it was written to: its modification time differs");
    }

    /**
     * Whether the source's inode has changed since it was offered: its bytes may have.
     *
     * @param now what is there
     * @return whether both ctimes are known, and differ
     */
    public boolean isTouched(FileFacts now) {
        return FileFacts.ctimeDiffers(
                now.ctimeSeconds(), now.ctimeNanos(), offer.getCtimeS(), offer.getCtimeNs());
    }

    private FileKind kind() {
        return offer.getKind() == FileKind.HARD_LINK ? FileKind.REGULAR : offer.getKind();
    }

    /**
     * The source as a hard link to a file that is in place.
     *
     * @param first that file's name
     * @return the entry
     */
    public SourceEntry asLinkTo(ByteString first) {
        FileOffer link =
                offer.toBuilder()
                        .setKind(FileKind.HARD_LINK)
                        .setLinkTarget(first)
                        .setSizeBytes(0)
                        .clearHoles()
                        .build();
        return new SourceEntry(link, path, isNamed, links, sizeBytes);
    }

    /**
     * The source as a file of its own, where it was a link that the receiver cannot make.
     *
     * @return the entry
     */
    public SourceEntry asFile() {
        FileOffer file =
                offer.toBuilder()
                        .setKind(FileKind.REGULAR)
                        .clearLinkTarget()
                        .setSizeBytes(sizeBytes)
                        .build();
        return new SourceEntry(file, path, isNamed, 1, sizeBytes);
    }

    /**
     * The fault of what is of no kind that is sent.
     *
     * @param name its name
     * @return the fault
     */
    static Fault unsupported(ByteString name) {
        return SourceFaults.of(FaultCode.KIND_UNSUPPORTED, name, "is not sent")
                .setFound("a device, a FIFO or a socket")
                .build();
    }
}
