//! Tests of files that are received: what each kind of them does at each step.

use super::*;
use crate::file_options::FileOptions;
use crate::storage::attributes::Attributes;
use crate::storage::{
    fresh::Fresh,
    journal::Circumstances,
    prepare::Prepared,
    target_place::{PathMeans, TargetPlace},
    temporary::Suspicion,
};
use haul_protocol::{
    SpanIndex,
    message::{Digest, SpanRange},
};
use rustix::fs::{FlockOperation, flock};
use std::{os::unix::fs::MetadataExt, path::Path};

const PART: &str = ".x.haul-part";

fn offer(name: &[u8], size_bytes: u64) -> FileOffer {
    let kind = FileKind::Regular;
    FileOffer { name: name.to_vec(), kind, size_bytes, inode: 1, ..FileOffer::default() }
}

fn place(directory: &Path) -> TargetPlace {
    let root = Root::open(directory).unwrap();
    TargetPlace::resolve(&root, b"", PathMeans::Directory, FileOptions::default()).unwrap()
}

fn prepared(directory: &Path, size_bytes: u64) -> TargetFile {
    let offer = offer(b"x", size_bytes);
    let fresh = &mut Fresh::default();
    match place(directory).prepare(&offer, 64 << 10, Digest::AesGmac, fresh).unwrap() {
        Prepared::Ready { mut target, .. } => {
            target.begin_whole(None).unwrap();
            *target
        }
        _ => panic!("nothing is there yet"),
    }
}

/// Reason for the later mode: engines open a file again with O_DIRECT while it is written,
/// which 0444 would refuse.
#[test]
fn a_file_without_a_name_may_be_opened_again_until_it_has_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let attributes = Attributes::default();
    for wanted in [0o444, 0o600, 0o640, 0o755] {
        let offer = FileOffer { mode: wanted, ..offer(b"x", 1) };
        let mode = attributes.mode_of(&offer);
        let mut part = Part::begin_whole(&root, b"x", Naming::Linked, mode, None).unwrap();
        let mode_now = |part: &Part| part.file.file().metadata().unwrap().mode() & 0o777;
        assert_eq!(mode_now(&part) & 0o600, 0o600);
        part.seal(&offer, &attributes).unwrap();
        assert_eq!(mode_now(&part), mode, "{wanted:o}");
    }
}

#[test]
fn an_offer_is_shared_where_it_is_the_same_and_kept_where_it_is_another() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = prepared(directory.path(), 4);
    let (same, other) = (Arc::new((*target.offer).clone()), Arc::new(offer(b"x", 5)));
    target.share(&other);
    assert_eq!(target.offer.size_bytes, 4);
    target.share(&same);
    assert!(Arc::ptr_eq(&target.offer, &same));
}

#[test]
fn a_commit_touches_its_own_temporary_only() {
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join(PART);
    let mut target = prepared(directory.path(), 4);
    target.seal().unwrap();
    // Somebody else's file stands there now.
    std::fs::remove_file(&part).unwrap();
    std::fs::write(&part, b"theirs").unwrap();
    assert!(target.publish().is_err());
    assert!(!directory.path().join("x").exists());
    target.give_up(false);
    assert_eq!(std::fs::read(&part).unwrap(), b"theirs");
}

#[test]
fn what_another_session_finished_while_this_one_waited_is_not_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let (part, path) = (directory.path().join(PART), directory.path().to_owned());
    let held = std::fs::File::create(&part).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let wanted = FileOffer { mtime_s: 7, ..offer(b"x", 200_000) };
    let times = super::super::attributes::times_of(&wanted);
    let waiting = std::thread::spawn(move || {
        place(&path).prepare(&wanted, 64 << 10, Digest::AesGmac, &mut Fresh::default())
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    held.set_len(200_000).unwrap();
    rustix::fs::futimens(&held, &times).unwrap();
    std::fs::rename(&part, directory.path().join("x")).unwrap();
    drop(held);
    let prepared = waiting.join().unwrap().unwrap();
    assert!(matches!(prepared, Prepared::Skip));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_link_that_a_killed_run_did_not_publish_is_taken_up_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let link = |to: &[u8]| {
        let kind = FileKind::Symlink;
        let offer = FileOffer { kind, link_target: to.to_vec(), ..offer(b"x", 0) };
        let place = place(directory.path());
        let prepared = place.prepare(&offer, 64 << 10, Digest::None, &mut Fresh::default());
        let Prepared::Ready { mut target, .. } = prepared.unwrap() else { panic!("is new") };
        target.seal().unwrap();
        target
    };
    let killed = link(b"one");
    let (mut first, mut second) = (link(b"two"), link(b"three"));
    // Two at once: the later one has the name in the end.
    first.publish().unwrap();
    second.publish().unwrap();
    let names = std::fs::read_dir(directory.path()).unwrap().count();
    let found = std::fs::read_link(directory.path().join("x")).unwrap();
    assert_eq!((names, found.as_path()), (1, Path::new("three")));
    drop(killed);
}

#[test]
fn what_is_published_leaves_the_next_writers_temporary_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = prepared(directory.path(), 4);
    first.seal().unwrap();
    first.sync().unwrap();
    first.publish().unwrap();
    let next = prepared(directory.path(), 5);
    first.give_up(true);
    assert!(directory.path().join(PART).exists());
    next.give_up(false);
    assert!(!directory.path().join(PART).exists() && directory.path().join("x").exists());
}

#[test]
fn after_a_failed_sync_nothing_of_the_file_is_published() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = prepared(directory.path(), 4);
    let Shape::Regular(part) = &mut target.shape else { panic!("a regular file") };
    part.poisoned = true;
    assert!(target.make_durable(Recorded::default()).is_err() && target.sync().is_err());
    assert!(target.seal().is_err() && target.publish().is_err());
}

/// A small file in a directory that this session makes where it can hide none.
fn in_fresh_directory(directory: &Path, size_bytes: u64) -> TargetFile {
    let fresh = &mut Fresh::default();
    let place = place(directory);
    place.forbid_staging();
    let made = FileOffer { kind: FileKind::Directory, ..offer(b"d", 0) };
    place.prepare(&made, 64 << 10, Digest::None, fresh).unwrap();
    match place.prepare(&offer(b"d/x", size_bytes), 64 << 10, Digest::None, fresh).unwrap() {
        Prepared::Ready { target, .. } => *target,
        _ => panic!("nothing is there yet"),
    }
}

#[test]
fn a_small_file_in_a_new_directory_has_no_name_before_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = in_fresh_directory(directory.path(), 5);
    target.write_whole(b"wrong", None).unwrap();
    target.write_whole(b"bytes", None).unwrap();
    let inside = directory.path().join("d");
    let count = || std::fs::read_dir(&inside).unwrap().count();
    assert_eq!(count(), 0);
    target.seal().unwrap();
    target.sync().unwrap();
    target.publish().unwrap();
    assert_eq!((count(), std::fs::read(inside.join("x")).unwrap()), (1, b"bytes".to_vec()));
    target.give_up(true);
    assert_eq!(count(), 1);
}

#[test]
fn a_small_file_that_has_its_name_holds_neither_memory_nor_a_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let pass = crate::storage::open_files::Share::of_small_files();
    let mut target = in_fresh_directory(directory.path(), 16 << 10);
    target.write_whole(&[7; 16 << 10], pass.take()).unwrap();
    let Some(file) = target.to_read_back() else { panic!("is open") };
    let cached = || haul_sys::cachestat::cached_bytes(file.file(), 0, 16 << 10);
    let cached_before = cached();
    target.sync().unwrap();
    target.publish().unwrap();
    assert!(target.to_read_back().is_none());
    let kind = haul_host::FileSystem::of(file.file()).unwrap().kind;
    if let (Ok(before), haul_host::FsKind::Ext | haul_host::FsKind::Xfs) = (cached_before, kind) {
        assert_eq!((before, cached().unwrap()), (16 << 10, 0));
    }
    drop(pass);
}

#[test]
fn a_name_that_was_taken_meanwhile_is_replaced_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = in_fresh_directory(directory.path(), 5);
    target.write_whole(b"bytes", None).unwrap();
    let inside = directory.path().join("d");
    std::fs::write(inside.join("x"), b"of somebody else").unwrap();
    target.publish().unwrap();
    assert_eq!(std::fs::read(inside.join("x")).unwrap(), b"bytes");
    assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 1);
}

#[test]
fn of_a_small_file_that_is_given_up_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = in_fresh_directory(directory.path(), 5);
    target.write_whole(b"bytes", None).unwrap();
    target.give_up(true);
    assert_eq!(std::fs::read_dir(directory.path().join("d")).unwrap().count(), 0);
}

#[test]
fn hauls_own_names_are_refused_wherever_they_stand() {
    let directory = tempfile::tempdir().unwrap();
    for name in [
        &b".a.haul-part"[..],
        b".a.haul-part/b",
        b"d/.a.haul-journal",
        b".d.haul-staged/a",
        b".d.haul-durable",
    ] {
        let fresh = &mut Fresh::default();
        let refused =
            place(directory.path()).prepare(&offer(name, 4), 64 << 10, Digest::None, fresh);
        let Err(fault) = refused else { panic!("it is taken") };
        assert_eq!(fault.code, FaultCode::NameRefused);
    }
}

fn ready(place: &TargetPlace, offer: &FileOffer) -> TargetFile {
    match place.prepare(offer, 64 << 10, Digest::AesGmac, &mut Fresh::default()).unwrap() {
        Prepared::Ready { target, .. } => *target,
        _ => panic!("it is to be received"),
    }
}

fn devices(target: &TargetFile) -> Vec<u64> {
    let mut devices = Vec::new();
    let each = target.each_directory(|device, directory| {
        assert_eq!(fstat(directory)?.st_dev, device);
        devices.push(device);
        Ok(())
    });
    each.unwrap();
    devices
}

#[test]
fn what_is_received_says_what_is_to_be_written_read_and_synced() {
    let directory = tempfile::tempdir().unwrap();
    let device = directory.path().metadata().unwrap().dev();
    let place = place(directory.path());
    place.forbid_staging();
    let mut large = ready(&place, &offer(b"large", 200_000));
    let there = directory.path().join(".large.haul-part").metadata().unwrap();
    assert_eq!(large.inode(), Some((there.ino(), there.dev())));
    let opened = large.span_file().unwrap().unwrap();
    assert!(Arc::ptr_eq(&opened, &large.to_read_back().unwrap()));
    assert!(Arc::ptr_eq(&opened, &large.to_compare().unwrap()().unwrap()));
    assert!(large.is_journaled() && !large.is_unopened() && !large.is_growing());
    assert_eq!((devices(&large), large.new_directories()), (vec![device], 1));
    large.seal().unwrap();
    large.publish().unwrap();
    assert_eq!(devices(&large), [device]);
    let mut small = ready(&place, &offer(b"small", 9));
    assert!(small.is_unopened() && small.span_file().unwrap().is_none());
    assert!(devices(&small).is_empty() && small.inode().is_none() && !small.is_journaled());
    let opened = small.begin_whole(None).unwrap();
    assert!(Arc::ptr_eq(&opened, &small.span_file().unwrap().unwrap()));
    assert_eq!(opened.file().metadata().unwrap().len(), 9);
    let made = ready(&place, &FileOffer { kind: FileKind::Directory, ..offer(b"a/b", 0) });
    assert_eq!((devices(&made), made.new_directories()), (vec![device; 2], 2));
    let nothing = ready(&TargetPlace::Null, &offer(b"x", 200_000));
    let sinks = [&made, &nothing].map(|target| target.span_file().unwrap().unwrap());
    assert!(Arc::ptr_eq(&sinks[0], &sinks[1]), "all share one");
    assert!(nothing.to_read_back().is_none() && nothing.to_compare().is_none());
    assert!(devices(&nothing).is_empty() && nothing.sync_directory().is_ok());
    let link = FileOffer { kind: FileKind::Symlink, link_target: b"x".into(), ..offer(b"l", 0) };
    assert_eq!(devices(&ready(&place, &link)), [device]);
    let growing = FileOffer { growth: Growth::Growing, ..offer(b"g", 9) };
    assert!(ready(&place, &growing).is_growing());
}

#[test]
fn a_directory_that_is_gone_cannot_be_synced() {
    let directory = tempfile::tempdir().unwrap();
    let place = place(directory.path());
    place.forbid_staging();
    let made = ready(&place, &FileOffer { kind: FileKind::Directory, ..offer(b"a/b", 0) });
    let link = FileOffer { kind: FileKind::Symlink, ..offer(b"a/b/l", 0) };
    let link = ready(&place, &link);
    assert!(made.sync_directory().is_ok() && link.sync_directory().is_ok());
    std::fs::remove_dir_all(directory.path().join("a")).unwrap();
    for target in [made, link] {
        let fault = target.sync_directory().unwrap_err();
        assert_eq!((fault.path, fault.side), (target.name, Side::Target));
    }
}

#[test]
fn spans_that_are_given_up_come_again_and_what_was_read_back_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let place = place(directory.path());
    let range = |first, count| SpanRange { first: SpanIndex(first), count };
    let found = || {
        let fresh = &mut Fresh::default();
        match place.prepare(&offer(b"x", 200_000), 64 << 10, Digest::AesGmac, fresh).unwrap() {
            Prepared::Ready { target, durable, left, .. } => {
                let suspicion = left.and_then(|left| left.suspicion);
                (*target, durable.iter().map(|span| span.0).collect::<Vec<_>>(), suspicion)
            }
            _ => panic!("it is to be received"),
        }
    };
    let (mut target, ..) = found();
    let (spans, digests) = (&[range(0, 3)][..], &[[1; 16], [2; 16], [3; 16]][..]);
    target.make_durable(Recorded { spans, digests, values: &[] }).unwrap();
    target.lose(&SpanSet::from_ranges(4, &[range(1, 1)]).unwrap()).unwrap();
    let Shape::Regular(part) = &mut target.shape else { panic!("a regular file") };
    let journal = part.journal.as_mut().unwrap();
    journal.confirm(Circumstances { boot: [9; 16], ..journal.circumstances() }).unwrap();
    target.give_up(true);
    let (mut target, durable, suspicion) = found();
    assert_eq!((durable, suspicion), (vec![0, 2], Some(Suspicion::StartedAnew)));
    target.was_read_back(&SpanSet::from_ranges(4, &[range(2, 1)]).unwrap()).unwrap();
    target.give_up(true);
    let (target, durable, suspicion) = found();
    assert_eq!((durable, suspicion), (vec![0], None));
    target.give_up(false);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    found().0.give_up(true);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "of no use");
}

#[test]
fn of_a_file_that_grows_into_null_only_full_spans_are_taken_for_there() {
    let growing = FileOffer { growth: Growth::Growing, ..offer(b"x", 150_000) };
    let last = |change: &dyn Fn(&mut FileOffer)| {
        let mut target = ready(&TargetPlace::Null, &growing);
        let mut next = FileOffer { size_bytes: 200_000, ..growing.clone() };
        change(&mut next);
        let durable = target.next_round(&next, 64 << 10, 150_000).unwrap();
        assert_eq!(target.offer.size_bytes, 200_000);
        durable.iter().map(|span| span.0).collect::<Vec<_>>()
    };
    assert_eq!(last(&|_| ()), [0, 1]);
    assert_eq!(last(&|next| next.compared = Compared::OtherContent), [0; 0]);
    assert_eq!(last(&|next| next.inode += 1), [0; 0]);
    assert_eq!(last(&|next| next.device += 1), [0; 0]);
    assert_eq!(last(&|next| next.growth = Growth::Grown), [0, 1]);
    // A file keeps its spans in its temporary.
    let directory = tempfile::tempdir().unwrap();
    let mut target = ready(&place(directory.path()), &growing);
    let next = FileOffer { size_bytes: 200_000, ..growing };
    let durable = target.next_round(&next, 64 << 10, 150_000).unwrap();
    assert_eq!(durable.iter().count(), 2);
    let part = directory.path().join(PART);
    assert_eq!(part.metadata().unwrap().len(), 200_000);
    let durable = target.next_round(&FileOffer { inode: 2, ..next }, 64 << 10, 200_000);
    assert!(durable.unwrap().is_empty(), "of another inode nothing is believed");
}

/// A small file in a directory that is hidden until its end.
fn in_hidden_directory(place: &TargetPlace, size_bytes: u64) -> TargetFile {
    let made = ready(place, &FileOffer { kind: FileKind::Directory, ..offer(b"d", 0) });
    assert!(made.hidden_directory().is_some());
    ready(place, &offer(b"d/x", size_bytes))
}

#[test]
fn a_small_file_of_a_hidden_directory_is_written_as_often_as_it_comes() {
    let directory = tempfile::tempdir().unwrap();
    let place = place(directory.path());
    let path = directory.path().join(".d.haul-staged/x");
    let mut target = in_hidden_directory(&place, 5);
    assert!(target.is_light());
    for bytes in [b"wrong", b"bytes"] {
        target.write_whole(bytes, None).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    assert!(target.is_light() && target.sync().is_ok());
    assert_eq!(devices(&target).len(), 1);
    target.give_up(true);
    assert!(!path.exists());
    // Where something has its name, or an engine writes it, it comes by a temporary.
    std::fs::write(&path, "other").unwrap();
    let mut target = ready(&place, &offer(b"d/x", 5));
    target.write_whole(b"bytes", None).unwrap();
    assert!(!target.is_light());
    target.publish().unwrap();
    assert!(std::fs::read(&path).unwrap() == b"bytes" && !target.is_light());
    let mut target = ready(&place, &offer(b"d/y", 5));
    target.begin_whole(None).unwrap();
    assert!(!target.is_light());
    let mut target = ready(&place, &offer(b"d/z", 5));
    target.write_whole(b"bytes", None).unwrap();
    std::fs::remove_file(directory.path().join(".d.haul-staged/z")).unwrap();
    assert!(target.sync().is_err(), "it is looked for");
}

#[test]
fn an_empty_file_is_made_at_its_end_under_its_name_or_by_a_temporary() {
    let directory = tempfile::tempdir().unwrap();
    let place = place(directory.path());
    let mut hidden = in_hidden_directory(&place, 0);
    hidden.seal().unwrap();
    assert!(matches!(hidden.shape, Shape::Written { .. }));
    let mut plain = ready(&place, &offer(b"x", 0));
    plain.seal().unwrap();
    assert!(matches!(plain.shape, Shape::Regular(_)));
    plain.publish().unwrap();
    let names = [".d.haul-staged/x", "x"].map(|name| directory.path().join(name).is_file());
    assert_eq!(names, [true; 2]);
}

#[test]
fn a_file_whose_write_failed_is_told_after_the_sync_of_its_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let mut target = prepared(directory.path(), 4);
    target.check_written().unwrap();
    let Shape::Regular(part) = &mut target.shape else { panic!("a regular file") };
    part.poisoned = true;
    assert_eq!(target.check_written().unwrap_err().what, "cannot be synced");
}

/// Case of rename(2), which does nothing to two names of one inode.
#[test]
fn a_hard_link_leaves_no_hidden_name_and_becomes_no_other_link() {
    let directory = tempfile::tempdir().unwrap();
    let (first, path) = (directory.path().join("first"), directory.path().join("x"));
    let linked = || {
        std::fs::write(&first, "first").unwrap();
        std::fs::write(&path, "other").unwrap();
        let (kind, link_target) = (FileKind::HardLink, b"first".to_vec());
        let offer = FileOffer { kind, link_target, ..offer(b"x", 0) };
        ready(&place(directory.path()), &offer)
    };
    let count = || std::fs::read_dir(directory.path()).unwrap().count();
    let mut target = linked();
    assert_eq!(count(), 3);
    std::fs::remove_file(&path).unwrap();
    std::fs::hard_link(&first, &path).unwrap();
    target.publish().unwrap();
    assert_eq!(count(), 2);
    std::fs::remove_file(&path).unwrap();
    let mut target = linked();
    let Shape::Link { link_name, .. } = &target.shape else { panic!("a link") };
    let hidden = directory.path().join(crate::storage::root::os_path(link_name));
    std::fs::remove_file(hidden).unwrap();
    assert!(target.publish().is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "other");
    linked().give_up(true);
    assert_eq!(count(), 2);
}
