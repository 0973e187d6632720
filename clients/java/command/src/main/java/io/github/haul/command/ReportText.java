package io.github.haul.command;

import io.github.haul.client.FileResult;
import io.github.haul.client.TransferResult;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** The report of a transfer as people read it. */
final class ReportText {
    private static final long RATED_BYTES_MIN = 1 << 20;
    private static final int FAILED_NAMES_MAX = 10;

    private ReportText() {}

    /** The lines of a report. */
    static List<String> of(Report report) {
        TransferResult result = report.result();
        List<String> lines = new ArrayList<>();
        if (report.isDryRun()) {
            String planned = Amounts.bytes(result.bytesPlanned());
            lines.add(
                    "dry run, nothing was changed: "
                            + Amounts.count(result.filesPlanned(), "file")
                            + " would be copied"
                            + ", "
                            + planned);
        } else {
            lines.add(report.from() + " -> " + report.to());
            lines.add(verdict(report) + ": " + amount(report));
        }
        files(report, lines);
        long resumed = report.resumedBytes() - result.bytesSkipped();
        if (resumed > 0) {
            String text = " of these files were there already, not sent again";
            lines.add(line("resumed", Amounts.bytes(resumed) + text));
        }
        if (result.spansResent() > 0) {
            String spans = Amounts.count(result.spansResent(), "span");
            lines.add(line("resent", spans + " that arrived damaged"));
        }
        if (result.connections() > 1) {
            lines.add(line("reconnected", Amounts.count(result.connections() - 1L, "time")));
        }
        if (report.movedBytes() > 0) {
            String spans = result.isComplete() ? "every span" : "every span of the files in place";
            String means =
                    result.protection().equals("clear")
                            ? " (clear: finds accidents, not attacks)"
                            : " (safe: no byte can be changed unseen)";
            lines.add(line("verified", spans + " by " + result.digest() + means));
        }
        return lines;
    }

    private static String verdict(Report report) {
        long failed = report.result().filesFailed();
        if (failed > 0) {
            return "NOT complete, " + Amounts.count(failed, "file") + " failed";
        }
        return report.movedBytes() == 0 ? "complete" : "complete and verified";
    }

    private static String amount(Report report) {
        String files = "";
        TransferResult result = report.result();
        if (result.filesDone() + result.directoriesDone() > 1) {
            files = counted(result.filesDone(), result.directoriesDone()) + ", ";
        }
        String time = Amounts.time(report.seconds());
        if (report.movedBytes() == 0) {
            return files + "no byte was moved in " + time;
        }
        String rate =
                report.movedBytes() < RATED_BYTES_MIN ? "" : ", " + Amounts.rate(report.gbitPerS());
        return files + Amounts.bytes(report.movedBytes()) + " in " + time + rate;
    }

    private static void files(Report report, List<String> lines) {
        TransferResult result = report.result();
        List<String> parts = new ArrayList<>();
        if (report.isDryRun()) {
            if (result.directoriesPlanned() > 0) {
                parts.add(counted(0, result.directoriesPlanned()) + " would be made");
            }
        } else {
            parts.add(counted(result.filesDone(), result.directoriesDone()) + " done");
        }
        if (result.filesSkipped() + result.directoriesSkipped() > 0) {
            String there = counted(result.filesSkipped(), result.directoriesSkipped());
            parts.add(there + " there already");
        }
        if (result.filesFailed() > 0) {
            parts.add(result.filesFailed() + (report.isDryRun() ? " would fail" : " failed"));
        }
        boolean isPlain =
                result.filesSkipped() + result.directoriesSkipped() + result.filesFailed() == 0;
        if (!parts.isEmpty() && (report.isDryRun() || !isPlain)) {
            lines.add(line("files", String.join(", ", parts)));
        }
        if (result.filesLeftOut() > 0) {
            String text = Amounts.count(result.filesLeftOut(), "special file");
            lines.add(line("left out", text + " (a FIFO, a socket or a device)"));
        }
        result.failures().stream()
                .limit(FAILED_NAMES_MAX)
                .map(FileResult::name)
                .forEach(name -> lines.add(line("  failed", name)));
        long unnamed = result.filesFailed() - FAILED_NAMES_MAX;
        if (unnamed > 0) {
            lines.add(line("  failed", "and " + unnamed + " more"));
        }
    }

    private static String counted(long files, long directories) {
        String filesText = Amounts.count(files, "file");
        if (directories == 0) {
            return filesText;
        }
        String directoriesText = directories == 1 ? "1 directory" : directories + " directories";
        return files == 0 ? directoriesText : filesText + " and " + directoriesText;
    }

    private static String line(String label, String text) {
        return String.format(Locale.ROOT, "  %-11s %s", label, text);
    }
}
