//! Interval lines like iperf's, for logs and pipes.

use super::{
    Look, Screen, explain,
    line::{Colour, Part, fitted},
    notices::{Notices, Shows, file_line, lag_line, session_line},
    progress::outage_parts,
    report, units, write_line,
};
use haul_transfer::{Connection, ConnectionState, Event, Limiting, Progress, Report};
use std::io::Write;

/// Seconds after which an outage is said again.
const OUTAGE_EVERY_S: f64 = 10.0;
/// Share of an interval below which a stage did not limit it.
const LIMITING_SHARE_MIN: f64 = 0.05;
/// Columns of a line in a log, which takes any.
const LOG_COLUMNS: usize = 1000;

/// A screen that prints a line an interval, notices on the error output, the report at the end.
#[derive(Debug)]
pub struct Plain<Output, Errors> {
    output: Output,
    errors: Errors,
    notices: Notices,
    look: Look,
    header_shown: bool,
    retransmits_before: u64,
    /// State of the connection that was said last, and how long it was so.
    outage_said: Option<(ConnectionState, f64)>,
    shows_files: bool,
}

impl<Output: Write, Errors: Write> Plain<Output, Errors> {
    pub fn new(output: Output, errors: Errors, look: Look) -> Self {
        Self {
            output,
            errors,
            notices: Notices::default(),
            look,
            header_shown: false,
            retransmits_before: 0,
            outage_said: None,
            shows_files: true,
        }
    }

    /// Makes the screen say nothing of single files that would be copied or removed.
    #[must_use]
    pub fn without_files(self) -> Self {
        Self { shows_files: false, ..self }
    }

    fn interval(&mut self, progress: &Progress) {
        if !self.header_shown {
            self.header_shown = true;
            let parts = vec![
                Part::new(80, "[  interval       ]"),
                Part::new(60, "received and verified"),
                Part::new(90, "Ki, Mi, Gi are powers of 1024, k, M, G of 1000"),
                Part::new(50, "at the end what limited it"),
            ];
            let columns = self.look.columns().unwrap_or(LOG_COLUMNS);
            write_line(&mut self.output, &fitted(parts, None, columns, Colour::Off));
        }
        let before = self.retransmits_before;
        let retransmits = progress.retransmits.map(|count| count.saturating_sub(before));
        self.retransmits_before = progress.retransmits.unwrap_or(before);
        let columns = self.look.columns().unwrap_or(LOG_COLUMNS);
        write_line(&mut self.output, &interval_line(progress, retransmits, columns));
    }

    fn outage(&mut self, outage: &Connection) {
        let is_news = self.outage_said.is_none_or(|(state, seconds)| {
            state != outage.state || outage.seconds >= seconds + OUTAGE_EVERY_S
        });
        if is_news {
            self.outage_said = Some((outage.state, outage.seconds));
            let line = fitted(outage_parts(outage, 0.0), None, LOG_COLUMNS, Colour::Off);
            write_line(&mut self.errors, &format!("haul: {line}"));
        }
        if outage.state == ConnectionState::Back {
            self.outage_said = None;
        }
    }
}

/// The line of an interval: `[  3.00-  4.00 s]  2.31 GiB  19.8 Gbit/s  retransmits 0  durable 4.10
/// GiB  sync 83 %`, less what does not fit: first the durable bytes, then retransmits, the
/// interval, the amount. A side that only receives knows of no retransmits.
#[must_use]
pub fn interval_line(progress: &Progress, retransmits: Option<u64>, columns: usize) -> String {
    let begun = (progress.seconds - progress.interval_seconds).max(0.0);
    let limiting = limiting_text(progress).unwrap_or_default();
    let mut parts = vec![
        Part::new(40, format!("[{begun:6.2}-{:6.2} s]", progress.seconds)),
        Part::new(50, format!("{:>10}", units::bytes(progress.interval_bytes))),
        Part::new(90, format!("{:>11}", units::rate(progress.gbit_per_s))),
        Part::new(20, format!("durable {}", units::bytes(progress.bytes_durable))),
        Part::new(80, limiting),
    ];
    if let Some(retransmits) = retransmits {
        parts.insert(3, Part::new(30, format!("retransmits {retransmits}")));
    }
    fitted(parts, None, columns, Colour::Off)
}

/// The limiting stage in words: `target disk 83 %`; `limit reached` where another stage has a
/// larger share. What took next to no time limited nothing.
#[must_use]
pub fn limiting_text(progress: &Progress) -> Option<String> {
    let Limiting { stage, share, because, .. } = progress.limiting.as_ref()?;
    let stage = stage.replace('_', " ");
    if !because.is_empty() {
        return Some(format!("{stage} reached"));
    }
    (*share >= LIMITING_SHARE_MIN).then(|| format!("{stage} {}", units::percent(*share)))
}

impl<Output: Write, Errors: Write> Screen for Plain<Output, Errors> {
    fn event(&mut self, event: &Event) {
        if let Some(line) = self.notices.line(event, Shows::All) {
            write_line(&mut self.errors, &line);
        }
        let of_session = || session_line(event, self.look.whole);
        let of_file = || file_line(event).filter(|_| self.shows_files);
        if let Some(line) = of_session().or_else(of_file).or_else(|| lag_line(event)) {
            write_line(&mut self.output, &line);
        }
        if let Some(block) = explain::block(event) {
            write_line(&mut self.output, &block);
        }
        match event {
            Event::Progress(progress) => self.interval(progress),
            Event::Connection(outage) => self.outage(outage),
            _ => {}
        }
    }

    fn finish(&mut self) {
        for line in self.notices.counted() {
            write_line(&mut self.errors, &line);
        }
    }

    fn report(&mut self, report: &Report) {
        let text = report::text(report, self.notices.failed(), self.look);
        write_line(&mut self.output, &text);
    }
}
