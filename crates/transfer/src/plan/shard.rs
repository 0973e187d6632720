//! A shard of a plan: the names that one run moves, a line of JSON each behind one about all.

use super::{
    line::{Head, Kind, Line, LineRange},
    plan_file::{Plan, VERSION, VERSION_GROWING, VERSION_WITH_RANGES, shard_path, unread},
};
use crate::{
    error::{TransferError, problem},
    file_ranges::{Cut, FileRanges},
    packed_names::PackedNames,
    problem::Problem,
};
use haul_protocol::{limits::SPAN_BYTES_MIN, name::check_relative_name};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
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
    /// Number of files, ranges of files, links and empty directories.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl ShardLoad {
    pub(super) fn read(path: &Path, number: u32, plan: &Plan) -> Result<Self, Problem> {
        let Head { files, bytes, .. } = read_head_alone(path, number, plan)?;
        Ok(Self { files, bytes })
    }
}

/// Reads the first line of a shard and nothing else.
pub(super) fn read_head_alone(path: &Path, number: u32, plan: &Plan) -> Result<Head, Problem> {
    let refused = refused_by(path);
    let file = File::open(path).map_err(|error| refused(&error.to_string()))?;
    let mut line = String::new();
    // No head is near as long: what is no shard may be one endless line.
    let mut start = BufReader::new(file.take(HEAD_BYTES_MAX));
    start.read_line(&mut line).map_err(|error| refused(&error.to_string()))?;
    read_head(&line, number, plan, &refused)
}

/// Most bytes of a shard's first line where nothing else is read.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Words for a shard that cannot be read.
pub(super) fn refused_by(path: &Path) -> impl Fn(&str) -> Problem + use<> {
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
    let is_known = [VERSION, VERSION_WITH_RANGES].contains(&head.haul_shard);
    if !is_known || (head.shard, head.of) != (number, plan.shards_told()) {
        return Err(refused(&format!("shard {} of {}", head.shard, head.of)));
    }
    if head.plan != plan.id {
        return Err(refused("the shard of another plan, which was written at the same time"));
    }
    Ok(head)
}

impl Shard {
    /// A shard without names.
    pub(super) fn empty(number: u32) -> Self {
        let (names, ranges) = (PackedNames::default(), FileRanges::default());
        Self { number, names, ranges, bytes: 0 }
    }

    pub(super) fn read(number: u32, plan: &Plan) -> Result<Self, TransferError> {
        let mut lines = Lines::open(plan, number)?;
        let (mut names, mut ranges) = (PackedNames::default(), FileRanges::default());
        while let Some(line) = lines.next()? {
            let has_room = match line.kind {
                Kind::Directory => names.push_directory(&line.path.0),
                _ => names.push(&line.path.0),
            };
            if !has_room {
                let problem = lines.refused("names of more than 4 GiB");
                return Err(TransferError::start(problem));
            }
            if let Some(range) = line.range {
                let cut = cut_of(&line, range).ok_or_else(|| {
                    let found = "no range of a file, or none with its inode";
                    TransferError::start(lines.refused_here(found))
                })?;
                ranges.push(&line.path.0, cut);
            }
        }
        names.sort();
        Ok(Self { number, names, ranges, bytes: lines.head.bytes })
    }
}

/// The lines of a shard behind the first, one by one.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    head: Head,
    count: u64,
    text: Vec<u8>,
}

impl Lines {
    pub fn open(plan: &Plan, number: u32) -> Result<Self, TransferError> {
        let path = shard_path(plan.place(), number);
        let refused = refused_by(&path);
        let failed = |error: io::Error| {
            let problem = refused(&error.to_string());
            // Of a plan that grows a network's file system may not find the newest shard yet.
            match error.kind() == io::ErrorKind::NotFound && plan.version == VERSION_GROWING {
                true => TransferError::Unavailable(Box::new(problem)),
                false => unread(problem, &error),
            }
        };
        let file = File::open(&path).map_err(failed)?;
        let (mut file, mut line) = (BufReader::new(file), String::new());
        file.read_line(&mut line).map_err(failed)?;
        let head = read_head(&line, number, plan, &refused).map_err(TransferError::start)?;
        Ok(Self { path, file, head, count: 0, text: Vec::new() })
    }

    /// The next line.
    ///
    /// # Errors
    /// If it is none, has no name that can be, or there are not as many as the first line says; or
    /// if the file answers with an error, which may pass.
    pub fn next(&mut self) -> Result<Option<Line>, TransferError> {
        self.text.clear();
        let read = self.file.read_until(b'\n', &mut self.text);
        let read = read.map_err(|error| unread(self.refused(&error.to_string()), &error))?;
        self.line(read == 0).map_err(TransferError::start)
    }

    /// The line that was read, unless the file is at its end.
    fn line(&mut self, is_at_end: bool) -> Result<Option<Line>, Problem> {
        if is_at_end {
            if self.count != self.head.files {
                return Err(self.refused(&format!("{} names of {}", self.count, self.head.files)));
            }
            return Ok(None);
        }
        self.count += 1;
        read_line(&self.text).map(Some).map_err(|error| self.refused_here(&error.to_string()))
    }

    fn refused(&self, found: &str) -> Problem {
        refused_by(&self.path)(found)
    }

    fn refused_here(&self, found: &str) -> Problem {
        self.refused(&format!("in line {}: {found}", self.count + 1))
    }
}

/// Reads a line behind the first, whose name is one that can be.
fn read_line(text: &[u8]) -> serde_json::Result<Line> {
    let line: Line = serde_json::from_slice(text)?;
    check_relative_name(&line.path.0).map_err(serde::de::Error::custom)?;
    Ok(line)
}

/// Reads a line and writes it as it was understood, with the begin, the length and the file's size
/// of its range. `None` where it is none, or its range is none that a server takes.
#[must_use]
pub fn line_again(text: &[u8]) -> Option<(Vec<u8>, Option<[u64; 3]>)> {
    let line = read_line(text).ok()?;
    let cut = match line.range {
        Some(range) => Some(cut_of(&line, range)?),
        None => None,
    };
    let range = cut.map(|cut| [cut.offset_bytes, cut.len_bytes, cut.file_bytes]);
    Some((serde_json::to_vec(&line).ok()?, range))
}

/// The range that a line names, where it is one that a server takes.
fn cut_of(line: &Line, range: LineRange) -> Option<Cut> {
    let LineRange { range_begin, file_bytes } = range;
    let is_placed = range_begin.is_multiple_of(SPAN_BYTES_MIN) && line.bytes > 0;
    let end = range_begin.checked_add(line.bytes)?;
    let is_range = line.kind == Kind::File && is_placed && end <= file_bytes;
    let (offset_bytes, len_bytes) = (range_begin, line.bytes);
    let (mtime, inode) = ((line.mtime_s, line.mtime_ns), line.inode?);
    is_range.then_some(Cut { offset_bytes, len_bytes, file_bytes, mtime, inode })
}
