package io.github.haul.hadoop;

import java.io.IOException;
import java.net.URI;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * The file system under test, for Hadoop's contract tests, which make their files by the file
 * system that they test. Ours is read-only: what is written here goes to the served directory as
 * local files, and everything that is read comes from the server by {@link HaulFileSystem}.
 */
final class WritableHaul extends HaulFileSystem {
    private final RawLocalFileSystem local = new RawLocalFileSystem();
    private String root = "";

    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        root = Served.shared().root().toString();
        local.initialize(URI.create("file:///"), conf);
    }

    private Path local(Path path) {
        return new Path("file", null, root + makeQualified(path).toUri().getPath());
    }

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferBytes,
            short replication,
            long blockSize,
            Progressable progress)
            throws IOException {
        return local.create(
                local(path), permission, overwrite, bufferBytes, replication, blockSize, progress);
    }

    @Override
    public FSDataOutputStream createNonRecursive(
            Path path,
            FsPermission permission,
            EnumSet<CreateFlag> flags,
            int bufferBytes,
            short replication,
            long blockSize,
            Progressable progress)
            throws IOException {
        return local.createNonRecursive(
                local(path), permission, flags, bufferBytes, replication, blockSize, progress);
    }

    /** The root stays, for a server serves the very directory that it was started with. */
    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        if (!makeQualified(path).isRoot()) {
            return local.delete(local(path), recursive);
        }
        FileStatus[] children = local.listStatus(local(path));
        if (children.length > 0 && !recursive) {
            throw new PathIsNotEmptyDirectoryException("/");
        }
        for (FileStatus child : children) {
            local.delete(child.getPath(), true);
        }
        return true;
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        return local.mkdirs(local(path), permission);
    }
}
