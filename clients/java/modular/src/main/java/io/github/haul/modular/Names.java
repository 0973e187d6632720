package io.github.haul.modular;

import io.github.haul.client.HaulClient;
import io.github.haul.client.RemoteEntry;

/** Prints the names that a server has at a path: URL PATH. */
public class Names {
    private Names() {}

    /**
     * Prints them.
     *
     * @param words a URL with a token, and a path
     * @throws Exception if the server cannot be asked
     */
    public static void main(String[] words) throws Exception {
        try (HaulClient client = HaulClient.connect(words[0])) {
            for (RemoteEntry entry : client.list(words[1])) {
                System.out.println(entry.name());
            }
        }
    }
}
