//! Options for the connections that a command makes to a server.

use super::usage_problem;
use crate::ssh::ways::{Way, only_for_connections};
use clap::Args;
use haul_transfer::{ConnectOptions, Dscp, LocalEnd, Problem, SciTag};

/// Options for connections to a server.
#[derive(Debug, Default, Args)]
pub struct LowConnections {
    /// Addresses or interfaces of this host that connections come from, such as eth0,eth1
    ///
    /// With several, the data streams take them in turn, and the report has a line for each.
    #[arg(long, value_name = "ADDRESS|INTERFACE", value_delimiter = ',', hide_short_help = true)]
    pub bind: Vec<LocalEnd>,
    /// Class that the packets ask for: a number below 64, or a name such as af11, cs1, le
    ///
    /// Routers that know the class treat them by it. A server's packets have that of its --dscp.
    #[arg(long, value_name = "CLASS", hide_short_help = true)]
    pub dscp: Option<Dscp>,
    /// Numbers of the experiment and the activity that data is of (scitags.org), such as 2.14
    ///
    /// Each data stream has them in the flow label of its packets (IPv6), and a datagram tells the
    /// server's host, port 10514, of its begin and its end (firefly).
    #[arg(long, value_name = "EXPERIMENT.ACTIVITY", hide_short_help = true)]
    pub scitag: Option<SciTag>,
    /// Collectors that hear of each stream, too; without a port 10514
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "scitag")]
    #[arg(hide_short_help = true)]
    pub firefly: Vec<String>,
}

impl LowConnections {
    /// Refuses options for connections to the other side where the user has named another way.
    ///
    /// # Errors
    /// If both were asked for.
    pub fn check_way(&self, way: Way) -> Result<(), Problem> {
        let named = only_for_connections(&self.checked());
        let (Some(way), Some(option)) = (way.option(), named.first()) else { return Ok(()) };
        let needs = "connections to the other side, which it is for";
        let hint = "leave out one of both: by that way none are made to the other side";
        Err(usage_problem(&format!("cannot take {option}"), needs, way, hint))
    }

    /// Gives the options to the library.
    #[must_use]
    pub fn checked(&self) -> ConnectOptions {
        let mut connect = ConnectOptions::default();
        connect.local_ends.clone_from(&self.bind);
        connect.dscp = self.dscp;
        connect.scitag = self.scitag;
        connect.collectors.clone_from(&self.firefly);
        connect
    }
}
