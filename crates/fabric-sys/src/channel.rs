//! One side of a pair of endpoints: its queues, and the memory that its operations use.

use core::{
    ffi::c_void,
    ops::Range,
    ptr::{self, NonNull},
};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use slab::Slab;

use crate::{
    bindings::{self, fid_av, fid_cq, fid_ep, fid_eq},
    domain::Domain,
    error::Error,
    memory::{Buffer, Remote, Window},
    object::Object,
    same_process::{self, Names},
};

/// Longest time in which the end of a connection is not noticed while nothing else happens.
const EVENTS_EACH: Duration = Duration::from_millis(50);
/// Time of one sleep where a provider cannot wait for completions itself.
pub(crate) const NAP: Duration = Duration::from_micros(50);

/// Memory that bytes are taken from.
#[derive(Debug)]
pub enum Source {
    Buffer(Buffer, Range<usize>),
    Window(Arc<Window>, Range<usize>),
}

/// Work for an endpoint, with the memory that belongs to it until its completion.
#[derive(Debug)]
pub enum Operation {
    /// Send to a buffer that the peer has posted.
    Send(Source),
    /// Receive what the peer sends, into the whole buffer.
    Receive(Buffer),
    /// Write into the peer's memory, which hears nothing of it.
    Write(Source, Remote),
    /// Read the peer's memory into this part of a buffer.
    Read(Buffer, Range<usize>, Remote),
}

/// An operation that is over: its memory is free again.
#[derive(Debug)]
pub struct Completion {
    pub operation: Operation,
    /// Count of bytes that a receive brought, else 0.
    pub outcome: Result<usize, Error>,
}

/// Room in which libfabric keeps an operation, and the operation's number behind it.
#[repr(C)]
#[derive(Debug)]
struct Context {
    internal: bindings::fi_context2,
    number: usize,
}

/// An operation that is under way. Its context is reached by a pointer only, which libfabric has
/// too: a box that is moved may have no other.
#[derive(Debug)]
struct Posted {
    operation: Operation,
    context: NonNull<Context>,
}

// SAFETY: the pointers in a context are libfabric's own, which any thread may use.
unsafe impl Send for Posted {}
// SAFETY: a shared reference gives no way to the context.
unsafe impl Sync for Posted {}

impl Posted {
    fn new(operation: Operation, number: usize) -> Self {
        let internal = bindings::fi_context2 { internal: [ptr::null_mut(); 8] };
        let context = NonNull::from(Box::leak(Box::new(Context { internal, number })));
        Self { operation, context }
    }

    /// Frees the context of an operation that is over.
    fn over(self) -> Operation {
        // SAFETY: the box of `new`, which libfabric has no more use for.
        drop(unsafe { Box::from_raw(self.context.as_ptr()) });
        self.operation
    }
}

/// Objects of an endpoint, which are closed in this order.
#[derive(Debug)]
pub(crate) struct Parts {
    pub endpoint: Object<fid_ep>,
    pub completions: Object<fid_cq>,
    /// Events of the connection, where there is one.
    pub events: Option<Object<fid_eq>>,
    /// Addresses of peers, where there is no connection.
    pub addresses: Option<Object<fid_av>>,
    /// The peer among them.
    pub peer: bindings::fi_addr_t,
    pub can_wait: bool,
    /// Both names, where there is no connection and the peer is known.
    pub names: Option<Names>,
}

/// One side of a pair of endpoints.
#[derive(Debug)]
pub struct Channel {
    /// `None` only while this is dropped.
    parts: Option<Parts>,
    posted: Slab<Posted>,
    /// Whether the peer has ended the connection.
    is_shut: bool,
    domain: Arc<Domain>,
}

impl Channel {
    pub(crate) fn new(parts: Parts, domain: Arc<Domain>) -> Self {
        Self { parts: Some(parts), posted: Slab::new(), is_shut: false, domain }
    }

    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Count of operations that are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.posted.len()
    }

    pub(crate) fn parts(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("it is not dropped yet")
    }

    /// Posts an operation.
    ///
    /// # Errors
    /// The operation comes back with the error: EAGAIN while the queue is full.
    ///
    /// # Panics
    /// If a range leaves its memory.
    pub fn post(&mut self, operation: Operation) -> Result<(), (Operation, Error)> {
        let place = self.posted.vacant_entry();
        let number = place.key();
        let posted = place.insert(Posted::new(operation, number));
        let parts = self.parts.as_ref().expect("it is not dropped yet");
        let result = start(parts, posted);
        match result {
            Ok(()) => Ok(()),
            Err(error) => Err((self.posted.remove(number).over(), error)),
        }
    }

    /// Sends a short message that has no completion: its bytes are free again at once.
    ///
    /// # Errors
    /// EAGAIN while the queue is full, EMSGSIZE beyond [`crate::Info::inject_bytes_max`].
    pub fn inject(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > self.domain.info().inject_bytes_max() {
            return Err(Error { call: "fi_inject", code: libc::EMSGSIZE });
        }
        let (start, len) = (bytes.as_ptr().cast(), bytes.len());
        let parts = self.parts();
        let (endpoint, peer) = (parts.endpoint.raw(), parts.peer);
        // SAFETY: the endpoint is open; the bytes are copied before the call returns (fi_msg(3)).
        let result = unsafe { bindings::fi_inject(endpoint, start, len, peer) };
        Error::check("fi_inject", result).map(drop)
    }

    /// Takes the next completion, if there is one by now. It also moves things on, for providers
    /// that do nothing by themselves.
    ///
    /// # Errors
    /// If the queue itself is broken.
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let queue = self.parts().completions.raw();
        self.take("fi_cq_read", |entry| {
            // SAFETY: the queue is open, and the entry has the format it was opened with.
            unsafe { bindings::fi_cq_read(queue, entry, 1) }
        })
    }

    /// Waits for the next completion, at most this long.
    ///
    /// # Errors
    /// As [`Self::poll`]; ESHUTDOWN when the peer has ended the connection and nothing more has
    /// come of it: a card would try for long to send to who has gone.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(EVENTS_EACH);
            let found = if self.parts().can_wait { self.wait_once(left)? } else { self.poll()? };
            if found.is_some() {
                return Ok(found);
            }
            self.is_shut |= self.parts().events.as_ref().is_some_and(has_ended);
            if self.is_shut {
                // What came before the end, and after the look for it.
                let last = self.poll()?.ok_or(Error { call: "the peer", code: libc::ESHUTDOWN });
                return last.map(Some);
            }
            if left.is_zero() {
                return Ok(None);
            }
            if !self.parts().can_wait {
                thread::sleep(NAP);
            }
        }
    }

    fn wait_once(&mut self, timeout: Duration) -> Result<Option<Completion>, Error> {
        let queue = self.parts().completions.raw();
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        self.take("fi_cq_sread", |entry| {
            // SAFETY: as for `poll`.
            unsafe { bindings::fi_cq_sread(queue, entry, 1, ptr::null(), timeout_ms) }
        })
    }

    fn take(
        &mut self,
        call: &'static str,
        read: impl FnOnce(*mut c_void) -> isize,
    ) -> Result<Option<Completion>, Error> {
        let mut entry = bindings::fi_cq_msg_entry { op_context: ptr::null_mut(), flags: 0, len: 0 };
        let result = read((&raw mut entry).cast());
        match Error::check(call, result) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(self.over(entry.op_context, Ok(entry.len))),
            Err(error) if error.is_again() || error.code == libc::EINTR => Ok(None),
            Err(error) if error.code == bindings::FI_EAVAIL.cast_signed() => self.take_failed(),
            Err(error) => Err(error),
        }
    }

    fn take_failed(&mut self) -> Result<Option<Completion>, Error> {
        let queue = self.parts().completions.raw();
        // SAFETY: numbers and null pointers, for which zeros stand.
        let mut entry: bindings::fi_cq_err_entry = unsafe { core::mem::zeroed() };
        // SAFETY: the queue is open, and the entry lives across the call.
        let result = unsafe { bindings::fi_cq_readerr(queue, &raw mut entry, 0) };
        match Error::check("fi_cq_readerr", result) {
            Err(error) if error.is_again() => Ok(None),
            Err(error) => Err(error),
            Ok(_) => {
                let call = "the operation";
                Ok(self.over(entry.op_context, Err(Error { call, code: entry.err })))
            }
        }
    }

    /// Finds the operation of a completion; a completion of nothing is none.
    fn over(&mut self, context: *mut c_void, outcome: Result<usize, Error>) -> Option<Completion> {
        let context = context.cast::<Context>();
        let is_posted = |posted: &Posted| ptr::eq(posted.context.as_ptr(), context);
        if context.is_null() {
            return None;
        }
        // SAFETY: it is not null, so it is the context of an operation that was posted and has no
        // other completion: its box is still in the list.
        let number = unsafe { (*context).number };
        if !self.posted.get(number).is_some_and(is_posted) {
            return None;
        }
        let operation = self.posted.remove(number).over();
        let is_receive = matches!(operation, Operation::Receive(_));
        let outcome = outcome.map(|len_bytes| if is_receive { len_bytes } else { 0 });
        Some(Completion { operation, outcome })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        let names = parts.names.take();
        let posted = core::mem::take(&mut self.posted);
        let domain = self.domain.clone();
        let close = move || close(parts, posted, &domain);
        match names {
            Some(names) => same_process::goes(&names, Box::new(close)),
            None => close(),
        }
    }
}

/// Whether the events of a connection tell that the peer has ended it.
fn has_ended(events: &Object<fid_eq>) -> bool {
    // SAFETY: numbers and null pointers, for which zeros stand.
    let mut entry: bindings::fi_eq_cm_entry = unsafe { core::mem::zeroed() };
    let (mut kind, room) = (0, (&raw mut entry).cast());
    // SAFETY: the queue is open, and the room is as long as is said.
    let result =
        unsafe { bindings::fi_eq_read(events.raw(), &raw mut kind, room, size_of_val(&entry), 0) };
    result >= 0 && kind == bindings::FI_SHUTDOWN
}

/// Closes an endpoint that nobody uses any more. Where that fails, the memory of what is under way
/// is never freed: a card might still use it.
fn close(parts: Parts, posted: Slab<Posted>, domain: &Arc<Domain>) {
    let Parts { endpoint, completions, events, addresses, .. } = parts;
    if events.is_some() {
        // SAFETY: the endpoint is open.
        unsafe { bindings::fi_shutdown(endpoint.raw(), 0) };
    }
    if endpoint.close().is_ok() {
        posted.into_iter().for_each(|(_, posted)| drop(posted.over()));
    } else {
        core::mem::forget((posted, domain.clone()));
    }
    drop((completions, events, addresses));
}

/// Gives an operation to its endpoint.
fn start(parts: &Parts, posted: &mut Posted) -> Result<(), Error> {
    let (endpoint, peer) = (parts.endpoint.raw(), parts.peer);
    let context = posted.context.as_ptr().cast::<c_void>();
    match &mut posted.operation {
        Operation::Send(source) => {
            let (start, len, descriptor) = source.part();
            // SAFETY: the memory and the context are owned by the list of posted operations until
            // the completion, and the endpoint is closed before either is freed.
            let result =
                unsafe { bindings::fi_send(endpoint, start, len, descriptor, peer, context) };
            Error::check("fi_send", result).map(drop)
        }
        Operation::Receive(buffer) => {
            let (len, descriptor, start) =
                (buffer.len_bytes(), buffer.descriptor(), buffer.start());
            // SAFETY: as for sending.
            let result =
                unsafe { bindings::fi_recv(endpoint, start, len, descriptor, peer, context) };
            Error::check("fi_recv", result).map(drop)
        }
        Operation::Write(source, Remote { address, key }) => {
            let (start, len, descriptor) = source.part();
            // SAFETY: as for sending; the peer's memory is the peer's to guard.
            let result = unsafe {
                bindings::fi_write(endpoint, start, len, descriptor, peer, *address, *key, context)
            };
            Error::check("fi_write", result).map(drop)
        }
        Operation::Read(buffer, range, Remote { address, key }) => {
            assert!(range.start <= range.end && range.end <= buffer.len_bytes());
            let descriptor = buffer.descriptor();
            let start = buffer.start().wrapping_byte_add(range.start);
            // SAFETY: as for sending.
            let result = unsafe {
                bindings::fi_read(
                    endpoint,
                    start,
                    range.len(),
                    descriptor,
                    peer,
                    *address,
                    *key,
                    context,
                )
            };
            Error::check("fi_read", result).map(drop)
        }
    }
}

impl Source {
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let (Self::Buffer(_, range) | Self::Window(_, range)) = self;
        range.len()
    }

    /// Address, length and registration of the part that is sent.
    fn part(&mut self) -> (*const c_void, usize, *mut c_void) {
        let (start, range, len, descriptor) = match self {
            Self::Buffer(buffer, range) => {
                let (len, descriptor) = (buffer.len_bytes(), buffer.descriptor());
                (buffer.start().cast_const(), range, len, descriptor)
            }
            Self::Window(window, range) => {
                (window.start(), range, window.len_bytes(), window.descriptor())
            }
        };
        assert!(range.start <= range.end && range.end <= len, "a range leaves its memory");
        (start.wrapping_byte_add(range.start), range.len(), descriptor)
    }
}
