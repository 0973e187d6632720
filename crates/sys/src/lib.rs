//! Safe functions over the system calls that rustix lacks.
//!
//! The only crate where unsafe code compiles; one kernel feature a file.

pub mod batched_readahead;
pub mod cachestat;
pub mod child_usage;
pub mod congestion;
pub mod datagrams;
pub mod extents;
pub mod file_size_limit;
pub mod flow_label;
pub mod interfaces;
pub mod ktls;
pub mod lease;
pub mod local_end;
pub mod loop_size;
pub mod low_water;
pub mod mapping;
pub mod open_file_lock;
pub mod pacing;
pub mod page_memory;
pub mod parent;
pub mod perf_counter;
pub mod prefetch;
pub mod process_clock;
pub mod ring;
pub mod segment_size;
pub mod shutdown;
pub mod signal_mask;
pub mod socket_memory;
pub mod socket_pages;
pub mod tcp_info;
pub mod tun;
pub mod usage;
pub mod window;
pub mod write_back;
mod write_ring;
pub mod zero_copy;

pub use batched_readahead::BatchedReadahead;
pub use mapping::Mapping;
pub use page_memory::{MemoryKind, PageMemory};
pub use ring::Ring;
pub use socket_memory::SocketMemory;
pub use socket_pages::SocketPages;
pub use tcp_info::TcpInfo;
pub use window::Window;
pub use write_ring::WriteRing;

use std::io;

/// Turns what a libc call returned, a byte count or -1, into a result.
fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Repeats a libc call while signals interrupt it; gives what [`counted`] makes of its end.
fn uninterrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match counted(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
