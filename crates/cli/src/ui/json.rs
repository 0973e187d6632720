//! `--json`: one object a line on standard output, for programs.

use super::{Screen, notices::Notices, write_line};
use haul_transfer::{Event, Report, events::Problem};
use serde::Serialize;
use std::io::Write;

/// Prints each event as it comes, and each notice in words on standard error.
#[derive(Debug)]
pub struct Json<Output> {
    output: Output,
    quiet: bool,
    notices: Notices,
}

impl<Output: Write> Json<Output> {
    /// With `quiet`, progress is left out.
    pub fn new(output: Output, quiet: bool) -> Self {
        Self { output, quiet, notices: Notices::default() }
    }
}

impl<Output: Write> Screen for Json<Output> {
    fn event(&mut self, event: &Event) {
        if self.quiet && matches!(event, Event::Progress(_)) {
            return;
        }
        write_line(&mut self.output, &text_of(event));
        // Errors are in words on standard error whatever else was asked for.
        if matches!(event, Event::Error(_))
            && let Some(line) = self.notices.line(event)
        {
            write_line(&mut std::io::stderr(), &line);
        }
    }

    fn report(&mut self, report: &Report) {
        write_line(&mut self.output, &text_of(&Event::Report(Box::new(report.clone()))));
    }
}

/// One object on standard output.
pub fn print(object: &impl Serialize) {
    write_line(&mut std::io::stdout(), &text_of(object));
}

/// An error as an event on standard output.
pub fn print_error(problem: &Problem) {
    print(&Event::Error(problem.clone()));
}

fn text_of(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("events are plain data with text keys")
}
