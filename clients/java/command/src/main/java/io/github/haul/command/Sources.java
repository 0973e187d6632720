package io.github.haul.command;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The sources of a push, as the user names them. */
final class Sources {
    private Sources() {}

    /**
     * Reads the words of sources. One that ends in a slash is the contents of a directory.
     *
     * @throws Failure if one is no source, or none of them can be read
     */
    static List<Path> parse(List<String> words) throws Failure {
        List<Path> sources = new ArrayList<>();
        for (String word : words) {
            sources.add(parse(word));
        }
        Failure first = null;
        for (Path source : sources) {
            IOException error = look(source);
            if (error == null) {
                return sources;
            }
            if (first == null) {
                first =
                        Failure.usage(
                                "cannot read the source " + source,
                                "",
                                why(error),
                                "check the name and its rights");
            }
        }
        throw first == null ? Failure.usage("nothing to push", "a source", "none", "") : first;
    }

    private static Path parse(String word) throws Failure {
        String what = "cannot push this source";
        String needs = "a file or directory";
        if (word.isEmpty()) {
            throw Failure.usage(
                    what, needs, "an empty name", "is a variable in your script empty?");
        }
        if (word.equals("null:")) {
            throw Failure.usage(what, needs, "null:, which only receives", "");
        }
        if (word.startsWith("haul://")) {
            throw Failure.usage(
                    what, needs, "a haul:// URL among the sources", "a push has one URL, last");
        }
        if (word.startsWith("zero:")) {
            throw ProgramOnly.refuse(
                    "push zero:SIZE", "send zeros; a file of that name is written ./zero:...");
        }
        try {
            return Path.of(word.endsWith("/") ? word + "." : word);
        } catch (InvalidPathException wrong) {
            throw Failure.usage(
                    what,
                    needs,
                    String.valueOf(wrong.getReason()),
                    "names that are no ASCII need a locale of UTF-8, as LC_ALL=C.UTF-8");
        }
    }

    private static @Nullable IOException look(Path source) {
        try {
            Files.readAttributes(source, BasicFileAttributes.class);
            return null;
        } catch (IOException error) {
            return error;
        }
    }

    /** What a file system said, in words; the JDK gives the name of the file alone. */
    static String why(IOException error) {
        if (error instanceof NoSuchFileException) {
            return "no such file or directory";
        }
        if (error instanceof AccessDeniedException) {
            return "permission denied";
        }
        return error instanceof NotDirectoryException
                ? "not a directory"
                : String.valueOf(error.getMessage());
    }
}
