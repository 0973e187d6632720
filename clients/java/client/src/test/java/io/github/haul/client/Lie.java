package io.github.haul.client;

import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.wire.Frames;
import java.io.IOException;
import java.net.Socket;

/** What a {@link LyingServer} makes of the words of the real one. By default it is honest. */
interface Lie {
    /** A lie that goes on for as long as the session: nothing is said, nothing ends. */
    long FOR_EVER_MS = 60_000;

    /** Passes on a message of the real server, or says something else. */
    default void control(Control said, LyingServer.Words client) throws Exception {
        client.say(said);
    }

    /** Passes on a frame that the real server sent, or sends something else. */
    default void frame(LyingServer.Frame frame, LyingServer.Data client) throws Exception {
        client.send(frame);
    }

    /**
     * Takes a data stream that the client has opened.
     *
     * @param client its connection, behind the preface
     * @param preface what it said first
     * @return whether the real server is to have it
     */
    default boolean takesStream(Socket client, Frames.Preface preface) throws Exception {
        return true;
    }

    /** Stays silent until the client is gone. */
    static void silence() throws IOException {
        try {
            Thread.sleep(FOR_EVER_MS);
        } catch (InterruptedException over) {
            throw new IOException(over);
        }
    }
}
