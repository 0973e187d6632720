//! How a file's bytes get into a socket that takes only what it has room for.
//!
//! One file a method. All give the same bytes; they differ in what they cost, and in what they
//! leave in the page cache.

mod normal;
mod one_copy;

use std::{io, ops::Range, str::FromStr};

use rustix::{
    fd::BorrowedFd,
    fs::{Advice, fadvise},
};

use crate::site::OpenFile;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// sendfile(2).
    OneCopy,
    /// read(2) and write(2), as a server does that knows no better: the study's comparison.
    Normal,
}

pub const METHODS: [Method; 2] = [Method::OneCopy, Method::Normal];

/// Whether the kernel reads ahead of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readahead {
    Kernel,
    Off,
}

impl Method {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneCopy => "one-copy",
            Self::Normal => "normal",
        }
    }

    pub(crate) fn open(self) -> Box<dyn Delivery> {
        match self {
            Self::OneCopy => Box::new(one_copy::OneCopy),
            Self::Normal => Box::new(normal::Normal::new()),
        }
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        METHODS.into_iter().find(|method| method.name() == name).ok_or_else(|| {
            let names = METHODS.map(Method::name).join(", ");
            format!("there is no method {name:?}, there are: {names}")
        })
    }
}

/// One of a loop, for all its connections.
pub(crate) trait Delivery: Send {
    /// Sends from the beginning of `range` what the socket takes, and says how many bytes it took.
    /// `range` is not empty.
    ///
    /// # Errors
    /// `WouldBlock` where the socket is full; `UnexpectedEof` where the file ends before the range;
    /// what the file or the socket says.
    fn send_some(
        &mut self,
        socket: BorrowedFd<'_>,
        file: &OpenFile,
        range: Range<u64>,
    ) -> io::Result<u64>;
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
