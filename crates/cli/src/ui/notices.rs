//! What happens once and is said once: errors, fallbacks, stalls, a resume.

use super::units;
use haul_transfer::{
    Event, Report,
    events::{FileEnded, FileStatus, Lag, Name, Side},
};
use std::collections::HashSet;

/// Fallbacks that are remembered so that they are said once.
const FALLBACKS_MAX: usize = 256;
/// Failed files whose names the end repeats.
const FAILED_NAMES_MAX: usize = 10;

/// Remembers what was said.
#[derive(Debug, Default)]
pub struct Notices {
    fallbacks: HashSet<String>,
    failed: Vec<String>,
}

impl Notices {
    /// The line for standard error, if the event has one.
    pub fn line(&mut self, event: &Event) -> Option<String> {
        let words = match event {
            Event::Error(problem) => {
                self.remember_failed(&problem.path);
                problem.to_string()
            }
            Event::Fallback { side, from_to, why } => {
                let words = format!("{}: {from_to}: {why}", side_name(*side));
                if self.fallbacks.len() >= FALLBACKS_MAX || !self.fallbacks.insert(words.clone()) {
                    return None;
                }
                words
            }
            Event::Stall { stage, seconds, what } => {
                format!("{stage} stalled for {}: {what}", units::time(*seconds))
            }
            Event::Resume { bytes, why } => {
                format!("goes on from {}: {why}", units::bytes(*bytes))
            }
            Event::Rereading { path, why } => format!("{path} is read again: {why}"),
            Event::Waiting { server, seconds, why } => {
                format!("waits up to {} for {server}: {why}", units::time(*seconds))
            }
            Event::LeftOut(problem) => problem.to_string(),
            Event::File(FileEnded { path, status: FileStatus::Failed, .. }) => {
                self.remember_failed(path);
                return None;
            }
            Event::File(_)
            | Event::Session(_)
            | Event::Progress(_)
            | Event::Lag(_)
            | Event::Explained(_)
            | Event::Report(_) => return None,
        };
        Some(format!("haul: {words}"))
    }

    fn remember_failed(&mut self, path: &Name) {
        let name = path.to_string();
        if self.failed.len() < FAILED_NAMES_MAX && !name.is_empty() && !self.failed.contains(&name)
        {
            self.failed.push(name);
        }
    }

    /// The names of the files that failed, for the end.
    #[must_use]
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    /// What even a quiet run says at its end.
    #[must_use]
    pub fn last_warning(report: &Report) -> Option<&'static str> {
        (report.digest == "none").then_some("haul: nothing was verified (--digest none)")
    }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Source => "source",
        Side::Target => "target",
        Side::Path => "network",
        Side::Session => "session",
    }
}

/// A line for what is removed, stored under another name, or planned in a dry run.
#[must_use]
pub fn file_line(event: &Event) -> Option<String> {
    let Event::File(FileEnded { path, status, bytes, stored_as }) = event else { return None };
    let verb = match status {
        FileStatus::Removed => "removed",
        FileStatus::WouldCopy => "would copy",
        FileStatus::WouldReplace => "would replace",
        FileStatus::WouldRemove => "would remove",
        FileStatus::Done if stored_as.is_some() => "stored",
        FileStatus::Done | FileStatus::Skipped | FileStatus::Failed => return None,
    };
    let other_name = stored_as.as_ref().map_or_else(String::new, |name| format!(" as {name}"));
    let size = match status {
        FileStatus::Removed | FileStatus::WouldRemove => String::new(),
        _ => format!(" ({})", units::bytes(*bytes)),
    };
    Some(format!("{verb} {path}{other_name}{size}"))
}

/// How far a file that is followed is behind, in a line.
#[must_use]
pub fn lag_line(event: &Event) -> Option<String> {
    let Event::Lag(lag) = event else { return None };
    Some(format!("behind {}: {}", lag.path, lag_text(lag)))
}

/// `1.50 MiB, written 0.42 s ago`
#[must_use]
pub fn lag_text(lag: &Lag) -> String {
    if lag.bytes == 0 {
        return "nothing".into();
    }
    format!("{}, written {} ago", units::bytes(lag.bytes), units::time(lag.seconds))
}

/// How a session began, in a line. The first digits name it, as in the server's log.
#[must_use]
pub fn session_line(event: &Event) -> Option<String> {
    let Event::Session(session) = event else { return None };
    Some(format!(
        "session {} with {}: {} ({}), {}, round trip {}",
        session.session.get(..8).unwrap_or(&session.session),
        session.server,
        session.protection,
        session.digest,
        units::count(session.streams.into(), "stream"),
        round_trip(session.rtt_us),
    ))
}

fn round_trip(rtt_us: u64) -> String {
    if rtt_us < 1000 { format!("{rtt_us} us") } else { format!("{:.1} ms", rtt_us as f64 / 1e3) }
}
