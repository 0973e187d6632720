//! `haul media`: serves until it is told to end, and then lets answers end.

mod access_log;
mod capacity;
mod lines;
mod policy;
mod welcome;

pub use welcome::{Welcome, url};

use crate::{
    args::{
        media::{LowMedia, LowMediaCommand, StatusPlace},
        usage_problem,
    },
    failure::{ExitStatus, Failure},
    ui,
};
use access_log::LogWriter;
use haul_media::{
    server::{Server, ServerError, Totals},
    status::{Options, Samples, Status, Watch},
    tls::{self, Certificate, CertificateError},
};
use haul_transfer::internals::{Root, usual_state_directories};
use lines::Lines;
use serde_json::{Value, json};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// Interval between checks for the end of a drain.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// Serves, measures, or tells what was measured.
///
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

/// Checks that no keys of haul lie below the root: every file there is everybody's, and a reader of
/// the keys could do all that its tokens may.
fn check_root(low: &LowMedia, root: &Path) -> Result<(), Failure> {
    let mut states = usual_state_directories();
    states.push(low.state.directory_or_default());
    // One that cannot be opened is told of by the server.
    let Ok(opened) = Root::open_without(root, &states) else { return Ok(()) };
    let Some(state) = opened.closed().first() else { return Ok(()) };
    let refused = usage_problem(
        &format!("cannot serve {} to everybody", root.display()),
        "a directory without haul's own keys",
        &format!("the state directory {}", state.display()),
        "serve the directory of the films alone",
    );
    Err(refused.into())
}

fn serve(low: &LowMedia, root: &Path) -> Result<ExitStatus, Failure> {
    check_root(low, root)?;
    let mut options = low.checked()?;
    let place = low.status_place()?;
    let policy = policy::read(low, root)?;
    haul_transfer::raise_open_files_limit();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| {
        usage_problem("cannot set a handler for signals", "", &error.to_string(), "")
    })?;
    let log = low.access_log.as_deref().map(LogWriter::start).transpose()?;
    options.access_log = log.as_ref().map(|log| log.sink.clone());
    let certificate = low.tls_files().map(Certificate::load).transpose();
    let certificate = certificate.map_err(|error| unfit(&error))?.map(Arc::new);
    options.certificate = certificate.clone();
    let pacing = options.pacing;
    // Asked now: one that is closed is none.
    let is_at_terminal = io::stdin().is_terminal();
    let words =
        policy::words(&policy, pacing, &capacity::other_methods(low.method, root, &low.state));
    let server = Server::start(root, options, policy).map_err(|error| failure(&error))?;
    let watch = Arc::new(Watch::new(server.observer(), root));
    let status = start_status(place, &watch)?;
    let welcome = Welcome {
        root: root.display().to_string(),
        url: welcome::url(server.local_addr(), certificate.is_some()),
        host: haul_host::host_name(),
        address: server.local_addr(),
        status: status.as_ref().map(|status| welcome::url(status.local_addr(), false)),
        policy: words,
        tls: certificate.as_ref().map(|_| tls::By::here()),
    };
    tell_start(low, &welcome);
    let lines = low.json.then(|| Lines::start(Samples::new(watch))).transpose();
    let lines = lines.map_err(|error| {
        usage_problem("cannot start a thread for --json", "", &error.to_string(), "")
    })?;
    for signal in signals.forever() {
        // From a terminal it says that it is closed, unless there is something to read again.
        let has_files = log.is_some() || certificate.is_some() || low.config.is_some();
        if signal != SIGHUP || (is_at_terminal && !has_files) {
            break;
        }
        if let Some(log) = &log {
            log.open_again();
        }
        reload(low, root, &server, certificate.as_deref());
    }
    server.drain();
    // At once: the next server wants its address.
    drop(status);
    let totals = drained(low, server, &mut signals);
    let lost = log.map_or(Some(0), LogWriter::end);
    match (lines, lost) {
        (Some(lines), Some(lost)) => lines.end(&ended(&totals, lost)),
        (None, Some(lost)) => tell_end(&totals, lost),
        (_, None) => {}
    }
    Ok(ExitStatus::AllDone)
}

/// Lets answers under way end, or cuts them after the drain time.
fn drained(low: &LowMedia, server: Server, signals: &mut Signals) -> Totals {
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
    server.stop()
}

/// Reads the configuration and the certificate again, for streams and connections that begin from
/// now on; what is wrong changes nothing.
fn reload(low: &LowMedia, root: &Path, server: &Server, certificate: Option<&Certificate>) {
    match policy::read(low, root) {
        Ok(policy) => {
            server.set_policy(policy);
            if low.config.is_some() && !low.json {
                ui::print_to_stderr("The configuration was read again.");
            }
        }
        Err(problem) => {
            let why = format!("the configuration stays as it was: {problem}");
            ui::print_to_stderr(&ui::printable(&why));
        }
    }
    match certificate.map(Certificate::load_again) {
        Some(Err(error)) => {
            let why = format!("The certificate that was read before stays in use: {error}");
            ui::print_to_stderr(&ui::printable(&why));
        }
        Some(Ok(_)) if !low.json => ui::print_to_stderr("The certificate was read again."),
        _ => {}
    }
}

fn failure(error: &ServerError) -> Failure {
    let hint = match error {
        ServerError::Root { source, .. } if source.kind() == io::ErrorKind::NotADirectory => {
            "name the directory that it is in"
        }
        ServerError::Root { source, .. } if source.kind() == io::ErrorKind::Unsupported => {
            "it needs openat2(2), which is of Linux 5.6"
        }
        ServerError::Root { .. } => "name a directory that this user can read",
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

/// Starts the dashboard: where nobody named an address, another program on the usual one is no
/// reason not to serve.
fn start_status(place: StatusPlace, watch: &Arc<Watch>) -> Result<Option<Status>, Failure> {
    let failed = |error: &ServerError| {
        let hint = "name another --status, or --status off";
        Failure::from(usage_problem(
            "cannot show what haul media does",
            "",
            &error.to_string(),
            hint,
        ))
    };
    let start = |options: &Options| Status::start(watch.clone(), options);
    let started = match &place {
        StatusPlace::Off => return Ok(None),
        StatusPlace::Named(options) => start(options),
        StatusPlace::Preferred(options) => start(options).or_else(|_| {
            let listen = SocketAddr::new(options.listen.ip(), 0);
            start(&Options { listen, ..options.clone() })
        }),
    };
    started.map(Some).map_err(|error| failed(&error))
}

fn tell_start(low: &LowMedia, welcome: &Welcome) {
    if low.json {
        let line = json!({
            "event": "listening", "url": welcome.url, "status": welcome.status,
            "tls": welcome.tls.map(tls::By::name),
        });
        return ui::json::print(&line);
    }
    ui::print_to_stdout(&welcome.text());
}

fn ended(totals: &Totals, lost_lines: u64) -> Value {
    let Totals { accepted, turned_away, requests, sent_bytes, connections: cut, .. } = *totals;
    let Totals { streams, periods, misses, misses_here, held_back, refused, .. } = *totals;
    json!({
        "event": "ended", "connections": accepted, "turned_away": turned_away,
        "requests": requests, "sent_bytes": sent_bytes, "cut": cut,
        "log_lines_lost": lost_lines,
        "streams": streams, "periods": periods, "misses": misses,
        "misses_here": misses_here, "held_back": held_back, "refused": refused,
    })
}

fn tell_end(totals: &Totals, lost_lines: u64) {
    let Totals { accepted, turned_away, requests, sent_bytes, connections: cut, .. } = *totals;
    let Totals { streams, periods, misses, misses_here, held_back, refused, .. } = *totals;
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
        (refused, if refused == 1 { "stream refused" } else { "streams refused" }),
        (turned_away, "turned away, as there was no room or their address had its share"),
        (lost_lines, "lines of the access log lost, as its disk was too slow"),
    ] {
        if number > 0 {
            line.push_str(&format!(" {number} {words}."));
        }
    }
    ui::print_to_stdout(&line);
}
