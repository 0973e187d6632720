//! Lines of a shard, as they are written and read.

use super::cutting::CUT_BYTES_MIN;
use crate::name::{Name, exact_path, read_exact_path};
use haul_protocol::message::{FileKind, FileOffer};
use serde::{Deserialize, Serialize};
use std::io;

/// The first line of a shard.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Version of the format.
    pub haul_shard: u32,
    /// The plan's id.
    pub plan: String,
    pub shard: u32,
    pub of: u32,
    /// Number of the lines behind this one.
    pub files: u64,
    pub bytes: u64,
    /// Number of the names of which the first byte is in this shard; missing where each line is
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<u64>,
}

impl Head {
    /// Number of the names that count in this shard: a file that is cut counts where it begins.
    pub fn names(&self) -> u64 {
        self.names.unwrap_or(self.files)
    }
}

/// A line of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Path below the source.
    #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
    pub path: Name,
    pub kind: Kind,
    pub bytes: u64,
    pub mtime_s: i64,
    pub mtime_ns: u32,
    /// Change time of the inode, where the planner tells it: it alone shows another mode or owner,
    /// or that time and size were set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime_s: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime_ns: Option<u32>,
    /// Inode of a file that may be cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// First of the `bytes` in a file of which the shard has no more. A line has this and
    /// `file_bytes`, or neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_begin: Option<u64>,
    /// Size of the file that a range is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

/// The place of a range in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    pub range_begin: u64,
    pub file_bytes: u64,
}

/// Kinds of entries; a directory is one that holds nothing which is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    File,
    Link,
    Directory,
}

impl Line {
    /// Whether this is a name, or the first range of one: the others are no further files.
    pub fn begins_name(&self) -> bool {
        self.range_begin.is_none_or(|begin| begin == 0)
    }

    /// Place of the range that this is; `None` of a whole name.
    pub fn range(&self) -> Option<LineRange> {
        Some(LineRange { range_begin: self.range_begin?, file_bytes: self.file_bytes? })
    }

    /// Makes this the line of a range, or of a whole name.
    pub fn with_range(self, range: Option<LineRange>) -> Self {
        let (range_begin, file_bytes) =
            range.map(|range| (range.range_begin, range.file_bytes)).unzip();
        Self { range_begin, file_bytes, ..self }
    }

    /// Change time of the inode, where it is known.
    pub fn ctime(&self) -> Option<(i64, u32)> {
        Some((self.ctime_s?, self.ctime_ns?))
    }

    pub fn of(path: Vec<u8>, offer: &FileOffer) -> Self {
        let kind = match offer.kind {
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Link,
            _ => Kind::File,
        };
        let bytes = if kind == Kind::File { offer.size_bytes } else { 0 };
        let (mtime_s, mtime_ns) = (offer.mtime_s, offer.mtime_ns);
        let inode = (bytes >= CUT_BYTES_MIN).then_some(offer.inode);
        let has_ctime = (offer.ctime_s, offer.ctime_ns) != (0, 0);
        let ctime_s = has_ctime.then_some(offer.ctime_s);
        let ctime_ns = has_ctime.then_some(offer.ctime_ns);
        let path = Name(path);
        let (range_begin, file_bytes) = (None, None);
        Self {
            path,
            kind,
            bytes,
            mtime_s,
            mtime_ns,
            ctime_s,
            ctime_ns,
            inode,
            range_begin,
            file_bytes,
        }
    }
}

/// Receiver of the lines of a walk, in their order.
pub trait Sink {
    /// Takes the next line. `shard`: the shard of an earlier plan that has its name.
    ///
    /// # Errors
    /// If the plan cannot be written.
    fn take(&mut self, line: &Line, shard: Option<u32>) -> io::Result<()>;
}
