package io.github.haul.hadoop;

import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.RemoteEntry;
import io.github.haul.client.RemoteFile;
import io.github.haul.client.TransferOptions;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.util.Progressable;
import org.jspecify.annotations.Nullable;

/**
 * What a haul server has, for Hadoop to read: {@code haul://HOST[:PORT]/path}.
 *
 * <p>The token comes from the URI's user information ({@code haul://TOKEN@HOST/}), or from {@code
 * fs.haul.token.HOST}, or {@code fs.haul.token}, each from a credential provider or the
 * configuration, or from the environment's {@code HAUL_TOKEN}, in this order. No path or message
 * repeats it.
 *
 * <p>It reads and lists. What would change something there fails with {@link
 * UnsupportedOperationException}. Links are followed within the token's root; one that leads
 * nowhere, or out of it, is not listed.
 */
public class HaulFileSystem extends FileSystem {
    /** The scheme of its URIs. */
    public static final String SCHEME = "haul";

    /** The token; {@code fs.haul.token.HOST} is that of one server. */
    public static final String TOKEN = "fs.haul.token";

    /** {@code safe} (a MAC of each span, the default) or {@code clear} (a CRC-32C). */
    public static final String PROTECTION = "fs.haul.protection";

    /** Data connections of each open file, 1 to 64; 1 if not set. */
    public static final String CONNECTIONS = "fs.haul.connections";

    /** Bytes that are verified as one, a power of two from 64 KiB; 256 KiB if not set. */
    public static final String SPAN_SIZE = "fs.haul.span.size";

    /** Block size that files are said to have, by which jobs split them; 128 MiB if not set. */
    public static final String BLOCK_SIZE = "fs.haul.block.size";

    /** How long a read tries to get back to a server that went away; 60 s if not set. */
    public static final String RETRY_FOR = "fs.haul.retry.for";

    private static final String TOKEN_VARIABLE = "HAUL_TOKEN";
    private static final long BLOCK_BYTES = 128L << 20;
    private static final int RETRY_FOR_S = 60;

    private @Nullable HaulClient client;
    private URI uri = URI.create("haul:///");
    private Path workingDirectory = new Path("/");
    private TransferOptions options = TransferOptions.DEFAULT;
    private long blockBytes = BLOCK_BYTES;

    /** A file system without a server: Hadoop makes it, and calls {@link #initialize} with one. */
    public HaulFileSystem() {}

    @Override
    public String getScheme() {
        return SCHEME;
    }

    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        setConf(conf);
        uri = withoutToken(name);
        workingDirectory = new Path(uri.getScheme(), uri.getAuthority(), "/");
        blockBytes = conf.getLongBytes(BLOCK_SIZE, BLOCK_BYTES);
        try {
            String protection = conf.getTrimmed(PROTECTION, "safe").toUpperCase(Locale.ROOT);
            long retryForMs =
                    conf.getTimeDuration(
                            RETRY_FOR,
                            TimeUnit.SECONDS.toMillis(RETRY_FOR_S),
                            TimeUnit.SECONDS,
                            TimeUnit.MILLISECONDS);
            options =
                    TransferOptions.builder()
                            .protection(TransferOptions.Protection.valueOf(protection))
                            .streams(conf.getInt(CONNECTIONS, 1))
                            .spanBytes(conf.getLongBytes(SPAN_SIZE, 0))
                            .retryFor(Duration.ofMillis(retryForMs))
                            .build();
            String server = uri.getAuthority() == null ? "" : uri.getAuthority();
            client =
                    HaulClient.connect(
                            HaulUrl.parse("haul://" + token(name, conf) + "@" + server + "/"));
        } catch (IllegalArgumentException wrong) {
            throw new IOException(uri + " cannot be used: " + wrong.getMessage(), wrong);
        }
    }

    /** A URI of the server alone, which may be shown. */
    private static URI withoutToken(URI name) throws IOException {
        String authority = name.getAuthority() == null ? "" : name.getAuthority();
        try {
            return new URI(
                    SCHEME, authority.substring(authority.lastIndexOf('@') + 1), "", null, null);
        } catch (URISyntaxException wrong) {
            throw new IOException("no URI of a haul server (haul://HOST:PORT/)", wrong);
        }
    }

    private static String token(URI name, Configuration conf) throws IOException {
        if (name.getUserInfo() != null) {
            return name.getUserInfo();
        }
        for (String key : List.of(TOKEN + "." + name.getHost(), TOKEN)) {
            char[] found = conf.getPassword(key);
            if (found != null) {
                return new String(found).trim();
            }
        }
        String found = System.getenv(TOKEN_VARIABLE);
        if (found == null || found.isEmpty()) {
            throw new AccessControlException(
                    "no token for the haul server "
                            + name.getHost()
                            + ": set "
                            + TOKEN
                            + " in the configuration or a credential provider, or HAUL_TOKEN");
        }
        return found.trim();
    }

    @Override
    public URI getUri() {
        return uri;
    }

    @Override
    public int getDefaultPort() {
        return HaulUrl.PORT_DEFAULT;
    }

    /** Takes paths with the token of this server in front, too. */
    @Override
    protected void checkPath(Path path) {
        super.checkPath(withoutToken(path));
    }

    @Override
    public Path makeQualified(Path path) {
        return super.makeQualified(withoutToken(path));
    }

    private static Path withoutToken(Path path) {
        String authority = path.toUri().getAuthority();
        if (authority == null || !authority.contains("@")) {
            return path;
        }
        String server = authority.substring(authority.lastIndexOf('@') + 1);
        return new Path(path.toUri().getScheme(), server, path.toUri().getPath());
    }

    @Override
    public Path getWorkingDirectory() {
        return workingDirectory;
    }

    @Override
    public void setWorkingDirectory(Path directory) {
        workingDirectory = makeQualified(directory);
    }

    private HaulClient client() throws IOException {
        HaulClient open = client;
        if (open == null) {
            throw new IOException("the file system " + uri + " is not open");
        }
        return open;
    }

    /** Names of a path below the token's root. */
    private String below(Path path) {
        checkPath(path);
        String text = makeQualified(path).toUri().getPath();
        return text.startsWith(Path.SEPARATOR) ? text.substring(1) : text;
    }

    /** A question to the server. */
    private interface Question<T> {
        T ask() throws HaulException, InterruptedException;
    }

    /** Asks the server; what goes wrong is told as Hadoop's programs expect it. */
    private static <T> T ask(Path path, Question<T> question) throws IOException {
        try {
            return question.ask();
        } catch (InterruptedException interrupted) {
            throw interrupted(interrupted);
        } catch (HaulException problem) {
            throw translated(path, problem);
        }
    }

    static IOException interrupted(InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        IOException exception = new InterruptedIOException("a read of a haul server");
        exception.initCause(interrupted);
        return exception;
    }

    private static IOException translated(Path path, HaulException problem) {
        IOException told;
        String code = problem.problem().code();
        if (problem instanceof HaulException.NotFound) {
            told = new FileNotFoundException(withoutToken(path) + ": " + problem.getMessage());
        } else if (code.equals("RIGHT_MISSING") || code.startsWith("TOKEN_")) {
            told = new AccessControlException(withoutToken(path) + ": " + problem.getMessage());
        } else {
            return problem;
        }
        told.initCause(problem);
        return told;
    }

    @Override
    public FSDataInputStream open(Path path, int bufferBytes) throws IOException {
        String below = below(path);
        HaulClient server = client();
        RemoteFile file;
        try {
            file = ask(path, () -> server.open(below, options));
        } catch (HaulException.Refused refused) {
            if (refused.problem().code().equals("KIND_UNSUPPORTED")) {
                IOException told = new FileNotFoundException(withoutToken(path) + " is no file");
                told.initCause(refused);
                throw told;
            }
            throw refused;
        }
        return new FSDataInputStream(new HaulInputStream(file, statistics));
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        String below = below(path);
        HaulClient server = client();
        Optional<RemoteEntry> found = ask(path, () -> server.status(below));
        if (found.isEmpty()) {
            throw new FileNotFoundException(withoutToken(path) + ": there is no such file");
        }
        return status(found.get(), makeQualified(path));
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        String below = below(path);
        HaulClient server = client();
        List<RemoteEntry> entries = ask(path, () -> server.list(below));
        Path qualified = makeQualified(path);
        if (entries.get(0).kind() != RemoteEntry.Kind.DIRECTORY) {
            return new FileStatus[] {status(entries.get(0), qualified)};
        }
        List<FileStatus> found = new ArrayList<>();
        for (RemoteEntry entry : entries.subList(1, entries.size())) {
            Path child = child(qualified, entry.name());
            if (entry.kind() != RemoteEntry.Kind.SYMLINK) {
                found.add(status(entry, child));
                continue;
            }
            try {
                found.add(getFileStatus(child));
            } catch (FileNotFoundException | HaulException.Refused leadsNowhere) {
                LOG.debug("a link is left out: {}", child, leadsNowhere);
            }
        }
        found.sort(Comparator.comparing(FileStatus::getPath));
        return found.toArray(FileStatus[]::new);
    }

    /** The path of a name in a directory, whatever the name is: {@code a:b} is no scheme here. */
    private static Path child(Path directory, String name) {
        String above = directory.toUri().getPath();
        String path = above.endsWith(Path.SEPARATOR) ? above + name : above + Path.SEPARATOR + name;
        return new Path(directory.toUri().getScheme(), directory.toUri().getAuthority(), path);
    }

    private FileStatus status(RemoteEntry entry, Path path) {
        boolean isDirectory = entry.kind() == RemoteEntry.Kind.DIRECTORY;
        return new FileStatus(
                entry.sizeBytes(),
                isDirectory,
                1,
                isDirectory ? 0 : blockBytes,
                entry.modified().toEpochMilli(),
                0,
                new FsPermission((short) entry.mode()),
                "",
                "",
                path);
    }

    @Override
    public long getDefaultBlockSize(Path path) {
        return blockBytes;
    }

    @Override
    public boolean hasPathCapability(Path path, String capability) throws IOException {
        return switch (capability.toLowerCase(Locale.ROOT)) {
            case CommonPathCapabilities.FS_READ_ONLY_CONNECTOR -> true;
            case CommonPathCapabilities.FS_APPEND, CommonPathCapabilities.FS_CONCAT -> false;
            default -> super.hasPathCapability(path, capability);
        };
    }

    private UnsupportedOperationException readOnly(String what, Path path) {
        return new UnsupportedOperationException(
                withoutToken(path)
                        + ": cannot "
                        + what
                        + ": haul:// is for reading; `haul push` sends");
    }

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferBytes,
            short replication,
            long blockSize,
            @Nullable Progressable progress)
            throws IOException {
        throw readOnly("create", path);
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferBytes, @Nullable Progressable progress)
            throws IOException {
        throw readOnly("append", path);
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        throw readOnly("rename", source);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        throw readOnly("delete", path);
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        throw readOnly("make directories", path);
    }

    @Override
    public void close() throws IOException {
        try {
            super.close();
        } finally {
            if (client != null) {
                client.close();
            }
        }
    }
}
