package io.github.haul.hadoop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Random;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.tools.DistCp;
import org.apache.hadoop.tools.DistCpOptions;
import org.apache.hadoop.tools.mapred.CopyMapper;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Hadoop's own copier reads a tree from the server, by the job that it runs on a cluster. */
final class DistCpTest {
    @TempDir Path folder;

    private static SortedMap<String, byte[]> describe(Path root) throws IOException {
        SortedMap<String, byte[]> found = new TreeMap<>();
        try (Stream<Path> all = Files.walk(root)) {
            for (Path path : all.toList()) {
                boolean isFile = Files.isRegularFile(path);
                String name = root.relativize(path) + (isFile ? "" : "/");
                // The local file system of Hadoop keeps checksums beside its files.
                if (!name.endsWith(".crc")) {
                    found.put(name, isFile ? Files.readAllBytes(path) : new byte[0]);
                }
            }
        }
        return found;
    }

    @Test
    void aTreeArrivesByteForByte() throws Exception {
        Served served = Served.shared();
        Path tree = Files.createDirectories(served.root().resolve("tree"));
        Files.createDirectories(tree.resolve("deep/er"));
        Files.createDirectory(tree.resolve("empty directory"));
        Random random = new Random(6);
        for (int number = 0; number < 12; number++) {
            byte[] content = new byte[number * number * 40_000];
            random.nextBytes(content);
            String name = number % 3 == 0 ? "deep/er/file " + number : "file" + number;
            Files.write(tree.resolve(name), content);
        }
        Path target = folder.resolve("target");
        Configuration conf = served.configuration();
        conf.set("mapreduce.framework.name", "local");
        conf.set("mapreduce.cluster.local.dir", folder.resolve("local").toString());
        conf.set("mapreduce.jobtracker.staging.root.dir", folder.resolve("staging").toString());
        conf.set("hadoop.tmp.dir", folder.resolve("tmp").toString());
        conf.set("yarn.app.mapreduce.am.staging-dir", folder.resolve("staging").toString());
        conf.set("fs.defaultFS", "file:///");
        DistCpOptions options =
                new DistCpOptions.Builder(
                                List.of(new org.apache.hadoop.fs.Path(served.uri() + "/tree")),
                                new org.apache.hadoop.fs.Path(target.toUri()))
                        .maxMaps(2)
                        .build();
        DistCp copier = new DistCp(conf, options);
        Job job = copier.execute();
        assertTrue(job.isSuccessful());
        assertEquals(12, job.getCounters().findCounter(CopyMapper.Counter.COPY).getValue());
        assertEquals(0, job.getCounters().findCounter(CopyMapper.Counter.FAIL).getValue());
        SortedMap<String, byte[]> expected = describe(tree);
        SortedMap<String, byte[]> found = describe(target.resolve("tree"));
        assertEquals(expected.keySet(), found.keySet());
        expected.forEach((name, content) -> assertArrayEquals(content, found.get(name), name));
    }
}
