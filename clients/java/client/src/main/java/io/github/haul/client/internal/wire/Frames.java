package io.github.haul.client.internal.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.zip.CRC32C;

/** Layouts of the data streams: preface, headers and trailers of frames (SPEC.md, 6). */
public final class Frames {
    /** Bytes of a preface. */
    public static final int PREFACE_BYTES = 64;

    /** Bytes of a frame's header. */
    public static final int HEADER_BYTES = 40;

    /** Bytes of a header that a digest binds: all but its CRC. */
    public static final int BOUND_HEADER_BYTES = 36;

    /** Bytes of a span's trailer. */
    public static final int TRAILER_BYTES = 24;

    /** Bytes of a digest. */
    public static final int DIGEST_BYTES = 16;

    private static final byte[] MAGIC = {(byte) 0x89, 'H', 'A', 'U', 'L', 'D', 'S', '\n'};
    private static final int VERSION = 1;
    private static final byte KIND_SPAN = 1;
    private static final byte KIND_END = 2;
    private static final byte KIND_PACK = 3;
    private static final byte KIND_TRAILER = 0x74;
    private static final int ID_BYTES = 16;
    private static final int MAC_BYTES = 32;

    private Frames() {}

    /** First bytes of a data stream, from the client. */
    public static final class Preface {
        private final int stream;
        private final byte[] session;
        private final byte[] mac;

        /**
         * Describes a preface.
         *
         * @param stream the stream's number, unsigned
         * @param session 16 bytes
         * @param mac 32 bytes over {@link #signedBytes}
         */
        public Preface(int stream, byte[] session, byte[] mac) {
            this.stream = stream;
            this.session = session.clone();
            this.mac = mac.clone();
        }

        /**
         * The bytes that a preface's MAC is made of.
         *
         * @param stream the stream's number, unsigned
         * @param session 16 bytes
         * @return the first 32 bytes
         */
        public static byte[] signedBytes(int stream, byte[] session) {
            ByteBuffer bytes = littleEndian(MAC_BYTES);
            bytes.put(MAGIC)
                    .putShort((short) VERSION)
                    .putShort((short) 0)
                    .putInt(stream)
                    .put(session);
            return bytes.array();
        }

        /**
         * Writes the preface.
         *
         * @return 64 bytes
         */
        public byte[] encode() {
            ByteBuffer bytes = littleEndian(PREFACE_BYTES);
            return bytes.put(signedBytes(stream, session)).put(mac).array();
        }

        /**
         * Reads a preface.
         *
         * @param bytes 64 bytes
         * @return the preface
         * @throws ProtocolViolation if they are none of this version
         */
        public static Preface decode(byte[] bytes) throws ProtocolViolation {
            boolean isOurs = Arrays.equals(bytes, 0, MAGIC.length, MAGIC, 0, MAGIC.length);
            ProtocolViolation.unless(isOurs, "a data stream does not begin with the magic");
            ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
            int version = Short.toUnsignedInt(buffer.getShort(8));
            ProtocolViolation.unless(
                    version == VERSION && buffer.getShort(10) == 0,
                    "a data stream of version " + version + ", this is " + VERSION);
            byte[] session = Arrays.copyOfRange(bytes, ID_BYTES, 2 * ID_BYTES);
            byte[] mac = Arrays.copyOfRange(bytes, 2 * ID_BYTES, PREFACE_BYTES);
            return new Preface(buffer.getInt(12), session, mac);
        }

        /** Returns the stream's number, unsigned. */
        public int stream() {
            return stream;
        }

        /** Returns the session's 16 bytes. */
        public byte[] session() {
            return session.clone();
        }

        /** Returns the 32 bytes of the MAC. */
        public byte[] mac() {
            return mac.clone();
        }
    }

    /** First bytes of a frame. Numbers of files, streams and sequences are unsigned. */
    public sealed interface Header permits Span, Pack, End {
        /** Returns the frame's number in its stream. */
        long sequence();

        /** Returns the number of its stream. */
        int stream();

        /** Writes the 40 bytes of the header. */
        default byte[] encode() {
            ByteBuffer bytes = littleEndian(HEADER_BYTES);
            put(bytes);
            bytes.putLong(24, sequence()).putInt(32, stream());
            bytes.putInt(BOUND_HEADER_BYTES, crc32c(bytes.array(), 0, BOUND_HEADER_BYTES));
            return bytes.array();
        }

        /** Writes what only this kind of frame has. */
        void put(ByteBuffer bytes);

        /**
         * Reads a header.
         *
         * @param bytes 40 bytes
         * @return the header
         * @throws ProtocolViolation if it is damaged or of no known kind
         */
        static Header decode(byte[] bytes) throws ProtocolViolation {
            ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
            int crc = crc32c(bytes, 0, BOUND_HEADER_BYTES);
            ProtocolViolation.unless(
                    buffer.getInt(BOUND_HEADER_BYTES) == crc, "a frame header's CRC is wrong");
            long sequence = buffer.getLong(24);
            boolean isPlain = sequence >= 0 && sequence < Limits.FRAMES_MAX;
            isPlain &= (buffer.getInt(0) & 0xffffff00) == 0;
            ProtocolViolation.unless(isPlain, "a frame header has reserved bits set");
            int file = buffer.getInt(4);
            long offset = buffer.getLong(8);
            long length = buffer.getLong(16);
            int stream = buffer.getInt(32);
            if (bytes[0] == KIND_SPAN) {
                return new Span(file, offset, length, sequence, stream);
            }
            if (bytes[0] == KIND_PACK && offset == 0) {
                return new Pack(file, length, sequence, stream);
            }
            if (bytes[0] == KIND_END && file == 0 && offset == 0 && length == 0) {
                return new End(sequence, stream);
            }
            throw new ProtocolViolation("a frame of unknown kind " + Byte.toUnsignedInt(bytes[0]));
        }
    }

    /**
     * A span of a file.
     *
     * @param file the file's number
     * @param offsetBytes where in the file it begins
     * @param lenBytes its length, never 0
     * @param sequence the frame's number
     * @param stream the stream's number
     */
    public record Span(int file, long offsetBytes, long lenBytes, long sequence, int stream)
            implements Header {
        @Override
        public void put(ByteBuffer bytes) {
            bytes.put(0, KIND_SPAN).putInt(4, file).putLong(8, offsetBytes).putLong(16, lenBytes);
        }
    }

    /**
     * Several spans of small files.
     *
     * @param spans how many
     * @param lenBytes bytes of all of them with their headers and trailers
     * @param sequence the number of its first span
     * @param stream the stream's number
     */
    public record Pack(int spans, long lenBytes, long sequence, int stream) implements Header {
        @Override
        public void put(ByteBuffer bytes) {
            bytes.put(0, KIND_PACK).putInt(4, spans).putLong(16, lenBytes);
        }
    }

    /**
     * The orderly end of a stream.
     *
     * @param sequence the frame's number
     * @param stream the stream's number
     */
    public record End(long sequence, int stream) implements Header {
        @Override
        public void put(ByteBuffer bytes) {
            bytes.put(0, KIND_END);
        }
    }

    /** What a sender says of the payload that it sent. */
    public enum Status {
        /** The payload is the file's. */
        WHOLE,
        /** The sender could not read all of it; the rest is filler. */
        ABANDONED,
        /** The payload is all of its file, whose source was still what was offered. */
        CONFIRMED;

        /** Returns the status as it goes over the wire. */
        public byte toByte() {
            return (byte) ordinal();
        }
    }

    /** Last bytes of a span. */
    public static final class Trailer {
        private final Status status;
        private final byte[] digest;

        /**
         * Describes a trailer.
         *
         * @param status what the payload is
         * @param digest 16 bytes
         */
        public Trailer(Status status, byte[] digest) {
            this.status = status;
            this.digest = digest.clone();
        }

        /**
         * Writes the trailer.
         *
         * @return 24 bytes
         */
        public byte[] encode() {
            ByteBuffer bytes = littleEndian(TRAILER_BYTES);
            bytes.put(0, KIND_TRAILER).put(1, status.toByte()).put(8, digest);
            return bytes.putInt(4, crcOf(bytes.array())).array();
        }

        /**
         * Reads a trailer.
         *
         * @param bytes 24 bytes
         * @return the trailer
         * @throws ProtocolViolation if it is damaged
         */
        public static Trailer decode(byte[] bytes) throws ProtocolViolation {
            ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
            int status = Byte.toUnsignedInt(bytes[1]);
            ProtocolViolation.unless(
                    status < Status.values().length, "a span trailer of unknown status");
            boolean isWhole =
                    bytes[0] == KIND_TRAILER
                            && buffer.getShort(2) == 0
                            && buffer.getInt(4) == crcOf(bytes);
            ProtocolViolation.unless(isWhole, "a span trailer is damaged");
            return new Trailer(
                    Status.values()[status], Arrays.copyOfRange(bytes, 8, TRAILER_BYTES));
        }

        /** Returns what the payload is. */
        public Status status() {
            return status;
        }

        /** Returns the 16 bytes of the digest. */
        public byte[] digest() {
            return digest.clone();
        }

        private static int crcOf(byte[] bytes) {
            CRC32C crc = new CRC32C();
            crc.update(bytes, 0, 4);
            crc.update(bytes, 8, DIGEST_BYTES);
            return (int) crc.getValue();
        }
    }

    private static ByteBuffer littleEndian(int bytes) {
        return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static int crc32c(byte[] bytes, int offset, int length) {
        CRC32C crc = new CRC32C();
        crc.update(bytes, offset, length);
        return (int) crc.getValue();
    }
}
