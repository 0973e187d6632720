//! The list of engines. To add one: write `NAME.rs` after `skeleton.rs`, add two lines here.

use crate::EngineInfo;

pub mod direct;
pub mod discard;
pub mod dontcache;
pub mod fabric;
pub mod io_uring;
pub mod mmap;
pub mod read_write;
pub mod sendfile;
pub mod splice;
pub mod tls;
pub mod zerocopy_receive;
pub mod zerocopy_send;

/// All engines in the order of the documentation: from the plainest on.
pub static ENGINES: &[&EngineInfo] = &[
    &read_write::INFO,
    &mmap::INFO,
    &sendfile::INFO,
    &splice::INFO,
    &direct::INFO,
    &io_uring::INFO,
    &dontcache::INFO,
    &zerocopy_send::INFO,
    &zerocopy_receive::INFO,
    &discard::INFO,
    &tls::INFO,
    &fabric::INFO,
];

/// The engine of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static EngineInfo> {
    ENGINES.iter().copied().find(|engine| engine.name == name)
}
