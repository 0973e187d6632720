//! Makes a plan: walks the source once, cuts what is there into batches, and writes the shards.

use super::{
    PLAN_FILE, Plan, SHARDS_MAX, VERSION, VERSION_WITH_RANGES,
    balance::{Batch, Cutting, distribute},
    create_anew,
    cutting::{LargeFiles, cut, write_range},
    line::{Head, Line},
    shard::ShardLoad,
    shard_path,
};
use crate::{
    Interrupt,
    bytes::{hex, random_bytes},
    error::{TransferError, problem},
    name::Name,
    options::SourceSpec,
    problem::Problem,
    selection::Selection,
    storage::{
        named_sources::walk_named,
        source::{Location, SourceEntry},
        walk::{Listed, WalkOptions, is_at_or_below},
    },
};
use haul_protocol::message::FileKind;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::atomic::Ordering,
};

/// A plan that was made, and what could not be planned.
#[derive(Debug)]
#[non_exhaustive]
pub struct Made {
    /// The plan.
    pub plan: Plan,
    /// Load of each shard.
    pub loads: Vec<ShardLoad>,
    /// Entries that could not be listed.
    pub failed: Vec<Problem>,
    /// Entries of kinds that are not moved.
    pub left_out: Vec<Problem>,
}

/// Makes a plan in the directory `place`, which is made where it is not there.
///
/// # Errors
/// If the source is no directory, the place has a plan already, or it cannot be written.
pub fn make(
    source: &Path,
    targets: Vec<String>,
    shards: u32,
    (selection, files, place): (&Selection, LargeFiles, &Path),
    interrupt: &Interrupt,
) -> Result<Made, TransferError> {
    check(source, shards, place)?;
    let written = |error: io::Error| {
        let what = format!("cannot write the plan in {}", place.display());
        let hint = "name another by --out";
        TransferError::start(problem(&what, "room to write", &error.to_string(), hint))
    };
    fs::create_dir_all(place).map_err(written)?;
    check_apart(source, place)?;
    let id = hex(&random_bytes::<8>().map_err(written)?);
    let matcher = selection.compile().map_err(TransferError::start)?;
    let names = selection.names.clone();
    let options = WalkOptions { matcher: Some(matcher), names, ..WalkOptions::default() };
    let mut lines = tempfile_in(place).map_err(written)?;
    let mut listing = Listing::new(&mut lines, shards);
    for listed in walk_named(&[SourceSpec::Path(source.as_os_str().to_owned())], options) {
        if interrupt.load(Ordering::Relaxed) {
            return Err(TransferError::interrupted());
        }
        listing.take(listed).map_err(written)?;
    }
    let Listing { cutting, failed, left_out, .. } = listing.finish().map_err(written)?;
    let (mut batches, file_count, bytes) = cutting.finish();
    let lists = cut(&mut lines, &mut batches, (source, shards), files).map_err(written)?;
    let small = distribute(batches, shards as usize);
    let lists: Vec<Vec<Batch>> =
        lists.into_iter().zip(small).map(|(list, small)| [list, small].concat()).collect();
    let is_cut = lists.iter().flatten().any(|batch| batch.range.is_some());
    let mut loads = Vec::with_capacity(lists.len());
    for (list, number) in lists.iter().zip(1..) {
        let load = load_of(list);
        let has_ranges = list.iter().any(|batch| batch.range.is_some());
        let version = if has_ranges { VERSION_WITH_RANGES } else { VERSION };
        let head = Head { haul_shard: version, ..head_of((&id, shards), number, load) };
        write_shard(&mut lines, list, &head, place).map_err(written)?;
        loads.push(load);
    }
    let version = if is_cut { VERSION_WITH_RANGES } else { VERSION };
    let (files, place) = (file_count, place.to_owned());
    let source = Name(source.as_os_str().as_bytes().to_vec());
    let plan = Plan { version, id, source, targets, shards, files, bytes, place };
    plan.write().map_err(written)?;
    Ok(Made { plan, loads, failed, left_out })
}

fn check(source: &Path, shards: u32, place: &Path) -> Result<(), TransferError> {
    if !source.is_dir() {
        let what = format!("cannot plan {}", source.display());
        let found = if source.exists() { "a single file" } else { "nothing of that name" };
        let hint = "push a single file by `haul push`";
        return Err(TransferError::start(problem(&what, "a directory", found, hint)));
    }
    if !(1..=SHARDS_MAX).contains(&shards) {
        let needs = format!("from 1 to {SHARDS_MAX} shards");
        let found = shards.to_string();
        let hint = "several for each machine are enough";
        return Err(TransferError::start(problem("cannot make the plan", &needs, &found, hint)));
    }
    if place.join(PLAN_FILE).exists() {
        let what = format!("there is a plan in {} already", place.display());
        let hint = "run it, or name another directory";
        return Err(TransferError::start(problem(&what, "a new directory", "one", hint)));
    }
    Ok(())
}

/// Checks that the plan is not a part of what is planned: it holds tokens, and would be moved.
fn check_apart(source: &Path, place: &Path) -> Result<(), TransferError> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if !real(place).starts_with(real(source)) {
        return Ok(());
    }
    let what = format!("cannot write the plan in {}", place.display());
    let needs = "a directory outside of the source, which would be moved with it";
    let found = format!("one below {}", source.display());
    let hint = "name another by --out";
    Err(TransferError::start(problem(&what, needs, &found, hint)))
}

/// A file without a name, for the lines of all shards in the order of the walk.
fn tempfile_in(place: &Path) -> io::Result<File> {
    let path = place.join(".lines.new");
    let file = create_anew(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// The lines of a walk.
struct Listing<'a> {
    lines: BufWriter<&'a mut File>,
    cutting: Cutting,
    /// A directory of which nothing below has come yet.
    empty: Option<Line>,
    failed: Vec<Problem>,
    left_out: Vec<Problem>,
}

impl<'a> Listing<'a> {
    fn new(lines: &'a mut File, shards: u32) -> Self {
        let (lines, cutting) = (BufWriter::new(lines), Cutting::new(shards));
        Self { lines, cutting, empty: None, failed: Vec::new(), left_out: Vec::new() }
    }

    fn take(&mut self, listed: Listed) -> io::Result<()> {
        match listed {
            Listed::Entry(entry) => self.entry(*entry),
            Listed::LeftOut(fault) => {
                self.left_out.push(Problem::of(&fault));
                Ok(())
            }
            Listed::Failed(fault) => {
                self.failed.push(Problem::of(&fault));
                Ok(())
            }
        }
    }

    fn entry(&mut self, entry: SourceEntry) -> io::Result<()> {
        let Location::Beneath(_, path) = entry.location else { return Ok(()) };
        if let Some(empty) = self.empty.take()
            && !is_at_or_below(&path, &empty.path.0)
        {
            self.write(&empty)?;
        }
        // The source itself: each run makes it.
        if path.is_empty() {
            return Ok(());
        }
        let line = Line::of(path, &entry.offer);
        if entry.offer.kind == FileKind::Directory {
            self.empty = Some(line);
            return Ok(());
        }
        self.write(&line)
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.cutting.take(text.len() as u64, line.bytes);
        self.lines.write_all(&text)
    }

    fn finish(mut self) -> io::Result<Self> {
        if let Some(empty) = self.empty.take() {
            self.write(&empty)?;
        }
        self.lines.flush()?;
        Ok(self)
    }
}

/// Files and bytes of a shard.
fn load_of(list: &[Batch]) -> ShardLoad {
    let files = list.iter().map(|batch| batch.files).sum();
    ShardLoad { files, bytes: list.iter().map(|batch| batch.bytes).sum() }
}

fn head_of((plan, of): (&str, u32), shard: u32, load: ShardLoad) -> Head {
    let ShardLoad { files, bytes } = load;
    Head { haul_shard: VERSION, plan: plan.to_owned(), shard, of, files, bytes }
}

/// Writes a shard, its lines in the order of the walk.
fn write_shard(lines: &mut File, list: &[Batch], head: &Head, place: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(create_anew(&shard_path(place, head.shard))?);
    serde_json::to_writer(&mut file, head)?;
    file.write_all(b"\n")?;
    for batch in list {
        if let Some(begin) = batch.range {
            write_range(lines, batch, begin, &mut file)?;
            continue;
        }
        lines.seek(SeekFrom::Start(batch.from))?;
        io::copy(&mut lines.take(batch.len), &mut file)?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}
