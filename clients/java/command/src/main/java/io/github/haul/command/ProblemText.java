package io.github.haul.command;

import io.github.haul.client.Problem;
import java.util.Locale;

/** Problems as the program {@code haul} prints them: what, needs, found, and what to do. */
final class ProblemText {
    private ProblemText() {}

    /** The problem in a line, without {@code haul:} in front. */
    static String of(Problem problem) {
        StringBuilder text = new StringBuilder(side(problem.side()));
        if (!problem.path().isEmpty()) {
            text.append(problem.path()).append(": ");
        }
        text.append(problem.what());
        boolean hasNeeds = !problem.needs().isEmpty();
        boolean hasFound = !problem.found().isEmpty();
        if (hasNeeds) {
            text.append(": needs ").append(problem.needs());
        }
        if (hasFound) {
            text.append(hasNeeds ? ", found " : ": ").append(problem.found());
        }
        if (text.charAt(text.length() - 1) != '.') {
            text.append('.');
        }
        if (!problem.hint().isEmpty()) {
            text.append(' ').append(sentence(problem.hint()));
        }
        return text.toString();
    }

    private static String side(String side) {
        return switch (side) {
            case "source", "target" -> side + ": ";
            case "path" -> "network: ";
            default -> "";
        };
    }

    /** Begins text with a capital, unless it begins with something to type, and ends it. */
    private static String sentence(String text) {
        String word = text.split(" ", 2)[0];
        boolean isPlain =
                !word.equals("haul")
                        && word.chars().allMatch(one -> one < 0x80 && Character.isLetter(one));
        String begun =
                isPlain ? text.substring(0, 1).toUpperCase(Locale.ROOT) + text.substring(1) : text;
        return begun.matches("(?s).*[.?!]") ? begun : begun + ".";
    }
}
