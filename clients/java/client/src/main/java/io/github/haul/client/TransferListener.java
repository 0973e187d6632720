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
     * Hears of each file that was offered and has come out.
     *
     * @param file how it came out
     */
    default void onFile(FileResult file) {}

    /**
     * Hears of each session that is open: the first, and one after each lost connection.
     *
     * @param session what was agreed
     */
    default void onSession(SessionOpened session) {}

    /**
     * Hears that the connection is lost, or back.
     *
     * @param change what has become of it
     */
    default void onConnection(ConnectionChange change) {}

    /**
     * Hears of what a user may want to know, after which the transfer goes on.
     *
     * @param notice what it is
     */
    default void onNotice(TransferNotice notice) {}
}
