//! The progress line of a terminal: bytes, rate, time left, streams, files.

use super::{
    Screen, explain,
    notices::{Notices, file_line, lag_text, session_line},
    plain::limiting_text,
    report, units, write_line,
};
use haul_transfer::{Event, Report, events::Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;

/// The weight of the last interval in the rate that the time left is computed from.
const LAST_INTERVAL_WEIGHT: f64 = 0.3;

/// A line that moves on standard error; the report goes to `output`.
#[derive(Debug)]
pub struct ProgressLine<Output> {
    output: Output,
    bar: ProgressBar,
    notices: Notices,
    rate: SmoothRate,
}

impl<Output: Write> ProgressLine<Output> {
    /// # Panics
    /// If the template below is damaged.
    pub fn new(output: Output) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:12} {wide_msg}");
        bar.set_style(style.expect("the template is right").progress_chars("=> "));
        Self { output, bar, notices: Notices::default(), rate: SmoothRate::default() }
    }

    fn above(&self, line: &str) {
        self.bar.suspend(|| write_line(&mut std::io::stderr(), line));
    }
}

impl<Output: Write> Screen for ProgressLine<Output> {
    fn event(&mut self, event: &Event) {
        let lines = [session_line(event), file_line(event), self.notices.line(event)];
        for line in lines.iter().flatten() {
            self.above(line);
        }
        if let Some(block) = explain::block(event) {
            self.above(&block);
        }
        if let Event::Lag(lag) = event {
            self.bar.set_message(format!("{} is behind by {}", lag.path, lag_text(lag)));
        }
        if let Event::Progress(progress) = event {
            self.rate.add(progress);
            self.bar.set_message(progress_text(progress, &self.rate));
            self.bar.set_length(progress.bytes_total);
            self.bar.set_position(progress.bytes_received);
        }
    }

    fn finish(&mut self) {
        self.bar.finish_and_clear();
    }

    fn report(&mut self, report: &Report) {
        write_line(&mut self.output, &report::text(report, self.notices.failed()));
    }
}

/// The rate over the last intervals, so that the time left does not jump.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmoothRate {
    rate_bytes_per_s: Option<f64>,
}

impl SmoothRate {
    pub fn add(&mut self, progress: &Progress) {
        if progress.interval_seconds <= 0.0 {
            return;
        }
        let last = progress.interval_bytes as f64 / progress.interval_seconds;
        let before = self.rate_bytes_per_s.unwrap_or(last);
        self.rate_bytes_per_s = Some(before + (last - before) * LAST_INTERVAL_WEIGHT);
    }

    fn seconds_for(&self, bytes: u64) -> Option<f64> {
        self.rate_bytes_per_s.filter(|rate| *rate >= 1.0).map(|rate| bytes as f64 / rate)
    }
}

/// What stands behind the bar.
#[must_use]
pub fn progress_text(progress: &Progress, rate: &SmoothRate) -> String {
    let left_bytes = progress.bytes_total.saturating_sub(progress.bytes_received);
    let left = rate.seconds_for(left_bytes).map_or_else(|| "-".to_owned(), eta);
    let share = if progress.bytes_total == 0 {
        0.0
    } else {
        progress.bytes_received as f64 / progress.bytes_total as f64
    };
    let limiting = progress.limiting.as_ref().map(limiting_text);
    let limiting = limiting.map_or(String::new(), |text| format!("  {text}"));
    format!(
        "{:>5}  {} of {}  {}  ETA {left}  {}  {}{limiting}",
        units::percent(share),
        units::bytes(progress.bytes_received),
        units::bytes(progress.bytes_total),
        units::rate(progress.gbit_per_s),
        units::count(progress.streams.into(), "stream"),
        units::count(progress.files_done, "file"),
    )
}

/// Whole seconds: tenths would only flicker.
fn eta(seconds: f64) -> String {
    if seconds < 59.5 { format!("{seconds:.0} s") } else { units::time(seconds) }
}
