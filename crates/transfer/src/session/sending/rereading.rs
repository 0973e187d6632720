//! Rereading of sources that may have been written to though size and time are the same.
//!
//! They are read again, and compared by the digests that are known (SPEC.md, 7.6).
//!
//! The ctime of the inode tells: it changes with each write, and nobody can set it back. It changes
//! with mode, owner and links as well, so equal bytes are fine.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::{
    digest::{SessionKeys, SpanDigest},
    error::io_fault,
    events::Event,
    locks::lock,
    name::Name,
    session::{hashing::Hashing, sending::sent_spans::SentSpan},
    storage::{
        source::{Ctime, SourceEntry, changed_fault},
        span_digests::{Digest, DigestOfAll, DigestOfSpan, outside_holes},
    },
};
use haul_datapath::{SpanFile, SpanTap};
use haul_protocol::{
    FileId, SpanGrid, SpanSet,
    frame::FrameHeader,
    message::{self, Fault, FileKind},
    sender::Resumed,
};
use rustix::io::{pread, retry_on_intr};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// The most times a source is read again while its inode goes on changing.
const REREADS_MAX: u32 = 3;
/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Spans that an earlier session left at the receiver, and their digest.
#[derive(Debug)]
struct EarlierSpans {
    spans: SpanSet,
    grid: SpanGrid,
    ctime: Ctime,
    digest: Option<Digest>,
}

/// Outcome of reading a source again: its ctime by then if it is the same, else the fault.
type Reread = Result<Ctime, Fault>;

/// A source to be read again, and what is known of its bytes.
struct ChangedSource {
    entry: Arc<SourceEntry>,
    earlier: Option<Arc<EarlierSpans>>,
    sent: Vec<SentSpan>,
    digest: message::Digest,
    keys: Arc<SessionKeys>,
}

/// Sources that are read again, as their inodes have changed.
pub(super) struct Rereading {
    reading: Hashing<Reread>,
    /// Files that must be looked at once more, whatever their reading brings.
    void: BTreeSet<FileId>,
    /// Spans that earlier sessions left at the receiver, by file.
    earlier: BTreeMap<FileId, Arc<EarlierSpans>>,
}

impl Rereading {
    /// Starts with no source; `wake` is called when one has been read.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { reading: Hashing::new(wake), void: BTreeSet::new(), earlier: BTreeMap::new() }
    }

    /// Remembers the spans that the receiver has from before, for the look at the end.
    pub fn keep_earlier(
        &mut self,
        file: FileId,
        span_bytes: u64,
        resumed: Resumed,
        context: &Context<'_>,
    ) {
        let Resumed { durable, ctime, digest } = resumed;
        let sources = lock(&context.shared.sources);
        let Some(offer) = sources.get(&file).map(|source| &source.entry.offer) else { return };
        let Ok(grid) = SpanGrid::new(offer.size_bytes, span_bytes) else { return };
        let spans = outside_holes(&durable, &offer.holes, &grid);
        drop(sources);
        if !spans.is_empty() {
            let earlier = EarlierSpans { spans, grid, ctime: Ctime(ctime.0, ctime.1), digest };
            self.earlier.insert(file, Arc::new(earlier));
        }
    }

    /// Notes that spans of an earlier run are not there any more.
    pub fn lost(&mut self, file: FileId) {
        if self.reading.has(file) {
            self.void.insert(file);
        }
    }

    /// Checks whether the source of a file, all of which is verified, is still what was offered.
    pub fn check_source(&mut self, file: FileId, context: &mut Context<'_>) {
        let entry = lock(&context.shared.sources).get(&file).map(|source| source.entry.clone());
        let Some(entry) = entry else {
            return lock(&context.shared.machine).source_checked(file, Ok(()));
        };
        let offered = Ctime::of_offer(&entry.offer);
        let earlier = self.earlier.get(&file);
        let earlier = earlier.filter(|earlier| earlier.ctime.differs(offered)).cloned();
        let found = match entry.check() {
            Ok(now) if entry.offer.kind == FileKind::Regular => {
                let differs = now.differs(offered);
                if !differs && earlier.is_none() {
                    Ok(())
                } else {
                    return self.reread(file, entry, (differs, earlier), context);
                }
            }
            found => found.map(drop),
        };
        lock(&context.shared.machine).source_checked(file, found);
    }

    fn reread(
        &mut self,
        file: FileId,
        entry: Arc<SourceEntry>,
        (differs, mut earlier): (bool, Option<Arc<EarlierSpans>>),
        context: &mut Context<'_>,
    ) {
        let why = if differs {
            "its inode has changed since it was offered (a mode, a link, or bytes)"
        } else {
            "its inode has changed since an earlier run (a mode, a link, or bytes)"
        };
        let path = Name(entry.offer.name.clone());
        context.tell(Event::Rereading { path, why: why.into() });
        let mut sent = Vec::new();
        if differs {
            earlier = self.earlier.get(&file).cloned();
            sent = context.shared.sent.of(file);
        }
        let setup = &context.shared.setup;
        let (digest, keys) = (setup.digest, setup.keys.clone());
        let source = ChangedSource { entry, earlier, sent, digest, keys };
        let begun = self.reading.begin(file, move |ending| Ok(source.read(ending)));
        if let Err(error) = begun {
            let fault = io_fault(message::Side::Source, b"", "cannot be read again", &error);
            lock(&context.shared.machine).source_checked(file, Err(fault));
        }
    }
}

impl Stage for Rereading {
    fn settled(&mut self, settled: &mut Settled, _context: &mut Context<'_>) {
        self.earlier.remove(&settled.file);
    }

    fn tick(&mut self, _now: Instant, context: &mut Context<'_>) {
        for (file, reread) in self.reading.take_results() {
            // What was lost since goes out once more, and is looked at once more.
            if self.void.remove(&file) {
                continue;
            }
            let found = reread.unwrap_or_else(|error| {
                Err(io_fault(message::Side::Source, b"", "cannot be read again", &error))
            });
            if let Ok(ctime) = found
                && let Some(source) = lock(&context.shared.sources).get_mut(&file)
            {
                // The same file from now on.
                let offer = &mut Arc::make_mut(&mut source.entry).offer;
                (offer.ctime_s, offer.ctime_ns) = (ctime.0, ctime.1);
            }
            lock(&context.shared.machine).source_checked(file, found.map(drop));
        }
    }

    fn stop(&mut self) {
        self.reading.stop();
    }
}

impl ChangedSource {
    fn read(&self, ending: &AtomicBool) -> Reread {
        let name = &self.entry.offer.name;
        for _ in 0..REREADS_MAX {
            let before = self.entry.check()?;
            let read = |error: io::Error| {
                io_fault(message::Side::Source, name, "cannot be read again", &error)
            };
            let file = self.entry.open()?;
            self.compare(&file, ending)
                .map_err(read)?
                .map_err(|found| changed_fault(name, found.into()))?;
            if !self.entry.check()?.differs(before) {
                return Ok(before);
            }
        }
        let found = format!("its inode changed while it was read again, {REREADS_MAX} times");
        Err(changed_fault(name, found))
    }

    /// Compares the source with the digests of its spans; the inner error says what differs.
    fn compare(&self, file: &SpanFile, ending: &AtomicBool) -> io::Result<Result<(), &str>> {
        let mut buffer = vec![0; CHUNK_BYTES];
        if let Some(earlier) = &self.earlier {
            let Some(expected) = earlier.digest else {
                return Ok(Err("its inode changed, and nothing tells what an earlier run left"));
            };
            let mut of_all = DigestOfAll::default();
            for span in earlier.spans.iter() {
                let mut digest = DigestOfSpan::default();
                let range = earlier.grid.range(span);
                read_range(file, range, &mut buffer, ending, |bytes| digest.update(bytes))?;
                of_all.add(span, &digest.finish());
            }
            if of_all.finish() != expected {
                return Ok(Err(
                    "other bytes than an earlier run sent, though the time was set back",
                ));
            }
        }
        if self.digest == message::Digest::None && !self.sent.is_empty() {
            return Ok(Err("its inode changed, and without a digest nothing tells what was sent"));
        }
        let mut digest = SpanDigest::new(self.digest, &self.keys);
        for sent in &self.sent {
            let header = sent.header;
            digest.start(&header, &FrameHeader::Span(header).encode());
            let range = (header.offset_bytes, header.len_bytes);
            read_range(file, range, &mut buffer, ending, |bytes| digest.see(bytes))?;
            if digest.finish(sent.status) != sent.digest {
                return Ok(Err("other bytes than were sent, though the time was set back"));
            }
        }
        Ok(Ok(()))
    }
}

fn read_range(
    file: &SpanFile,
    (offset_bytes, len_bytes): (u64, u64),
    buffer: &mut [u8],
    ending: &AtomicBool,
    mut see: impl FnMut(&[u8]),
) -> io::Result<()> {
    let (mut at, end) = (offset_bytes, offset_bytes + len_bytes);
    while at < end {
        if ending.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let take = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = &mut buffer[..take];
        let got = retry_on_intr(|| pread(file.file(), &mut *part, file.place(at)))?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        see(&part[..got]);
        at += got as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
