//! Recheck of what an earlier run left at the target.
//!
//! Where its journal alone is not enough, it is read back from the disk while the rest is sent.
//! What is not as it was journaled is asked for again.

use super::{context::Context, stage::Stage};
use crate::{
    clocks::elapsed_ns,
    content::FileContent,
    error::io_fault,
    locks::lock,
    name::Name,
    session::{disclosure::Telling, hashing::Hashing, receiving::committer::SharedTarget},
    storage::{
        read_back::{BLOCK_BYTES, ReadBack},
        span_digests::{SpanDigests, outside_holes},
        target::TargetFile,
        temporary::{
            Left, Suspicion,
            earlier_ranges::{EarlierRanges, ReadRanges},
        },
    },
};
use haul_datapath::{SpanFile, aligned_buffer::AlignedBuffer};
use haul_protocol::{
    FileId, SpanGrid, SpanSet,
    message::{self, Fault},
    receiver::Earlier,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

const UNREAD: &str = "what an earlier run left cannot be read back";

/// Counts of reading back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecheckTally {
    pub bytes: u64,
    /// Bytes that were read back and were not there any more.
    pub lost_bytes: u64,
    pub ns: u64,
}

impl RecheckTally {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.lost_bytes += other.lost_bytes;
        self.ns += other.ns;
    }
}

/// Outcome of reading a file back.
pub(super) struct Rechecked {
    lost: SpanSet,
    tally: RecheckTally,
}

/// Order to read back spans of a file that is being received.
pub(super) struct Recheck {
    file: Arc<SpanFile>,
    grid: SpanGrid,
    spans: SpanSet,
    digests: SpanDigests,
    why: Suspicion,
}

/// State of a file that an earlier run left, as an offer is answered with it.
pub(super) struct TakenUp {
    pub target: Box<TargetFile>,
    pub durable: SpanSet,
    pub earlier: Earlier,
    pub recheck: Option<Recheck>,
}

/// Decides which durable spans may be said to be there, and what is known of them. Where the target
/// is read back at the end, those whose content nobody knows are moved again: there would be
/// nothing to compare them with.
pub(super) fn take_up(
    file: FileId,
    (mut target, mut durable): (Box<TargetFile>, SpanSet),
    left: Option<Box<Left>>,
    grid: &SpanGrid,
    context: &Context<'_>,
) -> Result<TakenUp, Fault> {
    let Some(left) = left else {
        return Ok(TakenUp { target, durable, earlier: Earlier::default(), recheck: None });
    };
    let (rules, shared) = (context.rules, &context.shared);
    let Left { ctime, digests, content, suspicion } = *left;
    if shared.setup.content && !durable.is_empty() {
        if rules.verify_target {
            keep_known(&mut target, &mut durable, &content)?;
        }
        shared.contents.begin(file, content);
    }
    let holes = &target.offer.clone().holes;
    let spans = outside_holes(&durable, holes, grid);
    let mut recheck = None;
    if let Some(why) = suspicion.filter(|_| !spans.is_empty()) {
        let opened = target.to_read_back().filter(|_| rules.peer_rechecks);
        if let Some(file) = opened {
            let digests = digests.clone();
            recheck = Some(Recheck { file, grid: *grid, spans, digests, why });
        } else {
            // A sender that could not be told of what is lost.
            target.lose(&spans)?;
            durable.subtract(&spans);
        }
    }
    // It says what is there, which is not for everybody.
    let may_know = rules.telling == Telling::All;
    let digest = digests.of_all(&durable, holes, grid).filter(|_| may_know);
    let earlier = Earlier { ctime, digest, is_read_back: recheck.is_some() };
    Ok(TakenUp { target, durable, earlier, recheck })
}

fn keep_known(
    target: &mut TargetFile,
    durable: &mut SpanSet,
    content: &FileContent,
) -> Result<(), Fault> {
    if content.known() == durable {
        return Ok(());
    }
    let mut unknown = durable.clone();
    unknown.subtract(content.known());
    durable.subtract(&unknown);
    target.lose(&unknown)
}

/// Files of which an earlier run left something that is read back.
pub(super) struct Rechecking {
    reading: Hashing<Rechecked>,
    /// Other ranges of files whose own range has come, which are read back before the name.
    earlier: Hashing<(ReadRanges, u64)>,
    pub tally: RecheckTally,
}

impl Rechecking {
    /// Starts with no file; `wake` is called when one has been read back.
    pub fn new(wake: impl Fn() + Clone + Send + Sync + 'static) -> Self {
        let (reading, earlier) = (Hashing::new(wake.clone()), Hashing::new(wake));
        Self { reading, earlier, tally: RecheckTally::default() }
    }

    /// Whether any file is being read back.
    pub fn is_busy(&self) -> bool {
        self.reading.is_busy() || self.earlier.is_busy()
    }

    /// Reads a file back, beside the session's thread.
    pub fn begin(
        &mut self,
        file: FileId,
        recheck: Recheck,
        target: SharedTarget,
        context: &mut Context<'_>,
    ) {
        let begun = self.reading.begin(file, move |ending| recheck.run(&target, ending));
        if let Err(error) = begun {
            context.fail(file, io_fault(message::Side::Target, b"", UNREAD, &error));
        }
    }

    /// Reads other ranges of a file back, whose own range has come, before the file gets its name.
    pub fn begin_earlier(
        &mut self,
        file: FileId,
        earlier: Box<EarlierRanges>,
        context: &mut Context<'_>,
    ) {
        let Some(offer) = context.offer(file) else { return };
        let name = offer.name.clone();
        let mut why = "what came of it before this host was started is read back first".to_owned();
        // How much there is, is not for everybody.
        if context.rules.telling == Telling::All {
            why += &format!(": {} bytes", earlier.bytes());
        }
        let committer = context.shared.committer.clone();
        let begun = self.earlier.begin(file, move |ending| {
            let begun = Instant::now();
            let mut last = begun;
            let read = earlier.read_back(&mut |_| {
                committer.spent_reading_back(elapsed_ns(last));
                last = Instant::now();
                !ending.load(Ordering::Relaxed)
            })?;
            Ok((read, elapsed_ns(begun)))
        });
        if let Err(error) = begun {
            return context.fail(file, io_fault(message::Side::Target, &name, UNREAD, &error));
        }
        let what = format!("the name of {}", Name(name));
        context.tell_fallback(&what, why);
    }

    /// Takes the files of which other ranges were read back. The own range is committed once more,
    /// which gives the name, or says what is missing.
    fn take_earlier(&mut self, context: &mut Context<'_>) {
        for (file, read) in self.earlier.take_results() {
            let Some(offer) = context.offer(file) else { continue };
            let (read, ns) = match read {
                Ok(read) => read,
                Err(error) => {
                    let fault = io_fault(message::Side::Target, &offer.name, UNREAD, &error);
                    context.fail(file, fault);
                    continue;
                }
            };
            self.tally.add(RecheckTally { bytes: read.bytes, lost_bytes: read.lost_bytes, ns });
            let targets = lock(&context.shared.targets);
            let target = targets.get(&file).map(|target| target.shared.clone());
            drop(targets);
            if let Some(shared) = target {
                if let Some(target) = lock(&shared).as_mut() {
                    target.was_looked_back(read.missing());
                }
                context.shared.committer.commit(file, &shared);
            }
        }
    }
}

impl Stage for Rechecking {
    /// Takes the files that were read back; what is lost of them comes again.
    fn tick(&mut self, _now: Instant, context: &mut Context<'_>) {
        self.take_earlier(context);
        for (file, rechecked) in self.reading.take_results() {
            // Given up meanwhile: settled.
            let Some(offer) = context.offer(file) else { continue };
            match rechecked {
                Ok(Rechecked { lost, tally }) => {
                    self.tally.add(tally);
                    context.wants_streams |= !lost.is_empty();
                    context.taken_up.lost(&mut context.tally, file, tally.lost_bytes);
                    lock(&context.shared.machine).read_back(file, &lost);
                }
                Err(error) => {
                    let fault = io_fault(message::Side::Target, &offer.name, UNREAD, &error);
                    context.fail(file, fault);
                }
            }
        }
    }

    fn stop(&mut self) {
        self.reading.stop();
        self.earlier.stop();
    }
}

/// Words for the user why what an earlier run left is taken up.
pub(super) fn why_resumed(recheck: Option<&Recheck>) -> String {
    let Some(recheck) = recheck else { return "these are here already, verified".into() };
    let why = match recheck.why {
        Suspicion::Asked => "--recheck asks",
        Suspicion::StartedAnew => "this host was started anew since",
        Suspicion::MountedAnew => "its file system was mounted anew since",
        Suspicion::Doubted => "a run before was to do so, or found bytes of them lost",
        Suspicion::ChangedSince => "the temporary was changed since its journal was written",
    };
    format!("these are here already; they are read back, as {why}")
}

impl Recheck {
    fn run(self, target: &SharedTarget, ending: &AtomicBool) -> io::Result<Rechecked> {
        let begun = Instant::now();
        let read_back = ReadBack::new(self.file);
        let mut buffer = AlignedBuffer::new(BLOCK_BYTES);
        let mut lost = SpanSet::new(self.grid.count());
        let mut goes_on = |_| !ending.load(Ordering::Relaxed);
        for span in self.spans.iter() {
            let (offset, len) = self.grid.range(span);
            let digest = read_back.digest(offset, len, &mut buffer, &mut goes_on);
            if ending.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            // What cannot be read is as good as lost: it is written anew.
            if digest.ok() != self.digests.get(span) {
                lost.insert(span);
            }
        }
        if let Some(target) = lock(target).as_mut() {
            target.was_read_back(&lost).map_err(|fault| io::Error::other(fault.found))?;
        }
        let (bytes, lost_bytes) = (self.spans.bytes(&self.grid), lost.bytes(&self.grid));
        let tally = RecheckTally { bytes, lost_bytes, ns: elapsed_ns(begun) };
        Ok(Rechecked { lost, tally })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        session::{
            receiving::{
                ReceivingOptions,
                with_sender::{SPAN, Session, offer},
                without_peer,
            },
            streams::StreamSetup,
        },
    };
    use haul_protocol::{
        Message,
        frame::PayloadStatus,
        message::{Answer, FileConfirm, Need},
    };
    use haul_testkit::{content, seed::Seed};
    use std::{fs, path::Path, time::Duration};

    const LEN: u64 = 4 * SPAN;

    fn payload() -> Vec<u8> {
        content::bytes(Seed(3), LEN as usize)
    }

    /// One run of a transfer of the same file.
    struct Run {
        rechecks: bool,
        options: ReceivingOptions,
        /// BLAKE3 values are wanted.
        content: bool,
    }

    impl Run {
        fn new() -> Self {
            let options = ReceivingOptions { span_bytes: Some(SPAN), ..without_peer::options() };
            Self { rechecks: false, options, content: false }
        }

        fn rechecking() -> Self {
            Self { rechecks: true, ..Self::new() }
        }

        /// Runs a session to which the file was offered, and returns why what is there was taken
        /// up.
        fn run(self, at: &Path, test: impl FnOnce(&mut Session<'_>)) -> Vec<(u64, String)> {
            let file_options = FileOptions { recheck: self.rechecks, ..FileOptions::default() };
            let setup = StreamSetup { content: self.content, ..StreamSetup::of_nobody() };
            let mut resumed = Vec::new();
            let mut hear = |event| {
                if let Event::Resume { bytes, why } = event {
                    resumed.push((bytes, why));
                }
            };
            let place = without_peer::place(at, file_options);
            let mut session = Session::begin(place, self.options, setup, &mut hear);
            session.say(Message::FileOffer(offer(0, "x", LEN)));
            session.until("an answer", |it| it.answer_to(0).is_some());
            test(&mut session);
            session.role.stop();
            drop(session);
            resumed
        }
    }

    /// Sends spans, and waits until they are verified.
    fn send(session: &mut Session<'_>, spans: &[u32]) {
        let (payload, mut stream) = (payload(), session.stream());
        let verified =
            |it: &Session<'_>| it.role.context.shared.verified_bytes.load(Ordering::Relaxed);
        let before = verified(session);
        for span in spans {
            let offset = u64::from(*span) * SPAN;
            let part = &payload[offset as usize..(offset + SPAN) as usize];
            let frame = stream.span(0, offset, part, PayloadStatus::Whole);
            stream.write(&frame);
        }
        stream.end();
        session.until("spans", |it| verified(it) == before + spans.len() as u64 * SPAN);
    }

    /// Leaves two spans of the file to a later run.
    fn leave(at: &Path, content: bool) {
        let run = Run { content, ..Run::new() };
        assert_eq!(run.run(at, |session| send(session, &[0, 2])), []);
    }

    fn need(session: &Session<'_>) -> Need {
        let Some(Answer::Need(need)) = session.answer_to(0) else { panic!("{:?}", session.said) };
        need
    }

    fn durable(session: &Session<'_>) -> Vec<u32> {
        let runs = need(session).durable;
        runs.iter().flat_map(|run| run.first.0..run.first.0 + run.count).collect()
    }

    /// Lets the session work until what is there was read back, and gives the spans that are lost.
    fn lost(session: &mut Session<'_>) -> Vec<u32> {
        session.until("read back", |it| !it.role.stages.rechecking.is_busy());
        let of = |message: &Message| match message {
            Message::SpansLost(it) => it.spans.iter().map(|run| run.first.0).collect(),
            _ => Vec::new(),
        };
        session.said.iter().flat_map(of).collect()
    }

    /// Has the rest sent and confirmed, and checks that all of the file is there.
    fn finish(session: &mut Session<'_>, at: &Path, rest: &[u32]) {
        send(session, rest);
        session.turn();
        session.say(Message::FileConfirm(FileConfirm { file: FileId(0), fault: None }));
        assert_eq!(session.settled([0]), [None]);
        assert_eq!(fs::read(at.join("x")).unwrap(), payload());
    }

    #[test]
    fn what_an_earlier_run_left_is_taken_up_and_told_to_whom_may_know() {
        for (telling, knows) in [(Telling::All, true), (Telling::Little, false)] {
            let place = tempfile::tempdir().unwrap();
            leave(place.path(), false);
            let mut run = Run::new();
            run.options.telling = telling;
            let resumed = run.run(place.path(), |session| {
                assert_eq!(durable(session), [0, 2]);
                assert_eq!(need(session).durable_digest.is_some(), knows);
                assert!(!session.role.stages.rechecking.is_busy());
                assert_eq!(session.role.context.shared.contents.get(FileId(0)), None);
                finish(session, place.path(), &[1, 3]);
                assert_eq!(session.role.report().rechecked_bytes, 0);
            });
            assert_eq!(resumed, [(2 * SPAN, "these are here already, verified".to_owned())]);
        }
    }

    #[test]
    fn what_is_to_be_read_back_is_and_what_is_not_there_any_more_comes_again() {
        for spoilt in [false, true] {
            let place = tempfile::tempdir().unwrap();
            leave(place.path(), false);
            if spoilt {
                let part = fs::File::options().write(true).open(place.path().join(".x.haul-part"));
                let part = part.unwrap();
                std::os::unix::fs::FileExt::write_all_at(&part, b"other", 2 * SPAN).unwrap();
            }
            let resumed = Run::rechecking().run(place.path(), |session| {
                assert_eq!(durable(session), [0, 2]);
                let (gone, rest): (&[u32], &[u32]) =
                    if spoilt { (&[2], &[1, 2, 3]) } else { (&[], &[1, 3]) };
                assert_eq!(lost(session), gone);
                let report = session.role.report();
                let lost_bytes = gone.len() as u64 * SPAN;
                assert_eq!(report.rechecked_bytes, 2 * SPAN);
                assert_eq!(report.recheck_lost_bytes, lost_bytes);
                assert!(report.recheck_ns > 0);
                assert_eq!(session.role.tally().resumed_bytes, 2 * SPAN - lost_bytes);
                finish(session, place.path(), rest);
            });
            let why = "these are here already; they are read back, as --recheck asks";
            assert_eq!(resumed, [(2 * SPAN, why.to_owned())]);
        }
    }

    #[test]
    fn streams_are_wanted_again_where_a_file_that_was_all_there_has_lost_some() {
        for spoilt in [false, true] {
            let place = tempfile::tempdir().unwrap();
            Run::new().run(place.path(), |session| send(session, &[0, 1, 2, 3]));
            if spoilt {
                let part = fs::File::options().write(true).open(place.path().join(".x.haul-part"));
                std::os::unix::fs::FileExt::write_all_at(&part.unwrap(), b"other", SPAN).unwrap();
            }
            Run::rechecking().run(place.path(), |session| {
                assert_eq!(durable(session), [0, 1, 2, 3]);
                assert_eq!(lost(session), if spoilt { &[1][..] } else { &[] });
                assert_eq!(session.role.context.wants_streams, spoilt);
            });
        }
    }

    #[test]
    fn a_session_that_ends_waits_for_what_is_read_back() {
        let place = tempfile::tempdir().unwrap();
        Run::new().run(place.path(), |session| {
            let ended = Arc::new(AtomicBool::new(false));
            let told = ended.clone();
            let slow = move |_: &AtomicBool| {
                std::thread::sleep(Duration::from_millis(80));
                told.store(true, Ordering::Relaxed);
                Err(io::ErrorKind::Interrupted.into())
            };
            session.role.stages.rechecking.reading.begin(FileId(9), slow).unwrap();
            session.role.stop();
            assert!(ended.load(Ordering::Relaxed));
        });
    }

    #[test]
    fn a_sender_that_could_not_be_told_what_is_lost_sends_all_of_it() {
        let place = tempfile::tempdir().unwrap();
        leave(place.path(), false);
        let mut run = Run::rechecking();
        run.options.peer_rechecks = false;
        let resumed = run.run(place.path(), |session| {
            assert_eq!((durable(session), lost(session)), (vec![], vec![]));
        });
        assert_eq!(resumed, []);
        // Nor does a later run believe it.
        let resumed = Run::new().run(place.path(), |session| assert_eq!(durable(session), [0; 0]));
        assert_eq!(resumed, []);
    }

    #[test]
    fn spans_of_which_nobody_knows_the_content_come_again_where_the_target_is_read_back() {
        for content in [false, true] {
            let place = tempfile::tempdir().unwrap();
            leave(place.path(), content);
            let mut run = Run { content: true, ..Run::new() };
            run.options.verify_target = true;
            run.run(place.path(), |session| {
                let (there, rest): (&[u32], &[u32]) =
                    if content { (&[0, 2], &[1, 3]) } else { (&[], &[0, 1, 2, 3]) };
                assert_eq!(durable(session), there);
                finish(session, place.path(), rest);
            });
        }
    }

    #[test]
    fn where_some_of_the_content_is_known_the_rest_comes_again_and_only_that() {
        let place = tempfile::tempdir().unwrap();
        leave(place.path(), false);
        let run = Run { content: true, ..Run::new() };
        run.run(place.path(), |session| send(session, &[1]));
        let mut run = Run { content: true, ..Run::new() };
        run.options.verify_target = true;
        run.run(place.path(), |session| {
            assert_eq!(durable(session), [1]);
            finish(session, place.path(), &[0, 2, 3]);
        });
    }

    #[test]
    fn reading_back_ends_with_the_session() {
        let place = tempfile::tempdir().unwrap();
        leave(place.path(), false);
        let (digests, grid) = (SpanDigests::new(4), SpanGrid::new(LEN, SPAN).unwrap());
        let recheck = || Recheck {
            file: Arc::new(SpanFile::new(
                fs::File::open(place.path().join(".x.haul-part")).unwrap(),
            )),
            grid,
            spans: SpanSet::full(4),
            digests: digests.clone(),
            why: Suspicion::Asked,
        };
        let target = SharedTarget::default();
        let ended = recheck().run(&target, &AtomicBool::new(true));
        assert_eq!(ended.map(|it| it.lost).unwrap_err().kind(), io::ErrorKind::Interrupted);
        let begun = Instant::now();
        let read = recheck().run(&target, &AtomicBool::new(false)).unwrap();
        assert_eq!((read.tally.bytes, read.tally.lost_bytes), (LEN, LEN), "no digest agrees");
        assert!(read.lost.is_full() && Duration::from_nanos(read.tally.ns) <= begun.elapsed());
    }
}
