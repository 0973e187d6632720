import io.github.haul.client.HaulClient;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.TransferResult;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Sends a file on a thread of its own, and gives up after a minute: FILE URL. What is durable by
 * then stays at the server, and the same call goes on there.
 *
 * <p>The blocking calls are fine on virtual threads, of which JDK 21 and newer have any number:
 *
 * <pre>{@code
 * try (var threads = Executors.newVirtualThreadPerTaskExecutor()) {
 *     files.forEach(file -> threads.submit(() -> client.push(file)));
 * }
 * }</pre>
 */
public class PushAndCancel {
    public static void main(String[] words) throws ExecutionException, InterruptedException {
        try (HaulClient client = HaulClient.connect(words[1])) {
            List<Path> sources = List.of(Path.of(words[0]));
            CompletableFuture<TransferResult> pushing =
                    client.pushAsync(sources, TransferOptions.DEFAULT);
            try {
                System.out.println(pushing.get(1, TimeUnit.MINUTES).bytes() + " bytes");
            } catch (TimeoutException late) {
                pushing.cancel(true);
                System.out.println("it took too long; run it again to go on");
            }
        }
    }
}
