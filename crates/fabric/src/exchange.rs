//! The end of a pair whose sides take turns: each message is the answer to the one before.
//!
//! No words about room are needed, as the peer's buffer is posted before its turn is over.

use std::os::fd::AsFd;

use haul_fabric_sys::{Buffer, Completion, Operation, Reach, Source};

use crate::{
    Error,
    endpoint::{End, Endpoint},
};

/// Receives that are posted: one for the answer, and one while that is looked at.
const RECEIVES: usize = 2;
/// The byte over the lifeline by which a side says that its receives are posted.
const POSTED: u8 = b'P';

/// The end of a pair whose sides take turns.
#[derive(Debug)]
pub struct Exchange {
    endpoint: Endpoint,
    /// The buffer to send from, while nothing is under way from it.
    out: Option<Buffer>,
    /// The buffer of the last message, until the next one is waited for.
    seen: Option<(Buffer, usize)>,
    inject_bytes_max: usize,
}

impl Exchange {
    pub(crate) fn new(endpoint: Endpoint, message_bytes_max: usize) -> Result<Self, Error> {
        let domain = endpoint.channel.domain().clone();
        let len_bytes = message_bytes_max.clamp(1, domain.info().message_bytes_max());
        let inject_bytes_max = domain.info().inject_bytes_max();
        let buffer = || {
            Buffer::new(&domain, len_bytes, Reach::Local)
                .map_err(|error| Error::NoMemory { len_bytes, words: error.words() })
        };
        let mut end = Self { endpoint, out: Some(buffer()?), seen: None, inject_bytes_max };
        for _ in 0..RECEIVES {
            end.post(Operation::Receive(buffer()?))?;
        }
        end.await_posted()?;
        Ok(end)
    }

    /// Sends a message of this length out of the buffer that `fill` sees as a whole.
    ///
    /// # Errors
    /// The pair is of no more use then.
    ///
    /// # Panics
    /// If the message is longer than was said when the end was made.
    pub fn send(&mut self, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Error> {
        let mut buffer = loop {
            if let Some(buffer) = self.out.take() {
                break buffer;
            }
            self.await_one()?;
        };
        fill(&mut buffer.bytes_mut()[..len_bytes]);
        // Without a completion a short message takes some tenths of a microsecond less.
        if len_bytes <= self.inject_bytes_max
            && self.endpoint.inject(&buffer.bytes()[..len_bytes])?
        {
            self.out = Some(buffer);
            return Ok(());
        }
        self.post(Operation::Send(Source::Buffer(buffer, 0..len_bytes)))
    }

    /// Waits for the peer's message.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn receive(&mut self) -> Result<&[u8], Error> {
        if let Some((buffer, _)) = self.seen.take() {
            self.post(Operation::Receive(buffer))?;
        }
        while self.seen.is_none() {
            self.await_one()?;
        }
        let (buffer, len_bytes) = self.seen.as_ref().expect("just seen");
        Ok(&buffer.bytes()[..*len_bytes])
    }

    /// Waits until the peer's receives are posted, as its own side hears that these are.
    fn await_posted(&mut self) -> Result<(), Error> {
        let lifeline = self.endpoint.lifeline().as_fd();
        let mut said = [0];
        rustix::io::write(lifeline, &[POSTED]).map_err(|_| Error::PeerGone)?;
        match rustix::io::retry_on_intr(|| rustix::io::read(lifeline, &mut said)) {
            Ok(1) if said == [POSTED] => Ok(()),
            Ok(1) => Err(Error::BadMessage("words over the lifeline that are none")),
            Ok(_) | Err(_) => Err(Error::PeerGone),
        }
    }
}

impl End for Exchange {
    fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    fn over(&mut self, Completion { operation, outcome }: Completion) -> Result<(), Error> {
        let came = outcome.map_err(|error| self.endpoint.failed(error))?;
        match operation {
            Operation::Send(Source::Buffer(buffer, _)) => self.out = Some(buffer),
            Operation::Receive(buffer) => {
                if self.seen.replace((buffer, came)).is_some() {
                    return Err(Error::BadMessage("two messages in one turn"));
                }
            }
            Operation::Send(_) | Operation::Write(..) | Operation::Read(..) => {}
        }
        Ok(())
    }
}
