package io.github.haul.client.internal.wire;

import static io.github.haul.client.internal.wire.ProtocolViolation.unless;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.github.haul.client.internal.proto.Compared;
import io.github.haul.client.internal.proto.Control;
import io.github.haul.client.internal.proto.Direction;
import io.github.haul.client.internal.proto.Extent;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.FileAnswer;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.FileOptions;
import io.github.haul.client.internal.proto.FilterRule;
import io.github.haul.client.internal.proto.Growth;
import io.github.haul.client.internal.proto.Need;
import io.github.haul.client.internal.proto.OnConflict;
import io.github.haul.client.internal.proto.Open;
import io.github.haul.client.internal.proto.Opened;
import io.github.haul.client.internal.proto.Probe;
import io.github.haul.client.internal.proto.ProbeKind;
import io.github.haul.client.internal.proto.ProbeReady;
import io.github.haul.client.internal.proto.Xattr;
import java.util.List;
import java.util.Map;

/** Checks of every length and number that a session relies on (SPEC.md, 4 and 9). */
final class MessageChecks {
    private static final int ID_BYTES = 16;
    private static final int CONTENT_BYTES = 32;
    private static final int NANOS = 1_000_000_000;
    private static final int MODE_BITS = 07777;
    private static final int PORT_MAX = 65_535;
    private static final int PROBE_ROUNDS_MAX = 4096;
    private static final int PROBE_MS_MAX = 600_000;
    private static final int PROBE_INTERVAL_MS_MIN = 50;
    private static final int PROBE_BLOCK_BYTES_MIN = 64;
    private static final int PROBE_BLOCK_BYTES_MAX = 16 << 20;
    private static final int PROBE_DATAGRAM_BYTES_MAX = 65_507;

    private MessageChecks() {}

    static void check(Control message) throws ProtocolViolation {
        if (Texts.mayBeIn(message)) {
            checkTexts(message);
        }
        switch (message.getKindCase()) {
            case HELLO -> checkCapabilities(message.getHello().getCapabilitiesCount());
            case HELLO_REPLY -> checkCapabilities(message.getHelloReply().getCapabilitiesCount());
            case OPEN -> checkOpen(message.getOpen());
            case OPENED -> checkOpened(message.getOpened());
            case REFUSED -> checkFault(message.getRefused());
            case FILE_OFFER -> checkOffer(message.getFileOffer());
            case FILE_ANSWER -> checkAnswer(message.getFileAnswer());
            case FILE_CONFIRM -> checkFault(message.getFileConfirm().getFault());
            case FILE_SETTLED -> checkFault(message.getFileSettled().getFault());
            case NOTICE -> checkFault(message.getNotice().getFault());
            case SELECTION -> checkSelection(message);
            case REMOVED -> checkNames(message.getRemoved().getNamesList());
            case PROBE -> checkProbe(message.getProbe());
            case PROBE_READY -> checkProbeReady(message.getProbeReady());
            case PROBE_RESULT -> checkFault(message.getProbeResult().getFault());
            default -> {}
        }
    }

    /** Checks the length of every text of a message, wherever it stands. */
    private static void checkTexts(Message message) throws ProtocolViolation {
        for (Map.Entry<FieldDescriptor, Object> field : message.getAllFields().entrySet()) {
            if (!Texts.mayHold(field.getKey())) {
                continue;
            }
            List<?> values =
                    field.getKey().isRepeated()
                            ? (List<?>) field.getValue()
                            : List.of(field.getValue());
            for (Object value : values) {
                if (value instanceof Message inner) {
                    checkTexts(inner);
                } else {
                    int bytes = ByteString.copyFromUtf8((String) value).size();
                    unless(bytes <= Limits.TEXT_BYTES_MAX, "a text longer than 4096 bytes");
                }
            }
        }
    }

    private static void checkCapabilities(int count) throws ProtocolViolation {
        unless(count <= Limits.CAPABILITIES_MAX, "more than 256 capabilities");
    }

    private static void checkOpen(Open open) throws ProtocolViolation {
        unless(open.getTokenSecret().size() == ID_BYTES, "a token secret that is not 16 bytes");
        unless(open.getTransfer().size() == ID_BYTES, "a transfer id that is not 16 bytes");
        for (ByteString path : open.getPathsList()) {
            unless(path.size() <= Limits.NAME_BYTES_MAX, "a path longer than 4095 bytes");
        }
        unless(isAtMost(open.getStreams(), Limits.STREAMS_MAX), "more than 64 streams");
        unless(open.getSpanBytes() == 0 || isSpanSize(open.getSpanBytes()), "a span size");
        FileOptions options = open.getFileOptions();
        unless(
                options.getOnConflict() != OnConflict.UNRECOGNIZED,
                "on_conflict of a later version");
        boolean keeps =
                open.getDirection() == Direction.PULL
                        || open.getVerifyTarget()
                        || options.getRemoveExtra()
                        || options.getDryRun()
                        || options.getMoveSources()
                        || options.getFollow()
                        || options.getWatch();
        unless(!(options.getDiscard() && keeps), "a push to be discarded that asks for more");
    }

    private static void checkOpened(Opened opened) throws ProtocolViolation {
        unless(opened.getSession().size() == ID_BYTES, "a session id that is not 16 bytes");
        unless(isWithin(opened.getStreams(), 1, Limits.STREAMS_MAX), "a number of streams");
        unless(isWithin(opened.getOffersMax(), 1, Limits.OFFERS_MAX), "an offer limit");
        long bytes = opened.getOfferBytesMax();
        unless(
                bytes >= Limits.OFFER_BYTES_MIN && bytes <= Limits.OFFER_BYTES_MAX,
                "a limit of the offers' bytes");
        int keys = opened.getDataKeys().size();
        unless(keys == 0 || keys == Limits.DATA_KEYS_BYTES, "data keys that are not 96 bytes");
    }

    private static void checkFault(Fault fault) throws ProtocolViolation {
        unless(fault.getPath().size() <= Limits.NAME_BYTES_MAX, "a path longer than 4095 bytes");
    }

    private static void checkName(ByteString name) throws ProtocolViolation {
        String refusal = Names.refusal(name);
        unless(refusal == null, "a file name is refused: " + refusal);
    }

    private static void checkNames(List<ByteString> names) throws ProtocolViolation {
        for (ByteString name : names) {
            checkName(name);
        }
    }

    private static void checkSelection(Control message) throws ProtocolViolation {
        checkNames(message.getSelection().getNamesList());
        for (FilterRule rule : message.getSelection().getRulesList()) {
            unless(
                    rule.getPattern().size() <= Limits.NAME_BYTES_MAX,
                    "a pattern longer than 4095 bytes");
        }
    }

    private static void checkOffer(FileOffer offer) throws ProtocolViolation {
        checkName(offer.getName());
        long size = offer.getSizeBytes();
        unless(size >= 0 && size <= Limits.FILE_BYTES_MAX, "a file larger than 2^50 bytes");
        FileKind kind = offer.getKind();
        boolean isNamed =
                kind == FileKind.DIRECTORY
                        || kind == FileKind.SYMLINK
                        || kind == FileKind.HARD_LINK;
        unless(!isNamed || size == 0, "bytes of what is no file");
        ByteString link = offer.getLinkTarget();
        unless(link.size() <= Limits.NAME_BYTES_MAX, "a link longer than 4095 bytes");
        if (kind == FileKind.HARD_LINK) {
            checkName(link);
        }
        boolean isLink = kind == FileKind.SYMLINK || kind == FileKind.HARD_LINK;
        unless(isLink || link.isEmpty(), "a link target of what is no link");
        unless(offer.getGrowth() != Growth.UNRECOGNIZED, "growth of a later version");
        boolean mayGrow = kind == FileKind.REGULAR || offer.getGrowth() == Growth.NOT_GROWING;
        unless(mayGrow, "growth of what is no file");
        if (offer.hasRange()) {
            checkRange(offer);
        }
        checkHoles(offer);
        checkAttributes(offer);
        boolean areTimes =
                isWithin(offer.getMtimeNs(), 0, NANOS - 1)
                        && isWithin(offer.getCtimeNs(), 0, NANOS - 1);
        unless(areTimes, "a time with more than a second of nanoseconds");
        unless((offer.getMode() & ~MODE_BITS) == 0, "a mode with more than permission bits");
    }

    private static void checkRange(FileOffer offer) throws ProtocolViolation {
        boolean mayBeOne =
                offer.getKind() == FileKind.REGULAR
                        && offer.getGrowth() == Growth.NOT_GROWING
                        && offer.getCompared() == Compared.NOT_COMPARED;
        unless(mayBeOne, "a range of what is no whole file");
        long begin = offer.getRange().getOffsetBytes();
        boolean isPlaced = begin % Limits.SPAN_BYTES_MIN == 0;
        unless(isPlaced, "a range that begins at no multiple of 65536 bytes");
        long fileBytes = offer.getRange().getFileBytes();
        // Numbers beyond 2^63 are negative here.
        boolean isWithin =
                offer.getSizeBytes() > 0
                        && begin >= 0
                        && fileBytes > 0
                        && fileBytes <= Limits.FILE_BYTES_MAX
                        && begin <= fileBytes - offer.getSizeBytes();
        unless(isWithin, "a range that is not within its file");
    }

    private static void checkHoles(FileOffer offer) throws ProtocolViolation {
        long end = -1;
        for (Extent hole : offer.getHolesList()) {
            long begin = hole.getOffsetBytes();
            long length = hole.getLenBytes();
            // The size is checked before, so that numbers beyond 2^63, which are negative here, are
            // out of it.
            boolean isInFile = begin > end && length > 0 && length <= offer.getSizeBytes() - begin;
            unless(isInFile, "a hole out of order or out of its file");
            end = begin + length;
        }
    }

    private static void checkAttributes(FileOffer offer) throws ProtocolViolation {
        boolean areShort =
                offer.getOwner().getUser().size() <= Limits.SHORT_NAME_BYTES_MAX
                        && offer.getOwner().getGroup().size() <= Limits.SHORT_NAME_BYTES_MAX;
        unless(areShort, "a long name of a user or group");
        unless(offer.getXattrsCount() <= Limits.XATTRS_MAX, "more than 1024 extended attributes");
        long bytes = 0;
        for (Xattr xattr : offer.getXattrsList()) {
            ByteString name = xattr.getName();
            boolean isName = !name.isEmpty() && name.size() <= Limits.SHORT_NAME_BYTES_MAX;
            for (int at = 0; isName && at < name.size(); at++) {
                isName = name.byteAt(at) != 0;
            }
            unless(isName, "a name of an extended attribute");
            bytes += name.size() + xattr.getValue().size();
        }
        unless(bytes <= Limits.XATTR_BYTES_MAX, "more than 256 KiB of extended attributes");
    }

    private static void checkAnswer(FileAnswer answer) throws ProtocolViolation {
        switch (answer.getAnswerCase()) {
            case NEED -> checkNeed(answer.getNeed());
            case PLAN -> checkStoredAs(answer.getPlan().getStoredAs());
            case FAULT -> checkFault(answer.getFault());
            case COMPARE ->
                    unless(
                            answer.getCompare().getBlake3().size() == CONTENT_BYTES,
                            "a BLAKE3 that is not 32 bytes");
            case SKIP -> {}
            case ANSWER_NOT_SET ->
                    throw new ProtocolViolation("an answer to an offer that says nothing");
        }
    }

    private static void checkNeed(Need need) throws ProtocolViolation {
        unless(need.getDurableCount() <= Limits.RANGES_MAX, "too many ranges of spans");
        unless(
                isWithin(need.getCtimeNs(), 0, NANOS - 1),
                "a time with more than a second of nanoseconds");
        int digest = need.getDurableDigest().size();
        unless(digest == 0 || digest == ID_BYTES, "a digest that is not 16 bytes");
        checkStoredAs(need.getStoredAs());
    }

    private static void checkStoredAs(ByteString name) throws ProtocolViolation {
        if (!name.isEmpty()) {
            checkName(name);
        }
    }

    private static void checkProbe(Probe probe) throws ProtocolViolation {
        unless(isWithin(probe.getRound(), 1, PROBE_ROUNDS_MAX), "a round of a probe");
        ProbeKind kind = probe.getKind();
        boolean isKnown = kind != ProbeKind.PROBE_KIND_UNKNOWN && kind != ProbeKind.UNRECOGNIZED;
        unless(isKnown, "a probe of unknown kind");
        unless(probe.getToServer() || probe.getToClient(), "a probe of no direction");
        unless(isWithin(probe.getStreams(), 1, Limits.STREAMS_MAX), "a number of streams");
        boolean echoes = probe.getToServer() && probe.getToClient() && probe.getStreams() == 1;
        unless(kind != ProbeKind.ENDPOINT_PINGS || echoes, "pings that nobody echoes");
        int block = probe.getBlockBytes();
        unless(isWithin(block, PROBE_BLOCK_BYTES_MIN, PROBE_BLOCK_BYTES_MAX), "a block of a probe");
        boolean isCarried = kind != ProbeKind.DATAGRAMS || block <= PROBE_DATAGRAM_BYTES_MAX;
        unless(isCarried, "a datagram that no packet carries");
        long time = Integer.toUnsignedLong(probe.getTimeMs());
        long omitted = Integer.toUnsignedLong(probe.getOmitMs());
        unless(time > 0 && time + omitted <= PROBE_MS_MAX, "a time of a probe");
        boolean isSlow = !isAtMost(probe.getIntervalMs(), PROBE_INTERVAL_MS_MIN - 1);
        unless(isSlow, "an interval shorter than 50 ms");
        long last = Integer.toUnsignedLong(probe.getFirstStream()) + 2L * probe.getStreams();
        unless(last < 1L << Integer.SIZE, "a number of a stream");
    }

    private static void checkProbeReady(ProbeReady ready) throws ProtocolViolation {
        int key = ready.getDatagramKey().size();
        unless(key == 0 || key == ID_BYTES, "a datagram key that is not 16 bytes");
        unless(isAtMost(ready.getUdpPort(), PORT_MAX), "a port beyond 65535");
    }

    /** Whether bytes are a span size: a power of two within the limits. */
    private static boolean isSpanSize(long bytes) {
        boolean isWithin = bytes >= Limits.SPAN_BYTES_MIN && bytes <= Limits.SPAN_BYTES_MAX;
        return isWithin && Long.bitCount(bytes) == 1;
    }

    /** Whether an unsigned number is at most this. */
    private static boolean isAtMost(int number, int most) {
        return Integer.compareUnsigned(number, most) <= 0;
    }

    private static boolean isWithin(int number, int least, int most) {
        return isAtMost(number, most) && number >= least;
    }
}
