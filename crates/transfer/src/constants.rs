//! What client and server have in common: their name, and how much memory they take.

/// This build, as the other side's log names it.
pub const SOFTWARE: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));
/// Engines' buffers of all streams together, in bytes: a side stays within 64 MiB.
pub const BUFFER_BYTES_MAX: usize = 32 << 20;
