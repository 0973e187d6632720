package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.FileResult;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.OfferAnswer;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.ReceiverEvent;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Plan;
import io.github.haul.client.internal.proto.Progress;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.target.PartialFile;
import io.github.haul.client.internal.target.Prepared;
import io.github.haul.client.internal.target.ReceivePlace;
import io.github.haul.client.internal.target.ReceivedFile;
import io.github.haul.client.internal.target.Recheck;
import io.github.haul.client.internal.target.TargetEntry;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** The role of a pull: answers offers, feeds the committer, settles files. */
final class PullRole extends InboundRole {
    /** Files of several spans that are under way at a time: each has two descriptors. */
    private static final int LARGE_FILES_MAX = 64;

    private static final long PROGRESS_EVERY_NS = TimeUnit.MILLISECONDS.toNanos(500);

    private final TransferOptions options;
    private final TransferListener listener;
    private final Headway headway;
    private final Tally tally;
    private final ReceivePlace target;
    private final Asked asked;
    private final ReceiveShared shared;
    private final ReceiveStreams streams;
    private final Committer committer;
    private final Rechecks rechecks;
    private final Map<Integer, Open> open = new HashMap<>();
    private final Queue<FileOffer> waiting = new ArrayDeque<>();
    private int largeFiles;
    private boolean isStopped;

    /** Spans that arrived damaged in this session. */
    private long badSpans;

    private long progressAtNs;

    /** A file that is not settled. */
    private record Open(FileOffer offer, ByteString storedAs, boolean isLarge) {}

    PullRole(
            OpenSession session,
            ReceivePlace target,
            Asked asked,
            Receiver machine,
            TransferOptions options,
            Inbox inbox,
            Headway headway,
            Tally tally)
            throws ProtocolViolation {
        super(options, Long.MAX_VALUE);
        this.target = target;
        this.asked = asked;
        this.options = options;
        this.headway = headway;
        this.tally = tally;
        listener = options.listener();
        shared = new ReceiveShared(machine);
        committer = new Committer(target, shared, inbox);
        rechecks = new Rechecks(inbox, this::wasReadBack, this::failed);
        // Whether there is such a digest is found out here, on the session's own thread.
        SpanDigest.of(session.digest(), session.keys());
        streams = new ReceiveStreams(session, shared, inbox, headway, options);
        committer.start();
    }

    @Override
    public @Nullable Control pollMessage() {
        Control message = super.pollMessage();
        if (message != null && message.hasSpanBad()) {
            badSpans++;
            tally.resentSpans++;
        }
        return message;
    }

    @Override
    SharedMachine<Receiver> shared() {
        return shared;
    }

    @Override
    InboundStreams<?> streams() {
        return streams;
    }

    @Override
    void work(long nowNs) {
        takeOutcomes();
        rechecks.tick();
        streams.takeFailures().forEach(this::failed);
        answerWaiting();
    }

    @Override
    void tell(long nowNs) {
        tally.verifiedBytes = streams.verifiedBytes();
        tally.durable(tally.thereBefore() + committer.durableBytes());
        tally.wireBytes = streams.receivedBytes();
        tally.streams = streams.open().size();
        if (!isFinishing()) {
            tellProgress(nowNs);
        }
        headway.verified(tally.headway() + committer.durableBytes());
    }

    @Override
    long headway() {
        return tally.headway();
    }

    @Override
    boolean isDone() {
        return true;
    }

    @Override
    void handleEvent(ReceiverEvent event) {
        if (event instanceof ReceiverEvent.Offered offered) {
            offered(offered.offer());
        } else if (event instanceof ReceiverEvent.NameTaken taken) {
            tally.foundFiles++;
            end(result(taken.offer(), FileResult.Status.FAILED, ByteString.EMPTY, taken.fault()));
        } else if (event instanceof ReceiverEvent.OffersOver) {
            tally.isTotalKnown = true;
            asked.missing(tally.failedFiles > 0).forEach(this::failedBeside);
        } else if (event instanceof ReceiverEvent.Commit commit) {
            TargetEntry entry = shared.entry(commit.file());
            if (entry != null) {
                committer.commit(commit.file(), entry);
            }
        } else if (event instanceof ReceiverEvent.GivenUp givenUp) {
            givenUp(givenUp.file(), givenUp.fault());
        } else if (event instanceof ReceiverEvent.Noticed noticed) {
            noticed(noticed.notice());
        }
    }

    private void noticed(Notice notice) {
        if (!notice.hasFault()) {
            listener.onNotice(Words.notice(notice, Side.SOURCE));
        } else if (notice.getFault().getCode() == FaultCode.KIND_UNSUPPORTED) {
            tally.leftOut++;
            listener.onNotice(new TransferNotice.LeftOut(Words.of(notice.getFault())));
        } else {
            failedBeside(notice.getFault());
        }
    }

    /** Counts a source that could not even be offered. */
    private void failedBeside(Fault fault) {
        tally.foundFiles++;
        tally.count(Words.failedBeside(fault));
        listener.onNotice(new TransferNotice.Failure(Words.of(fault)));
    }

    private void offered(FileOffer offer) {
        tally.foundFiles++;
        tally.foundDirectories += offer.getKind() == FileKind.DIRECTORY ? 1 : 0;
        tally.foundBytes += offer.getSizeBytes();
        boolean isLarge = target.isOfSeveralSpans(offer.getSizeBytes());
        if (isLarge && !options.isDryRun()) {
            waiting.add(offer);
            answerWaiting();
        } else {
            answer(offer, false);
        }
    }

    /** Answers large files for which there is room by now. */
    private void answerWaiting() {
        while (largeFiles < LARGE_FILES_MAX && !waiting.isEmpty()) {
            answer(waiting.remove(), true);
        }
    }

    private void answer(FileOffer offer, boolean isLarge) {
        Fault refused = asked.check(offer.getName());
        Prepared prepared = refused == null ? target.prepare(offer) : new Prepared.Refused(refused);
        int file = offer.getFile();
        OfferAnswer answer;
        if (prepared instanceof Prepared.Need need) {
            answer = begin(offer, need, isLarge);
        } else if (prepared instanceof Prepared.Skip) {
            answer = new OfferAnswer.Skipped();
            end(result(offer, FileResult.Status.SKIPPED, ByteString.EMPTY, null));
        } else if (prepared instanceof Prepared.Planned planned) {
            answer =
                    new OfferAnswer.Planned(
                            Plan.newBuilder()
                                    .setReplaces(planned.replaces())
                                    .setStoredAs(planned.storedAs())
                                    .build());
            FileResult.Status status =
                    planned.replaces()
                            ? FileResult.Status.WOULD_REPLACE
                            : FileResult.Status.WOULD_COPY;
            end(result(offer, status, planned.storedAs(), null));
        } else {
            Fault fault = ((Prepared.Refused) prepared).fault();
            answer = new OfferAnswer.Failed(fault);
            // A hard link that cannot be made comes again as a file.
            boolean comesAgain =
                    offer.getKind() == FileKind.HARD_LINK
                            && fault.getCode() == FaultCode.KIND_UNSUPPORTED;
            if (comesAgain) {
                tally.foundFiles--;
            } else {
                end(result(offer, FileResult.Status.FAILED, ByteString.EMPTY, fault));
            }
        }
        boolean isGiven = answer(file, answer, "the peer broke the protocol");
        if (isGiven && prepared instanceof Prepared.Need need && need.recheck() != null) {
            rechecks.begin(file, need.recheck());
        }
    }

    /** Takes a file whose spans are to come. */
    private OfferAnswer begin(FileOffer offer, Prepared.Need need, boolean isLarge) {
        int file = offer.getFile();
        open.put(file, new Open(offer, need.storedAs(), isLarge));
        largeFiles += isLarge ? 1 : 0;
        shared.put(file, need.entry());
        long holes = bytesOf(need) - need.resumedBytes();
        tally.takenUp(file, need.resumedBytes(), holes);
        if (need.resumedBytes() > 0) {
            listener.onNotice(
                    new TransferNotice.Resumed(need.resumedBytes(), whyResumed(need.recheck())));
        }
        headway.askedFor(need.spanBytes());
        OfferAnswer answer =
                new OfferAnswer.Needed(
                        need.spanBytes(),
                        need.durable(),
                        need.storedAs(),
                        new OfferAnswer.Earlier(
                                need.ctimeS(),
                                need.ctimeNs(),
                                need.digest(),
                                need.recheck() != null));
        if (offer.getSizeBytes() > 0) {
            streams.openAll();
        }
        return answer;
    }

    /** Bytes of the spans that need not come. */
    private static long bytesOf(Prepared.Need need) {
        return need.entry() instanceof ReceivedFile file ? need.durable().bytes(file.grid()) : 0;
    }

    private static String whyResumed(@Nullable Recheck recheck) {
        return recheck == null
                ? "these are here already, verified"
                : "these are here already; they are read back, as " + recheck.why();
    }

    private static FileResult result(
            FileOffer offer, FileResult.Status status, ByteString storedAs, @Nullable Fault fault) {
        return new FileResult(
                Words.name(offer.getName()),
                status,
                offer.getKind() == FileKind.DIRECTORY,
                offer.getSizeBytes(),
                storedAs.isEmpty() ? null : Words.name(storedAs),
                fault == null ? null : Words.of(fault, offer.getName()),
                Words.encoded(offer.getName()));
    }

    private void end(FileResult result) {
        if (tally.count(result)) {
            listener.onFile(result);
        }
    }

    /** Lets go of a file that is settled, and says how it came out. */
    private void settled(int file, @Nullable Fault fault) {
        tally.ended(file, fault != null);
        Open settled = open.remove(file);
        if (settled != null) {
            largeFiles -= settled.isLarge ? 1 : 0;
            FileResult.Status status =
                    fault == null ? FileResult.Status.DONE : FileResult.Status.FAILED;
            end(result(settled.offer, status, settled.storedAs, fault));
        }
    }

    private void givenUp(int file, Fault fault) {
        TargetEntry entry = shared.remove(file);
        if (entry != null) {
            // Of a source that has changed nothing is to be believed.
            entry.abandon(fault.getCode() != FaultCode.SOURCE_CHANGED);
        }
        settled(file, fault);
    }

    /** Settles a file that the target cannot take. */
    private void failed(int file, Fault fault) {
        TargetEntry entry = shared.remove(file);
        if (entry == null) {
            return;
        }
        entry.abandon(true);
        shared.failed(file, fault);
        settled(file, fault);
    }

    /** Takes what was read back of an earlier run; what is lost of it comes again. */
    private void wasReadBack(int file, SpanSet lost) {
        if (shared.entry(file) instanceof PartialFile partial) {
            tally.lost(file, lost.bytes(partial.grid()));
        }
        shared.run(machine -> machine.readBack(file, lost));
        if (!lost.isEmpty()) {
            streams.openAll();
        }
    }

    private void takeOutcomes() {
        for (Committer.Outcome outcome = committer.poll();
                outcome != null;
                outcome = committer.poll()) {
            int file = outcome.file();
            Fault fault = outcome.fault();
            if (outcome.entry() == null) {
                failed(file, fault == null ? Fault.getDefaultInstance() : fault);
                continue;
            }
            shared.remove(file);
            shared.run(machine -> machine.committed(file, fault));
            settled(file, fault);
        }
    }

    private void tellProgress(long nowNs) {
        if (nowNs - progressAtNs < PROGRESS_EVERY_NS) {
            return;
        }
        progressAtNs = nowNs;
        Progress progress =
                streams.progress()
                        .setDurableBytes(tally.thereBefore() + committer.durableBytes())
                        .build();
        shared.run(machine -> machine.progress(progress));
        listener.onProgress(tally.progress());
    }

    @Override
    SideReport lastWord() {
        target.finishDirectories()
                .forEach(fault -> listener.onNotice(new TransferNotice.Failure(Words.of(fault))));
        return SideReport.newBuilder().setEngine("direct buffers").setBadSpans(badSpans).build();
    }

    @Override
    public void stop() {
        if (isStopped) {
            return;
        }
        isStopped = true;
        rechecks.stop();
        shared.stop();
        streams.stop();
        committer.stop();
        // What was committed meanwhile is in place, though the peer does not hear of it.
        for (Committer.Outcome outcome = committer.poll();
                outcome != null;
                outcome = committer.poll()) {
            if (outcome.entry() != null) {
                shared.remove(outcome.file());
            }
        }
        shared.removeAll().values().forEach(entry -> entry.abandon(true));
        try {
            target.close();
        } catch (IOException gone) {
            // Everything in it was synced for itself.
        }
    }

    /** The fault of a source that nobody asked for. */
    static Fault unasked(ByteString name) {
        return Fault.newBuilder()
                .setCode(FaultCode.NAME_REFUSED)
                .setSide(Side.SOURCE)
                .setPath(name)
                .setWhat("was offered and never asked for")
                .setHint("do not trust this server")
                .build();
    }
}
