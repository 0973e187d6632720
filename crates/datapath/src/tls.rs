//! TLS 1.3 in this process, for hosts whose kernel has none: the ends of a wire that takes memory.
//!
//! The handshake is somebody else's, who gives the keys; here is what comes behind it. Many records
//! go in one call, and each is encrypted and decrypted where it lies.

mod kernel_end;
mod receive_end;
mod records;
mod send_end;

pub use kernel_end::named_end;
pub use receive_end::{NewKeys, ReceiveEnd};
pub use records::{ContentType, Opener, RECORD_BYTES, RECORDS_MAX, Sealer};
pub use send_end::SendEnd;
