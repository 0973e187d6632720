//! `--json`: one object a line on standard output, for programs.

use super::{
    Screen,
    notices::{Notices, Shows},
    output::Output as StandardOutput,
    write_line,
};
use haul_transfer::{Event, Problem, Report};
use serde::Serialize;
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// Time within which lines of files are printed together: a call for each of a million small files
/// costs more than moving them does.
const GATHER: Duration = Duration::from_millis(50);
const GATHER_BYTES_MAX: usize = 64 << 10;

/// Prints each event as it comes, and each notice in words on standard error.
#[derive(Debug)]
pub struct Json<Output: Write> {
    output: Output,
    quiet: bool,
    notices: Notices,
    /// Lines of files that are not printed yet.
    files: String,
    printed_at: Instant,
}

impl<Output: Write> Json<Output> {
    /// Makes a screen of JSON lines; with `quiet`, progress is left out.
    pub fn new(output: Output, quiet: bool) -> Self {
        let (notices, files) = (Notices::default(), String::new());
        Self { output, quiet, notices, files, printed_at: Instant::now() }
    }

    fn line(&mut self, event: &Event) {
        self.files += &text_of(event);
        let waits = matches!(event, Event::File(_))
            && self.files.len() < GATHER_BYTES_MAX
            && self.printed_at.elapsed() < GATHER;
        if waits {
            self.files.push('\n');
            return;
        }
        write_line(&mut self.output, &self.files);
        self.files.clear();
        self.printed_at = Instant::now();
    }
}

impl<Output: Write> Drop for Json<Output> {
    fn drop(&mut self) {
        if let Some(files) = self.files.strip_suffix('\n') {
            write_line(&mut self.output, files);
        }
    }
}

impl<Output: Write> Screen for Json<Output> {
    fn event(&mut self, event: &Event) {
        if self.quiet && matches!(event, Event::Progress(_)) {
            return;
        }
        self.line(event);
        // Errors are in words on standard error whatever else was asked for.
        if matches!(event, Event::Error(_))
            && let Some(line) = self.notices.line(event, Shows::Failures)
        {
            write_line(&mut std::io::stderr(), &line);
        }
    }

    fn finish(&mut self) {
        for line in self.notices.counted() {
            write_line(&mut std::io::stderr(), &line);
        }
    }

    fn report(&mut self, report: &Report) {
        self.line(&Event::Report(Box::new(report.clone())));
    }
}

/// Prints one object on standard output.
pub fn print(object: &impl Serialize) {
    write_line(&mut StandardOutput::new(), &text_of(object));
}

/// Prints an error as an event on standard output.
pub fn print_error(problem: &Problem) {
    print(&Event::Error(problem.clone()));
}

/// The JSON text of an object, on one line.
pub fn text_of(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("events are plain data with text keys")
}
