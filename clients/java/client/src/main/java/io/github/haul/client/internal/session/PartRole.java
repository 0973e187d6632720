package io.github.haul.client.internal.session;

import com.google.protobuf.ByteString;
import io.github.haul.client.HaulException;
import io.github.haul.client.Problem;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.internal.machine.OfferAnswer;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.ReceiverEvent;
import io.github.haul.client.internal.machine.SpanGrid;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Notice;
import io.github.haul.client.internal.proto.Side;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.wire.SpanDigest;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * The role of a session that reads parts of one file: it calls all spans durable but those that are
 * wanted first, and asks for others when they are wanted (SPEC.md, 7.6). What has arrived is given
 * out once the sender has confirmed that its file is still the one it offered.
 */
final class PartRole extends InboundRole {
    /** An offer is answered after this time, though nothing is wanted yet. */
    private static final long ANSWER_AFTER_NS = TimeUnit.SECONDS.toNanos(1);

    /** The longest wait for a batch that nobody wants any more. */
    private static final long LAST_BATCH_NS = TimeUnit.SECONDS.toNanos(1);

    /** The longest wait for the server's goodbye. */
    private static final long GOODBYE_NS = TimeUnit.SECONDS.toNanos(2);

    private final ByteString path;
    private final PartReader reader;
    private final PartShared shared;
    private final InboundStreams<PartStream> streams;
    private final Headway headway;
    private final TransferOptions options;
    private @Nullable Control selection;
    private State state = State.AWAITS_OFFER;
    private @Nullable FileOffer offer;
    private SpanSet asked = new SpanSet(0);
    private long offeredAtNs;
    private long enoughAtNs;
    private long batches;

    private enum State {
        AWAITS_OFFER,
        OFFERED,
        MOVING,
        CONFIRMED,
        ENDING
    }

    PartRole(
            OpenSession session,
            ByteString path,
            PartReader reader,
            TransferOptions options,
            Inbox inbox,
            Headway headway) {
        super(options, GOODBYE_NS);
        this.path = path;
        this.reader = reader;
        this.options = options;
        this.headway = headway;
        shared =
                new PartShared(
                        new Receiver(
                                session.granted().opened().getOffersMax(),
                                session.granted().opened().getOfferBytesMax()));
        streams =
                new InboundStreams<PartStream>(session, shared, inbox, headway, options) {
                    @Override
                    PartStream make(int number, SpanDigest digest, long delayMs) {
                        return new PartStream(number, session, shared, inbox, digest, delayMs);
                    }
                };
        selection = Listing.selection(path, 0);
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
    public @Nullable Control pollMessage() {
        Control first = selection;
        selection = null;
        return first == null ? super.pollMessage() : first;
    }

    @Override
    void handleEvent(ReceiverEvent event) {
        if (event instanceof ReceiverEvent.Offered offered) {
            offered(offered.offer());
        } else if (event instanceof ReceiverEvent.OffersOver) {
            if (state == State.AWAITS_OFFER) {
                fail(refused(FaultCode.KIND_UNSUPPORTED, "is no file, and cannot be read"));
            }
        } else if (event instanceof ReceiverEvent.Commit) {
            headway.verified(++batches);
            if (state == State.MOVING) {
                state = State.CONFIRMED;
                reader.arrived(shared.takeArrived());
            }
        } else if (event instanceof ReceiverEvent.GivenUp givenUp) {
            fail(Listing.failure(givenUp.fault(), path));
        } else if (event instanceof ReceiverEvent.Noticed noticed) {
            noticed(noticed.notice());
        }
    }

    private void noticed(Notice notice) {
        if (!notice.hasFault()) {
            options.listener().onNotice(Words.notice(notice, Side.SOURCE));
        } else if (state == State.AWAITS_OFFER) {
            fail(Listing.failure(notice.getFault(), path));
        }
    }

    private HaulException refused(FaultCode code, String what) {
        return new HaulException.Refused(
                new Problem(code.name(), "source", Words.name(path), what, "", "", ""));
    }

    /** Ends the reading for good: this file cannot be read. */
    private void fail(HaulException problem) {
        reader.failed(problem);
        state = State.ENDING;
    }

    private void offered(FileOffer offered) {
        if (state != State.AWAITS_OFFER) {
            answer(offered, new OfferAnswer.Failed(PullRole.unasked(offered.getName())));
            return;
        }
        offer = offered;
        offeredAtNs = System.nanoTime();
        if (!offered.getName().equals(Asked.nameOf(path))) {
            fail(Listing.failure(PullRole.unasked(offered.getName()), path));
        } else if (offered.getKind() != FileKind.REGULAR) {
            String what = offered.getKind() == FileKind.DIRECTORY ? "is a directory" : "is no file";
            fail(refused(FaultCode.KIND_UNSUPPORTED, what));
        } else if (reader.offered(offered)) {
            state = State.OFFERED;
            enoughAtNs = offeredAtNs;
            return;
        }
        state = State.ENDING;
        answer(offered, new OfferAnswer.Failed(enough()));
    }

    private void answer(FileOffer offered, OfferAnswer answer) {
        answer(offered.getFile(), answer, "a file cannot be asked for");
    }

    /** The fault by which a file is settled whose last batch does not come through. */
    private Fault enough() {
        return Fault.newBuilder()
                .setCode(FaultCode.FAULT_UNKNOWN)
                .setSide(Side.TARGET)
                .setPath(offer == null ? ByteString.EMPTY : offer.getName())
                .setWhat("was read in parts, and no more of it is wanted")
                .build();
    }

    /** Asks for what is wanted, where the last batch is through. */
    @Override
    void work(long nowNs) {
        FileOffer offered = offer;
        if (offered == null || state == State.ENDING || state == State.AWAITS_OFFER) {
            return;
        }
        boolean isEnough = reader.isEnough();
        enoughAtNs = isEnough ? enoughAtNs : nowNs;
        if (state == State.MOVING && nowNs - enoughAtNs <= LAST_BATCH_NS) {
            // The last batch has its confirmation, too, so that the file need not fail.
            return;
        }
        if (isEnough) {
            settle(offered);
            return;
        }
        PartReader.Batch batch = reader.nextBatch(asked);
        if (batch.isOfAnotherSession()) {
            settle(offered);
            return;
        }
        List<Integer> spans = batch.spans();
        boolean isDue = state == State.OFFERED && nowNs - offeredAtNs > ANSWER_AFTER_NS;
        if (spans.isEmpty() && !isDue) {
            return;
        }
        SpanGrid grid = reader.grid();
        if (state == State.OFFERED) {
            asked = new SpanSet(grid.count());
            spans.forEach(asked::add);
            SpanSet durable = SpanSet.full(grid.count());
            durable.removeAll(asked);
            OfferAnswer.Earlier earlier =
                    new OfferAnswer.Earlier(
                            offered.getCtimeS(), offered.getCtimeNs(), ByteString.EMPTY, false);
            answer(
                    offered,
                    new OfferAnswer.Needed(grid.spanBytes(), durable, ByteString.EMPTY, earlier));
        } else {
            SpanSet more = new SpanSet(grid.count());
            spans.forEach(more::add);
            spans.forEach(asked::add);
            shared.run(machine -> machine.askFor(offered.getFile(), more));
        }
        state = State.MOVING;
        if (!spans.isEmpty()) {
            streams.openAll();
        }
    }

    private void settle(FileOffer offered) {
        int file = offered.getFile();
        if (state == State.OFFERED) {
            answer(offered, new OfferAnswer.Skipped());
        } else if (state == State.CONFIRMED) {
            shared.run(machine -> machine.committed(file, null));
        } else {
            shared.run(machine -> machine.fileFailed(file, enough()));
        }
        state = State.ENDING;
    }

    @Override
    boolean isDone() {
        return state == State.ENDING;
    }

    @Override
    SideReport lastWord() {
        return SideReport.newBuilder().setEngine("memory").build();
    }

    @Override
    public void stop() {
        streams.stop();
    }
}
