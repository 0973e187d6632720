//! Interval lines like iperf's, for logs and pipes.

use super::{
    Screen, explain,
    notices::{Notices, file_line, lag_line, session_line},
    report, units, write_line,
};
use haul_transfer::{
    Event, Report,
    events::{Limiting, Progress},
};
use std::io::Write;

/// Prints a line an interval, notices on the error output, the report at the end.
#[derive(Debug)]
pub struct Plain<Output, Errors> {
    output: Output,
    errors: Errors,
    notices: Notices,
    header_shown: bool,
    retransmits_before: u64,
    shows_files: bool,
}

impl<Output: Write, Errors: Write> Plain<Output, Errors> {
    pub fn new(output: Output, errors: Errors) -> Self {
        Self {
            output,
            errors,
            notices: Notices::default(),
            header_shown: false,
            retransmits_before: 0,
            shows_files: true,
        }
    }

    /// Says nothing of single files that would be copied or removed.
    #[must_use]
    pub fn without_files(self) -> Self {
        Self { shows_files: false, ..self }
    }

    fn interval(&mut self, progress: &Progress) {
        if !self.header_shown {
            self.header_shown = true;
            write_line(
                &mut self.output,
                "[  interval       ]  received and verified, in powers of 1024; at the end what \
                 limited it",
            );
        }
        let retransmits = progress.retransmits.saturating_sub(self.retransmits_before);
        self.retransmits_before = progress.retransmits;
        write_line(&mut self.output, &interval_line(progress, retransmits));
    }
}

/// `[  3.00-  4.00 s]  2.31 GBytes  19.8 Gbit/s  retransmits 0  durable 4.10 GBytes  sync 83 %`
fn interval_line(progress: &Progress, retransmits: u64) -> String {
    let limiting = progress.limiting.as_ref().map(limiting_text);
    let limiting = limiting.map_or(String::new(), |text| format!("  {text}"));
    format!(
        "[{:6.2}-{:6.2} s]  {:>11}  {:>11}  retransmits {retransmits}  durable {}{limiting}",
        (progress.seconds - progress.interval_seconds).max(0.0),
        progress.seconds,
        units::iperf_bytes(progress.interval_bytes),
        units::rate(progress.gbit_per_s),
        units::iperf_bytes(progress.bytes_durable),
    )
}

/// `target disk 83 %`
#[must_use]
pub fn limiting_text(limiting: &Limiting) -> String {
    let stage = limiting.stage.replace('_', " ");
    format!("{stage} {}", units::percent(limiting.share))
}

impl<Output: Write, Errors: Write> Screen for Plain<Output, Errors> {
    fn event(&mut self, event: &Event) {
        if let Some(line) = self.notices.line(event) {
            write_line(&mut self.errors, &line);
        }
        let of_file = || file_line(event).filter(|_| self.shows_files);
        if let Some(line) = session_line(event).or_else(of_file).or_else(|| lag_line(event)) {
            write_line(&mut self.output, &line);
        }
        if let Some(block) = explain::block(event) {
            write_line(&mut self.output, &block);
        }
        if let Event::Progress(progress) = event {
            self.interval(progress);
        }
    }

    fn report(&mut self, report: &Report) {
        write_line(&mut self.output, &report::text(report, self.notices.failed()));
    }
}
