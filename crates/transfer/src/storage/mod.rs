//! Files on this side: below a root that names cannot leave, as sources and as targets.

pub mod journal;
pub mod open_files;
mod part;
pub mod root;
pub mod source;
pub mod target;
pub mod walk;
