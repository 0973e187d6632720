/** Addresses of haul servers, and what programs do with them. */
@NullMarked
package io.github.haul.client;

import org.jspecify.annotations.NullMarked;
