//! Files on this side: below a root that names cannot leave, as sources and as targets.

pub mod aborted;
pub mod attributes;
pub mod conflict;
pub mod contents_mode;
pub mod final_name;
pub mod fresh;
pub mod hidden_names;
pub mod holes;
pub mod in_place;
pub mod journal;
mod leftovers;
pub mod mirror;
pub mod name_sorter;
pub mod open_files;
pub mod packed_names;
pub mod part;
pub mod prepare;
pub mod read_back;
pub mod root;
pub mod source;
mod source_removal;
pub mod span_digests;
pub mod target;
pub mod target_place;
pub mod waited_for;
pub mod walk;
pub mod watch;
