package io.github.haul.client.internal.target;

import io.github.haul.client.internal.machine.SpanSet;

/**
 * An order to read back what an earlier run left of a file: the journal alone is not enough.
 *
 * @param file the file
 * @param spans what is to be read
 * @param why why it is not believed, in words
 */
public record Recheck(PartialFile file, SpanSet spans, String why) {}
