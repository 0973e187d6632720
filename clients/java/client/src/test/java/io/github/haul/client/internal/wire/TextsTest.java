package io.github.haul.client.internal.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor.JavaType;
import com.google.protobuf.Message;
import io.github.haul.client.internal.proto.Control;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Texts of messages, wherever they stand. */
final class TextsTest {
    private static final String LONG = "\u00e9".repeat(Limits.TEXT_BYTES_MAX);

    /** Returns how many texts were put into a message, one for each place of its kind. */
    private static int fill(Message.Builder message, Set<String> within) {
        int texts = 0;
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            boolean isText = field.getJavaType() == JavaType.STRING;
            if (isText) {
                texts++;
            }
            Object value = LONG;
            if (field.getJavaType() == JavaType.MESSAGE) {
                if (!within.add(field.getFullName())) {
                    continue;
                }
                Message.Builder inner = message.newBuilderForField(field);
                int innerTexts = fill(inner, within);
                within.remove(field.getFullName());
                texts += innerTexts;
                value = inner.build();
                isText = innerTexts > 0;
            }
            // Of the answers that exclude each other the first one that has a text stays.
            boolean isTaken =
                    field.getContainingOneof() != null
                            && message.hasOneof(field.getContainingOneof());
            if (isText && !isTaken) {
                if (field.isRepeated()) {
                    message.addRepeatedField(field, value);
                } else {
                    message.setField(field, value);
                }
            }
        }
        return texts;
    }

    @Test
    void eachKindWithATextIsCutBeforeItGoesAndRefusedWhenItComes() {
        int kinds = 0;
        for (FieldDescriptor kind : Control.getDescriptor().getFields()) {
            Message.Builder inner = Control.newBuilder().newBuilderForField(kind);
            boolean hasText = fill(inner, new HashSet<>()) > 0;
            Control message = Control.newBuilder().setField(kind, inner.build()).build();
            assertEquals(hasText, Texts.mayBeIn(message), kind.getName());
            if (!hasText) {
                continue;
            }
            kinds++;
            byte[] cut = ControlMessages.encode(message);
            int fewest = ControlMessages.LENGTH_BYTES + Limits.TEXT_BYTES_MAX;
            assertTrue(cut.length >= fewest && cut.length < message.getSerializedSize());
            byte[] body = message.toByteArray();
            ByteBuffer whole =
                    ByteBuffer.allocate(ControlMessages.LENGTH_BYTES + body.length)
                            .order(ByteOrder.LITTLE_ENDIAN)
                            .putInt(body.length)
                            .put(body)
                            .flip();
            String said =
                    assertThrows(
                                    ProtocolViolation.class,
                                    () -> ControlMessages.decode(whole, body.length),
                                    kind.getName())
                            .getMessage();
            assertEquals("a text longer than 4096 bytes", said, kind.getName());
        }
        assertTrue(kinds > 5, kinds + " kinds");
    }
}
