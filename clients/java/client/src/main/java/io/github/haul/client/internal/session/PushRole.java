package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.FileResult;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferNotice;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.FileOutcome;
import io.github.haul.client.internal.machine.Sender;
import io.github.haul.client.internal.machine.SenderEvent;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.source.HardLinks;
import io.github.haul.client.internal.source.SourceEntry;
import io.github.haul.client.internal.source.SourceWalk;
import io.github.haul.client.internal.wire.ProtocolViolation;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** The sending role: lists and offers files, feeds the streams, confirms sources. */
final class PushRole implements Role {
    /** The most files offered before what came in meanwhile is looked at. */
    private static final int OFFERS_A_PUMP = 256;

    private static final long PROGRESS_EVERY_NS = TimeUnit.MILLISECONDS.toNanos(200);

    private final TransferOptions options;
    private final TransferListener listener;
    private final Headway headway;
    private final Tally tally;
    private final SendShared shared;
    private final SendStreams streams;
    private final SourceChecks checks;
    private final WalkAhead walk;
    private final HardLinks links = new HardLinks();
    private final Patience patience;
    private final Queue<SourceEntry> toOffer = new ArrayDeque<>();
    private final Map<Integer, ByteString> storedAs = new HashMap<>();

    /** Links that may yet be offered as files: the offers have no end before. */
    private int mayReturn;

    private boolean isListed;
    private boolean isFinishing;
    private @Nullable SideReport peerReport;
    private @Nullable SessionEnd end;
    private long handled;
    private long progressAtNs;

    PushRole(
            OpenSession session,
            SourceWalk walk,
            TransferOptions options,
            Inbox inbox,
            Headway headway,
            Tally tally)
            throws ProtocolViolation {
        Opened opened = session.granted().opened();
        this.walk = new WalkAhead(walk::next, inbox);
        this.options = options;
        this.listener = options.listener();
        this.headway = headway;
        this.tally = tally;
        // Whether there is such a digest is found out here, on the session's own thread.
        SpanDigest.of(session.digest(), session.keys());
        shared = new SendShared(new Sender(opened.getOffersMax(), opened.getOfferBytesMax()));
        checks = new SourceChecks(shared, inbox, () -> DataStreams.digestOf(session), listener);
        streams = new SendStreams(session, shared, inbox, headway, options);
        patience = new Patience(options.stallAfter().toNanos());
        this.walk.start();
    }

    @Override
    public void handle(Control message) throws ProtocolViolation {
        boolean isTold = message.hasProgress() || message.hasNotice();
        handled += isTold ? 0 : 1;
        if (message.hasFileAnswer() && message.getFileAnswer().hasNeed()) {
            headway.askedFor(message.getFileAnswer().getNeed().getSpanBytes());
        }
        shared.run(machine -> machine.handle(message));
    }

    @Override
    public @Nullable Control pollMessage() {
        return shared.find(Sender::pollMessage);
    }

    @Override
    public @Nullable SessionEnd pump(long nowNs) {
        offerFiles();
        handleEvents();
        checks.tick();
        SessionEnd cut = streams.handleEnded(nowNs, isFinishing);
        handleEvents();
        offerFiles();
        if (!isFinishing) {
            streams.watch(nowNs);
        }
        shared.notifyStreams();
        finish();
        tally.verifiedBytes = shared.with(Sender::verifiedBytes);
        // The receiver tells how much is durable now and then, and of each file once it is.
        tally.durable(tally.inPlaceBytes());
        tally.wireBytes = streams.sentBytes();
        tally.streams = streams.open().size();
        headway.verified(tally.headway());
        if (nowNs - progressAtNs >= PROGRESS_EVERY_NS) {
            progressAtNs = nowNs;
            listener.onProgress(tally.progress());
        }
        if (end != null) {
            return end;
        }
        if (isFinishing && peerReport != null) {
            return new SessionEnd.Finished();
        }
        if (cut != null) {
            return cut;
        }
        Fault due = patience.check(nowNs, handled, () -> shared.find(Sender::awaits));
        return due == null ? null : new SessionEnd.Refused(due, true);
    }

    private void offerFiles() {
        for (int count = 0; count < OFFERS_A_PUMP; count++) {
            if (!shared.with(Sender::mayOffer)) {
                return;
            }
            SourceEntry next = toOffer.poll();
            if (next != null) {
                offer(next);
                continue;
            }
            if (isListed || links.isFull()) {
                endOffers();
                return;
            }
            SourceWalk.Listed listed = walk.poll();
            if (listed == null && !walk.isOver()) {
                return;
            }
            if (listed == null) {
                isListed = true;
                tally.isTotalKnown = true;
            } else if (listed instanceof SourceWalk.Entry found) {
                SourceEntry entry = links.meet(found.entry());
                if (entry != null) {
                    offer(entry);
                }
            } else if (listed instanceof SourceWalk.Failed failed) {
                notOffered(failed.fault());
            } else if (listed instanceof SourceWalk.LeftOut leftOut) {
                tally.leftOut++;
                listener.onNotice(new TransferNotice.LeftOut(Words.of(leftOut.fault())));
            }
        }
    }

    private void offer(SourceEntry entry) {
        int file = shared.with(machine -> machine.offer(entry.offer()));
        shared.put(file, entry);
        links.offered(file, entry);
        tally.foundFiles++;
        tally.foundDirectories += entry.offer().getKind() == FileKind.DIRECTORY ? 1 : 0;
        tally.foundBytes += entry.offer().getSizeBytes();
        mayReturn += entry.offer().getKind() == FileKind.HARD_LINK ? 1 : 0;
        if (entry.offer().getSizeBytes() > 0 && !options.isDryRun()) {
            streams.openAll();
        }
    }

    /** Tells both users of a source that cannot even be offered. */
    private void notOffered(Fault fault) {
        tally.foundFiles++;
        failedBeside(fault);
        shared.run(machine -> machine.notice(Notice.newBuilder().setFault(fault).build()));
    }

    private void failedBeside(Fault fault) {
        tally.count(Words.failedBeside(fault));
        listener.onNotice(new TransferNotice.Failure(Words.of(fault)));
    }

    private void end(FileResult result) {
        if (tally.count(result)) {
            listener.onFile(result);
        }
    }

    private void endOffers() {
        boolean isEnd = isListed && toOffer.isEmpty() && mayReturn == 0 && !links.keepsSome();
        if (isEnd) {
            shared.run(machine -> machine.endOffers(tally.foundFiles, tally.foundBytes));
        }
    }

    private void handleEvents() {
        for (SenderEvent event = pollEvent(); event != null; event = pollEvent()) {
            handleEvent(event);
        }
    }

    private @Nullable SenderEvent pollEvent() {
        return shared.find(Sender::pollEvent);
    }

    private void handleEvent(SenderEvent event) {
        if (event instanceof SenderEvent.Settled settled) {
            settled(settled);
        } else if (event instanceof SenderEvent.CheckSource check) {
            checks.check(check.file());
        } else if (event instanceof SenderEvent.Resumed found) {
            resumed(found);
        } else if (event instanceof SenderEvent.Lost lost) {
            tally.lost(lost.file(), lost.bytes());
            checks.lost(lost.file());
        } else if (event instanceof SenderEvent.StoredAs stored) {
            storedAs.put(stored.file(), stored.name());
        } else if (event instanceof SenderEvent.SpanDamaged) {
            tally.resentSpans++;
        } else if (event instanceof SenderEvent.StreamOver over) {
            streams.closed(over.stream());
        } else if (event instanceof SenderEvent.Progressed progressed) {
            streams.heard(progressed.progress());
            tally.durable(progressed.progress().getDurableBytes());
        } else if (event instanceof SenderEvent.Noticed noticed) {
            noticed(noticed.notice());
        } else if (event instanceof SenderEvent.Finished finished) {
            peerReport = finished.report();
        } else if (event instanceof SenderEvent.Refused refused) {
            end = new SessionEnd.Refused(refused.fault(), false);
        }
    }

    private void resumed(SenderEvent.Resumed found) {
        long bytes = checks.keepEarlier(found);
        if (shared.source(found.file()) != null) {
            tally.takenUp(found.file(), bytes, found.bytes() - bytes);
        }
        if (bytes > 0) {
            listener.onNotice(new TransferNotice.Resumed(bytes, "these are at the target already"));
        }
    }

    private void noticed(Notice notice) {
        if (notice.hasFault()) {
            failedBeside(notice.getFault());
        } else {
            listener.onNotice(Words.notice(notice, Side.TARGET));
        }
    }

    private void settled(SenderEvent.Settled settled) {
        int file = settled.file();
        SourceEntry source = shared.remove(file);
        checks.forget(file);
        tally.ended(file, settled.outcome() instanceof FileOutcome.Failed);
        if (source == null) {
            return;
        }
        boolean isLink = source.offer().getKind() == FileKind.HARD_LINK;
        mayReturn -= isLink ? 1 : 0;
        ByteString stored = storedAs.remove(file);
        FileOutcome outcome = settled.outcome();
        if (outcome instanceof FileOutcome.Failed failed
                && isLink
                && failed.fault().getCode() == FaultCode.KIND_UNSUPPORTED) {
            tally.foundFiles--;
            toOffer.add(source.asFile());
            return;
        }
        FileResult result = result(source, outcome, stored);
        if (result == null) {
            end =
                    new SessionEnd.Refused(
                            Fault.newBuilder()
                                    .setCode(FaultCode.PROTOCOL_VIOLATION)
                                    .setWhat("the peer broke the protocol")
                                    .setFound("an answer that nothing asked for")
                                    .build(),
                            true);
            return;
        }
        boolean isInPlace = result.status() != FileResult.Status.FAILED;
        toOffer.addAll(links.ended(file, isInPlace));
        end(result);
    }

    /** How a file came out; null for an answer that no receiver may give. */
    private @Nullable FileResult result(
            SourceEntry source, FileOutcome outcome, @Nullable ByteString stored) {
        FileResult.Status status;
        Fault fault = null;
        ByteString name = stored;
        if (outcome instanceof FileOutcome.Done) {
            status = FileResult.Status.DONE;
        } else if (outcome instanceof FileOutcome.Skipped) {
            status = FileResult.Status.SKIPPED;
        } else if (outcome instanceof FileOutcome.Failed failed) {
            status = FileResult.Status.FAILED;
            fault = failed.fault();
        } else if (outcome instanceof FileOutcome.Planned planned && options.isDryRun()) {
            boolean replaces = planned.plan().getReplaces();
            status = replaces ? FileResult.Status.WOULD_REPLACE : FileResult.Status.WOULD_COPY;
            name = planned.plan().getStoredAs().isEmpty() ? null : planned.plan().getStoredAs();
        } else {
            return null;
        }
        return new FileResult(
                Words.name(source.name()),
                status,
                source.offer().getKind() == FileKind.DIRECTORY,
                source.offer().getSizeBytes(),
                name == null ? null : Words.name(name),
                fault == null ? null : Words.of(fault, source.name()),
                Words.encoded(source.name()));
    }

    /** Says goodbye once all is settled. */
    private void finish() {
        boolean isOver = isListed && shared.with(Sender::isAllSettled);
        if (isFinishing || !isOver) {
            return;
        }
        isFinishing = true;
        streams.end();
        SideReport report = SideReport.newBuilder().setEngine("transferTo").build();
        shared.run(machine -> machine.finish(report));
    }

    @Override
    public void stop() {
        walk.stop();
        streams.stop();
        checks.stop();
    }

    @Override
    public boolean isAtWork() {
        return streams.isAnyAtWork();
    }
}
