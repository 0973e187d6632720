package io.github.haul.client.internal.wire;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor.JavaType;
import com.google.protobuf.Message;
import io.github.haul.client.internal.proto.Control;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** Texts of a message, wherever they stand: a peer takes TEXT_BYTES_MAX bytes of each. */
final class Texts {
    private static final int CONTINUATION_MASK = 0xc0;
    private static final int CONTINUATION = 0x80;

    /** Numbers of the kinds of messages that have a text somewhere. */
    private static final Set<Integer> KINDS =
            Control.getDescriptor().getFields().stream()
                    .filter(kind -> hasText(kind, new HashSet<>()))
                    .map(FieldDescriptor::getNumber)
                    .collect(Collectors.toUnmodifiableSet());

    private Texts() {}

    /**
     * Whether a message is of a kind that has a text somewhere. Those that come with each span are
     * not, and a look through the fields of one takes longer than all else that is done with it.
     */
    static boolean mayBeIn(Control message) {
        return KINDS.contains(message.getKindCase().getNumber());
    }

    private static boolean hasText(FieldDescriptor field, Set<Descriptor> seen) {
        return switch (field.getJavaType()) {
            case STRING -> true;
            case MESSAGE ->
                    seen.add(field.getMessageType())
                            && field.getMessageType().getFields().stream()
                                    .anyMatch(inner -> hasText(inner, seen));
            default -> false;
        };
    }

    /** Returns the message with each text cut to what a peer takes. */
    static Message cut(Control message) {
        return mayBeIn(message) ? cutAny(message) : message;
    }

    private static Message cutAny(Message message) {
        Message.Builder cut = message.toBuilder();
        for (Map.Entry<FieldDescriptor, Object> entry : message.getAllFields().entrySet()) {
            FieldDescriptor field = entry.getKey();
            if (!mayHold(field)) {
                continue;
            }
            if (field.isRepeated()) {
                List<Object> values = new ArrayList<>();
                ((List<?>) entry.getValue()).forEach(value -> values.add(cutValue(value)));
                cut.setField(field, values);
            } else {
                cut.setField(field, cutValue(entry.getValue()));
            }
        }
        return cut.build();
    }

    /** Whether a field is a text or a message, which may have one. */
    static boolean mayHold(FieldDescriptor field) {
        JavaType type = field.getJavaType();
        return type == JavaType.STRING || type == JavaType.MESSAGE;
    }

    private static Object cutValue(Object value) {
        return value instanceof Message inner ? cutAny(inner) : cutText((String) value);
    }

    private static String cutText(String text) {
        ByteString bytes = ByteString.copyFromUtf8(text);
        if (bytes.size() <= Limits.TEXT_BYTES_MAX) {
            return text;
        }
        int end = Limits.TEXT_BYTES_MAX;
        while ((bytes.byteAt(end) & CONTINUATION_MASK) == CONTINUATION) {
            end--;
        }
        return bytes.substring(0, end).toStringUtf8();
    }
}
