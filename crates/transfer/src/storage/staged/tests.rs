//! Tests of hidden directories: when they are hidden, shown, taken up and removed.

use super::*;
use crate::file_options::Recording;
use haul_testkit::{
    mount::{DiskKind, Mount},
    skip::skip,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    time::SystemTime,
};

fn root(at: &Path) -> Arc<Root> {
    Root::open(at).unwrap()
}

fn hidden(root: &Root, name: &[u8]) -> (Arc<StagedDirectory>, bool) {
    match begin(root, name, 0o755, FileOptions::default()).unwrap() {
        Begun::Hidden { directory, is_new } => (directory, is_new),
        Begun::Plain => panic!("made under its name"),
        Begun::Shown => panic!("shown"),
    }
}

fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn write(root: &Root, name: &[u8], bytes: &[u8]) {
    let flags = OFlags::WRONLY | OFlags::CREATE;
    let (parent, last) = root.parent_of(name).unwrap();
    let file = openat(&parent, last, flags, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(file, bytes).unwrap();
}

#[test]
fn names_below_lead_into_the_hidden_directory_until_it_has_its_own() {
    let place = tempfile::tempdir().unwrap();
    let (ours, theirs) = (root(place.path()).of_session(), root(place.path()));
    let (directory, is_new) = hidden(&ours, b"tree");
    assert!(is_new && ours.make_directories(b"tree/a/b", 0o755).unwrap() == 2);
    write(&ours, b"tree/a/b/file", b"x");
    assert_eq!(names(place.path()), [".tree.haul-durable", ".tree.haul-staged"]);
    assert!(ours.stat(b"tree/a/b/file", super::super::root::Links::Refuse).is_ok());
    assert!(ours.is_directory(b"tree") && !theirs.is_directory(b"tree"));
    assert!(!ours.is_directory(b"tree2") && !ours.is_directory(b"tre"));
    directory.show(&ours).unwrap();
    directory.forget().unwrap();
    assert_eq!(names(place.path()), ["tree"]);
    assert!(ours.is_directory(b"tree/a/b") && ours.hidden_directories().is_empty());
}

#[test]
fn after_a_kill_only_what_the_list_tells_of_is_believed() {
    let place = tempfile::tempdir().unwrap();
    let killed = root(place.path()).of_session();
    let (directory, _) = hidden(&killed, b"tree");
    for name in [&b"tree/told"[..], b"tree/untold"] {
        write(&killed, name, b"x");
    }
    assert!(directory.sync_file_system());
    directory.tell_durable(&[directory.hash_of(b"tree/told")], true).unwrap();
    drop((directory, killed));
    let next = root(place.path()).of_session();
    let (directory, is_new) = hidden(&next, b"tree");
    assert!(!is_new);
    assert_eq!(names(&place.path().join(".tree.haul-staged")), ["told"]);
    directory.show(&next).unwrap();
    directory.forget().unwrap();
    assert_eq!(names(place.path()), ["tree"]);
}

#[test]
fn what_a_crash_left_without_a_list_is_begun_anew() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join(".tree.haul-staged/a")).unwrap();
    fs::write(place.path().join(".tree.haul-staged/a/file"), "x").unwrap();
    let (_, is_new) = hidden(&root(place.path()).of_session(), b"tree");
    assert!(!is_new);
    assert!(names(&place.path().join(".tree.haul-staged/a")).is_empty());
}

#[test]
fn a_second_writer_makes_the_directory_and_the_first_one_brings_its_files_there() {
    let place = tempfile::tempdir().unwrap();
    let (first, second) = (root(place.path()).of_session(), root(place.path()).of_session());
    let (directory, _) = hidden(&first, b"tree");
    write(&first, b"tree/both", b"first");
    write(&first, b"tree/own", b"first");
    assert!(matches!(begin(&second, b"tree", 0o755, FileOptions::default()), Ok(Begun::Plain)));
    second.make_directories(b"tree", 0o755).unwrap();
    write(&second, b"tree/both", b"second");
    write(&second, b"tree/other", b"second");
    directory.show(&first).unwrap();
    directory.forget().unwrap();
    assert_eq!(names(place.path()), ["tree"]);
    let tree = place.path().join("tree");
    assert_eq!(names(&tree), ["both", "other", "own"]);
    assert_eq!(fs::read_to_string(tree.join("both")).unwrap(), "first", "the later name");
}

#[test]
fn what_a_killed_run_kept_never_replaces_what_came_since() {
    let place = tempfile::tempdir().unwrap();
    let killed = root(place.path()).of_session();
    let (directory, _) = hidden(&killed, b"tree");
    for name in [&b"tree/both"[..], b"tree/own"] {
        write(&killed, name, b"old");
        directory.tell_durable(&[directory.hash_of(name)], true).unwrap();
    }
    drop((directory, killed));
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("both"), "new").unwrap();
    take_up_left(&root(place.path()).of_session(), b"tree").unwrap();
    assert_eq!(
        (names(place.path()), names(&tree)),
        (vec!["tree".into()], vec!["both".into(), "own".into()])
    );
    assert_eq!(fs::read_to_string(tree.join("both")).unwrap(), "new");
}

#[test]
fn a_run_that_hides_nothing_shows_what_a_killed_one_kept() {
    let place = tempfile::tempdir().unwrap();
    let killed = root(place.path()).of_session();
    let (directory, _) = hidden(&killed, b"tree");
    write(&killed, b"tree/told", b"x");
    directory.tell_durable(&[directory.hash_of(b"tree/told")], true).unwrap();
    drop((directory, killed));
    let moves = FileOptions { move_sources: true, ..FileOptions::default() };
    let next = root(place.path()).of_session();
    assert!(matches!(begin(&next, b"tree", 0o755, moves), Ok(Begun::Shown)));
    assert_eq!(names(&place.path().join("tree")), ["told"]);
    assert!(matches!(begin(&next, b"other", 0o755, moves), Ok(Begun::Plain)));
}

#[test]
fn what_killed_runs_kept_goes_with_the_directory_above_and_what_is_in_use_stays() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    let (directory, _) = hidden(&ours, b"used");
    drop(hidden(&root(place.path()).of_session(), b"left"));
    fs::write(place.path().join(".left.haul-staged/file"), "x").unwrap();
    let parent: OwnedFd = fs::File::open(place.path()).unwrap().into();
    for name in [&b".left.haul-staged"[..], b".used.haul-staged"] {
        remove_left(&parent, name);
    }
    assert_eq!(names(place.path()), [".used.haul-durable", ".used.haul-staged"]);
    drop(directory);
}

#[test]
fn a_session_that_brought_nothing_leaves_nothing_and_the_next_begins_anew() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    ours.hide_by(Share::of_own_gate(10));
    let (first, _) = hidden(&ours, b"tree");
    ours.make_directories(b"tree/a/b", 0o755).unwrap();
    write(&ours, b"tree/a/untold", b"x");
    first.remove_if_useless(&ours);
    assert!(names(place.path()).is_empty() && ours.hidden_directories().is_empty());
    let (second, is_new) = hidden(&ours, b"tree");
    assert!(is_new);
    write(&ours, b"tree/told", b"x");
    second.tell_durable(&[second.hash_of(b"tree/told")], true).unwrap();
    second.remove_if_useless(&ours);
    second.show(&ours).unwrap();
    assert_eq!(names(&place.path().join("tree")), ["told"]);
}

/// Places whose files have other modes than they were made with.
#[test]
fn a_directory_below_a_default_acl_is_made_under_its_name() {
    let place = tempfile::tempdir().unwrap();
    assert!(!has_default_acl(fs::File::open(place.path()).unwrap()));
    let acl = [
        &2_u32.to_le_bytes()[..],
        &[1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255],
        &[32, 0, 5, 0, 255, 255, 255, 255],
    ]
    .concat();
    let directory = fs::File::open(place.path()).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&directory, "system.posix_acl_default", &acl, flags).is_err() {
        return haul_testkit::skip::skip("a file system with ACLs", "this one has none");
    }
    let begun = begin(&root(place.path()).of_session(), b"tree", 0o755, FileOptions::default());
    assert!(matches!(begun, Ok(Begun::Plain)));
}

#[test]
fn only_what_may_wait_for_its_end_is_hidden() {
    let plain = FileOptions::default();
    assert!(may_stage(plain));
    let recording = plain.recording;
    for other in [
        FileOptions { dry_run: true, ..plain },
        FileOptions { discard: true, ..plain },
        FileOptions { move_sources: true, ..plain },
        FileOptions { recording: Recording { follow: true, ..recording }, ..plain },
        FileOptions { recording: Recording { watch: true, ..recording }, ..plain },
        FileOptions { on_conflict: OnConflict::KeepBoth, ..plain },
        FileOptions { on_conflict: OnConflict::Fail, ..plain },
    ] {
        assert!(!may_stage(other), "{other:?}");
    }
    assert!(!is_known(fs::File::open("/proc").unwrap()));
}

#[test]
fn a_session_hides_so_many_directories_and_none_where_it_may_not() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    ours.hide_by(Share::of_own_gate(10));
    let passes: Vec<_> = std::iter::from_fn(|| ours.pass_to_hide()).collect();
    assert_eq!(passes.len(), 5, "others have the half");
    let begun = begin(&ours, b"d/other", 0o755, FileOptions::default());
    assert!(matches!(begun, Ok(Begun::Plain)), "others are hidden");
    drop(passes);
    hidden(&ours, b"tree");
    let mut left = Vec::new();
    left.extend(std::iter::from_fn(|| ours.pass_to_hide()));
    let held = left.len();
    ours.hidden_directories()[0].show(&ours).unwrap();
    left.extend(ours.pass_to_hide());
    assert_eq!(left.len(), held + 1, "one that has its name lets another be hidden");
    drop(left);
    ours.forbid_staging();
    assert!(ours.pass_to_hide().is_none());
    let begun = begin(&ours, b"d/other", 0o755, FileOptions::default());
    assert!(matches!(begun, Ok(Begun::Plain)));
    assert!(!place.path().join("d").exists(), "whoever makes it makes those above");
}

#[test]
fn a_directory_is_hidden_though_those_above_it_are_missing() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    let (directory, is_new) = hidden(&ours, b"a/b/tree");
    write(&ours, b"a/b/tree/file", b"x");
    assert!(is_new && directory.name() == b"a/b/tree");
    assert_eq!(names(&place.path().join("a/b")), [".tree.haul-durable", ".tree.haul-staged"]);
    let list = fs::metadata(place.path().join("a/b/.tree.haul-durable")).unwrap();
    assert_eq!(directory.locked_inode(), (list.ino(), list.dev()));
    assert_eq!(directory.device(), list.dev());
    assert_eq!(directory.hidden_name(), b".tree.haul-staged");
    let fault = directory.cut_short_fault();
    assert_eq!((fault.code, fault.side), (FaultCode::NoSpace, Side::Target));
    assert_eq!(fault.path, b"a/b/tree");
    assert!(fault.found.contains(".tree.haul-staged"), "{fault:?}");
    directory.show(&ours).unwrap();
    assert_eq!(names(&place.path().join("a/b/tree")), ["file"]);
}

#[test]
fn what_came_says_until_when_a_directory_is_hidden() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    let (directory, _) = hidden(&ours, b"tree");
    assert!(directory.is_hidden() && directory.takes_small_files());
    assert!(!directory.is_due() && !directory.stays_hidden());
    let light = StagedEntry::light(directory.clone());
    let other = StagedEntry::other(directory.clone());
    assert_eq!((light.is_light(), other.is_light(), directory.undurable()), (true, false, 1));
    directory.cut_short();
    assert!(directory.stays_hidden());
    directory.want();
    assert!(!directory.stays_hidden() && !directory.takes_small_files());
    drop(other);
    assert!(directory.undurable() == 1 && !directory.is_due(), "one is not durable yet");
    let more = [0; 2].map(|_| StagedEntry::light(directory.clone()));
    assert_eq!(directory.undurable(), 3);
    drop((light, more));
    assert!(directory.undurable() == 0 && directory.is_due());
    directory.show(&ours).unwrap();
    assert!(!directory.is_hidden() && !directory.is_due() && !directory.takes_small_files());
    directory.remove_if_useless(&ours);
    assert!(place.path().join("tree").is_dir(), "it is no hidden one");
}

#[test]
fn beside_temporaries_of_a_killed_run_small_files_are_not_made_under_their_names() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join(".tree.haul-staged")).unwrap();
    fs::write(place.path().join(".tree.haul-staged/.x.haul-part"), "x").unwrap();
    let ours = root(place.path()).of_session();
    assert!(!hidden(&ours, b"tree").0.takes_small_files());
}

#[test]
fn what_has_the_name_of_a_hidden_directory_stays_and_none_is_hidden() {
    for is_link in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let (kept, staged) = (place.path().join("kept"), place.path().join(".t.haul-staged"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        match is_link {
            true => symlink("kept", &staged).unwrap(),
            false => fs::write(&staged, "x").unwrap(),
        }
        let ours = root(place.path()).of_session();
        let begun = begin(&ours, b"t", 0o755, FileOptions::default());
        assert!(matches!(begun, Ok(Begun::Plain)));
        assert_eq!(names(place.path()), [".t.haul-staged", "kept"]);
        assert_eq!(names(&kept), ["file"]);
    }
}

#[test]
fn a_link_that_took_the_name_meanwhile_is_not_followed() {
    let (place, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ours = root(place.path()).of_session();
    let (directory, _) = hidden(&ours, b"tree");
    write(&ours, b"tree/file", b"x");
    symlink(outside.path(), place.path().join("tree")).unwrap();
    assert!(directory.show(&ours).is_err() && directory.is_hidden());
    assert!(names(outside.path()).is_empty());
    assert_eq!(names(&place.path().join(".tree.haul-staged")), ["file"]);
}

#[test]
fn where_nothing_was_left_and_where_it_is_our_own_nothing_is_put_in_place() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("tree")).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH;
    fs::File::open(place.path()).unwrap().set_modified(long_ago).unwrap();
    let ours = root(place.path()).of_session();
    take_up_left(&ours, b"tree").unwrap();
    take_up_left(&ours, b"gone/tree").unwrap();
    let modified = fs::metadata(place.path()).unwrap().modified().unwrap();
    assert_eq!(modified, long_ago, "not even a list was made");
    hidden(&ours, b"new");
    take_up_left(&ours, b"new").unwrap();
    assert!(ours.is_hidden_here(b"new") && !ours.is_hidden_here(b"new/x"));
    assert!(place.path().join(".new.haul-durable").exists());
}

/// Case of what a crash of the host kept of the two names.
#[test]
fn a_hidden_directory_without_a_list_goes_with_the_directory_above() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join(".left.haul-staged")).unwrap();
    fs::write(place.path().join(".left.haul-staged/file"), "x").unwrap();
    let parent: OwnedFd = fs::File::open(place.path()).unwrap().into();
    remove_left(&parent, b"left");
    remove_left(&parent, b".left.haul-staged");
    assert!(names(place.path()).is_empty());
}

#[test]
fn each_device_is_synced_by_one_and_the_same() {
    let place = tempfile::tempdir().unwrap();
    let opened: OwnedFd = fs::File::open(place.path()).unwrap().into();
    let mut staging = Staging::default();
    let [first, second, again] = [1, 2, 1].map(|device| staging.synced(device, &opened));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(Arc::ptr_eq(&first, &again.unwrap()) && !Arc::ptr_eq(&first, &second));
    assert_eq!((first.device, second.device), (1, 2));
}

#[test]
fn a_full_disk_keeps_a_list_that_tells_of_something_and_has_no_new_one() {
    let place = tempfile::tempdir().unwrap();
    let _mount = match Mount::tmpfs(place.path(), "256k") {
        Ok(mount) => mount,
        Err(why) => return skip("root, to mount a tmpfs", &why),
    };
    let ours = root(place.path()).of_session();
    let begun = begin(&ours, b"tree", 0o755, FileOptions::default());
    assert!(matches!(begun, Ok(Begun::Plain)) && names(place.path()).is_empty());
    let path = place.path().join(".tree.haul-durable");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    List::of(file).unwrap().0.append(&[list::hash(b"told")], true).unwrap();
    fs::create_dir(place.path().join(".tree.haul-staged")).unwrap();
    fs::write(place.path().join(".tree.haul-staged/told"), "x").unwrap();
    let (directory, is_new) = hidden(&ours, b"tree");
    assert_eq!(names(&place.path().join(".tree.haul-staged")), ["told"]);
    assert!(!is_new && directory.show(&ours).is_ok());
}

#[test]
fn a_list_that_may_not_grow_for_another_reason_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    let parent = Arc::new(OwnedFd::from(fs::File::open(place.path()).unwrap()));
    let memory = memfd_create("list", MemfdFlags::ALLOW_SEALING).unwrap();
    fcntl_add_seals(&memory, SealFlags::GROW).unwrap();
    let opened = Opened::open(&parent, b"tree", memory.into(), 0o700);
    let error = opened.map(|_| ()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()));
}

#[test]
fn a_list_that_cannot_be_locked_is_told_and_where_none_can_be_made_none_is_hidden() {
    let place = tempfile::tempdir().unwrap();
    let mount = match Mount::tmpfs(place.path(), "8m") {
        Ok(mount) => mount,
        Err(why) => return skip("root, to mount a tmpfs", &why),
    };
    fs::write(place.path().join(".left.haul-durable"), "").unwrap();
    mount.make_read_only().unwrap();
    let ours = root(place.path()).of_session();
    let begun = |name: &[u8]| begin(&ours, name, 0o755, FileOptions::default());
    assert!(begun(b"left").is_err() && matches!(begun(b"new"), Ok(Begun::Plain)));
}

#[test]
fn on_a_disk_that_has_failed_nothing_is_told_as_durable() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    fs::create_dir(&path).unwrap();
    let disk = match Mount::disk(DiskKind::Ext4, &path, &place.path().join("image")) {
        Ok(disk) => disk,
        Err(why) => return skip("root, mkfs.ext4 and loop devices", &why),
    };
    let ours = root(&path).of_session();
    let (directory, _) = hidden(&ours, b"tree");
    assert!(directory.sync_file_system());
    write(&ours, b"tree/file", b"x");
    disk.cut_power().unwrap();
    assert!(!directory.sync_file_system());
}

/// Names that sort between a directory and what is in it.
#[test]
fn a_name_is_in_the_hidden_directory_that_is_above_it() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    ours.hide_by(Share::of_own_gate(10));
    for name in [&b"a"[..], b"a-b", b"c/d"] {
        hidden(&ours, name);
    }
    for (name, holder) in [
        (&b"a/x"[..], Some(&b"a"[..])),
        (b"a/b-c/x", Some(b"a")),
        (b"a-b/x", Some(b"a-b")),
        (b"c/d/e/f", Some(b"c/d")),
        (b"a-c/x", None),
        (b"ab", None),
        (b"c/x", None),
        (b"c", None),
        (b"c/d", None),
    ] {
        let found = ours.hidden_directory_of(name);
        assert_eq!(found.as_ref().map(|it| it.name()), holder);
        assert_eq!(ours.is_hidden_here(name), name == b"c/d");
    }
}

/// The earlier one has ended with its session, and both are of one root, as those of a pull are.
#[test]
fn a_directory_that_somebody_removed_while_it_was_hidden_is_hidden_anew() {
    let place = tempfile::tempdir().unwrap();
    let ours = root(place.path()).of_session();
    ours.hide_by(Share::of_own_gate(10));
    let (directory, _) = hidden(&ours, b"tree");
    directory.tell_durable(&[directory.hash_of(b"tree/told")], true).unwrap();
    drop(directory);
    fs::remove_dir(place.path().join(".tree.haul-staged")).unwrap();
    fs::remove_file(place.path().join(".tree.haul-durable")).unwrap();
    let (directory, is_new) = hidden(&ours, b"tree");
    assert!(is_new && ours.hidden_directories().len() == 1);
    directory.show(&ours).unwrap();
    directory.forget().unwrap();
    assert_eq!(names(place.path()), ["tree"]);
}
