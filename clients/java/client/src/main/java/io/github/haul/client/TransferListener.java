package io.github.haul.client;

/**
 * Hears of a transfer while it runs, on the transfer's own thread: what takes long belongs
 * elsewhere. What it throws ends the transfer.
 */
public interface TransferListener {
    /** A listener that hears nothing. */
    TransferListener NONE = new TransferListener() {};

    /**
     * Hears of progress, a few times a second.
     *
     * @param progress how far the transfer is
     */
    default void onProgress(TransferProgress progress) {}

    /**
     * Hears of each file that has come out.
     *
     * @param file how it came out
     */
    default void onFile(FileResult file) {}

    /**
     * Hears a word for the user: a connection that was lost or is back, an engine that fell back.
     *
     * @param words the words
     */
    default void onNotice(String words) {}
}
