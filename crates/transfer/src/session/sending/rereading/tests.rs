//! Tests of sources that are read again: what is the same, what is not, and what cannot be told.

use super::*;
use crate::{
    file_options::FileOptions,
    session::sending::without_peer::{self, SPAN_BYTES, confirmed, wait_until},
};
use haul_protocol::{
    Message, SenderEvent, SpanIndex, SpanRange, StreamId,
    file_life::NextStep,
    frame::{PayloadStatus, SpanHeader},
    limits::DATA_KEYS_BYTES,
    message::{Extent, FaultCode, FileConfirm, Need, SpansVerified},
};
use haul_testkit::{content, seed::Seed};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

const STREAM: StreamId = StreamId(0);

fn keys() -> Arc<SessionKeys> {
    Arc::new(SessionKeys::from_bytes(&[9; DATA_KEYS_BYTES]))
}

/// A span of `bytes`, as it went out.
fn sent(
    mut digest: SpanDigest,
    file: FileId,
    bytes: &[u8],
    (offset_bytes, len_bytes): (u64, u64),
) -> SentSpan {
    let header = SpanHeader { file, offset_bytes, len_bytes, sequence: 3, stream: STREAM };
    digest.start(&header, &FrameHeader::Span(header).encode());
    digest.see(&bytes[offset_bytes as usize..][..len_bytes as usize]);
    let status = PayloadStatus::Whole;
    SentSpan { header, status, digest: digest.finish(status) }
}

/// Writes other bytes into a file, and sets its time back.
fn hide(path: &Path, at: u64) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_modified(before).unwrap();
}

/// Ranges of a file that were sent: one is longer than what is read at a time, and bytes that were
/// not sent are before it, behind it and at the end.
const SENT: [(u64, u64); 2] = [(70_000, (1 << 20) + 500_000), (2 << 20, 1000)];

/// Makes a file of which these ranges were sent.
fn source(
    directory: &Path,
    digest: message::Digest,
    ranges: &[(u64, u64)],
) -> (ChangedSource, PathBuf) {
    let path = directory.join("data");
    let bytes = content::bytes(Seed(5), (2 << 20) + 70_000);
    fs::write(&path, &bytes).unwrap();
    let entry = Arc::new(without_peer::files(directory).remove(0));
    let keys = keys();
    let of_span = || SpanDigest::new(digest, &keys);
    let sent = ranges.iter().map(|range| sent(of_span(), FileId(4), &bytes, *range)).collect();
    (ChangedSource { entry, earlier: None, sent, digest, keys }, path)
}

fn read(source: &ChangedSource) -> Reread {
    source.read(&AtomicBool::new(false))
}

fn found(source: &ChangedSource) -> String {
    let fault = read(source).unwrap_err();
    assert_eq!((fault.code, &fault.path[..]), (FaultCode::SourceChanged, &b"data"[..]));
    fault.found
}

#[test]
fn a_source_whose_sent_bytes_are_the_same_is_the_same_whatever_verifies_them() {
    for digest in [message::Digest::Crc32c, message::Digest::Xxh3128, message::Digest::AesGmac] {
        let directory = tempfile::tempdir().unwrap();
        let (source, path) = source(directory.path(), digest, &SENT);
        let now = source.entry.check().unwrap();
        assert_eq!(read(&source), Ok(now), "{digest:?}");
        for at in [0, 69_999, 70_000 + SENT[0].1, (2 << 20) + 1000] {
            hide(&path, at);
        }
        assert!(read(&source).is_ok(), "{digest:?}: they were not sent");
        for at in [70_000, 70_000 + SENT[0].1 - 1, 2 << 20, (2 << 20) + 999] {
            hide(&path, at);
            assert!(found(&source).contains("other bytes than were sent"), "{digest:?}: {at}");
            hide(&path, at);
            assert!(read(&source).is_ok(), "{digest:?}: {at}");
        }
    }
}

#[test]
fn without_a_digest_nothing_tells_what_was_sent() {
    let directory = tempfile::tempdir().unwrap();
    let (mut source, _) = source(directory.path(), message::Digest::None, &SENT);
    assert!(found(&source).contains("without a digest"));
    source.sent.clear();
    assert!(read(&source).is_ok(), "nothing was");
}

#[test]
fn a_source_that_became_shorter_or_whose_session_is_over_is_not_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (source, path) = source(directory.path(), message::Digest::Crc32c, &SENT);
    let fault = source.read(&AtomicBool::new(true)).unwrap_err();
    assert_eq!(fault.what, "cannot be read again");
    File::options().write(true).open(path).unwrap().set_len(80_000).unwrap();
    assert!(found(&source).contains("now has 80000 bytes"));
}

#[test]
fn bytes_behind_the_end_of_a_file_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("data"), [7; 100]).unwrap();
    let file = SpanFile::new(File::open(directory.path().join("data")).unwrap());
    let mut buffer = [0; 64];
    let mut read = |range| {
        let mut seen = 0;
        let see = |bytes: &[u8]| seen += bytes.len();
        let read = read_range(&file, range, &mut buffer, &AtomicBool::new(false), see);
        (read.map_err(|error| error.kind()), seen)
    };
    assert_eq!(read((10, 90)), (Ok(()), 90));
    assert_eq!(read((100, 0)), (Ok(()), 0));
    assert_eq!(read((10, 91)), (Err(io::ErrorKind::UnexpectedEof), 90));
}

fn grid() -> SpanGrid {
    SpanGrid::new((2 << 20) + 70_000, SPAN_BYTES).unwrap()
}

/// Digest of these spans of a file.
fn digest_of(bytes: &[u8], spans: &[u32]) -> Digest {
    let mut of_all = DigestOfAll::default();
    for span in spans.iter().copied().map(SpanIndex) {
        let (offset_bytes, len_bytes) = grid().range(span);
        let mut digest = DigestOfSpan::default();
        digest.update(&bytes[offset_bytes as usize..][..len_bytes as usize]);
        of_all.add(span, &digest.finish());
    }
    of_all.finish()
}

#[test]
fn what_an_earlier_run_left_is_compared_with_its_digest() {
    let directory = tempfile::tempdir().unwrap();
    let (mut source, path) = source(directory.path(), message::Digest::Crc32c, &SENT);
    let bytes = fs::read(&path).unwrap();
    let mut earlier = |digest| {
        let mut spans = SpanSet::new(grid().count());
        // The last is shorter than the others.
        [0, 2, 33].into_iter().for_each(|span| {
            spans.insert(SpanIndex(span));
        });
        let earlier = EarlierSpans { spans, grid: grid(), ctime: Ctime::default(), digest };
        source.earlier = Some(Arc::new(earlier));
        read(&source).map_err(|fault| fault.found)
    };
    assert!(earlier(Some(digest_of(&bytes, &[0, 2, 33]))).is_ok());
    let other = earlier(Some(digest_of(&bytes, &[0, 1, 33]))).unwrap_err();
    assert!(other.contains("other bytes than an earlier run sent"), "{other}");
    let unknown = earlier(None).unwrap_err();
    assert!(unknown.contains("nothing tells what an earlier run left"), "{unknown}");
}

/// A session that has sent all spans of a file but those of an earlier run, and has them verified.
struct Session<'a> {
    context: Context<'a>,
    rereading: Rereading,
    file: FileId,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

const BYTES: usize = 3 * SPAN_BYTES as usize;

impl<'a> Session<'a> {
    fn begin(
        hear: &'a mut dyn FnMut(Event),
        change: impl FnOnce(&mut SourceEntry),
        need: Need,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let bytes = content::bytes(Seed(6), BYTES);
        fs::write(&path, &bytes).unwrap();
        let context = without_peer::begin(FileOptions::default(), hear).context;
        let mut entry = without_peer::files(directory.path()).remove(0);
        change(&mut entry);
        let need = Need { span_bytes: SPAN_BYTES, ..need };
        let file = without_peer::needed(&context, entry, need);
        let mut rereading = Rereading::new(|| {});
        let mut machine = lock(&context.shared.machine);
        machine.stream_opened(STREAM).unwrap();
        while let Some(assignment) = machine.next_span(STREAM) {
            let range = (assignment.offset_bytes, assignment.len_bytes);
            let sent = sent(context.shared.setup.span_digest(), file, &bytes, range);
            context.shared.sent.sent(assignment.span, sent);
            let spans = vec![SpanRange { first: assignment.span, count: 1 }];
            machine.handle(Message::SpansVerified(SpansVerified { file, spans })).unwrap();
        }
        let mut events = Vec::new();
        events.extend(std::iter::from_fn(|| machine.poll_event()));
        drop(machine);
        for event in events {
            if let SenderEvent::Resumed { file, span_bytes, earlier, .. } = event {
                rereading.keep_earlier(file, span_bytes, earlier, &context);
            }
        }
        confirmed(&context);
        Self { context, rereading, file, path, _directory: directory }
    }

    fn check(&mut self) {
        self.rereading.check_source(self.file, &mut self.context);
    }

    /// Waits for the confirmation of the file: its fault, if it has one.
    fn confirmed(&mut self) -> Option<Fault> {
        let mut all = Vec::new();
        wait_until("read", || {
            self.rereading.tick(Instant::now(), &mut self.context);
            all.extend(confirmed(&self.context));
            !all.is_empty()
        });
        let [FileConfirm { file, fault }] = &all[..] else { panic!("{all:?}") };
        assert_eq!(*file, self.file);
        fault.clone()
    }
}

/// Makes the offer of an inode that has changed since.
fn changed(entry: &mut SourceEntry) {
    entry.offer.ctime_s -= 1;
}

fn why(told: &[Event]) -> Vec<&str> {
    let why = told.iter().map(|event| match event {
        Event::Rereading { why, .. } => why.as_str(),
        other => panic!("{other:?}"),
    });
    why.collect()
}

#[test]
fn a_source_whose_inode_did_not_change_is_confirmed_at_once() {
    let mut told = Vec::new();
    let mut hear = |event| told.push(event);
    let mut session = Session::begin(&mut hear, |_| {}, Need::default());
    session.check();
    assert_eq!(confirmed(&session.context), [FileConfirm { file: session.file, fault: None }]);
    drop(session);
    assert_eq!(told, []);
}

#[test]
fn a_source_whose_inode_changed_is_read_again_and_offered_as_it_is_from_then_on() {
    let mut told = Vec::new();
    let mut hear = |event| told.push(event);
    let mut session = Session::begin(&mut hear, changed, Need::default());
    session.check();
    assert_eq!(session.confirmed(), None);
    let sources = lock(&session.context.shared.sources);
    let entry = sources[&session.file].entry.clone();
    drop(sources);
    assert_eq!(Ctime::of_offer(&entry.offer), entry.check().unwrap());
    drop(session);
    assert_eq!(why(&told).len(), 1);
    assert!(why(&told)[0].contains("since it was offered"), "{told:?}");
}

#[test]
fn a_source_that_was_written_to_and_whose_time_was_set_back_is_not_confirmed() {
    let mut hear = |_| {};
    let mut session = Session::begin(&mut hear, changed, Need::default());
    hide(&session.path, 2 * SPAN_BYTES);
    session.check();
    let fault = session.confirmed().unwrap();
    assert_eq!(fault.code, FaultCode::SourceChanged);
    assert!(fault.found.contains("other bytes than were sent"), "{fault:?}");
}

#[test]
fn a_source_that_changed_by_its_time_is_not_read_again() {
    let mut told = Vec::new();
    let mut hear = |event| told.push(event);
    let mut session = Session::begin(&mut hear, |_| {}, Need::default());
    fs::write(&session.path, "other bytes").unwrap();
    session.check();
    let fault = session.confirmed().unwrap();
    assert!(fault.found.contains("now has 11 bytes"), "{fault:?}");
    drop(session);
    assert_eq!(told, []);
}

/// Answer of a receiver that has the first two spans of an earlier run.
fn earlier(ctime_s: i64, digest: Option<Digest>) -> Need {
    let durable = vec![SpanRange { first: SpanIndex(0), count: 2 }];
    Need { durable, ctime_s, durable_digest: digest, ..Need::default() }
}

#[test]
fn what_an_earlier_run_left_is_read_again_where_the_inode_changed_since() {
    let bytes = content::bytes(Seed(6), BYTES);
    let [right, wrong] = [[0, 1], [0, 2]].map(|spans| digest_of(&bytes, &spans));
    for (digest, is_same) in [(Some(right), true), (Some(wrong), false), (None, false)] {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let mut session = Session::begin(&mut hear, |_| {}, earlier(7, digest));
        session.check();
        assert_eq!(session.confirmed().is_none(), is_same, "{digest:?}");
        drop(session);
        assert!(why(&told)[0].contains("since an earlier run"), "{told:?}");
    }
}

#[test]
fn what_an_earlier_run_left_is_read_again_with_the_rest_where_the_inode_changes_now() {
    let bytes = content::bytes(Seed(6), BYTES);
    for (spans, is_same) in [([0, 1], true), ([0, 2], false)] {
        let mut hear = |_| {};
        // Its change time then is that of the offer.
        let mut session =
            Session::begin(&mut hear, changed, earlier(0, Some(digest_of(&bytes, &spans))));
        session.check();
        assert_eq!(session.confirmed().is_none(), is_same, "{spans:?}");
    }
}

#[test]
fn holes_and_files_that_ended_are_not_remembered() {
    let mut hear = |_| {};
    let hole = |entry: &mut SourceEntry| {
        let extent = Extent { offset_bytes: 0, len_bytes: 2 * SPAN_BYTES };
        entry.offer.holes = vec![extent];
    };
    let session = Session::begin(&mut hear, hole, earlier(7, None));
    assert!(session.rereading.earlier.is_empty(), "a hole has no bytes");
    drop(session);
    let mut session = Session::begin(&mut hear, |_| {}, earlier(7, None));
    assert_eq!(session.rereading.earlier.len(), 1);
    let entry = (*lock(&session.context.shared.sources)[&session.file].entry).clone();
    let (content, stored_as, is_told) = (None, None, true);
    let (file, step, now) = (session.file, NextStep::NextRound, Instant::now());
    let mut settled = Settled { file, entry, step, content, stored_as, is_told, now };
    session.rereading.settled(&mut settled, &mut session.context);
    assert!(session.rereading.earlier.is_empty());
}

#[test]
fn a_link_whose_inode_changed_has_no_bytes_to_be_read_again() {
    let mut hear = |_| {};
    let mut session = Session::begin(&mut hear, |_| {}, Need::default());
    let path = session.path.with_file_name("link");
    std::os::unix::fs::symlink("nowhere", path).unwrap();
    let mut links = without_peer::entries(&session.path.with_file_name(""));
    links.retain(|entry| entry.offer.kind == FileKind::Symlink);
    let mut link = links.remove(0);
    changed(&mut link);
    let need = Need { span_bytes: SPAN_BYTES, ..Need::default() };
    session.file = without_peer::needed(&session.context, link, need);
    confirmed(&session.context);
    session.check();
    assert_eq!(confirmed(&session.context), [FileConfirm { file: session.file, fault: None }]);
}

/// Case of a receiver that found spans of an earlier run lost while the source was read again.
#[test]
fn a_file_of_which_spans_were_lost_meanwhile_is_looked_at_once_more() {
    let mut hear = |_| {};
    let mut session = Session::begin(&mut hear, changed, Need::default());
    session.rereading.lost(session.file);
    assert!(session.rereading.void.is_empty(), "it is not being read");
    session.check();
    session.rereading.lost(session.file);
    wait_until("read", || {
        session.rereading.tick(Instant::now(), &mut session.context);
        !session.rereading.reading.is_busy()
    });
    assert_eq!(confirmed(&session.context), []);
    session.check();
    assert_eq!(session.confirmed(), None);
}

#[test]
fn a_session_that_is_over_reads_nothing_again() {
    let mut hear = |_| {};
    let mut session = Session::begin(&mut hear, changed, Need::default());
    session.rereading.stop();
    session.check();
    assert_eq!(session.confirmed().unwrap().what, "cannot be read again");
}

#[test]
fn a_file_that_is_settled_already_needs_no_look() {
    let mut hear = |_| {};
    let mut session = Session::begin(&mut hear, |_| {}, Need::default());
    lock(&session.context.shared.sources).clear();
    session.check();
    assert_eq!(confirmed(&session.context), [FileConfirm { file: session.file, fault: None }]);
}
