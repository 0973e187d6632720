//! A shard of a plan: the names that one run moves, a line of JSON each behind one about all.

use super::Plan;
use crate::{
    error::problem,
    name::{Name, exact_path, read_exact_path},
    packed_names::PackedNames,
    problem::Problem,
};
use haul_protocol::message::{FileKind, FileOffer};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

/// The first line of a shard.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Version of the format.
    pub haul_shard: u32,
    /// The plan's id.
    pub plan: String,
    pub shard: u32,
    pub of: u32,
    /// Number of the lines behind this one.
    pub files: u64,
    pub bytes: u64,
}

/// A line of a shard.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// Path below the source.
    #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
    pub path: Name,
    pub kind: Kind,
    pub bytes: u64,
    pub mtime_s: i64,
    pub mtime_ns: u32,
}

/// Kinds of entries; a directory is one that holds nothing which is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    File,
    Link,
    Directory,
}

impl Line {
    pub fn of(path: Vec<u8>, offer: &FileOffer) -> Self {
        let kind = match offer.kind {
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Link,
            _ => Kind::File,
        };
        let bytes = if kind == Kind::File { offer.size_bytes } else { 0 };
        let (mtime_s, mtime_ns) = (offer.mtime_s, offer.mtime_ns);
        Self { path: Name(path), kind, bytes, mtime_s, mtime_ns }
    }
}

/// The names of a shard, and how much they are.
#[derive(Debug)]
#[non_exhaustive]
pub struct Shard {
    /// Number of the shard, from 1.
    pub number: u32,
    /// Names below the source.
    pub names: PackedNames,
    /// Bytes of the files, as they were planned.
    pub bytes: u64,
}

impl Shard {
    pub(super) fn read(path: &Path, number: u32, plan: &Plan) -> Result<Self, Problem> {
        let what = format!("cannot read the shard {}", path.display());
        let refused = |found: &str| {
            problem(&what, "the file as `haul plan` has written it", found, "make the plan again")
        };
        let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
        let mut lines = BufReader::new(file).lines();
        let mut next = || match lines.next() {
            Some(Ok(line)) => Ok(Some(line)),
            Some(Err(error)) => Err(refused(&error.to_string())),
            None => Ok(None),
        };
        let head: Head = serde_json::from_str(&next()?.unwrap_or_default())
            .map_err(|error| refused(&format!("in its first line: {error}")))?;
        if (head.haul_shard, head.shard, head.of) != (super::VERSION, number, plan.shards) {
            return Err(refused(&format!("shard {} of {}", head.shard, head.of)));
        }
        if head.plan != plan.id {
            return Err(refused("the shard of another plan, which was written at the same time"));
        }
        let mut names = PackedNames::default();
        let mut count = 0;
        while let Some(text) = next()? {
            let line: Line = serde_json::from_str(&text)
                .map_err(|error| refused(&format!("in line {}: {error}", count + 2)))?;
            if let Err(why) = haul_protocol::name::check_relative_name(&line.path.0) {
                return Err(refused(&format!("in line {}: {why}", count + 2)));
            }
            if !names.push(&line.path.0) {
                return Err(refused("names of more than 4 GiB"));
            }
            count += 1;
        }
        if count != head.files {
            return Err(refused(&format!("{count} names of {}", head.files)));
        }
        names.sort();
        Ok(Self { number, names, bytes: head.bytes })
    }
}
