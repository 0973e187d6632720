package io.github.haul.client;

import java.time.Duration;
import java.util.Objects;

/**
 * What a transfer is to do beside moving bytes. All are optional; the objects never change.
 *
 * <pre>{@code
 * TransferOptions options = TransferOptions.builder().protection(Protection.CLEAR).build();
 * }</pre>
 */
public final class TransferOptions {
    /** All defaults. */
    public static final TransferOptions DEFAULT = builder().build();

    private static final int STREAMS_MAX = 64;
    private static final long SPAN_BYTES_MIN = 64L << 10;
    private static final long SPAN_BYTES_MAX = 1L << 30;

    private final Protection protection;
    private final OnConflict onConflict;
    private final int streams;
    private final long spanBytes;
    private final boolean isDryRun;
    private final boolean verifiesTarget;
    private final boolean rechecks;
    private final boolean keepsMode;
    private final boolean keepsTime;
    private final Duration retryFor;
    private final Duration stallAfter;
    private final TransferListener listener;

    /** Protection of the data; the control connection is always encrypted. */
    public enum Protection {
        /** Each piece has a CRC-32C: accidents are seen. */
        CLEAR,
        /** Each piece has a MAC (AES-256-GMAC): nobody on the path can change a byte unseen. */
        SAFE
    }

    /** What happens where something else has a file's name. */
    public enum OnConflict {
        /** A file of the same size and time is skipped, others are replaced. */
        SKIP_SAME,
        /** Everything is replaced. */
        REPLACE,
        /** A file that differs stays, and this one fails. */
        FAIL,
        /** A file that differs stays, and this one gets another name. */
        KEEP_BOTH
    }

    private TransferOptions(Builder builder) {
        protection = builder.protection;
        onConflict = builder.onConflict;
        streams = builder.streams;
        spanBytes = builder.spanBytes;
        isDryRun = builder.isDryRun;
        verifiesTarget = builder.verifiesTarget;
        rechecks = builder.rechecks;
        keepsMode = builder.keepsMode;
        keepsTime = builder.keepsTime;
        retryFor = builder.retryFor;
        stallAfter = builder.stallAfter;
        listener = builder.listener;
    }

    /**
     * Begins with all defaults.
     *
     * @return a builder
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * The protection of the data.
     *
     * @return the protection
     */
    public Protection protection() {
        return protection;
    }

    /**
     * What happens where something else has a file's name.
     *
     * @return the rule
     */
    public OnConflict onConflict() {
        return onConflict;
    }

    /**
     * How many data connections are wanted.
     *
     * @return 1 to 64, or 0 for the server's choice
     */
    public int streams() {
        return streams;
    }

    /**
     * The size of the pieces that are verified one by one.
     *
     * @return bytes, or 0 for the receiver's choice
     */
    public long spanBytes() {
        return spanBytes;
    }

    /**
     * Whether nothing is sent, and only told what would be.
     *
     * @return whether it is a dry run
     */
    public boolean isDryRun() {
        return isDryRun;
    }

    /**
     * Whether the receiver reads each file back from its disk before it gets its name.
     *
     * @return whether it does
     */
    public boolean verifiesTarget() {
        return verifiesTarget;
    }

    /**
     * Whether what an earlier run left is read back before it is believed.
     *
     * @return whether it is
     */
    public boolean rechecks() {
        return rechecks;
    }

    /**
     * Whether files get the permission bits of their sources.
     *
     * @return whether they do
     */
    public boolean keepsMode() {
        return keepsMode;
    }

    /**
     * Whether files get the modification times of their sources.
     *
     * @return whether they do
     */
    public boolean keepsTime() {
        return keepsTime;
    }

    /**
     * How long a lost connection is tried again while nothing gets on.
     *
     * @return the time
     */
    public Duration retryFor() {
        return retryFor;
    }

    /**
     * How long a data connection may bring nothing before another takes its place.
     *
     * @return the time
     */
    public Duration stallAfter() {
        return stallAfter;
    }

    /**
     * Who hears of the transfer while it runs.
     *
     * @return the listener
     */
    public TransferListener listener() {
        return listener;
    }

    /** Collects options. */
    public static final class Builder {
        private static final Duration RETRY_FOR_DEFAULT = Duration.ofSeconds(60);
        private static final Duration STALL_AFTER_DEFAULT = Duration.ofSeconds(10);

        private Protection protection = Protection.SAFE;
        private OnConflict onConflict = OnConflict.SKIP_SAME;
        private int streams;
        private long spanBytes;
        private boolean isDryRun;
        private boolean verifiesTarget;
        private boolean rechecks;
        private boolean keepsMode = true;
        private boolean keepsTime = true;
        private Duration retryFor = RETRY_FOR_DEFAULT;
        private Duration stallAfter = STALL_AFTER_DEFAULT;
        private TransferListener listener = TransferListener.NONE;

        private Builder() {}

        /**
         * Protects the data.
         *
         * @param wanted the protection
         * @return this
         */
        public Builder protection(Protection wanted) {
            protection = Objects.requireNonNull(wanted);
            return this;
        }

        /**
         * Says what happens where something else has a file's name.
         *
         * @param rule the rule
         * @return this
         */
        public Builder onConflict(OnConflict rule) {
            onConflict = Objects.requireNonNull(rule);
            return this;
        }

        /**
         * Says how many data connections are wanted.
         *
         * @param count 1 to 64, or 0 for the server's choice
         * @return this
         */
        public Builder streams(int count) {
            if (count < 0 || count > STREAMS_MAX) {
                throw new IllegalArgumentException("streams are 1 to 64, or 0: " + count);
            }
            streams = count;
            return this;
        }

        /**
         * Says how large the pieces are that are verified one by one.
         *
         * @param bytes a power of two of 64 KiB to 1 GiB, or 0 for the receiver's choice
         * @return this
         */
        public Builder spanBytes(long bytes) {
            boolean isSize =
                    Long.bitCount(bytes) == 1 && bytes >= SPAN_BYTES_MIN && bytes <= SPAN_BYTES_MAX;
            if (bytes != 0 && !isSize) {
                throw new IllegalArgumentException(
                        "a span is a power of two of 64 KiB to 1 GiB: " + bytes);
            }
            spanBytes = bytes;
            return this;
        }

        /**
         * Sends nothing, and tells what would be sent.
         *
         * @param wanted whether it is a dry run
         * @return this
         */
        public Builder dryRun(boolean wanted) {
            isDryRun = wanted;
            return this;
        }

        /**
         * Has the receiver read each file back from its disk before it gets its name: by O_DIRECT
         * where the file system has it.
         *
         * @param wanted whether it is to do so
         * @return this
         */
        public Builder verifyTarget(boolean wanted) {
            verifiesTarget = wanted;
            return this;
        }

        /**
         * Has what an earlier run left at the target read back before it is believed. After a start
         * of the target's host, and where a temporary was changed, it is read back anyway.
         *
         * @param wanted whether it is to be
         * @return this
         */
        public Builder recheck(boolean wanted) {
            rechecks = wanted;
            return this;
        }

        /**
         * Says which of their sources' attributes files get.
         *
         * @param mode the permission bits
         * @param time the modification time
         * @return this
         */
        public Builder preserve(boolean mode, boolean time) {
            keepsMode = mode;
            keepsTime = time;
            return this;
        }

        /**
         * Says how long a lost connection is tried again while nothing gets on.
         *
         * @param time the time; zero to give up at once
         * @return this
         */
        public Builder retryFor(Duration time) {
            retryFor = Objects.requireNonNull(time);
            return this;
        }

        /**
         * Says how long a data connection may bring nothing before another takes its place.
         *
         * @param time the time, more than zero
         * @return this
         */
        public Builder stallAfter(Duration time) {
            if (time.isNegative() || time.isZero()) {
                throw new IllegalArgumentException("the time is more than zero: " + time);
            }
            stallAfter = time;
            return this;
        }

        /**
         * Says who hears of the transfer while it runs.
         *
         * @param hears the listener
         * @return this
         */
        public Builder listener(TransferListener hears) {
            listener = Objects.requireNonNull(hears);
            return this;
        }

        /**
         * Makes the options.
         *
         * @return the options
         */
        public TransferOptions build() {
            return new TransferOptions(this);
        }
    }
}
