package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.nio.file.DirectoryNotEmptyException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What a receiver of the program haul that died left hidden of a directory: {@code
 * .NAME.haul-staged}, and beside it the list of what is durable in it, {@code .NAME.haul-durable}.
 *
 * <p>Files of which the list does not tell may be half there: they are removed. Then the directory
 * gets its name, or, where a directory has that by now, all in it goes there; a file whose name is
 * taken stays as it is. What a live receiver holds is left to it.
 *
 * <p>Directories are gone through by their paths, one open at a time, and never by a link.
 */
final class LeftHidden {
    private static final int OWNER_BITS = 0700;

    private final OpenDirectory parent;
    private final Path name;
    private final Path staged;

    private LeftHidden(OpenDirectory parent, Path name, Path staged) {
        this.parent = parent;
        this.name = name;
        this.staged = staged;
    }

    /**
     * Puts in place what is left hidden of a directory.
     *
     * @param root where the directory belongs
     * @param name the directory's name below it
     * @return whether something was put there
     * @throws TargetFault if it is there, free, and cannot be put in place
     */
    static boolean takeUp(TargetRoot root, ByteString name) throws TargetFault {
        ByteString last = HiddenNames.last(name);
        try (TargetRoot.Place place = root.parentOf(name)) {
            Path list = NativeName.of(HiddenNames.durable(last));
            if (place.directory().lookIfThere(list) == null) {
                return false;
            }
            return takeUp(place, last, name);
        } catch (NoSuchFileException noParent) {
            return false;
        } catch (IOException failed) {
            String what = "what an earlier run left of it cannot be put in place";
            throw TargetFault.of(name, what, failed);
        }
    }

    private static boolean takeUp(TargetRoot.Place place, ByteString last, ByteString name)
            throws IOException {
        OpenDirectory parent = place.directory();
        Path staged = NativeName.of(HiddenNames.staged(last));
        try (HeldTemporary list = held(parent, HiddenNames.durable(last), name)) {
            if (list == null) {
                return false;
            }
            FileLook look = parent.lookIfThere(staged);
            boolean isThere = look != null && look.isDirectory();
            if (isThere) {
                LeftHidden left = new LeftHidden(parent, place.last(), staged);
                left.removeUnlisted(new DurableList(list.channel()));
                left.show();
                parent.sync();
            }
            parent.remove(list.part());
            return isThere;
        }
    }

    /** The list, locked; null where a receiver is at work, or something else has its name. */
    private static @Nullable HeldTemporary held(
            OpenDirectory parent, ByteString list, ByteString name) throws IOException {
        try {
            return HeldTemporary.openIfFree(parent, list, name);
        } catch (TargetFault inTheWay) {
            return null;
        }
    }

    /** Removes the files of which a list does not tell; temporaries have journals of their own. */
    private void removeUnlisted(DurableList list) throws IOException {
        for (int number = 0; number < list.parts(); number++) {
            DurableList.Part part = list.part(number);
            try (OpenDirectory top = parent.below(staged)) {
                each(
                        top,
                        ByteString.EMPTY,
                        (directory, path, file) -> {
                            ByteString own = NativeName.bytes(file);
                            if (!HiddenNames.isHidden(own)
                                    && part.lacks(HiddenNames.join(path, own))) {
                                directory.remove(file);
                            }
                        });
            }
        }
    }

    private void show() throws IOException {
        try {
            // It replaces an empty directory, and nothing else (rename(2)).
            parent.rename(staged, name);
        } catch (FileSystemException taken) {
            FileLook there = parent.lookIfThere(name);
            boolean isTaken =
                    taken instanceof DirectoryNotEmptyException
                            || there != null && there.isDirectory();
            if (!isTaken) {
                throw taken;
            }
            try (OpenDirectory from = parent.below(staged);
                    OpenDirectory to = parent.below(name)) {
                moveAll(from, to, ByteString.EMPTY);
            }
            parent.removeDirectory(staged);
        }
    }

    /** What is done with a file in a directory of a path below the first. */
    private interface ForFile {
        void take(OpenDirectory directory, ByteString path, Path file) throws IOException;
    }

    private static void each(OpenDirectory top, ByteString path, ForFile act) throws IOException {
        List<Path> directories = new ArrayList<>();
        try (OpenDirectory at = open(top, path)) {
            at.eachName(
                    name -> {
                        if (at.look(name).isDirectory()) {
                            directories.add(name);
                        } else {
                            act.take(at, path, name);
                        }
                    });
        }
        for (Path one : directories) {
            each(top, HiddenNames.join(path, NativeName.bytes(one)), act);
        }
    }

    /** Moves what is in a directory into another one, of which each is synced, and removes it. */
    private static void moveAll(OpenDirectory from, OpenDirectory to, ByteString path)
            throws IOException {
        List<Path> directories = new ArrayList<>();
        try (OpenDirectory at = open(from, path);
                OpenDirectory there = open(to, path)) {
            at.eachName(
                    name -> {
                        FileLook look = at.look(name);
                        if (look.isDirectory()) {
                            directories.add(name);
                            makeDirectory(there, name, look.mode());
                        } else {
                            move(at, there, name);
                        }
                    });
            there.sync();
        }
        for (Path one : directories) {
            moveAll(from, to, HiddenNames.join(path, NativeName.bytes(one)));
            try (OpenDirectory at = open(from, path)) {
                at.removeDirectory(one);
            }
        }
    }

    private static void makeDirectory(OpenDirectory there, Path name, int mode) throws IOException {
        try {
            there.makeDirectory(name, mode | OWNER_BITS);
        } catch (FileAlreadyExistsException already) {
            // Its files go into that one.
        }
    }

    /** Moves a file to where nothing has its name, or removes it: what came since stays. */
    private static void move(OpenDirectory from, OpenDirectory to, Path name) throws IOException {
        try {
            to.makeHardLink(name, from, name);
        } catch (FileAlreadyExistsException taken) {
            // What came since stays.
        } catch (UnsupportedOperationException noLinks) {
            if (to.lookIfThere(name) == null) {
                throw new FileSystemException(name.toString(), null, "no hard links here");
            }
        }
        from.remove(name);
    }

    private static OpenDirectory open(OpenDirectory top, ByteString path) throws IOException {
        OpenDirectory at = top.share();
        if (path.isEmpty()) {
            return at;
        }
        for (Path component : NativeName.of(path)) {
            try (OpenDirectory above = at) {
                at = above.below(component);
            }
        }
        return at;
    }
}
