//! Options for the connections that a command makes to a server.

use clap::Args;
use haul_transfer::{ConnectOptions, Dscp, LocalEnd, SciTag};

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
