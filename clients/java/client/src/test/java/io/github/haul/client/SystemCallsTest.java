package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** System calls by which bytes of files go to a socket and come from it, by strace(1). */
final class SystemCallsTest {
    private static final long SIZE = 4 << 20;
    private static final long BUFFER_BYTES_MIN = 256 << 10;

    /** Bytes of all else that a JVM and a session write: control messages, frames, errors. */
    private static final long OTHER_BYTES_MAX = 64 << 10;

    private static final Pattern SENDFILE = Pattern.compile("\\bsendfile\\b.*= ([0-9]+)$");

    private static final Pattern WRITE =
            Pattern.compile("\\b(?:write|writev|sendto|sendmsg|pwrite64)\\b.*= ([0-9]+)$");

    /** A read that has ended: the length of its buffer, and how many bytes came. */
    private static final Pattern READ =
            Pattern.compile("\\b(?:read|recvfrom)\\b.*, ([0-9]+)(?:, 0, [^)]*)?\\) += ([0-9]+)$");

    @TempDir Path folder;

    /** The child JVM's work: one push or pull. */
    static final class Child {
        private Child() {}

        /** Moves a file: its direction, the URL, the file here, and the protection. */
        public static void main(String[] words) throws Exception {
            Path file = Path.of(words[2]);
            TransferOptions options =
                    TransferOptions.builder()
                            .protection(TransferOptions.Protection.valueOf(words[3]))
                            .streams(1)
                            .build();
            try (HaulClient client = HaulClient.connect(words[1])) {
                if (words[0].equals("push")) {
                    client.push(List.of(file), options);
                } else {
                    client.pull(file, options);
                }
            }
        }
    }

    private List<String> callsOf(String calls, String... words) throws Exception {
        Path log = folder.resolve("calls");
        List<String> command = new ArrayList<>(List.of("strace", "-f", "-qq", "-s", "0"));
        command.addAll(List.of("-e", "trace=" + calls, "-o", log.toString()));
        command.addAll(ChildJvm.command(List.of(), Child.class, List.of(words)));
        ChildJvm.run(folder, command);
        return Files.readAllLines(log);
    }

    private static long sum(List<String> calls, Pattern pattern) {
        return calls.stream()
                .map(pattern::matcher)
                .filter(Matcher::find)
                .mapToLong(call -> Long.parseLong(call.group(1)))
                .sum();
    }

    private Path root() throws IOException {
        return Files.createDirectories(folder.resolve("root"));
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aPushHandsItsPayloadToSendfileAndWritesNoneOfIt(TransferOptions.Protection protection)
            throws Exception {
        Path file = Trees.file(folder.resolve("file"), SIZE, 1);
        try (HaulServer server = HaulServer.start(folder, root())) {
            List<String> calls =
                    callsOf(
                            "sendfile,write,writev,sendto,sendmsg,pwrite64",
                            "push",
                            server.url("copy"),
                            file.toString(),
                            protection.name());
            assertEquals(Trees.hash(file), Trees.hash(root().resolve("copy")));
            String all = String.join("\n", calls);
            assertEquals(SIZE, sum(calls, SENDFILE), all);
            assertTrue(sum(calls, WRITE) < OTHER_BYTES_MAX, all);
        }
    }

    @ParameterizedTest
    @EnumSource(TransferOptions.Protection.class)
    void aPullReadsItsSocketByLargeBuffers(TransferOptions.Protection protection) throws Exception {
        Path file = Trees.file(root().resolve("file"), SIZE, 1);
        Path copy = folder.resolve("copy");
        try (HaulServer server = HaulServer.start(folder, root())) {
            List<String> calls =
                    callsOf(
                            "read,recvfrom",
                            "pull",
                            server.url("file"),
                            copy.toString(),
                            protection.name());
            assertEquals(Trees.hash(file), Trees.hash(copy));
            long bytes = 0;
            for (String call : calls) {
                Matcher read = READ.matcher(call);
                if (read.find() && Long.parseLong(read.group(1)) >= BUFFER_BYTES_MIN) {
                    bytes += Long.parseLong(read.group(2));
                }
            }
            assertTrue(bytes >= SIZE, bytes + " bytes:\n" + String.join("\n", calls));
        }
    }
}
