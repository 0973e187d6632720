//! Standard output, as all commands write to it.
//!
//! A write that fails is told once, on standard error, and the command ends with a status other
//! than 0.
//!
//! A reader that went away (`| head`) is no failure.

use super::print_to_stderr;
use crate::args::usage_problem;
use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Standard output, whose failed writes are told once.
#[derive(Debug)]
pub struct Output(io::Stdout);

impl Output {
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "all others come here")]
    pub fn new() -> Self {
        Self(io::stdout())
    }

    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        noted(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        noted(self.0.flush())
    }
}

fn noted<T>(written: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &written
        && !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted)
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        let what = "standard output is not complete";
        let hint = "send it to where there is room, and run the same command again";
        let needs = "an output that takes every line";
        print_to_stderr(&usage_problem(what, needs, &error.to_string(), hint).to_string());
    }
    written
}

/// Whether something that was to be printed is missing.
#[must_use]
pub fn has_failed() -> bool {
    HAS_FAILED.load(Ordering::Relaxed)
}
