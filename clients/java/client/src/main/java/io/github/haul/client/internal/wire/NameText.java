package io.github.haul.client.internal.wire;

import com.google.protobuf.ByteString;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CoderResult;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;

/**
 * Names as text and back: a byte that is no UTF-8 is a lone low surrogate, {@code U+DC00} plus the
 * byte.
 */
public final class NameText {
    private static final int ESCAPE = 0xdc00;
    private static final int ESCAPE_FIRST = 0xdc80;
    private static final int ESCAPE_LAST = 0xdcff;

    private NameText() {}

    /**
     * Turns a name into text.
     *
     * @param name its bytes
     * @return the text
     */
    public static String of(ByteString name) {
        if (name.isValidUtf8()) {
            return name.toStringUtf8();
        }
        CharsetDecoder decoder =
                StandardCharsets.UTF_8
                        .newDecoder()
                        .onMalformedInput(CodingErrorAction.REPORT)
                        .onUnmappableCharacter(CodingErrorAction.REPORT);
        ByteBuffer bytes = name.asReadOnlyByteBuffer();
        CharBuffer text = CharBuffer.allocate(name.size());
        CoderResult result = decoder.decode(bytes, text, true);
        while (result.isError()) {
            for (int count = result.length(); count > 0; count--) {
                text.put((char) (ESCAPE + Byte.toUnsignedInt(bytes.get())));
            }
            result = decoder.reset().decode(bytes, text, true);
        }
        return text.flip().toString();
    }

    /**
     * Turns text into a name.
     *
     * @param text the text
     * @return the bytes
     * @throws IllegalArgumentException if it holds a surrogate that stands for no byte
     */
    public static ByteString bytes(String text) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream(text.length());
        for (int at = 0; at < text.length(); at += Character.charCount(text.codePointAt(at))) {
            int one = text.codePointAt(at);
            if (one >= ESCAPE_FIRST && one <= ESCAPE_LAST) {
                bytes.write(one - ESCAPE);
                continue;
            }
            if (one >= Character.MIN_SURROGATE && one <= Character.MAX_SURROGATE) {
                throw new IllegalArgumentException("a name with half a character in it");
            }
            bytes.writeBytes(Character.toString(one).getBytes(StandardCharsets.UTF_8));
        }
        return ByteString.copyFrom(bytes.toByteArray());
    }
}
