package io.github.haul.command;

import io.github.haul.client.HaulToken;
import io.github.haul.client.HaulUrl;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** The source of a token: the URL, {@code --token-file}, or {@code HAUL_TOKEN}. */
final class Tokens {
    /** The variable of the environment that may hold a token. */
    static final String VARIABLE = "HAUL_TOKEN";

    private static final int FILE_BYTES_MAX = 4096;
    private static final String SHAPE = "a token of 53 letters and digits";

    private Tokens() {}

    /**
     * Reads a URL and gives it the token that it lacks. Slashes in front of its path are left out,
     * for the printed URL ends in one.
     *
     * @throws Failure if the text is no URL, or there is no token, or more than one
     */
    static HaulUrl complete(String text, @Nullable Path tokenFile, Map<String, String> environment)
            throws Failure {
        String trimmed = trimmed(text);
        HaulUrl url = parse(trimmed);
        if (url.token() != null) {
            if (tokenFile != null) {
                throw Failure.usage(
                        "cannot take --token-file",
                        "one token",
                        "another in the URL",
                        "leave out one of them: haul://HOST:PORT/path is a URL without a token");
            }
            return url;
        }
        HaulToken token = tokenFile == null ? fromEnvironment(environment) : fromFile(tokenFile);
        return parse(trimmed.replaceFirst("^haul://", "haul://" + token.reveal() + "@"));
    }

    private static String trimmed(String text) {
        return text.replaceFirst("^(haul://[^/]*/)/+", "$1");
    }

    /**
     * Reads a URL, with its token or without one.
     *
     * @throws Failure if the text is no URL
     */
    static HaulUrl parse(String text) throws Failure {
        try {
            return HaulUrl.parse(trimmed(text));
        } catch (IllegalArgumentException wrong) {
            String what = String.valueOf(wrong.getMessage());
            boolean isOfToken = !what.startsWith("not a haul URL");
            throw Failure.usage(isOfToken ? "not a haul URL: " + what : what, "", "", "");
        }
    }

    private static HaulToken fromFile(Path file) throws Failure {
        String found;
        try (InputStream input = Files.newInputStream(file)) {
            byte[] text = input.readNBytes(FILE_BYTES_MAX);
            return HaulToken.parse(new String(text, StandardCharsets.UTF_8).strip());
        } catch (IOException error) {
            found = Sources.why(error);
        } catch (IllegalArgumentException wrong) {
            found = "something else";
        }
        throw Failure.usage(
                "cannot take the token from " + file,
                SHAPE,
                found,
                "the file holds the token alone, the letters and digits before the @ of the URL");
    }

    private static HaulToken fromEnvironment(Map<String, String> environment) throws Failure {
        String text = environment.getOrDefault(VARIABLE, "").strip();
        if (text.isEmpty()) {
            throw Failure.usage(
                    "the URL has no token",
                    "one in the URL (haul://TOKEN@HOST/path), in --token-file or in " + VARIABLE,
                    "none",
                    "copy the whole URL that `haul serve` or `haul token new --host` printed");
        }
        try {
            return HaulToken.parse(text);
        } catch (IllegalArgumentException wrong) {
            throw Failure.usage(
                    "cannot take the token from " + VARIABLE,
                    SHAPE,
                    "something else",
                    "it is the part before the @ of the URL that `haul serve` printed");
        }
    }
}
