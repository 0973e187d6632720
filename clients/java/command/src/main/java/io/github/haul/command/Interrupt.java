package io.github.haul.command;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Ctrl-C ends a transfer, says so, and ends the program with the status of a broken transfer. */
final class Interrupt {
    private static final long PATIENCE_S = 5;

    private final CountDownLatch over = new CountDownLatch(1);
    private final Thread hook;

    private Interrupt(CompletableFuture<?> transfer) {
        hook =
                new Thread(
                        () -> {
                            transfer.cancel(true);
                            waitForEnd();
                            Runtime.getRuntime().halt(ExitStatus.SOME_FAILED);
                        },
                        "haul interrupt");
    }

    /** Cancels the transfer at a signal that ends the program. */
    static Interrupt on(CompletableFuture<?> transfer) {
        Interrupt interrupt = new Interrupt(transfer);
        Runtime.getRuntime().addShutdownHook(interrupt.hook);
        return interrupt;
    }

    private void waitForEnd() {
        try {
            boolean unused = over.await(PATIENCE_S, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Says that the transfer is over and all is said. */
    void isOver() {
        over.countDown();
        try {
            boolean unused = Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException shuttingDown) {
            // The hook ends the program.
        }
    }
}
