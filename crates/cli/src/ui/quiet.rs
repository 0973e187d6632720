//! `--quiet`: warnings and errors only.

use super::{Screen, notices::Notices, write_line};
use haul_transfer::{Event, Report};
use std::io::Write;

/// Says what went wrong and nothing else.
#[derive(Debug)]
pub struct Quiet<Errors> {
    errors: Errors,
    notices: Notices,
}

impl<Errors: Write> Quiet<Errors> {
    pub fn new(errors: Errors) -> Self {
        Self { errors, notices: Notices::default() }
    }
}

impl<Errors: Write> Screen for Quiet<Errors> {
    fn event(&mut self, event: &Event) {
        if matches!(event, Event::Resume { .. }) {
            return;
        }
        if let Some(line) = self.notices.line(event) {
            write_line(&mut self.errors, &line);
        }
    }

    fn report(&mut self, report: &Report) {
        if let Some(warning) = Notices::last_warning(report) {
            write_line(&mut self.errors, warning);
        }
    }
}
