//! Ranges of a file that came before this host was started, whoever brought them. They are read
//! back, each by its journal, before the file gets its name.
//!
//! Nothing is locked meanwhile, so that a session may bring such a range again at any time.

use super::{Part, range::of_range};
use crate::storage::{
    hidden_names::range_journal_name,
    journal::{self, FILE_BYTES_MAX, Identity, Told},
    ranges::{Earlier, register::Header, say_read_back, site::Directory},
    read_back::{BLOCK_BYTES, ReadBack},
};
use haul_datapath::{SpanFile, aligned_buffer::AlignedBuffer};
use haul_protocol::{SpanGrid, SpanSet};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use std::{
    fs::File,
    io::{self, BufReader, Read},
    ops::Range,
    os::fd::OwnedFd,
    sync::Arc,
};

/// Ranges that are to be read back, and what is needed for it.
#[derive(Debug)]
pub struct EarlierRanges {
    directory: Arc<OwnedFd>,
    name: Vec<u8>,
    header: Header,
    file: File,
    whole: Identity,
    ranges: Vec<Earlier>,
}

/// Counts of what was read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub bytes: u64,
    /// Bytes that are not what was journaled.
    pub lost_bytes: u64,
}

impl Part {
    /// Ranges of the file that came before this host was started.
    pub(super) fn earlier_ranges(&self) -> io::Result<Option<EarlierRanges>> {
        let (Some(claim), Some(whole)) = (&self.claim, self.whole_identity) else {
            return Ok(None);
        };
        Ok(Some(EarlierRanges {
            directory: self.directory.clone(),
            name: self.final_name.clone(),
            header: claim.header,
            file: self.file.file().try_clone()?,
            whole,
            ranges: claim.earlier()?,
        }))
    }
}

impl EarlierRanges {
    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|it| it.part.bytes.end - it.part.bytes.start).sum()
    }

    /// Reads them back, and says of each in the register whether it is there. Of one whose journal
    /// does not tell of every byte nothing is said. `seen` is told how many bytes were read, and
    /// says whether to go on.
    ///
    /// # Errors
    /// Interrupted when `seen` said so; what the register's calls say.
    pub fn read_back(&self, seen: &mut dyn FnMut(u64) -> bool) -> io::Result<Counts> {
        let site = Directory::of(self.directory.clone(), &self.name);
        let mut counts = Counts::default();
        for earlier in &self.ranges {
            let Some(lost_bytes) = self.lost_bytes(&earlier.part.bytes, seen)? else { continue };
            counts.bytes += earlier.part.bytes.end - earlier.part.bytes.start;
            counts.lost_bytes += lost_bytes;
            say_read_back(&site, &self.header, earlier, lost_bytes == 0)?;
        }
        Ok(counts)
    }

    /// Bytes of a range that are not what was journaled; `None` where the journal does not tell of
    /// all.
    fn lost_bytes(
        &self,
        range: &Range<u64>,
        seen: &mut dyn FnMut(u64) -> bool,
    ) -> io::Result<Option<u64>> {
        let Some(told) = self.told_of(range) else { return Ok(None) };
        let Ok(grid) = SpanGrid::new(range.end - range.start, told.span_bytes) else {
            return Ok(None);
        };
        let all = SpanSet::full(grid.count());
        if told.durable != all || *told.digests.known() != all {
            return Ok(None);
        }
        let file = SpanFile::from_place(self.file.try_clone()?, range.start);
        let read_back = ReadBack::new(Arc::new(file));
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        let lost = read_back.lost(&grid, &all, &told.digests, &mut buffer, seen)?;
        Ok(Some(lost.bytes(&grid)))
    }

    /// Contents of a range's journal, where that is of this file.
    fn told_of(&self, range: &Range<u64>) -> Option<Told> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let name = range_journal_name(&self.name, range.start);
        let file = File::from(openat(&self.directory, &*name, flags, Mode::empty()).ok()?);
        let is_file = FileType::from_raw_mode(fstat(&file).ok()?.st_mode) == FileType::RegularFile;
        let identity = of_range(self.whole, self.header.number, &self.name, range);
        let told = journal::decode(BufReader::new(file.take(FILE_BYTES_MAX)), &identity);
        told.filter(|_| is_file)
    }
}
