package io.github.haul.client.internal.source;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.wire.Names;
import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A walk over what is to be sent, in order, one entry at a time: each directory before what is in
 * it, and that sorted by name.
 *
 * <p>A source that the user named is followed where it is a link; below it links are sent as links.
 * A source whose last component is {@code .} or {@code ..} is the content of that directory.
 */
public final class SourceWalk {
    private static final String HIDDEN_PREFIX = ".";
    private static final List<String> HIDDEN_ENDS =
            List.of(
                    ".haul-part",
                    ".haul-journal",
                    ".haul-staged",
                    ".haul-durable",
                    ".haul-shared",
                    ".haul-ranges",
                    ".haul-range");

    private final Deque<Iterator<Found>> levels = new ArrayDeque<>();
    private final HoleScan holes;
    private final MadeUpFiles madeUp = new MadeUpFiles();

    /** A name that is to be looked at. */
    private record Found(Path path, ByteString name, boolean isNamed) {}

    /** An entry, or the fault of a source that cannot be offered. */
    public sealed interface Listed {}

    /**
     * A file, a directory or a link to be offered.
     *
     * @param entry the entry
     */
    public record Entry(SourceEntry entry) implements Listed {}

    /**
     * A source that cannot be read.
     *
     * @param fault why
     */
    public record Failed(Fault fault) implements Listed {}

    /**
     * A name of no kind that is sent.
     *
     * @param fault what it is
     */
    public record LeftOut(Fault fault) implements Listed {}

    /**
     * Begins a walk.
     *
     * @param sources what the user named
     * @param holes looks for holes in files
     */
    public SourceWalk(List<Path> sources, HoleScan holes) {
        this.holes = holes;
        List<Found> named = new ArrayList<>();
        for (Path source : sources) {
            named.add(new Found(source, nameOf(source), true));
        }
        levels.push(named.iterator());
    }

    /**
     * The name that a source brings to the target.
     *
     * @param source the source, as the user named it
     * @return the name; empty where its contents come without one
     */
    public static ByteString nameOf(Path source) {
        Path last = source.getFileName();
        String text = last == null ? "" : last.toString();
        boolean isContents = text.isEmpty() || text.equals(".") || text.equals("..");
        return isContents ? ByteString.EMPTY : NameBytes.ofLast(source);
    }

    /**
     * Finds the next entry.
     *
     * @return the entry or a fault, or null at the end
     */
    public @Nullable Listed next() {
        while (true) {
            Iterator<Found> level = levels.peek();
            if (level == null) {
                return null;
            }
            if (!level.hasNext()) {
                levels.pop();
                continue;
            }
            Listed listed = look(level.next());
            if (listed != null) {
                return listed;
            }
        }
    }

    /** Looks at a name; null where there is nothing to offer, as of contents without a name. */
    private @Nullable Listed look(Found found) {
        ByteString shown =
                found.name.isEmpty() ? ByteString.copyFromUtf8(found.path.toString()) : found.name;
        try {
            FileFacts facts =
                    found.isNamed
                            ? FileFacts.of(found.path)
                            : FileFacts.of(found.path, LinkOption.NOFOLLOW_LINKS);
            if (facts.kind() == FileKind.FILE_KIND_UNKNOWN) {
                return new LeftOut(SourceEntry.unsupported(shown));
            }
            if (facts.kind() == FileKind.DIRECTORY) {
                levels.push(namesIn(found).iterator());
            }
            if (found.name.isEmpty()) {
                return facts.kind() == FileKind.DIRECTORY ? null : failed(shown);
            }
            String refusal = Names.refusal(found.name);
            if (refusal != null) {
                return new Failed(
                        SourceFaults.of(FaultCode.NAME_REFUSED, shown, "its name is refused")
                                .setFound(refusal)
                                .build());
            }
            Fault fault =
                    facts.kind() == FileKind.REGULAR
                            ? madeUp.check(found.path, shown, facts)
                            : null;
            return fault == null ? new Entry(entry(found, facts)) : new Failed(fault);
        } catch (IOException error) {
            return new Failed(SourceFaults.of(shown, "cannot be read", error));
        }
    }

    private static Failed failed(ByteString shown) {
        return new Failed(
                SourceFaults.of(FaultCode.NOT_FOUND, shown, "is no directory")
                        .setHint("leave out the /. at its end")
                        .build());
    }

    private SourceEntry entry(Found found, FileFacts facts) throws IOException {
        FileOffer.Builder offer = facts.toOffer().setName(found.name);
        if (facts.kind() == FileKind.SYMLINK) {
            offer.setLinkTarget(targetOf(found.path));
        }
        if (facts.kind() == FileKind.REGULAR) {
            offer.addAllHoles(holes.of(found.path, facts.sizeBytes()));
        }
        return new SourceEntry(
                offer.build(), found.path, found.isNamed, facts.links(), facts.sizeBytes());
    }

    /** The bytes of a link's target, which is any text. */
    private static ByteString targetOf(Path link) throws IOException {
        return NameBytes.ofText(Files.readSymbolicLink(link));
    }

    private static List<Found> namesIn(Found directory) throws IOException {
        List<Found> names = new ArrayList<>();
        try (DirectoryStream<Path> stream = Files.newDirectoryStream(directory.path)) {
            for (Path path : stream) {
                ByteString component = NameBytes.ofLast(path);
                if (!isHidden(component)) {
                    ByteString name =
                            directory.name.isEmpty()
                                    ? component
                                    : directory
                                            .name
                                            .concat(ByteString.copyFromUtf8("/"))
                                            .concat(component);
                    names.add(new Found(path, name, false));
                }
            }
        } catch (DirectoryIteratorException error) {
            throw error.getCause();
        }
        names.sort(
                Comparator.comparing(Found::name, ByteString.unsignedLexicographicalComparator()));
        return names;
    }

    /** Whether a name is one of haul's own temporaries, which are no sources. */
    private static boolean isHidden(ByteString component) {
        String text = component.toStringUtf8();
        return text.startsWith(HIDDEN_PREFIX) && HIDDEN_ENDS.stream().anyMatch(text::endsWith);
    }
}
