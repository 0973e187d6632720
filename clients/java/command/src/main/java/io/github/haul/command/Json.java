package io.github.haul.command;

import java.util.Collection;

/** An object of JSON, on one line; its fields stand in the order in which they are put. */
final class Json {
    private static final int CONTROLS_END = 0x20;

    private final StringBuilder text = new StringBuilder("{");

    /** Begins an event: a line of {@code --json}. */
    static Json event(String name) {
        return new Json().put("event", name);
    }

    Json put(String name, String value) {
        return raw(name, quoted(value));
    }

    Json put(String name, long value) {
        return raw(name, Long.toString(value));
    }

    Json put(String name, boolean value) {
        return raw(name, Boolean.toString(value));
    }

    /** Puts a number; one that is none, as 0/0, is null. */
    Json put(String name, double value) {
        return raw(name, Double.isFinite(value) ? Double.toString(value) : "null");
    }

    Json put(String name, Json value) {
        return raw(name, value.toString());
    }

    /** Puts a list of numbers or objects, which write themselves as JSON. */
    Json put(String name, Collection<?> values) {
        return raw(name, String.join(",", values.stream().map(String::valueOf).toList()), "[", "]");
    }

    private Json raw(String name, String value) {
        return raw(name, value, "", "");
    }

    private Json raw(String name, String value, String before, String after) {
        if (text.length() > 1) {
            text.append(',');
        }
        text.append(quoted(name)).append(':').append(before).append(value).append(after);
        return this;
    }

    private static String quoted(String value) {
        StringBuilder quoted = new StringBuilder(value.length() + 2).append('"');
        for (int at = 0; at < value.length(); at++) {
            char one = value.charAt(at);
            if (one == '"' || one == '\\') {
                quoted.append('\\').append(one);
            } else if (one < CONTROLS_END) {
                quoted.append(String.format("\\u%04x", (int) one));
            } else {
                quoted.append(one);
            }
        }
        return quoted.append('"').toString();
    }

    @Override
    public String toString() {
        return text + "}";
    }
}
