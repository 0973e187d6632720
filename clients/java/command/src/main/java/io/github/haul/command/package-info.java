/** The command of the JVM client: {@code java -jar haul.jar push SOURCE... URL}. */
@NullMarked
package io.github.haul.command;

import org.jspecify.annotations.NullMarked;
