//! Functions for haul's own programs, beside the library. Its command line, benches, probes, tests
//! and fuzz targets use them.
//!
//! It changes with them and without notice: no other program can build on it.

pub use crate::{
    bytes::{hex, random_bytes},
    descriptors::grow_descriptor_table,
    digest::{PRIVATE_LABEL, PROOF_BYTES, SessionKeys, SpanDigest, is_proof, proof},
    events::files_and_directories,
    name::{exact_path, is_unseen},
    server::reachable::{local_addresses, own_addresses},
    session::stages::round,
    size::{SizeError, parse_size},
    state::{Identity, usual_state_directories},
    storage::root::Root,
    transport::{
        control::{Control, ControlError},
        tls::{client_config, client_data_config, server_config},
    },
};

use crate::{
    connecting::ConnectOptions,
    proxy::Proxy,
    transport::{by_proxy, race},
};
use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Connects to the first of the addresses that answers within `patience`, the earlier ones with a
/// head start, unless `stop` says that nobody waits for it any more. The connection has the local
/// end and the class of a control connection by these options.
///
/// # Errors
/// If none does: the last error, or that there was no answer.
pub fn connect_to_first(
    addresses: &[SocketAddr],
    connect: &ConnectOptions,
    patience: Duration,
    stop: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    race::connect(addresses, setup_of_control(connect), patience, stop)
}

fn setup_of_control(connect: &ConnectOptions) -> race::Setup<'_> {
    let (local_end, dscp) = (connect.local_ends.first(), connect.dscp);
    race::Setup { local_end, dscp, ..race::Setup::default() }
}

/// Connects to the first of the addresses that a proxy reaches, one after the other, all of them
/// within `patience`: each has half of what is left, and the last one the rest. The connection to
/// the proxy has the local end and the class of a control connection by these options.
///
/// # Errors
/// If it reaches none: the last error, or that there was no answer.
pub fn connect_by_proxy(
    proxy: &Proxy,
    addresses: &[SocketAddr],
    connect: &ConnectOptions,
    patience: Duration,
    stop: &dyn Fn() -> bool,
) -> io::Result<SocketAddr> {
    let deadline = Instant::now() + patience;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (number, address) in (1..).zip(addresses) {
        let now = Instant::now();
        let left = deadline.saturating_duration_since(now);
        let share = if number == addresses.len() { left } else { left / 2 };
        // A proxy that is connected to has its time, too, however long it may be silent.
        let is_late = || Instant::now() >= now + share;
        let stop_or_late = || stop() || is_late();
        let setup = setup_of_control(connect);
        match by_proxy::connect(proxy, &address.to_string(), setup, share, &stop_or_late) {
            Ok(_) => return Ok(*address),
            Err(error) if stop() => return Err(error),
            Err(_) if is_late() => {
                let text = format!("proxy {proxy}: no answer within {} s", patience.as_secs());
                last = io::Error::new(io::ErrorKind::TimedOut, text);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Lines of a manifest.
pub mod manifest {
    pub use crate::manifest::line::Line;
}

/// The journal of a file that is not complete.
pub mod journal {
    pub use crate::storage::journal::{Identity, decode};
}

/// The register of a file that comes in ranges.
pub mod register {
    pub use crate::storage::ranges::register::{
        Clock, Counting, Header, Record, Register, Said, State, Whole,
    };
}

/// Lines of plans and of the reports of their runs, which other tools may write.
pub mod plan_lines {
    use crate::{fleet::Fleet, plan::Plan};
    pub use crate::{fleet::line_again as report_line_again, plan::line_again};

    /// Plan that the reports for [`add_up`] are of, but for its shards.
    const PLAN: &str = r#"{"haul_plan":1,"id":"this","path":"/data","targets":["haul://h:1/x"],
        "shards":3,"files":10,"bytes":1000}"#;

    /// Adds up what may be reports of the first of three shards of the plan `this`.
    #[must_use]
    pub fn add_up(reports: &[&[u8]]) -> Fleet {
        let plan: Plan = serde_json::from_str(PLAN).expect("the text of a plan");
        crate::fleet::add_up(&plan, reports)
    }
}

/// Datagrams of `haul probe net`.
pub mod datagram {
    pub use crate::probe::net::datagram::{Arrivals, HEADER_BYTES, Header, KEY_BYTES};
}

/// Network probes of `haul probe net`.
pub mod net {
    pub use crate::probe::net::{
        AuditGoal, BLOCK_BYTES_DEFAULT, DATAGRAM_RATE_DEFAULT, Event, INTERVAL_DEFAULT, NetProbe,
        NetReport, OMIT_DEFAULT, PeerAudit, PeerFinding, Receive, Round, STREAMS_DEFAULT,
        TIME_DEFAULT, Transport, Ways,
        report::{DatagramFigures, Direction, SideUse, Way},
        run,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A kernel makes connections to a listener whose program never takes one.
    #[test]
    fn a_proxy_that_is_silent_takes_no_more_time_for_many_addresses_than_for_one() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy: Proxy = format!("http://{}", silent.local_addr().unwrap()).parse().unwrap();
        let addresses: Vec<SocketAddr> =
            (1..=8).map(|last| SocketAddr::from(([192, 0, 2, last], 9))).collect();
        let patience = Duration::from_secs(2);
        let begun = Instant::now();
        let connect = ConnectOptions::default();
        let tried = connect_by_proxy(&proxy, &addresses, &connect, patience, &|| false);
        let error = tried.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < patience * 4, "{:?}", begun.elapsed());
    }
}
