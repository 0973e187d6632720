//! Types of a build without libfabric: nothing can be opened, so that no value of them exists.

use std::{
    convert::Infallible,
    fs::File,
    io,
    net::IpAddr,
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use crate::{Error, Figures, LocalAddress, Provider, Wait};

/// Says how to get a build that can load libfabric.
///
/// # Errors
/// [`Error::NotBuilt`].
pub fn load() -> Result<(), Error> {
    Err(Error::NotBuilt)
}

/// A provider that was opened.
#[derive(Clone, Debug)]
pub struct Fabric(Infallible);

/// An endpoint that waits for its peer.
#[derive(Debug)]
pub struct Listening(Infallible);

/// The address of an endpoint that waits, and the ticket that opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact(Infallible);

/// Two endpoints that are connected.
#[derive(Debug)]
pub struct Pair(Infallible);

/// The end that sends.
#[derive(Debug)]
pub struct SendEnd(Infallible);

/// The end that receives.
#[derive(Debug)]
pub struct ReceiveEnd(Infallible);

/// The end of a pair whose sides take turns.
#[derive(Debug)]
pub struct Exchange(Infallible);

/// Windows on files out of which bytes may still be sent.
#[derive(Debug)]
pub struct InFlight(Infallible);

impl InFlight {
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.0 {}
    }
}

/// A message that was received.
#[derive(Debug)]
pub struct Message(Infallible);

/// Reasons why a part of a file was not sent as a whole.
#[derive(Debug)]
pub enum FileError {
    Truncated,
    Read(io::Error),
    Wire(Error),
}

impl Fabric {
    /// Says how to get a build that has libfabric.
    ///
    /// # Errors
    /// [`Error::NotBuilt`], always.
    pub fn open(_: Provider, _: impl Into<LocalAddress>) -> Result<Self, Error> {
        Err(Error::NotBuilt)
    }

    #[must_use]
    pub fn provider(&self) -> Provider {
        match self.0 {}
    }

    #[must_use]
    pub fn waiting(&self, _: Wait) -> Self {
        match self.0 {}
    }

    #[must_use]
    pub fn port(&self) -> String {
        match self.0 {}
    }

    pub fn listen(&self, _: [u8; 16]) -> Result<Listening, Error> {
        match self.0 {}
    }

    pub fn connect(&self, _: &Contact, _: OwnedFd, _: Duration) -> Result<Pair, Error> {
        match self.0 {}
    }
}

impl Listening {
    #[must_use]
    pub fn contact(&self) -> &Contact {
        match self.0 {}
    }

    pub fn accept(self, _: OwnedFd, _: Duration) -> Result<Pair, Error> {
        match self.0 {}
    }
}

impl Contact {
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.0 {}
    }

    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self.0 {}
    }

    /// # Errors
    /// [`Error::NotBuilt`], always.
    pub fn decode(_: &[u8]) -> Result<Self, Error> {
        Err(Error::NotBuilt)
    }
}

impl Pair {
    #[must_use]
    pub fn provider(&self) -> Provider {
        match self.0 {}
    }

    pub fn into_sender(self, _: usize) -> Result<SendEnd, Error> {
        match self.0 {}
    }

    pub fn into_receiver(self, _: usize) -> Result<ReceiveEnd, Error> {
        match self.0 {}
    }

    pub fn into_exchange(self, _: usize) -> Result<Exchange, Error> {
        match self.0 {}
    }
}

impl Exchange {
    pub fn send(&mut self, _: usize, _: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn receive(&mut self) -> Result<&[u8], Error> {
        match self.0 {}
    }
}

impl SendEnd {
    #[must_use]
    pub fn provider(&self) -> Provider {
        match self.0 {}
    }

    #[must_use]
    pub fn lifeline(&self) -> &OwnedFd {
        match self.0 {}
    }

    #[must_use]
    pub fn figures(&self) -> &Figures {
        match self.0 {}
    }

    #[must_use]
    pub fn moved_bytes(&self) -> Arc<AtomicU64> {
        match self.0 {}
    }

    pub fn set_rate(&mut self, _: u64) {
        match self.0 {}
    }

    pub fn send(&mut self, _: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn flush(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn send_file(
        &mut self,
        _: &File,
        _: u64,
        _: u64,
        _: &mut dyn FnMut(&[u8]),
    ) -> Result<InFlight, (u64, FileError)> {
        match self.0 {}
    }

    pub fn send_copied(
        &mut self,
        _: &File,
        _: u64,
        _: u64,
        _: &mut dyn FnMut(&[u8]),
    ) -> Result<(), (u64, FileError)> {
        match self.0 {}
    }

    pub fn progress(&mut self) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn settle(&mut self) -> Result<(), Error> {
        match self.0 {}
    }
}

impl ReceiveEnd {
    #[must_use]
    pub fn provider(&self) -> Provider {
        match self.0 {}
    }

    #[must_use]
    pub fn lifeline(&self) -> &OwnedFd {
        match self.0 {}
    }

    #[must_use]
    pub fn figures(&self) -> &Figures {
        match self.0 {}
    }

    #[must_use]
    pub fn moved_bytes(&self) -> Arc<AtomicU64> {
        match self.0 {}
    }

    pub fn receive(&mut self, _: &mut [u8]) -> Result<(), (usize, Error)> {
        match self.0 {}
    }

    pub fn peek(&mut self) -> Result<&[u8], Error> {
        match self.0 {}
    }

    pub fn has_come(&mut self) -> Result<bool, Error> {
        match self.0 {}
    }

    pub fn skip(&mut self, _: usize) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn take(&mut self, _: u64) -> Result<Option<Message>, Error> {
        match self.0 {}
    }

    pub fn give_back(&mut self, _: Message) -> Result<(), Error> {
        match self.0 {}
    }
}

impl Message {
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self.0 {}
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        match self.0 {}
    }
}

/// Messages that may be held before they are given back.
pub const HELD_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_build_without_the_library_says_how_to_get_it() {
        let error = Fabric::open(Provider::Verbs, IpAddr::from([127, 0, 0, 1])).unwrap_err();
        assert_eq!(error, Error::NotBuilt);
        assert!(error.to_string().contains("libfabric-dev"), "{error}");
        assert_eq!(Contact::decode(&[1; 40]), Err(Error::NotBuilt));
    }
}
