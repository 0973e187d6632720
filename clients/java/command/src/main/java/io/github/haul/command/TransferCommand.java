package io.github.haul.command;

import io.github.haul.client.HaulUrl;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;

/** Command that moves files: its options, and what both directions say at the end of their help. */
@Command(
        mixinStandardHelpOptions = true,
        sortOptions = false,
        exitCodeListHeading = "%nExit status:%n",
        exitCodeList = {
            "0:all done and verified",
            "1:at least one file failed, or the transfer was broken midway: the same command"
                    + " resumes it",
            "2:nothing could start: wrong arguments, no connection, no right"
        },
        footer = {
            "",
            "Environment:",
            "  HAUL_TOKEN  the token, where the URL has none: so no other user sees it in the"
                    + " process list"
        })
abstract class TransferCommand implements Callable<Integer> {
    @Mixin final TransferFlags flags = new TransferFlags();

    final Terminal terminal;

    TransferCommand(Terminal terminal) {
        this.terminal = terminal;
    }

    /** A URL without its token, nor a sign of it. */
    static String shown(HaulUrl url) {
        return url.toString().replaceFirst("^haul://\\.\\.\\.@", "haul://");
    }
}
