//! Tests of small files in hidden directories: when they are done, and when they can be seen.

use super::{
    super::{
        Committed, CommitterHandle, SharedTarget,
        tests::{entry, numbers, results},
    },
    *,
};
use crate::session::receiving::{
    with_sender::{directory, offer},
    with_target::Target,
};
use haul_testkit::{
    mount::{DiskKind, Mount},
    skip::skip,
};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

fn entries(targets: &[SharedTarget]) -> Vec<Entry> {
    targets.iter().zip(0..).map(|(target, number)| entry(number, target, 1)).collect()
}

fn hidden(target: &SharedTarget) -> Arc<StagedDirectory> {
    lock(target).as_ref().unwrap().hidden_directory().unwrap().clone()
}

/// Names that the list of a hidden directory tells of, as another session finds them.
fn told(at: &Path, name: &str) -> Vec<String> {
    let mut target = Target::in_directory(at);
    target.prepare(&directory(0, name));
    let there = fs::read_dir(at.join(format!(".{name}.haul-staged"))).unwrap();
    let mut names: Vec<_> =
        there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn entries_are_gathered_by_their_directories_and_only_files_are_told_of() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let (one, other) = (target.receive_hidden("one", 2), target.receive_hidden("other", 1));
    let plain = target.receive(9, "plain", b"x");
    let all = [&one[..1], &other, &one[1..], &[plain, Arc::default()]].concat();
    let found = of_directories(&entries(&all));
    let of: Vec<_> = found.iter().map(|of| (of.directory.name(), of.entries)).collect();
    assert_eq!(of, [(&b"one"[..], 3), (b"other", 2)]);
    let hashes = |names: &[&str]| {
        let hash = |name: &&str| hidden(&one[0]).hash_of(name.as_bytes());
        names.iter().map(hash).collect::<Vec<_>>()
    };
    assert_eq!(found[0].names, hashes(&["one/1", "one/2"]));
    assert_eq!(found[1].names.len(), 1);
}

#[test]
fn a_list_is_not_synced_only_where_nothing_else_of_its_directory_is_to_come() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let all = target.receive_hidden("tree", 3);
    let syncs = |targets: &[SharedTarget], has_all| {
        of_directories(&entries(targets))[0].syncs_list(has_all)
    };
    assert!(syncs(&all, false) && !syncs(&all, true) && syncs(&all[1..], true));
    hidden(&all[0]).cut_short();
    assert!(syncs(&all, true));
}

#[test]
fn small_files_are_done_when_the_list_tells_of_them_and_a_later_run_believes_these_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let all = target.receive_hidden("tree", 4);
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    for (file, number) in all.iter().zip(0..4) {
        handle.verified_whole([(FileId(number), file.clone(), 10)].into_iter());
    }
    // The third was given up.
    drop(lock(&all[2]).take());
    let files = (0..4).map(FileId).collect();
    shared.commit_staged(&files, false);
    assert_eq!(results(&shared), (vec![0, 1, 3], vec![]));
    assert_eq!(handle.durable_bytes(), 30);
    assert!(handle.costs().sync_ns > 0 && lock(&shared.sync_begun).is_none());
    assert!(lock(&all[0]).is_none() && hidden(&all[4]).undurable() == 1);
    drop((all, handle, shared, target));
    assert_eq!(told(place.path(), "tree"), ["1", "3"]);
}

/// Failure that one sync tells of many files: each is asked then.
#[test]
fn where_a_write_failed_only_the_files_that_it_hit_fail() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    fs::create_dir(&path).unwrap();
    let disk = match Mount::disk(DiskKind::Ext4, &path, &place.path().join("image")) {
        Ok(disk) => disk,
        Err(why) => return skip("root, mkfs and a kernel for ext4", &why),
    };
    let mut target = Target::in_directory(&path);
    let shared = target.shared();
    let handle = CommitterHandle(shared.clone());
    let bytes = vec![7; 3 << 20];
    let mut numbers = VecDeque::new();
    let mut all = vec![target.prepare(&directory(0, "tree")).0];
    for number in 1..=8 {
        all.push(target.prepare(&directory(100 + number, &format!("tree/{number}"))).0);
        let name = format!("tree/{number}/file");
        let file = target.prepare_in(&offer(number, &name, bytes.len() as u64), 4 << 20).0;
        lock(&file).as_mut().unwrap().write_whole(&bytes, None).unwrap();
        // Their places on the disk are taken now, and the bytes are to be written there.
        let made = path.join(format!(".tree.haul-staged/{number}/file"));
        let made = File::options().write(true).open(made).unwrap();
        made.sync_all().unwrap();
        made.write_all_at(&bytes, 0).unwrap();
        handle.verified_whole([(FileId(number), file, 1)].into_iter());
        numbers.push_back(FileId(number));
    }
    disk.fail_disk_from(40 << 20).unwrap();
    shared.commit_staged(&numbers, false);
    let (done, failed) = results(&shared);
    assert!(!done.is_empty() && !failed.is_empty(), "{done:?}, {failed:?}");
    assert_eq!(done.len() + failed.len(), 8);
    drop((all, handle, shared, target));
}

#[test]
fn a_list_that_cannot_be_written_fails_the_files_of_its_own_directory() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let (one, other) = (target.receive_hidden("one", 1), target.receive_hidden("other", 1));
    let plain = target.receive(9, "plain", b"x");
    let shared = target.shared();
    let mut batch = entries(&[&one[..], &other, &[plain]].concat());
    let full = || Err(io::ErrorKind::StorageFull.into());
    let told = vec![(hidden(&one[0]), full()), (hidden(&other[0]), Ok(()))];
    shared.fail_untold(&mut batch, told);
    assert_eq!((numbers(&batch), results(&shared)), (vec![2, 3, 4], (vec![], vec![0, 1])));
}

#[test]
fn files_that_got_their_names_by_a_rename_are_told_of_too() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let all = target.receive_hidden("tree", 2);
    let shared = target.shared();
    let mut named = entries(&all[1..2]);
    shared.tell_lists(&mut named);
    assert_eq!((numbers(&named), results(&shared)), (vec![0], (vec![], vec![])));
    drop((all, named, shared, target));
    assert_eq!(told(place.path(), "tree"), ["1"]);
}

#[test]
fn the_file_system_of_hidden_directories_is_synced_and_what_it_says_counts() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    fs::create_dir(&path).unwrap();
    let disk = match Mount::disk(DiskKind::Ext4, &path, &place.path().join("image")) {
        Ok(disk) => disk,
        Err(why) => return skip("root, mkfs and a kernel for ext4", &why),
    };
    let mut target = Target::in_directory(&path);
    let all = [target.receive_hidden("one", 1), target.receive_hidden("other", 1)].concat();
    let directories = of_directories(&entries(&all));
    assert!(directories.len() == 2 && sync_all(&directories) && sync_all(&[]));
    disk.cut_power().unwrap();
    assert!(!sync_all(&directories));
    drop((directories, all, target));
}

#[test]
fn hidden_directories_are_shown_when_they_have_to_be_seen_and_all_at_the_end() {
    for (all, wanted, cut_short, shown) in [
        (false, false, false, false),
        (false, true, false, true),
        (true, false, false, true),
        (true, false, true, false),
        (true, true, true, true),
    ] {
        let place = tempfile::tempdir().unwrap();
        let mut target = Target::in_directory(place.path());
        let tree = target.receive_hidden("tree", 1);
        let shared = target.shared();
        let directory = hidden(&tree[0]);
        if wanted {
            // A file of many spans is to be seen as it comes.
            target.prepare(&offer(5, "tree/large", 1 << 20));
        }
        if cut_short {
            directory.cut_short();
        }
        drop(tree);
        shared.show_hidden(all);
        assert_eq!(target.exists("tree"), shown, "{all}, {wanted}, {cut_short}");
        assert_eq!(target.exists(".tree.haul-durable"), !shown);
        assert_eq!(shared.has_shown.load(Ordering::Acquire), all);
        assert!(lock(&shared.show_faults).is_empty());
    }
}

/// Case of two shards of a plan with files of one directory: the other's session has made it.
#[test]
fn a_file_that_is_being_received_keeps_its_temporary_where_another_has_made_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let tree = target.receive_hidden("tree", 1);
    let shared = target.shared();
    let (large, _) = target.prepare(&offer(5, "tree/large", 1 << 20));
    let directory = hidden(&large);
    drop(tree);
    fs::create_dir(place.path().join("tree")).unwrap();
    fs::write(place.path().join("tree/other"), "x").unwrap();
    assert!(directory.is_due());
    shared.show_hidden(false);
    assert!(directory.is_hidden() && target.exists(".tree.haul-durable"));
    lock(&large).as_mut().unwrap().sync().unwrap();
    drop(large);
    shared.show_hidden(true);
    assert!(!directory.is_hidden() && !target.exists(".tree.haul-staged"));
    assert!(target.exists("tree/1") && target.exists("tree/other"));
    assert!(lock(&shared.show_faults).is_empty() && !target.exists(".tree.haul-durable"));
}

#[test]
fn a_hidden_directory_that_cannot_get_its_name_is_told_of_at_the_end() {
    let place = tempfile::tempdir().unwrap();
    let mut target = Target::in_directory(place.path());
    let tree = target.receive_hidden("tree", 1);
    let shared = target.shared();
    target.prepare(&offer(5, "tree/large", 1 << 20));
    drop(tree);
    fs::rename(place.path().join(".tree.haul-staged"), place.path().join("away")).unwrap();
    shared.show_hidden(false);
    assert!(!CommitterHandle(shared.clone()).has_shown());
    assert!(lock(&shared.show_faults).is_empty(), "it is tried again");
    shared.show_hidden(true);
    let faults = CommitterHandle(shared.clone()).take_show_faults();
    let [fault] = &faults[..] else { panic!("{faults:?}") };
    assert!(fault.what.contains(".tree.haul-staged") && &*fault.path == b"tree", "{fault:?}");
    assert!(CommitterHandle(shared.clone()).has_shown() && lock(&shared.show_faults).is_empty());
    // Nor is it said that nobody tried, where there is no root at all.
    Shared::default().show_hidden(true);
}

#[test]
fn no_more_small_files_wait_for_a_sync_than_others_may_come_meanwhile() {
    assert_eq!([24_576, 4096, 4095, 100, 1].map(staged_max), [2048, 2048, 2047, 50, 1]);
}

#[test]
fn results_are_taken_by_turns_and_in_order() {
    let handle = CommitterHandle(Arc::new(Shared::default()));
    lock(&handle.0.results).extend((0..5).map(|file| Committed::Done(FileId(file))));
    let mut turns = Vec::new();
    while turns.last().is_none_or(|(_, has_more)| *has_more) {
        let (taken, has_more) = handle.take_results(2);
        turns.push((numbers_of(&taken), has_more));
    }
    assert_eq!(turns, [(vec![0, 1], true), (vec![2, 3], true), (vec![4], false)]);
}

fn numbers_of(taken: &[Committed]) -> Vec<u32> {
    let done = |committed: &Committed| match committed {
        Committed::Done(file) => file.0,
        _ => panic!("none has failed"),
    };
    taken.iter().map(done).collect()
}
