//! Tests of files that are followed: looks, rounds, lags, ends.

use super::*;
use crate::session::sending::without_peer::{self, entries};
use haul_protocol::{
    file_life::{EndResult, FileEnd},
    message::Compare,
};
use std::{fs, io::Write, os::unix::fs::PermissionsExt, path::Path};

const SPAN: u64 = 64 << 10;
const IDLE: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_nanos(1);

fn file_options(append_only: bool) -> FileOptions {
    let recording = Recording { follow: true, append_only, idle: IDLE, ..Recording::default() };
    let mut file_options = FileOptions { recording, ..FileOptions::default() };
    file_options.preserve.owner = true;
    file_options
}

/// A file in a directory of its own, which is followed since this time.
struct Scene {
    directory: tempfile::TempDir,
    file: File,
    begun: Instant,
    following: Following,
}

impl Scene {
    fn new(len_bytes: u64) -> Self {
        Self::after(len_bytes, Written::new())
    }

    fn after(len_bytes: u64, written: Written) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("x")).unwrap();
        file.set_len(len_bytes).unwrap();
        let mut following = Following::new(file_options(false), Some(SPAN), written);
        let begun = Instant::now();
        following.begin(entry(&directory.path().join("x")), false, begun).unwrap();
        Self { directory, file, begun, following }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("x")
    }

    fn at(&self, ms: u64) -> Instant {
        self.begun + Duration::from_millis(ms)
    }

    fn followed(&mut self) -> &mut Followed {
        &mut self.following.files[0]
    }

    /// Sizes that the file was seen with, with the times in milliseconds.
    fn samples(&mut self) -> Vec<(u128, u64)> {
        let begun = self.begun;
        let samples = &self.followed().samples;
        samples.iter().map(|(at, size)| ((*at - begun).as_millis(), *size)).collect()
    }
}

fn entry(path: &Path) -> SourceEntry {
    entries(path).swap_remove(0)
}

fn offered(steps: &[Step]) -> Vec<(u64, Growth)> {
    let offer = |step: &Step| match step {
        Step::Offer(entry) => (entry.offer.size_bytes, entry.offer.growth),
        Step::Failed(fault) => panic!("{fault:?}"),
    };
    steps.iter().map(offer).collect()
}

/// A file as it was seen, and what is to be offered of it.
struct Case {
    size_bytes: u64,
    settled: Option<u64>,
    anew: bool,
    ended: bool,
    append_only: bool,
    still: Duration,
    waited: Duration,
    offer: Option<(u64, Growth, Compared)>,
}

fn cases() -> Vec<Case> {
    use Compared::{NotCompared, OtherContent, SameContent};
    use Growth::{Growing, Grown};
    let rest = Case {
        size_bytes: 3 * SPAN + 5,
        settled: Some(3 * SPAN),
        anew: false,
        ended: false,
        append_only: false,
        still: Duration::ZERO,
        waited: TAIL_AFTER - MOMENT,
        offer: None,
    };
    let all = 3 * SPAN + 5;
    let ended = || Case { ended: true, settled: Some(all), ..rest_of(&rest) };
    vec![
        Case { size_bytes: 0, settled: None, ..rest_of(&rest) },
        Case { settled: None, offer: Some((all, Growing, NotCompared)), ..rest_of(&rest) },
        Case { anew: true, offer: Some((all, Growing, OtherContent)), ..rest_of(&rest) },
        rest_of(&rest),
        Case { waited: TAIL_AFTER, offer: Some((all, Growing, NotCompared)), ..rest_of(&rest) },
        Case {
            settled: Some(2 * SPAN + 1),
            offer: Some((3 * SPAN, Growing, NotCompared)),
            ..rest_of(&rest)
        },
        Case { size_bytes: 3 * SPAN, waited: TAIL_AFTER, ..rest_of(&rest) },
        Case { settled: Some(all), still: IDLE - MOMENT, ..rest_of(&rest) },
        Case {
            settled: Some(all),
            still: IDLE,
            offer: Some((all, Grown, NotCompared)),
            ..rest_of(&rest)
        },
        Case { offer: Some((all, Grown, NotCompared)), ..ended() },
        Case { append_only: true, offer: Some((all, Grown, SameContent)), ..ended() },
        // More than a span of it comes once before it can be compared.
        Case {
            settled: Some(3 * SPAN),
            append_only: true,
            offer: Some((all, Growing, NotCompared)),
            ..ended()
        },
        Case { anew: true, offer: Some((all, Growing, OtherContent)), ..ended() },
        Case {
            size_bytes: SPAN,
            settled: None,
            append_only: true,
            offer: Some((SPAN, Grown, NotCompared)),
            ..ended()
        },
        Case {
            size_bytes: SPAN + 1,
            settled: None,
            offer: Some((SPAN + 1, Growing, NotCompared)),
            ..ended()
        },
    ]
}

#[test]
fn a_file_is_offered_by_full_spans_its_tail_after_a_second_and_all_of_it_at_its_end() {
    let mut scene = Scene::new(0);
    let now = scene.at(60_000);
    for (number, case) in cases().into_iter().enumerate() {
        let followed = scene.followed();
        followed.size_bytes = case.size_bytes;
        (followed.settled_bytes, followed.anew) = (case.settled, case.anew);
        (followed.ended, followed.changed_at) = (case.ended, now - case.still);
        let sizes = [(TAIL_AFTER * 9, 3 * SPAN), (case.waited, case.size_bytes)];
        followed.samples = sizes.map(|(ago, size)| (now - ago, size)).into();
        let recording = file_options(case.append_only).recording;
        let offer = followed.next_offer(now, recording).map(|entry| entry.offer);
        let offer = offer.map(|offer| (offer.size_bytes, offer.growth, offer.compared));
        assert_eq!(offer, case.offer, "case {number}");
    }
}

fn rest_of(case: &Case) -> Case {
    Case { ..*case }
}

#[test]
fn each_look_sees_what_was_written_since_and_a_shorter_file_comes_anew() {
    let mut scene = Scene::new(10);
    fs::set_permissions(scene.path(), fs::Permissions::from_mode(0o641)).unwrap();
    for (ms, len_bytes) in [(100, 10), (200, 30), (300, 30), (400, 70)] {
        scene.file.set_len(len_bytes).unwrap();
        let now = scene.at(ms);
        scene.followed().look(now).unwrap();
    }
    assert_eq!(scene.samples()[1..], [(100, 30), (300, 70)], "since the look before");
    let changed_at = scene.followed().changed_at;
    assert_eq!((changed_at, scene.followed().anew), (scene.at(400), false));
    assert_eq!(scene.followed().entry.offer.mode, 0o641);
    // The same size, at another time: it is no other file, and has no other size.
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(9);
    scene.file.set_modified(time).unwrap();
    let now = scene.at(500);
    scene.followed().look(now).unwrap();
    assert_eq!((scene.followed().mtime, scene.followed().changed_at), ((9, 0), now));
    assert_eq!((scene.samples().len(), scene.followed().anew), (3, false));
    scene.file.set_len(40).unwrap();
    let now = scene.at(600);
    scene.followed().look(now).unwrap();
    assert_eq!((scene.samples(), scene.followed().anew), (vec![(500, 40)], true));
}

#[test]
fn of_many_sizes_every_second_one_is_forgotten() {
    let mut scene = Scene::new(1);
    let mut stat = rustix::fs::fstat(&scene.file).unwrap();
    for size in 2..=SAMPLES_MAX as i64 {
        stat.st_size = size;
        let now = scene.begun;
        scene.followed().see(&stat, now);
    }
    let sizes =
        |scene: &mut Scene| scene.samples().iter().map(|(_, size)| *size).collect::<Vec<_>>();
    let most = SAMPLES_MAX as u64;
    assert_eq!(sizes(&mut scene), (1..=most).collect::<Vec<_>>());
    stat.st_size += 1;
    let now = scene.begun;
    scene.followed().see(&stat, now);
    let odd = (1..most).step_by(2).chain([most + 1]);
    assert_eq!(sizes(&mut scene), odd.collect::<Vec<_>>());
}

#[test]
fn a_file_lags_by_what_is_not_durable_since_it_was_seen() {
    use Phase::{Offered, Resting};
    let of = |file| Offered(FileId(file));
    let mut scene = Scene::new(0);
    let (begun, now) = (scene.begun, scene.at(10_000));
    // Phase, settled and resumed spans, durable ones since the round began, whether no other
    // file is on its way; spans and seconds of the lag.
    let cases = [
        (of(1), None, None, 0, true, None),
        (of(1), None, None, 1, false, None),
        (of(1), None, None, 1, true, Some((4, 7.0))),
        (of(1), None, Some(2), 0, true, Some((3, 7.0))),
        (of(1), None, Some(2), 0, false, Some((5, 9.0))),
        (of(1), Some(2), None, 1, true, Some((2, 5.0))),
        (of(1), Some(2), Some(0), 9, true, Some((1, 5.0))),
        (of(1), Some(2), None, 9, false, Some((3, 7.0))),
        (Resting, Some(2), None, 9, true, Some((3, 7.0))),
        (Resting, Some(5), None, 0, true, Some((0, 0.0))),
    ];
    for (number, (phase, settled, resumed, came, is_alone, lag)) in cases.into_iter().enumerate() {
        let followed = scene.followed();
        (followed.size_bytes, followed.offered_bytes) = (5 * SPAN, 4 * SPAN);
        (followed.phase, followed.durable_before) = (phase, 100);
        followed.settled_bytes = settled.map(|spans: u64| spans * SPAN);
        followed.resumed_bytes = resumed.map(|spans: u64| spans * SPAN);
        let sizes = [(1, 1), (3, 3), (5, 5)];
        followed.samples = sizes.map(|(s, n)| (begun + Duration::from_secs(s), n * SPAN)).into();
        let told = followed.lag(now, 100 + came * SPAN, is_alone);
        let told = told.map(|lag| (lag.bytes / SPAN, lag.seconds));
        assert_eq!(told, lag, "case {number}");
        let durable = lag.map_or(0, |(spans, _)| 5 - spans);
        let left = if lag.is_some() { sizes.map(|(_, n)| n > durable) } else { [true; 3] };
        let left = left.iter().filter(|is_left| **is_left).count();
        assert_eq!(followed.samples.len(), left, "case {number}: sizes that are remembered");
    }
}

/// Case of a session that is lost: what was not durable was written before the next began.
#[test]
fn another_session_knows_when_the_bytes_were_written_that_it_brings() {
    let before = Instant::now() - Duration::from_secs(60);
    let looked_at = before + Duration::from_secs(20);
    for (len_bytes, samples) in [
        (50, vec![(before, 30), (looked_at, 50)]),
        (30, vec![(before, 30)]),
        (20, vec![(looked_at, 20)]),
    ] {
        let written = [(b"x".to_vec(), (looked_at, [(before, 30)].into()))].into();
        let mut scene = Scene::after(len_bytes, written);
        let begun = scene.begun;
        let taken = scene.following.take_written();
        assert_eq!(taken[b"x".as_slice()], (begun, samples.into()));
    }
}

#[test]
fn files_are_looked_at_in_their_interval_and_offered_once() {
    let mut scene = Scene::new(10);
    let begun = scene.begun;
    let mut look = |after: Duration| offered(&scene.following.look(begun + after, 0));
    assert_eq!(look(Duration::ZERO), [(10, Growth::Growing)]);
    assert_eq!(look(LOOK_EVERY), [], "it has no number yet");
    scene.followed().phase = Phase::Resting;
    let mut look = |after: Duration| offered(&scene.following.look(begun + after, 77));
    assert_eq!(look(LOOK_EVERY * 2 - MOMENT), []);
    assert_eq!(look(LOOK_EVERY * 2), [(10, Growth::Growing)]);
    assert_eq!(scene.followed().durable_before, 77);
}

#[test]
fn a_file_that_is_removed_fails_once_its_round_has_ended() {
    let mut scene = Scene::new(10);
    fs::remove_file(scene.path()).unwrap();
    scene.followed().phase = Phase::Offered(FileId(1));
    let (first, second) = (scene.at(0), scene.at(1000));
    assert!(scene.following.look(first, 0).is_empty() && scene.following.keeps_some());
    scene.followed().phase = Phase::Resting;
    let steps = scene.following.look(second, 0);
    assert!(matches!(&steps[..], [Step::Failed(fault)] if fault.path == b"x"));
    assert!(!scene.following.keeps_some());
}

/// Watches that inotify has for a process (proc_pid_fdinfo(5)).
fn watches(following: &Following) -> usize {
    let descriptor = following.notify.as_ref().unwrap().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
    text.lines().filter(|line| line.starts_with("inotify")).count()
}

#[test]
fn a_file_ends_when_its_writer_closes_or_renames_it_and_no_other_with_it() {
    let Scene { directory, mut file, begun, mut following } = Scene::new(10);
    let path = |name: &str| directory.path().join(name);
    let kept = File::create(path("y")).unwrap();
    following.begin(entry(&path("y")), false, begun).unwrap();
    fs::hard_link(path("x"), path("z")).unwrap();
    following.begin(entry(&path("z")), false, begun).unwrap();
    assert!(following.deaf.is_none() && watches(&following) == 2, "x and z are one inode");
    let ended =
        |following: &Following| following.files.iter().map(|file| file.ended).collect::<Vec<_>>();
    file.write_all(b"more").unwrap();
    following.hear();
    assert_eq!(ended(&following), [false; 3]);
    drop(file);
    following.hear();
    assert_eq!(ended(&following), [true, false, true]);
    fs::rename(path("y"), path("renamed")).unwrap();
    following.look(begun, 0);
    assert_eq!(ended(&following), [true; 3]);
    drop(kept);
    for (left, names) in [(2, "z"), (1, "y"), (0, "")] {
        let gone = following.files.remove(0);
        following.unwatch(&gone);
        assert_eq!(watches(&following), left, "{names} left");
        following.files.rotate_left(usize::from(left == 2));
    }
}

#[test]
fn a_file_that_has_another_name_has_ended_though_nobody_heard_of_it() {
    let mut scene = Scene::new(10);
    let now = scene.begun;
    scene.following.notify = None;
    scene.following.look(now, 0);
    assert!(!scene.followed().ended);
    fs::rename(scene.path(), scene.directory.path().join("y")).unwrap();
    scene.followed().look(now).unwrap();
    assert!(scene.followed().ended);
}

#[test]
fn owners_and_attributes_are_those_of_the_end() {
    let scene = Scene::new(10);
    let mut following = scene.following;
    let Ok(()) = std::os::unix::fs::chown(scene.directory.path().join("x"), Some(1234), None)
    else {
        return haul_testkit::skip::skip("root", "another user");
    };
    following.closed(b"x");
    let steps = following.look(scene.begun, 0);
    let [Step::Offer(entry)] = &steps[..] else { panic!("one offer") };
    assert_eq!(entry.offer.growth, Growth::Grown);
    assert_eq!(entry.offer.owner.as_ref().map(|owner| owner.uid), Some(1234));
}

fn found(entry: SourceEntry, is_complete: bool) -> Found {
    Found { entry: Box::new(entry), is_complete, now: Instant::now() }
}

#[test]
fn what_is_whole_and_small_or_no_file_goes_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut hear = |_| {};
    let mut context = without_peer::begin(file_options(false), &mut hear).context;
    let mut goes_on = |len_bytes, age: Duration, is_complete, device| {
        let path = directory.path().join("x");
        let file = File::create(&path).unwrap();
        file.set_len(len_bytes).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        drop(file);
        let mut entry = entry(&path);
        entry.offer.device = device;
        let mut following = Following::new(file_options(false), Some(SPAN), Written::new());
        let met = following.met(found(entry, is_complete), &mut context).is_some();
        assert_eq!(met, !following.keeps_some());
        met
    };
    let (new, old) = (Duration::ZERO, IDLE * 2);
    assert_eq!([goes_on(SPAN, new, true, 1), goes_on(SPAN + 1, new, true, 1)], [true, false]);
    assert_eq!([goes_on(SPAN, old, false, 1), goes_on(SPAN + 1, old, false, 1)], [true, false]);
    assert!(!goes_on(10, new, false, 1), "it may still be written");
    assert!(goes_on(SPAN + 1, new, false, 0), "zeros out of memory");
    let mut following = Following::new(file_options(false), Some(SPAN), Written::new());
    let mut tree = entry(directory.path());
    assert_eq!(tree.offer.kind, FileKind::Directory);
    tree.offer.size_bytes = SPAN + 1;
    assert!(following.met(found(tree, false), &mut context).is_some());
}

#[test]
fn no_more_files_are_followed_at_a_time_than_may_be() {
    let mut scene = Scene::new(10);
    for number in 1..FILES_MAX {
        assert!(!scene.following.is_full());
        let path = scene.directory.path().join(number.to_string());
        fs::write(&path, "x").unwrap();
        scene.following.begin(entry(&path), false, scene.begun).unwrap();
    }
    assert!(scene.following.is_full());
}

fn settled(file: u32, entry: &SourceEntry, step: NextStep) -> Settled {
    let (content, stored_as, is_told, entry) = (None, None, true, entry.clone());
    Settled { file: FileId(file), entry, step, content, stored_as, is_told, now: Instant::now() }
}

/// Takes the one offer that is asked for, as a session that gives it this number.
fn take_offer(
    following: &mut Following,
    context: &mut Context<'_>,
    file: u32,
    before: Option<FileId>,
) -> SourceEntry {
    let entry = context.to_offer.pop_front().expect("an offer").entry;
    assert!(context.to_offer.is_empty());
    context.tally.offered(&entry.offer);
    following.offered(&Offered { file: FileId(file), entry: &entry, before }, context);
    entry
}

#[test]
fn a_followed_file_goes_by_rounds_to_its_end_and_counts_as_one() {
    let Scene { directory, file, begun, mut following } = Scene::new(SPAN + 10);
    following.files[0].watch = None;
    let mut told = Vec::new();
    let mut hear = |event| told.push(event);
    let mut context = without_peer::begin(file_options(false), &mut hear).context;
    let context = &mut context;
    let at = |seconds| begun + Duration::from_secs(seconds);
    following.deaf = Some("too many watches".into());
    following.tick(at(0), context);
    let first = take_offer(&mut following, context, 1, None);
    assert!(following.follows(FileId(1)) && !following.follows(FileId(2)));
    assert_eq!(following.resumed(FileId(2), 9, SPAN), None, "another file");
    assert_eq!(following.resumed(FileId(1), SPAN, 2 * SPAN), Some(SPAN));
    assert_eq!(following.files[0].span_bytes, 2 * SPAN, "as the receiver has them");
    assert_eq!(following.resumed(FileId(1), SPAN, SPAN), Some(0), "it is counted once");
    context.tally.resumed_bytes = SPAN;
    following.settled(&mut settled(7, &first, NextStep::NextRound), context);
    assert!(following.follows(FileId(1)), "another one was settled");
    following.settled(&mut settled(1, &first, NextStep::NextRound), context);
    assert!(!following.follows(FileId(1)));
    // It becomes shorter, so that all of it comes again.
    file.set_len(SPAN + 5).unwrap();
    following.tick(at(1), context);
    let second = take_offer(&mut following, context, 2, None);
    assert_eq!(second.offer.compared, Compared::OtherContent);
    assert_eq!(context.tally.resumed_bytes, 0);
    let counts = |context: &Context<'_>| (context.tally.offered_files, context.tally.offered_bytes);
    assert_eq!(counts(context), (1, SPAN + 5));
    following.settled(&mut settled(2, &second, NextStep::ChangedAgain), context);
    following.tick(at(2), context);
    let third = take_offer(&mut following, context, 3, None);
    following.settled(&mut settled(3, &third, NextStep::NextRound), context);
    following.closed(b"other");
    following.tick(at(3), context);
    assert!(context.to_offer.is_empty(), "nothing is new");
    // The walk meets it once more, when its writer has said that it is complete.
    let again = entry(&directory.path().join("x"));
    assert!(following.met(found(again, true), context).is_none());
    following.tick(at(4), context);
    let last = take_offer(&mut following, context, 4, None);
    assert_eq!((last.offer.growth, last.offer.size_bytes), (Growth::Grown, SPAN + 5));
    let compare = NextStep::Compare(Compare::default());
    following.settled(&mut settled(4, &last, compare), context);
    assert!(following.follows(FileId(4)), "it is read");
    context.offer(last.clone(), Some(FileId(4)));
    take_offer(&mut following, context, 5, Some(FileId(4)));
    assert!(following.follows(FileId(5)) && !following.follows(FileId(4)));
    let end = NextStep::Ends(FileEnd { result: EndResult::Skipped, frees_source: false });
    following.settled(&mut settled(5, &last, end), context);
    assert!(!following.keeps_some());
    assert_eq!(counts(context), (1, SPAN + 5));
    let is_deaf =
        |event: &Event| matches!(event, Event::Fallback { why, .. } if why.contains("too many"));
    assert_eq!(told.iter().filter(|event| is_deaf(event)).count(), 1);
    assert!(matches!(told.last(), Some(Event::Lag(lag)) if lag.bytes == 0), "{told:?}");
}

#[test]
fn a_followed_file_that_goes_is_told_to_both_sides() {
    let Scene { directory, begun, mut following, .. } = Scene::new(10);
    fs::remove_file(directory.path().join("x")).unwrap();
    let mut told = Vec::new();
    let mut hear = |event| told.push(event);
    let mut context = without_peer::begin(file_options(false), &mut hear).context;
    following.tick(begun, &mut context);
    assert_eq!(context.tally.failed_files, 1);
    drop(context);
    let [Event::Error(_), Event::File(ended)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&*ended.path.0, &ended.status), (&b"x"[..], &FileStatus::Failed));
}

#[test]
fn a_source_that_is_gone_before_it_is_held_fails_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x");
    fs::write(&path, "x").unwrap();
    let entry = entry(&path);
    fs::remove_file(&path).unwrap();
    let mut hear = |_| {};
    let mut context = without_peer::begin(file_options(false), &mut hear).context;
    let mut following = Following::new(file_options(false), Some(SPAN), Written::new());
    assert!(following.met(found(entry, false), &mut context).is_none());
    assert_eq!((context.tally.failed_files, following.keeps_some()), (1, false));
}

#[test]
fn an_offer_is_that_of_the_file_whose_name_it_has() {
    let mut scene = Scene::new(10);
    let path = scene.directory.path().join("y");
    fs::write(&path, "y").unwrap();
    scene.following.begin(entry(&path), false, scene.begun).unwrap();
    scene.following.files.iter_mut().for_each(|file| file.phase = Phase::Offering);
    let entry = entry(&path);
    let offered = Offered { file: FileId(1), entry: &entry, before: None };
    let found = scene.following.offered_by(&offered).map(|file| file.entry.offer.name.clone());
    assert_eq!(found, Some(b"y".to_vec()));
    scene.following.files[1].phase = Phase::Resting;
    assert!(scene.following.offered_by(&offered).is_none(), "it has not been asked for");
}

#[test]
fn durable_bytes_are_those_of_the_one_file_that_is_on_its_way() {
    let mut scene = Scene::new(10);
    let path = scene.directory.path().join("y");
    fs::write(&path, [7; 10]).unwrap();
    scene.following.begin(entry(&path), false, scene.begun).unwrap();
    for (others, lag_bytes) in [(Phase::Resting, 6), (Phase::Offered(FileId(2)), 10)] {
        let phases = [Phase::Offered(FileId(1)), others];
        for (file, phase) in scene.following.files.iter_mut().zip(phases) {
            (file.phase, file.offered_bytes, file.resumed_bytes) = (phase, 10, Some(0));
        }
        // The other one has been there for long.
        scene.following.files[1].settled_bytes = Some(10);
        (scene.following.looked_at, scene.following.lag) = (None, LagMeter::default());
        scene.following.look(scene.begun, 4);
        assert_eq!(scene.following.lag.largest.as_ref().map(|lag| lag.bytes), Some(lag_bytes));
    }
}
