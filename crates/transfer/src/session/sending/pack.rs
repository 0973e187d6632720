//! Packs of small files on a stream: read into one buffer with their headers, sent in one piece.

use crate::session::sending::{
    reading_ahead::{CacheLook, Queue},
    send_spans::{SendShared, SendStream, Work},
};
use crate::{locks::lock, storage::source::SourceEntry};
use haul_datapath::{Boundary, EngineError, SpanFile, SpanTap};
use haul_protocol::{
    FileId,
    frame::{FrameHeader, SpanTrailer},
    message::{FileKind, FileOffer},
};
use std::{io, os::unix::fs::FileExt, sync::Arc};

/// Largest file that is copied into a pack: a copy costs less than the calls that avoid one.
pub const SMALL_FILE_BYTES_MAX: u64 = 128 << 10;
/// Length from which on a stream's first pack goes out. Each behind it is twice as long: while its
/// window is small, a stream must not take what others could send.
pub const PACK_FILL_MIN_BYTES: u64 = 64 << 10;
const PACK_FILL_MAX_BYTES: u64 = 832 << 10;

impl Work {
    pub(super) fn is_small(&self) -> bool {
        self.assignment.whole_file && self.assignment.len_bytes <= SMALL_FILE_BYTES_MAX
    }
}

impl SendStream {
    /// Sends a small file, and those that wait behind it. Returns the first work that is not small.
    pub(super) fn send_pack(&mut self, first: Work) -> Result<Option<Work>, EngineError> {
        let first_sequence = self.sequence;
        self.pack.clear();
        let mut next = Some(first);
        while let Some(work) = next.take_if(|work| work.is_small()) {
            self.pack_file(&work);
            if self.pack.len_bytes() >= self.pack_fill_bytes {
                self.pack_fill_bytes = (self.pack_fill_bytes * 2).min(PACK_FILL_MAX_BYTES);
                break;
            }
            next = self.take_work();
        }
        let boundary = if next.is_some() { Boundary::MoreFollows } else { Boundary::Flush };
        let bytes = self.pack.finish(self.stream, first_sequence);
        self.sender.send_bytes(bytes, boundary)?;
        Ok(next)
    }

    fn pack_file(&mut self, work: &Work) {
        let header = self.next_header(&work.assignment);
        let payload = self.pack.begin_span(&header);
        let look = (!self.shared.ahead.is_running()).then_some(&mut self.cache_look);
        let (read, is_cold) = read_whole(&work.span.file, payload, look);
        if is_cold {
            self.shared.ahead.begin(self.shared.clone());
        }
        let status = self.confirm(work, read);
        self.digest.start(&header, &FrameHeader::Span(header).encode());
        if self.digest.wants_bytes() {
            self.digest.see(self.pack.payload());
        }
        self.keep_content(&work.assignment, status);
        let digest = self.digest.finish(status);
        let trailer = SpanTrailer { status, digest };
        self.keep_sent(&work.assignment, header, trailer);
        self.pack.end_span(&trailer);
        self.payload_bytes += header.len_bytes;
        self.copied_bytes += header.len_bytes;
    }
}

impl Queue for Arc<SendShared> {
    fn is_over(&self) -> bool {
        self.streams.stopping()
    }

    fn first(&self) -> Option<FileId> {
        lock(&self.machine).waiting(FileId(0)).next()
    }

    fn waiting(&self, first: FileId, most: usize) -> Vec<(FileId, Option<Arc<SourceEntry>>)> {
        let files: Vec<FileId> = lock(&self.machine).waiting(first).take(most).collect();
        let sources = lock(&self.sources);
        let small = |file: FileId| {
            let entry = sources.get(&file).map(|source| source.entry.clone());
            (file, entry.filter(|entry| is_small_file(&entry.offer)))
        };
        files.into_iter().map(small).collect()
    }
}

fn is_small_file(offer: &FileOffer) -> bool {
    offer.kind == FileKind::Regular && (1..=SMALL_FILE_BYTES_MAX).contains(&offer.size_bytes)
}

/// Fills `payload` with the file's first bytes, and with zeros behind those that could be read.
/// Where `look` is given it tells, too, whether the file was not in the page cache.
fn read_whole(
    file: &SpanFile,
    payload: &mut [u8],
    mut look: Option<&mut CacheLook>,
) -> (io::Result<()>, bool) {
    let (mut at, mut is_cold) = (0, false);
    let read = loop {
        if at == payload.len() {
            break Ok(());
        }
        let (offset_bytes, len_bytes) = file.run_at(at as u64, (payload.len() - at) as u64);
        let bytes = &mut payload[at..at + len_bytes as usize];
        let read = match look.take() {
            Some(look) => {
                let (read, cold) = look.read(file.file(), bytes);
                is_cold = cold;
                read
            }
            None => file.file().read_at(bytes, offset_bytes),
        };
        match read {
            Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => at += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    payload[at..].fill(0);
    (read, is_cold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_what_can_be_read_of_a_file_are_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = SpanFile::new(std::fs::File::open(&path).unwrap());
        // What a pack before left there.
        let mut payload = [9; 160];
        read_whole(&file, &mut payload[..100], None).0.unwrap();
        assert!(payload[..100] == [7; 100] && payload[100..] == [9; 60]);
        let error = read_whole(&file, &mut payload, Some(&mut CacheLook::default())).0.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(payload[..100] == [7; 100] && payload[100..] == [0; 60]);
    }
}
