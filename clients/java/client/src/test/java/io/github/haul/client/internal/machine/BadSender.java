package io.github.haul.client.internal.machine;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Compare;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileConfirm;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.FileSettled;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.OffersEnd;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.proto.Ping;
import io.github.haul.client.internal.proto.Plan;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.proto.Skip;
import io.github.haul.client.internal.proto.SpansVerified;
import io.github.haul.client.internal.proto.StreamClosed;
import io.github.haul.client.internal.proto.StreamDrop;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/** The receiver, with a sender that says anything, on its streams, too. */
final class BadSender extends BadPeer {
    /** Spans of a file of which an honest header is made. */
    private static final int SPANS_SENT = 64;

    private static final int[] SHARES = {
        60, 60, 40, 30, 30, 90, 80, 2, 20, 20, 1, 1, 10, 5, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1
    };

    private static final Comparator<Integer> NUMBERS = Integer::compareUnsigned;

    private record FileSpan(int file, int span) {}

    private record Write(int file, int span, int stream) {}

    private static final Comparator<Write> ORDER =
            Comparator.comparing(Write::file, NUMBERS)
                    .thenComparing(Write::span, NUMBERS)
                    .thenComparing(Write::stream, NUMBERS);

    private final Receiver receiver = new Receiver(OFFERS_MAX, Limits.OFFER_BYTES_MAX);
    private final List<Long> sizes = new ArrayList<>();
    private final SortedMap<Integer, SpanGrid> grids = new TreeMap<>(NUMBERS);
    private final Set<Integer> settled = new HashSet<>();

    /** Frames of each open stream. */
    private final Map<Integer, Long> streams = new HashMap<>();

    private final SortedSet<Write> writing = new TreeSet<>(ORDER);
    private final Set<FileSpan> verified = new HashSet<>();
    private final Set<FileSpan> told = new HashSet<>();
    private final SortedSet<Integer> beingReadBack = new TreeSet<>(NUMBERS);

    /** Files that the sender confirmed while they were read back. */
    private final Set<Integer> waiting = new HashSet<>();

    private final Set<Integer> confirmed = new HashSet<>();

    BadSender(long seed) {
        super(seed);
    }

    @Override
    void operate() throws ProtocolViolation {
        int kind = random.kind(SHARES);
        switch (kind) {
            case 1 -> need(Seeded.number(random.below(8)), Limits.SPAN_BYTES_MIN);
            case 2 -> {
                int stream = number();
                if (isDone("opens", () -> receiver.streamOpened(stream))) {
                    streams.put(stream, 0L);
                }
            }
            case 4 -> readBack(random.anyByte(), random.anyByte());
            case 5 -> startHonestly(number(), random.anyByte());
            case 6 -> endSpan(random.anyByte(), random.below(120));
            case 8 -> startAny();
            case 9 -> {
                int file = number();
                boolean isDurable = random.flag();
                if (confirmed.contains(file)) {
                    receiver.committed(file, isDurable ? null : Seeded.fault(0));
                }
            }
            case 10 -> {
                int file = number();
                need(file, Seeded.spanBytes(random.anyByte()));
            }
            case 12 -> {
                int stream = number();
                receiver.streamClosed(stream);
                streams.remove(stream);
                writing.removeIf(write -> write.stream == stream);
            }
            case 14 -> receiver.fileFailed(number(), Seeded.fault(2));
            case 15 -> noContent(random.anyByte());
            case 16 -> answer(number(), new OfferAnswer.Failed(Seeded.fault(1)));
            case 19 -> receiver.finish(SideReport.getDefaultInstance());
            case 20 -> receiver.progress(Progress.getDefaultInstance());
            default -> hear(message(kind));
        }
    }

    private int number() {
        return Seeded.number(random.anyByte());
    }

    private boolean isOpen(int file) {
        return Integer.compareUnsigned(file, sizes.size()) < 0 && !settled.contains(file);
    }

    private boolean answer(int file, OfferAnswer answer) {
        return isDone("answers", () -> receiver.answer(file, answer));
    }

    private void need(int file, long spanBytes) {
        int bits = random.anyByte();
        boolean isOffered = Integer.compareUnsigned(file, sizes.size()) < 0;
        SpanGrid grid = grid(isOffered ? sizes.get(file) : 0, spanBytes);
        // A third of the runs bring a set that belongs to another file.
        int count = (grid == null ? 0 : grid.count()) + (bits % 3 == 2 ? 1 : 0);
        SpanSet durable = Seeded.set(count, bits);
        boolean isReadBack = (bits & 8) == 8;
        OfferAnswer.Earlier earlier = new OfferAnswer.Earlier(0, 0, ByteString.EMPTY, isReadBack);
        answer(file, new OfferAnswer.Needed(spanBytes, durable, ByteString.EMPTY, earlier));
        boolean fits = bits % 3 != 2 && !grids.containsKey(file);
        if (!isOpen(file) || grid == null || !fits) {
            return;
        }
        grids.put(file, grid);
        if (isReadBack) {
            beingReadBack.add(file);
        }
        Seeded.spansOf(durable.toRanges())
                .forEach(
                        span -> {
                            told.add(new FileSpan(file, (int) span));
                            verified.add(new FileSpan(file, (int) span));
                        });
    }

    private static @Nullable SpanGrid grid(long sizeBytes, long spanBytes) {
        try {
            return new SpanGrid(sizeBytes, spanBytes);
        } catch (ProtocolViolation none) {
            return null;
        }
    }

    private void noContent(int file) {
        byte[] blake3 = new byte[32];
        Arrays.fill(blake3, (byte) file);
        OfferAnswer answer =
                switch (file >> 6) {
                    case 2 ->
                            new OfferAnswer.ToCompare(
                                    Compare.newBuilder()
                                            .setBlake3(ByteString.copyFrom(blake3))
                                            .build());
                    case 3 -> new OfferAnswer.Planned(Plan.getDefaultInstance());
                    default -> new OfferAnswer.Skipped();
                };
        answer(Seeded.number(file), answer);
    }

    private void readBack(int nth, int bits) {
        Integer file = Seeded.nthOf(beingReadBack, nth);
        if (file == null) {
            return;
        }
        beingReadBack.remove(file);
        SpanSet lost = Seeded.set(grids.get(file).count(), bits);
        int before = verified.size();
        if (isOpen(file)) {
            Seeded.spansOf(lost.toRanges())
                    .forEach(
                            span -> {
                                verified.remove(new FileSpan(file, (int) span));
                                told.remove(new FileSpan(file, (int) span));
                            });
        }
        if (verified.size() < before) {
            waiting.remove(file);
        }
        receiver.readBack(file, lost);
    }

    private void startAny() {
        int stream = number();
        int named = random.anyByte();
        int file = number();
        long span = Integer.toUnsignedLong(number());
        int length = random.anyByte();
        long sequence = streams.getOrDefault(stream, 0L) + Math.max(0, random.anyByte() - 240);
        SpanGrid grid = grids.get(file);
        long offsetBytes = grid == null ? 0 : span * grid.spanBytes();
        long right = 1;
        if (grid != null) {
            right = Math.max(0, Math.min(grid.spanBytes(), grid.sizeBytes() - offsetBytes));
        }
        long lenBytes =
                switch (length) {
                    case 255 -> 0;
                    case 254 -> Limits.SPAN_BYTES_MAX + 1;
                    case 253 -> right + 1;
                    default -> right;
                };
        int said = named < 200 ? stream : Seeded.number(named);
        start(stream, new Frames.Span(file, offsetBytes, lenBytes, sequence, said));
    }

    private void startHonestly(int stream, int nth) {
        Long sequence = streams.get(stream);
        if (sequence == null) {
            return;
        }
        List<FileSpan> missing = new ArrayList<>();
        grids.forEach(
                (file, grid) -> {
                    for (int span = 0; span < Math.min(grid.count(), SPANS_SENT); span++) {
                        if (isOpen(file) && isMissing(file, span)) {
                            missing.add(new FileSpan(file, span));
                        }
                    }
                });
        FileSpan sent = Seeded.nthOf(missing, nth);
        if (sent != null) {
            SpanGrid grid = grids.get(sent.file);
            long offsetBytes = grid.offsetBytes(sent.span);
            long lenBytes = grid.lenBytes(sent.span);
            start(stream, new Frames.Span(sent.file, offsetBytes, lenBytes, sequence, stream));
        }
    }

    private boolean isMissing(int file, int span) {
        boolean isWritten =
                writing.stream().anyMatch(write -> write.file == file && write.span == span);
        return !isWritten && !verified.contains(new FileSpan(file, span));
    }

    private void start(int stream, Frames.Span header) {
        Long expected = streams.get(stream);
        int[] permit = new int[1];
        boolean isTaken = isDone("starts", () -> permit[0] = receiver.spanStarts(stream, header));
        boolean isInOrder =
                expected != null && expected == header.sequence() && header.stream() == stream;
        if (isInOrder && header.lenBytes() > 0 && header.lenBytes() <= Limits.SPAN_BYTES_MAX) {
            streams.put(stream, header.sequence() + 1);
        }
        if (isTaken && permit[0] == Receiver.DISCARD) {
            note("discards");
        } else if (isTaken) {
            note("writes " + number(permit[0]));
            writing.add(new Write(header.file(), permit[0], stream));
        }
    }

    private void endSpan(int nth, int how) {
        Write write = Seeded.nthOf(writing, nth);
        if (write == null) {
            return;
        }
        writing.remove(write);
        SpanEnd end = how < 100 ? SpanEnd.CONFIRMED : SpanEnd.VERIFIED;
        if (how < 2) {
            end = how == 0 ? SpanEnd.DAMAGED : SpanEnd.ABANDONED;
        } else if (isOpen(write.file)) {
            verified.add(new FileSpan(write.file, write.span));
        }
        receiver.spanEnded(write.stream, write.file, write.span, end);
        // What the stream did not bring is no business of the machine's.
        receiver.spanEnded(write.stream, write.file, write.span, SpanEnd.VERIFIED);
    }

    /** What the sender says, whether it may or not; null where it has nothing to say. */
    private Control.@Nullable Builder message(int kind) {
        Control.Builder message = Control.newBuilder();
        return switch (kind) {
            case 0 -> message.setFileOffer(offer(0, random.anyByte()));
            case 11 -> {
                int skew = random.anyByte();
                yield message.setFileOffer(offer(skew, random.anyByte()));
            }
            case 3 -> confirmTold(random.anyByte());
            case 7 -> {
                FileConfirm.Builder confirm = FileConfirm.newBuilder().setFile(number());
                boolean isWhole = random.flag();
                yield message.setFileConfirm(isWhole ? confirm : confirm.setFault(Seeded.fault(1)));
            }
            case 13 -> message.setStreamDrop(StreamDrop.newBuilder().setStream(number()));
            case 17 -> stray(random.anyByte());
            case 18 -> message.setOffersEnd(OffersEnd.getDefaultInstance());
            case 21 -> message.setNotice(Notice.getDefaultInstance());
            case 22 -> message.setFinish(Finish.getDefaultInstance());
            default -> message.setRefused(Seeded.fault(0));
        };
    }

    private FileOffer.Builder offer(int skew, int size) {
        // Now and then the name of another file.
        int name = skew < 128 ? sizes.size() : skew & 3;
        return FileOffer.newBuilder()
                .setFile(sizes.size() + (skew < 250 ? 0 : skew))
                .setName(ByteString.copyFrom(new byte[] {(byte) name}))
                .setSizeBytes(Seeded.sizeBytes(size));
    }

    private Control.@Nullable Builder confirmTold(int nth) {
        List<Integer> whole = new ArrayList<>();
        grids.forEach(
                (file, grid) -> {
                    long spans = told.stream().filter(span -> span.file == file).count();
                    boolean isConfirmed = confirmed.contains(file) || waiting.contains(file);
                    if (spans == grid.count() && !isConfirmed) {
                        whole.add(file);
                    }
                });
        Integer file = Seeded.nthOf(whole, nth);
        FileConfirm.Builder confirm = FileConfirm.newBuilder();
        return file == null ? null : Control.newBuilder().setFileConfirm(confirm.setFile(file));
    }

    private static Control.Builder stray(int which) {
        Control.Builder message = Control.newBuilder();
        return switch (which % 6) {
            case 0 ->
                    message.setFileAnswer(
                            FileAnswer.newBuilder().setSkip(Skip.getDefaultInstance()));
            case 1 -> message.setSpansVerified(SpansVerified.getDefaultInstance());
            case 2 -> message.setFileSettled(FileSettled.getDefaultInstance());
            case 3 -> message.setStreamClosed(StreamClosed.getDefaultInstance());
            case 4 -> message.setOpened(Opened.getDefaultInstance());
            default -> message.setPong(Ping.getDefaultInstance());
        };
    }

    private void hear(Control.@Nullable Builder message) throws ProtocolViolation {
        if (message == null) {
            return;
        }
        Control heard = message.build();
        receiver.handle(heard);
        if (heard.hasFileOffer()) {
            sizes.add(heard.getFileOffer().getSizeBytes());
        } else if (heard.hasFileConfirm() && !heard.getFileConfirm().hasFault()) {
            int file = heard.getFileConfirm().getFile();
            if (beingReadBack.contains(file) && isOpen(file)) {
                waiting.add(file);
            }
        }
    }

    @Override
    void lookAtOutput() {
        for (Control said = receiver.pollMessage(); said != null; said = receiver.pollMessage()) {
            noteMessage(said);
            if (said.hasSpansVerified()) {
                int file = said.getSpansVerified().getFile();
                Seeded.spansOf(said.getSpansVerified().getSpansList())
                        .forEach(span -> told.add(new FileSpan(file, (int) span)));
            } else if (said.hasFileSettled()) {
                settled.add(said.getFileSettled().getFile());
            } else if (said.hasFileAnswer() && !said.getFileAnswer().hasNeed()) {
                settled.add(said.getFileAnswer().getFile());
            }
        }
        for (ReceiverEvent event = receiver.pollEvent();
                event != null;
                event = receiver.pollEvent()) {
            note(line(event));
            if (event instanceof ReceiverEvent.Commit commit) {
                waiting.remove(commit.file());
                confirmed.add(commit.file());
            }
        }
        String state = receiver.mayFinish() + " " + receiver.isAllConfirmed();
        String lacks = receiver.lacksSpans() + " " + receiver.hasOpenFiles();
        String awaits = awaited(receiver.awaits());
        note("is " + state + " " + awaits + " " + lacks + " " + receiver.isUrgent());
    }

    private static String line(ReceiverEvent event) {
        Control.Builder message = Control.newBuilder();
        if (event instanceof ReceiverEvent.Offered offered) {
            return "offered " + wire(message.setFileOffer(offered.offer()));
        } else if (event instanceof ReceiverEvent.NameTaken taken) {
            return "taken "
                    + wire(message.setFileOffer(taken.offer()))
                    + " "
                    + fault(taken.fault());
        } else if (event instanceof ReceiverEvent.OffersOver over) {
            return "offers end " + number(over.files()) + " " + number(over.bytes());
        } else if (event instanceof ReceiverEvent.AllVerified verified) {
            return "all verified " + number(verified.file());
        } else if (event instanceof ReceiverEvent.Commit commit) {
            return "commit " + number(commit.file());
        } else if (event instanceof ReceiverEvent.GivenUp given) {
            return "given up " + number(given.file()) + " " + fault(given.fault());
        } else if (event instanceof ReceiverEvent.CloseStream close) {
            return "close " + number(close.stream()) + " " + close.why();
        } else if (event instanceof ReceiverEvent.Noticed noticed) {
            return "told " + wire(message.setNotice(noticed.notice()));
        } else if (event instanceof ReceiverEvent.Finished finished) {
            return "finished " + finish(finished.report());
        } else if (event instanceof ReceiverEvent.Refused refused) {
            return "refused " + fault(refused.fault());
        }
        throw new IllegalArgumentException(event.toString());
    }
}
