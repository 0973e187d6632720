package io.github.haul.command;

import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Sizes and times in the forms that the program {@code haul} takes and shows: bytes in powers of
 * 1024, bits in powers of 1000.
 */
final class Amounts {
    private static final List<String> BYTE_UNITS = List.of("KiB", "MiB", "GiB", "TiB", "PiB");
    private static final List<String> BIT_UNITS =
            List.of("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s");
    private static final Pattern SIZE =
            Pattern.compile("([0-9]+(?:\\.[0-9]+)?) ?([KMGT]?)(?:i?B)?");
    private static final Pattern TIME = Pattern.compile("([0-9]+(?:\\.[0-9]+)?) ?(|ms|s|m|h|d|w)");
    private static final Map<String, Long> TIME_UNITS_MS =
            Map.of(
                    "ms",
                    1L,
                    "s",
                    1000L,
                    "",
                    1000L,
                    "m",
                    60_000L,
                    "h",
                    3_600_000L,
                    "d",
                    86_400_000L,
                    "w",
                    604_800_000L);
    private static final double TIME_MS_MAX = 100.0 * 365 * 86_400_000;
    private static final double SIZE_MAX = 9e18;
    private static final int KIB = 1024;
    private static final int MINUTE_S = 60;
    private static final int HOUR_S = 3600;

    private Amounts() {}

    /**
     * Reads a size: {@code 8M}, {@code 64KiB}.
     *
     * @throws IllegalArgumentException if the text is none
     */
    static long size(String text) {
        Matcher parts = SIZE.matcher(text.toUpperCase(Locale.ROOT).replace("IB", "iB"));
        if (!parts.matches()) {
            throw new IllegalArgumentException(
                    "\"" + text + "\" is not a size; write it like 4096, 64K, 8M or 1G");
        }
        String unit = parts.group(2);
        double bytes = Double.parseDouble(parts.group(1));
        bytes *= Math.pow(KIB, unit.isEmpty() ? 0 : 1 + "KMGT".indexOf(unit));
        if (bytes > SIZE_MAX) {
            throw new IllegalArgumentException("\"" + text + "\" is too large");
        }
        return (long) bytes;
    }

    /**
     * Reads a duration: {@code 500ms}, {@code 10s}, {@code 15m}; a number alone is seconds.
     *
     * @throws IllegalArgumentException if the text is none
     */
    static Duration time(String text) {
        Matcher parts = TIME.matcher(text);
        if (!parts.matches()) {
            throw new IllegalArgumentException(
                    "\"" + text + "\" is not a duration; write it like 500ms, 10s, 15m or 7d");
        }
        long unitMs = TIME_UNITS_MS.getOrDefault(parts.group(2), 1L);
        double timeMs = Double.parseDouble(parts.group(1)) * unitMs;
        if (timeMs > TIME_MS_MAX) {
            throw new IllegalArgumentException("\"" + text + "\" is more than a hundred years");
        }
        return Duration.ofMillis((long) timeMs);
    }

    /** Shows bytes with three digits: {@code 512 B}, {@code 1.50 KiB}. */
    static String bytes(long count) {
        if (count < KIB) {
            return count + " B";
        }
        double value = (double) count / KIB;
        int unit = 0;
        while (value >= 999.5 && unit + 1 < BYTE_UNITS.size()) {
            value /= KIB;
            unit++;
        }
        return threeDigits(value) + " " + BYTE_UNITS.get(unit);
    }

    /** Shows a rate in bits a second: {@code 19.8 Gbit/s}. */
    static String rate(double gbitPerS) {
        double value = Math.max(gbitPerS, 0) * 1e9;
        int unit = 0;
        while (value >= 999.5 && unit + 1 < BIT_UNITS.size()) {
            value /= 1000;
            unit++;
        }
        String number = unit == 0 ? Long.toString(Math.round(value)) : threeDigits(value);
        return number + " " + BIT_UNITS.get(unit);
    }

    /** Shows a time: {@code 0.42 s}, {@code 3 min 20 s}, {@code 2 h 05 min}. */
    static String time(double seconds) {
        long whole = Math.round(seconds);
        if (whole < MINUTE_S) {
            return threeDigits(seconds) + " s";
        }
        return whole < HOUR_S
                ? String.format("%d min %02d s", whole / MINUTE_S, whole % MINUTE_S)
                : String.format("%d h %02d min", whole / HOUR_S, whole % HOUR_S / MINUTE_S);
    }

    /** Shows a number of things: {@code 1 file}, {@code 2 files}. */
    static String count(long number, String thing) {
        return number + " " + thing + (number == 1 ? "" : "s");
    }

    /** Gbit/s of bytes in a time; 0 where no time went by. */
    static double gbitPerS(long bytes, double seconds) {
        return seconds > 0 ? bytes * 8 / seconds / 1e9 : 0;
    }

    /** Shows a number with three digits: {@code 9.99}, {@code 12.3}, {@code 512}. */
    static String threeDigits(double value) {
        String form = value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f";
        return String.format(Locale.ROOT, form, value);
    }
}
