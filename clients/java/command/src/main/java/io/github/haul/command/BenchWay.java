package io.github.haul.command;

import io.github.haul.client.FileResult;
import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulException;
import io.github.haul.client.HaulUrl;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferOptions;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.channels.FileChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.OptionalLong;

/** The ways in which the bench moves a file: the study's two, and a push of haul. */
enum BenchWay {
    /** The study's first: read 4 KiB into the JVM's memory, write them to the socket's stream. */
    TRADITIONAL("traditional"),
    /** The study's second: {@code FileChannel.transferTo} to the socket. */
    TRANSFER_TO("transfer-to"),
    /** A push of haul under {@code clear}, with all that belongs to one. */
    HAUL_PUSH("haul-push");

    /** Bytes that the study reads and writes at a time. */
    private static final int BLOCK_BYTES = 4096;

    private final String label;

    BenchWay(String label) {
        this.label = label;
    }

    /** The name in tables and JSON. */
    String label() {
        return label;
    }

    /**
     * A file that was moved.
     *
     * @param ns how long it took, until the receiver had all of it
     * @param calls reads, writes and transfers that this program called; empty where it does not
     *     count them
     * @param switches context switches of the threads that sent, as the kernel counts them; empty
     *     where it does not tell
     */
    record Moved(long ns, OptionalLong calls, OptionalLong switches) {}

    /** Moves a file once. */
    Moved move(Path file, InetSocketAddress sink, HaulUrl url)
            throws IOException, InterruptedException {
        return this == HAUL_PUSH ? push(file, url) : send(file, sink);
    }

    private Moved send(Path file, InetSocketAddress sink) throws IOException {
        try (SocketChannel socket = SocketChannel.open(sink)) {
            ContextSwitches before = ContextSwitches.ofThisThread();
            long begunNs = System.nanoTime();
            long calls = this == TRADITIONAL ? copy(file, socket) : transfer(file, socket);
            socket.shutdownOutput();
            ByteSink.awaitCount(socket, Files.size(file));
            long ns = System.nanoTime() - begunNs;
            OptionalLong switches = ContextSwitches.ofThisThread().since(before);
            return new Moved(ns, OptionalLong.of(calls), switches);
        }
    }

    private static long copy(Path file, SocketChannel socket) throws IOException {
        byte[] block = new byte[BLOCK_BYTES];
        long calls = 0;
        try (FileInputStream input = new FileInputStream(file.toFile())) {
            OutputStream output = socket.socket().getOutputStream();
            for (int read = input.read(block); read >= 0; read = input.read(block)) {
                output.write(block, 0, read);
                calls += 2;
            }
        }
        return calls + 1;
    }

    private static long transfer(Path file, SocketChannel socket) throws IOException {
        long calls = 0;
        try (FileChannel input = FileChannel.open(file, StandardOpenOption.READ)) {
            long size = input.size();
            long at = 0;
            while (at < size) {
                at += input.transferTo(at, size - at, socket);
                calls++;
            }
        }
        return calls;
    }

    private static Moved push(Path file, HaulUrl url) throws IOException, InterruptedException {
        long[] switches = {-1};
        ContextSwitches before = ContextSwitches.ofAllThreads();
        TransferOptions options =
                TransferOptions.builder()
                        .protection(TransferOptions.Protection.CLEAR)
                        .onConflict(TransferOptions.OnConflict.REPLACE)
                        .listener(
                                new TransferListener() {
                                    @Override
                                    public void onFile(FileResult done) {
                                        // Later the threads that sent would be gone.
                                        ContextSwitches now = ContextSwitches.ofAllThreads();
                                        switches[0] = now.since(before).orElse(-1);
                                    }
                                })
                        .build();
        long begunNs = System.nanoTime();
        try (HaulClient client = HaulClient.connect(url)) {
            if (client.push(List.of(file), options).filesDone() != 1) {
                throw new IOException("the push did not send the file");
            }
        } catch (HaulException failed) {
            throw new IOException(ProblemText.of(failed.problem()), failed);
        }
        long ns = System.nanoTime() - begunNs;
        OptionalLong seen = switches[0] < 0 ? OptionalLong.empty() : OptionalLong.of(switches[0]);
        return new Moved(ns, OptionalLong.empty(), seen);
    }
}
