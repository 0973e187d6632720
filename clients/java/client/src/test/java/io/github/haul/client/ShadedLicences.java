package io.github.haul.client;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The licences in a jar that holds libraries of others. */
public final class ShadedLicences {
    private static final String FOLDER = "META-INF/licenses/";
    private static final Pattern SHADED = Pattern.compile("<include>([a-z.]+):([a-z-]+)</include>");
    private static final Pattern OTHER_TEXT = Pattern.compile("in (LICENSE-[A-Z]+)\\.");

    private ShadedLicences() {}

    /**
     * Checks that what a module puts into its jar comes with its licence: the text, or the name of
     * one that is there too.
     *
     * @param jar the jar that is built, or empty: what goes into it is on the class path
     * @return the libraries that were looked at
     * @throws IOException if something cannot be read
     */
    public static List<String> check(String jar) throws IOException {
        // Maven runs the tests of a module in its folder.
        Matcher shaded = SHADED.matcher(Files.readString(Path.of("pom.xml")));
        List<String> libraries = new ArrayList<>();
        while (shaded.find()) {
            if (!shaded.group(1).equals("io.github.haul")) {
                libraries.add(shaded.group(2));
            }
        }
        assertFalse(libraries.isEmpty(), "the list of what is shaded");
        for (String library : libraries) {
            String licence = text(jar, library + ".txt");
            assertTrue(licence.contains("Copyright"), library + ": " + licence);
            Matcher other = OTHER_TEXT.matcher(licence);
            String terms = other.find() ? text(jar, other.group(1)) : licence;
            assertTrue(terms.length() > 1000, library + " has no terms: " + terms);
        }
        assertTrue(text(jar, "LICENSE-MIT").contains("haul developers"), "haul's own");
        return libraries;
    }

    private static String text(String jar, String name) throws IOException {
        ClassLoader classes = ShadedLicences.class.getClassLoader();
        URL place =
                jar.isEmpty()
                        ? classes.getResource(FOLDER + name)
                        : new URL("jar:" + Path.of(jar).toUri() + "!/" + FOLDER + name);
        assertTrue(place != null, "no " + FOLDER + name);
        try (InputStream text = place.openStream()) {
            return new String(text.readAllBytes(), StandardCharsets.UTF_8);
        }
    }
}
