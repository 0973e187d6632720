import io.github.haul.client.ConnectionChange;
import io.github.haul.client.FileResult;
import io.github.haul.client.HaulClient;
import io.github.haul.client.HaulException;
import io.github.haul.client.SessionOpened;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferOptions;
import io.github.haul.client.TransferProgress;
import java.nio.file.Path;

/** Fetches what a URL names into a directory, and shows how far it is: URL DIRECTORY. */
public class PullWithProgress {
    public static void main(String[] words) throws InterruptedException {
        TransferOptions options = TransferOptions.builder().listener(new Shown()).build();
        try (HaulClient client = HaulClient.connect(words[0])) {
            client.pull(Path.of(words[1]), options);
        } catch (HaulException.FilesFailed failed) {
            for (FileResult file : failed.result().failures()) {
                System.err.println(file.name() + ": " + file.problem());
            }
        } catch (HaulException failed) {
            // What was tried, what it needs, what was found, and what to do.
            System.err.println(failed.problem());
        }
    }

    /** Prints what a user wants to see. It is called on the transfer's own thread. */
    private static final class Shown implements TransferListener {
        @Override
        public void onSession(SessionOpened session) {
            System.out.println(session.server() + " by " + session.streams() + " streams");
        }

        @Override
        public void onConnection(ConnectionChange change) {
            System.out.println("connection " + change.state() + " " + change.why());
        }

        @Override
        public void onProgress(TransferProgress progress) {
            System.out.println(progress.bytesVerified() + " of " + progress.bytesFound());
        }
    }
}
