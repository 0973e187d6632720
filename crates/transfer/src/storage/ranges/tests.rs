//! Ranges in a directory of a real file system: what sessions find there, and what they leave.

use super::{register::Said, *};
use std::sync::Arc;

const WHOLE: Whole = Whole {
    size_bytes: 200,
    mtime_s: 5,
    mtime_ns: 0,
    source_inode: 7,
    source_device: 1,
    name_hash: [3; 16],
};

/// A directory with what sessions on real files need, and a file of two ranges.
fn real() -> (tempfile::TempDir, impl Fn() -> site::Directory, Whole) {
    let place = tempfile::tempdir().unwrap();
    let opened = Arc::new(std::os::fd::OwnedFd::from(std::fs::File::open(&place).unwrap()));
    let site = move || site::Directory::of(opened.clone(), b"x");
    (place, site, WHOLE)
}

fn claimed(
    site: site::Directory,
    whole: &Whole,
    bytes: Range<u64>,
    ctime: i64,
) -> Result<Claim<site::Directory>, Refused> {
    claim(site, whole, Part { bytes, ctime: (ctime, 0) }, (false, Duration::ZERO))
}

#[test]
fn a_range_that_is_written_again_is_no_part_of_a_whole_file_meanwhile() {
    let (place, site, whole) = real();
    assert_eq!(claimed(site(), &whole, 0..100, 1).unwrap().finish().unwrap(), Finished::Waiting);
    let second = claimed(site(), &whole, 100..200, 1).unwrap();
    // Its source has changed, and it is brought anew.
    let again = claimed(site(), &whole, 0..100, 2).unwrap();
    assert!(!again.is_done);
    assert_eq!(second.finish().unwrap(), Finished::Reopened, "the first may never come again");
    assert_eq!(again.finish().unwrap(), Finished::OutOfStep);
    let second = claimed(site(), &whole, 100..200, 2).unwrap();
    assert!(!second.is_done && !place.path().join("x").exists());
    assert_eq!(second.finish().unwrap(), Finished::Named);
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
}

#[test]
fn a_range_of_another_cut_takes_the_journals_away_that_tell_of_its_bytes() {
    let (place, site, whole) = real();
    let journal = |begin: u64| place.path().join(format!(".x.{begin:016x}.haul-range"));
    for bytes in [0..50, 50..100, 100..200] {
        let begun = claimed(site(), &whole, bytes.clone(), 1).unwrap();
        std::fs::write(journal(bytes.start), "of a run that was killed").unwrap();
        drop(begun);
    }
    let again = claimed(site(), &whole, 50..100, 1).unwrap();
    assert!(journal(50).exists(), "its own");
    drop(again);
    let other = claimed(site(), &whole, 40..100, 1).unwrap();
    let left = [0, 50, 100].map(|begin| journal(begin).exists());
    assert_eq!(left, [false, false, true]);
    std::fs::write(journal(40), "of this one").unwrap();
    assert_eq!(other.finish().unwrap(), Finished::Waiting);
    let done = claimed(site(), &whole, 50..100, 1).unwrap();
    assert!(done.is_done && journal(40).exists(), "it writes nothing");
    drop(done);
    assert!(!claimed(site(), &whole, 50..200, 1).unwrap().is_done);
    assert!(!journal(40).exists() && !journal(100).exists());
}

#[test]
fn a_range_is_not_begun_while_a_journal_of_another_cut_cannot_be_removed() {
    let (place, site, whole) = real();
    drop(claimed(site(), &whole, 0..100, 1).unwrap());
    let journal = place.path().join(format!(".x.{:016x}.haul-range", 0));
    // What unlink(2) refuses.
    std::fs::create_dir(&journal).unwrap();
    assert!(claimed(site(), &whole, 50..150, 1).is_err());
    std::fs::remove_dir(&journal).unwrap();
    assert!(claimed(site(), &whole, 50..150, 1).is_ok());
}

#[test]
fn a_register_that_is_torn_is_taken_for_one_that_had_said_anything() {
    let (place, site, whole) = real();
    assert_eq!(claimed(site(), &whole, 0..100, 1).unwrap().finish().unwrap(), Finished::Waiting);
    let register = place.path().join(".x.haul-ranges");
    let mut bytes = std::fs::read(&register).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&register, &bytes).unwrap();
    assert_eq!(claimed(site(), &whole, 100..200, 1).unwrap().finish().unwrap(), Finished::Lost);
    claimed(site(), &Whole { mtime_s: 9, ..whole }, 100..200, 1).unwrap().give_up();
    let others = Whole { mtime_s: 9, ..whole };
    assert_eq!(claimed(site(), &others, 0..100, 1).unwrap().finish().unwrap(), Finished::Lost);
    assert_eq!(claimed(site(), &others, 100..200, 1).unwrap().finish().unwrap(), Finished::Named);
}

#[test]
fn a_torn_register_stays_beside_a_file_that_has_its_name_and_one_of_zeros_goes() {
    let (place, site, whole) = real();
    assert_eq!(claimed(site(), &whole, 0..100, 1).unwrap().finish().unwrap(), Finished::Waiting);
    std::fs::write(place.path().join("x"), "of before").unwrap();
    let register = place.path().join(".x.haul-ranges");
    let mut bytes = std::fs::read(&register).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&register, &bytes).unwrap();
    remove_left(&site());
    assert_eq!(claimed(site(), &whole, 100..200, 1).unwrap().finish().unwrap(), Finished::Lost);
    bytes.fill(0);
    std::fs::write(&register, &bytes).unwrap();
    remove_left(&site());
    assert!(!register.exists());
    std::fs::write(&register, &bytes).unwrap();
    assert_eq!(claimed(site(), &whole, 100..200, 1).unwrap().finish().unwrap(), Finished::Waiting);
}

#[test]
fn ranges_of_another_host_are_of_the_same_file_and_one_range_has_one_session() {
    let (_place, site, whole) = real();
    claimed(site(), &whole, 0..100, 1).unwrap().finish().unwrap();
    let elsewhere = Whole { source_device: 99, ..whole };
    let first = claimed(site(), &elsewhere, 0..100, 1).unwrap();
    assert!(first.is_done);
    for overlapping in [0..100, 50..60, 99..200] {
        let refused = claimed(site(), &whole, overlapping, 1);
        assert!(matches!(refused, Err(Refused::Held)), "{refused:?}");
    }
    let other = Whole { mtime_s: 6, ..whole };
    let refused = claimed(site(), &other, 100..200, 1);
    assert!(matches!(refused, Err(Refused::OtherSource)), "{refused:?}");
    drop(first);
    assert!(!claimed(site(), &other, 0..100, 1).unwrap().is_done, "it begins anew");
}

#[test]
fn what_is_left_goes_with_its_own_file_alone_and_what_nobody_brought_goes_when_given_up() {
    let (place, site, whole) = real();
    let names = || std::fs::read_dir(place.path()).unwrap().count();
    claimed(site(), &whole, 0..100, 1).unwrap().finish().unwrap();
    std::fs::write(place.path().join("x"), [7; 200]).unwrap();
    remove_left(&site());
    assert_eq!(names(), 3, "the file of the name has another time");
    let time = std::time::UNIX_EPOCH + Duration::from_secs(5);
    let named = std::fs::OpenOptions::new().write(true).open(place.path().join("x")).unwrap();
    named.set_modified(time).unwrap();
    let used = claimed(site(), &whole, 100..200, 1).unwrap();
    remove_left(&site());
    assert_eq!(names(), 3, "a session brings the rest");
    drop(used);
    remove_left(&site());
    assert_eq!(names(), 1);
    std::fs::remove_file(place.path().join("x")).unwrap();
    let (first, second) = (
        claimed(site(), &whole, 0..100, 1).unwrap(),
        claimed(site(), &whole, 100..200, 1).unwrap(),
    );
    first.give_up();
    assert_eq!(names(), 2, "another has begun");
    drop(second);
    claimed(site(), &Whole { mtime_s: 9, ..whole }, 0..100, 1).unwrap().give_up();
    assert_eq!(names(), 0);
}

/// A clock of the host of a boot, which was started at that time.
const fn clock(boot: u64, started_ms: u64, at_ms: u64) -> Clock {
    Clock { now: Said { boot, at_ms }, up_ms: at_ms - started_ms }
}

/// The directory as a session of a host with that clock sees it.
fn by_clock(mut site: site::Directory, clock: fn() -> Clock) -> site::Directory {
    site.clock = clock;
    site
}

/// Case of a server whose clock was two hours behind when its range came, and was set since.
#[test]
fn hosts_whose_clocks_were_apart_believe_each_other_once_their_ranges_are_claimed_again() {
    let (place, site, whole) = real();
    let on = |clock: fn() -> Clock| by_clock(site(), clock);
    let second: fn() -> Clock = || clock(2, 1100, 1130);
    let behind: fn() -> Clock = || clock(1, 1000, 1030);
    let set: fn() -> Clock = || clock(1, 1200, 1240);
    let run = |clock, bytes: Range<u64>| {
        let claim = claimed(on(clock), &whole, bytes, 1).unwrap();
        (claim.is_done, claim.finish().unwrap())
    };
    assert_eq!(run(second, 0..100), (false, Finished::Waiting));
    assert_eq!(run(behind, 100..150), (false, Finished::Waiting));
    assert_eq!(run(set, 150..200), (false, Finished::StartedAnew), "the first is of before");
    assert_eq!(run(second, 0..100), (true, Finished::StartedAnew), "the second is of before");
    assert_eq!(run(set, 100..150), (true, Finished::StartedAnew));
    assert!(!place.path().join("x").exists());
    assert_eq!(run(second, 0..100), (true, Finished::Named), "the other was said anew since");
}

#[test]
fn a_range_that_is_believed_no_more_at_its_end_is_not_said_to_be_durable() {
    let (_place, site, whole) = real();
    let on = |clock: fn() -> Clock| by_clock(site(), clock);
    let earlier = on(|| clock(2, 100, 200));
    assert_eq!(claimed(earlier, &whole, 0..100, 1).unwrap().finish().unwrap(), Finished::Waiting);
    let mut claim = claimed(on(|| clock(1, 150, 300)), &whole, 0..100, 1).unwrap();
    assert!(claim.is_done);
    claim.site.clock = || clock(1, 250, 400);
    assert_eq!(claim.finish().unwrap(), Finished::StartedAnew);
    drop(claim);
    let again = claimed(on(|| clock(1, 250, 400)), &whole, 0..100, 1).unwrap();
    assert!(!again.is_done, "nobody has read it");
}

/// A file whose first range came before its host was started, and a claim that has completed it.
fn completed_after_a_start()
-> (tempfile::TempDir, impl Fn() -> site::Directory, Claim<site::Directory>) {
    let (place, site, whole) = real();
    let on = move |clock: fn() -> Clock| by_clock(site(), clock);
    let earlier = on(|| clock(2, 100, 200));
    assert_eq!(claimed(earlier, &whole, 0..100, 1).unwrap().finish().unwrap(), Finished::Waiting);
    let now = move || on(|| clock(1, 250, 300));
    let claim = claimed(now(), &whole, 100..200, 1).unwrap();
    assert_eq!(claim.finish().unwrap(), Finished::StartedAnew);
    (place, now, claim)
}

#[test]
fn a_file_gets_its_name_once_what_came_before_the_start_is_read_back() {
    for is_there in [true, false] {
        let (place, now, claim) = completed_after_a_start();
        let earlier = claim.earlier().unwrap();
        let [part] = &earlier.parts[..] else { panic!("one range: {earlier:?}") };
        assert_eq!(*part, Part { bytes: 0..100, ctime: (1, 0) });
        assert!(earlier.believed.covers(&(100..200)) && !earlier.believed.touches(&(0..100)));
        let say = |is_there| {
            say_read_back(&now(), &claim.header, (part, &earlier), is_there, &mut || true).unwrap();
        };
        say(is_there);
        assert!(claim.earlier().unwrap().parts.is_empty());
        let ends = if is_there { Finished::Named } else { Finished::Reopened };
        assert_eq!(claim.finish().unwrap(), ends);
        assert_eq!(place.path().join("x").exists(), is_there);
        // Its name is there by now, and nothing is left to say anything in.
        say(true);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), if is_there { 1 } else { 2 });
    }
}

#[test]
fn what_was_read_back_says_nothing_of_a_range_that_comes_again_meanwhile() {
    let (place, now, claim) = completed_after_a_start();
    let earlier = claim.earlier().unwrap();
    let again = claimed(now(), &WHOLE, 0..100, 1).unwrap();
    assert!(!again.is_done && !again.is_doubted);
    let part = (&earlier.parts[0], &earlier);
    say_read_back(&now(), &claim.header, part, true, &mut || true).unwrap();
    assert_eq!(claim.finish().unwrap(), Finished::Reopened, "it is being written");
    assert_eq!(again.finish().unwrap(), Finished::Named);
    assert!(place.path().join("x").exists());
}

/// Case of a server that was not started anew, and has the journal of what another found lost.
#[test]
fn what_was_found_lost_is_doubted_until_it_is_durable_again() {
    let (_place, now, claim) = completed_after_a_start();
    let earlier = claim.earlier().unwrap();
    let part = (&earlier.parts[0], &earlier);
    say_read_back(&now(), &claim.header, part, false, &mut || true).unwrap();
    let claimed = |bytes| claimed(now(), &WHOLE, bytes, 1).unwrap();
    for _ in 0..2 {
        let again = claimed(0..100);
        assert!(!again.is_done && again.is_doubted);
    }
    assert!(claimed(50..100).is_doubted);
    assert_eq!(claimed(0..100).finish().unwrap(), Finished::Named);
}

#[test]
fn a_gate_is_waited_for_as_long_as_the_session_lives() {
    let (_place, now, claim) = completed_after_a_start();
    let earlier = claim.earlier().unwrap();
    let (site, part) = (now(), (&earlier.parts[0], &earlier));
    let register = site.open_register(false).unwrap();
    assert!(site.lock(&register, GATE).unwrap());
    let mut asked = 0;
    let mut goes_on = || {
        asked += 1;
        asked < 3
    };
    let ended = say_read_back(&now(), &claim.header, part, true, &mut goes_on).unwrap_err();
    assert_eq!(ended.kind(), io::ErrorKind::Interrupted);
}

#[test]
fn a_range_that_waits_for_others_to_be_read_back_is_nobody_elses_meanwhile() {
    let (_place, now, claim) = completed_after_a_start();
    let refused = claim_asked(now(), 100..200);
    assert!(matches!(refused, Err(Refused::Held)), "{refused:?}");
    drop(claim);
    assert!(!claim_asked(now(), 100..200).unwrap().is_done);
}

/// Claims a range that is to be read back though it is done.
fn claim_asked(
    site: site::Directory,
    bytes: Range<u64>,
) -> Result<Claim<site::Directory>, Refused> {
    claim(site, &WHOLE, Part { bytes, ctime: (1, 0) }, (true, Duration::ZERO))
}
