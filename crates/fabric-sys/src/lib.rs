//! Safe objects over libfabric: domains, registered memory, pairs of endpoints with their queues.
//!
//! libfabric is the kept descendant of the Virtual Interface Architecture. Beside `haul-sys` this
//! is the only crate where unsafe code compiles. Memory that an operation uses belongs to its
//! endpoint from the call that posts it until its completion, and registered memory is unmapped
//! only after its endpoint and its registration are closed: no network card writes into memory that
//! was freed. The script `generate` writes the bindings.

#[cfg(feature = "libfabric")]
#[path = "generated/bindings.rs"]
mod bindings;
#[cfg(feature = "libfabric")]
mod channel;
#[cfg(feature = "libfabric")]
mod domain;
#[cfg(feature = "libfabric")]
mod error;
#[cfg(feature = "libfabric")]
mod info;
#[cfg(feature = "libfabric")]
mod library;
#[cfg(feature = "libfabric")]
mod listener;
#[cfg(feature = "libfabric")]
mod memory;
#[cfg(feature = "libfabric")]
mod object;
#[cfg(feature = "libfabric")]
mod own_signals;
#[cfg(feature = "libfabric")]
mod same_process;
#[cfg(feature = "libfabric")]
mod shared_region;
#[cfg(feature = "libfabric")]
mod variables;

#[cfg(feature = "libfabric")]
pub use {
    channel::{Channel, Completion, Operation, Source},
    domain::Domain,
    error::Error,
    info::{EndpointKind, Info},
    library::{NoLibrary, load},
    listener::{Address, Listener, Patience, Queue, Ticket, connect},
    memory::{Buffer, NoWindow, Reach, Remote, Window},
};
