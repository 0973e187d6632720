/** Connections to a server: what goes over them is in the package {@code wire}. */
@NullMarked
package io.github.haul.client.internal.net;

import org.jspecify.annotations.NullMarked;
