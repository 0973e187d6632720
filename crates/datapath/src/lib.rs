//! The engines that move bytes between a file and a wire, and the contract they keep.
//!
//! An engine is one file in `engines/`. It fills in an [`EngineInfo`] and implements
//! [`SendEngine`], [`ReceiveEngine`] or both. One thread owns one engine and one wire; nothing here
//! is shared between threads. The list [`engines::ENGINES`] is the single source for the command
//! line, the documentation, the conformance tests and the benches.
//!
//! What an engine promises:
//!
//! - Bytes enter or leave the wire in the order of the calls. When `submit` returns, the span's
//!   place on the wire is fixed and a given [`SpanTap`] has seen all of its bytes, once, in order.
//! - The span's memory and file range are free when its [`SpanDone`] appears.
//! - An error with [`Remedy::UseAnotherEngine`] leaves the wire, the file and the tap at exactly
//!   `moved_bytes` into the span, so that another engine goes on at the very byte.
//! - An error with [`Remedy::SkipFile`] leaves the wire at exactly `moved_bytes` too: the caller
//!   pads or drains the rest of the span and the stream lives on.
//! - After any other error the wire is not to be used again.

use std::{io, os::fd::OwnedFd, sync::Arc};

pub mod aligned_buffer;
mod block_queue;
pub mod choose;
mod copy_free;
pub mod copy_watch;
mod copying;
pub mod engines;
pub mod fallback;
mod progress;
mod read_ahead;
pub mod skeleton;
pub mod socket;
pub mod span_file;
mod stopwatch;
pub mod tap_view;
pub mod tls;
mod write_behind;
pub mod zcrx;
mod zero_copy_sends;

pub use copy_watch::IfCopied;
pub use haul_host::Host;
pub use span_file::SpanFile;

/// Names a span in completions and errors. The caller chooses the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u64);

/// A run of bytes of one open file: what to send, or where to put what arrives.
#[derive(Clone, Debug)]
pub struct FileSpan {
    pub id: SpanId,
    pub file: Arc<SpanFile>,
    pub offset_bytes: u64,
    pub len_bytes: u64,
}

impl FileSpan {
    /// The rest of this span once its first `moved_bytes` have gone.
    ///
    /// # Panics
    /// If `moved_bytes` is more than the span holds.
    #[must_use]
    pub fn after(&self, moved_bytes: u64) -> Self {
        assert!(moved_bytes <= self.len_bytes, "an engine moved more than the span holds");
        Self {
            offset_bytes: self.offset_bytes + moved_bytes,
            len_bytes: self.len_bytes - moved_bytes,
            ..self.clone()
        }
    }
}

/// A finished span: its memory and file range are free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanDone {
    pub id: SpanId,
    /// Bytes moved by the `submit` call that took the span.
    pub moved_bytes: u64,
    /// Bytes that passed through user space, or that the kernel copied in spite of zero-copy.
    pub copied_bytes: u64,
}

/// The end of a send: more bytes follow at once, so that these may be held back, or the peer waits
/// for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    MoreFollows,
    Flush,
}

/// The wait of [`SendEngine::reap`] and [`ReceiveEngine::reap`] for spans in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    DontBlock,
    ForOne,
    ForAll,
}

/// Sees the bytes of spans in order, on the stream's own thread: the digest.
pub trait SpanTap: Send {
    fn see(&mut self, bytes: &[u8]);

    /// Sees bytes that no one has touched yet: they come from memory, not from a cache.
    fn see_cold(&mut self, bytes: &[u8]) {
        self.see(bytes);
    }
}

/// Wall time of an engine by stage, in nanoseconds, since it was opened.
///
/// `digest_ns` covers the tap and, where the engine itself does not see the bytes, reading them
/// for the tap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageTimes {
    pub source_ns: u64,
    pub digest_ns: u64,
    pub send_ns: u64,
    pub receive_ns: u64,
    pub target_ns: u64,
}

impl StageTimes {
    pub fn add(&mut self, other: &Self) {
        self.source_ns += other.source_ns;
        self.digest_ns += other.digest_ns;
        self.send_ns += other.send_ns;
        self.receive_ns += other.receive_ns;
        self.target_ns += other.target_ns;
    }
}

/// Figures of a stream over RDMA endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FabricFigures {
    pub end: haul_fabric::Figures,
    /// Bytes that a receiver wrote past the page cache, out of the memory that they came into.
    pub direct_bytes: u64,
    /// Bytes that a receiver wrote by way of the page cache.
    pub cached_bytes: u64,
}

pub trait SendEngine: Send {
    /// Sends all of `bytes` in order with the spans: frame headers and trailers.
    ///
    /// With [`Boundary::Flush`] everything taken so far is with the kernel on return.
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError>;

    /// Announces the span that comes after the one submitted next. An engine may begin to read it.
    fn prepare(&mut self, _next: &FileSpan) {}

    /// Sends `span`, after everything sent before it.
    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError>;

    /// Collects finished spans. Synchronous engines have nothing to collect.
    fn reap(&mut self, _wait: Wait, _done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        Ok(())
    }

    fn spans_in_flight(&self) -> u32 {
        0
    }

    fn stage_times(&self) -> StageTimes;

    /// Figures of RDMA endpoints; `None` for an engine of another wire.
    fn fabric_figures(&self) -> Option<FabricFigures> {
        None
    }

    /// Gives the wire back, so that another engine can go on from the error's offset.
    fn into_wire(self: Box<Self>) -> Wire;
}

pub trait ReceiveEngine: Send {
    /// Fills `buffer` from the wire: frame headers and trailers.
    ///
    /// A peer that closed between two frames is an error with `moved_bytes` 0 and a source of kind
    /// [`io::ErrorKind::UnexpectedEof`].
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError>;

    /// Consumes exactly `span.len_bytes` from the wire into the file.
    ///
    /// On return the wire stands behind the span. The write to the file may still be under way
    /// until the span appears in `done`.
    ///
    /// An error is always about this very span. An engine that writes late never returns an error
    /// of the target here: it takes the span off the wire to its end, and the error comes from
    /// [`ReceiveEngine::reap`].
    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError>;

    /// Says whether something has come that was not taken yet; `None` where a look at the socket
    /// tells it.
    fn has_come(&mut self) -> Option<bool> {
        None
    }

    /// Collects finished spans. Synchronous engines have nothing to collect.
    ///
    /// An error is about one span whose late write failed, named by its id, and has
    /// [`Remedy::SkipFile`]; its `moved_bytes` is the whole span, so nothing is left to drain. Wire
    /// and engine go on as if nothing had happened. Other spans may have failed too: each comes
    /// from a call of its own, and is in flight until then.
    fn reap(&mut self, _wait: Wait, _done: &mut Vec<SpanDone>) -> Result<(), EngineError> {
        Ok(())
    }

    fn spans_in_flight(&self) -> u32 {
        0
    }

    fn stage_times(&self) -> StageTimes;

    /// Figures of RDMA endpoints; `None` for an engine of another wire.
    fn fabric_figures(&self) -> Option<FabricFigures> {
        None
    }

    /// Gives the wire back. Spans in flight have been reaped before.
    fn into_wire(self: Box<Self>) -> Wire;
}

/// Everything an engine is opened with.
#[derive(Debug)]
pub struct Setup<'host> {
    pub wire: Wire,
    pub host: &'host Host,
    /// Memory this engine may hold in buffers, in bytes. It uses less rather than fail.
    pub buffer_bytes_max: usize,
    /// Most bytes that one call moves, where that is to be studied.
    pub block_bytes: Option<usize>,
    pub if_copied: IfCopied,
}

impl Setup<'_> {
    /// Bytes that one call moves: `own_bytes`, unless another size is asked for.
    #[must_use]
    pub fn block_bytes_or(&self, own_bytes: usize) -> usize {
        self.block_bytes.unwrap_or(own_bytes).min(self.buffer_bytes_max).max(BLOCK_BYTES_MIN)
    }
}

/// Smallest block that a call is given to move: a page.
pub const BLOCK_BYTES_MIN: usize = 4096;

/// Memory and sizes that the engines of a wire may use. A plain number is the memory alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffers {
    /// Memory for buffers, in bytes.
    pub bytes_max: usize,
    /// Most bytes that one call moves; `None` leaves it to the engine.
    pub block_bytes: Option<usize>,
    /// The reaction of an engine when the kernel copies in spite of zero-copy.
    pub if_copied: IfCopied,
}

impl From<usize> for Buffers {
    fn from(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireKind {
    Tcp,
    KernelTls,
    /// TLS that this process encrypts and decrypts.
    Tls,
    /// A pair of RDMA endpoints.
    Fabric,
}

/// A connection, handed to exactly one engine.
#[derive(Debug)]
pub enum Wire {
    Tcp(OwnedFd),
    KernelTls(OwnedFd),
    Tls(Box<TlsEnd>),
    Fabric(Box<FabricEnd>),
}

/// One end of a connection that this process encrypts: bytes go one way.
#[derive(Debug)]
pub enum TlsEnd {
    Sends(tls::SendEnd),
    Receives(tls::ReceiveEnd),
}

/// One end of a pair of RDMA endpoints: bytes go one way.
#[derive(Debug)]
pub enum FabricEnd {
    Sends(haul_fabric::SendEnd),
    Receives(haul_fabric::ReceiveEnd),
}

impl Wire {
    #[must_use]
    pub fn kind(&self) -> WireKind {
        match self {
            Self::Tcp(_) => WireKind::Tcp,
            Self::KernelTls(_) => WireKind::KernelTls,
            Self::Tls(_) => WireKind::Tls,
            Self::Fabric(_) => WireKind::Fabric,
        }
    }

    /// The end that this process encrypts for.
    pub(crate) fn tls_send_end(&mut self) -> Option<&mut tls::SendEnd> {
        match self {
            Self::Tls(end) => match &mut **end {
                TlsEnd::Sends(end) => Some(end),
                TlsEnd::Receives(_) => None,
            },
            Self::Tcp(_) | Self::KernelTls(_) | Self::Fabric(_) => None,
        }
    }

    /// The end that this process decrypts for.
    pub(crate) fn tls_receive_end(&mut self) -> Option<&mut tls::ReceiveEnd> {
        match self {
            Self::Tls(end) => match &mut **end {
                TlsEnd::Receives(end) => Some(end),
                TlsEnd::Sends(_) => None,
            },
            Self::Tcp(_) | Self::KernelTls(_) | Self::Fabric(_) => None,
        }
    }

    /// The socket below the wire, whatever the kernel does on it; of RDMA endpoints that beside
    /// them, which carries no payload and ends with them.
    #[must_use]
    pub fn socket(&self) -> &OwnedFd {
        match self {
            Self::Tcp(socket) | Self::KernelTls(socket) => socket,
            Self::Tls(end) => match &**end {
                TlsEnd::Sends(end) => end.socket(),
                TlsEnd::Receives(end) => end.socket(),
            },
            Self::Fabric(end) => match &**end {
                FabricEnd::Sends(end) => end.lifeline(),
                FabricEnd::Receives(end) => end.lifeline(),
            },
        }
    }
}

/// The answer whether an engine can work on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Usable,
    Refused { needs: &'static str, found: String },
}

pub type OpenSend = fn(Setup<'_>) -> Result<Box<dyn SendEngine>, OpenError>;
pub type OpenReceive = fn(Setup<'_>) -> Result<Box<dyn ReceiveEngine>, OpenError>;

/// Knowledge of the rest of the program about an engine.
pub struct EngineInfo {
    /// The name on the command line, in reports and in the documentation.
    pub name: &'static str,
    /// A line of help; it begins with `study: ` where the engine is never chosen by itself.
    pub summary: &'static str,
    pub wires: &'static [WireKind],
    /// Alignment of offsets and lengths that take the fast path, in bytes; others work too.
    pub align_bytes: u32,
    pub spans_in_flight_max: u32,
    /// Whether user space sees the bytes anyway, so that a tap costs no second read.
    pub sees_bytes: bool,
    /// Whether the call that sends reads the source too, so that it may wait for the disk.
    pub reads_while_sending: bool,
    pub probe: fn(&Host) -> Verdict,
    pub open_send: Option<OpenSend>,
    pub open_receive: Option<OpenReceive>,
}

impl EngineInfo {
    /// Whether the engine works on a plain TCP connection.
    #[must_use]
    pub fn takes_tcp(&self) -> bool {
        self.wires.contains(&WireKind::Tcp)
    }
}

impl std::fmt::Debug for EngineInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineInfo").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The step that helps after an [`EngineError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The next engine in the list moves the rest of the same span.
    UseAnotherEngine,
    /// A new connection is made, and unacknowledged spans are moved again.
    Reconnect,
    /// This file cannot be finished; the others go on.
    SkipFile,
    /// No engine is left that could go on with this wire.
    Stop,
}

/// The error of an engine that could not start; the wire comes back unharmed.
#[derive(Debug)]
pub struct OpenError {
    pub wire: Wire,
    pub cause: EngineError,
}

/// An error of an engine: what was tried, on which span, how far it came, and what helps.
#[derive(Debug, thiserror::Error)]
#[error(
    "engine {engine}: {call} failed at byte {offset_bytes}, \
     after {moved_bytes} bytes of this span: {source}"
)]
pub struct EngineError {
    pub engine: &'static str,
    pub call: &'static str,
    /// The span that the error concerns; `None` for frame headers and for opening.
    pub span: Option<SpanId>,
    pub offset_bytes: u64,
    pub moved_bytes: u64,
    pub remedy: Remedy,
    pub source: io::Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_add_up_stage_by_stage() {
        let times = |source_ns, digest_ns, send_ns, receive_ns, target_ns| StageTimes {
            source_ns,
            digest_ns,
            send_ns,
            receive_ns,
            target_ns,
        };
        let mut sum = times(1, 2, 3, 4, 5);
        sum.add(&times(10, 20, 30, 40, 50));
        assert_eq!(sum, times(11, 22, 33, 44, 55));
    }

    #[test]
    fn a_plain_number_of_buffers_is_their_memory() {
        let Buffers { bytes_max, block_bytes, if_copied } = Buffers::from(7 << 20);
        assert_eq!((bytes_max, block_bytes, if_copied), (7 << 20, None, IfCopied::GiveUp));
    }
}
