/** A file system of Hadoop that reads from haul servers. */
@NullMarked
package io.github.haul.hadoop;

import org.jspecify.annotations.NullMarked;
