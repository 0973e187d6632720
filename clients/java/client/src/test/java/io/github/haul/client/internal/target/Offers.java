package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.proto.Digest;
import io.github.haul.client.internal.proto.FileKind;
import io.github.haul.client.internal.proto.FileOffer;
import io.github.haul.client.internal.proto.OnConflict;
import io.github.haul.client.internal.wire.Xxh3;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;

/** Offers of files that are there, as the program haul makes them, and their bytes. */
final class Offers {
    static final long SPAN = 64 << 10;

    private Offers() {}

    static ByteString name(String name) {
        return ByteString.copyFromUtf8(name);
    }

    static FileOffer.Builder of(Path source, String name) throws IOException {
        FileLook look = FileLook.at(source);
        FileOffer.Builder offer =
                FileOffer.newBuilder()
                        .setName(name(name))
                        .setKind(kind(look))
                        .setMtimeS(look.mtimeS())
                        .setMtimeNs(look.mtimeNs())
                        .setMode(look.mode())
                        .setInode(look.inode())
                        .setDevice(look.device())
                        .setCtimeS(look.ctimeS())
                        .setCtimeNs(look.ctimeNs());
        if (look.isFile()) {
            offer.setSizeBytes(look.sizeBytes());
        }
        if (look.kind() == FileLook.Kind.LINK) {
            offer.setLinkTarget(NativeName.bytes(Files.readSymbolicLink(source)));
        }
        return offer;
    }

    private static FileKind kind(FileLook look) {
        return switch (look.kind()) {
            case FILE -> FileKind.REGULAR;
            case DIRECTORY -> FileKind.DIRECTORY;
            case LINK -> FileKind.SYMLINK;
            case OTHER -> FileKind.FILE_KIND_UNKNOWN;
        };
    }

    static TargetOptions options(OnConflict onConflict) {
        return new TargetOptions(onConflict, false, false, true, SPAN, Digest.AES_GMAC);
    }

    static TargetOptions options() {
        return options(OnConflict.SKIP_SAME);
    }

    /** Bytes that a seed makes, none of them zero, so that holes differ from them. */
    static byte[] bytes(int seed, int size) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        for (int at = 0; at < size; at++) {
            bytes[at] |= 1;
        }
        return bytes;
    }

    /** Writes a span of the file, as its stream does. */
    static void write(PartialFile file, byte[] bytes, int span) throws TargetFault {
        int offset = (int) file.grid().offsetBytes(span);
        int length = (int) file.grid().lenBytes(span);
        ByteBuffer direct = ByteBuffer.allocateDirect(length).put(bytes, offset, length);
        file.write(direct.flip(), offset);
        file.verified(span, Xxh3.of(ByteBuffer.wrap(bytes, offset, length)));
    }

    static Prepared.Need need(Target target, FileOffer offer) {
        Prepared prepared = target.prepare(offer);
        if (prepared instanceof Prepared.Need need) {
            return need;
        }
        throw new AssertionError(prepared.toString());
    }

    static PartialFile file(Prepared.Need need) {
        return (PartialFile) need.entry();
    }

    /** Writes all spans that are not there, and commits. */
    static void finish(Target target, Prepared.Need need, byte[] bytes) throws TargetFault {
        PartialFile file = file(need);
        for (int span = 0; span < file.grid().count(); span++) {
            if (!need.durable().contains(span)) {
                write(file, bytes, span);
            }
        }
        target.commit(file);
    }
}
