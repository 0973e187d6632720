//! Figures of an end, and how it waits.

use std::time::{Duration, Instant};

/// The way in which an end waits for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Polls, and takes a processor for that: the shortest latency.
    Poll,
    /// Sleeps until an interrupt: the least processor time.
    Sleep,
    /// Polls for some microseconds where that paid the last time, and sleeps then.
    #[default]
    Adaptive,
}

/// Counts of what an end did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub messages: u64,
    /// Bytes that were moved through a buffer of this process, headers and trailers among them.
    pub buffered_bytes: u64,
    /// Bytes of files that were read into a buffer to be sent, or that the provider copied as their
    /// message was short.
    pub copied_bytes: u64,
    /// Bytes that were sent out of windows on files.
    pub window_bytes: u64,
    /// Windows that were registered.
    pub windows: u64,
    /// Regions of memory that were registered: windows, and the buffers of the pair.
    pub registrations: u64,
    /// Time of registering them, and of trying to.
    pub registering: Duration,
    /// Times that the sender waited for the receiver's buffers.
    pub waits_for_room: u64,
    /// Time in which the sender waited for the receiver's buffers.
    pub waiting_for_room: Duration,
    /// The reason why a file's pages could not be registered, of the first that could not.
    pub refused: Option<String>,
}

impl Figures {
    /// Registers memory, and counts that.
    #[cfg_attr(not(feature = "libfabric"), expect(dead_code, reason = "nothing is registered"))]
    pub(crate) fn register<T, E>(
        &mut self,
        register: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let outcome = register();
        self.registering += begun.elapsed();
        self.registrations += u64::from(outcome.is_ok());
        outcome
    }
}
