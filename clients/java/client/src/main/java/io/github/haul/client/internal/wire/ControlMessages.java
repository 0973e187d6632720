package io.github.haul.client.internal.wire;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.WireFormat;
import io.github.haul.client.internal.proto.Control;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Control messages on the wire: a length, then protobuf, checked before use (SPEC.md, 4). */
public final class ControlMessages {
    /** Bytes of the length in front of a message. */
    public static final int LENGTH_BYTES = 4;

    /** Fields behind this number are counted together: none of them is a list. */
    private static final int LIST_FIELDS_MAX = 14;

    private static final int FILE_ANSWER = 8;
    private static final int ANSWER_FIRST = 2;
    private static final int ANSWER_LAST = 6;

    private ControlMessages() {}

    /**
     * Writes a message. Texts that are longer than a peer takes are cut between characters.
     *
     * @param message the message
     * @return its length and its protobuf
     */
    public static byte[] encode(Control message) {
        byte[] body = Texts.cut(message).toByteArray();
        ByteBuffer bytes =
                ByteBuffer.allocate(LENGTH_BYTES + body.length).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.putInt(body.length).put(body).array();
    }

    /**
     * Takes the first message off a buffer, and moves its position behind it.
     *
     * @param bytes what has arrived
     * @param bytesMax the longest protobuf that is taken
     * @return the message, or null where more bytes are needed
     * @throws ProtocolViolation if the message is too long, no protobuf, or holds more than it may
     */
    public static @Nullable Control decode(ByteBuffer bytes, int bytesMax)
            throws ProtocolViolation {
        if (bytes.remaining() < LENGTH_BYTES) {
            return null;
        }
        int begin = bytes.position();
        long length =
                Integer.toUnsignedLong(
                        bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN).getInt(begin));
        ProtocolViolation.unless(
                length <= bytesMax,
                "a control message of " + length + " bytes, at most " + bytesMax + " are allowed");
        if (bytes.remaining() < LENGTH_BYTES + length) {
            return null;
        }
        byte[] body = new byte[(int) length];
        bytes.position(begin + LENGTH_BYTES).get(body);
        return decodeBody(body);
    }

    private static Control decodeBody(byte[] body) throws ProtocolViolation {
        try {
            checkFields(body);
            Control message = Control.parseFrom(body);
            ProtocolViolation.unless(
                    message.getKindCase() != Control.KindCase.KIND_NOT_SET,
                    "a control message of unknown kind");
            MessageChecks.check(message);
            return message;
        } catch (InvalidProtocolBufferException error) {
            throw new ProtocolViolation("a control message: " + error.getMessage());
        } catch (IOException impossible) {
            throw new IllegalStateException("an array cannot fail to be read", impossible);
        }
    }

    /**
     * Checks the fields of a message before any of them is made: it is of one kind, has one answer,
     * and its lists have as many items as they may.
     */
    private static void checkFields(byte[] body) throws ProtocolViolation, IOException {
        CodedInputStream input = CodedInputStream.newInstance(body);
        boolean isFirst = true;
        for (int tag = input.readTag(); tag != 0; tag = input.readTag()) {
            ProtocolViolation.unless(isFirst, "a control message of more than one kind");
            isFirst = false;
            checkNoGroup(tag);
            if (WireFormat.getTagWireType(tag) == WireFormat.WIRETYPE_LENGTH_DELIMITED) {
                checkItems(WireFormat.getTagFieldNumber(tag), input.readBytes());
            } else {
                input.skipField(tag);
            }
        }
    }

    private static void checkItems(int kind, ByteString message)
            throws ProtocolViolation, IOException {
        CodedInputStream input = message.newCodedInput();
        Map<Integer, Integer> items = new HashMap<>();
        int answers = 0;
        for (int tag = input.readTag(); tag != 0; tag = input.readTag()) {
            checkNoGroup(tag);
            int number = WireFormat.getTagFieldNumber(tag);
            int count = items.merge(number <= LIST_FIELDS_MAX ? number : 0, 1, Integer::sum);
            ProtocolViolation.unless(
                    count <= itemsMax(kind), "more items in a list than it may have");
            if (kind == FILE_ANSWER && number >= ANSWER_FIRST && number <= ANSWER_LAST) {
                answers++;
            }
            ProtocolViolation.unless(answers <= 1, "a file answer of more than one answer");
            input.skipField(tag);
        }
    }

    private static void checkNoGroup(int tag) throws ProtocolViolation {
        int type = WireFormat.getTagWireType(tag);
        boolean isGroup =
                type == WireFormat.WIRETYPE_START_GROUP || type == WireFormat.WIRETYPE_END_GROUP;
        ProtocolViolation.unless(!isGroup, "a group, which no message has");
    }

    /** The most items in a list of the message of this number in {@code Control} (haul.proto). */
    private static int itemsMax(int kind) {
        return switch (kind) {
            case 6 -> Limits.HOLES_MAX;
            case 9, 30 -> Limits.RANGES_MAX;
            case 15 -> Limits.STREAMS_MAX;
            case 20 -> Limits.SELECTION_ITEMS_MAX;
            case 21 -> Limits.REMOVED_MAX;
            case 23 -> Limits.EXPLAINED_MAX;
            case 24 -> Limits.STAGES_MAX;
            case 28, 29 -> Limits.PROBE_STREAMS_MAX;
            case 41 -> Limits.AUDIT_FINDINGS_MAX;
            default -> Limits.PATHS_MAX;
        };
    }
}
