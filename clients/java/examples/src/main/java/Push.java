import io.github.haul.client.HaulClient;
import java.nio.file.Path;

public class Push {
    public static void main(String[] words) throws Exception {
        try (HaulClient client = HaulClient.connect(words[1])) {
            System.out.println(client.push(Path.of(words[0])).bytes() + " bytes");
        }
    }
}
