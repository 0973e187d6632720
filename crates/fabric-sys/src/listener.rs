//! How two endpoints come together: by a connection, or by an exchange of addresses.
//!
//! Either way the one that connects shows a ticket, which the other side made and gave it over a
//! connection that both trust; who has another one is turned away.

use core::{ffi::c_void, ptr};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    bindings::{self, fid_av, fid_cq, fid_ep, fid_eq, fid_pep},
    channel::{Channel, Completion, NAP, Operation, Parts, Source},
    domain::Domain,
    error::Error,
    info::{EndpointKind, Info},
    memory::{Buffer, Reach},
    object::Object,
    same_process::{self, Names},
    shared_region,
};

/// The longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 512;
/// Length of a ticket, in bytes.
const TICKET_BYTES: usize = 16;
/// Room for an event of a connection, with what the peer says in it.
const EVENT_BYTES: usize = size_of::<bindings::fi_eq_cm_entry>() + 256;

/// The kind of a queue of completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Polled only. A message by tcp takes a tenth less time than with one that can be slept at, as
    /// nobody waits at the socket whom the kernel has to look at (libfabric 1.17, 64 bytes).
    Polled,
    /// Polled, or slept at until an interrupt.
    CanSleep,
}

/// A secret that the one that connects shows.
pub type Ticket = [u8; TICKET_BYTES];

/// Address of an endpoint that waits for a peer, in its provider's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A number of fi_getinfo(3), the same on both sides.
    pub format: u32,
    pub bytes: Vec<u8>,
}

/// The longest sleep before [`Patience`] is asked again.
const SLICE: Duration = Duration::from_millis(20);

/// The time for which a peer is waited for, and a reason to stop before.
pub struct Patience<'stop> {
    deadline: Instant,
    stop: &'stop dyn Fn() -> bool,
}

impl<'stop> Patience<'stop> {
    /// Waits at most this long, and no longer than until `stop` says true.
    #[must_use]
    pub fn new(timeout: Duration, stop: &'stop dyn Fn() -> bool) -> Self {
        Self { deadline: Instant::now() + timeout, stop }
    }

    /// The time for which to sleep now; ETIMEDOUT or ECANCELED when it is over.
    fn left(&self, call: &'static str) -> Result<Duration, Error> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if (self.stop)() {
            return Err(Error { call, code: libc::ECANCELED });
        }
        if left.is_zero() {
            return Err(Error { call, code: libc::ETIMEDOUT });
        }
        Ok(left.min(SLICE))
    }
}

/// An endpoint that waits for its peer.
#[derive(Debug)]
pub struct Listener {
    waiting: Waiting,
    ticket: Ticket,
    queue: Queue,
    domain: Arc<Domain>,
}

#[derive(Debug)]
enum Waiting {
    Connection { passive: Object<fid_pep>, events: Object<fid_eq> },
    Datagram(Channel),
}

impl Listener {
    /// Waits for a peer that has this ticket.
    ///
    /// # Errors
    /// What the provider says.
    pub fn new(domain: &Arc<Domain>, ticket: Ticket, queue: Queue) -> Result<Self, Error> {
        let waiting = match domain.info().kind() {
            EndpointKind::Connected => {
                let events = open_events(domain)?;
                let passive = Object::made("fi_passive_ep", |made| {
                    let info = domain.info().raw();
                    // SAFETY: the fabric is open, and the entry is whole.
                    unsafe { bindings::fi_passive_ep(domain.fabric(), info, made, ptr::null_mut()) }
                })?;
                // SAFETY: both objects are open.
                let bound = unsafe { bindings::fi_pep_bind(passive.raw(), events.fid(), 0) };
                Error::check("fi_pep_bind", bound as isize)?;
                // SAFETY: the endpoint is open.
                let listens = unsafe { bindings::fi_listen(passive.raw()) };
                Error::check("fi_listen", listens as isize)?;
                Waiting::Connection { passive, events }
            }
            EndpointKind::ReliableDatagrams => {
                let mut channel = datagrams(domain, queue)?;
                receive_greeting(&mut channel)?;
                Waiting::Datagram(channel)
            }
        };
        Ok(Self { waiting, ticket, queue, domain: domain.clone() })
    }

    /// The address that the peer is to be told.
    ///
    /// # Errors
    /// What fi_getname(3) says.
    pub fn address(&mut self) -> Result<Address, Error> {
        let fid = match &mut self.waiting {
            Waiting::Connection { passive, .. } => passive.fid(),
            Waiting::Datagram(channel) => channel.parts().endpoint.fid(),
        };
        name_of(fid, &self.domain)
    }

    /// Waits for the peer.
    ///
    /// # Errors
    /// ETIMEDOUT when nobody with the ticket came, ECANCELED when it was stopped; else what the
    /// provider says.
    pub fn accept(self, patience: Patience<'_>) -> Result<Channel, Error> {
        let patience = &patience;
        match self.waiting {
            Waiting::Connection { passive, events } => {
                let request = wanted_request(&passive, &events, &self.ticket, patience)?;
                let (mut parts, own) = endpoint(&self.domain, &request, self.queue)?;
                // SAFETY: the endpoint is open and was made for this request.
                let accepted = unsafe { bindings::fi_accept(parts.endpoint.raw(), ptr::null(), 0) };
                Error::check("fi_accept", accepted as isize)?;
                await_connected(&own, patience)?;
                parts.events = Some(own);
                Ok(Channel::new(parts, self.domain))
            }
            Waiting::Datagram(mut channel) => {
                let address = await_greeting(&mut channel, &self.ticket, patience)?;
                insert_peer(&mut channel, &address)?;
                // The peer maps this region before it sends.
                forget_name(&mut channel);
                say(&mut channel, &self.ticket, patience)?;
                next_completion(&mut channel, patience)?.outcome?;
                Ok(channel)
            }
        }
    }
}

/// Connects to a listener of the same provider.
///
/// # Errors
/// ECONNREFUSED where nobody listens or the ticket is another one, ETIMEDOUT where nobody answers.
pub fn connect(
    domain: &Arc<Domain>,
    address: &Address,
    ticket: &Ticket,
    queue: Queue,
    patience: Patience<'_>,
) -> Result<Channel, Error> {
    let patience = &patience;
    match domain.info().kind() {
        EndpointKind::Connected => {
            let (mut parts, own) =
                endpoint(domain, &domain.info().towards(&address.bytes)?, queue)?;
            let (to, said) = (address.bytes.as_ptr().cast(), ticket.as_ptr().cast());
            // SAFETY: the endpoint is open; address and ticket live across the call.
            let result =
                unsafe { bindings::fi_connect(parts.endpoint.raw(), to, said, TICKET_BYTES) };
            Error::check("fi_connect", result as isize)?;
            await_connected(&own, patience)?;
            parts.events = Some(own);
            Ok(Channel::new(parts, domain.clone()))
        }
        EndpointKind::ReliableDatagrams => {
            let mut channel = datagrams(domain, queue)?;
            receive_greeting(&mut channel)?;
            insert_peer(&mut channel, &address.bytes)?;
            let own = name_of(channel.parts().endpoint.fid(), domain)?;
            let greeting = [&ticket[..], &own.bytes].concat();
            say(&mut channel, &greeting, patience)?;
            await_greeting(&mut channel, ticket, patience)?;
            forget_name(&mut channel);
            Ok(channel)
        }
    }
}

fn open_events(domain: &Domain) -> Result<Object<fid_eq>, Error> {
    let mut attributes = bindings::fi_eq_attr {
        size: 0,
        flags: 0,
        wait_obj: bindings::fi_wait_obj_FI_WAIT_UNSPEC,
        signaling_vector: 0,
        wait_set: ptr::null_mut(),
    };
    Object::made("fi_eq_open", |made| {
        // SAFETY: the fabric is open, and the attributes live across the call.
        unsafe { bindings::fi_eq_open(domain.fabric(), &raw mut attributes, made, ptr::null_mut()) }
    })
}

/// Opens a queue of completions, and says whether it can be slept at: not every provider has that.
fn open_completions(domain: &Domain, queue: Queue) -> Result<(Object<fid_cq>, bool), Error> {
    let open = |wait_obj| {
        let (sends, receives) = domain.info().queue_lengths();
        let mut attributes = bindings::fi_cq_attr {
            size: sends + receives,
            flags: 0,
            format: bindings::fi_cq_format_FI_CQ_FORMAT_MSG,
            wait_obj,
            signaling_vector: 0,
            wait_cond: bindings::fi_cq_wait_cond_FI_CQ_COND_NONE,
            wait_set: ptr::null_mut(),
        };
        Object::made("fi_cq_open", |made| {
            // SAFETY: the domain is open, and the attributes live across the call.
            unsafe {
                bindings::fi_cq_open(domain.raw(), &raw mut attributes, made, ptr::null_mut())
            }
        })
    };
    let polled = || Ok((open(bindings::fi_wait_obj_FI_WAIT_NONE)?, false));
    match queue {
        Queue::Polled => polled(),
        Queue::CanSleep => open(bindings::fi_wait_obj_FI_WAIT_FD)
            .map_or_else(|_| polled(), |open| Ok((open, true))),
    }
}

/// Opens an endpoint of a connection, with its queues; its events stand beside it until it is
/// connected.
fn endpoint(
    domain: &Arc<Domain>,
    info: &Info,
    queue: Queue,
) -> Result<(Parts, Object<fid_eq>), Error> {
    let events = open_events(domain)?;
    let (completions, can_wait) = open_completions(domain, queue)?;
    let endpoint = open_endpoint(domain, info)?;
    bind(&endpoint, events.fid(), 0)?;
    bind(&endpoint, completions.fid(), u64::from(bindings::FI_SEND | bindings::FI_RECV))?;
    enable(&endpoint)?;
    let peer = u64::MAX;
    let (addresses, names) = (None, None);
    let parts = Parts { endpoint, completions, events: None, addresses, peer, can_wait, names };
    Ok((parts, events))
}

/// Opens an endpoint without a connection, which knows no peer yet.
fn datagrams(domain: &Arc<Domain>, queue: Queue) -> Result<Channel, Error> {
    let (completions, can_wait) = open_completions(domain, queue)?;
    // SAFETY: numbers and null pointers, for which zeros stand.
    let mut attributes: bindings::fi_av_attr = unsafe { core::mem::zeroed() };
    attributes.type_ = bindings::fi_av_type_FI_AV_TABLE;
    attributes.count = 1;
    let addresses: Object<fid_av> = Object::made("fi_av_open", |made| {
        // SAFETY: the domain is open, and the attributes live across the call.
        unsafe { bindings::fi_av_open(domain.raw(), &raw mut attributes, made, ptr::null_mut()) }
    })?;
    let endpoint = open_endpoint(domain, domain.info())?;
    bind(&endpoint, addresses.fid(), 0)?;
    bind(&endpoint, completions.fid(), u64::from(bindings::FI_SEND | bindings::FI_RECV))?;
    {
        let _alone = shared_region::begin();
        enable(&endpoint)?;
        shared_region::give_back_padding(&name_of(endpoint.fid(), domain)?.bytes);
    }
    let (addresses, peer, names) = (Some(addresses), u64::MAX, None);
    let parts = Parts { endpoint, completions, events: None, addresses, peer, can_wait, names };
    Ok(Channel::new(parts, domain.clone()))
}

fn open_endpoint(domain: &Domain, info: &Info) -> Result<Object<fid_ep>, Error> {
    Object::made("fi_endpoint", |made| {
        // SAFETY: the domain is open, and the entry is whole.
        unsafe { bindings::fi_endpoint(domain.raw(), info.raw(), made, ptr::null_mut()) }
    })
}

fn bind(endpoint: &Object<fid_ep>, to: *mut bindings::fid, flags: u64) -> Result<(), Error> {
    // SAFETY: both objects are open, and the endpoint is closed first.
    let bound = unsafe { bindings::fi_ep_bind(endpoint.raw(), to, flags) };
    Error::check("fi_ep_bind", bound as isize).map(drop)
}

fn enable(endpoint: &Object<fid_ep>) -> Result<(), Error> {
    // SAFETY: the endpoint is open and has its queues.
    let enabled = unsafe { bindings::fi_enable(endpoint.raw()) };
    Error::check("fi_enable", enabled as isize).map(drop)
}

fn name_of(fid: *mut bindings::fid, domain: &Domain) -> Result<Address, Error> {
    let mut bytes = vec![0; ADDRESS_BYTES_MAX];
    let mut len_bytes = bytes.len();
    // SAFETY: the object is an open endpoint, and the room is as long as is said.
    let result =
        unsafe { bindings::fi_getname(fid, bytes.as_mut_ptr().cast(), &raw mut len_bytes) };
    Error::check("fi_getname", result as isize)?;
    bytes.truncate(len_bytes);
    Ok(Address { format: domain.info().address_format(), bytes })
}

/// Room for an event, at the border that its structure wants.
#[repr(C, align(8))]
struct Event([u8; EVENT_BYTES]);

/// Waits for the next event of a connection: its kind, and its bytes.
fn next_event(
    events: &Object<fid_eq>,
    patience: &Patience<'_>,
) -> Result<(u32, Event, usize), Error> {
    let mut event = Event([0; EVENT_BYTES]);
    loop {
        let left = patience.left("fi_eq_sread")?;
        let (mut kind, room) = (0, (&raw mut event).cast::<c_void>());
        let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: the queue is open, and the room is as long as is said.
        let result = unsafe {
            bindings::fi_eq_sread(events.raw(), &raw mut kind, room, EVENT_BYTES, left_ms, 0)
        };
        match Error::check("fi_eq_sread", result) {
            Ok(len_bytes) => return Ok((kind, event, len_bytes)),
            Err(error) if error.is_again() || error.code == libc::EINTR => {}
            Err(error) if error.code == bindings::FI_EAVAIL.cast_signed() => {
                return Err(event_error(events));
            }
            Err(error) => return Err(error),
        }
    }
}

fn event_error(events: &Object<fid_eq>) -> Error {
    // SAFETY: numbers and null pointers, for which zeros stand.
    let mut entry: bindings::fi_eq_err_entry = unsafe { core::mem::zeroed() };
    // SAFETY: the queue is open, and the entry lives across the call.
    let result = unsafe { bindings::fi_eq_readerr(events.raw(), &raw mut entry, 0) };
    match Error::check("fi_eq_readerr", result) {
        Ok(_) => Error { call: "the connection", code: entry.err },
        Err(error) => error,
    }
}

fn await_connected(events: &Object<fid_eq>, patience: &Patience<'_>) -> Result<(), Error> {
    match next_event(events, patience)? {
        (bindings::FI_CONNECTED, ..) => Ok(()),
        _ => Err(Error { call: "the connection", code: libc::ECONNREFUSED }),
    }
}

/// Takes the ticket off what was said, in a time that does not tell where another one differs;
/// `None` where it is not there.
fn behind_ticket<'a>(said: &'a [u8], ticket: &Ticket) -> Option<&'a [u8]> {
    let (shown, behind) = said.split_first_chunk::<TICKET_BYTES>()?;
    let differ = shown.iter().zip(ticket).fold(0, |differ, (one, other)| differ | (one ^ other));
    (std::hint::black_box(differ) == 0).then_some(behind)
}

/// Waits for a request with the ticket, and turns others away.
fn wanted_request(
    passive: &Object<fid_pep>,
    events: &Object<fid_eq>,
    ticket: &Ticket,
    patience: &Patience<'_>,
) -> Result<Info, Error> {
    loop {
        let (kind, event, len_bytes) = next_event(events, patience)?;
        if kind != bindings::FI_CONNREQ {
            continue;
        }
        // SAFETY: a request begins with this structure, and the room is at its border.
        let info = unsafe { (*(&raw const event).cast::<bindings::fi_eq_cm_entry>()).info };
        // SAFETY: the entry was given with the event, and nobody else frees it.
        let request = unsafe { Info::owned(info, EndpointKind::Connected) };
        let Some(request) = request else { continue };
        let said = &event.0[size_of::<bindings::fi_eq_cm_entry>()..len_bytes.min(EVENT_BYTES)];
        // A provider may tell of more room than the peer has filled.
        if behind_ticket(said, ticket).is_some() {
            return Ok(request);
        }
        // SAFETY: the endpoint is open, and the handle is that of this request.
        let handle = unsafe { (*request.raw()).handle };
        // SAFETY: as above; nothing is said.
        unsafe { bindings::fi_reject(passive.raw(), handle, ptr::null(), 0) };
    }
}

/// Posts the buffer that the peer's greeting comes into.
fn receive_greeting(channel: &mut Channel) -> Result<(), Error> {
    let domain = channel.domain().clone();
    let buffer = Buffer::new(&domain, TICKET_BYTES + ADDRESS_BYTES_MAX, Reach::Local)?;
    channel.post(Operation::Receive(buffer)).map_err(|(_, error)| error)
}

/// Waits until what this side says is sent, and the greeting with the ticket has come: the address
/// behind it. One with another ticket is thrown away, and the next one awaited.
fn await_greeting(
    channel: &mut Channel,
    ticket: &Ticket,
    patience: &Patience<'_>,
) -> Result<Vec<u8>, Error> {
    let mut found = None;
    loop {
        if channel.under_way() == 0
            && let Some(address) = found
        {
            return Ok(address);
        }
        let Completion { operation, outcome } = next_completion(channel, patience)?;
        let came = outcome?;
        let Operation::Receive(buffer) = operation else { continue };
        match behind_ticket(&buffer.bytes()[..came], ticket) {
            Some(address) => found = Some(address.to_vec()),
            None => channel.post(Operation::Receive(buffer)).map_err(|(_, error)| error)?,
        }
    }
}

fn next_completion(channel: &mut Channel, patience: &Patience<'_>) -> Result<Completion, Error> {
    loop {
        let left = patience.left("the peer's greeting")?;
        if let Some(completion) = channel.wait(left)? {
            return Ok(completion);
        }
    }
}

/// Takes the name off the channel's region, where it has one: the peer has mapped it.
fn forget_name(channel: &mut Channel) {
    if let Some(names) = &channel.parts().names {
        shared_region::forget_name(&names.own);
    }
}

fn insert_peer(channel: &mut Channel, address: &[u8]) -> Result<(), Error> {
    let domain = channel.domain().clone();
    let parts = channel.parts();
    let own = name_of(parts.endpoint.fid(), &domain)?.bytes;
    shared_region::check(&own, address)?;
    let names = Names { own, peer: address.to_vec() };
    let Some(addresses) = &parts.addresses else { return Ok(()) };
    // A provider that reads a text must find its end.
    let address = [address, &[0]].concat();
    let (at, mut peer) = (address.as_ptr().cast(), u64::MAX);
    // SAFETY: the table is open; the address is as the peer's provider wrote it, with a zero
    // behind it, and lives across the call.
    let inserted = unsafe {
        bindings::fi_av_insert(addresses.raw(), at, 1, &raw mut peer, 0, ptr::null_mut())
    };
    match Error::check("fi_av_insert", inserted as isize)? {
        1 => {
            parts.peer = peer;
            same_process::opened(&names);
            parts.names = Some(names);
            Ok(())
        }
        _ => Err(Error { call: "fi_av_insert", code: libc::EADDRNOTAVAIL }),
    }
}

/// Posts these bytes as one message, waiting while the peer's queue is full.
fn say(channel: &mut Channel, bytes: &[u8], patience: &Patience<'_>) -> Result<(), Error> {
    let domain = channel.domain().clone();
    let mut buffer = Buffer::new(&domain, bytes.len(), Reach::Local)?;
    buffer.bytes_mut().copy_from_slice(bytes);
    let mut operation = Operation::Send(Source::Buffer(buffer, 0..bytes.len()));
    loop {
        operation = match channel.post(operation) {
            Ok(()) => return Ok(()),
            Err((back, error)) if error.is_again() => {
                patience.left("fi_send")?;
                back
            }
            Err((_, error)) => return Err(error),
        };
        thread::sleep(NAP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_whole_and_in_front_or_none() {
        let ticket: Ticket = std::array::from_fn(|at| at as u8);
        let said = [&ticket[..], b"address"].concat();
        assert_eq!(behind_ticket(&said, &ticket), Some(&b"address"[..]));
        assert_eq!(behind_ticket(&ticket, &ticket), Some(&b""[..]));
        for at in 0..TICKET_BYTES {
            let mut other = said.clone();
            other[at] ^= 0x80;
            assert_eq!(behind_ticket(&other, &ticket), None, "byte {at}");
            assert_eq!(behind_ticket(&ticket[..at], &ticket), None, "{at} bytes");
        }
        assert_eq!(behind_ticket(&said[1..], &ticket), None);
    }
}
