package io.github.haul.client.internal.wire;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import io.github.haul.client.internal.proto.Control;
import java.io.IOException;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.Map;

/** The files that pin the protocol's bytes for the clients of every language. */
public final class Vectors {
    private static final Path FOLDER = Path.of("../../../crates/protocol/vectors");

    private Vectors() {}

    /** Reads one of the files. */
    public static JsonNode read(String file) throws IOException {
        return new ObjectMapper().readTree(FOLDER.resolve(file).toFile());
    }

    /** The bytes that a vector has in hex. */
    public static byte[] hex(JsonNode vector, String key) {
        return HexFormat.of().parseHex(vector.get(key).textValue());
    }

    /** Makes a message out of the fields of a vector: bytes are hex, enums are names. */
    static Control message(JsonNode fields) {
        Control.Builder message = Control.newBuilder();
        fill(message, fields);
        return message.build();
    }

    private static void fill(Message.Builder message, JsonNode fields) {
        for (Map.Entry<String, JsonNode> entry : fields.properties()) {
            FieldDescriptor field = message.getDescriptorForType().findFieldByName(entry.getKey());
            if (field.isRepeated()) {
                entry.getValue()
                        .forEach(
                                item ->
                                        message.addRepeatedField(
                                                field, value(message, field, item)));
            } else {
                message.setField(field, value(message, field, entry.getValue()));
            }
        }
    }

    private static Object value(Message.Builder message, FieldDescriptor field, JsonNode value) {
        return switch (field.getJavaType()) {
            case BOOLEAN -> value.booleanValue();
            case BYTE_STRING -> ByteString.copyFrom(HexFormat.of().parseHex(value.textValue()));
            case ENUM -> field.getEnumType().findValueByName(value.textValue());
            case INT -> (int) value.longValue();
            case LONG -> value.bigIntegerValue().longValue();
            case STRING -> value.textValue();
            case MESSAGE -> {
                Message.Builder inner = message.newBuilderForField(field);
                fill(inner, value);
                yield inner.build();
            }
            default -> throw new IllegalArgumentException(field.getFullName());
        };
    }
}
