/** The files that are sent: found, described, opened, and looked at again. */
@NullMarked
package io.github.haul.client.internal.source;

import org.jspecify.annotations.NullMarked;
