//! How a file's bytes get into a socket that takes only what it has room for.
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
    /// sendfile(2), after reads into the page cache in the order of deadlines.
    OneCopy,
    /// O_DIRECT reads by io_uring in the order of deadlines, and send(2).
    Direct,
    /// read(2) and write(2), as a server does that knows no better: the study's comparison.
    Normal,
}

pub const METHODS: [Method; 3] = [Method::OneCopy, Method::Direct, Method::Normal];

/// Whether the kernel reads ahead of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readahead {
    Kernel,
    Off,
}

/// The fate of pages that a stream has read, and nobody else reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// While the system has memory to spare they stay; otherwise they go, so that a long film does
    /// not take the place of those that many watch.
    #[default]
    Auto,
    /// The kernel decides.
    Keep,
    Drop,
}

impl Method {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneCopy => "one-copy",
            Self::Direct => "direct",
            Self::Normal => "normal",
        }
    }

    /// # Errors
    /// Where the system has not what the method needs.
    pub(crate) fn open(
        self,
        readahead: Readahead,
        behind: Behind,
        shape: Shape,
    ) -> io::Result<Box<dyn Delivery>> {
        Ok(match self {
            Self::OneCopy => {
                let ahead = (readahead == Readahead::Kernel).then_some(shape);
                Box::new(one_copy::OneCopy::new(ahead, behind))
            }
            Self::Direct => Box::new(direct::Direct::new(shape)?),
            Self::Normal => plain(),
        })
    }
}

/// By method normal, which needs nothing of the system.
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

/// What a connection wants to send next.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub owner: Owner,
    pub file: &'a Arc<OpenFile>,
    /// Not empty. Of a paced stream what is released by now.
    pub range: Range<u64>,
    pub due: Due,
    /// The others who read the file.
    pub audience: &'a Audience,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// The socket took so many, at least one.
    Bytes(u64),
    /// The disk reads; the owner is told when it goes on.
    Reading,
}

/// One of a loop, for all its connections.
pub(crate) trait Delivery: Send {
    /// Sends from the beginning of the range what the socket takes.
    ///
    /// # Errors
    /// `WouldBlock` where the socket is full; `UnexpectedEof` where the file ends before the range;
    /// what the file or the socket says.
    fn send_some(&mut self, sink: &mut dyn Sink, wanted: &Wanted<'_>) -> io::Result<Sending>;

    /// Readable when reads are over.
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

    /// Gives the disk what was wanted since the last time: all of it together, in its order.
    ///
    /// # Errors
    /// What io_uring_enter(2) says.
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Reads wait for memory that others hold: it is to be looked at again soon.
    fn is_short(&self) -> bool {
        false
    }

    /// The owner's answer is over, or its connection.
    fn forget(&mut self, _owner: Owner) {}

    fn reads(&self) -> Reads {
        Reads::default()
    }
}

/// Tells the kernel how the file is going to be read. It is free not to listen.
pub(crate) fn advise(file: &OpenFile, readahead: Readahead) {
    if readahead == Readahead::Off {
        let _ = fadvise(&file.file, 0, None, Advice::Random);
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent")
}
