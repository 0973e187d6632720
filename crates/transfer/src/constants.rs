//! Constants that client and server have in common: their name, and how much memory they take.

/// Name and version of this build, as the other side's log has them.
pub const SOFTWARE: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));
/// Most bytes of the engines' buffers of all streams together: a side stays within 64 MiB.
pub const BUFFER_BYTES_MAX: usize = 32 << 20;
