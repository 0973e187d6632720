package io.github.haul.client.internal.machine;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Compare;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileConfirm;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.FileSettled;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.proto.Hello;
import io.github.haul.client.internal.proto.Need;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.OffersEnd;
import io.github.haul.client.internal.proto.Ping;
import io.github.haul.client.internal.proto.Plan;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.proto.Skip;
import io.github.haul.client.internal.proto.SpanBad;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.proto.SpansLost;
import io.github.haul.client.internal.proto.SpansVerified;
import io.github.haul.client.internal.proto.StreamClosed;
import io.github.haul.client.internal.proto.StreamDrop;
import io.github.haul.client.internal.wire.ControlMessages;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/** The sender, with a receiver that says anything. */
final class BadReceiver extends BadPeer {
    /** The most durable spans of an answer that are remembered. */
    private static final int DURABLE_NOTED_MAX = 1024;

    private static final int[] SHARES = {
        40, 30, 90, 60, 10, 10, 40, 10, 20, 20, 10, 40, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1,
        1, 1, 2
    };

    private static final Comparator<Integer> NUMBERS = Integer::compareUnsigned;

    /** A span of a file, on its way on a stream where that says something. */
    private record Sent(int stream, int file, int span) {}

    private static final Comparator<Sent> ORDER =
            Comparator.comparing(Sent::stream, NUMBERS)
                    .thenComparing(Sent::file, NUMBERS)
                    .thenComparing(Sent::span, NUMBERS);

    private final Sender sender = new Sender(OFFERS_MAX, Limits.OFFER_BYTES_MAX);
    private final SortedSet<Sent> outstanding = new TreeSet<>(ORDER);

    /** Spans of an earlier session; their stream says nothing. */
    private final SortedSet<Sent> durable = new TreeSet<>(ORDER);

    /** Files that a message confirmed, and those that the trailer of their span did. */
    private final SortedSet<Integer> confirmed = new TreeSet<>(NUMBERS);

    private final SortedSet<Integer> confirmedWithSpan = new TreeSet<>(NUMBERS);
    private final Set<Integer> settled = new HashSet<>();
    private final SortedMap<Integer, Long> unanswered = new TreeMap<>(NUMBERS);
    private final SortedSet<Integer> streams = new TreeSet<>(NUMBERS);
    private int offered;

    BadReceiver(long seed) {
        super(seed);
    }

    @Override
    void operate() throws ProtocolViolation {
        int kind = random.kind(SHARES);
        switch (kind) {
            case 0 -> offer(Seeded.sizeBytes(random.anyByte()));
            case 1 -> {
                int stream = number();
                if (isDone("opens", () -> sender.streamOpened(stream))) {
                    streams.add(stream);
                }
            }
            case 2 -> takeSpan(number());
            case 3, 4 -> ifAny(outstanding, sent -> answerSent(kind == 3, sent));
            case 5 -> ifAny(openOf(durable), span -> hear(lost(span.file, one(span.span))));
            case 6 -> answerOffered();
            case 7 -> ifAny(streams, stream -> hear(closed(stream)));
            case 8 -> settleConfirmed();
            case 9 -> ifAny(outstanding, sent -> confirmWithSpan(sent.file));
            case 10 -> sender.dropStream(number(), "stalled");
            case 11 -> {
                int file = number();
                sender.sourceChecked(file, random.flag() ? null : Seeded.fault(2));
            }
            case 18, 29 -> {
                int file = Seeded.number(kind == 18 ? random.anyByte() : random.below(6));
                sender.sourceFailed(file, Seeded.fault(1));
            }
            case 21 -> heardNothing(number());
            case 23 -> sender.endOffers(offered, 0);
            case 24 -> sender.finish(SideReport.getDefaultInstance());
            default -> hear(message(kind));
        }
    }

    private int number() {
        return Seeded.number(random.anyByte());
    }

    private void offer(long sizeBytes) {
        if (!sender.mayOffer()) {
            return;
        }
        long size = sizeBytes < 0 ? Limits.FILE_BYTES_MAX : sizeBytes;
        int file = sender.offer(FileOffer.newBuilder().setSizeBytes(size).build());
        offered++;
        unanswered.put(file, size);
    }

    private void takeSpan(int stream) {
        Sender.Assignment next = sender.nextSpan(stream);
        if (next != null) {
            String place = number(next.offsetBytes()) + " " + number(next.lenBytes());
            String span = number(next.file()) + " " + number(next.span());
            note("next " + span + " " + place + " " + next.wholeFile());
            outstanding.add(new Sent(stream, next.file(), next.span()));
        }
    }

    private void confirmWithSpan(int file) {
        boolean confirms = sender.confirmWithSpan(file);
        note("confirms " + number(file) + " " + confirms);
        if (confirms) {
            confirmedWithSpan.add(file);
        }
    }

    /** Something that is done with one thing of several. */
    private interface Deed<T> {
        void to(T one) throws ProtocolViolation;
    }

    private <T> void ifAny(SortedSet<T> all, Deed<T> deed) throws ProtocolViolation {
        @Nullable T one = Seeded.nthOf(all, random.anyByte());
        if (one != null) {
            deed.to(one);
        }
    }

    private SortedSet<Sent> openOf(SortedSet<Sent> spans) {
        SortedSet<Sent> open = new TreeSet<>(spans);
        open.removeIf(span -> settled.contains(span.file));
        return open;
    }

    private void answerSent(boolean isGood, Sent sent) throws ProtocolViolation {
        hear(isGood ? verified(sent.file, one(sent.span)) : bad(sent));
    }

    private void answerOffered() throws ProtocolViolation {
        Integer file = Seeded.nthOf(unanswered.keySet(), random.anyByte());
        int bits = random.anyByte();
        if (file == null) {
            return;
        }
        long size = unanswered.get(file);
        boolean isSmall = size <= Limits.SPANS_MAX * Limits.SPAN_BYTES_MIN;
        long spanBytes = isSmall ? Limits.SPAN_BYTES_MIN : Limits.SPAN_BYTES_MAX;
        int count = new SpanGrid(size, spanBytes).count();
        Need.Builder need = Need.newBuilder().setSpanBytes(spanBytes);
        need.addAllDurable(Seeded.set(count, bits).toRanges());
        hear(said(answer(file).setNeed(need)));
    }

    private void settleConfirmed() throws ProtocolViolation {
        SortedSet<Integer> all = new TreeSet<>(confirmed);
        all.addAll(confirmedWithSpan);
        all.removeAll(settled);
        ifAny(all, file -> hear(said(settled(file))));
    }

    /** An answer that says nothing is no message: the bytes of a skip, without it. */
    private static void heardNothing(int file) throws ProtocolViolation {
        FileAnswer.Builder skip = answer(file).setSkip(Skip.getDefaultInstance());
        byte[] whole = ControlMessages.encode(said(skip).build());
        byte[] bytes = Arrays.copyOf(whole, whole.length - 2);
        bytes[0] -= 2;
        bytes[5] -= 2;
        ControlMessages.decode(ByteBuffer.wrap(bytes), Limits.MESSAGE_BYTES_MAX);
    }

    /** What the receiver says, whether it may or not. */
    private Control.Builder message(int kind) {
        return switch (kind) {
            case 12 -> lost(number(), random.ranges());
            case 13 -> {
                int file = number();
                Need.Builder need =
                        Need.newBuilder().setSpanBytes(Seeded.spanBytes(random.anyByte()));
                yield said(answer(file).setNeed(need.addAllDurable(random.ranges())));
            }
            case 14 -> {
                FileSettled.Builder settled = settled(number());
                yield said(random.flag() ? settled : settled.setFault(Seeded.fault(0)));
            }
            case 15 -> verified(number(), random.ranges());
            case 16 -> {
                int file = number();
                int span = number();
                yield bad(new Sent(number(), file, span));
            }
            case 17 -> closed(number());
            case 19 -> noContent(random.anyByte());
            case 20 -> said(answer(number()).setFault(Seeded.fault(0)));
            case 22 -> stray(random.anyByte());
            case 25 -> Control.newBuilder().setProgress(Progress.getDefaultInstance());
            case 26 -> Control.newBuilder().setNotice(Notice.getDefaultInstance());
            case 27 -> Control.newBuilder().setFinish(Finish.getDefaultInstance());
            default -> Control.newBuilder().setRefused(Seeded.fault(0));
        };
    }

    private static List<SpanRange> one(int span) {
        return List.of(Seeded.run(span, 1));
    }

    private static Control.Builder said(FileAnswer.Builder answer) {
        return Control.newBuilder().setFileAnswer(answer);
    }

    private static Control.Builder said(FileSettled.Builder settled) {
        return Control.newBuilder().setFileSettled(settled);
    }

    private static FileAnswer.Builder answer(int file) {
        return FileAnswer.newBuilder().setFile(file);
    }

    private static FileSettled.Builder settled(int file) {
        return FileSettled.newBuilder().setFile(file);
    }

    private static Control.Builder verified(int file, List<SpanRange> spans) {
        SpansVerified.Builder verified = SpansVerified.newBuilder().setFile(file);
        return Control.newBuilder().setSpansVerified(verified.addAllSpans(spans));
    }

    private static Control.Builder lost(int file, List<SpanRange> spans) {
        SpansLost.Builder lost = SpansLost.newBuilder().setFile(file);
        return Control.newBuilder().setSpansLost(lost.addAllSpans(spans));
    }

    private static Control.Builder bad(Sent sent) {
        SpanBad.Builder bad = SpanBad.newBuilder().setFile(sent.file).setSpan(sent.span);
        return Control.newBuilder().setSpanBad(bad.setStream(sent.stream));
    }

    private static Control.Builder closed(int stream) {
        StreamClosed.Builder closed = StreamClosed.newBuilder().setStream(stream);
        return Control.newBuilder().setStreamClosed(closed);
    }

    private static Control.Builder noContent(int file) {
        FileAnswer.Builder answer = answer(Seeded.number(file));
        byte[] blake3 = new byte[32];
        Arrays.fill(blake3, (byte) file);
        return switch (file >> 6) {
            case 2 ->
                    said(
                            answer.setCompare(
                                    Compare.newBuilder().setBlake3(ByteString.copyFrom(blake3))));
            case 3 -> said(answer.setPlan(Plan.getDefaultInstance()));
            default -> said(answer.setSkip(Skip.getDefaultInstance()));
        };
    }

    private static Control.Builder stray(int which) {
        Control.Builder message = Control.newBuilder();
        return switch (which % 6) {
            case 0 -> message.setFileOffer(FileOffer.getDefaultInstance());
            case 1 -> message.setOffersEnd(OffersEnd.getDefaultInstance());
            case 2 -> message.setFileConfirm(FileConfirm.getDefaultInstance());
            case 3 -> message.setStreamDrop(StreamDrop.getDefaultInstance());
            case 4 -> message.setHello(Hello.getDefaultInstance());
            default -> message.setPing(Ping.getDefaultInstance());
        };
    }

    private void hear(Control.Builder message) throws ProtocolViolation {
        Control heard = message.build();
        sender.handle(heard);
        switch (heard.getKindCase()) {
            case SPANS_VERIFIED -> {
                int file = heard.getSpansVerified().getFile();
                Seeded.spansOf(heard.getSpansVerified().getSpansList())
                        .forEach(
                                span ->
                                        outstanding.removeIf(
                                                sent -> sent.file == file && sent.span == span));
            }
            case SPANS_LOST -> noteLost(heard.getSpansLost());
            case STREAM_CLOSED -> noteClosed(heard.getStreamClosed().getStream());
            case FILE_ANSWER -> {
                int file = heard.getFileAnswer().getFile();
                if (heard.getFileAnswer().hasNeed()) {
                    unanswered.remove(file);
                    Seeded.spansOf(heard.getFileAnswer().getNeed().getDurableList())
                            .limit(DURABLE_NOTED_MAX)
                            .forEach(span -> durable.add(new Sent(0, file, (int) span)));
                }
            }
            default -> {}
        }
    }

    private void noteLost(SpansLost lost) {
        Seeded.spansOf(lost.getSpansList())
                .forEach(span -> durable.remove(new Sent(0, lost.getFile(), (int) span)));
        confirmed.remove(lost.getFile());
        confirmedWithSpan.remove(lost.getFile());
    }

    private void noteClosed(int stream) {
        streams.remove(stream);
        for (Sent sent : List.copyOf(outstanding)) {
            if (sent.stream == stream) {
                confirmedWithSpan.remove(sent.file);
                outstanding.remove(sent);
            }
        }
    }

    @Override
    void lookAtOutput() {
        for (Control said = sender.pollMessage(); said != null; said = sender.pollMessage()) {
            noteMessage(said);
            if (said.hasFileConfirm() && !said.getFileConfirm().hasFault()) {
                confirmed.add(said.getFileConfirm().getFile());
            }
        }
        for (SenderEvent event = sender.pollEvent(); event != null; event = sender.pollEvent()) {
            note(line(event));
            if (event instanceof SenderEvent.Settled over) {
                settled.add(over.file());
                outstanding.removeIf(sent -> sent.file == over.file());
                unanswered.remove(over.file());
            }
        }
        List<String> open = sender.openStreams().stream().map(BadPeer::number).toList();
        String files =
                sender.mayOffer()
                        + " "
                        + number(sender.verifiedBytes())
                        + " "
                        + sender.hasFiles()
                        + " "
                        + sender.isAllSettled();
        note(
                "is "
                        + files
                        + " "
                        + awaited(sender.awaits())
                        + " "
                        + sender.hasPending()
                        + " "
                        + open);
    }

    private static String line(SenderEvent event) {
        Control.Builder message = Control.newBuilder();
        if (event instanceof SenderEvent.Resumed resumed) {
            String bytes = number(resumed.bytes()) + " " + number(resumed.spanBytes());
            return "resumed "
                    + number(resumed.file())
                    + " "
                    + bytes
                    + " "
                    + resumed.durable().count();
        } else if (event instanceof SenderEvent.Lost lost) {
            return "lost " + number(lost.file()) + " " + number(lost.bytes());
        } else if (event instanceof SenderEvent.CheckSource check) {
            return "checks source " + number(check.file());
        } else if (event instanceof SenderEvent.SpanDamaged damaged) {
            String span = number(damaged.file()) + " " + number(damaged.span());
            return "damaged " + span + " " + number(damaged.stream());
        } else if (event instanceof SenderEvent.StreamOver over) {
            return "closed " + number(over.stream());
        } else if (event instanceof SenderEvent.Settled settled) {
            String outcome = outcome(settled.file(), settled.outcome());
            return "settled "
                    + number(settled.file())
                    + " "
                    + outcome
                    + " "
                    + settled.sourceFailed();
        } else if (event instanceof SenderEvent.Progressed progressed) {
            return "told " + wire(message.setProgress(progressed.progress()));
        } else if (event instanceof SenderEvent.Noticed noticed) {
            return "told " + wire(message.setNotice(noticed.notice()));
        } else if (event instanceof SenderEvent.Finished finished) {
            return "finished " + finish(finished.report());
        } else if (event instanceof SenderEvent.Refused refused) {
            return "refused " + fault(refused.fault());
        }
        throw new IllegalArgumentException(event.toString());
    }

    private static String outcome(int file, FileOutcome outcome) {
        if (outcome instanceof FileOutcome.Failed failed) {
            return fault(failed.fault());
        } else if (outcome instanceof FileOutcome.ToCompare compared) {
            return answer(answer(file).setCompare(compared.compare()));
        } else if (outcome instanceof FileOutcome.Planned planned) {
            return answer(answer(file).setPlan(planned.plan()));
        }
        return outcome instanceof FileOutcome.Done ? "done" : "skipped";
    }
}
