//! A shard of a plan: the names that one run moves, a line of JSON each behind one about all.

use super::{
    Plan,
    line::{Head, Kind, Line, LineRange},
};
use crate::{
    error::problem,
    file_ranges::{Cut, FileRanges},
    packed_names::PackedNames,
    problem::Problem,
};
use haul_protocol::limits::SPAN_BYTES_MIN;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

/// The names of a shard, and how much they are.
#[derive(Debug)]
#[non_exhaustive]
pub struct Shard {
    /// Number of the shard, from 1.
    pub number: u32,
    /// Names below the source.
    pub names: PackedNames,
    /// Ranges of files, of which the shard has no more.
    pub ranges: FileRanges,
    /// Bytes of the files, as they were planned.
    pub bytes: u64,
}

/// Files and bytes of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLoad {
    /// Number of files, links and empty directories.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl ShardLoad {
    pub(super) fn read(path: &Path, number: u32, plan: &Plan) -> Result<Self, Problem> {
        let refused = refused_by(path);
        let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
        let mut line = String::new();
        // No head is near as long: what is no shard may be one endless line.
        let mut start = BufReader::new(file.take(HEAD_BYTES_MAX));
        start.read_line(&mut line).map_err(|error| refused(&error.to_string()))?;
        let Head { files, bytes, .. } = read_head(&line, number, plan, &refused)?;
        Ok(Self { files, bytes })
    }
}

/// Most bytes of a shard's first line where nothing else is read.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Words for a shard that cannot be read.
fn refused_by(path: &Path) -> impl Fn(&str) -> Problem {
    let what = format!("cannot read the shard {}", path.display());
    let needs = "the file as `haul plan` has written it";
    move |found| problem(&what, needs, found, "make the plan again")
}

/// Reads the first line of a shard, and checks that it is the plan's.
fn read_head(
    line: &str,
    number: u32,
    plan: &Plan,
    refused: &impl Fn(&str) -> Problem,
) -> Result<Head, Problem> {
    let head: Head = serde_json::from_str(line)
        .map_err(|error| refused(&format!("in its first line: {error}")))?;
    let is_known = [super::VERSION, super::VERSION_WITH_RANGES].contains(&head.haul_shard);
    if !is_known || (head.shard, head.of) != (number, plan.shards) {
        return Err(refused(&format!("shard {} of {}", head.shard, head.of)));
    }
    if head.plan != plan.id {
        return Err(refused("the shard of another plan, which was written at the same time"));
    }
    Ok(head)
}

impl Shard {
    pub(super) fn read(path: &Path, number: u32, plan: &Plan) -> Result<Self, Problem> {
        let refused = refused_by(path);
        let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
        let mut lines = BufReader::new(file).lines();
        let mut next = || match lines.next() {
            Some(Ok(line)) => Ok(Some(line)),
            Some(Err(error)) => Err(refused(&error.to_string())),
            None => Ok(None),
        };
        let head = read_head(&next()?.unwrap_or_default(), number, plan, &refused)?;
        let (mut names, mut ranges) = (PackedNames::default(), FileRanges::default());
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
            if let Some(range) = line.range {
                let cut = cut_of(&line, range)
                    .ok_or_else(|| refused(&format!("in line {}: no range", count + 2)))?;
                ranges.push(&line.path.0, cut);
            }
            count += 1;
        }
        if count != head.files {
            return Err(refused(&format!("{count} names of {}", head.files)));
        }
        names.sort();
        Ok(Self { number, names, ranges, bytes: head.bytes })
    }
}

/// The range that a line names, where it is one that a server takes.
fn cut_of(line: &Line, range: LineRange) -> Option<Cut> {
    let LineRange { range_begin, file_bytes } = range;
    let is_placed = range_begin.is_multiple_of(SPAN_BYTES_MIN) && line.bytes > 0;
    let end = range_begin.checked_add(line.bytes)?;
    let is_range = line.kind == Kind::File && is_placed && end <= file_bytes;
    let (offset_bytes, len_bytes) = (range_begin, line.bytes);
    is_range.then_some(Cut { offset_bytes, len_bytes, file_bytes })
}
