//! How a pair comes to be: a provider is opened, one side waits, the other one connects.

use std::{
    net::{IpAddr, Ipv6Addr},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use haul_fabric_sys::{
    Address, Channel, Domain, EndpointKind, Info, Listener, Patience, Queue, Ticket,
};
use rustix::{io::Errno, net::AddressFamily};

use crate::{
    Error, Exchange, LocalAddress, Provider, ReceiveEnd, SendEnd, Wait,
    endpoint::{self, Endpoint},
};

/// The longest address of an endpoint, in bytes.
const ADDRESS_BYTES_MAX: usize = 512;
/// Bytes of a contact in front of the address: the ticket, and the address's format.
const HEAD_BYTES: usize = size_of::<Ticket>() + size_of::<u32>();

/// Loads libfabric, which the first use does otherwise: it takes a part of a second.
///
/// # Errors
/// [`Error::NoLibrary`] where this host has none.
pub fn load() -> Result<(), Error> {
    haul_fabric_sys::load().map_err(|error| Error::NoLibrary(error.0))
}

/// A provider that was opened, on one address of this host.
#[derive(Clone, Debug)]
pub struct Fabric {
    provider: Provider,
    domain: Arc<Domain>,
    local: LocalAddress,
    wait: Wait,
}

impl Fabric {
    /// Opens a provider, on the card that has this address.
    ///
    /// # Errors
    /// [`Error::NoLibrary`] and [`Error::NoProvider`] where this host has none there.
    pub fn open(provider: Provider, local: impl Into<LocalAddress>) -> Result<Self, Error> {
        load()?;
        let local = local.into();
        let node = local.to_string();
        let (kind, node) = match provider {
            Provider::Verbs | Provider::Tcp => (EndpointKind::Connected, Some(node.as_str())),
            // These have addresses of their own kind.
            Provider::Efa | Provider::Cxi | Provider::Shm => {
                (EndpointKind::ReliableDatagrams, None)
            }
        };
        let refused = |error: haul_fabric_sys::Error| Error::NoProvider {
            provider,
            needs: needs(provider),
            found: format!("at {local}: {error}"),
        };
        let info = Info::find(provider.name(), kind, node).map_err(refused)?;
        let domain = Domain::open(info).map_err(refused)?;
        Ok(Self { provider, domain, local, wait: Wait::default() })
    }

    /// This provider with pairs that wait in another way.
    #[must_use]
    pub fn waiting(&self, wait: Wait) -> Self {
        Self { wait, ..self.clone() }
    }

    fn queue(&self) -> Queue {
        match self.wait {
            Wait::Poll => Queue::Polled,
            Wait::Sleep | Wait::Adaptive => Queue::CanSleep,
        }
    }

    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The name of the card's port, as libfabric has it.
    #[must_use]
    pub fn port(&self) -> String {
        self.domain.info().domain()
    }

    /// Makes an endpoint that waits for the one that has its contact.
    ///
    /// # Errors
    /// What the provider says.
    pub fn listen(&self, ticket: Ticket) -> Result<Listening, Error> {
        let mut listener = Listener::new(&self.domain, ticket, self.queue())?;
        let contact = Contact { ticket, address: listener.address()? };
        Ok(Listening { provider: self.provider, wait: self.wait, listener, contact })
    }

    /// Connects to an endpoint that waits. `lifeline` is the TCP connection over which the contact
    /// came.
    ///
    /// # Errors
    /// [`Error::TimedOut`] where nobody answers, [`Error::PeerGone`] when the lifeline ends before;
    /// else what the provider says.
    pub fn connect(
        &self,
        contact: &Contact,
        lifeline: OwnedFd,
        timeout: Duration,
    ) -> Result<Pair, Error> {
        let Contact { ticket, mut address } = contact.clone();
        self.local.write_zone(&mut address.bytes);
        let has_ended = || endpoint::has_ended(&lifeline);
        let patience = Patience::new(timeout, &has_ended);
        let channel =
            haul_fabric_sys::connect(&self.domain, &address, &ticket, self.queue(), patience);
        let channel = channel.map_err(|error| in_vain(error, "the peer's endpoint", timeout))?;
        Ok(Pair { provider: self.provider, wait: self.wait, channel, lifeline })
    }
}

/// The need of a provider, in words.
fn needs(provider: Provider) -> &'static str {
    match provider {
        Provider::Verbs => {
            "a card with RDMA (`rdma link` shows it; soft-RoCE: `rdma link add rxe0 type rxe \
             netdev DEVICE`) with this address, and packages ibverbs-providers and librdmacm1"
        }
        Provider::Efa => "an EFA device (`fi_info -p efa` shows it)",
        Provider::Cxi => "a Slingshot card (`fi_info -p cxi` shows it)",
        Provider::Shm => "libfabric with the provider shm (`fi_info -p shm` shows it)",
        Provider::Tcp => "libfabric with the provider tcp (`fi_info -p tcp` shows it)",
    }
}

/// The error of a wait that brought no peer.
fn in_vain(error: haul_fabric_sys::Error, what: &'static str, timeout: Duration) -> Error {
    match Errno::from_raw_os_error(error.code) {
        Errno::TIMEDOUT => Error::TimedOut { what, seconds: timeout.as_secs() },
        Errno::CANCELED => Error::PeerGone,
        _ => error.into(),
    }
}

/// An endpoint that waits for its peer.
#[derive(Debug)]
pub struct Listening {
    provider: Provider,
    wait: Wait,
    listener: Listener,
    contact: Contact,
}

impl Listening {
    /// The contact that the peer is to be told, over a connection that both trust.
    #[must_use]
    pub fn contact(&self) -> &Contact {
        &self.contact
    }

    /// Waits for the peer. `lifeline` is the TCP connection over which the contact went.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when nobody with the contact comes, [`Error::PeerGone`] when the
    /// lifeline ends before.
    pub fn accept(self, lifeline: OwnedFd, timeout: Duration) -> Result<Pair, Error> {
        let has_ended = || endpoint::has_ended(&lifeline);
        let channel = self.listener.accept(Patience::new(timeout, &has_ended));
        let channel = channel.map_err(|error| in_vain(error, "the peer to connect", timeout))?;
        Ok(Pair { provider: self.provider, wait: self.wait, channel, lifeline })
    }
}

/// The address of an endpoint that waits, and the ticket that opens it.
#[derive(Clone, PartialEq, Eq)]
pub struct Contact {
    ticket: Ticket,
    address: Address,
}

impl std::fmt::Debug for Contact {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The ticket is a secret.
        formatter.debug_struct("Contact").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Contact {
    /// Writes the contact for the wire: the ticket, the address's format (u32, little-endian), the
    /// address.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&self.ticket[..], &self.address.format.to_le_bytes(), &self.address.bytes].concat()
    }

    /// The IP address of the endpoint, where its address is one of a socket.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        // sockaddr_in and sockaddr_in6: the family, the port, and for IPv6 the flow.
        const V4: (usize, usize) = (16, 4);
        const V6: (usize, usize) = (28, 8);
        let bytes = &self.address.bytes;
        let of_family = |family: AddressFamily, (len, at): (usize, usize)| {
            let is_one = bytes.len() >= len && bytes[..2] == family.as_raw().to_ne_bytes();
            is_one.then(|| &bytes[at..])
        };
        if let Some(found) = of_family(AddressFamily::INET, V4) {
            return found.first_chunk::<4>().map(|octets| IpAddr::from(*octets));
        }
        let found = of_family(AddressFamily::INET6, V6)?.first_chunk::<16>()?;
        Some(IpAddr::V6(Ipv6Addr::from(*found)).to_canonical())
    }

    /// Reads what [`Self::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::BadMessage`] where it cannot be that.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let bad = || Error::BadMessage("a contact that is none");
        let (ticket, rest) = bytes.split_first_chunk().ok_or_else(bad)?;
        let (format, address) = rest.split_first_chunk().ok_or_else(bad)?;
        if address.is_empty() || bytes.len() > HEAD_BYTES + ADDRESS_BYTES_MAX {
            return Err(bad());
        }
        let format = u32::from_le_bytes(*format);
        Ok(Self { ticket: *ticket, address: Address { format, bytes: address.to_vec() } })
    }
}

/// Two endpoints that are connected; this side says next which direction it has.
#[derive(Debug)]
pub struct Pair {
    provider: Provider,
    wait: Wait,
    channel: Channel,
    lifeline: OwnedFd,
}

impl Pair {
    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Makes this the end that sends, with at most `share_bytes` of memory: registered buffers, and
    /// pages of files that are under way.
    ///
    /// # Errors
    /// [`Error::NoMemory`] where it cannot be registered.
    pub fn into_sender(self, share_bytes: usize) -> Result<SendEnd, Error> {
        SendEnd::new(self.provider, self.into_endpoint(), share_bytes)
    }

    /// Makes this the end that receives, with at most `share_bytes` of registered memory. The same
    /// share at the other end makes messages as long as the buffers.
    ///
    /// # Errors
    /// [`Error::NoMemory`] where it cannot be registered.
    pub fn into_receiver(self, share_bytes: usize) -> Result<ReceiveEnd, Error> {
        ReceiveEnd::new(self.provider, self.into_endpoint(), share_bytes)
    }

    /// Makes this an end whose sides take turns, with messages of at most this length, once the
    /// other side has done so too. The lifeline is one whose reads wait.
    ///
    /// # Errors
    /// [`Error::NoMemory`] where memory cannot be registered, [`Error::PeerGone`] without a peer.
    pub fn into_exchange(self, message_bytes_max: usize) -> Result<Exchange, Error> {
        Exchange::new(self.into_endpoint(), message_bytes_max)
    }

    pub(crate) fn into_endpoint(self) -> Endpoint {
        Endpoint::new(self.channel, self.lifeline, self.wait)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_port_has_the_name_that_the_provider_gives_it() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let info = Info::find("tcp", EndpointKind::Connected, Some("127.0.0.1")).unwrap();
        let fabric = Fabric::open(Provider::Tcp, local).unwrap();
        assert_eq!((fabric.port(), fabric.port().is_empty()), (info.domain(), false));
    }

    #[test]
    fn a_contact_has_the_ip_of_its_socket_address_and_of_no_other() {
        let ip = |family: AddressFamily, rest: &[u8]| {
            let bytes = [&family.as_raw().to_ne_bytes()[..], rest].concat();
            let contact = Contact { ticket: [9; 16], address: Address { format: 2, bytes } };
            contact.ip().map(|ip| ip.to_string())
        };
        let v4 = [&[0, 22, 192, 0, 2, 7][..], &[0; 8]].concat();
        assert_eq!(ip(AddressFamily::INET, &v4).as_deref(), Some("192.0.2.7"));
        assert_eq!(ip(AddressFamily::INET, &v4[..13]), None, "cut off");
        let of_v6 = |octets: [u8; 16]| [&[0; 6][..], &octets, &[0; 4]].concat();
        let v6 = of_v6(Ipv6Addr::LOCALHOST.octets());
        assert_eq!(ip(AddressFamily::INET6, &v6).as_deref(), Some("::1"));
        let mapped = of_v6("::ffff:127.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        assert_eq!(ip(AddressFamily::INET6, &mapped).as_deref(), Some("127.0.0.1"));
        assert_eq!(ip(AddressFamily::INET6, &v6[..25]), None, "cut off");
        assert_eq!(ip(AddressFamily::UNIX, &v6), None);
        let fabric = Fabric::open(Provider::Tcp, IpAddr::from([127, 0, 0, 1])).unwrap();
        let listening = fabric.listen([9; 16]).unwrap();
        assert_eq!(listening.contact().ip(), Some(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn a_contact_is_read_as_it_was_written_and_nothing_else_is_one() {
        let address = Address { format: 7, bytes: vec![1, 2, 3] };
        let contact = Contact { ticket: [9; 16], address };
        let written = contact.encode();
        assert_eq!(Contact::decode(&written), Ok(contact.clone()));
        assert!(!format!("{contact:?}").contains("9, 9"), "the ticket stays secret");
        let bad = Err(Error::BadMessage("a contact that is none"));
        // A ticket has 16 bytes, and the address's format 4.
        assert_eq!(Contact::decode(&written[..20]), bad);
        assert_eq!(Contact::decode(&written[..19]), bad);
        let most = 20 + 512;
        assert!(Contact::decode(&vec![1; most]).is_ok());
        assert_eq!(Contact::decode(&vec![1; most + 1]), bad);
    }
}
