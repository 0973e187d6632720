/**
 * The two sides of a transfer as state machines, without sockets, files or clocks (SPEC.md, 7 and
 * 8).
 */
@NullMarked
package io.github.haul.client.internal.machine;

import org.jspecify.annotations.NullMarked;
