//! The final report as people read it: what was moved, where it is, and what limited it.

use super::{
    Look,
    line::{Tone, columns_of, escaped, paint},
    units,
};
use haul_report::printable::printable;
use haul_transfer::{
    Bottleneck, Check, CheckVerdict, RdmaReport, Report, internals::files_and_directories,
};

/// Most stages that are named; the rest is small.
const STAGES_SHOWN: usize = 5;
/// Smallest share that is shown: a smaller one would be 0 %.
const SHARE_SHOWN_MIN: f64 = 0.005;
/// Columns of the names at the left.
const LABEL_COLUMNS: usize = 11;
/// Columns of the text behind the names, at most; at least those below.
const TEXT_COLUMNS: usize = 84;
const TEXT_COLUMNS_MIN: usize = 20;
/// Smallest amount whose rate and costs are shown: those of less are of beginning and ending.
const RATED_BYTES_MIN: u64 = 1 << 20;
/// Shortest transfer that is limited by something a user could change, in seconds.
const LIMITED_SECONDS_MIN: f64 = 1.0;
/// Share of the time from which a stage limited the transfer.
const LIMITED_SHARE_MIN: f64 = 0.5;
/// Words for files and directories that are there and got other attributes.
const UPDATED: &str = "brought up to date in mode, owner, time or xattrs";
/// Factor from costs of 10^9 bytes, as they are stored, to those of 2^30, as they are shown.
const GIB_PER_GB: f64 = 1.073_741_824;

/// Lines of the report; `failed` names files that failed.
///
/// It has three lines, and one for each thing out of the ordinary. The whole is shown where it was
/// asked for, and where one stage limited the transfer.
#[must_use]
pub fn text(report: &Report, failed: &[String], look: Look) -> String {
    let sheet = Sheet { report, look };
    if report.dry_run {
        return sheet.plan(failed);
    }
    let files = &report.files;
    let nothing_moved = report.moved_bytes + files.done + files.done_directories == 0;
    if report.ok && nothing_moved && files.removed + report.sources_removed == 0 {
        let lines = [sheet.place(), vec![nothing_to_do(report)], sheet.what_was_written_down()];
        return lines.concat().join("\n");
    }
    let mut lines = sheet.place();
    lines.push(sheet.headline());
    if look.whole || is_limited(report) {
        lines.extend(sheet.what_moved(failed));
        lines.extend(sheet.how_it_moved());
        lines.extend(sheet.what_was_written_down());
        lines.extend(sheet.what_it_cost());
    } else {
        lines.extend(sheet.what_failed(failed));
        lines.extend(sheet.verified());
        lines.extend(sheet.out_of_the_ordinary());
        lines.extend(sheet.what_was_written_down());
    }
    lines.join("\n")
}

/// Whether one stage, or `--bwlimit`, held the transfer back for most of its time.
fn is_limited(report: &Report) -> bool {
    let Bottleneck { stage, share, .. } = &report.bottleneck;
    let is_held = stage == "limit" || *share >= LIMITED_SHARE_MIN;
    let is_rated = report.moved_bytes >= RATED_BYTES_MIN && report.seconds >= LIMITED_SECONDS_MIN;
    is_rated && is_held && !stage.is_empty()
}

/// A check of a preflight, in a line for any output.
pub(crate) fn check_line(check: &Check) -> String {
    check_line_in(check, TEXT_COLUMNS)
}

fn check_line_in(check: &Check, text_columns: usize) -> String {
    let verdict = match check.verdict {
        CheckVerdict::Ok => "ok: ",
        CheckVerdict::Warning => "LOOK: ",
        CheckVerdict::Failed => "FAILS: ",
    };
    let hint = if check.hint.is_empty() { String::new() } else { format!(" ({})", check.hint) };
    line(&check.name, &format!("{verdict}{}{hint}", check.found), text_columns)
}

/// The line of a run that found everything done.
fn nothing_to_do(report: &Report) -> String {
    let compared =
        if report.compared_content { "compared byte by byte" } else { "by size and time" };
    let what = match report.updated_attributes {
        0 => "nothing to do".to_owned(),
        count => format!("no bytes to move, {count} {UPDATED}"),
    };
    format!(
        "{what}: {} with {} there already, {compared} (looked for {})",
        files_and_directories(report.files.skipped, report.files.skipped_directories),
        units::bytes(report.bytes),
        units::time(report.seconds)
    )
}

/// A label and its text as a line, which goes on below itself where it is too long.
fn line(label: &str, text: &str, text_columns: usize) -> String {
    let mut lines = vec![format!("  {label:<LABEL_COLUMNS$}")];
    let mut columns = 0;
    for word in printable(text).split(' ') {
        if columns > 0 && columns + 1 + columns_of(word) > text_columns {
            lines.push(" ".repeat(LABEL_COLUMNS + 2));
            columns = 0;
        }
        let last = lines.last_mut().expect("there is a first line");
        last.push(' ');
        last.push_str(word);
        columns += 1 + columns_of(word);
    }
    lines.join("\n")
}

/// A report, and the output that it is for.
#[derive(Clone, Copy)]
struct Sheet<'a> {
    report: &'a Report,
    look: Look,
}

impl Sheet<'_> {
    fn line(&self, label: &str, text: &str) -> String {
        line(label, text, text_columns(self.look))
    }

    /// The line of the place: `scan.vdif -> haul://dtn1:7117/scan.vdif`.
    fn place(&self) -> Vec<String> {
        let (from, to) = (&self.report.from.to_string(), &self.report.to.to_string());
        if to.is_empty() {
            return Vec::new();
        }
        let together = format!("{} -> {}", escaped(from), escaped(to));
        if self.look.columns().is_none_or(|columns| columns_of(&together) < columns) {
            return vec![together];
        }
        vec![escaped(from), format!("  -> {}", escaped(to))]
    }

    fn headline(&self) -> String {
        let report = self.report;
        let is_whole = report.ok && report.files.failed == 0;
        let verdict = if report.files.failed > 0 {
            format!("NOT complete, {} failed", units::count(report.files.failed, "file"))
        } else if !report.ok {
            "every file is in place, the manifest is NOT complete".to_owned()
        } else if report.moved_bytes == 0 {
            "complete".to_owned()
        } else if report.digest == "none" {
            "complete, nothing was verified".to_owned()
        } else {
            "complete and verified".to_owned()
        };
        let text = format!("{verdict}: {}", self.amount());
        paint(&text, if is_whole { Tone::Good } else { Tone::Bad }, self.look.colour)
    }

    /// The amount that this run moved, and how fast where that says something.
    fn amount(&self) -> String {
        let report = self.report;
        let time = units::time(report.seconds);
        let (files, directories) = (report.files.done, report.files.done_directories);
        let files = match files + directories {
            0 | 1 => String::new(),
            _ => files_and_directories(files, directories) + ", ",
        };
        if report.moved_bytes == 0 {
            // What came of files that failed may be durable, and is no file yet.
            let what =
                if report.files.failed > 0 { "file was completed" } else { "byte was moved" };
            return format!("{files}no {what} in {time}");
        }
        let rate = if report.moved_bytes < RATED_BYTES_MIN {
            String::new()
        } else {
            format!(", {}", units::rate(report.gbit_per_s))
        };
        format!("{files}{} in {time}{rate}", units::bytes(report.moved_bytes))
    }

    /// Lines of what a dry run found out; each name was said before.
    fn plan(&self, failed: &[String]) -> String {
        let report = self.report;
        let files = &report.files;
        let name = if report.preflight.is_empty() { "dry run" } else { "preflight" };
        let mut lines = vec![format!(
            "{name}, nothing was changed: {} would be copied, {}",
            units::count(files.planned, "file"),
            units::bytes(report.planned_bytes)
        )];
        if files.planned_directories > 0 && report.preflight.is_empty() {
            let directories = files_and_directories(0, files.planned_directories);
            lines.push(self.line("files", &format!("{directories} would be made")));
        }
        let there = counted(files.skipped, files.skipped_directories);
        if files.skipped + files.skipped_directories > 0 && report.preflight.is_empty() {
            lines.push(self.line("files", &format!("{there} there already")));
        }
        let counts = [
            (files.removed, "would be removed at the target"),
            (report.sources_removed, "would be removed at the source"),
            (report.updated_attributes, "would get another mode, owner, time or xattr"),
            (files.left_out, "of a kind that is not moved"),
            (files.failed, "would fail"),
        ];
        // A preflight says it among its own.
        let is_shown = |count: u64| count > 0 && report.preflight.is_empty();
        let counts = counts.iter().filter(|(count, _)| is_shown(*count));
        lines.extend(counts.map(|(count, what)| self.line("files", &format!("{count} {what}"))));
        lines.extend(failed.iter().map(|name| self.line("  fails", name)));
        lines.extend(
            report.preflight.iter().map(|check| check_line_in(check, text_columns(self.look))),
        );
        lines.join("\n")
    }

    /// Lines of how many files there were of each kind, and the names of those that failed.
    fn files(&self, failed: &[String]) -> Vec<String> {
        let report = self.report;
        let files = &report.files;
        let mut counts = vec![format!("{} done", counted(files.done, files.done_directories))];
        if files.skipped + files.skipped_directories > 0 {
            let there = counted(files.skipped, files.skipped_directories);
            counts.push(format!("{there} there already"));
        }
        for (count, what) in [
            (report.updated_attributes, UPDATED),
            (files.failed, "failed"),
            (files.left_out, "of a kind that is not moved"),
            (files.removed, "removed at the target"),
            (report.sources_removed, "removed at the source"),
        ] {
            if count > 0 {
                counts.push(format!("{count} {what}"));
            }
        }
        let mut lines = vec![self.line("files", &counts.join(", "))];
        lines.extend(failed.iter().map(|name| self.line("  failed", name)));
        let unnamed = files.failed.saturating_sub(failed.len() as u64);
        if unnamed > 0 && !failed.is_empty() {
            lines.push(self.line("  failed", &format!("and {unnamed} more")));
        }
        lines
    }

    /// Lines of the files, where they did not all go the same way.
    fn what_failed(&self, failed: &[String]) -> Vec<String> {
        let files = &self.report.files;
        let skipped = files.skipped + files.skipped_directories;
        let others = skipped + files.failed + files.left_out + files.removed;
        let is_plain = others + self.report.sources_removed == 0;
        if is_plain { Vec::new() } else { self.files(failed) }
    }

    fn what_moved(&self, failed: &[String]) -> Vec<String> {
        let report = self.report;
        let mut lines = self.files(failed);
        let in_place = format!("{} ({} bytes)", units::bytes(report.bytes), report.bytes);
        if report.bytes > 0 {
            let kept =
                if report.to.to_string().ends_with("null:") { "thrown away" } else { "in place" };
            lines.push(self.line(kept, &in_place));
        }
        lines
    }

    /// Lines of what does not happen in every transfer.
    fn out_of_the_ordinary(&self) -> Vec<String> {
        let report = self.report;
        let mut lines = Vec::new();
        // Whole files that were there are among the files.
        let resumed_bytes = report.resumed_bytes.saturating_sub(report.skipped_bytes);
        if resumed_bytes > 0 {
            let resumed = units::bytes(resumed_bytes);
            let text = format!("{resumed} of these files were there already, not sent again");
            lines.push(self.line("resumed", &text));
        }
        if let Some(lag) = &report.largest_lag {
            let most = format!("at most {} behind {}", units::bytes(lag.bytes), lag.path);
            lines.push(self.line("lag", &most));
        }
        if !report.way.is_empty() {
            lines.push(self.line("way", &report.way));
        }
        lines.extend(report.ssh.iter().map(|ssh| {
            let (carried, without) = (ssh.gbit_per_s, ssh.without_gbit_per_s);
            let text = format!(
                "ssh carried {}; without it both ends may do about {}, a guess from their own \
                 work, over a network that carries as much",
                units::rate(carried),
                units::rate(without)
            );
            self.line("", &text)
        }));
        if report.resent_spans > 0 {
            let spans = units::count(report.resent_spans, "span");
            lines.push(self.line("resent", &format!("{spans} that arrived damaged")));
        }
        let away = report.seconds_without_server;
        let without = format!("{} without the server, in no stage's share", units::time(away));
        if report.reconnections > 0 {
            let times = units::count(report.reconnections, "time");
            let without = if away > 0.0 { format!("; {without}") } else { String::new() };
            lines.push(self.line("reconnected", &(times + &without)));
        } else if away > 0.0 {
            lines.push(self.line("silent", &without));
        }
        if !report.read_back.is_empty() {
            let way = &report.read_back;
            let text = format!("each file from its disk, before it got its name: {way}");
            lines.push(self.line("read back", &text));
        }
        if let Some(recheck) = &report.recheck {
            let lost = match recheck.lost_bytes {
                0 => "all as they were".to_owned(),
                lost => format!("{} were not as they were, and came again", units::bytes(lost)),
            };
            let read = units::bytes(recheck.bytes);
            let seconds = recheck.seconds;
            let text = format!("{read} of an earlier run, read back in {seconds:.2} s: {lost}");
            lines.push(self.line("rechecked", &text));
        }
        lines
    }

    /// The line of what was verified; none where nothing was moved.
    fn verified(&self) -> Vec<String> {
        let report = self.report;
        if report.moved_bytes == 0 {
            return Vec::new();
        }
        let spans =
            if report.files.failed > 0 { "every span of the files in place" } else { "every span" };
        let text = match (report.protection.as_str(), report.digest.as_str()) {
            (_, "none") => "NOTHING was verified: damage on the way goes unseen".to_owned(),
            ("clear", digest) => {
                format!("{spans} by {digest} (clear: finds accidents, not attacks)")
            }
            ("private", digest) => {
                format!(
                    "{spans} by TLS and {digest} (private: no byte can be read or changed unseen)"
                )
            }
            (protection, digest) => {
                format!("{spans} by {digest} ({protection}: no byte can be changed unseen)")
            }
        };
        vec![self.line("verified", &text)]
    }

    fn how_it_moved(&self) -> Vec<String> {
        let report = self.report;
        let mut lines = self.verified();
        lines.extend(self.out_of_the_ordinary());
        if report.moved_bytes == 0 {
            return lines;
        }
        if !report.send_engine.is_empty() || !report.receive_engine.is_empty() {
            lines.push(
                self.line(
                    "engines",
                    &format!("{} to {}", report.send_engine, report.receive_engine),
                ),
            );
        }
        if !report.chosen_because.is_empty() {
            lines.push(self.line("", &report.chosen_because));
        }
        let mut wire = vec![units::count(report.streams.into(), "stream")];
        if report.span_bytes > 0 {
            wire.push(format!("spans of {}", units::bytes(report.span_bytes)));
        }
        wire.push(units::count(report.retransmits, "retransmit"));
        lines.push(self.line("wire", &wire.join(", ")));
        lines.extend(self.rdma());
        lines
    }

    /// Lines of what RDMA endpoints did, and of why data went by TCP instead.
    fn rdma(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(RdmaReport { provider, source, target, .. }) = &self.report.rdma {
            let took = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
            lines.push(self.line(
                "RDMA",
                &format!(
                    "{provider}, {} to {}; sent {} out of {}, {} out of buffers",
                    source.port,
                    target.port,
                    units::bytes(source.window_bytes),
                    units::count(source.windows, "window"),
                    units::bytes(source.buffered_bytes),
                ),
            ));
            lines.push(self.line(
                "",
                &format!(
                    "{} in {}, {} for the receiver's buffers",
                    units::count(source.registrations, "registration"),
                    took(source.registering_seconds),
                    units::count(source.waits_for_room, "wait"),
                ),
            ));
            if !source.refused.is_empty() {
                let why = format!("pages were not registered but copied: {}", source.refused);
                lines.push(self.line("", &why));
            }
            lines.push(self.line(
                "",
                &format!(
                    "received: {} past the page cache, {} by way of it; {} in {}",
                    units::bytes(target.direct_bytes),
                    units::bytes(target.cached_bytes),
                    units::count(target.registrations, "registration"),
                    took(target.registering_seconds),
                ),
            ));
        }
        if !self.report.proxy.is_empty() {
            lines.push(self.line("", &format!("by way of {}", self.report.proxy)));
        }
        for end in &self.report.local_ends {
            let text = format!(
                "from {}: {}, {}, {}",
                end.address,
                units::count(end.streams.into(), "stream"),
                units::bytes(end.bytes),
                units::rate(end.gbit_per_s)
            );
            lines.push(self.line("", &text));
        }
        if !self.report.tcp_because.is_empty() {
            let why = format!("by TCP, not RDMA: {}", self.report.tcp_because);
            lines.push(self.line("", &why));
        }
        lines
    }

    fn what_was_written_down(&self) -> Vec<String> {
        let report = self.report;
        let Some(manifest) = &report.manifest else { return Vec::new() };
        let files = units::count(manifest.files, "file");
        let mut text = format!("{}: {files}, {}", manifest.path, units::bytes(manifest.bytes));
        if manifest.read_bytes > 0 {
            let read = units::bytes(manifest.read_bytes);
            text += &format!("; {read} of these were not moved now and have been read for it");
        }
        let failed = report.files.failed > 0;
        if failed || manifest.left_out > 0 {
            text += "; NOT of all files: those that failed or changed have no line";
        }
        vec![self.line("manifest", &text)]
    }

    /// Lines of processor time and memory, and of what limited; none where next to nothing was
    /// moved.
    fn what_it_cost(&self) -> Vec<String> {
        let report = self.report;
        if report.moved_bytes < RATED_BYTES_MIN {
            return Vec::new();
        }
        let (source, target) = (&report.source, &report.target);
        let cpu = |cpu_s_per_gb: f64| format!("{:.3} s/GiB", cpu_s_per_gb * GIB_PER_GB);
        let memory = |bytes| units::bytes(bytes);
        let both = |source: String, target: String| format!("source {source}, target {target}");
        let mut lines = vec![
            self.line("copied", &copied(report)),
            self.line("CPU", &both(cpu(source.cpu_s_per_gb), cpu(target.cpu_s_per_gb))),
            self.line("memory", &both(memory(source.max_rss_bytes), memory(target.max_rss_bytes))),
        ];
        let bottleneck = &report.bottleneck;
        if !bottleneck.stage.is_empty() {
            let share = units::percent(bottleneck.share);
            lines.push(self.line(
                "bottleneck",
                &format!("{}, {share} of the time", spaced(&bottleneck.stage)),
            ));
            if !bottleneck.because.is_empty() {
                lines.push(self.line("", &bottleneck.because));
            }
            if !bottleneck.verdict.is_empty() {
                lines.push(self.line("", &bottleneck.verdict));
            }
        }
        let stages: Vec<String> = report
            .stages
            .iter()
            .filter(|(_, share)| *share >= SHARE_SHOWN_MIN)
            .take(STAGES_SHOWN)
            .map(|(stage, share)| format!("{} {}", spaced(stage), units::percent(*share)))
            .collect();
        if !stages.is_empty() {
            lines.push(self.line("stages", &stages.join(", ")));
        }
        lines
    }
}

/// A count of files: a number where all are files or links, and words where directories are among
/// them.
fn counted(files: u64, directories: u64) -> String {
    match directories {
        0 => files.to_string(),
        directories => files_and_directories(files, directories),
    }
}

/// Number of columns behind a label.
fn text_columns(look: Look) -> usize {
    let fits =
        look.columns().map_or(TEXT_COLUMNS, |columns| columns.saturating_sub(LABEL_COLUMNS + 3));
    fits.clamp(TEXT_COLUMNS_MIN, TEXT_COLUMNS)
}

/// A stage's name as people write it: `target disk`, not `target_disk`.
fn spaced(stage: &str) -> String {
    stage.replace('_', " ")
}

/// Copied bytes in words, with how often that is for each moved byte.
fn copied(report: &Report) -> String {
    if report.copied_bytes == 0 {
        return "nothing: no byte passed through user space".to_owned();
    }
    let copied = units::bytes(report.copied_bytes);
    if report.moved_bytes == 0 {
        return copied;
    }
    let times = report.copied_bytes as f64 / report.moved_bytes as f64;
    format!("{copied} by the CPU, {times:.2} times each byte")
}
