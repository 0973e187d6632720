//! The screen of `haul verify`: each file that is not the same, how far it is, and the end.

use super::{json, units, write_line};
use haul_transfer::{VerifiedFile, VerifyEvent, VerifyProgress, VerifyReport, VerifyStatus};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};

/// Bytes of lines that are printed together, of files that are the same, as `--json` prints them: a
/// call for each of a million costs more than reading the file does.
const GATHER_BYTES: usize = 64 << 10;

pub struct VerifyScreen {
    json: bool,
    quiet: bool,
    /// The progress line, where standard error is a terminal.
    bar: Option<ProgressBar>,
    /// Lines that are not printed yet.
    gathered: String,
}

impl VerifyScreen {
    /// Makes the screen for a verification.
    ///
    /// # Panics
    /// If the template below is damaged.
    #[must_use]
    pub fn new(json: bool, quiet: bool) -> Self {
        let moves = !json && !quiet && std::io::stderr().is_terminal();
        let bar = moves.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:12} {wide_msg}");
            bar.with_style(style.expect("the template is right").progress_chars("=> "))
        });
        Self { json, quiet, bar, gathered: String::new() }
    }

    pub fn event(&mut self, event: &VerifyEvent) {
        let is_progress = matches!(event, VerifyEvent::Progress(_));
        if is_progress && self.quiet {
            return;
        }
        if self.json {
            self.gathered += &json::text_of(event);
            self.gathered.push('\n');
            if self.gathered.len() >= GATHER_BYTES || is_progress {
                self.flush();
            }
            return;
        }
        match event {
            VerifyEvent::File(file) => {
                if let Some(line) = file_line(file) {
                    self.line(&line);
                }
            }
            VerifyEvent::Progress(progress) => match &self.bar {
                Some(bar) => {
                    bar.set_length(progress.files_total);
                    bar.set_position(progress.files);
                    bar.set_message(progress_text(progress));
                }
                None => write_line(&mut std::io::stderr(), &progress_text(progress)),
            },
            VerifyEvent::Error(problem) => super::print_to_stderr(&problem.to_string()),
            _ => {}
        }
    }

    fn line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| super::print_to_stdout(line)),
            None => super::print_to_stdout(line),
        }
    }

    fn flush(&mut self) {
        let mut output = super::output::Output::new();
        // That does not stop it: the exit status says how it ended.
        let _ = output.write_all(self.gathered.as_bytes()).and_then(|()| output.flush());
        self.gathered.clear();
    }

    /// Ends the progress line, as no event comes any more.
    pub fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.flush();
    }

    pub fn report(&mut self, report: &VerifyReport) {
        if self.json {
            json::print(&VerifyEvent::Report(report.clone()));
        } else if !self.quiet {
            super::print_to_stdout(&report_text(report));
        }
    }
}

/// The line of a file that is not the same, `differs     run7/scan.vdif`; nothing for one that is.
#[must_use]
pub fn file_line(file: &VerifiedFile) -> Option<String> {
    if file.status == VerifyStatus::Ok {
        return None;
    }
    let why = if file.why.is_empty() {
        String::new()
    } else {
        format!(" ({})", super::printable(&file.why))
    };
    Some(format!("{:<10}  {}{why}", file.status.name(), file.path))
}

fn progress_text(progress: &VerifyProgress) -> String {
    format!(
        "{} of {}, {}, {}",
        progress.files,
        units::count(progress.files_total, "file"),
        units::bytes(progress.bytes),
        units::rate(progress.gbit_per_s)
    )
}

/// The last lines of a verification: how many files are the same, and how they were read.
#[must_use]
pub fn report_text(report: &VerifyReport) -> String {
    match &report.unfinished {
        None => format!("{}; {}", verdict(report), how_read(report)),
        Some(unfinished) => {
            let is_compared = unfinished.compared_bytes >= unfinished.durable_bytes;
            let verdict = match report.ok {
                true => "as it arrived",
                false if report.differs > 0 => "NOT as it arrived",
                false if is_compared => "NOT readable",
                false => "not known whether as it arrived",
            };
            format!(
                "unfinished, {verdict}: {} of {} are durable, {} of these were compared; {}",
                units::bytes(unfinished.durable_bytes),
                units::bytes(unfinished.size_bytes),
                units::bytes(unfinished.compared_bytes),
                how_read(report)
            )
        }
    }
}

fn verdict(report: &VerifyReport) -> String {
    let mut counts = Vec::new();
    for (number, what) in [
        (report.differs, "differ"),
        (report.missing, "missing"),
        (report.unreadable, "unreadable"),
        (report.extra, "not in the manifest"),
    ] {
        if number > 0 {
            counts.push(format!("{number} {what}"));
        }
    }
    if report.ok {
        return format!("all the same: {}", units::count(report.files, "file"));
    }
    let same = format!("{} of {} the same", report.same, units::count(report.files, "file"));
    format!("NOT the same: {}; {same}", counts.join(", "))
}

fn how_read(report: &VerifyReport) -> String {
    let read = format!(
        "{} read in {}, {}",
        units::bytes(report.bytes),
        units::time(report.seconds),
        units::rate(report.gbit_per_s)
    );
    if report.bytes == 0 {
        return read;
    }
    let ways = [
        (report.direct_bytes, "by O_DIRECT, not from the page cache"),
        (report.dropped_bytes, "through the page cache, which was told to forget it before"),
        (report.memory_bytes, "from memory: tmpfs has no disk"),
    ];
    let ways = ways.iter().filter(|(bytes, _)| *bytes > 0);
    let ways = ways.map(|(bytes, way)| format!("\n  {} {way}", units::bytes(*bytes)));
    read + &ways.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::filled;
    use haul_transfer::Name;

    #[test]
    fn a_journal_without_digests_accuses_nobody() {
        let unfinished = filled!(haul_transfer::UnfinishedReport {
            size_bytes: 9,
            durable_bytes: 5,
            compared_bytes: 0,
            ..haul_transfer::UnfinishedReport::default()
        });
        let report = filled!(VerifyReport {
            unreadable: 1,
            unfinished: Some(unfinished),
            ..VerifyReport::default()
        });
        let text = report_text(&report);
        assert!(text.starts_with("unfinished, not known whether as it arrived: 5 B of"), "{text}");
    }

    #[test]
    fn bad_files_are_named_and_counted() {
        let file = |status, why: &str| {
            let name = Name(b"run7/odd\x1bname".to_vec());
            filled!(VerifiedFile { bytes: 7, why: why.into(), ..VerifiedFile::new(name, status) })
        };
        assert_eq!(file_line(&file(VerifyStatus::Ok, "")), None);
        let differs = file_line(&file(VerifyStatus::Differs, "")).unwrap();
        assert_eq!(differs, "differs     run7/odd\\u{1b}name");
        let unreadable = file_line(&file(VerifyStatus::Unreadable, "Input/output error")).unwrap();
        assert_eq!(unreadable, "unreadable  run7/odd\\u{1b}name (Input/output error)");
        let report = filled!(VerifyReport {
            files: 9,
            same: 6,
            differs: 1,
            missing: 2,
            bytes: 5 << 20,
            dropped_bytes: 1 << 20,
            direct_bytes: 4 << 20,
            seconds: 2.0,
            gbit_per_s: 0.021,
            ..VerifyReport::default()
        });
        let text = report_text(&report);
        let expected = "NOT the same: 1 differ, 2 missing; 6 of 9 files the same; 5.00 MiB read in \
                        2.00 s, 21.0 Mbit/s";
        assert!(text.starts_with(expected), "{text}");
        let ways = "\n  4.00 MiB by O_DIRECT, not from the page cache\n  1.00 MiB through the page \
                    cache, which was told to forget it before";
        assert!(text.ends_with(ways), "{text}");
    }
}
