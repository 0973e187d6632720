//! Packs of small files on a stream: read into one buffer with their headers, sent in one piece.

use crate::session::sending::{
    reading_ahead::{CacheLook, OpenedAhead, Queue},
    send_spans::{SendShared, SendStream, Work},
};
use crate::{locks::lock, storage::source::SourceEntry};
use haul_datapath::{Boundary, EngineError, SpanFile, SpanTap};
use haul_protocol::{
    FileId,
    frame::{FrameHeader, SpanTrailer},
    message::{FileKind, FileOffer},
};
use rustix::io::{pread, retry_on_intr};
use std::{io, sync::Arc};

pub use crate::session::sending::reading_ahead::SMALL_FILE_BYTES_MAX;

/// Length from which on a stream's first pack goes out. Each behind it is twice as long: while its
/// window is small, a stream must not take what others could send.
pub const PACK_FILL_MIN_BYTES: u64 = 64 << 10;
const PACK_FILL_MAX_BYTES: u64 = 832 << 10;

impl Work {
    pub(super) fn is_small(&self) -> bool {
        let is_small = self.assignment.len_bytes <= SMALL_FILE_BYTES_MAX;
        // A pack is read from the begin of each file, where a range may not begin.
        self.assignment.whole_file && is_small && self.span.file.place(0) == 0
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

    fn opened(&self, file: FileId, opened: OpenedAhead) {
        self.keep_opened(file, opened);
    }
}

fn is_small_file(offer: &FileOffer) -> bool {
    let is_whole = offer.kind == FileKind::Regular && offer.range.is_none();
    is_whole && (1..=SMALL_FILE_BYTES_MAX).contains(&offer.size_bytes)
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
        let left = &mut payload[at..];
        if left.is_empty() {
            break Ok(());
        }
        let (offset_bytes, len_bytes) = file.run_at(at as u64, left.len() as u64);
        let bytes = &mut left[..len_bytes as usize];
        let read = match look.take() {
            Some(look) => {
                let (read, cold) = look.read(file.file(), bytes);
                is_cold = cold;
                read
            }
            None => retry_on_intr(|| pread(file.file(), &mut *bytes, offset_bytes)),
        };
        match read {
            Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => at += got,
            Err(errno) => break Err(errno.into()),
        }
    };
    payload[at..].fill(0);
    (read, is_cold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        session::{
            engine_orders::Chosen,
            sending::without_peer::{self, SPAN_BYTES},
        },
    };
    use haul_protocol::{StreamId, frame::HEADER_BYTES, message::Need};
    use std::{
        fs::{self, File},
        io::Read,
        path::Path,
        thread,
    };

    #[test]
    fn behind_what_can_be_read_of_a_file_are_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        let file = SpanFile::new(std::fs::File::open(&path).unwrap());
        // What a pack before left there.
        let mut payload = [9; 160];
        let (read, is_cold) = read_whole(&file, &mut payload[..100], None);
        read.unwrap();
        assert!(!is_cold && payload[..100] == [7; 100] && payload[100..] == [9; 60]);
        let error = read_whole(&file, &mut payload, Some(&mut CacheLook::default())).0.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(payload[..100] == [7; 100] && payload[100..] == [0; 60]);
        let directory = SpanFile::new(File::open(directory.path()).unwrap());
        let error = read_whole(&directory, &mut payload, None).0.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(payload, [0; 160]);
    }

    #[test]
    fn a_small_file_of_zeros_is_as_long_as_it_is() {
        let mut payload = [9; 100];
        read_whole(&SpanFile::zeros().unwrap(), &mut payload, None).0.unwrap();
        assert_eq!(payload, [0; 100]);
    }

    fn need(span_bytes: u64) -> Need {
        Need { span_bytes, ..Need::default() }
    }

    fn fill(directory: &Path, count: usize, len_bytes: u64) {
        for number in 0..count {
            fs::write(directory.join(format!("{number:03}")), vec![7; len_bytes as usize]).unwrap();
        }
    }

    /// Opens a stream, and gives the numbers of spans in the packs that arrive until it is closed.
    fn opened(shared: &Arc<SendShared>) -> (SendStream, thread::JoinHandle<Vec<u32>>) {
        let (near, mut far) = without_peer::connection();
        let packs = move || {
            let mut packs = Vec::new();
            let mut header = [0; HEADER_BYTES];
            while far.read_exact(&mut header).is_ok() {
                let pack = match FrameHeader::decode(&header).unwrap() {
                    FrameHeader::Pack(pack) => pack,
                    FrameHeader::End { .. } | FrameHeader::Renewal { .. } => break,
                    FrameHeader::Span(span) => panic!("{span:?}"),
                };
                far.read_exact(&mut vec![0; pack.len_bytes as usize]).unwrap();
                packs.push(pack.spans);
            }
            packs
        };
        let arrives = thread::spawn(packs);
        lock(&shared.machine).stream_opened(StreamId(0)).unwrap();
        let chosen = Chosen::last_resort();
        let stream = SendStream::open(shared, StreamId(0), near.into(), &chosen, &Arc::default());
        (stream.unwrap(), arrives)
    }

    #[test]
    fn packs_become_longer_one_after_the_other_and_the_first_large_file_ends_one() {
        let directory = tempfile::tempdir().unwrap();
        // With header and trailer, a pack of 64 KiB takes two of them.
        fill(directory.path(), 48, 60 << 10);
        fs::write(directory.path().join("large"), vec![7; (128 << 10) + 1]).unwrap();
        let mut hear = |_| {};
        let context = without_peer::begin(FileOptions::default(), &mut hear).context;
        for entry in without_peer::files(directory.path()) {
            without_peer::needed(&context, entry, need(1 << 20));
        }
        let (mut stream, arrives) = opened(&context.shared);
        let (mut next, mut sent) = (stream.take_work(), 0);
        while let Some(work) = next.take_if(|work| work.is_small()) {
            next = stream.send_pack(work).unwrap().or_else(|| stream.take_work());
            sent += 1;
        }
        assert_eq!(next.map(|work| work.assignment.file), Some(FileId(48)), "it goes by itself");
        assert_eq!((stream.payload_bytes, stream.copied_bytes), (48 * (60 << 10), 48 * (60 << 10)));
        // What is held back for more goes out with it.
        let end = FrameHeader::End { stream: stream.stream, sequence: stream.sequence };
        stream.sender.send_bytes(&end.encode(), Boundary::Flush).unwrap();
        assert_eq!(arrives.join().unwrap(), [2, 3, 5, 9, 14, 14, 1]);
        assert_eq!(sent, 7);
    }

    #[test]
    fn a_work_is_small_if_it_is_all_of_a_file_and_fits_a_pack() {
        let directory = tempfile::tempdir().unwrap();
        for (name, len_bytes) in [("0", 128 << 10), ("1", (128 << 10) + 1), ("2", 2 * SPAN_BYTES)] {
            fs::write(directory.path().join(name), vec![7; len_bytes as usize]).unwrap();
        }
        let mut hear = |_| {};
        let context = without_peer::begin(FileOptions::default(), &mut hear).context;
        for (entry, span_bytes) in
            without_peer::files(directory.path()).into_iter().zip([1 << 20, 1 << 20, SPAN_BYTES])
        {
            without_peer::needed(&context, entry, need(span_bytes));
        }
        let (mut stream, _) = opened(&context.shared);
        let works = std::iter::from_fn(|| stream.take_work().map(|work| work.is_small()));
        assert_eq!(works.collect::<Vec<_>>(), [true, false, false, false]);
    }

    #[test]
    fn a_cold_file_begins_the_reading_ahead() {
        let directory = tempfile::tempdir().unwrap();
        // A hole that nobody has read has nothing in the page cache.
        File::create(directory.path().join("hole")).unwrap().set_len(9000).unwrap();
        let mut hear = |_| {};
        let context = without_peer::begin(FileOptions::default(), &mut hear).context;
        let entry = without_peer::files(directory.path()).remove(0);
        without_peer::needed(&context, entry, need(SPAN_BYTES));
        let (mut stream, _) = opened(&context.shared);
        stream.cache_look = CacheLook::that_looks_now();
        let work = stream.take_work().unwrap();
        if haul_sys::cachestat::cached_bytes(work.span.file.file(), 0, 9000).ok() != Some(0) {
            return haul_testkit::skip::skip("cachestat(2)", "none");
        }
        assert!(!context.shared.ahead.is_running());
        stream.pack_file(&work);
        assert!(context.shared.ahead.is_running());
        context.shared.streams.request_stop();
    }

    #[test]
    fn files_that_wait_are_read_ahead_if_they_are_small_files() {
        let directory = tempfile::tempdir().unwrap();
        for (name, len_bytes) in [("0", 1), ("1", (128 << 10) + 1), ("2", 128 << 10)] {
            fs::write(directory.path().join(name), vec![7; len_bytes as usize]).unwrap();
        }
        let mut hear = |_| {};
        let context = without_peer::begin(FileOptions::default(), &mut hear).context;
        let queue = &context.shared;
        assert_eq!(queue.first(), None);
        for entry in without_peer::files(directory.path()) {
            without_peer::needed(&context, entry, need(1 << 20));
        }
        let waiting = |first, most| {
            let waiting = queue.waiting(FileId(first), most).into_iter();
            waiting.map(|(file, entry)| (file.0, entry.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(queue.first(), Some(FileId(0)));
        assert_eq!(waiting(0, 9), [(0, true), (1, false), (2, true)]);
        assert_eq!(waiting(1, 1), [(1, false)]);
        lock(&queue.machine).stream_opened(StreamId(0)).unwrap();
        lock(&queue.machine).next_span(StreamId(0)).unwrap();
        assert_eq!(queue.first(), Some(FileId(1)), "the first has gone");
        assert!(!queue.is_over());
        queue.streams.request_stop();
        assert!(queue.is_over());
    }

    #[test]
    fn a_file_that_was_read_ahead_is_not_opened_again_and_none_is_kept_for_nobody() {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), 3, 100);
        let mut hear = |_| {};
        let context = without_peer::begin(FileOptions::default(), &mut hear).context;
        for entry in without_peer::files(directory.path()) {
            without_peer::needed(&context, entry, need(1 << 20));
        }
        let share = crate::storage::open_files::Share::of_ahead_files();
        let ahead = |name: &str| {
            let file = SpanFile::new(File::open(directory.path().join(name)).unwrap());
            OpenedAhead::new(Arc::new(file), share.take().unwrap())
        };
        let (first, late) = (ahead("000"), ahead("001"));
        let (first_file, late_file) = (first.file.clone(), Arc::downgrade(&late.file));
        let (mut stream, _) = opened(&context.shared);
        context.shared.opened(FileId(0), first);
        let work = stream.take_work().unwrap();
        assert!(Arc::ptr_eq(&work.span.file, &first_file));
        let is_open = Arc::downgrade(&first_file);
        drop((work, first_file));
        assert!(is_open.upgrade().is_none(), "it has one span");
        let work = stream.take_work().unwrap();
        context.shared.opened(FileId(1), late);
        assert!(late_file.upgrade().is_none(), "its stream has opened it");
        drop(work);
        context.shared.opened(FileId(9), ahead("002"));
        // Another span of it has to be opened by its name.
        std::fs::remove_file(directory.path().join("002")).unwrap();
        assert!(stream.take_work().is_none());
    }

    #[test]
    fn a_file_that_lost_its_name_after_it_was_read_ahead_is_not_confirmed_with_its_span() {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), 3, 100);
        let mut hear = |_| {};
        let context = without_peer::begin(FileOptions::default(), &mut hear).context;
        for entry in without_peer::files(directory.path()) {
            without_peer::needed(&context, entry, need(1 << 20));
        }
        let share = crate::storage::open_files::Share::of_ahead_files();
        for (number, name) in ["000", "001"].into_iter().enumerate() {
            let file = SpanFile::new(File::open(directory.path().join(name)).unwrap());
            let opened = OpenedAhead::new(Arc::new(file), share.take().unwrap());
            context.shared.opened(FileId(number as u32), opened);
        }
        // Another ctime, where the clock of a file system is a coarse one.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::rename(directory.path().join("002"), directory.path().join("000")).unwrap();
        let (mut stream, _) = opened(&context.shared);
        let mut status = || {
            let work = stream.take_work().unwrap();
            stream.confirm(&work, Ok(()))
        };
        assert_eq!(
            status(),
            haul_protocol::frame::PayloadStatus::Whole,
            "it is read again by its name"
        );
        assert_eq!(status(), haul_protocol::frame::PayloadStatus::Confirmed);
    }

    #[test]
    fn only_regular_files_that_have_bytes_are_small_files() {
        let offer = |kind, size_bytes| FileOffer { kind, size_bytes, ..FileOffer::default() };
        for (kind, size_bytes, is_small) in [
            (FileKind::Regular, 0, false),
            (FileKind::Regular, 1, true),
            (FileKind::Regular, SMALL_FILE_BYTES_MAX, true),
            (FileKind::Regular, SMALL_FILE_BYTES_MAX + 1, false),
            (FileKind::HardLink, 1, false),
        ] {
            assert_eq!(is_small_file(&offer(kind, size_bytes)), is_small, "{kind:?} {size_bytes}");
        }
    }
}
