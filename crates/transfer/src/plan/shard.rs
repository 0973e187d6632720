//! A shard of a plan: the names that one run moves, a line of JSON each behind one about all.

use super::{
    line::{Head, Kind, Line, LineRange},
    plan_file::{
        Plan, VERSION, VERSION_GROWING, VERSION_WITH_RANGES, open_file, shard_path, unread,
    },
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
    io::{self, BufRead, BufReader},
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
    let mut line = Vec::new();
    let read = open_file(path).and_then(|file| next_line(&mut BufReader::new(file), &mut line));
    read.map_err(|error| refused(&error.to_string()))?;
    read_head(&line, number, plan, &refused)
}

/// Most bytes of a line of a shard, with its line feed. A path of 4095 bytes takes six of them for
/// a byte of `path` and three for one of `path_encoded`, so the longest line has 37 KiB.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Reads the next line of a shard, if there is one. What is no shard may be one endless line.
///
/// # Errors
/// If the file cannot be read, or the line is longer than any of a shard.
fn next_line(file: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<usize> {
    text.clear();
    let read = io::Read::take(&mut *file, LINE_BYTES_MAX).read_until(b'\n', text)?;
    if read as u64 == LINE_BYTES_MAX && text.last() != Some(&b'\n') {
        let found = format!("a line of more than {LINE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, found));
    }
    Ok(read)
}

/// Words for a shard that cannot be read.
pub(super) fn refused_by(path: &Path) -> impl Fn(&str) -> Problem + use<> {
    let what = format!("cannot read the shard {}", path.display());
    let needs = "the file as `haul plan` has written it";
    move |found| problem(&what, needs, found, "make the plan again")
}

/// Reads the first line of a shard, and checks that it is the plan's.
fn read_head(
    line: &[u8],
    number: u32,
    plan: &Plan,
    refused: &impl Fn(&str) -> Problem,
) -> Result<Head, Problem> {
    let head: Head = serde_json::from_slice(line)
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
            let cut = cut_of(&line).map_err(|found| lines.refused_here(found));
            if let Some(cut) = cut.map_err(TransferError::start)? {
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
        let file = open_file(&path).map_err(failed)?;
        let (mut file, mut text) = (BufReader::new(file), Vec::new());
        next_line(&mut file, &mut text).map_err(failed)?;
        let head = read_head(&text, number, plan, &refused).map_err(TransferError::start)?;
        Ok(Self { path, file, head, count: 0, text })
    }

    /// The next line.
    ///
    /// # Errors
    /// If it is none, has no name that can be, or there are not as many as the first line says; or
    /// if the file answers with an error, which may pass.
    pub fn next(&mut self) -> Result<Option<Line>, TransferError> {
        let read = next_line(&mut self.file, &mut self.text).map_err(|error| {
            let found = format!("behind line {}: {error}", self.count + 1);
            unread(self.refused(&found), &error)
        })?;
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
        let line = read_line(&self.text, self.head.haul_shard);
        line.map(Some).map_err(|error| self.refused_here(&error.to_string()))
    }

    fn refused(&self, found: &str) -> Problem {
        refused_by(&self.path)(found)
    }

    fn refused_here(&self, found: &str) -> Problem {
        self.refused(&format!("in line {}: {found}", self.count + 1))
    }
}

/// Reads a line behind the first of a shard of this version, with a name and a range that can be.
fn read_line(text: &[u8], version: u32) -> serde_json::Result<Line> {
    let line: Line = serde_json::from_slice(text)?;
    check_relative_name(&line.path.0).map_err(serde::de::Error::custom)?;
    let cut = cut_of(&line).map_err(serde::de::Error::custom)?;
    if cut.is_some() && version < VERSION_WITH_RANGES {
        let found = format!("a range, which a shard of version {version} has none of");
        return Err(serde::de::Error::custom(found));
    }
    Ok(line)
}

/// Reads a line and writes it as it was understood, with the begin, the length and the file's size
/// of its range. `None` where it is none, or its range is none that a server takes.
#[must_use]
pub fn line_again(text: &[u8]) -> Option<(Vec<u8>, Option<[u64; 3]>)> {
    let line = read_line(text, VERSION_WITH_RANGES).ok()?;
    let cut = cut_of(&line).ok()?;
    let range = cut.map(|cut| [cut.offset_bytes, cut.len_bytes, cut.file_bytes]);
    Some((serde_json::to_vec(&line).ok()?, range))
}

/// The range that a line names, which has to be one that a server takes; `None` of a whole name.
fn cut_of(line: &Line) -> Result<Option<Cut>, &'static str> {
    if line.range_begin.is_some() != line.file_bytes.is_some() {
        return Err("one of range_begin and file_bytes without the other");
    }
    let Some(LineRange { range_begin, file_bytes }) = line.range() else { return Ok(None) };
    let is_placed = range_begin.is_multiple_of(SPAN_BYTES_MIN) && line.bytes > 0;
    let fits = range_begin.checked_add(line.bytes).is_some_and(|end| end <= file_bytes);
    let Some(inode) = line.inode.filter(|_| line.kind == Kind::File && is_placed && fits) else {
        return Err("no range of a file, or none with its inode");
    };
    let (offset_bytes, len_bytes) = (range_begin, line.bytes);
    let mtime = (line.mtime_s, line.mtime_ns);
    Ok(Some(Cut { offset_bytes, len_bytes, file_bytes, mtime, inode }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_protocol::limits::NAME_BYTES_MAX;
    use serde_json::{Value, json};
    use std::fs;

    /// A plan of one shard, of this version of the format, with one line.
    fn shard_of(version: u32, line: &str) -> (tempfile::TempDir, Plan) {
        let scratch = tempfile::tempdir().unwrap();
        let plan = json!({ "haul_plan": version, "id": "this", "path": "/data",
            "targets": ["h:x"], "shards": 1, "files": 1, "bytes": 65536 });
        fs::write(scratch.path().join("plan.json"), plan.to_string()).unwrap();
        let head = json!({ "haul_shard": version, "plan": "this", "shard": 1, "of": 1,
            "files": 1, "bytes": 65536 });
        fs::write(shard_path(scratch.path(), 1), format!("{head}\n{line}\n")).unwrap();
        let plan = Plan::open(scratch.path()).unwrap();
        (scratch, plan)
    }

    /// Words of the error by which a shard with this line is refused as one that stays damaged.
    #[track_caller]
    fn refused(version: u32, line: &str) -> String {
        let (_scratch, plan) = shard_of(version, line);
        match plan.shard(1).unwrap_err() {
            TransferError::CouldNotStart(problem) => problem.to_string(),
            other => panic!("{other}"),
        }
    }

    fn with(keys: &[(&str, Value)]) -> String {
        let mut line = json!({ "path": "a", "kind": "file", "bytes": 65536, "mtime_s": 1,
            "mtime_ns": 2, "inode": 7 });
        for (key, value) in keys {
            line[*key] = value.clone();
        }
        line.to_string()
    }

    /// A line of a range that was read as one of the whole file moved all of it, and said that the
    /// shard was done.
    #[test]
    fn a_line_with_half_a_range_is_no_whole_file() {
        let (begin, size) = ("range_begin", "file_bytes");
        for (keys, found) in [
            (vec![(begin, json!(0))], "without the other"),
            (vec![(size, json!(131_072))], "without the other"),
            (vec![(begin, json!(0)), (size, Value::Null)], "without the other"),
            (vec![(begin, json!(0)), (size, json!("131072"))], "expected u64"),
            (vec![(begin, json!(-1)), (size, json!(131_072))], "expected u64"),
            (vec![(begin, json!(65536)), (size, json!(131_071))], "no range of a file"),
            (vec![(begin, json!(u64::MAX)), (size, json!(u64::MAX))], "no range of a file"),
        ] {
            let said = refused(2, &with(&keys));
            assert!(said.contains("in line 2: ") && said.contains(found), "{keys:?}: {said}");
        }
        // Other tools may write what they do not know as null.
        let (_scratch, plan) = shard_of(1, &with(&[(begin, Value::Null), (size, Value::Null)]));
        assert!(plan.shard(1).unwrap().ranges.is_empty());
        let whole = [(begin, json!(65536)), (size, json!(131_072))];
        let said = refused(1, &with(&whole));
        assert!(said.contains("a range, which a shard of version 1 has none of"), "{said}");
        let (_scratch, plan) = shard_of(2, &with(&whole));
        assert_eq!(plan.shard(1).unwrap().names.len(), 1);
        let mut lines = Lines::open(&plan, 1).unwrap();
        let range = LineRange { range_begin: 65536, file_bytes: 131_072 };
        assert_eq!(lines.next().unwrap().unwrap().range(), Some(range));
    }

    /// A line is bounded before there is room for it: a file of 2 TiB without a line feed ended a
    /// run by a signal, for want of memory.
    #[test]
    fn a_line_that_no_shard_has_is_refused_by_its_length() {
        let controls = "\u{1}/".repeat(NAME_BYTES_MAX / 2) + "\u{1}";
        let (_scratch, plan) = shard_of(1, &with(&[("path", json!(controls))]));
        assert_eq!(plan.shard(1).unwrap().names.get(0).unwrap().len(), NAME_BYTES_MAX);
        let said = refused(1, &"x".repeat(64 << 10));
        assert!(said.contains("behind line 1: a line of more than 65536 bytes"), "{said}");
        let sparse = File::create(shard_path(plan.place(), 1)).unwrap();
        sparse.set_len(1 << 41).unwrap();
        let said = plan.shard(1).unwrap_err();
        assert!(matches!(said, TransferError::CouldNotStart(_)), "{said}");
        assert!(said.to_string().contains("a line of more than 65536 bytes"), "{said}");
        let said = plan.loads().unwrap_err().to_string();
        assert!(said.contains("a line of more than 65536 bytes"), "{said}");
    }
}
