//! The screen of `--quiet`: what failed, and nothing else.

use super::{
    Screen,
    notices::{Notices, Shows},
    write_line,
};
use haul_transfer::{Event, Report};
use std::io::Write;

/// A screen that says what failed. Of a transfer in which nothing did it says nothing.
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
        if let Some(line) = self.notices.line(event, Shows::Failures) {
            write_line(&mut self.errors, &line);
        }
    }

    fn finish(&mut self) {
        for line in self.notices.counted() {
            write_line(&mut self.errors, &line);
        }
    }

    fn report(&mut self, _report: &Report) {}
}
