import io.github.haul.client.ConnectionChange;
import io.github.haul.client.TransferListener;
import io.github.haul.client.TransferNotice;
import java.lang.System.Logger.Level;

/** Writes into the program's log what is out of the ordinary; the JDK says where that log goes. */
public class LoggedTransfer implements TransferListener {
    private static final System.Logger LOG = System.getLogger("haul");

    @Override
    public void onConnection(ConnectionChange change) {
        LOG.log(Level.WARNING, change);
    }

    @Override
    public void onNotice(TransferNotice notice) {
        LOG.log(Level.INFO, notice);
    }
}
