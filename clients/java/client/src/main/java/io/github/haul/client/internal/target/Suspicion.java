package io.github.haul.client.internal.target;

import org.jspecify.annotations.Nullable;

/** Reason why what an earlier run left is not believed before it was read back. */
enum Suspicion {
    /** The user asked for it. */
    ASKED("--recheck asks"),
    /** The host started anew since, and what was in memory when it stopped is gone. */
    STARTED_ANEW("this host was started anew since"),
    /** The file system has another number, as btrfs may at each mount. */
    MOUNTED_ANEW("its file system was mounted anew since"),
    /** Another program wrote to the temporary, cut it, or put another in its place. */
    CHANGED_SINCE("the temporary was changed since its journal was written");

    private final String words;

    Suspicion(String words) {
        this.words = words;
    }

    String words() {
        return words;
    }

    /** Judges a journal; null where it is believed. */
    static @Nullable Suspicion of(Journal.Told told, boolean isChanged, TargetOptions options) {
        byte[] boot = LinuxHost.boot();
        if (options.rechecks()) {
            return ASKED;
        }
        if (!told.circumstances().isOfBoot(boot) || !LinuxHost.isKnownBoot(boot)) {
            return STARTED_ANEW;
        }
        if (!told.hasTargetDevice()) {
            return MOUNTED_ANEW;
        }
        return isChanged ? CHANGED_SINCE : null;
    }
}
