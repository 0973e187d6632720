/**
 * What a receiver writes into: hidden temporaries with their journals, directories and links, by
 * the names and bytes of the program haul, so that either goes on with what the other left.
 *
 * <p>The order that holds for a file: its bytes are forced out, then the journal says so; when all
 * of it is there, it is forced out with its mode and time, gets its name, and its directory is
 * synced.
 */
@NullMarked
package io.github.haul.client.internal.target;

import org.jspecify.annotations.NullMarked;
