//! Streams over RDMA endpoints: a pair of endpoints that moves frames and parts of files in order.
//!
//! libfabric (OFI) is the kept descendant of the Virtual Interface Architecture, for which study S1
//! made `VipSendFile`: a file that the card reads out of the page cache by itself. Here are its
//! calls and what stands for them:
//!
//! | VIPL | here |
//! |---|---|
//! | `VipOpenNic` | [`Fabric::open`]: fi_getinfo(3), fi_domain(3) |
//! | `VipRegisterMem` | buffers of both ends, windows on files: fi_mr_reg(3) |
//! | `VipCreateVi`, `VipConnectWait` | [`Fabric::listen`], [`Listening::accept`] |
//! | `VipConnectRequest` | [`Fabric::connect`] |
//! | `VipPostSend` | [`SendEnd::send`]: fi_send(3) from a registered buffer, one copy |
//! | `VipSendFile` | [`SendEnd::send_file`]: fi_send(3) from the pages of the page cache |
//! | `VipPostRecv` | [`ReceiveEnd`] posts its buffers by itself: fi_recv(3) |
//! | `VipRecvDone`, `VipSendDone` | polling of a completion queue: fi_cq_read(3) |
//! | `VipRecvWait`, `VipCQWait` | waiting at it: fi_cq_sread(3); [`Wait`] says which |
//! | `VipDisconnect`, `VipDestroyVi` | dropping an end: its endpoint is closed, then its memory |
//!
//! **Order**: what is sent arrives in the order of the calls, as one stream of bytes.
//! **Flow control**: the receiver says how many buffers it has posted, and the sender sends no
//! more messages than that: no receive queue is overrun, whatever the provider does then.
//! **Lifeline**: each pair has a TCP connection beside it. When that ends, the pair has ended: a
//! process that was killed is noticed by every provider, and who shuts the socket down stops both.
//!
//! The feature `libfabric` builds what loads the library. Without it the same types stand here,
//! nothing can be opened, and the error says how to get it.

mod error;
mod figures;
mod local;
mod provider;

#[cfg(feature = "libfabric")]
mod budget;
#[cfg(feature = "libfabric")]
mod endpoint;
#[cfg(feature = "libfabric")]
mod exchange;
#[cfg(feature = "libfabric")]
mod opening;
#[cfg(feature = "libfabric")]
mod receiving;
#[cfg(feature = "libfabric")]
mod sending;

#[cfg(not(feature = "libfabric"))]
mod absent;

pub use error::Error;
pub use figures::{Figures, Wait};
pub use local::LocalAddress;
pub use provider::{Mover, NoSuchProvider, PAIRS_MAX, Provider};

#[cfg(feature = "libfabric")]
pub use {
    exchange::Exchange,
    opening::{Contact, Fabric, Listening, Pair, load},
    receiving::{HELD_MAX, Message, ReceiveEnd},
    sending::{FileError, InFlight, SendEnd},
};

#[cfg(not(feature = "libfabric"))]
pub use absent::{
    Contact, Exchange, Fabric, FileError, HELD_MAX, InFlight, Listening, Message, Pair, ReceiveEnd,
    SendEnd, load,
};
