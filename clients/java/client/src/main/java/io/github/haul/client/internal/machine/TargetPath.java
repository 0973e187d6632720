package io.github.haul.client.internal.machine;

/** What the path of a target stands for. */
public enum TargetPath {
    /** A directory: each source has a name of its own in it. */
    DIRECTORY,
    /** The new name of one source: another source would take the same name. */
    NAME_OF_ONE_SOURCE
}
