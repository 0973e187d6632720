//! The screens of a transfer: a progress line, interval lines or JSON, and the report.

pub mod explain;
pub mod json;
pub mod line;
pub mod notices;
pub mod output;
pub mod plain;
pub mod progress;
pub mod quiet;
pub mod report;
pub mod shell;
pub mod steps;
pub mod verify;

use crate::args::transfer::LowTransfer;
pub use haul_report::{aligned, printable, units};
use haul_transfer::{Event, Report};
use line::Colour;
use output::Output;
use std::io::{IsTerminal, Write};

/// The look of an output: how wide it is, whether it has colours, and how much is told.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub width: Width,
    pub colour: Colour,
    /// Whether the whole report is shown, whatever limited the transfer, and each session
    /// (`--report`).
    pub whole: bool,
}

/// The width of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// Any width: a file or a pipe takes lines of any length.
    Any,
    Columns(usize),
    /// The width of the terminal at the time.
    Output,
    Errors,
}

/// Columns of a terminal that does not say how wide it is.
const COLUMNS_DEFAULT: usize = 80;

impl Look {
    /// The look of standard output.
    #[must_use]
    pub fn of_output(whole: bool) -> Self {
        let is_terminal = Output::new().is_terminal();
        Self { width: Width::Output.if_terminal(is_terminal), colour: colour(is_terminal), whole }
    }

    /// The look of standard error.
    #[must_use]
    pub fn of_errors(whole: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { width: Width::Errors.if_terminal(is_terminal), colour: colour(is_terminal), whole }
    }

    /// The number of columns at the time; `None` is any number.
    #[must_use]
    pub fn columns(self) -> Option<usize> {
        let of = |terminal: console::Term| {
            let size = terminal.size_checked().map(|(_, columns)| usize::from(columns));
            size.filter(|columns| *columns > 0).or(Some(COLUMNS_DEFAULT))
        };
        match self.width {
            Width::Any => None,
            Width::Columns(columns) => Some(columns),
            Width::Output => of(console::Term::stdout()),
            Width::Errors => of(console::Term::stderr()),
        }
    }
}

impl Width {
    fn if_terminal(self, is_terminal: bool) -> Self {
        if is_terminal { self } else { Self::Any }
    }
}

/// Whether an output has colours: a terminal has unless its user wants none
/// (<https://no-color.org>) or it is a dumb one.
fn colour(is_terminal: bool) -> Colour {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_terminal && !no_colour && !is_dumb() { Colour::On } else { Colour::Off }
}

/// Whether the terminal is one on which no line can be written again.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|kind| kind == "dumb" || kind.is_empty())
}

/// Shows the events of one transfer and then its report.
pub trait Screen {
    fn event(&mut self, event: &Event);

    /// Stops whatever moves on the screen, as no event comes any more.
    fn finish(&mut self) {}

    /// Shows the report, the last thing after [`Screen::finish`].
    fn report(&mut self, report: &Report);
}

/// The screen that was asked for, or that fits where the output goes.
#[must_use]
pub fn screen(low: &LowTransfer) -> Box<dyn Screen> {
    if low.json {
        Box::new(json::Json::new(Output::new(), low.quiet))
    } else if low.quiet {
        Box::new(quiet::Quiet::new(std::io::stderr()))
    } else if low.tree.preflight {
        let look = Look::of_output(low.report);
        Box::new(plain::Plain::new(Output::new(), std::io::stderr(), look).without_files())
    } else {
        for_people(low.report)
    }
}

/// The screen for people: a progress line where standard error is a terminal that can move one,
/// interval lines elsewhere. `whole` asks for the whole report.
#[must_use]
pub fn for_people(whole: bool) -> Box<dyn Screen> {
    let look = Look::of_output(whole);
    if std::io::stderr().is_terminal() && !is_dumb() {
        Box::new(progress::ProgressLine::new(Output::new(), Look::of_errors(whole), look))
    } else {
        Box::new(plain::Plain::new(Output::new(), std::io::stderr(), look))
    }
}

/// Prints one line at once. A closed output does not stop a transfer: see [`output`].
pub fn print_to_stdout(line: &str) {
    write_line(&mut Output::new(), line);
}

/// Prints one message in words at once.
pub fn print_to_stderr(words: &str) {
    write_line(&mut std::io::stderr(), &format!("haul: {words}"));
}

pub(crate) fn write_line(output: &mut impl Write, line: &str) {
    // The transfer matters more than a reader who went away.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}
