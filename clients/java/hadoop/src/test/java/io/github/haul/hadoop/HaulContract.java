package io.github.haul.hadoop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/**
 * What the contract tests of Hadoop are told of {@code haul://}.
 *
 * <p>Those that apply to a file system that is only read are the classes {@code Contract...Test}
 * here. Hadoop's {@code AbstractContractDistCpTest} is not among them: each of its tests first
 * copies to the file system, by a temporary name that is renamed there, and most go on to change
 * what arrived. {@link DistCpTest} has the one direction that there is. The contracts of append,
 * concat, create, delete, mkdir and rename need what no server of haul does for Hadoop.
 */
final class HaulContract extends AbstractFSContract {
    private FileSystem tested;

    HaulContract(Configuration conf) {
        super(conf);
        addConfResource("contract/haul.xml");
    }

    /** Adds the server to a configuration of a test. */
    static Configuration served(Configuration conf) {
        try {
            Served served = Served.shared();
            served.configuration().forEach(one -> set(conf, one.getKey(), one.getValue()));
            conf.setClass("fs.haul.impl", WritableHaul.class, FileSystem.class);
            conf.setBoolean("fs.haul.impl.disable.cache", true);
            return conf;
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    private static void set(Configuration conf, String key, String value) {
        if (key.startsWith("fs.haul.") || key.equals("fs.defaultFS")) {
            conf.set(key, value);
        }
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        if (tested == null) {
            tested = FileSystem.newInstance(URI.create(Served.shared().uri()), getConf());
        }
        return tested;
    }

    @Override
    public void teardown() throws IOException {
        super.teardown();
        if (tested != null) {
            tested.close();
        }
    }

    @Override
    public String getScheme() {
        return HaulFileSystem.SCHEME;
    }

    @Override
    public Path getTestPath() {
        return new Path("/test");
    }
}
