//! Delivery of a file's bytes into a socket that takes only what it has room for.
//!
//! One file a method. All give the same bytes; they differ in what they cost, and in what they
//! leave in the page cache.

mod behind;
mod direct;
mod disk_queue;
mod known;
mod normal;
mod one_copy;
mod parts;
mod reads;
mod sink;

pub(crate) use disk_queue::{DiskQueue, Due, Into, Owner, Shape};
pub use reads::Reads;
pub(crate) use sink::{Plain, Sink};

use std::{io, ops::Range, os::fd::BorrowedFd, str::FromStr, sync::Arc, time::Instant};

use rustix::fs::{Advice, fadvise};

use crate::{audience::Audience, site::OpenFile};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Page cache to socket by sendfile(2), after reads into the page cache in the order of
    /// deadlines.
    OneCopy,
    /// Reads by O_DIRECT and io_uring in the order of deadlines, and send(2).
    Direct,
    /// The reads of [`Method::OneCopy`], then read(2) and send(2): what sendfile(2) saves is the
    /// only difference.
    TwoCopy,
    /// Plain read(2) and write(2), as a server does that knows no better: the study's comparison.
    Normal,
}

pub const METHODS: [Method; 4] = [Method::OneCopy, Method::Direct, Method::TwoCopy, Method::Normal];

/// Whether the kernel reads ahead of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readahead {
    Kernel,
    Off,
}

/// Fate of pages that a stream has read, and nobody else reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// Keeps pages while the system has memory to spare; otherwise they go, so that a long film
    /// does not take the place of those that many watch.
    #[default]
    Auto,
    /// Leaves the pages to the kernel.
    Keep,
    Drop,
}

impl Method {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneCopy => "one-copy",
            Self::Direct => "direct",
            Self::TwoCopy => "two-copy",
            Self::Normal => "normal",
        }
    }

    /// Opens the method for one loop.
    ///
    /// # Errors
    /// Where the system has not what the method needs.
    pub(crate) fn open(
        self,
        readahead: Readahead,
        behind: Behind,
        shape: Shape,
    ) -> io::Result<Box<dyn Delivery>> {
        Ok(match self {
            Self::OneCopy | Self::TwoCopy => {
                let ahead = (readahead == Readahead::Kernel).then_some(shape);
                let sends = match self {
                    Self::OneCopy => one_copy::Sends::Sendfile,
                    _ => one_copy::Sends::Copy,
                };
                Box::new(one_copy::OneCopy::new(ahead, behind, sends))
            }
            Self::Direct => Box::new(direct::Direct::new(shape)?),
            Self::Normal => plain(),
        })
    }
}

/// Delivery by method normal, which needs nothing of the system.
pub(crate) fn plain() -> Box<dyn Delivery> {
    Box::new(normal::Normal::new())
}

/// A word that names no [`Method`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no method {0:?}, there are: {names}", names = all_names())]
pub struct UnknownMethod(String);

fn all_names() -> String {
    METHODS.map(Method::name).join(", ")
}

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let named = METHODS.into_iter().find(|method| method.name() == name);
        named.ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

/// Bytes that a connection wants to send next.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub owner: Owner,
    pub file: &'a Arc<OpenFile>,
    /// Range to send, never empty; of a paced stream what is released by now.
    pub range: Range<u64>,
    pub due: Due,
    /// Audience of the file: all who read it now, this connection among them.
    pub audience: &'a Audience,
}

/// Outcome of an attempt to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Bytes that the socket took, at least one.
    Bytes(u64),
    /// The disk reads; the owner is told when it goes on.
    Reading,
}

/// A way of moving bytes, one for all connections of a loop.
pub(crate) trait Delivery: Send {
    /// Sends from the beginning of the range what the socket takes.
    ///
    /// # Errors
    /// `WouldBlock` where the socket is full; `UnexpectedEof` where the file ends before the range;
    /// what the file or the socket says.
    fn send_some(&mut self, sink: &mut dyn Sink, wanted: &Wanted<'_>) -> io::Result<Sending>;

    /// Descriptor that is readable when reads are over.
    fn disk(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes what the disk has read, and names those who can go on.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    fn finished(&mut self, _now: Instant, _goes_on: &mut Vec<Owner>) -> io::Result<()> {
        Ok(())
    }

    /// Gives the disk the reads wanted since the last time: all of them together, in their order.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether reads wait for memory that others hold, which is to be looked at again soon.
    fn is_short(&self) -> bool {
        false
    }

    /// Forgets an owner whose answer is over, or whose connection is.
    fn forget(&mut self, _owner: Owner) {}

    fn reads(&self) -> Reads {
        Reads::default()
    }
}

/// Tells the kernel how a file is going to be read. It is free not to listen.
pub(crate) fn advise(file: &OpenFile, readahead: Readahead) {
    if readahead == Readahead::Off {
        let _ = fadvise(&file.file, 0, None, Advice::Random);
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent")
}
