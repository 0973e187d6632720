//! Manifest (`--manifest`): a line with the BLAKE3 hash of each file in place after a transfer.
//!
//! The hashes are made of the bytes that were sent or received. What this run did not move (spans
//! of an earlier run, files that were there already) is read at the end from this side's own file,
//! if that is still what was moved. A file that failed has no line. The lines are sorted by name,
//! in bytes; while they are collected they wait in a file without a name beside the manifest, which
//! gets its own name when it is complete and durable.

pub mod line;
mod reading;
pub mod record;
pub mod sorted_records;

use crate::{
    Interrupt,
    content::{FileContent, hash_of_nothing},
    error::problem,
    events::ManifestReport,
    locks::{Lock, lock},
    name::Name,
    problem::{Problem, Side},
    storage::{
        name_at_target::final_name,
        root::{join, split_last},
        source::{Location, SourceEntry},
        target_place::TargetPlace,
    },
};
use haul_protocol::message::{FileKind, FileOffer};
use line::Line;
use record::{Known, Record};
use sorted_records::{Merge, SortedRecords};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    os::fd::AsRawFd,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

/// The manifest of a running transfer, over all its sessions.
#[derive(Debug)]
pub struct Manifest {
    path: PathBuf,
    records: Lock<io::Result<SortedRecords>>,
}

/// The manifest in which a session's settled files get their lines.
#[derive(Clone, Debug)]
pub struct Lines {
    pub manifest: Arc<Manifest>,
    /// New name of the one source; `None` where sources keep theirs.
    pub rename: Option<Vec<u8>>,
}

/// The place at which a file that was not moved can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No place, for the bytes are those of `zero:SIZE`.
    Zeros,
    /// The very file that was offered.
    Source(PathBuf),
    /// A file like the one that was offered.
    Target(PathBuf),
    Nowhere,
}

impl Origin {
    #[must_use]
    pub fn of_source(entry: &SourceEntry) -> Self {
        match &entry.location {
            Location::Named(path) => Self::Source(path.clone()),
            Location::Beneath(root, path) => Self::Source(root.show(path)),
            Location::Zero => Self::Zeros,
            // Under whatever name it has by now.
            Location::Held(file) => {
                Self::Source(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
            }
        }
    }

    /// Says where a receiver puts what is offered.
    #[must_use]
    pub fn of_target(place: &TargetPlace, offered: &[u8]) -> Self {
        match place {
            TargetPlace::Null => Self::Nowhere,
            TargetPlace::Below { root, base, rename, .. } => {
                Self::Target(root.show(&final_name(base, rename.as_deref(), offered)))
            }
        }
    }
}

/// A file that is not in place, or not as it was offered.
#[derive(Clone, Copy, Debug)]
pub struct Missing;

impl Lines {
    /// Notes that a file was received, as `content` says.
    pub fn received(
        &self,
        place: &TargetPlace,
        offer: &FileOffer,
        stored_as: Option<&[u8]>,
        content: Result<Option<FileContent>, Missing>,
    ) {
        let Ok(content) = content else { return self.failed(offer) };
        let origin = match (stored_as, place) {
            (Some(name), TargetPlace::Below { root, base, .. }) => {
                Origin::Target(root.show(&join(base, name)))
            }
            _ => Origin::of_target(place, &offer.name),
        };
        if let (FileKind::HardLink, Origin::Target(path)) = (offer.kind, &origin) {
            let size_bytes = fs::metadata(path).map_or(0, |found| found.len());
            let kind = FileKind::Regular;
            let named = FileOffer { kind, size_bytes, ..offer.clone() };
            return self.settled(&named, stored_as, None, &origin);
        }
        self.settled(offer, stored_as, content, &origin);
    }

    /// Notes that a file is in place, under `stored_as` below the target's directory where that is
    /// not the name it was offered under.
    pub fn settled(
        &self,
        offer: &FileOffer,
        stored_as: Option<&[u8]>,
        content: Option<FileContent>,
        origin: &Origin,
    ) {
        let hash = if offer.size_bytes == 0 {
            Some(hash_of_nothing())
        } else {
            content.as_ref().and_then(FileContent::hash)
        };
        let known = match hash {
            Some(hash) => Known::Hash(hash),
            None => Known::Spans { content, origin: origin.clone() },
        };
        self.add(offer, stored_as, known);
    }

    /// Notes that a file is not in place, or not as it was offered.
    pub fn failed(&self, offer: &FileOffer) {
        self.add(offer, None, Known::Failed);
    }

    fn add(&self, offer: &FileOffer, stored_as: Option<&[u8]>, known: Known) {
        if offer.kind != FileKind::Regular {
            return;
        }
        let name = match stored_as {
            Some(name) => name.to_vec(),
            None => final_name(b"", self.rename.as_deref(), &offer.name),
        };
        let record = Record::new(offer, known).encode();
        let mut records = lock(&self.manifest.records);
        if let Ok(sorter) = &mut *records
            && let Err(error) = sorter.add(&name, &record)
        {
            // Told at the end: the files go on.
            *records = Err(error);
        }
    }
}

impl Manifest {
    /// Makes sure that the manifest can be written, before anything is moved.
    ///
    /// # Errors
    /// Says why it cannot.
    pub fn begin(path: &Path) -> Result<Self, Problem> {
        let failed = |found: &str| cannot_write(path, found);
        if path.is_dir() || path.file_name().is_none() {
            return Err(failed("a directory of that name"));
        }
        // By whatever link: to be replaced would be the end of it for all programs.
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(failed("a FIFO, socket or device of that name"));
        }
        let sorter = SortedRecords::new(directory_of(path)).map_err(|e| failed(&e.to_string()))?;
        Ok(Self { path: path.to_owned(), records: Lock::new(Ok(sorter)) })
    }

    /// Writes the manifest; `left_out` is told of each file that is in place and gets no line.
    ///
    /// # Errors
    /// If it cannot be written: what was there under its name stays. `None`: interrupted.
    pub fn finish(
        &self,
        interrupt: &Interrupt,
        left_out: &mut dyn FnMut(Problem),
    ) -> Result<ManifestReport, Option<Problem>> {
        let ended = Err(io::Error::other("it is written already"));
        let records = std::mem::replace(&mut *lock(&self.records), ended);
        let failed = |error: io::Error| {
            let interrupted = interrupt.load(Ordering::Relaxed);
            (!interrupted).then(|| cannot_write(&self.path, &error.to_string()))
        };
        let merge = records.and_then(SortedRecords::into_sorted).map_err(failed)?;
        let mut writing = Writing {
            report: ManifestReport { path: self.name(), ..ManifestReport::default() },
            interrupt,
            left_out,
        };
        let hidden = self.hidden_path();
        let written = writing.write(merge, &hidden, &self.path);
        if written.is_err() {
            let _ = fs::remove_file(&hidden);
        }
        written.map_err(failed)?;
        Ok(writing.report)
    }

    fn name(&self) -> Name {
        Name(self.path.as_os_str().as_bytes().to_vec())
    }

    /// Path of the manifest until it is whole, named as haul's other temporaries: none is ever
    /// taken for a file.
    fn hidden_path(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let hidden = crate::storage::hidden_names::part_name(name);
        directory_of(&self.path).join(crate::storage::root::os_path(&hidden))
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn cannot_write(path: &Path, found: &str) -> Problem {
    let what = format!("cannot write the manifest {}", path.display());
    let needs = "a file name in a directory that this user may write to, with room";
    problem(&what, needs, found, "name another file by --manifest")
}

/// Writing of the manifest, when everything is settled.
struct Writing<'a> {
    report: ManifestReport,
    interrupt: &'a Interrupt,
    left_out: &'a mut dyn FnMut(Problem),
}

impl Writing<'_> {
    fn write(&mut self, merge: Merge, hidden: &Path, path: &Path) -> io::Result<()> {
        // What an earlier run left; a link that somebody planted there is not followed.
        let _ = fs::remove_file(hidden);
        let mut output = BufWriter::new(File::create_new(hidden)?);
        let mut of_name: Option<(Vec<u8>, Vec<Record>)> = None;
        for record in merge {
            let (name, record) = record?;
            let record = Record::decode(&record).ok_or(io::ErrorKind::InvalidData)?;
            match &mut of_name {
                Some((last, records)) if *last == name => records.push(record),
                _ => {
                    self.write_line(of_name.replace((name, vec![record])), &mut output)?;
                }
            }
        }
        self.write_line(of_name, &mut output)?;
        let file = output.into_inner()?;
        file.sync_all()?;
        fs::rename(hidden, path)?;
        File::open(directory_of(path))?.sync_all()
    }

    /// Writes the line of one name, of which the last record counts.
    fn write_line(
        &mut self,
        of_name: Option<(Vec<u8>, Vec<Record>)>,
        output: &mut impl Write,
    ) -> io::Result<()> {
        let Some((name, mut records)) = of_name else { return Ok(()) };
        let last = records.pop().expect("a name has a record at least");
        let size_bytes = last.size_bytes;
        // A session that came back skips what the one before it moved.
        let moved_before = || {
            records.iter().rev().find_map(|record| match record.known {
                Known::Hash(hash) if record.is_of_the_same(&last) => Some(hash),
                _ => None,
            })
        };
        let hash = match &last.known {
            Known::Failed => return Ok(()),
            Known::Hash(hash) => *hash,
            Known::Spans { content, origin } => match moved_before() {
                Some(hash) => hash,
                None => match reading::complete(&last, content.as_ref(), origin, self.interrupt) {
                    Ok((hash, read_bytes)) => {
                        self.report.read_bytes += read_bytes;
                        hash
                    }
                    Err(error) if self.interrupt.load(Ordering::Relaxed) => return Err(error),
                    Err(error) => {
                        self.report.left_out += 1;
                        (self.left_out)(no_line(&name, &error));
                        return Ok(());
                    }
                },
            },
        };
        self.report.files += 1;
        self.report.bytes += size_bytes;
        output.write_all(Line { hash, name }.to_text().as_bytes())
    }
}

fn no_line(name: &[u8], error: &io::Error) -> Problem {
    let needs = "to read on this side what this run did not move";
    let hint = "run the same command again when nothing writes to it";
    let what = "has no line in the manifest";
    Problem {
        path: Name(name.to_vec()),
        side: Side::Session,
        ..problem(what, needs, &error.to_string(), hint)
    }
}

/// New name that a push gives its one source: the last component of the URL's path.
#[must_use]
pub fn rename_of(url_path: &[u8], is_renamed: bool) -> Option<Vec<u8>> {
    is_renamed.then(|| split_last(url_path).1.to_vec())
}
