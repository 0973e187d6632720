//! Log of a server, printed on a thread of its own.
//!
//! Nobody may be reading, and the server goes on all the same.

use crate::ui;
use haul_transfer::ServerEvent;
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Most bytes of lines that wait to be printed: beyond, those of single files are left out.
const WAITING_BYTES_MAX: usize = 2 << 20;
/// Most bytes of waiting lines, beyond which those of sessions and refused connections are left out
/// too.
const WAITING_BYTES_MAX_SESSIONS: usize = 2 * WAITING_BYTES_MAX;
/// Time that lines gather before they are printed.
const GATHER: Duration = Duration::from_millis(2);
/// Longest time that the last lines may take to be printed.
const END_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Waiting {
    /// Whole lines that wait to be printed.
    lines: String,
    lost: u64,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print_all(&self) {
        loop {
            let mut waiting = self.lock();
            while waiting.lines.is_empty() {
                if waiting.ended {
                    return;
                }
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            if !waiting.ended {
                drop(waiting);
                // A wake-up for each of a million files would cost their session more than they do.
                thread::sleep(GATHER);
                waiting = self.lock();
            }
            let lines = std::mem::take(&mut waiting.lines);
            drop(waiting);
            ui::print_to_stdout(lines.trim_end_matches('\n'));
        }
    }
}

/// The choice of what a log prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// A JSON object for each event, files included.
    Json,
    /// A line for each event.
    WithFiles,
    /// A line for each event but files that are in place.
    OfSessions,
}

/// The time now, as RFC 3339 has it, in UTC to the millisecond.
pub fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}

/// An event with its time.
#[derive(serde::Serialize)]
struct Timed<'event> {
    #[serde(flatten)]
    event: &'event ServerEvent,
    time: String,
}

pub struct Log {
    print: Lines,
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Log {
    /// Starts the thread that prints the log.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(print: Lines) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let builder = thread::Builder::new().name("haul-log".into());
        let thread = builder.spawn(move || of_thread.print_all())?;
        Ok(Self { print, shared, thread })
    }

    /// Takes an event to be printed; it never waits for who reads.
    pub fn tell(&self, event: &ServerEvent) {
        let is_of_file = matches!(event, ServerEvent::File { .. } | ServerEvent::Error { .. });
        // A line a session is enough to read.
        if self.print == Lines::OfSessions && matches!(event, ServerEvent::File { .. }) {
            return;
        }
        let time = now();
        let line = match self.print {
            Lines::Json => ui::json::text_of(&Timed { event, time }),
            // Words of a stranger must neither begin lines of their own nor play with a terminal.
            _ => format!("{time} {}", ui::printable(&event.to_string())),
        };
        let most = if is_of_file { WAITING_BYTES_MAX } else { WAITING_BYTES_MAX_SESSIONS };
        let mut waiting = self.shared.lock();
        if waiting.lines.len() + line.len() > most {
            waiting.lost += 1;
            return;
        }
        if waiting.lines.is_empty() {
            self.shared.changed.notify_one();
        }
        waiting.lines.push_str(&line);
        waiting.lines.push('\n');
    }

    /// Prints what is left, if somebody reads it, and says how much nobody did.
    pub fn end(self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_one();
        wait_a_while(&self.thread);
        let lost = self.shared.lock().lost;
        if lost > 0 {
            let words = format!("{lost} events were not printed, for nobody read them in time");
            // Nobody may be reading these either: both outputs may be one pipe.
            let builder = thread::Builder::new().name("haul-log-end".into());
            if let Ok(thread) = builder.spawn(move || ui::print_to_stderr(&words)) {
                wait_a_while(&thread);
            }
        }
    }
}

fn wait_a_while(thread: &JoinHandle<()>) {
    let deadline = Instant::now() + END_PATIENCE;
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_transfer::{FileCounts, FileEnded, FileStatus};

    fn log() -> Log {
        let shared = Arc::new(Shared::default());
        Log { print: Lines::Json, shared, thread: thread::spawn(|| ()) }
    }

    #[test]
    fn each_line_has_its_time_and_files_are_told_where_they_are_asked_for() {
        let file = FileEnded::new(b"a/file".to_vec(), FileStatus::Done, 1);
        let done = ServerEvent::File { session: "0".repeat(32), file };
        let lines_of = |print| {
            let log = Log { print, ..log() };
            log.tell(&done);
            log.shared.lock().lines.clone()
        };
        assert_eq!(lines_of(Lines::OfSessions), "");
        let text = lines_of(Lines::WithFiles);
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{text}");
        assert_eq!(rest, "[00000000] done a/file (1 bytes)\n");
        let line: serde_json::Value = serde_json::from_str(&lines_of(Lines::Json)).unwrap();
        assert_eq!((&line["event"], &line["path"]), (&"file".into(), &"a/file".into()));
        assert!(line["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
    }

    #[test]
    fn where_nobody_reads_the_lines_of_files_go_first_and_memory_is_bounded() {
        let log = log();
        let session = "0".repeat(32);
        let refused = || ServerEvent::Refused { peer: "p".into(), why: "w".repeat(900), times: 1 };
        let ended = ServerEvent::SessionEnded {
            session: session.clone(),
            peer: "p".into(),
            ok: true,
            dry_run: false,
            bytes: 1,
            seconds: 1.0,
            files: FileCounts::default(),
            why: String::new(),
        };
        let file = FileEnded::new(b"a/file".to_vec(), FileStatus::Done, 1);
        let done = ServerEvent::File { session: session.clone(), file };
        (0..100_000).for_each(|_| log.tell(&done));
        assert!(log.shared.lock().lines.len() <= WAITING_BYTES_MAX);
        log.tell(&ended);
        assert!(log.shared.lock().lines.trim_end().ends_with('}'));
        assert!(log.shared.lock().lines.contains("session_ended"));
        for _ in 0..10_000 {
            log.tell(&refused());
        }
        let waiting = log.shared.lock();
        assert!(waiting.lines.len() <= WAITING_BYTES_MAX_SESSIONS + 1 && waiting.lost > 0);
    }
}
