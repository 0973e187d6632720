package io.github.haul.client.internal.target;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** System calls of a process of its own that receives a file, by strace(1). */
final class Strace {
    private final List<String> calls;

    private Strace(List<String> calls) {
        this.calls = calls;
    }

    /** Receives a file into a folder; skipped where strace is not there or may not trace. */
    static Strace of(Path folder, Path place) throws IOException {
        Path log = folder.resolve("calls");
        String classes =
                Stream.of(Strace.class, Target.class, ByteString.class)
                        .map(it -> it.getProtectionDomain().getCodeSource().getLocation().getPath())
                        .distinct()
                        .collect(Collectors.joining(File.pathSeparator));
        String traced =
                "fdatasync,fsync,write,pwrite64,rename,renameat,renameat2,utimensat,fchmod,fcntl";
        List<String> command =
                List.of(
                        "strace",
                        "-f",
                        "-y",
                        "-qq",
                        "-e",
                        "trace=" + traced,
                        "-o",
                        log.toString(),
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-cp",
                        classes,
                        Strace.class.getName(),
                        place.toString());
        Process process;
        try {
            process = new ProcessBuilder(command).redirectErrorStream(true).start();
        } catch (IOException noStrace) {
            assumeTrue(false, "needs strace, found: " + noStrace.getMessage());
            throw noStrace;
        }
        String said = new String(process.getInputStream().readAllBytes());
        int status = HaulProgram.await(process);
        assumeTrue(!said.contains("ptrace"), "needs to trace, found: " + said);
        assertEquals(0, status, said);
        return new Strace(
                Files.readAllLines(log).stream()
                        .filter(line -> line.contains(Objects.toString(place.getFileName())))
                        .toList());
    }

    /** The last call of this beginning that speaks of a name; -1 for none. */
    int last(String call, String name) {
        for (int at = calls.size() - 1; at >= 0; at--) {
            if (is(calls.get(at), call, name)) {
                return at;
            }
        }
        return -1;
    }

    int firstBehind(int from, String call, String name) {
        for (int at = from + 1; at < calls.size(); at++) {
            if (is(calls.get(at), call, name)) {
                return at;
            }
        }
        return -1;
    }

    private static boolean is(String line, String call, String name) {
        return line.contains(" " + call) && line.contains(name);
    }

    @Override
    public String toString() {
        return String.join("\n", calls);
    }

    /** Receives a file of two spans. */
    public static void main(String[] arguments) throws IOException {
        Path place = Path.of(arguments[0]);
        byte[] bytes = Offers.bytes(1, (int) Offers.SPAN * 2);
        FileOffer offer =
                FileOffer.newBuilder()
                        .setName(Offers.name("x"))
                        .setKind(FileKind.REGULAR)
                        .setSizeBytes(bytes.length)
                        .setInode(1)
                        .setDevice(1)
                        .setMtimeS(77)
                        .setMode(0644)
                        .build();
        try (Target target = Target.into(place, Offers.options())) {
            Prepared.Need need = Offers.need(target, offer);
            Offers.write(Offers.file(need), bytes, 0);
            Offers.write(Offers.file(need), bytes, 1);
            Offers.file(need).sync();
            target.commit(need.entry());
        }
    }
}
