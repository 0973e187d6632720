package io.github.haul.client.internal.target;

import com.google.protobuf.ByteString;
import io.github.haul.client.internal.machine.SpanSet;
import io.github.haul.client.internal.proto.SpanRange;
import io.github.haul.client.internal.wire.DurableDigest;
import io.github.haul.client.internal.wire.Xxh3;
import java.util.Arrays;

/**
 * Digests of a file's spans, the XXH3-128 of the bytes of each, as far as they are known: by them
 * is seen later whether a disk still has the bytes that were verified. 16 bytes of memory a span.
 *
 * <p>Several threads may use it.
 */
final class SpanDigests {
    private final SpanSet known;
    private byte[] digests = {};

    SpanDigests(int fileSpans) {
        known = new SpanSet(fileSpans);
    }

    /** Notes the digest of a span, in the place of what was known of it. */
    synchronized void put(int span, byte[] digest) {
        put(span, digest, 0);
    }

    private void put(int span, byte[] from, int at) {
        if (digests.length == 0) {
            digests = new byte[known.fileSpans() * Xxh3.DIGEST_BYTES];
        }
        known.add(span);
        System.arraycopy(from, at, digests, span * Xxh3.DIGEST_BYTES, Xxh3.DIGEST_BYTES);
    }

    /** Takes a record of a journal: what it has no digest of is not known any more. */
    synchronized void take(JournalRecord record) {
        for (int at = 0; at < record.count(); at++) {
            if (record.digests().length == 0) {
                known.remove(record.first() + at);
            } else {
                put(record.first() + at, record.digests(), at * Xxh3.DIGEST_BYTES);
            }
        }
    }

    /** The digests of a run of spans one after the other; empty where one is not known. */
    synchronized byte[] of(SpanRange range) {
        for (int at = 0; at < range.getCount(); at++) {
            if (!known.contains(range.getFirst() + at)) {
                return new byte[0];
            }
        }
        int begin = range.getFirst() * Xxh3.DIGEST_BYTES;
        return Arrays.copyOfRange(digests, begin, begin + range.getCount() * Xxh3.DIGEST_BYTES);
    }

    /** Whether a span's digest is known, and is this. */
    synchronized boolean is(int span, byte[] digest) {
        int begin = span * Xxh3.DIGEST_BYTES;
        return known.contains(span)
                && Arrays.equals(digest, 0, digest.length, digests, begin, begin + digest.length);
    }

    /** The spans of a set whose digests are not known. */
    synchronized SpanSet unknownOf(SpanSet spans) {
        SpanSet unknown = spans.copy();
        unknown.removeAll(known);
        return unknown;
    }

    /** Digest of what these spans hold (SPEC.md, 7.6); empty where one is not known. */
    synchronized ByteString ofAll(SpanSet spans) {
        DurableDigest all = new DurableDigest();
        for (int span = spans.firstFrom(0); span >= 0; span = spans.firstFrom(span + 1)) {
            if (!known.contains(span)) {
                return ByteString.EMPTY;
            }
            int begin = span * Xxh3.DIGEST_BYTES;
            all.add(span, Arrays.copyOfRange(digests, begin, begin + Xxh3.DIGEST_BYTES));
        }
        return all.end();
    }
}
