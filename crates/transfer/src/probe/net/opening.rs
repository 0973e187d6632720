//! Opening of a probe's control connection: its handshake, and the answer to an older server.

use crate::{
    Interrupt,
    bytes::random_bytes,
    client::connect_failure::ConnectFailure,
    constants::SOFTWARE,
    digest::SessionKeys,
    error::{TransferError, problem},
    name::printable,
    probe::net::request::NetProbe,
    session::rdma::{Offers, Part, Route},
    transport::{
        control::Control,
        tcp::{self, Route as TcpRoute},
        tls,
    },
};
use haul_protocol::{CAPABILITY_FABRIC, CAPABILITY_PROBE, ClientHandshake, message};
use haul_sys::tcp_info::TcpInfo;
use rustls::{ClientConnection, pki_types::ServerName};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
/// Silence of a new control connection after which it is made again, in smaller segments.
const SILENT_AFTER: Duration = Duration::from_secs(4);
/// Most times that a handshake is begun which the network cuts.
const HANDSHAKES_MAX: u32 = 4;
/// Time before a handshake that was cut is begun again; twice as long each further time.
const RETRY_DELAY: Duration = Duration::from_millis(100);

pub(super) struct OpenedProbe {
    pub control: Control,
    pub keys: Arc<SessionKeys>,
    pub session: [u8; 16],
    /// Addresses of this side and of the server.
    pub addresses: (SocketAddr, SocketAddr),
    pub rtt: Duration,
    pub software: String,
    /// RDMA endpoints that both sides agreed on.
    pub rdma: Option<Route>,
}

/// Opens the control connection of a probe: once more in smaller segments where nothing comes by
/// it, and again where the network cut the handshake.
///
/// # Errors
/// As the first session of a transfer.
pub(super) fn open(
    probe: &NetProbe,
    route: &TcpRoute,
    interrupt: &Interrupt,
) -> Result<OpenedProbe, TransferError> {
    let mut delay = RETRY_DELAY;
    let mut cuts = 0;
    loop {
        match open_once(probe, route, interrupt) {
            Ok(opened) => return Ok(opened),
            Err(NotOpened::Silent(_)) if route.segments.control_is_silent() => {}
            Err(NotOpened::Cut(_)) if cuts + 1 < HANDSHAKES_MAX => {
                cuts += 1;
                thread::sleep(delay);
                delay *= 2;
            }
            Err(NotOpened::Silent(error) | NotOpened::Cut(error) | NotOpened::ForGood(error)) => {
                return Err(error);
            }
        }
    }
}

/// The reason why a probe has no control connection.
enum NotOpened {
    /// A connection was made, and nothing came by it.
    Silent(TransferError),
    /// The connection ended within the handshake.
    Cut(TransferError),
    /// Trying again is of no use.
    ForGood(TransferError),
}

impl From<TransferError> for NotOpened {
    fn from(error: TransferError) -> Self {
        Self::ForGood(error)
    }
}

impl NotOpened {
    /// The failure of a handshake over `control`.
    fn of_handshake(control: &Control, failure: ConnectFailure) -> Self {
        let is_cut = failure.is_cut();
        let error = failure.into_start();
        match (is_cut, is_silent(control)) {
            (true, _) => Self::Cut(error),
            (false, true) => Self::Silent(error),
            (false, false) => Self::ForGood(error),
        }
    }
}

fn open_once(
    probe: &NetProbe,
    route: &TcpRoute,
    interrupt: &Interrupt,
) -> Result<OpenedProbe, NotOpened> {
    let server = probe.url.server();
    let Some(token) = &probe.url.token else {
        let hint = "put it into the URL, or set HAUL_TOKEN, or give --token-file";
        let problem = problem("no token", "the server's token", "none", hint);
        return Err(TransferError::start(problem).into());
    };
    let broken = |error: &dyn std::fmt::Display| {
        let (server, error) = (server.clone(), error.to_string());
        ConnectFailure::Broken { server, error }.into_start()
    };
    let stop = || interrupt.load(Ordering::Relaxed);
    let socket = route.connect(tcp::CONNECT_TIMEOUT, &stop).map_err(|error| {
        let (server, error) = (server.clone(), error.to_string());
        ConnectFailure::Unreachable { server, error }.into_start()
    })?;
    let addresses =
        (socket.local_addr().map_err(|e| broken(&e))?, socket.peer_addr().map_err(|e| broken(&e))?);
    let config = tls::client_config(token.fingerprint).map_err(|e| broken(&e))?;
    let name = ServerName::try_from("haul").expect("a valid name");
    let tls = ClientConnection::new(config, name).map_err(|e| broken(&e))?;
    let mut control = Control::new(socket, tls.into()).map_err(|e| broken(&e))?;
    let transfer: [u8; 16] = random_bytes().map_err(|e| broken(&e))?;
    let offers = match probe.rdma {
        Some(wanted) => Offers::open(wanted, control.socket()),
        None => Offers::default(),
    };
    if probe.rdma.is_some() && offers.fabrics.is_empty() {
        return Err(no_rdma(&offers.refused.join("; ")).into());
    }
    let open = message::Open {
        token_secret: message::Secret(token.secret),
        transfer,
        direction: message::Direction::Probe,
        fabrics: offers.names(),
        ..message::Open::default()
    };
    let patience =
        if route.segments.control_may_shrink() { SILENT_AFTER } else { HANDSHAKE_TIMEOUT };
    let granted = shake_hands(&mut control, open, &server, (patience, interrupt))?;
    control.trust();
    let session: [u8; 16] = granted.opened.session.as_slice().try_into().map_err(|e| broken(&e))?;
    let keys = Arc::new(control.session_keys(&session).map_err(|e| broken(&e))?);
    let tcp = TcpInfo::of(control.socket()).unwrap_or_default();
    let measured = [tcp.rtt_us, tcp.min_rtt_us].into_iter().filter(|rtt| *rtt > 0).min();
    let rtt = Duration::from_micros(measured.unwrap_or(0).into());
    let rdma = agreed(probe, &offers, &granted)?;
    let software = granted.software;
    Ok(OpenedProbe { control, keys, session, addresses, rtt, software, rdma })
}

/// Finds the RDMA endpoints that the server has agreed to.
fn agreed(
    probe: &NetProbe,
    offers: &Offers,
    granted: &haul_protocol::handshake::Granted,
) -> Result<Option<Route>, TransferError> {
    if probe.rdma.is_none() {
        return Ok(None);
    }
    let opened = &granted.opened;
    if let Some(fabric) = offers.find(&opened.fabric) {
        let route = Route { fabric: fabric.clone(), part: Part::Connects, tcp_instead: None };
        return Ok(Some(route));
    }
    let is_known = granted.capabilities.contains(&CAPABILITY_FABRIC);
    Err(no_rdma(&match (is_known, opened.fabric_refused.is_empty()) {
        (true, false) => printable(&opened.fabric_refused),
        _ => format!("{}, which does not know `haul probe net --fabric`", granted.software),
    }))
}

fn no_rdma(found: &str) -> TransferError {
    let what = "RDMA endpoints cannot be probed";
    let needs = "an RDMA provider on both hosts, and a server with --fabric";
    let hint = "leave --fabric out to measure TCP; docs/rdma.md says how to get RDMA";
    TransferError::start(problem(what, needs, found, hint))
}

fn is_silent(control: &Control) -> bool {
    TcpInfo::of(control.socket()).is_ok_and(|tcp| tcp.bytes_received == 0)
}

/// Asks what the server can do before it is asked for a probe: an older one would take it for
/// something else.
fn shake_hands(
    control: &mut Control,
    open: message::Open,
    server: &str,
    (silent_after, interrupt): (Duration, &Interrupt),
) -> Result<haul_protocol::handshake::Granted, NotOpened> {
    let begun = Instant::now();
    let (mut handshake, [hello, open]) = ClientHandshake::start(SOFTWARE, open);
    control.queue(hello);
    let mut open = Some(open);
    loop {
        let messages = match control.turn(Duration::from_millis(100), None) {
            Ok(messages) => messages,
            Err(error) => {
                let failure = ConnectFailure::of_handshake(server, error);
                return Err(NotOpened::of_handshake(control, failure));
            }
        };
        let mut messages = messages.into_iter();
        while let Some(message) = messages.next() {
            let refused = |fault| ConnectFailure::Refused(fault).into_start();
            if let Some(granted) = handshake.handle(message).map_err(refused)? {
                control.unread(messages.collect());
                return Ok(granted);
            }
            if let Some(reply) = handshake.reply() {
                if !reply.capabilities.contains(&CAPABILITY_PROBE) {
                    return Err(too_old(control, server, &reply.software).into());
                }
                open.take().into_iter().for_each(|open| control.queue(open));
            }
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(TransferError::interrupted().into());
        }
        let patience = if is_silent(control) { silent_after } else { HANDSHAKE_TIMEOUT };
        if begun.elapsed() > patience {
            let error = format!("no answer within {} s", patience.as_secs());
            let failure = ConnectFailure::Broken { server: server.to_owned(), error };
            return Err(NotOpened::of_handshake(control, failure));
        }
    }
}

fn too_old(control: &mut Control, server: &str, software: &str) -> TransferError {
    control.close(Duration::from_secs(1));
    let what = format!("{server} cannot be probed");
    let needs = "a haul there that knows `haul probe net`";
    let found = format!("{software}, which does not");
    let hint = "install the same haul version on both ends; `haul push zero:10G URL/null:` \
                measures an older one";
    TransferError::start(problem(&what, needs, &found, hint))
}
