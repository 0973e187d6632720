//! The access log: lines in the combined format, written on a thread of its own.

use crate::{args::usage_problem, failure::Failure, ui};
use haul_media::server::{Access, AccessLog};
use jiff::{Timestamp, tz::TimeZone};
use rustix::{
    fs::{Mode, OFlags, fcntl_setfl},
    io::Errno,
};
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Most lines that wait to be written; a disk that is slower loses the rest, and no stream waits
/// for it.
const LINES_MAX: usize = 16 << 10;
/// Longest time until a line is in the file.
const GATHER: Duration = Duration::from_millis(500);
/// Longest time that the last lines may take.
const END_MAX: Duration = Duration::from_secs(2);
/// Interval between checks for the end of the last lines.
const END_LOOK: Duration = Duration::from_millis(20);
/// Most bytes of a line; a stranger writes most of it.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Writes the access log on a thread of its own.
pub(super) struct LogWriter {
    pub sink: AccessLog,
    writer: Arc<Writer>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Writer {
    /// Whether the file is to be opened again, as somebody moved it away (SIGHUP, logrotate(8)).
    reopens: AtomicBool,
    lost: AtomicU64,
    ends: AtomicBool,
}

impl LogWriter {
    /// Opens the file and starts the thread that writes it.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn start(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let what = format!("cannot write the access log {}", path.display());
            let hint = "name another --access-log";
            Failure::from(usage_problem(&what, "", &error.to_string(), hint))
        };
        let output = open(path).map_err(failed)?;
        let (sender, receiver) = sync_channel::<String>(LINES_MAX);
        let writer = Arc::new(Writer::default());
        let (own, path) = (writer.clone(), path.to_owned());
        let thread = thread::Builder::new()
            .name("haul-access-log".to_owned())
            .spawn(move || write_all(&receiver, &own, &path, output))
            .map_err(failed)?;
        let counted = writer.clone();
        let sink: AccessLog = Arc::new(move |access: &Access<'_>| {
            if sender.try_send(line(access)).is_err() {
                counted.lost.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { sink, writer, thread })
    }

    /// Opens the file again, as somebody moved it away.
    pub fn open_again(&self) {
        self.writer.reopens.store(true, Ordering::Relaxed);
    }

    /// Waits until all lines are written; returns how many were lost. `None` where nobody takes
    /// them.
    pub fn end(self) -> Option<u64> {
        self.writer.ends.store(true, Ordering::Relaxed);
        drop(self.sink);
        let began = Instant::now();
        while !self.thread.is_finished() {
            if began.elapsed() > END_MAX {
                ui::print_to_stderr(
                    "The last lines of the access log are lost: nobody takes them.",
                );
                return None;
            }
            thread::sleep(END_LOOK);
        }
        Some(self.writer.lost.load(Ordering::Relaxed))
    }
}

fn open(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(ui::output::Output::new()));
    }
    // The end of a pipe that nobody reads is not waited for.
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o666);
    let file = match rustix::fs::open(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, mode) {
        Err(Errno::NXIO) => {
            return Err(io::Error::other("nobody reads this pipe, or it is a socket"));
        }
        opened => opened?,
    };
    // This thread may wait; a reader that is slow loses lines, as a slow disk does.
    fcntl_setfl(&file, flags)?;
    Ok(Box::new(File::from(file)))
}

fn write_all(
    lines: &Receiver<String>,
    writer: &Writer,
    path: &Path,
    mut output: Box<dyn Write + Send>,
) {
    let mut waiting = String::new();
    loop {
        let heard = lines.recv_timeout(GATHER);
        if let Ok(line) = &heard {
            waiting.push_str(line);
            // What is there by now goes in one write.
            waiting.extend(lines.try_iter().take(LINES_MAX));
        }
        if writer.reopens.swap(false, Ordering::Relaxed) {
            match open(path) {
                Ok(anew) => output = anew,
                Err(error) => ui::print_to_stderr(&ui::printable(&format!(
                    "cannot open the access log {} again, so the old file is written on: {error}",
                    path.display()
                ))),
            }
        }
        if !waiting.is_empty() {
            let count = waiting.lines().count() as u64;
            if output.write_all(waiting.as_bytes()).and_then(|()| output.flush()).is_err() {
                writer.lost.fetch_add(count, Ordering::Relaxed);
            }
            waiting.clear();
        }
        match heard {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if writer.ends.load(Ordering::Relaxed) => return,
            _ => {}
        }
    }
}

/// A line in the combined log format, as Apache and nginx write it. What a stranger wrote cannot
/// end a field.
fn line(access: &Access<'_>) -> String {
    let Access { peer, request, status, body_bytes, .. } = access;
    let time = Timestamp::try_from(access.time).unwrap_or_default().to_zoned(TimeZone::UTC);
    let time = time.strftime("%d/%b/%Y:%H:%M:%S %z");
    let [request, referer, user_agent] = [Some(*request), access.referer, access.user_agent]
        .map(|text| quotable(text.unwrap_or("")));
    format!(
        "{peer} - - [{time}] \"{request}\" {status} {body_bytes} \"{referer}\" \"{user_agent}\"\n"
    )
}

fn quotable(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let mut quotable = String::with_capacity(text.len().min(LINE_BYTES_MAX));
    for sign in text.chars() {
        if quotable.len() > LINE_BYTES_MAX / 3 {
            quotable.push_str("...");
            break;
        }
        match sign {
            '"' | '\\' => quotable.extend(['\\', sign]),
            sign if sign.is_control() => quotable.push_str(&format!("\\x{:02x}", sign as u32)),
            sign => quotable.push(sign),
        }
    }
    quotable
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::IpAddr, time::UNIX_EPOCH};

    #[test]
    fn a_line_of_the_access_log_is_as_others_write_it() {
        let access = Access {
            time: UNIX_EPOCH + Duration::from_secs(784_111_777),
            peer: IpAddr::from([10, 0, 0, 1]),
            request: "GET /a.mp4 HTTP/1.1",
            status: 206,
            body_bytes: 1234,
            is_whole: true,
            took: Duration::ZERO,
            referer: None,
            user_agent: Some("a \"b\"\nc"),
        };
        assert_eq!(
            line(&access),
            "10.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a.mp4 HTTP/1.1\" 206 1234 \"-\" \
            \"a \\\"b\\\"\\x0ac\"\n"
        );
    }
}
