/**
 * Bytes of the haul protocol, version 1, without a socket, a file or a clock.
 *
 * <p>{@code crates/protocol/SPEC.md} describes them; the tests read the vectors beside it.
 */
@NullMarked
package io.github.haul.client.internal.wire;

import org.jspecify.annotations.NullMarked;
