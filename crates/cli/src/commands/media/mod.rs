//! `haul media`: serves until it is told to end, and then lets answers end.

mod access_log;
mod capacity;
mod policy;

use crate::{
    args::{
        media::{LowMedia, LowMediaCommand},
        usage_problem,
    },
    failure::{ExitStatus, Failure},
    ui,
};
use access_log::LogWriter;
use haul_media::server::{Server, ServerError, Totals};
use serde_json::json;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    io,
    net::SocketAddr,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// How often the end of a drain is looked for.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// # Errors
/// If the address, the root, the configuration or the access log cannot be used.
pub fn run(low: &LowMedia) -> Result<ExitStatus, Failure> {
    if let Some(LowMediaCommand::Capacity(low)) = &low.command {
        return capacity::tell_capacity(low);
    }
    let root = low.root.as_deref().unwrap_or(Path::new("."));
    if low.measure {
        return capacity::measure(low, root);
    }
    serve(low, root)
}

fn serve(low: &LowMedia, root: &Path) -> Result<ExitStatus, Failure> {
    let mut options = low.checked()?;
    let policy = policy::read(low, root)?;
    haul_transfer::raise_open_files_limit();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| {
        usage_problem("cannot set a handler for signals", "", &error.to_string(), "")
    })?;
    let log = low.access_log.as_deref().map(LogWriter::start).transpose()?;
    options.access_log = log.as_ref().map(|log| log.sink.clone());
    let pacing = options.pacing;
    let words = policy::words(&policy, pacing);
    let server = Server::start(root, options, policy).map_err(|error| failure(&error))?;
    tell_start(low, root, server.local_addr(), &words);
    for signal in signals.forever() {
        if signal != SIGHUP || !has_something_to_reload(low) {
            // With nothing to reload it is what a terminal says that is closed.
            break;
        }
        if let Some(log) = &log {
            log.open_again();
        }
        reload(low, root, &server);
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

fn has_something_to_reload(low: &LowMedia) -> bool {
    low.access_log.is_some() || low.config.is_some()
}

/// For streams that begin from now on; what is wrong changes nothing.
fn reload(low: &LowMedia, root: &Path, server: &Server) {
    match policy::read(low, root) {
        Ok(policy) => server.set_policy(policy),
        Err(problem) => {
            let why = format!("the configuration stays as it was: {problem}");
            ui::print_to_stderr(&ui::printable(&why));
        }
    }
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

fn tell_start(low: &LowMedia, root: &Path, address: SocketAddr, words: &str) {
    let url = format!("http://{address}/");
    if low.json {
        ui::json::print(&json!({ "event": "listening", "url": url }));
        return;
    }
    let who = if address.ip().is_loopback() {
        "this machine only; --listen 0.0.0.0:8080 is for all"
    } else {
        "whoever reaches the address"
    };
    let root = ui::printable(&root.display().to_string());
    ui::print_to_stdout(&format!(
        "haul media serves {root} to {who}:\n\n    {url}\n\n{words}\nCtrl-C ends it."
    ));
}

fn tell_end(low: &LowMedia, totals: &Totals, lost_lines: u64) {
    let Totals { accepted, turned_away, requests, sent_bytes, connections: cut, .. } = *totals;
    let Totals { streams, periods, misses, misses_here, held_back, refused, .. } = *totals;
    if low.json {
        ui::json::print(&json!({
            "event": "ended", "connections": accepted, "turned_away": turned_away,
            "requests": requests, "sent_bytes": sent_bytes, "cut": cut,
            "log_lines_lost": lost_lines,
            "streams": streams, "periods": periods, "misses": misses,
            "misses_here": misses_here, "held_back": held_back, "refused": refused,
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
            " {}: {} in time, {misses} late ({misses_here} of them by the server itself), \
            {held_back} held back by their players.",
            count(streams, "paced stream"),
            count(periods.saturating_sub(misses + held_back), "period"),
        ));
    }
    for (number, words) in [
        (cut, "cut at the end"),
        (refused, "streams refused for want of capacity"),
        (turned_away, "turned away for want of room"),
        (lost_lines, "lines of the access log lost, as its disk was too slow"),
    ] {
        if number > 0 {
            line.push_str(&format!(" {number} {words}."));
        }
    }
    ui::print_to_stdout(&line);
}
