package io.github.haul.client.internal.machine;

import io.github.haul.client.internal.proto.Compare;
import io.github.haul.client.internal.proto.Fault;
import io.github.haul.client.internal.proto.Plan;

/** The way in which an offer comes out. */
public sealed interface FileOutcome {
    /** The file is durable under its name at the receiver. */
    record Done() implements FileOutcome {}

    /** The file that is there already is the same. */
    record Skipped() implements FileOutcome {}

    /**
     * The file failed.
     *
     * @param fault why
     */
    record Failed(Fault fault) implements FileOutcome {}

    /**
     * A file of the same size is there: this one is to be offered again, with the word whether it
     * is the same.
     *
     * @param compare what is there
     */
    record ToCompare(Compare compare) implements FileOutcome {}

    /**
     * A dry run: this would be done.
     *
     * @param plan what would be done
     */
    record Planned(Plan plan) implements FileOutcome {}
}
