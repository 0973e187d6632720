import io.github.haul.client.HaulClient;
import io.github.haul.client.TransferResult;
import java.nio.file.Path;

public class Push {
    public static void main(String[] words) throws Exception {
        try (HaulClient client = HaulClient.connect(words[1])) {
            TransferResult result = client.push(Path.of(words[0]));
            System.out.println(result.bytes() + " bytes in " + result.duration());
        }
    }
}
