package io.github.haul.client.internal.session;

import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.SpanEnd;
import java.util.HashMap;
import java.util.Map;

/** The machine of a file that is read in parts, and the spans that have arrived of it. */
final class PartShared extends SharedMachine<Receiver> {
    private final Map<Integer, byte[]> arrived = new HashMap<>();

    PartShared(Receiver machine) {
        super(machine);
    }

    /** Keeps a span whose digest has agreed. */
    void arrived(int stream, int file, int span, byte[] bytes, SpanEnd end) {
        run(
                machine -> {
                    arrived.put(span, bytes);
                    machine.spanEnded(stream, file, span, end);
                });
    }

    /** Takes all spans that have arrived. */
    Map<Integer, byte[]> takeArrived() {
        return with(
                machine -> {
                    Map<Integer, byte[]> taken = new HashMap<>(arrived);
                    arrived.clear();
                    return taken;
                });
    }
}
