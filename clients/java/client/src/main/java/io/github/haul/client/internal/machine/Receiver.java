package io.github.haul.client.internal.machine;

import static io.github.haul.client.internal.wire.ProtocolViolation.unless;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileConfirm;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.FileSettled;
import io.github.haul.client.internal.proto.Finish;
import io.github.haul.client.internal.proto.Need;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.Removed;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.proto.Skip;
import io.github.haul.client.internal.proto.SpanBad;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.proto.SpansLost;
import io.github.haul.client.internal.proto.SpansVerified;
import io.github.haul.client.internal.proto.StreamClosed;
import io.github.haul.client.internal.proto.StreamDrop;
import io.github.haul.client.internal.wire.Frames;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.SortedSet;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * The receiving side of a transfer: which spans may be written by which stream, what is
 * acknowledged, and when a file may be committed.
 *
 * <p>It promises: only a missing span is ever written, by one stream at a time; a span is
 * acknowledged once its digest agreed; a file is committed only when every span is verified and the
 * sender has confirmed the source afterwards. Nothing that the sender says is believed without
 * that.
 *
 * <p>Numbers of files, spans and streams are unsigned. An object serves one thread at a time.
 */
public final class Receiver {
    /** What {@link #spanStarts} returns for a payload that is to be read and thrown away. */
    public static final int DISCARD = -1;

    private final Map<Integer, ReceiveFile> files = new HashMap<>();
    private final Map<Integer, ReceiveStream> streams = new HashMap<>();

    /** Numbers of all streams ever seen: none is used twice. */
    private final Set<Integer> streamsEver = new HashSet<>();

    /** Files with spans that are verified, and of which the sender was not told yet. */
    private final SortedSet<Integer> untold = new TreeSet<>(Integer::compareUnsigned);

    private final TakenNames names;
    private final Queue<Control> outbox = new ArrayDeque<>();
    private final Queue<ReceiverEvent> events = new ArrayDeque<>();
    private final int offersMax;
    private final long offerBytesMax;

    private int nextFile;

    /** Count of the files that are confirmed. */
    private int confirmed;

    /** Memory that the offers of unsettled files take, in bytes. */
    private long offerBytes;

    private long verifiedBytes;
    private boolean offersEnded;
    private boolean isFinished;
    private boolean peerFinished;

    /** State of a name after its file is settled. */
    private enum Outcome {
        IN_PLACE,
        NOTHING
    }

    private static final class ReceiveFile {
        final long sizeBytes;
        final long offerBytes;

        /** Whether the file's name is kept, by its hash; that of a directory is not. */
        final boolean isNamed;

        final long name;
        final boolean keepsName;

        /** Division of the file into spans; null until it was answered. */
        @Nullable SpanGrid grid;

        SpanSet missing = new SpanSet(0);
        SpanSet verified = new SpanSet(0);

        /** The file's spans of an earlier session are being read back. */
        boolean isReadBack;

        /** Spans were lost: a confirmation that crossed the message is void. */
        boolean hasLost;

        boolean isConfirmed;

        /** Count of the times that each span arrived damaged. */
        final Map<Integer, Integer> damaged = new HashMap<>(0);

        /** Spans that are verified and not told, and how many they are. */
        int[] untold = {};

        int untoldCount;

        ReceiveFile(FileOffer offer, TakenNames names) {
            sizeBytes = offer.getSizeBytes();
            offerBytes = Offers.memoryBytes(offer);
            isNamed = TakenNames.isKept(offer);
            name = names.hash(offer.getName());
            keepsName = names.keeps(offer);
        }

        boolean isWhole() {
            return grid != null && verified.isFull();
        }

        void addUntold(int span) {
            if (untoldCount == untold.length) {
                untold = Arrays.copyOf(untold, Math.max(4, 2 * untoldCount));
            }
            untold[untoldCount++] = span;
        }

        /** Takes the spans that are not told, as runs. */
        List<SpanRange> takeUntold() {
            Arrays.sort(untold, 0, untoldCount);
            List<SpanRange> runs = new ArrayList<>();
            for (int at = 0; at < untoldCount; ) {
                int first = untold[at];
                int count = 0;
                while (at < untoldCount && untold[at] == first + count) {
                    at++;
                    count++;
                }
                runs.add(SpanRange.newBuilder().setFirst(first).setCount(count).build());
            }
            untold = new int[0];
            untoldCount = 0;
            return runs;
        }
    }

    private static final class ReceiveStream {
        /** Spans that were permitted and have not ended: the file's number above the span's. */
        final Set<Long> writing = new HashSet<>();

        long frames;
    }

    /**
     * Makes a receiver whose target's path is a directory, and in which no name comes again.
     *
     * @param offersMax the most files that the sender may keep unsettled
     * @param offerBytesMax no more may be offered once their memory has reached this
     */
    public Receiver(int offersMax, long offerBytesMax) {
        this(offersMax, offerBytesMax, TargetPath.DIRECTORY, Repeats.REFUSED);
    }

    /**
     * Makes a receiver.
     *
     * @param offersMax the most files that the sender may keep unsettled
     * @param offerBytesMax no more may be offered once their memory has reached this
     * @param path what the path of the target stands for
     * @param repeats whether names come again
     */
    public Receiver(int offersMax, long offerBytesMax, TargetPath path, Repeats repeats) {
        this.offersMax = Math.max(1, Math.min(offersMax, Limits.OFFERS_MAX));
        this.offerBytesMax = Math.min(offerBytesMax, Limits.OFFER_BYTES_MAX);
        this.names = new TakenNames(path, repeats);
    }

    private static long key(int file, int span) {
        return (long) file << Integer.SIZE | Integer.toUnsignedLong(span);
    }

    /**
     * Answers an offer. A set of durable spans of more than {@link Limits#RANGES_MAX} runs does not
     * fit in a message: the spans of its last runs are asked for again.
     *
     * @param file the file
     * @param answer the answer
     * @throws ProtocolViolation if the file would have too many spans at this size, the set of
     *     durable spans is of a file with another number of them, or the file was answered before;
     *     nothing is sent then
     */
    public void answer(int file, OfferAnswer answer) throws ProtocolViolation {
        ReceiveFile entry = files.get(file);
        if (entry == null) {
            return;
        }
        unless(entry.grid == null, "a file was answered twice");
        FileAnswer.Builder reply = FileAnswer.newBuilder().setFile(file);
        if (answer instanceof OfferAnswer.Needed needed) {
            reply.setNeed(need(file, entry, needed));
        } else if (answer instanceof OfferAnswer.Skipped) {
            forget(file, Outcome.IN_PLACE);
            reply.setSkip(Skip.getDefaultInstance());
        } else if (answer instanceof OfferAnswer.Failed failed) {
            forget(file, Outcome.NOTHING);
            reply.setFault(failed.fault());
        } else if (answer instanceof OfferAnswer.ToCompare compared) {
            forget(file, Outcome.NOTHING);
            reply.setCompare(compared.compare());
        } else if (answer instanceof OfferAnswer.Planned planned) {
            forget(file, Outcome.IN_PLACE);
            reply.setPlan(planned.plan());
        }
        say(Control.newBuilder().setFileAnswer(reply));
    }

    private Need need(int file, ReceiveFile entry, OfferAnswer.Needed needed)
            throws ProtocolViolation {
        SpanGrid grid = new SpanGrid(entry.sizeBytes, needed.spanBytes());
        unless(needed.durable().fileSpans() == grid.count(), "a set of spans of another file");
        OfferAnswer.Earlier earlier = needed.earlier();
        Need.Builder need =
                Need.newBuilder()
                        .setSpanBytes(needed.spanBytes())
                        .setStoredAs(needed.storedAs())
                        .setCtimeS(earlier.ctimeSeconds())
                        .setCtimeNs(earlier.ctimeNanos());
        List<SpanRange> ranges = needed.durable().toRanges();
        if (ranges.size() <= Limits.RANGES_MAX) {
            need.setDurableDigest(earlier.digest());
        } else {
            // Of fewer spans it is another digest, and so none.
            ranges = ranges.subList(0, Limits.RANGES_MAX);
        }
        need.addAllDurable(ranges);
        entry.verified = SpanSet.of(grid.count(), ranges);
        entry.grid = grid;
        entry.missing = SpanSet.full(grid.count());
        entry.missing.removeAll(entry.verified);
        entry.isReadBack = earlier.isReadBack();
        if (entry.verified.isFull()) {
            events.add(new ReceiverEvent.AllVerified(file));
        }
        return need.build();
    }

    /**
     * Whether the session has put a file in place under a name, and knows it still.
     *
     * @param name the name
     * @return whether it has
     */
    public boolean hasInPlace(ByteString name) {
        long hash = names.hash(name);
        return names.holds(hash)
                && files.values().stream().noneMatch(file -> file.isNamed && file.name == hash);
    }

    /**
     * Takes a data connection that passed its preface.
     *
     * @param stream its number
     * @throws ProtocolViolation if the number was used already, the sender has dropped it before it
     *     came, or there are too many: the connection is to be shut down, the session goes on
     */
    public void streamOpened(int stream) throws ProtocolViolation {
        unless(streams.size() < Limits.STREAMS_MAX, "more than 64 streams at a time");
        unless(streamsEver.size() < Limits.STREAMS_EVER_MAX, "too many streams in one session");
        unless(
                streamsEver.add(stream),
                "stream " + Integer.toUnsignedString(stream) + " was opened twice");
        streams.put(stream, new ReceiveStream());
    }

    private ReceiveStream stream(int stream) throws ProtocolViolation {
        ReceiveStream state = streams.get(stream);
        if (state == null) {
            throw new ProtocolViolation("a frame on a stream that is not open");
        }
        return state;
    }

    /**
     * Takes the header of a pack that arrived on a stream; {@link #spanStarts} follows for each
     * span of it.
     *
     * @param stream the stream
     * @param pack the header
     * @throws ProtocolViolation if the header does not belong there: the stream is to be closed
     */
    public void packStarts(int stream, Frames.Pack pack) throws ProtocolViolation {
        PackReader.check(pack, stream, stream(stream).frames);
    }

    /**
     * Takes the header of a span that arrived on a stream.
     *
     * @param stream the stream
     * @param header the header
     * @return the span's number: the payload is to be written, and its end told by {@link
     *     #spanEnded}; or {@link #DISCARD} where it is here already or its file is given up
     * @throws ProtocolViolation if the header does not belong there: the stream is to be closed
     */
    public int spanStarts(int stream, Frames.Span header) throws ProtocolViolation {
        ReceiveStream state = stream(stream);
        unless(
                header.stream() == stream && header.sequence() == state.frames,
                "a frame of another stream or out of its order");
        unless(
                header.lenBytes() > 0 && header.lenBytes() <= Limits.SPAN_BYTES_MAX,
                "a span of no bytes or of more than 1 GiB");
        state.frames++;
        ReceiveFile entry = files.get(header.file());
        if (entry == null) {
            // A file that was settled while its spans were on their way.
            unless(wasOffered(header.file()), "a span of a file that was never offered");
            return DISCARD;
        }
        SpanGrid grid = entry.grid;
        if (grid == null) {
            throw new ProtocolViolation("a span before its answer");
        }
        int span = grid.find(header.offsetBytes(), header.lenBytes());
        unless(span >= 0, "a span that is none of its file's");
        if (entry.missing.remove(span)) {
            state.writing.add(key(header.file(), span));
            return span;
        }
        unless(entry.verified.contains(span), "a span that another stream is bringing");
        return DISCARD;
    }

    private boolean wasOffered(int file) {
        return Integer.compareUnsigned(file, nextFile) < 0;
    }

    /**
     * Takes the end of a payload that was to be written.
     *
     * @param stream the stream that brought it
     * @param file its file
     * @param span its number
     * @param end how it ended
     */
    public void spanEnded(int stream, int file, int span, SpanEnd end) {
        ReceiveStream state = streams.get(stream);
        if (state == null || !state.writing.remove(key(file, span))) {
            return;
        }
        ReceiveFile entry = files.get(file);
        if (entry == null) {
            return;
        }
        switch (end) {
            case VERIFIED, CONFIRMED -> {
                entry.verified.add(span);
                verifiedBytes += entry.grid == null ? 0 : entry.grid.lenBytes(span);
                entry.addUntold(span);
                untold.add(file);
                if (entry.verified.isFull()) {
                    events.add(new ReceiverEvent.AllVerified(file));
                }
                boolean isOnly = entry.verified.fileSpans() == 1;
                if (end == SpanEnd.CONFIRMED && isOnly && !entry.isConfirmed) {
                    confirm(file, entry);
                }
            }
            case DAMAGED -> damaged(stream, file, span, entry);
            case ABANDONED -> entry.missing.add(span);
        }
    }

    private void damaged(int stream, int file, int span, ReceiveFile entry) {
        entry.missing.add(span);
        // A sender gives the file up before that.
        if (entry.damaged.merge(span, 1, Integer::sum) > Limits.SPAN_RETRIES_MAX + 1) {
            Fault.Builder fault =
                    Fault.newBuilder()
                            .setCode(FaultCode.DATA_DAMAGED)
                            .setSide(Side.PATH)
                            .setWhat("a span arrives damaged again and again");
            giveUp(file, fault.build());
            return;
        }
        SpanBad.Builder bad = SpanBad.newBuilder().setFile(file).setSpan(span).setStream(stream);
        say(Control.newBuilder().setSpanBad(bad));
    }

    /**
     * Takes the end of a stream: nothing of it is being written any more.
     *
     * @param stream its number
     */
    public void streamClosed(int stream) {
        ReceiveStream state = streams.remove(stream);
        if (state == null) {
            return;
        }
        for (long written : state.writing) {
            ReceiveFile entry = files.get((int) (written >>> Integer.SIZE));
            if (entry != null) {
                entry.missing.add((int) written);
            }
        }
        tellVerified();
        sayClosed(stream);
    }

    private void sayClosed(int stream) {
        say(Control.newBuilder().setStreamClosed(StreamClosed.newBuilder().setStream(stream)));
    }

    /**
     * Takes the finding about what an earlier session left of a file, which was read back.
     *
     * @param file the file
     * @param lost the spans that are not as they were journaled: they are asked for again
     */
    public void readBack(int file, SpanSet lost) {
        ReceiveFile entry = files.get(file);
        if (entry == null || !entry.isReadBack) {
            return;
        }
        entry.isReadBack = false;
        SpanSet again = lose(entry, lost);
        if (again.isEmpty()) {
            if (entry.isConfirmed) {
                confirm(file, entry);
            }
            return;
        }
        entry.isConfirmed = false;
        sayLost(file, entry, again);
    }

    /**
     * Asks for spans that were called durable though this side does not have them, once the file is
     * confirmed: that confirmation is void, and {@link ReceiverEvent.Commit} comes again when they
     * are here and the sender has looked at its source once more. A span may be asked for once.
     *
     * @param file the file
     * @param spans those of its spans that are wanted now
     */
    public void askFor(int file, SpanSet spans) {
        ReceiveFile entry = files.get(file);
        if (entry == null || !entry.isConfirmed || entry.isReadBack) {
            return;
        }
        SpanSet again = lose(entry, spans);
        if (!again.isEmpty()) {
            entry.isConfirmed = false;
            confirmed--;
            sayLost(file, entry, again);
        }
    }

    /** Takes spans out of those that are here; returns those that were. */
    private static SpanSet lose(ReceiveFile entry, SpanSet lost) {
        SpanSet again = new SpanSet(entry.verified.fileSpans());
        for (int span = lost.firstFrom(0); span >= 0; span = lost.firstFrom(span + 1)) {
            if (entry.verified.remove(span)) {
                entry.missing.add(span);
                again.add(span);
            }
        }
        return again;
    }

    private void sayLost(int file, ReceiveFile entry, SpanSet again) {
        entry.hasLost = true;
        for (List<SpanRange> ranges : parts(again.toRanges())) {
            SpansLost.Builder spans = SpansLost.newBuilder().setFile(file).addAllSpans(ranges);
            say(Control.newBuilder().setSpansLost(spans));
        }
    }

    /** Cuts runs into lists that a message may hold. */
    private static List<List<SpanRange>> parts(List<SpanRange> ranges) {
        List<List<SpanRange>> parts = new ArrayList<>();
        for (int at = 0; at < ranges.size(); at += Limits.RANGES_MAX) {
            parts.add(ranges.subList(at, Math.min(at + Limits.RANGES_MAX, ranges.size())));
        }
        return parts;
    }

    /**
     * Settles a file that the target cannot take.
     *
     * @param file the file
     * @param fault why
     */
    public void fileFailed(int file, Fault fault) {
        if (forget(file, Outcome.NOTHING)) {
            saySettled(FileSettled.newBuilder().setFile(file).setFault(fault));
        }
    }

    /**
     * Settles a file by the result of its commit: the answer to {@link ReceiverEvent.Commit}.
     *
     * @param file the file
     * @param fault why it failed, or null where it is durable under its name
     */
    public void committed(int file, @Nullable Fault fault) {
        if (fault != null) {
            fileFailed(file, fault);
        } else if (forget(file, Outcome.IN_PLACE)) {
            saySettled(FileSettled.newBuilder().setFile(file));
        }
    }

    private void saySettled(FileSettled.Builder settled) {
        say(Control.newBuilder().setFileSettled(settled));
    }

    /**
     * Tells the sender of this side's progress.
     *
     * @param progress what to tell
     */
    public void progress(Progress progress) {
        say(Control.newBuilder().setProgress(progress));
    }

    /** Returns whether all is settled and nothing more comes: the time for {@link #finish}. */
    public boolean mayFinish() {
        return offersEnded && files.isEmpty() && !isFinished;
    }

    /**
     * Tells the sender which names were removed because they were not offered. No other message is
     * on its way then.
     *
     * @param removed the names
     */
    public void removed(List<ByteString> removed) {
        if (!mayFinish()) {
            throw new IllegalStateException("ask mayFinish first");
        }
        say(Control.newBuilder().setRemoved(Removed.newBuilder().addAllNames(removed)));
    }

    /**
     * Returns whether every file is there and confirmed, or settled, and no other is offered: all
     * that is left is to commit.
     */
    public boolean isAllConfirmed() {
        return offersEnded && confirmed == files.size();
    }

    /**
     * Says goodbye.
     *
     * @param report this side's report
     */
    public void finish(SideReport report) {
        if (!isFinished) {
            isFinished = true;
            say(Control.newBuilder().setFinish(Finish.newBuilder().setReport(report)));
        }
    }

    /**
     * The step that is due from the sender, where neither a stream nor this side has anything to
     * do.
     *
     * @return the step, or null where something goes on
     */
    public @Nullable Awaited awaits() {
        if (files.isEmpty()) {
            Awaited last = offersEnded ? Awaited.GOODBYE : Awaited.OFFER;
            return peerFinished ? null : last;
        }
        boolean areDue =
                files.values().stream().allMatch(file -> file.isWhole() && !file.isConfirmed);
        return areDue ? Awaited.CONFIRMATION : null;
    }

    /** Returns the bytes of the spans that were verified in this session. */
    public long verifiedBytes() {
        return verifiedBytes;
    }

    /**
     * Returns whether spans of any file are to come on a stream. Those of files without bytes, and
     * of files that only wait to be confirmed or committed, are not.
     */
    public boolean lacksSpans() {
        return files.values().stream().anyMatch(file -> file.grid != null && !file.isWhole());
    }

    /** Returns whether any offered file is not settled yet. */
    public boolean hasOpenFiles() {
        return !files.isEmpty();
    }

    /**
     * Tells the other side's user of an event, once.
     *
     * @param notice the event
     */
    public void notice(Notice notice) {
        say(Control.newBuilder().setNotice(notice));
    }

    /**
     * Returns whether a message or an event is to be handled at once. Acknowledgements alone can
     * wait for others.
     */
    public boolean isUrgent() {
        return !events.isEmpty() || !outbox.isEmpty();
    }

    private void say(Control.Builder message) {
        outbox.add(message.build());
    }

    /** Returns the next message for the sender, or null. */
    public @Nullable Control pollMessage() {
        if (outbox.isEmpty()) {
            tellVerified();
        }
        return outbox.poll();
    }

    /** Returns the next event for the owner, or null. */
    public @Nullable ReceiverEvent pollEvent() {
        return events.poll();
    }

    /** Turns what is verified and untold into messages. */
    private void tellVerified() {
        for (int file : untold) {
            ReceiveFile entry = files.get(file);
            List<SpanRange> runs = entry == null ? List.of() : entry.takeUntold();
            for (List<SpanRange> ranges : parts(runs)) {
                SpansVerified.Builder spans =
                        SpansVerified.newBuilder().setFile(file).addAllSpans(ranges);
                say(Control.newBuilder().setSpansVerified(spans));
            }
        }
        untold.clear();
    }

    /** Forgets a file that is settled; false when it was forgotten before. */
    private boolean forget(int file, Outcome outcome) {
        untold.remove(file);
        ReceiveFile entry = files.remove(file);
        if (entry == null) {
            return false;
        }
        if (entry.isNamed && (outcome == Outcome.NOTHING || !entry.keepsName)) {
            names.release(entry.name);
        }
        confirmed -= entry.isConfirmed && !entry.isReadBack ? 1 : 0;
        offerBytes -= entry.offerBytes;
        return true;
    }

    /**
     * Takes a message of the sender.
     *
     * @param message the message
     * @throws ProtocolViolation if the sender breaks a limit or an order
     */
    public void handle(Control message) throws ProtocolViolation {
        switch (message.getKindCase()) {
            case FILE_OFFER -> handleOffer(message.getFileOffer());
            case OFFERS_END -> {
                unless(!offersEnded, "a second end of the offers");
                offersEnded = true;
                events.add(
                        new ReceiverEvent.OffersOver(
                                message.getOffersEnd().getFiles(),
                                message.getOffersEnd().getBytes()));
            }
            case FILE_CONFIRM -> handleConfirm(message.getFileConfirm());
            case STREAM_DROP -> handleDrop(message.getStreamDrop());
            case NOTICE -> events.add(new ReceiverEvent.Noticed(message.getNotice()));
            case FINISH -> {
                unless(!peerFinished, "a second goodbye");
                unless(offersEnded && files.isEmpty(), "the sender finished with files unsettled");
                peerFinished = true;
                events.add(new ReceiverEvent.Finished(message.getFinish().getReport()));
            }
            case REFUSED -> events.add(new ReceiverEvent.Refused(message.getRefused()));
            default ->
                    throw new ProtocolViolation(
                            "the sender sent a message that only a receiver may");
        }
    }

    private void handleDrop(StreamDrop drop) {
        int stream = drop.getStream();
        if (streams.containsKey(stream)) {
            events.add(new ReceiverEvent.CloseStream(stream, drop.getWhy()));
        } else if (streamsEver.size() < Limits.STREAMS_EVER_MAX && streamsEver.add(stream)) {
            // It never came through, and now it never will.
            sayClosed(stream);
        }
        // Otherwise it was closed from this side and the answer is on its way.
    }

    private void handleOffer(FileOffer offer) throws ProtocolViolation {
        int file = offer.getFile();
        boolean isNext = file == nextFile && Integer.compareUnsigned(file, Limits.FILES_MAX) < 0;
        unless(isNext && !offersEnded, "an offer out of order");
        unless(files.size() < offersMax, "more than " + offersMax + " open offers");
        unless(
                offerBytes < offerBytesMax || files.isEmpty(),
                "more than " + offerBytesMax + " bytes of open offers");
        nextFile++;
        Fault fault = names.take(offer);
        if (fault != null) {
            FileAnswer.Builder answer = FileAnswer.newBuilder().setFile(file).setFault(fault);
            say(Control.newBuilder().setFileAnswer(answer));
            events.add(new ReceiverEvent.NameTaken(offer, fault));
            return;
        }
        ReceiveFile entry = new ReceiveFile(offer, names);
        offerBytes += entry.offerBytes;
        files.put(file, entry);
        events.add(new ReceiverEvent.Offered(offer));
    }

    /** Confirms a file by the sender's last word: it is committed, once it was read back. */
    private void confirm(int file, ReceiveFile entry) {
        entry.isConfirmed = true;
        if (!entry.isReadBack) {
            confirmed++;
            events.add(new ReceiverEvent.Commit(file));
        }
    }

    private void giveUp(int file, Fault fault) {
        forget(file, Outcome.NOTHING);
        saySettled(FileSettled.newBuilder().setFile(file).setFault(fault));
        events.add(new ReceiverEvent.GivenUp(file, fault));
    }

    private void handleConfirm(FileConfirm confirm) throws ProtocolViolation {
        int file = confirm.getFile();
        ReceiveFile entry = files.get(file);
        if (entry == null) {
            // Settled by this side while the confirmation was on its way.
            unless(wasOffered(file), "a confirmation of a file that was never offered");
            return;
        }
        unless(!entry.isConfirmed, "a file was confirmed twice");
        if (confirm.hasFault()) {
            giveUp(file, confirm.getFault());
            return;
        }
        if (entry.hasLost && !entry.verified.isFull()) {
            // It was said before the sender heard which spans are lost.
            return;
        }
        unless(entry.isWhole(), "a confirmation before every span was acknowledged");
        confirm(file, entry);
    }
}
