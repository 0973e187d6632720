//! Choices for the connections to a server, and ways to it other than by its address.

use crate::marks::{Dscp, SciTag};
use std::{
    fmt, io,
    net::{IpAddr, TcpStream},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

/// Makes connections to a server in another way than by its address: one that comes from there, or
/// one that another program carries.
pub trait Connector: fmt::Debug + Send + Sync {
    /// Makes a connection within `patience`, unless `stop` says that nobody waits for it any more.
    ///
    /// # Errors
    /// If none can be made now; it is tried again for as long as a lost connection is.
    fn connect(&self, patience: Duration, stop: &dyn Fn() -> bool) -> io::Result<TcpStream>;

    /// The reason why no connection can be made ever again; `None` while there may be one.
    fn is_over(&self) -> Option<String>;

    /// Whether ssh carries the bytes on, at its own pace, so that the connections end on this host.
    fn is_through_ssh(&self) -> bool;

    /// Says in half a sentence how data goes, for `--explain`.
    fn in_words(&self) -> String;
}

/// Choices for the connections to a server, those of control and of data alike.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Maker of the connections; `None` for TCP to the server's address.
    pub connector: Option<Arc<dyn Connector>>,
    /// Local ends of the connections. The streams take them in turn; any where there are none.
    pub local_ends: Vec<LocalEnd>,
    /// The class that the packets of this side ask for; `None` for the system's.
    pub dscp: Option<Dscp>,
    /// Community and activity that the data is told to be of; `None` tells nobody.
    pub scitag: Option<SciTag>,
    /// Collectors that hear of each marked stream, as `HOST:PORT`, beside the server's host.
    pub collectors: Vec<String>,
}

/// Local end of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalEnd {
    /// An address of this host.
    Address(IpAddr),
    /// An interface, with the addresses that it has.
    Interface(String),
}

/// Longest name of an interface (`IFNAMSIZ` of linux/if.h, less its zero byte).
const INTERFACE_BYTES_MAX: usize = 15;

/// A text that is no local end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address and no name of an interface")]
pub struct NoLocalEnd(String);

/// Reads an address, else the name of an interface.
impl FromStr for LocalEnd {
    type Err = NoLocalEnd;

    fn from_str(text: &str) -> Result<Self, NoLocalEnd> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let is_name = (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:,".contains(&byte));
        let name = is_name.then(|| Self::Interface(text.to_owned()));
        name.ok_or_else(|| NoLocalEnd(text.to_owned()))
    }
}

impl fmt::Display for LocalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_end_is_an_address_or_an_interface() {
        for text in ["192.0.2.1", "2001:db8::1", "eth0", "bond0.100", "enp65s0f1np1"] {
            assert_eq!(text.parse::<LocalEnd>().unwrap().to_string(), text);
        }
        for bad in ["", "a/b", "a b", "192.0.2.1:80", "a-name-of-16-byt", "eth0,eth1"] {
            assert!(bad.parse::<LocalEnd>().is_err(), "{bad}");
        }
    }
}
