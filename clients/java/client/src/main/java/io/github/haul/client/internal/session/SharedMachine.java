package io.github.haul.client.internal.session;

import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.jspecify.annotations.Nullable;

/**
 * A machine that the session's thread and its streams share, under one lock.
 *
 * @param <M> the machine
 */
abstract class SharedMachine<M> {
    private final ReentrantLock lock = new ReentrantLock();
    private final M machine;

    /** What is done with the machine while its lock is held. */
    interface WithMachine<M, T extends @Nullable Object, E extends Exception> {
        T apply(M machine) throws E;
    }

    /** What is done with the machine and has no result. */
    interface RunWithMachine<M, E extends Exception> {
        void run(M machine) throws E;
    }

    SharedMachine(M machine) {
        this.machine = machine;
    }

    /** Does something with the machine. */
    final <T extends @Nullable Object, E extends Exception> T with(WithMachine<M, T, E> work)
            throws E {
        lock.lock();
        try {
            return work.apply(machine);
        } finally {
            lock.unlock();
        }
    }

    /** Does something with the machine that has no result. */
    final <E extends Exception> void run(RunWithMachine<M, E> work) throws E {
        lock.lock();
        try {
            work.run(machine);
        } finally {
            lock.unlock();
        }
    }

    /** Makes a condition that is waited for with the lock held. */
    final Condition condition() {
        return lock.newCondition();
    }
}
