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
    interface WithMachine<M, T, E extends Exception> {
        T apply(M machine) throws E;
    }

    /** What is looked for with the machine while its lock is held, and may not be there. */
    interface FindWithMachine<M, T, E extends Exception> {
        @Nullable T find(M machine) throws E;
    }

    /** What is done with the machine and has no result. */
    interface RunWithMachine<M, E extends Exception> {
        void run(M machine) throws E;
    }

    SharedMachine(M machine) {
        this.machine = machine;
    }

    /** Does something with the machine. */
    final <T, E extends Exception> T with(WithMachine<M, T, E> work) throws E {
        lock.lock();
        try {
            return work.apply(machine);
        } finally {
            lock.unlock();
        }
    }

    /** Looks for something with the machine; null where it is not there. */
    final <T, E extends Exception> @Nullable T find(FindWithMachine<M, T, E> work) throws E {
        lock.lock();
        try {
            return work.find(machine);
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
