//! Providers of libfabric that haul knows, and what each of them can do.

use std::{fmt, str::FromStr};

/// Most pairs of a session in one direction.
///
/// Beyond it more pairs would only have shorter messages, as they share the memory. Where the
/// processor copies (`shm`) one or two move what memory can move; a card sends by itself. Each pair
/// also takes memory of libfabric, which no share counts.
pub const PAIRS_MAX: u32 = 4;

/// A provider: one kind of network card, or a stand-in for machines without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// InfiniBand, RoCE and iWARP, by rdma-core.
    Verbs,
    /// Elastic Fabric Adapter of Amazon's machines. Not seen by haul's developers.
    Efa,
    /// Slingshot. Not seen by haul's developers.
    Cxi,
    /// Memory that two processes of one machine share.
    Shm,
    /// Sockets, for tests of the rest.
    Tcp,
}

/// The part that copies the bytes of a file's window on their way to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// The card reads and writes memory by itself.
    Card,
    /// The kernel copies, by the processor.
    Kernel,
}

impl Provider {
    /// All providers, the one that is to be taken first at the beginning.
    pub const ALL: [Self; 5] = [Self::Verbs, Self::Efa, Self::Cxi, Self::Shm, Self::Tcp];

    /// The provider's name in libfabric and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Efa => "efa",
            Self::Cxi => "cxi",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }

    #[must_use]
    pub fn mover(self) -> Mover {
        match self {
            Self::Verbs | Self::Efa | Self::Cxi => Mover::Card,
            Self::Shm | Self::Tcp => Mover::Kernel,
        }
    }

    /// Length up to which a provider may copy a message by itself, in this process, so that a
    /// window on a file's pages gains nothing: verbs "inject" at most some hundred bytes
    /// (fi_verbs(7)), tcp gathers up to 9,000 (`FI_TCP_STAGING_SBUF_SIZE`, fi_tcp(7)), shm puts up
    /// to 4,096 into the queue itself (fi_shm(7)).
    #[must_use]
    pub fn copied_bytes_max(self) -> u64 {
        match self {
            Self::Verbs => 1 << 10,
            Self::Efa | Self::Cxi | Self::Shm | Self::Tcp => 16 << 10,
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Provider {
    type Err = NoSuchProvider;

    fn from_str(name: &str) -> Result<Self, NoSuchProvider> {
        Self::ALL.into_iter().find(|provider| provider.name() == name).ok_or(NoSuchProvider)
    }
}

/// A name that no provider has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such provider: there are verbs, efa, cxi, shm and tcp")]
pub struct NoSuchProvider;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_found_by_its_name_and_by_no_other() {
        for provider in Provider::ALL {
            assert_eq!(provider.to_string().parse(), Ok(provider));
        }
        assert_eq!("udp".parse::<Provider>(), Err(NoSuchProvider));
    }
}
