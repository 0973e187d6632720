//! Arguments of `haul serve`, and their check.

use super::{LowState, checked_host, transfer::ProtectionName, usage_problem, values::Period};
use crate::ssh::{ANY_FREE_PORT, Ports};
use clap::Args;
use haul_transfer::{Dscp, PORT_DEFAULT, Problem, ServeOptions, ServeRoot, internals::parse_size};
use std::path::PathBuf;

/// The library's defaults, for the help.
fn defaults() -> ServeOptions {
    ServeOptions::new(ServeRoot::Null, PathBuf::new())
}

/// Serves a directory: receives into it and sends from it
///
/// Prints one haul:// URL. Whoever has it may read, write and delete below ROOT and nowhere else,
/// and knows that the server is the right one. The URL stays the same when the server is started
/// again, so that a client resumes with the URL it has. `haul token` makes URLs with fewer rights.
///
/// One port serves everything, and the server opens no connection by itself.
#[derive(Debug, Args)]
pub struct LowServe {
    /// The directory that is served, or `null:` to receive and throw away
    #[arg(value_name = "ROOT", required_unless_present = "over_ssh")]
    pub root: Option<PathBuf>,
    /// The address and port to listen on, or one of the two; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value_t = defaults().listen)]
    pub listen: String,
    /// Ports of which a free one is taken, such as 50000-50100
    ///
    /// For a firewall that lets these through, and several servers behind it.
    #[arg(long, value_name = "FIRST-LAST", conflicts_with = "listen")]
    pub port_range: Option<Ports>,
    /// Host in the printed URL; without it this host's name where it leads here, else an address
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// End after one session
    #[arg(long)]
    pub once: bool,
    /// Serve one copy of user@host:path, of which ssh tells: for sshd_config and authorized_keys
    ///
    /// haul on the other machine starts it so by itself. It reads what is asked for from standard
    /// input, listens on a free port, and ends with its ssh. With ROOT every path is below that
    /// directory; without, it is where it says, or below the home directory. Key and token are its
    /// own and go with it, so that no state directory is used.
    #[arg(long, conflicts_with_all = ["once", "advertise", "json", "verbose"])]
    pub over_ssh: bool,
    /// Refuse to receive, whatever a token allows
    #[arg(long)]
    pub read_only: bool,
    /// Let data streams go by RDMA endpoints (libfabric), where a client asks for it
    #[arg(long)]
    pub fabric: bool,
    /// The least protection of the data that a client may ask for
    #[arg(long, value_name = "PROTECTION", default_value = defaults().protection_min.name())]
    pub protection_min: ProtectionName,
    /// Bytes after which a private stream is replaced by another, with another key; at most 126G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    pub rekey_after: Option<u64>,
    /// Sessions at a time; more are refused
    #[arg(long, value_name = "N", default_value_t = defaults().sessions_max)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: u32,
    /// Probes (`haul probe net`) at a time, counted among the sessions; 0 refuses them
    #[arg(long, value_name = "N", default_value_t = defaults().probes_max)]
    pub max_probes: u32,
    /// Data streams of one session
    #[arg(long, value_name = "N", default_value_t = defaults().streams_max)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=STREAMS_MAX))]
    pub max_streams: u32,
    /// Class that the packets of this side ask for: a number below 64, or a name such as af11, le
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub dscp: Option<Dscp>,
    /// Give back the flow label that a client's packets have (IPv6), so that its --scitag marks
    /// what it pulls
    #[arg(long, hide_short_help = true)]
    pub reflect_flow_label: bool,
    /// How long a connection may take to show who it is
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().handshake_timeout))]
    pub handshake_timeout: Period,
    /// Print a line for each file too; --json always has them
    #[arg(long, short)]
    pub verbose: bool,
    /// Print one JSON object a line: first {"event":"listening","url":...,"urls":[...]}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: LowState,
}

const STREAMS_MAX: i64 = haul_protocol::limits::STREAMS_MAX as i64;

impl LowServe {
    /// Checks the words of `haul serve`.
    ///
    /// # Errors
    /// If the arguments make no sense together.
    pub fn checked(self) -> Result<ServeOptions, Problem> {
        let root = match self.root {
            Some(root) if root.as_os_str() != "null:" => ServeRoot::Directory(root),
            _ => ServeRoot::Null,
        };
        if root == ServeRoot::Null && self.read_only && !self.over_ssh {
            return Err(usage_problem(
                "cannot serve null: read-only",
                "a directory to send from",
                "null:, which only receives",
                "leave out --read-only, or name a directory",
            ));
        }
        if self.handshake_timeout.0.is_zero() {
            let needs = "more than nothing";
            return Err(usage_problem("cannot take --handshake-timeout", needs, "0s", ""));
        }
        let hint = "the port is that of --listen";
        let checked = |host: &str| checked_host("--advertise", host, hint);
        let advertise = self.advertise.as_deref().map(checked).transpose()?;
        let mut options = ServeOptions::new(root, self.state.checked());
        options.listen = match self.port_range {
            Some(ports) => ports.free_address()?,
            None if self.over_ssh && self.listen == defaults().listen => ANY_FREE_PORT.to_owned(),
            None => with_port(self.listen),
        };
        options.advertise = advertise;
        options.once = self.once;
        options.read_only = self.read_only;
        options.rdma = self.fabric;
        options.protection_min = self.protection_min.into();
        options.rekey_after_bytes = self.rekey_after.unwrap_or(options.rekey_after_bytes);
        options.sessions_max = self.max_sessions;
        options.probes_max = self.max_probes;
        options.streams_max = self.max_streams;
        options.handshake_timeout = self.handshake_timeout.0;
        options.dscp = self.dscp;
        options.reflects_flow_label = self.reflect_flow_label;
        Ok(options)
    }
}

/// Adds the default port to an address without one: `10.0.0.1`, `host`, `::1`, `[::1]`. A port, as
/// `80` or `:80`, is that of all addresses.
fn with_port(listen: String) -> String {
    let port = listen.strip_prefix(':').unwrap_or(&listen);
    if port.parse::<u16>().is_ok() {
        format!("[::]:{port}")
    } else if listen.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("[{listen}]:{PORT_DEFAULT}")
    } else if listen.ends_with(']') || !listen.contains(':') {
        format!("{listen}:{PORT_DEFAULT}")
    } else {
        listen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_gets_the_default_one() {
        for (text, listen) in [
            ("127.0.0.1", "127.0.0.1:7117"),
            ("host", "host:7117"),
            ("::1", "[::1]:7117"),
            ("[::]", "[::]:7117"),
            ("[::]:0", "[::]:0"),
            ("host:9", "host:9"),
            ("80", "[::]:80"),
            (":80", "[::]:80"),
            ("::80", "[::80]:7117"),
            ("[::]:80", "[::]:80"),
        ] {
            assert_eq!(with_port(text.to_owned()), listen);
        }
    }
}
