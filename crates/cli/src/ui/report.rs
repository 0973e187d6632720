//! The final report as people read it: what was moved, how, and what limited it.

use super::units;
use haul_transfer::{
    Report,
    preflight::{Check, Verdict},
};

/// Stages that are named; the rest is small.
const STAGES_SHOWN: usize = 5;
/// What would be shown as 0 % is not.
const SHARE_SHOWN_MIN: f64 = 0.005;
/// The width of the names at the left.
const LABEL_COLUMNS: usize = 11;
/// The width of the text behind them.
const TEXT_COLUMNS: usize = 84;

/// The lines of the report; `failed` names files that failed.
#[must_use]
pub fn text(report: &Report, failed: &[String]) -> String {
    if report.dry_run {
        return plan(report, failed);
    }
    let nothing_moved = report.moved_bytes == 0 && report.files.done == 0;
    if report.ok && nothing_moved && report.files.removed + report.sources_removed == 0 {
        let lines = [vec![nothing_to_do(report)], what_was_written_down(report)];
        return lines.concat().join("\n");
    }
    let mut lines = vec![headline(report)];
    lines.extend(what_moved(report, failed));
    lines.extend(how_it_moved(report));
    lines.extend(what_was_written_down(report));
    lines.extend(what_it_cost(report));
    lines.join("\n")
}

/// What a dry run found out; each name was said before.
fn plan(report: &Report, failed: &[String]) -> String {
    let files = &report.files;
    let name = if report.preflight.is_empty() { "dry run" } else { "preflight" };
    let mut lines = vec![format!(
        "{name}, nothing was changed: {} would be copied, {}",
        units::count(files.planned, "file"),
        units::bytes(report.planned_bytes)
    )];
    if files.planned_directories > 0 && report.preflight.is_empty() {
        let directories = match files.planned_directories {
            1 => "1 directory".to_owned(),
            several => format!("{several} directories"),
        };
        lines.push(line("files", &format!("{directories} would be made")));
    }
    let counts = [
        (files.skipped, "there already"),
        (files.removed, "would be removed at the target"),
        (files.left_out, "of a kind that is not moved"),
        (files.failed, "would fail"),
    ];
    // A preflight says it among its own.
    let is_shown = |count: u64| count > 0 && report.preflight.is_empty();
    let counts = counts.iter().filter(|(count, _)| is_shown(*count));
    lines.extend(counts.map(|(count, what)| line("files", &format!("{count} {what}"))));
    lines.extend(failed.iter().map(|name| line("  fails", name)));
    lines.extend(report.preflight.iter().map(check_line));
    lines.join("\n")
}

pub(crate) fn check_line(check: &Check) -> String {
    let verdict = match check.verdict {
        Verdict::Ok => "ok: ",
        Verdict::Warning => "LOOK: ",
        Verdict::Failed => "FAILS: ",
    };
    let hint = if check.hint.is_empty() { String::new() } else { format!(" ({})", check.hint) };
    line(&check.name, &format!("{verdict}{}{hint}", check.found))
}

/// The same command again finds everything done.
fn nothing_to_do(report: &Report) -> String {
    format!(
        "nothing to do: {} with {} there already, by size and time (looked for {})",
        units::count(report.files.skipped, "file"),
        units::bytes(report.bytes),
        units::time(report.seconds)
    )
}

fn headline(report: &Report) -> String {
    let verdict = if report.files.failed > 0 {
        format!("NOT complete, {} failed", units::count(report.files.failed, "file"))
    } else if !report.ok {
        "every file is in place, the manifest is NOT complete".to_owned()
    } else if report.digest == "none" {
        "complete, nothing was verified".to_owned()
    } else {
        "complete and verified".to_owned()
    };
    format!(
        "{verdict}: {} in {}, {}",
        units::bytes(report.moved_bytes),
        units::time(report.seconds),
        units::rate(report.gbit_per_s)
    )
}

/// A label and its text, which goes on below itself where it is too long.
fn line(label: &str, text: &str) -> String {
    let mut lines = vec![format!("  {label:<LABEL_COLUMNS$}")];
    let mut columns = 0;
    for word in text.split(' ') {
        if columns > 0 && columns + 1 + word.chars().count() > TEXT_COLUMNS {
            lines.push(" ".repeat(LABEL_COLUMNS + 2));
            columns = 0;
        }
        let last = lines.last_mut().expect("there is a first line");
        last.push(' ');
        last.push_str(word);
        columns += 1 + word.chars().count();
    }
    lines.join("\n")
}

fn what_moved(report: &Report, failed: &[String]) -> Vec<String> {
    let files = &report.files;
    let mut counts = vec![format!("{} done", files.done)];
    if files.skipped > 0 {
        counts.push(format!("{} there already", files.skipped));
    }
    for (count, what) in [
        (files.failed, "failed"),
        (files.left_out, "of a kind that is not moved"),
        (files.removed, "removed at the target"),
        (report.sources_removed, "removed at the source"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let mut lines = vec![line("files", &counts.join(", "))];
    lines.extend(failed.iter().map(|name| line("  failed", name)));
    let unnamed = files.failed.saturating_sub(failed.len() as u64);
    if unnamed > 0 && !failed.is_empty() {
        lines.push(line("  failed", &format!("and {unnamed} more, named above")));
    }
    lines.push(line(
        "in place",
        &format!("{} ({} bytes)", units::bytes(report.bytes), report.bytes),
    ));
    if report.resumed_bytes > 0 {
        let resumed = units::bytes(report.resumed_bytes);
        lines.push(line(
            "resumed",
            &format!("{resumed} of these were there already, not sent again"),
        ));
    }
    if let Some(lag) = &report.largest_lag {
        let most = format!("at most {} behind {}", units::bytes(lag.bytes), lag.path);
        lines.push(line("lag", &most));
    }
    lines
}

fn how_it_moved(report: &Report) -> Vec<String> {
    let verified = match (report.protection.as_str(), report.digest.as_str()) {
        (_, "none") => "NOTHING was verified: damage on the way goes unseen".to_owned(),
        ("clear", digest) => {
            format!("every span by {digest} (clear: finds accidents, not attacks)")
        }
        (protection, digest) => {
            format!("every span by {digest} ({protection}: no byte can be changed unseen)")
        }
    };
    let mut lines = vec![line("verified", &verified)];
    if !report.read_back.is_empty() {
        let text = format!("each file from its disk, before it got its name: {}", report.read_back);
        lines.push(line("read back", &text));
    }
    if let Some(recheck) = &report.recheck {
        let lost = match recheck.lost_bytes {
            0 => "all as they were".to_owned(),
            lost => format!("{} were not as they were, and were sent again", units::bytes(lost)),
        };
        let read = units::bytes(recheck.bytes);
        let text =
            format!("{read} of an earlier run, read back in {:.2} s: {lost}", recheck.seconds);
        lines.push(line("rechecked", &text));
    }
    if !report.send_engine.is_empty() || !report.receive_engine.is_empty() {
        lines
            .push(line("engines", &format!("{} to {}", report.send_engine, report.receive_engine)));
    }
    if !report.chosen_because.is_empty() {
        lines.push(line("", &report.chosen_because));
    }
    let mut wire = vec![units::count(report.streams.into(), "stream")];
    if report.span_bytes > 0 {
        wire.push(format!("spans of {}", units::bytes(report.span_bytes)));
    }
    wire.push(units::count(report.retransmits, "retransmit"));
    lines.push(line("wire", &wire.join(", ")));
    if report.resent_spans > 0 {
        let spans = units::count(report.resent_spans, "span");
        lines.push(line("resent", &format!("{spans} that arrived damaged")));
    }
    if report.reconnections > 0 {
        let times = units::count(report.reconnections, "time");
        lines.push(line("reconnected", &times));
    }
    lines
}

fn what_was_written_down(report: &Report) -> Vec<String> {
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
    vec![line("manifest", &text)]
}

fn what_it_cost(report: &Report) -> Vec<String> {
    let (source, target) = (&report.source, &report.target);
    let mut lines = vec![
        line("copied", &copied(report)),
        line(
            "CPU",
            &format!(
                "source {:.3} s/GB, target {:.3} s/GB (GB of 10^9 bytes)",
                source.cpu_s_per_gb, target.cpu_s_per_gb
            ),
        ),
        line(
            "memory",
            &format!(
                "source {}, target {}",
                units::bytes(source.max_rss_bytes),
                units::bytes(target.max_rss_bytes)
            ),
        ),
    ];
    let bottleneck = &report.bottleneck;
    if !bottleneck.stage.is_empty() {
        let share = units::percent(bottleneck.share);
        lines.push(line(
            "bottleneck",
            &format!("{}, {share} of the time", spaced(&bottleneck.stage)),
        ));
        if !bottleneck.verdict.is_empty() {
            lines.push(line("", &bottleneck.verdict));
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
        lines.push(line("stages", &stages.join(", ")));
    }
    lines
}

/// A stage's name as people write it: `target disk`, not `target_disk`.
fn spaced(stage: &str) -> String {
    stage.replace('_', " ")
}

/// Copied bytes, with how often that is for each moved byte.
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
