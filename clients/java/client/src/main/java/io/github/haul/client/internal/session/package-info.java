/** A session with a server: its thread, its data streams, and the two roles that it may have. */
@NullMarked
package io.github.haul.client.internal.session;

import org.jspecify.annotations.NullMarked;
