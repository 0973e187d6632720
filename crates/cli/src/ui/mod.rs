//! What a user sees of a transfer: a progress line, interval lines or JSON, and the report.

pub mod bench;
pub mod explain;
pub mod json;
pub mod notices;
pub mod plain;
pub mod progress;
pub mod quiet;
pub mod report;
pub mod units;
pub mod verify;

use crate::args::transfer::LowTransfer;
use haul_transfer::{Event, Report};
use std::io::{IsTerminal, Write};

/// Shows the events of one transfer and then its report.
pub trait Screen {
    fn event(&mut self, event: &Event);

    /// No event comes any more: whatever moves on the screen stops.
    fn finish(&mut self) {}

    /// The last thing shown, after [`Screen::finish`].
    fn report(&mut self, report: &Report);
}

/// The screen that was asked for, or that fits where the output goes.
#[must_use]
pub fn screen(low: &LowTransfer) -> Box<dyn Screen> {
    if low.json {
        Box::new(json::Json::new(std::io::stdout(), low.quiet))
    } else if low.quiet {
        Box::new(quiet::Quiet::new(std::io::stderr()))
    } else if low.tree.preflight {
        Box::new(plain::Plain::new(std::io::stdout(), std::io::stderr()).without_files())
    } else {
        for_people()
    }
}

/// A progress line where standard error is a terminal, interval lines elsewhere.
#[must_use]
pub fn for_people() -> Box<dyn Screen> {
    if std::io::stderr().is_terminal() {
        Box::new(progress::ProgressLine::new(std::io::stdout()))
    } else {
        Box::new(plain::Plain::new(std::io::stdout(), std::io::stderr()))
    }
}

/// One line, at once. A closed output does not stop a transfer.
pub fn print_to_stdout(line: &str) {
    write_line(&mut std::io::stdout(), line);
}

/// One message in words, at once.
pub fn print_to_stderr(words: &str) {
    write_line(&mut std::io::stderr(), &format!("haul: {words}"));
}

pub(crate) fn write_line(output: &mut impl Write, line: &str) {
    // The transfer matters more than a reader who went away.
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// Text without the control characters that could play with a terminal.
#[must_use]
pub fn printable(text: &str) -> String {
    haul_transfer::events::printable(text)
}

/// Rows as columns, two blanks between them, no blanks at a line's end.
#[must_use]
pub fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
