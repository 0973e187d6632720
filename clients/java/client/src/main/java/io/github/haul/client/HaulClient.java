package io.github.haul.client;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.session.Listing;
import io.github.haul.client.internal.session.PartReader;
import io.github.haul.client.internal.session.Transfer;
import io.github.haul.client.internal.session.Transfers;
import io.github.haul.client.internal.wire.GmacProvider;
import io.github.haul.client.internal.wire.NameText;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * A client of one server: it moves files there and back, verified, and goes on where it stopped.
 *
 * <pre>{@code
 * try (HaulClient client = HaulClient.connect("haul://TOKEN@host/incoming/")) {
 *     TransferResult result = client.push(Path.of("run7"));
 *     System.out.println(result.bytes() + " bytes in " + result.duration());
 * }
 * }</pre>
 *
 * <p>Any number of threads may use a client, and any number of transfers may run at a time. The
 * blocking forms may be called on virtual threads.
 */
public final class HaulClient implements AutoCloseable {
    private final HaulUrl url;
    private final HaulToken token;
    private final Set<AtomicBoolean> running = ConcurrentHashMap.newKeySet();

    private HaulClient(HaulUrl url, HaulToken token) {
        this.url = url;
        this.token = token;
    }

    /**
     * Makes a client of the server that a URL names. Each transfer opens a session of its own. The
     * JDK's code for {@code safe} is compiled meanwhile, on a thread of its own.
     *
     * @param url a URL as {@code haul serve} prints it, with its token
     * @return the client
     * @throws IllegalArgumentException if the text is no URL, or has no token
     */
    public static HaulClient connect(String url) {
        return connect(HaulUrl.parse(url));
    }

    /**
     * Makes a client of the server that a URL names.
     *
     * @param url the URL, with its token
     * @return the client
     * @throws IllegalArgumentException if it has no token
     */
    public static HaulClient connect(HaulUrl url) {
        HaulToken token = url.token();
        if (token == null) {
            throw new IllegalArgumentException(
                    "a URL without a token: " + url + "; `haul serve` prints one with it");
        }
        GmacProvider.warmUp();
        return new HaulClient(url, token);
    }

    /**
     * Sends files and directories to the path of the client's URL, and waits until all of them are
     * durable there.
     *
     * @param sources the sources; one whose last component is {@code .}, as {@code run7/.}, is the
     *     content of that directory
     * @return what the transfer did
     * @throws HaulException if it did not come to its end, or a file failed
     * @throws InterruptedException if the calling thread was interrupted: the transfer ends then
     */
    public TransferResult push(Path... sources) throws HaulException, InterruptedException {
        return push(List.of(sources), TransferOptions.DEFAULT);
    }

    /**
     * Sends files and directories to the path of the client's URL, and waits until all of them are
     * durable there.
     *
     * @param sources the sources
     * @param options what else is to be done
     * @return what the transfer did
     * @throws HaulException if it did not come to its end, or a file failed
     * @throws InterruptedException if the calling thread was interrupted: the transfer ends then
     */
    public TransferResult push(List<Path> sources, TransferOptions options)
            throws HaulException, InterruptedException {
        return await(pushAsync(sources, options));
    }

    /**
     * Sends files and directories on a thread of its own.
     *
     * @param sources the sources
     * @param options what else is to be done
     * @return what the transfer did, once it has; it fails with a {@link HaulException}. To cancel
     *     it ends the transfer: what is durable stays, and the same call goes on there.
     */
    public CompletableFuture<TransferResult> pushAsync(
            List<Path> sources, TransferOptions options) {
        AtomicBoolean isCancelled = new AtomicBoolean();
        return start(Transfers.push(url, token, sources, options, isCancelled), isCancelled);
    }

    /**
     * Fetches what the client's URL names, and waits until all of it is durable here.
     *
     * @param target a directory, or where nothing of that name is there the new name of a single
     *     file, whose own directory has to be there. A source whose path ends with {@code /} is the
     *     content of that directory
     * @return what the transfer did
     * @throws HaulException if it did not come to its end, or a file failed
     * @throws InterruptedException if the calling thread was interrupted: the transfer ends then
     */
    public TransferResult pull(Path target) throws HaulException, InterruptedException {
        return pull(target, TransferOptions.DEFAULT);
    }

    /**
     * Fetches what the client's URL names, and waits until all of it is durable here.
     *
     * @param target a directory, or the new name of a single file
     * @param options what else is to be done
     * @return what the transfer did
     * @throws HaulException if it did not come to its end, or a file failed
     * @throws InterruptedException if the calling thread was interrupted: the transfer ends then
     */
    public TransferResult pull(Path target, TransferOptions options)
            throws HaulException, InterruptedException {
        return await(pullAsync(target, options));
    }

    /**
     * Fetches what the client's URL names on a thread of its own.
     *
     * @param target a directory, or the new name of a single file
     * @param options what else is to be done
     * @return what the transfer did, once it has; it fails with a {@link HaulException}. To cancel
     *     it ends the transfer: what is durable stays, and the same call goes on there.
     * @throws HaulException if this client cannot do what is asked for
     */
    public CompletableFuture<TransferResult> pullAsync(Path target, TransferOptions options)
            throws HaulException {
        return pullAsync(List.of(url), target, options);
    }

    /**
     * Fetches several sources of the client's server at once, on a thread of its own.
     *
     * @param sources what is fetched: URLs of this client's server, with its token or without one
     * @param target a directory, or for a single file its new name; null to verify what comes and
     *     throw it away
     * @param options what else is to be done
     * @return as {@link #pullAsync(Path, TransferOptions)}
     * @throws HaulException if this client cannot do what is asked for
     * @throws IllegalArgumentException if there is no source, or one is of another server
     */
    public CompletableFuture<TransferResult> pullAsync(
            List<HaulUrl> sources, @Nullable Path target, TransferOptions options)
            throws HaulException {
        if (sources.isEmpty()) {
            throw new IllegalArgumentException("nothing to pull: at least one URL is needed");
        }
        List<ByteString> paths = new ArrayList<>();
        for (HaulUrl source : sources) {
            HaulToken other = source.token();
            boolean isSame = source.host().equals(url.host()) && source.port() == url.port();
            if (!isSame || other != null && !other.reveal().equals(token.reveal())) {
                throw new IllegalArgumentException(
                        "one pull fetches from one server: " + url + " and " + source);
            }
            paths.add(ByteString.copyFrom(source.path()));
        }
        AtomicBoolean isCancelled = new AtomicBoolean();
        return start(Transfers.pull(url, token, paths, target, options, isCancelled), isCancelled);
    }

    /**
     * Fetches several sources of the client's server at once, and waits until all of them are
     * durable here.
     *
     * @param sources what is fetched: URLs of this client's server, with its token or without one
     * @param target a directory, or for a single file its new name; null to verify what comes and
     *     throw it away
     * @param options what else is to be done
     * @return what the transfer did
     * @throws HaulException if it did not come to its end, or a file failed
     * @throws InterruptedException if the calling thread was interrupted: the transfer ends then
     */
    public TransferResult pull(
            List<HaulUrl> sources, @Nullable Path target, TransferOptions options)
            throws HaulException, InterruptedException {
        return await(pullAsync(sources, target, options));
    }

    /**
     * Lists what is at a path and one level below it, and moves nothing: the right to list is
     * enough.
     *
     * @param path names with {@code /} between them, below the path of the client's URL, as {@link
     *     RemoteEntry#name} has them; empty for that path itself
     * @return first what the path itself is, under an empty name, then what it holds, in the
     *     server's order
     * @throws HaulException if nothing is there ({@link HaulException.NotFound}), or the server
     *     cannot be asked
     * @throws InterruptedException if the calling thread was interrupted
     */
    public List<RemoteEntry> list(String path) throws HaulException, InterruptedException {
        return list(path, 1, TransferOptions.DEFAULT);
    }

    /**
     * Tells what is at a path, and moves nothing: the right to list is enough. A link is followed,
     * as by a pull of that path, as long as it does not lead out of what the token is for.
     *
     * @param path names with {@code /} between them, below the path of the client's URL
     * @return what is there, under an empty name; empty where nothing is
     * @throws HaulException if the server cannot be asked
     * @throws InterruptedException if the calling thread was interrupted
     */
    public Optional<RemoteEntry> status(String path) throws HaulException, InterruptedException {
        try {
            return Optional.of(list(path, 0, TransferOptions.DEFAULT).get(0));
        } catch (HaulException.NotFound missing) {
            return Optional.empty();
        }
    }

    /**
     * Opens a file of which parts are to be read; the right to read is needed.
     *
     * @param path names with {@code /} between them, below the path of the client's URL; a link is
     *     followed as by {@link #status}
     * @return the file
     * @throws HaulException if nothing is there ({@link HaulException.NotFound}), it is no file, or
     *     the server cannot be asked
     * @throws InterruptedException if the calling thread was interrupted
     */
    public RemoteFile open(String path) throws HaulException, InterruptedException {
        return open(path, TransferOptions.builder().streams(1).build());
    }

    /**
     * Opens a file of which parts are to be read.
     *
     * @param path names with {@code /} between them, below the path of the client's URL
     * @param options protection, streams, span size, times and listener; others mean nothing here
     * @return the file
     * @throws HaulException if nothing is there ({@link HaulException.NotFound}), it is no file, or
     *     the server cannot be asked
     * @throws InterruptedException if the calling thread was interrupted
     */
    public RemoteFile open(String path, TransferOptions options)
            throws HaulException, InterruptedException {
        AtomicBoolean isCancelled = new AtomicBoolean();
        running.add(isCancelled);
        boolean isOpen = false;
        try {
            PartReader reader = PartReader.open(url, token, below(path), options, isCancelled);
            isOpen = true;
            return new RemoteFile(reader, () -> running.remove(isCancelled));
        } finally {
            if (!isOpen) {
                running.remove(isCancelled);
            }
        }
    }

    private List<RemoteEntry> list(String path, int levels, TransferOptions options)
            throws HaulException, InterruptedException {
        AtomicBoolean isCancelled = new AtomicBoolean();
        running.add(isCancelled);
        try {
            return new Listing(url, token, below(path), levels, options, isCancelled).run();
        } finally {
            running.remove(isCancelled);
        }
    }

    /** The bytes of a path below that of the URL. */
    private ByteString below(String path) {
        ByteString own = ByteString.copyFrom(url.path());
        ByteString more = NameText.bytes(path);
        boolean isJoined = own.isEmpty() || more.isEmpty() || own.byteAt(own.size() - 1) == '/';
        return own.concat(isJoined ? ByteString.EMPTY : ByteString.copyFromUtf8("/")).concat(more);
    }

    private CompletableFuture<TransferResult> start(Transfer transfer, AtomicBoolean isCancelled) {
        Running future = new Running(isCancelled);
        running.add(isCancelled);
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                future.complete(transfer.run());
                            } catch (Throwable failure) {
                                future.completeExceptionally(failure);
                            } finally {
                                running.remove(isCancelled);
                            }
                        },
                        "haul transfer");
        thread.setDaemon(true);
        thread.start();
        return future;
    }

    private static TransferResult await(CompletableFuture<TransferResult> future)
            throws HaulException, InterruptedException {
        try {
            return future.get();
        } catch (InterruptedException interrupted) {
            future.cancel(true);
            throw interrupted;
        } catch (ExecutionException failed) {
            Throwable cause = failed.getCause();
            if (cause instanceof HaulException problem) {
                problem.addSuppressed(failed);
                throw problem;
            }
            if (cause instanceof RuntimeException problem) {
                throw problem;
            }
            if (cause instanceof CancellationException cancelled) {
                throw cancelled;
            }
            throw new IllegalStateException("a transfer failed in an unknown way", failed);
        }
    }

    /** A future whose cancellation ends its transfer. */
    private static final class Running extends CompletableFuture<TransferResult> {
        private final AtomicBoolean isCancelled;

        Running(AtomicBoolean isCancelled) {
            this.isCancelled = isCancelled;
        }

        @Override
        public boolean cancel(boolean mayInterruptIfRunning) {
            isCancelled.set(true);
            return super.cancel(mayInterruptIfRunning);
        }
    }

    /** Cancels the transfers that still run, and ends the reading of open files. */
    @Override
    public void close() {
        running.forEach(isCancelled -> isCancelled.set(true));
    }
}
