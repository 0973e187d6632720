package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Security;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** GMAC as a user has it: warmed up by connect(), and reported with who computed it. */
final class GmacInUseTest {
    private static final String CORRETTO_PACKAGE = "com.amazon.corretto.crypto.provider";
    private static final String CORRETTO_CLASS = "AmazonCorrettoCryptoProvider";
    private static final long PATIENCE_S = 60;

    @TempDir Path folder;

    /** A child JVM's work: a client that is made while nothing goes on that asks for GMAC. */
    static final class Connects {
        private Connects() {}

        /** Prints the threads that asked for GMAC when connect() had come back. */
        public static void main(String[] words) throws Exception {
            Security.insertProviderAt(new StandInProvider(), 1);
            Thread.currentThread().setName("the caller");
            // On the caller's thread this would wait for itself: so another lets it go on.
            Thread release =
                    new Thread(
                            () -> {
                                try {
                                    boolean isOver =
                                            StandInProvider.IS_ASKED.await(
                                                    PATIENCE_S, TimeUnit.SECONDS);
                                    Thread.sleep(isOver ? 100 : 0);
                                } catch (InterruptedException over) {
                                    throw new IllegalStateException(over);
                                }
                                StandInProvider.MAY_GO_ON.countDown();
                            });
            release.start();
            HaulClient.connect(words[0]).close();
            release.join();
            System.out.print(StandInProvider.THREADS);
        }
    }

    /** A child JVM's work: a push under {@code safe}. */
    static final class Pushes {
        private Pushes() {}

        /** Prints the digest that the result names. */
        public static void main(String[] words) throws Exception {
            if (words.length > 2) {
                Security.insertProviderAt(new StandInProvider(), 1);
            }
            StandInProvider.MAY_GO_ON.countDown();
            TransferOptions safe =
                    TransferOptions.builder().protection(TransferOptions.Protection.SAFE).build();
            try (HaulClient client = HaulClient.connect(words[0])) {
                TransferResult result = client.push(List.of(Path.of(words[1])), safe);
                System.out.print(result.digest() + " " + !StandInProvider.THREADS.isEmpty());
            }
        }
    }

    @Test
    void connectHasGmacCompiledOnAnotherThreadThanTheCallers() throws Exception {
        String url = "haul://aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqc@127.0.0.1:1/";
        List<String> child = ChildJvm.command(List.of(), Connects.class, List.of(url));
        assertEquals("[haul warm-up]", ChildJvm.run(folder, child));
    }

    private String digest(String classPath, String... more) throws Exception {
        Path root = Files.createDirectories(folder.resolve("root"));
        Path file = Trees.file(folder.resolve("file"), 1_000_000, 1);
        try (HaulServer server = HaulServer.start(folder, root)) {
            List<String> words = new ArrayList<>(List.of(server.url("copy"), file.toString()));
            words.addAll(List.of(more));
            List<String> child = ChildJvm.command(List.of("-cp", classPath), Pushes.class, words);
            String said = ChildJvm.run(folder, child);
            assertEquals(Trees.hash(file), Trees.hash(root.resolve("copy")));
            return said;
        }
    }

    @Test
    void aPushUnderSafeTellsThatTheJdkComputedItsDigests() throws Exception {
        assertEquals("aes-gmac by SunJCE false", digest(ChildJvm.classPath()));
    }

    /** One that encrypts nothing in pieces, as some that users put first. */
    @Test
    void aPushUnderSafeGoesByWhateverProviderComesFirst() throws Exception {
        String said = digest(ChildJvm.classPath(), "the stand-in first");
        assertEquals("aes-gmac by " + StandInProvider.NAME + " true", said);
    }

    /** A class of Corretto's name is on no class path of these tests: it is compiled here. */
    private Path corretto() throws Exception {
        Path source = folder.resolve(CORRETTO_CLASS + ".java");
        Files.writeString(
                source,
                "package "
                        + CORRETTO_PACKAGE
                        + "; public class "
                        + CORRETTO_CLASS
                        + " extends "
                        + StandInProvider.class.getName()
                        + " {}");
        Path classes = Files.createDirectories(folder.resolve("corretto"));
        List<String> compile =
                List.of(
                        Path.of(System.getProperty("java.home"), "bin", "javac").toString(),
                        "-proc:none",
                        "-cp",
                        ChildJvm.classPath(),
                        "-d",
                        classes.toString(),
                        source.toString());
        ChildJvm.run(folder, compile);
        return classes;
    }

    @Test
    void aPushUnderSafeNamesCorrettosProviderWhereItIsOnTheClassPath() throws Exception {
        String classPath = ChildJvm.classPath() + File.pathSeparator + corretto();
        assertEquals("aes-gmac by " + StandInProvider.NAME + " true", digest(classPath));
    }
}
