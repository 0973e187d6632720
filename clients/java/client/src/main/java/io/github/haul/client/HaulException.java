package io.github.haul.client;

import java.io.IOException;

/** A transfer that did not come to its end, and why. Its subclasses say which kind of reason. */
public sealed class HaulException extends IOException {
    private static final long serialVersionUID = 1;

    private final transient Problem problem;

    private HaulException(Problem problem, Throwable cause) {
        super(problem.toString(), cause);
        this.problem = problem;
    }

    private HaulException(Problem problem) {
        super(problem.toString());
        this.problem = problem;
    }

    /**
     * What went wrong, in words.
     *
     * @return the problem
     */
    public Problem problem() {
        return problem;
    }

    /** No connection could be made, or nothing came on it. */
    public static final class Unreachable extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says which server and why.
         *
         * @param problem the problem
         * @param cause what the connection said
         */
        public Unreachable(Problem problem, Throwable cause) {
            super(problem, cause);
        }
    }

    /** The server is not the one whose key the token names. */
    public static final class WrongServer extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says which server.
         *
         * @param problem the problem
         * @param cause what TLS said
         */
        public WrongServer(Problem problem, Throwable cause) {
            super(problem, cause);
        }
    }

    /**
     * The server refuses, or ends the transfer, in its own words: a token, a right, a full disk.
     */
    public static final class Refused extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says what the server said.
         *
         * @param problem the server's words
         */
        public Refused(Problem problem) {
            super(problem);
        }
    }

    /** Nothing is at the path that was asked for. */
    public static final class NotFound extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says which path.
         *
         * @param problem the server's words
         */
        public NotFound(Problem problem) {
            super(problem);
        }
    }

    /** A file at the server is not what it was when it was opened: nothing more is read of it. */
    public static final class SourceChanged extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says which file.
         *
         * @param problem the problem
         */
        public SourceChanged(Problem problem) {
            super(problem);
        }
    }

    /** The connection was lost and did not come back in time; the same call goes on later. */
    public static final class ConnectionLost extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says what was lost and how long it was tried.
         *
         * @param problem the problem
         */
        public ConnectionLost(Problem problem) {
            super(problem);
        }
    }

    /** One of the two sides said what the protocol forbids. */
    public static final class Protocol extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says what was said.
         *
         * @param problem the problem
         */
        public Protocol(Problem problem) {
            super(problem);
        }
    }

    /** The JVM has too little memory; the same call goes on where this one stopped. */
    public static final class OutOfMemory extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says for what there was none.
         *
         * @param problem the problem
         * @param cause what the JVM said
         */
        public OutOfMemory(Problem problem, Throwable cause) {
            super(problem, cause);
        }
    }

    /** The caller wants what this client or this platform cannot do. */
    public static final class Unsupported extends HaulException {
        private static final long serialVersionUID = 1;

        /**
         * Says what it cannot do.
         *
         * @param problem the problem
         */
        public Unsupported(Problem problem) {
            super(problem);
        }
    }

    /** The transfer came to its end, and some files are not at the target. */
    public static final class FilesFailed extends HaulException {
        private static final long serialVersionUID = 1;

        private final transient TransferResult result;

        /**
         * Says which files failed first, and what arrived.
         *
         * @param problem the first file's problem
         * @param result all that is known
         */
        public FilesFailed(Problem problem, TransferResult result) {
            super(problem);
            this.result = result;
        }

        /**
         * What arrived and what did not.
         *
         * @return the result
         */
        public TransferResult result() {
            return result;
        }
    }
}
