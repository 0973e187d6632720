package io.github.haul.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.Frames;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * A lie that a seed draws: what is changed, how, when, and whether in each session or in one.
 *
 * <p>Half of the lies change a message, the others a frame. A changed frame is signed anew where
 * that would tell the same bytes, so that the client's own rules have to see it.
 */
final class RandomLie implements Lie {
    /** The words or frames of a session before the one that is changed. */
    private static final int HONEST_MAX = 14;

    private static final List<String> NAMES =
            List.of("", ".", "..", "../x", "/x", "data/../../x", "a\0b", "x", "data/", "tree//x");

    private final long seed;
    private final boolean isOfFrames;
    private final boolean isLasting;
    private final int honest;
    private final StringBuilder told = new StringBuilder();
    private boolean isOver;
    private boolean movesBytes;
    private int words;
    private int frames;

    /**
     * Draws a lie.
     *
     * @param hasFrames whether the server sends frames
     */
    RandomLie(long seed, boolean hasFrames) {
        this.seed = seed;
        Random random = numbers(seed);
        isOfFrames = hasFrames && random.nextBoolean();
        isLasting = random.nextInt(3) > 0;
        honest = random.nextInt(HONEST_MAX);
    }

    /** Random numbers; those of seeds that are near to each other begin alike in Java. */
    private static Random numbers(long seed) {
        return new Random(seed * 0x9e37_79b9_7f4a_7c15L);
    }

    /** What was told, for the words of a failure. */
    @Override
    public synchronized String toString() {
        return "seed " + seed + (isLasting ? ", each session: " : ", once: ") + told;
    }

    /**
     * Whether a file may differ from the source in good faith: its size, kind and holes, and the
     * bytes of each of its spans, are the server's own to say. A span that was moved to where
     * another one belongs, and signed there, is such a word.
     */
    synchronized boolean changesFiles() {
        return movesBytes || told.indexOf("FILE_OFFER") >= 0;
    }

    synchronized boolean isTold() {
        return !told.isEmpty();
    }

    /** The numbers by which to lie now, or null where the truth is told. */
    private synchronized @Nullable Random turn(boolean isFrame) {
        int before = isFrame ? frames++ : words++;
        if (isFrame != isOfFrames || isOver || before != honest) {
            return null;
        }
        isOver = !isLasting;
        return numbers(-1 - seed);
    }

    private synchronized void moves() {
        movesBytes = true;
    }

    private synchronized void note(String what) {
        told.append(what).append("; ");
    }

    @Override
    public void control(Control said, LyingServer.Words client) throws Exception {
        if (said.hasHelloReply()) {
            synchronized (this) {
                words = 0;
                frames = 0;
            }
        }
        Random random = turn(false);
        if (random == null) {
            client.say(said);
            return;
        }
        int kind = random.nextInt(9);
        byte[] bytes = ControlMessages.encode(said);
        note(said.getKindCase() + " " + kind);
        switch (kind) {
            case 0 -> {}
            case 1 -> {
                client.say(said);
                client.say(said);
            }
            case 2 -> {
                bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
                client.bytes(bytes);
            }
            case 3 -> {
                client.bytes(java.util.Arrays.copyOf(bytes, bytes.length / 2));
                throw new IOException("it goes");
            }
            case 4 -> Lie.silence();
            default -> client.say(changed(said, random));
        }
    }

    /** Changes one of a message's fields, or one of a message in it. */
    private Control changed(Control said, Random random) {
        Message.Builder builder = said.toBuilder();
        Message.Builder at = builder;
        while (true) {
            List<FieldDescriptor> fields = new ArrayList<>(at.getDescriptorForType().getFields());
            if (at == builder) {
                fields = List.copyOf(at.getAllFields().keySet());
            }
            FieldDescriptor field = fields.get(random.nextInt(fields.size()));
            note(field.getContainingType().getName() + "." + field.getName());
            if (field.isRepeated()) {
                repeat(at, field, random);
                return (Control) builder.build();
            }
            if (field.getJavaType() != FieldDescriptor.JavaType.MESSAGE) {
                at.setField(field, value(at.getField(field), field, random));
                return (Control) builder.build();
            }
            at = at.getFieldBuilder(field);
        }
    }

    private static void repeat(Message.Builder at, FieldDescriptor field, Random random) {
        int count = at.getRepeatedFieldCount(field);
        if (count > 0 && random.nextBoolean()) {
            at.addRepeatedField(field, at.getRepeatedField(field, random.nextInt(count)));
        } else if (field.getJavaType() == FieldDescriptor.JavaType.MESSAGE) {
            at.addRepeatedField(field, at.newBuilderForField(field).build());
        } else {
            at.addRepeatedField(field, value(zero(field), field, random));
        }
    }

    private static Object zero(FieldDescriptor field) {
        return switch (field.getJavaType()) {
            case INT -> 0;
            case LONG -> 0L;
            case BOOLEAN -> false;
            default -> "";
        };
    }

    private static Object value(Object now, FieldDescriptor field, Random random) {
        return switch (field.getJavaType()) {
            case INT -> {
                int was = (Integer) now;
                int[] values = {0, 1, was + 1, was - 1, -1, Integer.MAX_VALUE, random.nextInt()};
                yield values[random.nextInt(values.length)];
            }
            case LONG -> {
                long was = (Long) now;
                long[] values = {0, 1, was + 1, was - 1, -1, Long.MAX_VALUE, random.nextLong()};
                yield values[random.nextInt(values.length)];
            }
            case BOOLEAN -> !(Boolean) now;
            case STRING -> "x".repeat(random.nextInt(20_000));
            case BYTE_STRING -> ByteString.copyFromUtf8(NAMES.get(random.nextInt(NAMES.size())));
            case ENUM -> field.getEnumType().findValueByNumberCreatingIfUnknown(random.nextInt(40));
            default -> now;
        };
    }

    @Override
    public void frame(LyingServer.Frame frame, LyingServer.Data client) throws Exception {
        Random random = turn(true);
        if (random == null) {
            client.send(frame);
            return;
        }
        int kind = random.nextInt(10);
        note(frame.header().getClass().getSimpleName() + " " + kind);
        byte[] header = frame.header().encode();
        byte[] body = frame.body();
        switch (kind) {
            case 0 -> {}
            case 1 -> {
                client.send(frame);
                client.send(frame);
            }
            case 2 -> {
                header[random.nextInt(header.length)] ^= (byte) (1 << random.nextInt(8));
                client.bytes(header);
                client.bytes(body);
            }
            case 3 -> {
                if (body.length > 0) {
                    body[random.nextInt(body.length)] ^= (byte) (1 << random.nextInt(8));
                }
                client.send(frame);
            }
            case 4 -> {
                client.bytes(header);
                client.bytes(java.util.Arrays.copyOf(body, body.length / 2));
                client.close();
            }
            case 5 -> Lie.silence();
            case 6 -> client.bytes(new Frames.End(frame.header().sequence(), 0).encode());
            default -> other(frame, client, random);
        }
    }

    /** A header that says something else, with a checksum and a digest that fit. */
    private void other(LyingServer.Frame frame, LyingServer.Data client, Random random)
            throws Exception {
        Frames.Header header = frame.header();
        long[] wrong = {0, 1, 2, 1L << 16, 1L << 33, random.nextInt(5000)};
        long value = wrong[random.nextInt(wrong.length)];
        if (header instanceof Frames.Span span) {
            long[] fields = {span.file(), span.offsetBytes(), span.sequence(), span.stream()};
            int changed = random.nextInt(fields.length);
            fields[changed] = value;
            note("field " + changed + " of " + span + " is " + value);
            boolean isSpans = fields[1] % LiesTold.SPAN_BYTES == 0;
            if (isSpans && (fields[0] != span.file() || fields[1] != span.offsetBytes())) {
                moves();
            }
            byte[] payload = frame.payload();
            client.sign(
                    new Frames.Span(
                            (int) fields[0], fields[1], payload.length, fields[2], (int) fields[3]),
                    payload,
                    Frames.Status.values()[random.nextInt(3)]);
        } else if (header instanceof Frames.Pack pack) {
            long[] fields = {pack.spans(), pack.lenBytes(), pack.sequence(), pack.stream()};
            fields[random.nextInt(fields.length)] = value;
            client.bytes(
                    new Frames.Pack((int) fields[0], fields[1], fields[2], (int) fields[3])
                            .encode());
            client.bytes(frame.body());
        } else {
            client.bytes(new Frames.End(value, header.stream()).encode());
        }
    }
}
