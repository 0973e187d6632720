//! Tests of the committer: what is durable when, what gets its name, and what a failure costs.

use super::*;
use crate::{
    file_options::{FileOptions, Recording},
    session::receiving::{
        with_sender::{SPAN, offer},
        with_target::Target,
    },
};
use haul_protocol::message::{FileOffer, FileRange, Growth};
use haul_testkit::{mount::Mount, skip::skip};
use std::{fs, os::unix::fs::FileExt, path::Path, sync::mpsc};

impl Target {
    /// State of a committer of this directory, without its threads.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::new(Shared { root: self.place.root(), staged_max: 3, ..Shared::default() })
    }
}

pub(super) fn entry(number: u32, target: &SharedTarget, bytes: u64) -> Entry {
    Entry { file: FileId(number), target: target.clone(), spans: Vec::new(), bytes }
}

pub(super) fn numbers(entries: &[Entry]) -> Vec<u32> {
    entries.iter().map(|entry| entry.file.0).collect()
}

/// Files that are done, and those that failed, in rising order.
pub(super) fn results(shared: &Shared) -> (Vec<u32>, Vec<u32>) {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for committed in lock(&shared.results).drain(..) {
        match committed {
            Committed::Done(file) => done.push(file.0),
            Committed::Failed(file, _) => failed.push(file.0),
            Committed::Awaits(..) => panic!("no file has earlier ranges"),
        }
    }
    done.sort_unstable();
    failed.sort_unstable();
    (done, failed)
}

/// Waits until something is so.
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(8);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn files_come_together_after_a_sync_of_many_for_as_long_as_that_pays() {
    let ms = Duration::from_millis;
    for (files, took, gathered) in [
        (GROUP_MIN - 1, ms(10), ms(0)),
        (GROUP_MIN, ms(10), ms(20)),
        (GROUP_MIN, ms(20), ms(30)),
        (GROUP_MIN + 1, ms(80), ms(40)),
        (5000, ms(900), ms(100)),
    ] {
        assert_eq!(gather_for(files, took), gathered, "{files} in {took:?}");
    }
}

#[test]
fn spans_are_journaled_in_rising_order_as_runs_with_all_digests_or_none() {
    let span = |number: u32, digest: Option<u8>| (SpanIndex(number), digest.map(|it| [it; 16]));
    let all = vec![span(7, Some(7)), span(2, Some(2)), span(3, Some(3)), span(8, Some(8))];
    let (spans, digests) = sorted(all.clone());
    assert_eq!(spans, [2, 3, 7, 8].map(SpanIndex));
    assert_eq!(digests, [[2; 16], [3; 16], [7; 16], [8; 16]]);
    let runs = ranges_of(&spans);
    let runs: Vec<_> = runs.iter().map(|run| (run.first.0, run.count)).collect();
    assert_eq!(runs, [(2, 2), (7, 2)]);
    let three = ranges_of(&[0, 1, 2, 5].map(SpanIndex));
    assert_eq!(three.iter().map(|run| run.count).collect::<Vec<_>>(), [3, 1]);
    let some = [all, vec![span(4, None)]].concat();
    assert_eq!(sorted(some).1, [[0; 16]; 0]);
}

#[test]
fn small_files_of_hidden_directories_wait_for_others_but_not_for_long() {
    let now = Instant::now();
    let ms = |ms| now + Duration::from_millis(ms);
    let staged = |count: u32, bytes, last| StagedFiles {
        files: (0..count).map(FileId).collect(),
        bytes,
        came: Some((now, ms(last))),
    };
    assert_eq!(StagedFiles::default().due_at(0), None);
    for (count, bytes, last, due) in [
        (1, 0, 0, 50),
        (2, 0, 600, 650),
        (2, 0, 990, 1000),
        (3, 0, 990, 0),
        (4, 0, 990, 0),
        (2, STAGED_BYTES - 1, 10, 60),
        (2, STAGED_BYTES, 10, 0),
    ] {
        let due_at = staged(count, bytes, last).due_at(3);
        assert_eq!(due_at, Some(ms(due)), "{count} of {bytes} bytes, the last after {last}");
    }
    let queue = || Queue { staged: staged(1, 0, 0), ..Queue::default() };
    assert!(!queue().is_staged_due(ms(49), 3));
    assert!(queue().is_staged_due(ms(50), 3) && queue().is_staged_due(ms(51), 3));
    for asked in [
        Queue { has_all: true, ..queue() },
        Queue { hurried: true, ..queue() },
        Queue { ending: true, ..queue() },
        Queue { shows_all: true, ..queue() },
    ] {
        assert!(asked.is_staged_due(now, 3), "{asked:?}");
        assert!(!Queue { staged: StagedFiles::default(), ..asked }.is_staged_due(ms(5000), 3));
    }
    let mut staged = StagedFiles::default();
    staged.push(FileId(3), 10);
    let (first, _) = staged.came.unwrap();
    thread::sleep(Duration::from_millis(2));
    staged.push(FileId(4), 5);
    let came = staged.came.unwrap();
    assert!(came.0 == first && came.1 > first && staged.bytes == 15, "{staged:?}");
    assert_eq!(staged.files, [3, 4].map(FileId));
}

#[test]
fn the_committer_gets_up_for_whatever_is_to_be_done_and_leaves_when_nothing_is() {
    let target = tempfile::tempdir().unwrap();
    let shared = Target::in_directory(target.path()).receive(0, "x", b"x");
    let one = || entry(0, &shared, 1);
    let later = Instant::now() + Duration::from_secs(600);
    let staged = || StagedFiles { files: [FileId(0)].into(), bytes: 1, came: Some((later, later)) };
    let idle = Queue::default;
    assert!(!idle().has_work(3) && idle().is_through() && !idle().is_publishing());
    // Work that keeps it, or that it gets up for.
    for (queue, has_work, is_through) in [
        (Queue { commits: [FileId(0)].into(), ..idle() }, true, false),
        (Queue { named: vec![one()], ..idle() }, true, false),
        (Queue { staged: staged(), ..idle() }, false, false),
        (Queue { staged: staged(), has_all: true, ..idle() }, true, false),
        (Queue { shows_all: true, ..idle() }, true, true),
        (Queue { given_up: vec![(shared.clone(), true)], ..idle() }, true, true),
        (Queue { ending: true, ..idle() }, true, true),
        (Queue { publishing: true, ..idle() }, false, false),
        (Queue { synced: [one()].into(), ..idle() }, false, false),
        (Queue { publishing: true, ending: true, ..idle() }, false, false),
        (Queue { synced: [one()].into(), ending: true, ..idle() }, false, false),
    ] {
        assert_eq!((queue.has_work(3), queue.is_through()), (has_work, is_through), "{queue:?}");
        let is_publishing = queue.publishing || !queue.synced.is_empty();
        assert_eq!(queue.is_publishing(), is_publishing);
    }
}

/// Whether something wakes the committer, which waits.
fn wakes(shared: &Arc<Shared>, act: impl FnOnce(&CommitterHandle)) -> bool {
    let time_max = Duration::from_millis(700);
    let (waits, is_waiting) = mpsc::channel();
    let waiter = shared.clone();
    let thread = thread::spawn(move || {
        let queue = lock(&waiter.queue);
        waits.send(()).unwrap();
        let begun = Instant::now();
        drop(queue.wait_timeout(&waiter.changed, time_max));
        begun.elapsed() < time_max
    });
    is_waiting.recv().unwrap();
    // It holds the lock until it waits.
    drop(lock(&shared.queue));
    act(&CommitterHandle(shared.clone()));
    thread.join().unwrap()
}

#[test]
fn the_committer_is_woken_for_the_first_file_and_when_enough_have_come() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let shared = target.shared();
    let heavy = target.receive(9, "x", b"x");
    let commit = |number: u32, target: &SharedTarget| {
        wakes(&shared, |handle| handle.commit(FileId(number), target))
    };
    lock(&shared.queue).idle = true;
    assert!(commit(0, &heavy));
    assert!(!lock(&shared.queue).idle);
    assert!(!commit(1, &heavy), "it is up");
    lock(&shared.queue).commits = (0..GATHER_FILES as u32 - 1).map(FileId).collect();
    assert!(commit(5000, &heavy));
    assert!(!commit(5001, &heavy), "it was told");
    let light = target.receive_hidden("tree", 3);
    assert!(commit(6000, &light[0]), "of the first: it is to know until when it may sleep");
    assert!(!commit(6001, &light[1]));
    assert!(commit(6002, &light[2]));
    assert!(!commit(6003, &light[3]));
    assert_eq!(lock(&shared.queue).staged.files.len(), 4);
    assert!(wakes(&shared, CommitterHandle::has_all) && lock(&shared.queue).has_all);
    assert!(!wakes(&shared, CommitterHandle::has_all), "once");
    assert!(wakes(&shared, CommitterHandle::hurry) && lock(&shared.queue).hurried);
    assert!(wakes(&shared, CommitterHandle::show_all) && lock(&shared.queue).shows_all);
    assert!(wakes(&shared, |handle| handle.give_up(FileId(6000), None, true)));
    assert!(!lock(&shared.queue).undurable.contains_key(&FileId(6000)));
}

#[test]
fn files_are_gathered_until_the_time_is_over_or_no_more_is_to_come() {
    let shared = Arc::new(Shared::default());
    let long = Duration::from_secs(60);
    let full = (0..GATHER_FILES as u32).map(FileId).collect::<VecDeque<_>>();
    for queue in [
        Queue { has_all: true, ..Queue::default() },
        Queue { ending: true, ..Queue::default() },
        Queue { hurried: true, ..Queue::default() },
        Queue { commits: full.clone(), ..Queue::default() },
    ] {
        *lock(&shared.queue) = queue;
        let begun = Instant::now();
        shared.gather(long);
        assert!(begun.elapsed() < long / 10);
        assert!(!lock(&shared.queue).hurried, "the next wait again");
    }
    *lock(&shared.queue) =
        Queue { commits: full.into_iter().skip(1).collect(), ..Queue::default() };
    let waker = shared.clone();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        waker.changed.notify_all();
    });
    let begun = Instant::now();
    shared.gather(Duration::from_millis(250));
    assert!(begun.elapsed() >= Duration::from_millis(250), "what woke it was no reason");
    thread.join().unwrap();
    let begun = Instant::now();
    shared.gather(Duration::ZERO);
    assert!(begun.elapsed() < long / 10);
}

#[test]
fn the_committer_sleeps_until_there_is_work_or_a_time_comes() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    let begun = Instant::now();
    let due = shared.wait_until(begun + Duration::from_millis(150));
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert!(due.commits.is_empty() && due.staged.is_empty() && due.named.is_empty());
    assert!(!due.shows_all && !due.has_all && !due.ending);
    // Small files of a hidden directory call before the next checkpoint.
    let light = target.receive_hidden("tree", 1);
    handle.commit(FileId(7), &light[1]);
    let soon = Duration::from_secs(30);
    let begun = Instant::now();
    let due = shared.wait_until(begun + soon);
    let took = begun.elapsed();
    assert!(took > STAGED_QUIET / 2 && took < soon / 3, "{took:?}");
    assert_eq!(due.staged, [FileId(7)]);
    assert!(lock(&shared.queue).staged.files.is_empty() && !lock(&shared.queue).idle);
    // It says that it sleeps, and is woken.
    let sleeper = shared.clone();
    let thread = thread::spawn(move || sleeper.wait_until(Instant::now() + soon));
    wait_for("it sleeps", || lock(&shared.queue).idle);
    lock(&shared.queue).named.push(entry(2, &light[0], 1));
    let heavy = target.receive(9, "x", b"x");
    handle.commit(FileId(8), &heavy);
    let due = thread.join().unwrap();
    assert_eq!((due.commits, numbers(&due.named)), ([FileId(8)].into(), vec![2]));
    assert!(begun.elapsed() < soon);
    // Few small ones wait, whatever else is done.
    handle.commit(FileId(10), &light[0]);
    handle.show_all();
    handle.has_all();
    lock(&shared.queue).ending = true;
    let due = shared.wait_until(Instant::now() + soon);
    assert!(due.shows_all && due.has_all && due.ending && due.staged == [FileId(10)]);
    assert!(!lock(&shared.queue).shows_all);
}

#[test]
fn of_many_empty_files_those_that_would_be_too_many_wait_for_the_next_batch() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    // The second is open already.
    for number in 0..6 {
        let name = number.to_string();
        let file = match number {
            1 => target.receive(number, &name, b"x"),
            _ => target.prepare(&offer(number, &name, 0)).0,
        };
        handle.commit(FileId(number), &file);
    }
    let files = std::mem::take(&mut lock(&shared.queue).commits);
    handle.give_up(FileId(2), None, true);
    lock(&shared.queue).commits.push_back(FileId(77));
    assert_eq!(numbers(&shared.take_batch(&files, 2)), [0, 1, 3]);
    assert_eq!(lock(&shared.queue).commits, [4, 5, 77].map(FileId));
}

/// Waits for the results of a committer's files.
fn all_results(shared: &Shared, count: usize) -> (Vec<u32>, Vec<u32>) {
    wait_for("as many results", || lock(&shared.results).len() >= count);
    results(shared)
}

#[test]
fn what_is_committed_gets_its_name_and_only_the_bad_ones_fail() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let (told, tells) = mpsc::channel();
    let wake = move || {
        let _ = told.send(());
    };
    let contents = Arc::default();
    let mut committer = Committer::start(wake, contents, None, target.place.root(), 5).unwrap();
    assert_eq!(committer.shared.staged_max, 5);
    let handle = committer.handle();
    for number in 0..8 {
        let file = target.receive(number, &number.to_string(), &[7; 100]);
        handle.verified_whole([(FileId(number), file.clone(), 100)].into_iter());
        if number == 3 {
            // Nothing can be put in the place of a directory.
            fs::create_dir_all(place.path().join("3/in-it")).unwrap();
        }
        handle.commit(FileId(number), &file);
    }
    let (done, failed) = all_results(&committer.shared, 8);
    assert_eq!((done, failed), (vec![0, 1, 2, 4, 5, 6, 7], vec![3]));
    tells.recv_timeout(Duration::from_secs(8)).unwrap();
    assert_eq!(handle.durable_bytes(), 700);
    handle.forget_durable(600);
    assert_eq!(handle.durable_bytes(), 100);
    handle.forget_durable(600);
    assert_eq!(handle.durable_bytes(), 0);
    assert!((0..8).all(|number| target.exists(&number.to_string())));
    let costs = handle.costs();
    assert!(costs.sync_ns > 0 && costs.cpu_ns > 0 && costs.read_back_ns == 0, "{costs:?}");
    assert!(handle.read_back_ways().is_empty() && !handle.is_reading_back());
    // What is committed when the session ends is finished, and nothing is taken after that.
    let last = target.receive(9, "last", &[7; 10]);
    handle.commit(FileId(9), &last);
    committer.stop();
    assert_eq!(handle.take_results(9).0.len(), 1);
    assert!(target.exists("last") && handle.take_results(9).0.is_empty());
}

#[test]
fn a_session_is_woken_for_results_and_for_directories_that_are_shown() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let (told, tells) = mpsc::channel();
    let wake = move || {
        let _ = told.send(());
    };
    let root = target.place.root();
    let committer = Committer::start(wake, Arc::default(), None, root, 10).unwrap();
    let handle = committer.handle();
    let file = target.receive(0, "x", b"x");
    handle.commit(FileId(0), &file);
    tells.recv_timeout(Duration::from_secs(8)).unwrap();
    let (taken, has_more) = handle.take_results(9);
    assert_eq!((taken.len(), has_more), (1, false), "it is told when there is something");
    assert!(!handle.has_shown());
    handle.show_all();
    wait_for("it is shown", || handle.has_shown());
    tells.recv_timeout(Duration::from_secs(8)).unwrap();
}

#[test]
fn a_committer_that_is_dropped_ends_and_what_is_verified_by_then_is_durable() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let committer = Committer::start(|| {}, Arc::default(), None, target.place.root(), 1).unwrap();
    assert_eq!(committer.shared.staged_max, 1);
    let handle = committer.handle();
    let (file, _) = target.prepare(&offer(0, "x", 3 * SPAN));
    handle.verified(FileId(0), &file, (SpanIndex(1), None), SPAN);
    drop(committer);
    assert_eq!((handle.durable_bytes(), lock(&handle.0.queue).ending), (SPAN, true));
}

#[test]
fn a_committer_of_which_one_thread_alone_could_be_had_ends() {
    let shared = Arc::new(Shared::default());
    let of_publisher = shared.clone();
    let thread = thread::spawn(move || of_publisher.publish_all(&|| {}));
    let mut committer = Committer { shared, threads: vec![thread] };
    committer.stop();
    assert!(committer.threads.is_empty());
}

#[test]
fn verified_spans_are_durable_about_a_second_later_and_journaled() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    // The thread counts from its begin on, however long the target takes to be prepared.
    let begun = Instant::now();
    let committer = Committer::start(|| {}, Arc::default(), None, target.place.root(), 5).unwrap();
    let handle = committer.handle();
    let (file, _) = target.prepare(&offer(0, "x", 5 * SPAN));
    handle.verified(FileId(0), &file, (SpanIndex(1), None), SPAN);
    handle.verified(FileId(0), &file, (SpanIndex(2), None), SPAN);
    // It gets up for other things meanwhile.
    let other = target.receive(1, "other", b"x");
    handle.commit(FileId(1), &other);
    wait_for("a commit", || !handle.take_results(9).0.is_empty());
    assert!(handle.durable_bytes() == 0 || begun.elapsed() > CHECKPOINT_EVERY / 2);
    wait_for("a checkpoint", || handle.durable_bytes() > 0);
    assert!(begun.elapsed() > CHECKPOINT_EVERY / 2);
    assert_eq!(handle.durable_bytes(), 2 * SPAN);
    // And again, with what comes later.
    let begun = Instant::now();
    handle.verified(FileId(0), &file, (SpanIndex(4), None), SPAN);
    wait_for("another checkpoint", || handle.durable_bytes() > 2 * SPAN);
    assert!(begun.elapsed() > CHECKPOINT_EVERY / 2);
    handle.give_up(FileId(0), Some(file), true);
    wait_for("it is let go of", || lock(&handle.0.queue).given_up.is_empty());
    drop(committer);
    let (_, durable) = target.prepare(&offer(0, "x", 5 * SPAN));
    assert_eq!(durable.iter().map(|span| span.0).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn a_checkpoint_is_of_spans_alone_and_passes_over_what_was_given_up() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    let whole = target.receive(0, "whole", b"xyz");
    handle.verified_whole([(FileId(0), whole, 3)].into_iter());
    handle.verified(FileId(1), &Arc::default(), (SpanIndex(0), None), SPAN);
    let (file, _) = target.prepare(&offer(2, "x", 3 * SPAN));
    handle.verified(FileId(2), &file, (SpanIndex(0), None), SPAN);
    handle.verified(FileId(2), &file, (SpanIndex(2), None), SPAN);
    shared.checkpoint();
    assert_eq!(handle.durable_bytes(), 2 * SPAN);
    let queue = lock(&shared.queue);
    let left: Vec<_> = queue.undurable.iter().map(|(file, it)| (file.0, it.bytes)).collect();
    assert_eq!(left, [(0, 3), (2, 0)]);
    assert!(queue.undurable.values().all(|it| it.spans.is_empty()));
    drop(queue);
    assert_eq!(results(&shared), (vec![], vec![]));
    assert!(handle.costs().sync_ns > 0);
}

#[test]
fn a_target_that_is_given_up_stays_if_another_run_is_to_go_on_from_it() {
    for keep in [true, false] {
        let place = tempfile::tempdir().unwrap();
        let mut target = Target::in_directory(place.path());
        let shared = target.shared();
        let handle = CommitterHandle(shared.clone());
        let (file, _) = target.prepare(&offer(0, "x", 3 * SPAN));
        handle.verified(FileId(0), &file, (SpanIndex(0), None), SPAN);
        shared.checkpoint();
        handle.give_up(FileId(0), Some(file.clone()), keep);
        assert!(lock(&shared.queue).undurable.is_empty());
        shared.let_go();
        assert!(lock(&file).is_none() && lock(&shared.queue).given_up.is_empty());
        assert_eq!(target.exists(".x.haul-part"), keep);
    }
}

/// Case of a stalled write that would land in what the next session of the range has verified.
#[test]
fn a_range_that_a_stream_still_writes_is_let_go_of_when_that_is_over() {
    let place = tempfile::tempdir().unwrap();
    let range = Some(FileRange { offset_bytes: 0, file_bytes: 2 * SPAN });
    let offer = FileOffer { range, inode: 7, ..offer(0, "x", SPAN) };
    for keep in [true, false] {
        let options = FileOptions { ranges: true, ..FileOptions::default() };
        let mut target = Target::with(place.path(), options);
        let shared = target.shared();
        let handle = CommitterHandle(shared.clone());
        let (file, _) = target.prepare(&offer);
        let written = lock(&file).as_ref().unwrap().span_file().unwrap().unwrap();
        handle.give_up(FileId(0), Some(file.clone()), keep);
        shared.let_go();
        shared.let_go();
        assert!(lock(&file).is_some(), "a stream writes to it");
        drop(written);
        shared.let_go();
        assert!(lock(&file).is_none());
    }
}

#[test]
fn a_round_of_a_file_that_grows_is_durable_and_has_no_name() {
    let place = tempfile::tempdir().unwrap();
    let recording = Recording { follow: true, ..Recording::default() };
    let mut target =
        Target::with(place.path(), FileOptions { recording, ..FileOptions::default() });
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    let growing = FileOffer { growth: Growth::Growing, ..offer(0, "x", 2 * SPAN) };
    let (file, _) = target.prepare(&growing);
    let bytes = lock(&file).as_ref().unwrap().span_file().unwrap().unwrap();
    bytes.file().write_all_at(&[7; 2 * SPAN as usize], 0).unwrap();
    drop(bytes);
    for span in [1, 0] {
        handle.verified(FileId(0), &file, (SpanIndex(span), None), SPAN);
    }
    handle.commit(FileId(0), &file);
    let other = target.receive(1, "other", b"x");
    handle.commit(FileId(1), &other);
    let files = std::mem::take(&mut lock(&shared.queue).commits);
    shared.commit(&files, Vec::new());
    assert_eq!(results(&shared), (vec![0], vec![]));
    assert_eq!(handle.durable_bytes(), 2 * SPAN);
    let synced = Vec::from(std::mem::take(&mut lock(&shared.queue).synced));
    assert_eq!(numbers(&synced), [1], "it goes on to its name");
    assert!(!target.exists("x"));
    lock(&file).take().unwrap().give_up(true);
    let (_, durable) = target.prepare(&growing);
    assert!(durable.is_full(), "{durable:?}");
}

#[test]
fn what_was_given_up_meanwhile_is_passed_over_and_what_is_named_is_done() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let shared = target.shared();
    let files = [0, 1, 2].map(|number| target.receive(number, &number.to_string(), b"x"));
    let mut batch: Vec<_> = files.iter().zip(0..).map(|(it, at)| entry(at, it, 10)).collect();
    drop(lock(&files[0]).take());
    let mut steps = 0;
    shared.each(&mut batch, |target| {
        steps += 1;
        match &*target.name {
            b"1" => Err(Fault::default()),
            _ => Ok(()),
        }
    });
    assert_eq!((steps, numbers(&batch)), (2, vec![2]));
    assert_eq!(results(&shared), (vec![], vec![1]));
    shared.done(batch);
    assert!(lock(&files[2]).is_none(), "it is closed");
    assert_eq!(results(&shared), (vec![2], vec![]));
    assert_eq!(shared.durable_bytes.load(Ordering::Relaxed), 10);
}

/// Commits files, of which some have their names already, and tells whether each file of later
/// groups is asked by itself.
fn asks_each_after(place: &Path, unnamed: u32, named: u32) -> bool {
    let mut target = Target::in_directory(place);
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    let mut files = VecDeque::new();
    let mut all_named = Vec::new();
    for number in 0..unnamed + named {
        let file = target.receive(number, &number.to_string(), b"x");
        if number < unnamed {
            handle.commit(FileId(number), &file);
            files.push_back(FileId(number));
            continue;
        }
        for step in [TargetFile::seal, TargetFile::sync] {
            step(lock(&file).as_mut().unwrap()).unwrap();
        }
        assert!(lock(&file).as_mut().unwrap().publish().unwrap().is_none());
        all_named.push(number);
        lock(&shared.queue).named.push(entry(number, &file, 1));
    }
    let named = std::mem::take(&mut lock(&shared.queue).named);
    shared.commit(&files, named);
    assert_eq!(results(&shared), (all_named, vec![]));
    assert_eq!(lock(&shared.queue).synced.len(), files.len());
    shared.asks_each.load(Ordering::Acquire)
}

#[test]
fn a_group_is_synced_by_one_call_where_that_is_known_to_write_it_out() {
    for (unnamed, named) in [(4, 0), (3, 1), (1, 4)] {
        let known = tempfile::tempdir_in("/dev/shm").unwrap();
        assert!(!asks_each_after(known.path(), unnamed, named));
    }
    let place = tempfile::tempdir().unwrap();
    let unknown = match Mount::ramfs(place.path()) {
        Ok(mount) => mount,
        Err(why) => return skip("root", &why),
    };
    for (unnamed, named, is_group) in [(3, 0, false), (4, 0, true), (3, 1, true), (1, 2, false)] {
        let at = tempfile::tempdir_in(unknown.path()).unwrap();
        assert_eq!(asks_each_after(at.path(), unnamed, named), is_group, "{unnamed} and {named}");
    }
}

#[test]
fn file_systems_are_synced_whole_where_they_are_known_and_still_take_changes() {
    let synced = |at: &Path| {
        let file = Target::in_directory(at).receive(0, "x", b"x");
        sync_file_systems([entry(0, &file, 1), entry(1, &file, 1)].iter())
    };
    assert!(synced(tempfile::tempdir_in("/dev/shm").unwrap().path()));
    assert!(sync_file_systems([entry(0, &Arc::default(), 1)].iter()), "there is nothing");
    let place = tempfile::tempdir().unwrap();
    match Mount::ramfs(place.path()) {
        Ok(unknown) => assert!(!synced(unknown.path())),
        Err(why) => return skip("root", &why),
    }
    let place = tempfile::tempdir().unwrap();
    let Ok(mount) = Mount::tmpfs(place.path(), "8m") else { return skip("root", "another user") };
    let file = Target::in_directory(mount.path()).receive(0, "x", b"x");
    lock(&file).as_mut().unwrap().seal().unwrap();
    lock(&file).as_mut().unwrap().publish().unwrap();
    mount.make_read_only().unwrap();
    assert!(!sync_file_systems([entry(0, &file, 1)].iter()));
}

#[test]
fn a_publisher_wakes_the_session_only_where_a_file_fails() {
    for (name, wakes_expected) in [("good", 0), ("bad", 1)] {
        let place = tempfile::tempdir().unwrap();
        let mut target = Target::in_directory(place.path());
        let shared = target.shared();
        let file = target.receive(0, name, b"x");
        fs::create_dir_all(place.path().join("bad/in-it")).unwrap();
        let mut queue = lock(&shared.queue);
        queue.synced.push_back(entry(0, &file, 1));
        queue.published_all = true;
        drop(queue);
        let count = AtomicU64::new(0);
        shared.publish_all(&|| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), wakes_expected, "{name}");
        let queue = lock(&shared.queue);
        assert_eq!(queue.named.len() as u64, 1 - wakes_expected);
        assert!(!queue.publishing && shared.sync_ns.load(Ordering::Relaxed) > 0);
        assert!(shared.publisher_cpu_ns.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn costs_are_those_of_both_threads_and_of_what_is_under_way() {
    let shared = Arc::new(Shared::default());
    let handle = CommitterHandle(shared.clone());
    shared.cpu_ns.store(5, Ordering::Relaxed);
    shared.publisher_cpu_ns.store(7, Ordering::Relaxed);
    assert_eq!(handle.costs().cpu_ns, 12);
    let begun = shared.sync_begins();
    *lock(&shared.read_back_begun) = Some(begun);
    shared.read_back_ns.store(1 << 40, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(3));
    let costs = handle.costs();
    assert!(costs.sync_ns >= 3_000_000 && costs.read_back_ns >= (1 << 40) + 3_000_000);
    shared.sync_ended(begun);
    assert!(lock(&shared.sync_begun).is_none() && handle.costs().sync_ns >= 3_000_000);
}

#[test]
fn a_file_that_is_not_on_its_disk_as_it_arrived_gets_no_name() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let contents = Arc::<Contents>::default();
    let check = || Some(TargetCheck::new(contents.clone()));
    let shared = Arc::new(Shared { check: check(), ..Shared::default() });
    let handle = CommitterHandle(shared.clone());
    let mut batch = Vec::new();
    for (number, arrived) in [(0, b"good"), (1, b"evil"), (2, b"good")] {
        let file = target.receive(number, &number.to_string(), b"good");
        let grid = haul_protocol::SpanGrid::new(4, SPAN).unwrap();
        let value = *blake3::hash(arrived).as_bytes();
        contents.span(FileId(number), grid, SpanIndex(0), Some(value));
        batch.push(entry(number, &file, 4));
    }
    shared.read_back(&mut batch);
    assert_eq!((numbers(&batch), results(&shared)), (vec![0, 2], (vec![], vec![1])));
    let costs = handle.costs();
    assert!(costs.read_back_ns > 0 && !handle.read_back_ways().is_empty(), "{costs:?}");
    assert!(lock(&shared.read_back_begun).is_none() && !handle.is_reading_back());
    shared.check.as_ref().unwrap().at_work.store(true, Ordering::Relaxed);
    assert!(handle.is_reading_back());
    // Where the session is over nobody says anything of what was not read.
    shared.check.as_ref().unwrap().stopping.store(true, Ordering::Relaxed);
    shared.read_back(&mut batch);
    assert_eq!((batch.len(), results(&shared)), (0, (vec![], vec![])));
    let mut committer = Committer { shared: shared.clone(), threads: Vec::new() };
    shared.check.as_ref().unwrap().stopping.store(false, Ordering::Relaxed);
    committer.stop();
    assert!(shared.check.as_ref().unwrap().stopping.load(Ordering::Relaxed));
}
