package io.github.haul.client.internal.session;

import com.google.protobuf.MessageLite;
import io.github.haul.client.internal.machine.OfferAnswer;
import io.github.haul.client.internal.machine.Receiver;
import io.github.haul.client.internal.machine.ReceiverEvent;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FaultCode;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.Plan;
import io.github.haul.client.internal.proto.SideReport;
import io.github.haul.client.internal.wire.ProtocolViolation;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** The role of a listing: plans to have each offer, keeps to that, and notes what it was. */
final class ListRole implements Role {
    /** Silence after which a server is left: a disk may take long for a large directory. */
    private static final long PATIENCE_NS = TimeUnit.SECONDS.toNanos(120);

    /** The share of the heap that a listing may take: its program has other things to keep. */
    private static final int HEAP_SHARES = 4;

    /** Memory of an entry, or of a failure, beside its words. */
    private static final int ENTRY_BYTES = 512;

    private static final int MIB = 1 << 20;

    private final long heldBytesMax = Runtime.getRuntime().maxMemory() / HEAP_SHARES;
    private long heldBytes;

    private final Receiver machine;
    private final List<FileOffer> offers = new ArrayList<>();
    private final List<Fault> failures = new ArrayList<>();
    private @Nullable Control selection;
    private @Nullable SessionEnd end;
    private boolean areOffersOver;
    private long heardAtNs = System.nanoTime();

    ListRole(OpenSession session, Control selection) {
        machine =
                new Receiver(
                        session.granted().opened().getOffersMax(),
                        session.granted().opened().getOfferBytesMax());
        this.selection = selection;
    }

    /** What was offered, in the server's order. */
    List<FileOffer> offers() {
        return offers;
    }

    /** What the server could not look at. */
    List<Fault> failures() {
        return failures;
    }

    @Override
    public void handle(Control message) throws ProtocolViolation {
        heardAtNs = System.nanoTime();
        machine.handle(message);
        for (ReceiverEvent event = machine.pollEvent();
                event != null;
                event = machine.pollEvent()) {
            if (event instanceof ReceiverEvent.Offered offered) {
                hold(offers, shown(offered.offer()));
                machine.answer(
                        offered.offer().getFile(),
                        new OfferAnswer.Planned(Plan.getDefaultInstance()));
            } else if (event instanceof ReceiverEvent.OffersOver) {
                areOffersOver = true;
            } else if (event instanceof ReceiverEvent.Noticed noticed
                    && noticed.notice().hasFault()) {
                hold(failures, noticed.notice().getFault());
            } else if (event instanceof ReceiverEvent.Finished) {
                end = new SessionEnd.Finished();
            } else if (event instanceof ReceiverEvent.Refused refused) {
                end = new SessionEnd.Refused(refused.fault(), false);
            }
        }
        if (areOffersOver) {
            machine.finish(SideReport.getDefaultInstance());
        }
    }

    /** What a listing shows of an offer: holes and extended attributes take far more memory. */
    private static FileOffer shown(FileOffer offer) {
        FileOffer.Builder shown =
                FileOffer.newBuilder()
                        .setName(offer.getName())
                        .setKind(offer.getKind())
                        .setSizeBytes(offer.getSizeBytes())
                        .setMode(offer.getMode())
                        .setMtimeS(offer.getMtimeS())
                        .setMtimeNs(offer.getMtimeNs());
        boolean isLink = offer.getKind() == FileKind.SYMLINK;
        return isLink ? shown.setLinkTarget(offer.getLinkTarget()).build() : shown.build();
    }

    /** Keeps an entry or a failure; where they are too many for the JVM the listing ends. */
    private <T extends MessageLite> void hold(List<T> held, T one) {
        heldBytes += ENTRY_BYTES + one.getSerializedSize();
        if (heldBytes <= heldBytesMax) {
            held.add(one);
        } else if (end == null) {
            Fault.Builder tooLong =
                    Fault.newBuilder()
                            .setCode(FaultCode.IO_FAILED)
                            .setWhat("the listing is too long for the memory of this JVM")
                            .setFound(
                                    "entries of more than "
                                            + heldBytesMax / MIB
                                            + " MiB, a quarter of the heap")
                            .setHint("give the JVM more (-Xmx), or list by haul ls");
            end = new SessionEnd.Refused(tooLong.build(), true);
        }
    }

    @Override
    public @Nullable SessionEnd pump(long nowNs) {
        if (end == null && nowNs - heardAtNs > PATIENCE_NS) {
            Fault.Builder stalled =
                    Fault.newBuilder()
                            .setCode(FaultCode.STALLED)
                            .setWhat("the server stopped listing");
            return new SessionEnd.Refused(stalled.build(), true);
        }
        return end;
    }

    @Override
    public @Nullable Control pollMessage() {
        Control first = selection;
        selection = null;
        return first == null ? machine.pollMessage() : first;
    }

    @Override
    public boolean isAtWork() {
        return false;
    }

    @Override
    public void stop() {}
}
