//! `haul media`: serves until it is told to end, and then lets answers end.

use crate::{
    args::{media::LowMedia, usage_problem},
    failure::{ExitStatus, Failure},
    ui,
};
use haul_media::{
    server::{Access, AccessLog, Server, ServerError, Totals},
    tls::{Certificate, CertificateError},
};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::json;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    fs::File,
    io::{self, Write},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Lines that wait to be written; a disk that is slower loses the rest, and no stream waits for it.
const LINES_MAX: usize = 16 << 10;
/// A line is in the file no later than this.
const GATHER: Duration = Duration::from_millis(500);
/// How long the last lines may take.
const END_MAX: Duration = Duration::from_secs(2);
/// The longest line; a stranger writes most of it.
const LINE_BYTES_MAX: usize = 4 << 10;
/// How often the end of a drain is looked for.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// # Errors
/// If the address, the root, the certificate or the access log cannot be used.
pub fn run(low: &LowMedia) -> Result<ExitStatus, Failure> {
    let mut options = low.checked()?;
    haul_transfer::raise_open_files_limit();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| {
        usage_problem("cannot set a handler for signals", "", &error.to_string(), "")
    })?;
    let log = low.access_log.as_deref().map(LogWriter::start).transpose()?;
    options.access_log = log.as_ref().map(|log| log.sink.clone());
    let certificate = low.tls_files().map(Certificate::load).transpose();
    let certificate = certificate.map_err(|error| unfit(&error))?.map(Arc::new);
    options.certificate = certificate.clone();
    let server = Server::start(&low.root, options).map_err(|error| failure(&error))?;
    tell_start(low, server.local_addr());
    for signal in signals.forever() {
        // With nothing to open again it is what a terminal says that is closed.
        if signal != SIGHUP || (log.is_none() && certificate.is_none()) {
            break;
        }
        if let Some(log) = &log {
            log.writer.reopens.store(true, Ordering::Relaxed);
        }
        if let Some(Err(error)) = certificate.as_ref().map(|one| one.load_again()) {
            ui::print_to_stderr(&ui::printable(&format!(
                "The certificate that was read before stays in use: {error}"
            )));
        }
    }
    server.drain();
    if !low.json && server.totals().connections > 0 {
        ui::print_to_stderr("Ending: answers under way may end; a second signal cuts them.");
    }
    let began = Instant::now();
    while !server.has_ended() && began.elapsed() < low.drain_time.0 {
        if signals.pending().any(|signal| signal != SIGHUP) {
            break;
        }
        thread::sleep(DRAIN_LOOK);
    }
    let totals = server.stop();
    let lost = log.map_or(Some(0), LogWriter::end);
    if let Some(lost) = lost {
        tell_end(low, &totals, lost);
    }
    Ok(ExitStatus::AllDone)
}

fn failure(error: &ServerError) -> Failure {
    let hint = match error {
        ServerError::Root { .. } => "name a directory that can be read; Linux 5.6 is needed",
        ServerError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            "another program listens there; name another --listen"
        }
        ServerError::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "ports below 1024 are root's; name another --listen"
        }
        ServerError::Listen { .. } => "name an address of this machine with --listen",
        ServerError::Loop(_) => "",
        ServerError::Method { .. } => {
            "it needs io_uring (kernel.io_uring_disabled = 0) and the memory of --buffer-memory; \
            --method one-copy needs neither"
        }
    };
    usage_problem("cannot start haul media", "", &error.to_string(), hint).into()
}

fn unfit(error: &CertificateError) -> Failure {
    let hint = match error {
        CertificateError::Read { .. } => {
            "name files that this user may read with --tls-cert and --tls-key"
        }
        CertificateError::NoCertificate { .. } | CertificateError::Damaged { .. } => {
            "name the file with the whole chain with --tls-cert, such as certbot's fullchain.pem"
        }
        CertificateError::NoKey { .. } => {
            "name the file with the key with --tls-key, such as certbot's privkey.pem"
        }
        CertificateError::EncryptedKey { .. } => "decrypt it: openssl pkey -in KEY -out PLAIN",
        CertificateError::OtherKey { .. } => {
            "name the key that the certificate was made for with --tls-key; the server's own \
            certificate has to be the first of its file"
        }
        CertificateError::Unfit { .. } => {
            "have a certificate made for a key of ECDSA P-256, P-384, Ed25519 or RSA of 2048 bits \
            or more"
        }
    };
    let needs = "a certificate and its private key in PEM";
    usage_problem("cannot start haul media with TLS", needs, &error.to_string(), hint).into()
}

fn tell_start(low: &LowMedia, address: SocketAddr) {
    let scheme = if low.tls_cert.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{address}/");
    if low.json {
        ui::json::print(&json!({ "event": "listening", "url": url }));
        return;
    }
    let who = if address.ip().is_loopback() {
        "this machine only; --listen 0.0.0.0:8080 is for all"
    } else {
        "whoever reaches the address"
    };
    let root = ui::printable(&low.root.display().to_string());
    ui::print_to_stdout(&format!(
        "haul media serves {root} to {who}:\n\n    {url}\n\nCtrl-C ends it."
    ));
}

fn tell_end(low: &LowMedia, totals: &Totals, lost_lines: u64) {
    let Totals { accepted, turned_away, requests, sent_bytes, connections: cut, .. } = *totals;
    let Totals { streams, periods, misses, held_back, .. } = *totals;
    if low.json {
        ui::json::print(&json!({
            "event": "ended", "connections": accepted, "turned_away": turned_away,
            "requests": requests, "sent_bytes": sent_bytes, "cut": cut,
            "log_lines_lost": lost_lines,
            "streams": streams, "periods": periods, "misses": misses, "held_back": held_back,
        }));
        return;
    }
    let count = |number: u64, thing: &str| ui::units::count(number, thing);
    let mut line = format!(
        "{} over {}, {} sent.",
        count(requests, "answer"),
        count(accepted, "connection"),
        ui::units::bytes(sent_bytes)
    );
    if streams > 0 {
        line.push_str(&format!(
            " {}: {} in time, {misses} late, {held_back} held back by their players.",
            count(streams, "paced stream"),
            count(periods.saturating_sub(misses + held_back), "period"),
        ));
    }
    for (number, words) in [
        (cut, "cut at the end"),
        (turned_away, "turned away for want of room"),
        (lost_lines, "lines of the access log lost, as its disk was too slow"),
    ] {
        if number > 0 {
            line.push_str(&format!(" {number} {words}."));
        }
    }
    ui::print_to_stdout(&line);
}

/// Writes the access log on a thread of its own.
struct LogWriter {
    sink: AccessLog,
    writer: Arc<Writer>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Writer {
    /// Somebody moved the file away (SIGHUP, logrotate(8)).
    reopens: AtomicBool,
    lost: AtomicU64,
    ends: AtomicBool,
}

impl LogWriter {
    fn start(path: &Path) -> Result<Self, Failure> {
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

    /// All lines are written; how many were lost. `None` where nobody takes them.
    fn end(self) -> Option<u64> {
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
            thread::sleep(DRAIN_LOOK);
        }
        Some(self.writer.lost.load(Ordering::Relaxed))
    }
}

fn open(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    Ok(Box::new(File::options().append(true).create(true).open(path)?))
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

/// The combined log format, as Apache and nginx write it. What a stranger wrote cannot end a field.
fn line(access: &Access<'_>) -> String {
    let Access { peer, request, status, sent_bytes, .. } = access;
    let time = Timestamp::try_from(access.time).unwrap_or_default().to_zoned(TimeZone::UTC);
    let time = time.strftime("%d/%b/%Y:%H:%M:%S %z");
    let [request, referer, user_agent] = [Some(*request), access.referer, access.user_agent]
        .map(|text| quotable(text.unwrap_or("")));
    format!(
        "{peer} - - [{time}] \"{request}\" {status} {sent_bytes} \"{referer}\" \"{user_agent}\"\n"
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
            sent_bytes: 1234,
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
