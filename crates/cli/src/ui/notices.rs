//! Notices of what happens once and is said once: errors, fallbacks, stalls, a resume.

use super::units;
use haul_report::printable::printable;
use haul_transfer::{Event, FileEnded, FileStatus, Lag, Name, Problem, SOFTWARE, Side};
use std::collections::HashSet;

/// Most fallbacks that are remembered so that they are said once.
const FALLBACKS_MAX: usize = 256;
/// Most failed files whose names the end repeats.
const FAILED_NAMES_MAX: usize = 10;
/// Most causes that are remembered so that each is said once; what has another is said in full.
const CAUSES_MAX: usize = 64;
/// Most files that the count of a cause names.
const COUNTED_NAMES_MAX: usize = 5;

/// The notices that a screen wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    All,
    /// Failures alone, as `--quiet` wants.
    Failures,
}

/// Memory of the notices that were said.
#[derive(Debug, Default)]
pub struct Notices {
    fallbacks: HashSet<String>,
    failed: Vec<String>,
    causes: Vec<Cause>,
}

/// A cause by which several files fail: the first was said, the others are counted.
#[derive(Debug)]
struct Cause {
    cause: String,
    /// Name of the file that was said in full.
    first: String,
    more: u64,
    /// Names of the first files that are counted.
    names: Vec<String>,
    /// The last problem that is counted, to be said in full where it is the only one.
    last: Option<Problem>,
}

impl Notices {
    /// The line of an event for standard error, if it has one.
    pub fn line(&mut self, event: &Event, shows: Shows) -> Option<String> {
        let words = match event {
            Event::Error(problem) => {
                self.remember_failed(&problem.path);
                if !self.is_news(problem) {
                    return None;
                }
                problem.to_string()
            }
            Event::File(FileEnded { path, status: FileStatus::Failed, .. }) => {
                self.remember_failed(path);
                return None;
            }
            Event::File(FileEnded {
                path, status: FileStatus::Done | FileStatus::Skipped, ..
            }) if !self.failed.is_empty() => {
                // It failed in a session that was lost, and is in place now.
                let name = path.to_string();
                self.failed.retain(|failed| *failed != name);
                return None;
            }
            _ if shows == Shows::Failures => return None,
            Event::Fallback { side, from_to, why } => {
                let words = format!("{}: {from_to}: {why}", side_name(*side));
                if self.fallbacks.len() >= FALLBACKS_MAX || !self.fallbacks.insert(words.clone()) {
                    return None;
                }
                words
            }
            Event::Stall { stage, seconds, what } => {
                format!("{} stalled for {}: {what}", stage_name(stage), units::time(*seconds))
            }
            Event::Resume { bytes, why } => {
                format!("goes on from {}: {why}", units::bytes(*bytes))
            }
            Event::Rereading { path, why } => format!("{path} is read again: {why}"),
            Event::Waiting { server, seconds, why } => {
                format!("waits up to {} for {server}: {why}", units::time(*seconds))
            }
            Event::LeftOut(problem) => problem.to_string(),
            // Files, sessions, progress and outages are shown elsewhere.
            _ => return None,
        };
        // Words of another machine play with no terminal.
        Some(format!("haul: {}", printable(&words)))
    }

    /// Whether a problem is the first of its cause; the others are counted. One that concerns no
    /// file is always said.
    fn is_news(&mut self, problem: &Problem) -> bool {
        if problem.path.0.is_empty() {
            return true;
        }
        let cause = problem.cause();
        if let Some(known) = self.causes.iter_mut().find(|known| known.cause == cause) {
            known.more += 1;
            let name = problem.path.to_string();
            let is_new = name != known.first && !known.names.contains(&name);
            if is_new && known.names.len() < COUNTED_NAMES_MAX {
                known.names.push(name);
            }
            known.last = Some(problem.clone());
            return false;
        }
        if self.causes.len() < CAUSES_MAX {
            let first = problem.path.to_string();
            self.causes.push(Cause { cause, first, more: 0, names: Vec::new(), last: None });
        }
        true
    }

    /// Lines for the end, one for each cause that was met more than once.
    pub fn counted(&mut self) -> Vec<String> {
        let causes = std::mem::take(&mut self.causes).into_iter();
        causes.filter_map(|cause| cause.counted()).map(|words| format!("haul: {words}")).collect()
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
}

impl Cause {
    fn counted(self) -> Option<String> {
        let last = self.last?;
        if self.more == 1 {
            return Some(last.to_string());
        }
        let rest = self.more.saturating_sub(self.names.len() as u64);
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let whose = match last.side {
            Side::Session => String::new(),
            side => format!("{}: ", side_name(side)),
        };
        let (what, names) = (&last.what, self.names.join(", "));
        Some(format!("{whose}{what}: {} more files, {names}{rest}", self.more))
    }
}

/// A stage's name as people write it: `target disk`, not `target_disk`.
fn stage_name(stage: &str) -> String {
    stage.replace('_', " ")
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
    let Event::File(FileEnded { path, status, bytes, stored_as, .. }) = event else { return None };
    let verb = match status {
        FileStatus::Removed => "removed",
        FileStatus::WouldCopy => "would copy",
        FileStatus::WouldReplace => "would replace",
        FileStatus::WouldRemove => "would remove",
        FileStatus::Done if stored_as.is_some() => "stored",
        _ => return None,
    };
    let other_name = stored_as.as_ref().map_or_else(String::new, |name| format!(" as {name}"));
    let size = match status {
        FileStatus::Removed | FileStatus::WouldRemove => String::new(),
        _ => format!(" ({})", units::bytes(*bytes)),
    };
    Some(format!("{verb} {path}{other_name}{size}"))
}

/// The lag of a followed file, in a line.
#[must_use]
pub fn lag_line(event: &Event) -> Option<String> {
    let Event::Lag(lag) = event else { return None };
    Some(format!("behind {}: {}", lag.path, lag_text(lag)))
}

/// A lag in words: `1.50 MiB, written 0.42 s ago`.
#[must_use]
pub fn lag_text(lag: &Lag) -> String {
    if lag.bytes == 0 {
        return "nothing".into();
    }
    format!("{}, written {} ago", units::bytes(lag.bytes), units::time(lag.seconds))
}

/// The beginning of a session, in a line, where all is shown or the server is of another version.
/// The first digits name it, as in the server's log.
#[must_use]
pub fn session_line(event: &Event, shows_all: bool) -> Option<String> {
    let Event::Session(session) = event else { return None };
    let other = match &*session.server_software {
        "" | SOFTWARE if shows_all => String::new(),
        "" | SOFTWARE => return None,
        other => format!(", {} where this is {SOFTWARE}", printable(other)),
    };
    Some(format!(
        "session {} with {}{other}: {} ({}), {}, round trip {}",
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

#[cfg(test)]
mod tests {
    use super::*;
    use haul_transfer::SessionOpened;

    #[test]
    fn a_server_of_another_version_is_told_as_that() {
        let line = |software: &str, shows_all| {
            let mut session = SessionOpened::default();
            session.server = "dtn1:7117".into();
            session.server_software = software.into();
            session_line(&Event::Session(session), shows_all)
        };
        let with = |software: &str| line(software, true).unwrap();
        assert!(with(SOFTWARE).starts_with("session  with dtn1:7117: "));
        assert_eq!(with(""), with(SOFTWARE));
        let told = format!("session  with dtn1:7117, haul 9 where this is {SOFTWARE}: ");
        assert!(with("haul 9").starts_with(&told));
        assert_eq!(line("haul 9", false), Some(with("haul 9")));
        assert_eq!((line(SOFTWARE, false), line("", false)), (None, None));
        assert!(!with("haul \x1b[31m").contains('\x1b'));
    }

    #[test]
    fn a_file_that_a_later_session_brings_has_not_failed() {
        let mut notices = Notices::default();
        let ended =
            |name: &str, status| Event::File(FileEnded::new(name.as_bytes().to_vec(), status, 0));
        for name in ["a", "b"] {
            notices.line(&ended(name, FileStatus::Failed), Shows::All);
        }
        notices.line(&ended("a", FileStatus::Done), Shows::Failures);
        assert_eq!(notices.failed(), ["b"]);
    }
}
