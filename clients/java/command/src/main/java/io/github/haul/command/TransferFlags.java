package io.github.haul.command;

import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.TransferOptions.OnConflict;
import io.github.haul.client.TransferOptions.Protection;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.Option;
import picocli.CommandLine.TypeConversionException;

/** Options of transfers, by the names and words of the program {@code haul}. */
final class TransferFlags {
    private static final List<String> OWNERS = List.of("owner", "group", "xattrs", "acls", "all");

    @Option(
            names = "--streams",
            paramLabel = "<N>",
            description = "Data connections, 1 to 64; without it chosen by the server")
    private int streams;

    @Option(
            names = "--span-size",
            paramLabel = "<SIZE>",
            converter = SizeName.class,
            description =
                    "Bytes that are sent, verified and made durable as one, a power of two like 8M;"
                            + " without it chosen for each file")
    private long spanBytes;

    @Option(
            names = "--protection",
            paramLabel = "<PROTECTION>",
            defaultValue = "safe",
            converter = ProtectionName.class,
            description = {
                "How the data is protected on its way [default: ${DEFAULT-VALUE}]",
                "clear: a digest that catches accidents; anyone on the path can read and change the"
                        + " data",
                "safe: a keyed MAC of each span: nobody on the path can change, swap or replay a"
                        + " byte unseen"
            })
    private Protection protection = Protection.SAFE;

    @Option(
            names = "--retry-for",
            paramLabel = "<TIME>",
            defaultValue = "1m",
            converter = TimeName.class,
            description =
                    "How long to try to get back to a server that went away"
                            + " [default: ${DEFAULT-VALUE}]")
    private Duration retryFor = Duration.ZERO;

    @Option(
            names = "--stall-timeout",
            paramLabel = "<TIME>",
            defaultValue = "10s",
            converter = TimeName.class,
            description =
                    "A stream that brought nothing for this long is opened again"
                            + " [default: ${DEFAULT-VALUE}]")
    private Duration stallAfter = Duration.ZERO;

    @Option(
            names = "--verify-target",
            description = "Read each file back from the target's disk before it gets its name")
    private boolean verifiesTarget;

    @Option(
            names = "--on-conflict",
            paramLabel = "<WHAT>",
            defaultValue = "skip-same",
            converter = ConflictName.class,
            description = {
                "Fate of a file whose name is taken at the target [default: ${DEFAULT-VALUE}]",
                "skip-same: a file that is the same by size and time stays, one that differs is"
                        + " replaced",
                "replace: even what is the same is replaced",
                "fail: a file that differs stays, and the new one fails",
                "keep-both: a file that differs stays, and the new one is stored as NAME.1,"
                        + " NAME.2, ..."
            })
    private OnConflict onConflict = OnConflict.SKIP_SAME;

    @Option(
            names = {"-n", "--dry-run"},
            description = "Say what would be copied and replaced, and do nothing")
    private boolean isDryRun;

    @Option(
            names = "--preserve",
            paramLabel = "<LIST>",
            defaultValue = "mode,mtime",
            description =
                    "Attributes that arrive with each file: mode, mtime, or none"
                            + " [default: ${DEFAULT-VALUE}]")
    private String preserve = "";

    @Option(
            names = "--recheck",
            description =
                    "Read back what an earlier run left at the target before it is believed; always"
                            + " so where the target's host was started anew since, or the"
                            + " temporary was changed")
    private boolean rechecks;

    @Option(
            names = "--token-file",
            paramLabel = "<FILE>",
            description = "Read the token from a file, not from the URL or HAUL_TOKEN")
    private @Nullable Path tokenFile;

    @Option(
            names = "--json",
            description =
                    "Print one JSON object a line: session, progress, connection, file, fallback,"
                            + " stall, resume, rereading, left_out, error, report")
    private boolean json;

    @Option(
            names = {"-q", "--quiet"},
            description = "Print nothing but what failed (with --json: everything but progress)")
    private boolean isQuiet;

    /** File of the token, where one is named. */
    @Nullable Path tokenFile() {
        return tokenFile;
    }

    /** Whether nothing is done. */
    boolean isDryRun() {
        return isDryRun;
    }

    /** The screen that was asked for. */
    Screen screen(Terminal terminal) {
        if (json) {
            return new JsonScreen(terminal, isQuiet);
        }
        return new PlainScreen(terminal, isQuiet);
    }

    /**
     * Checks the options.
     *
     * @throws Failure if one cannot be taken
     */
    TransferOptions options(TransferListener listener) throws Failure {
        if (stallAfter.isZero()) {
            throw Failure.usage(
                    "cannot take --stall-timeout",
                    "some time",
                    "0s",
                    "write it like --stall-timeout 10s");
        }
        if (rechecks && isDryRun) {
            throw Failure.usage(
                    "cannot take --recheck with --dry-run", "one of the two", "both", "");
        }
        boolean keepsMode = false;
        boolean keepsTime = false;
        for (String word : preserve.split(",", -1)) {
            String attribute = word.strip();
            if (OWNERS.contains(attribute)) {
                throw ProgramOnly.refuse(
                        "take --preserve " + attribute, "bring owners, xattrs and ACLs along");
            }
            switch (attribute) {
                case "mode" -> keepsMode = true;
                case "mtime" -> keepsTime = true;
                case "none" -> {
                    keepsMode = false;
                    keepsTime = false;
                }
                default ->
                        throw Failure.usage(
                                "cannot take --preserve",
                                "mode, mtime or none",
                                "\"" + attribute + "\"",
                                "");
            }
        }
        try {
            return TransferOptions.builder()
                    .streams(streams)
                    .spanBytes(spanBytes)
                    .protection(protection)
                    .onConflict(onConflict)
                    .dryRun(isDryRun)
                    .verifyTarget(verifiesTarget)
                    .recheck(rechecks)
                    .preserve(keepsMode, keepsTime)
                    .retryFor(retryFor)
                    .stallAfter(stallAfter)
                    .listener(listener)
                    .build();
        } catch (IllegalArgumentException wrong) {
            throw Failure.usage(
                    "cannot take an option", "", String.valueOf(wrong.getMessage()), "");
        }
    }

    /** Reads the name of one of several values, as {@code keep-both}. */
    private abstract static class Named<E extends Enum<E>>
            implements ITypeConverter<E>, Iterable<String> {
        private final E[] values;

        Named(E[] values) {
            this.values = values;
        }

        private static String name(Enum<?> value) {
            return value.name().toLowerCase(Locale.ROOT).replace('_', '-');
        }

        @Override
        public E convert(String text) {
            for (E value : values) {
                if (name(value).equals(text)) {
                    return value;
                }
            }
            throw new TypeConversionException(
                    "\"" + text + "\" is none of " + String.join(", ", this));
        }

        @Override
        public Iterator<String> iterator() {
            return Arrays.stream(values).map(Named::name).iterator();
        }
    }

    /** Reads {@code --protection}. */
    static final class ProtectionName extends Named<Protection> {
        ProtectionName() {
            super(Protection.values());
        }

        @Override
        public Protection convert(String text) {
            if (text.equals("private")) {
                throw new TypeConversionException(
                        "the JVM client cannot encrypt data. The program haul can: there it is"
                                + " --protection private");
            }
            return super.convert(text);
        }
    }

    /** Reads {@code --on-conflict}. */
    static final class ConflictName extends Named<OnConflict> {
        ConflictName() {
            super(OnConflict.values());
        }
    }

    /** Reads an amount, and says why what it is given is none. */
    private abstract static class Amount<T> implements ITypeConverter<T> {
        private final Function<String, T> reading;

        Amount(Function<String, T> reading) {
            this.reading = reading;
        }

        @Override
        public T convert(String text) {
            try {
                return reading.apply(text);
            } catch (IllegalArgumentException wrong) {
                throw new TypeConversionException(String.valueOf(wrong.getMessage()));
            }
        }
    }

    /** Reads a size. */
    static final class SizeName extends Amount<Long> {
        SizeName() {
            super(Amounts::size);
        }
    }

    /** Reads a duration. */
    static final class TimeName extends Amount<Duration> {
        TimeName() {
            super(Amounts::time);
        }
    }
}
