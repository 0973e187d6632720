package io.github.haul.client.internal.machine;

import static io.github.haul.client.internal.wire.ProtocolViolation.unless;

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
import io.github.haul.client.internal.proto.OffersEnd;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.proto.SpanBad;
import io.github.haul.client.internal.proto.SpansLost;
import io.github.haul.client.internal.proto.SpansVerified;
import io.github.haul.client.internal.proto.StreamDrop;
import io.github.haul.client.internal.wire.Limits;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * The sending side of a transfer: which files are offered, which spans go on which stream, what has
 * been acknowledged, and when a file is settled.
 *
 * <p>It promises: a span is handed out to one stream at a time; it goes out again only when the
 * receiver said that it was damaged or that its stream is closed; a file is confirmed only when
 * every span of it is verified and the source was looked at afterwards.
 *
 * <p>Numbers of files, spans and streams are unsigned. An object serves one thread at a time.
 */
public final class Sender {
    private final SortedMap<Integer, SendFile> files = new TreeMap<>(Integer::compareUnsigned);

    /** Files that have pending spans. */
    private final SortedSet<Integer> ready = new TreeSet<>(Integer::compareUnsigned);

    private final SortedMap<Integer, SendStream> streams = new TreeMap<>(Integer::compareUnsigned);

    /** Numbers of all streams ever seen: none is used twice. */
    private final Set<Integer> streamsEver = new HashSet<>();

    private final Queue<Control> outbox = new ArrayDeque<>();
    private final Queue<SenderEvent> events = new ArrayDeque<>();
    private final int offersMax;
    private final long offerBytesMax;

    private int nextFile;

    /** Memory that the offers of unsettled files take, in bytes. */
    private long offerBytes;

    /** Count of the spans of unsettled files. */
    private long openSpans;

    private long verifiedBytes;
    private boolean offersEnded;
    private boolean isFinished;
    private boolean peerFinished;

    private enum Phase {
        OFFERED,
        MOVING,
        /** The owner looks at the file's source. */
        CHECKING,
        /** The file is confirmed, and the receiver has the last word. */
        CONFIRMED,
        /** The file is confirmed with a fault: the receiver can only settle it with one. */
        GIVEN_UP
    }

    private static final class SendFile {
        final long sizeBytes;
        final long offerBytes;
        Phase phase = Phase.OFFERED;

        /** The trailer of the file's only span, which is on its way, confirms the file. */
        boolean confirmedWithSpan;

        @Nullable SpanGrid grid;

        /** Spans that were not handed out, or are to be sent again. */
        SpanSet pending = new SpanSet(0);

        SpanSet verified = new SpanSet(0);

        /** Spans that the receiver had before this session and may still find lost. */
        SpanSet earlier = new SpanSet(0);

        final Map<Integer, Integer> retries = new HashMap<>();

        SendFile(FileOffer offer) {
            sizeBytes = offer.getSizeBytes();
            offerBytes = Offers.memoryBytes(offer);
        }

        int spans() {
            return grid == null ? 0 : grid.count();
        }
    }

    private static final class SendStream {
        /** Spans that went out and are not acknowledged: the file's number above the span's. */
        final SortedSet<Long> unacknowledged = new TreeSet<>(Long::compareUnsigned);

        boolean isDropped;
    }

    /**
     * A span to be sent now on the asking stream.
     *
     * @param file its file
     * @param span its number
     * @param offsetBytes where in the file it begins
     * @param lenBytes its length
     * @param wholeFile the span is all of its file: {@link #confirmWithSpan} may be called
     */
    public record Assignment(
            int file, int span, long offsetBytes, long lenBytes, boolean wholeFile) {}

    /**
     * Makes a sender.
     *
     * @param offersMax the most files that are offered and not settled
     * @param offerBytesMax no more files are offered once their memory has reached this
     */
    public Sender(int offersMax, long offerBytesMax) {
        this.offersMax = Math.max(1, Math.min(offersMax, Limits.OFFERS_MAX));
        this.offerBytesMax = Math.min(offerBytesMax, Limits.OFFER_BYTES_MAX);
    }

    private static long key(int file, int span) {
        return (long) file << Integer.SIZE | Integer.toUnsignedLong(span);
    }

    /** Returns whether another file may be offered now. */
    public boolean mayOffer() {
        return !offersEnded
                && files.size() < offersMax
                && (offerBytes < offerBytesMax || files.isEmpty())
                && Integer.compareUnsigned(nextFile, Limits.FILES_MAX) < 0;
    }

    /**
     * Offers a file.
     *
     * @param offer the file; its number is filled in
     * @return its number
     */
    public int offer(FileOffer offer) {
        if (!mayOffer()) {
            throw new IllegalStateException("ask mayOffer first");
        }
        int file = nextFile++;
        SendFile state = new SendFile(offer);
        offerBytes += state.offerBytes;
        files.put(file, state);
        say(Control.newBuilder().setFileOffer(offer.toBuilder().setFile(file)));
        return file;
    }

    /**
     * Ends the offers: no more files will be offered.
     *
     * @param fileCount how many files there were
     * @param bytes how many bytes they have
     */
    public void endOffers(long fileCount, long bytes) {
        if (!offersEnded) {
            offersEnded = true;
            OffersEnd.Builder end = OffersEnd.newBuilder().setFiles(fileCount).setBytes(bytes);
            say(Control.newBuilder().setOffersEnd(end));
        }
    }

    /** Returns the bytes of the spans that the receiver has verified in this session. */
    public long verifiedBytes() {
        return verifiedBytes;
    }

    /** Returns whether any file is offered and not settled. */
    public boolean hasFiles() {
        return !files.isEmpty();
    }

    /** Returns whether everything offered has been settled and no other offer comes. */
    public boolean isAllSettled() {
        return offersEnded && files.isEmpty();
    }

    /**
     * The step that is due from the receiver, where nothing else can go on: neither a stream nor a
     * look at a source.
     *
     * @return the step, or null where this side has something to do
     */
    public @Nullable Awaited awaits() {
        if (!ready.isEmpty() || isAnyWaiting(false) || isAny(Phase.CHECKING)) {
            return null;
        }
        if (isAnyWaiting(true)) {
            return Awaited.STREAM_END;
        }
        if (files.isEmpty()) {
            return isFinished && !peerFinished ? Awaited.GOODBYE : null;
        }
        if (isAny(Phase.CONFIRMED) || isAny(Phase.GIVEN_UP)) {
            return Awaited.SETTLEMENT;
        }
        return isAny(Phase.OFFERED) ? Awaited.ANSWER : null;
    }

    private boolean isAny(Phase phase) {
        return files.values().stream().anyMatch(file -> file.phase == phase);
    }

    private boolean isAnyWaiting(boolean isDropped) {
        return streams.values().stream()
                .anyMatch(
                        stream ->
                                stream.isDropped == isDropped && !stream.unacknowledged.isEmpty());
    }

    /**
     * Says goodbye; the receiver answers with its own report.
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
     * Takes a data connection that spans may go out on.
     *
     * @param stream its number
     * @throws ProtocolViolation if the number was used already, the receiver has closed it before
     *     it came, or there are too many: the connection is to be shut down, the session goes on
     */
    public void streamOpened(int stream) throws ProtocolViolation {
        unless(streams.size() < Limits.STREAMS_MAX, "more than 64 streams at a time");
        unless(streamsEver.size() < Limits.STREAMS_EVER_MAX, "too many streams in one session");
        unless(streamsEver.add(stream), "a stream was opened twice");
        streams.put(stream, new SendStream());
    }

    /** Returns the numbers of the streams that are open and not given up. */
    public List<Integer> openStreams() {
        return streams.entrySet().stream()
                .filter(stream -> !stream.getValue().isDropped)
                .map(Map.Entry::getKey)
                .toList();
    }

    /**
     * Whether a stream has sent spans that are not acknowledged yet.
     *
     * @param stream its number
     * @return whether it has
     */
    public boolean awaitsAcknowledgement(int stream) {
        SendStream state = streams.get(stream);
        return state != null && !state.unacknowledged.isEmpty();
    }

    /**
     * Drops a stream that broke or stalled: its spans go out again once the receiver has closed it.
     *
     * @param stream its number
     * @param why what happened to it
     */
    public void dropStream(int stream, String why) {
        SendStream state = streams.get(stream);
        if (state != null && !state.isDropped) {
            state.isDropped = true;
            say(
                    Control.newBuilder()
                            .setStreamDrop(StreamDrop.newBuilder().setStream(stream).setWhy(why)));
        }
    }

    /** Returns whether any span waits for a stream. */
    public boolean hasPending() {
        return !ready.isEmpty();
    }

    /**
     * Hands out the next span for a stream, lowest file and offset first.
     *
     * @param stream the stream that asks
     * @return the span, or null where none is pending
     */
    public @Nullable Assignment nextSpan(int stream) {
        return nextSpan(stream, Long.MAX_VALUE);
    }

    /**
     * Hands out the next span for a stream, unless its file is longer than the stream wants now.
     *
     * @param stream the stream that asks
     * @param fileBytesMax the longest file, in bytes
     * @return the span, or null where none is pending or that of a longer file is next
     */
    public @Nullable Assignment nextSpan(int stream, long fileBytesMax) {
        SendStream state = streams.get(stream);
        if (state == null || state.isDropped || ready.isEmpty()) {
            return null;
        }
        int file = ready.first();
        SendFile entry = files.get(file);
        SpanGrid grid = entry == null ? null : entry.grid;
        if (entry == null || grid == null) {
            throw new IllegalStateException("a file that is ready is open and answered");
        }
        if (entry.sizeBytes > fileBytesMax) {
            return null;
        }
        int span = entry.pending.firstFrom(0);
        entry.pending.remove(span);
        if (entry.pending.isEmpty()) {
            ready.remove(file);
        }
        state.unacknowledged.add(key(file, span));
        return new Assignment(
                file, span, grid.offsetBytes(span), grid.lenBytes(span), grid.count() == 1);
    }

    /**
     * Confirms a file by its only span, which goes out as confirmed: the source was looked at after
     * all of it was read. To be called before the trailer leaves.
     *
     * @param file the file
     * @return whether the trailer may say so
     */
    public boolean confirmWithSpan(int file) {
        SendFile entry = files.get(file);
        if (entry == null) {
            return false;
        }
        entry.confirmedWithSpan = entry.spans() == 1 && entry.phase == Phase.MOVING;
        return entry.confirmedWithSpan;
    }

    /**
     * Gives up a file whose source cannot be read.
     *
     * @param file the file
     * @param fault why
     */
    public void sourceFailed(int file, Fault fault) {
        SendFile entry = files.get(file);
        if (entry == null
                || entry.phase == Phase.CONFIRMED
                || entry.confirmedWithSpan
                || entry.phase == Phase.GIVEN_UP) {
            return;
        }
        entry.phase = Phase.GIVEN_UP;
        ready.remove(file);
        FileConfirm.Builder confirm = FileConfirm.newBuilder().setFile(file).setFault(fault);
        say(Control.newBuilder().setFileConfirm(confirm));
    }

    /**
     * Takes the finding about a source: the answer to {@link SenderEvent.CheckSource}.
     *
     * @param file the file
     * @param fault what is wrong with its source, or null where it is what was offered
     */
    public void sourceChecked(int file, @Nullable Fault fault) {
        SendFile entry = files.get(file);
        if (fault != null) {
            sourceFailed(file, fault);
        } else if (entry != null && entry.phase == Phase.CHECKING) {
            entry.phase = Phase.CONFIRMED;
            say(Control.newBuilder().setFileConfirm(FileConfirm.newBuilder().setFile(file)));
        }
    }

    /**
     * Tells the other side's user of an event, once.
     *
     * @param notice the event
     */
    public void notice(Notice notice) {
        say(Control.newBuilder().setNotice(notice));
    }

    private void say(Control.Builder message) {
        outbox.add(message.build());
    }

    /** Returns the next message for the receiver, or null. */
    public @Nullable Control pollMessage() {
        return outbox.poll();
    }

    /** Returns the next event for the owner, or null. */
    public @Nullable SenderEvent pollEvent() {
        return events.poll();
    }

    /**
     * Takes a message of the receiver.
     *
     * @param message the message
     * @throws ProtocolViolation if the receiver says what it cannot know or may not say
     */
    public void handle(Control message) throws ProtocolViolation {
        boolean isGoodbye = isAllSettled() && !peerFinished;
        switch (message.getKindCase()) {
            case FILE_ANSWER -> handleAnswer(message.getFileAnswer());
            case SPANS_VERIFIED -> handleVerified(message.getSpansVerified());
            case SPAN_BAD -> handleBad(message.getSpanBad());
            case SPANS_LOST -> handleLost(message.getSpansLost());
            case STREAM_CLOSED -> handleStreamClosed(message.getStreamClosed().getStream());
            case FILE_SETTLED -> handleSettled(message.getFileSettled());
            case PROGRESS -> events.add(new SenderEvent.Progressed(message.getProgress()));
            case NOTICE -> events.add(new SenderEvent.Noticed(message.getNotice()));
            case REFUSED -> events.add(new SenderEvent.Refused(message.getRefused()));
            case FINISH -> {
                unless(!peerFinished, "a second goodbye");
                unless(offersEnded, "a goodbye before the offers have ended");
                unless(files.isEmpty(), "a goodbye with " + files.size() + " files unsettled");
                peerFinished = true;
                events.add(new SenderEvent.Finished(message.getFinish().getReport()));
            }
            case REMOVED -> {
                unless(isGoodbye, "names removed before all is settled");
                events.add(new SenderEvent.RemovedNames(message.getRemoved().getNamesList()));
            }
            default ->
                    throw new ProtocolViolation(
                            "the receiver sent a message that only a sender may");
        }
    }

    private SendFile file(int file) throws ProtocolViolation {
        SendFile entry = files.get(file);
        if (entry == null) {
            throw new ProtocolViolation(
                    "the receiver speaks of file "
                            + Integer.toUnsignedString(file)
                            + ", which is not open");
        }
        return entry;
    }

    private void handleAnswer(FileAnswer answer) throws ProtocolViolation {
        int file = answer.getFile();
        SendFile entry = file(file);
        boolean isGivenUp = entry.phase == Phase.GIVEN_UP && entry.grid == null;
        if (isGivenUp && answer.hasNeed()) {
            // The file was given up before the answer came: its settlement follows. Nothing follows
            // an answer that settles, for the receiver has forgotten the file.
            return;
        }
        unless(entry.phase == Phase.OFFERED || isGivenUp, "the receiver answered an offer twice");
        switch (answer.getAnswerCase()) {
            case NEED -> handleNeed(file, entry, answer.getNeed());
            case SKIP -> settle(file, new FileOutcome.Skipped());
            case FAULT -> settle(file, new FileOutcome.Failed(answer.getFault()));
            case COMPARE -> settle(file, new FileOutcome.ToCompare(answer.getCompare()));
            case PLAN -> settle(file, new FileOutcome.Planned(answer.getPlan()));
            case ANSWER_NOT_SET -> throw new ProtocolViolation("an answer that says nothing");
        }
    }

    private void handleNeed(int file, SendFile entry, Need need) throws ProtocolViolation {
        SpanGrid grid = new SpanGrid(entry.sizeBytes, need.getSpanBytes());
        long spans = openSpans + grid.count();
        unless(spans <= Limits.SPANS_OPEN_MAX, "files of too many spans were asked for");
        SpanSet durable = SpanSet.of(grid.count(), need.getDurableList());
        openSpans = spans;
        entry.grid = grid;
        entry.phase = Phase.MOVING;
        entry.pending = SpanSet.full(grid.count());
        entry.pending.removeAll(durable);
        entry.verified = durable.copy();
        entry.earlier = durable.copy();
        if (!need.getStoredAs().isEmpty()) {
            events.add(new SenderEvent.StoredAs(file, need.getStoredAs()));
        }
        if (durable.bytes(grid) > 0) {
            events.add(
                    new SenderEvent.Resumed(
                            file,
                            durable.bytes(grid),
                            need.getSpanBytes(),
                            durable,
                            need.getCtimeS(),
                            need.getCtimeNs(),
                            need.getDurableDigest()));
        }
        advance(file);
    }

    /** Advances a file by its sets of spans: it is ready for streams, or ready to be checked. */
    private void advance(int file) {
        SendFile entry = files.get(file);
        if (entry == null || entry.phase != Phase.MOVING) {
            return;
        }
        if (entry.verified.isFull() && entry.confirmedWithSpan) {
            entry.phase = Phase.CONFIRMED;
        } else if (entry.verified.isFull()) {
            entry.phase = Phase.CHECKING;
            events.add(new SenderEvent.CheckSource(file));
        } else if (!entry.pending.isEmpty()) {
            ready.add(file);
        }
    }

    private void handleVerified(SpansVerified message) throws ProtocolViolation {
        int file = message.getFile();
        SendFile entry = file(file);
        SpanSet spans = SpanSet.of(entry.spans(), message.getSpansList());
        // First all of them: a message that is refused changes nothing.
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            long sent = key(file, span);
            unless(
                    streams.values().stream().anyMatch(s -> s.unacknowledged.contains(sent)),
                    "span " + span + " of file " + file + " acknowledged unsent");
        }
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            long sent = key(file, span);
            streams.values().stream().anyMatch(stream -> stream.unacknowledged.remove(sent));
            entry.verified.add(span);
            verifiedBytes += entry.grid == null ? 0 : entry.grid.lenBytes(span);
        }
        advance(file);
    }

    /**
     * Drops the stream of a damaged frame. Nothing is certain of that frame, not even which span it
     * held: somebody on the path may have written its header. What the stream carried goes out
     * again once the receiver has said what of it came through.
     */
    private void handleBad(SpanBad bad) throws ProtocolViolation {
        SendFile entry = file(bad.getFile());
        int span = bad.getSpan();
        // No receiver takes a frame of a file that it has not answered, or of a span that is none.
        boolean mayHaveCome =
                entry.grid == null
                        ? entry.phase == Phase.GIVEN_UP
                        : Integer.compareUnsigned(span, entry.grid.count()) < 0;
        unless(mayHaveCome, "a span called damaged that its file does not have");
        SendStream stream = streams.get(bad.getStream());
        if (stream == null) {
            throw new ProtocolViolation("a span called damaged on a stream that is not open");
        }
        boolean wasSent = stream.unacknowledged.contains(key(bad.getFile(), span));
        dropStream(bad.getStream(), "a span arrived damaged");
        if (wasSent) {
            events.add(new SenderEvent.SpanDamaged(bad.getFile(), span, bad.getStream()));
            entry.retries.merge(span, 1, Integer::sum);
        }
    }

    private void handleLost(SpansLost message) throws ProtocolViolation {
        int file = message.getFile();
        SendFile entry = file(file);
        if (entry.phase == Phase.GIVEN_UP) {
            // It was, perhaps before the answer came; its settlement follows.
            return;
        }
        SpanGrid grid = entry.grid;
        if (grid == null) {
            throw new ProtocolViolation("spans called lost before their file was answered");
        }
        SpanSet spans = SpanSet.of(grid.count(), message.getSpansList());
        boolean wereDurable = !spans.isEmpty();
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            wereDurable &= entry.earlier.contains(span);
        }
        unless(wereDurable, "spans called lost that were never called durable");
        entry.earlier.removeAll(spans);
        entry.verified.removeAll(spans);
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            entry.pending.add(span);
        }
        entry.phase = Phase.MOVING;
        entry.confirmedWithSpan = false;
        events.add(new SenderEvent.Lost(file, spans.bytes(grid)));
        advance(file);
    }

    private void handleStreamClosed(int stream) throws ProtocolViolation {
        SendStream state = streams.remove(stream);
        if (state == null) {
            // The receiver may give a connection up before it has come through to this side.
            boolean isNew = streamsEver.size() < Limits.STREAMS_EVER_MAX && streamsEver.add(stream);
            unless(isNew, "a stream closed that was not open");
            return;
        }
        for (long sent : state.unacknowledged) {
            sendAgain((int) (sent >>> Integer.SIZE), (int) sent);
        }
        events.add(new SenderEvent.StreamOver(stream));
    }

    private void sendAgain(int file, int span) {
        SendFile entry = files.get(file);
        if (entry == null || entry.phase != Phase.MOVING) {
            return;
        }
        entry.confirmedWithSpan = false;
        int damaged = entry.retries.getOrDefault(span, 0);
        if (damaged > Limits.SPAN_RETRIES_MAX) {
            sourceFailed(file, damagedFault(damaged, entry.grid, span));
        } else {
            entry.pending.add(span);
            advance(file);
        }
    }

    private void handleSettled(FileSettled settled) throws ProtocolViolation {
        SendFile entry = file(settled.getFile());
        if (settled.hasFault()) {
            settle(settled.getFile(), new FileOutcome.Failed(settled.getFault()));
            return;
        }
        // What is durable has been verified: nothing else needs to have said so before.
        unless(
                entry.phase == Phase.CONFIRMED || entry.confirmedWithSpan,
                "a file called durable before it was confirmed");
        settle(settled.getFile(), new FileOutcome.Done());
    }

    private void settle(int file, FileOutcome outcome) {
        SendFile entry = files.remove(file);
        boolean sourceFailed = entry != null && entry.phase == Phase.GIVEN_UP;
        if (entry != null) {
            offerBytes -= entry.offerBytes;
            openSpans -= entry.spans();
        }
        ready.remove(file);
        for (SendStream stream : streams.values()) {
            stream.unacknowledged.subSet(key(file, 0), key(file, -1)).clear();
        }
        events.add(new SenderEvent.Settled(file, outcome, sourceFailed));
    }

    private static Fault damagedFault(int times, @Nullable SpanGrid grid, int span) {
        long offset = grid == null ? 0 : grid.offsetBytes(span);
        long end = offset + (grid == null ? 0 : grid.lenBytes(span));
        return Fault.newBuilder()
                .setCode(FaultCode.DATA_DAMAGED)
                .setSide(Side.PATH)
                .setWhat("a span cannot be verified")
                .setNeeds("every span to arrive as its digest says")
                .setFound("bytes " + offset + " to " + end + " arrived damaged " + times + " times")
                .setHint(
                        "check that nothing writes to the source, then memory and network of both"
                                + " hosts")
                .build();
    }
}
