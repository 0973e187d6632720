//! Reading ahead of small files: cold trees, sources that change meanwhile, warm trees.

use crate::harness::{
    Place, assert_no_temporaries, is_root,
    journey::{Journey, WAYS, Way},
    process::{Haul, behind},
    server::Server,
    wait_until,
};
use haul_testkit::{page_cache, skip::skip, tree::differences};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
};

const FILE_BYTES: u64 = 16 << 10;
/// Sources that become something else before their turn, all in one directory.
const CHANGED: [&str; 4] = ["d6/f0594", "d6/f0587", "d6/f0580", "d6/f0573"];

fn files(place: &Place, root: &Path, count: u32) {
    for number in 0..count {
        place.file(&root.join(format!("d{}/f{number:04}", number % 7)), FILE_BYTES);
    }
}

/// Evicts all files below; false where they lie in memory only.
fn make_cold(root: &Path) -> bool {
    let names = haul_testkit::tree::names(root).unwrap();
    let mut paths = names.iter().map(|name| root.join(name)).filter(|path| path.is_file());
    match paths.try_for_each(|path| page_cache::forget(&path, 0..FILE_BYTES)) {
        Ok(()) => true,
        Err(why) => {
            skip("a disk below the directory for temporary files", why);
            false
        }
    }
}

/// Whether a thread of this process reads ahead.
fn reads_ahead(id: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.trim() == "haul-ahead")
}

#[test]
fn a_cold_tree_with_faults_in_it_arrives_and_each_is_told_once() {
    for way in WAYS {
        let journey = Journey::new(way);
        let (place, tree) = (&journey.place, journey.from("t"));
        files(place, &tree, 600);
        symlink("f0000", tree.join("d0/link")).unwrap();
        symlink("nowhere", tree.join("d0/dangling")).unwrap();
        fs::hard_link(tree.join("d0/f0000"), tree.join("d1/another-name")).unwrap();
        assert!(Command::new("mkfifo").arg(tree.join("d0/fifo")).status().unwrap().success());
        if !make_cold(&tree) {
            return;
        }
        if !is_root() {
            let closed = fs::Permissions::from_mode(0o000);
            fs::set_permissions(tree.join("d0/f0007"), closed).unwrap();
        }
        let ends = match way {
            Way::Push => words!["push", &tree, journey.server.url("")],
            Way::Pull => words!["pull", journey.server.url("t"), place.target("")],
        };
        // Two seconds and more: the sources change before their turn comes.
        let client = place.start(&[ends, words!["--bwlimit", "4M"]].concat());
        let sender = if way == Way::Push { client.id() } else { journey.server.process.id() };
        wait_until("read ahead", || reads_ahead(sender));
        let changed = CHANGED.map(|name| tree.join(name));
        changed.iter().for_each(|path| fs::remove_file(path).unwrap());
        assert!(Command::new("mkfifo").arg(&changed[0]).status().unwrap().success());
        symlink("f0006", &changed[1]).unwrap();
        fs::create_dir(&changed[2]).unwrap();
        let ran = client.finish();
        let failed = ran.failed(changed.len() as u64 + u64::from(!is_root()));
        assert_eq!(failed["files"]["left_out"], 1, "{ran:?}");
        for path in &changed {
            let name = path.file_name().unwrap().to_str().unwrap();
            let told = ran.named("error").iter().filter(|e| e.to_string().contains(name)).count();
            assert_eq!(told, 1, "{name}: {ran:?}");
        }
        let mut differences = differences(&tree, &journey.to("t")).unwrap();
        let is_meant = |line: &str| {
            let mut gone = CHANGED.iter().chain(&["d0/fifo", "d0/f0007"]);
            let is_gone = gone.any(|name| line.starts_with(&format!("\"{name}\"")));
            is_gone || line.starts_with("\"d6\": times")
        };
        differences.retain(|line| !is_meant(line));
        assert!(differences.is_empty(), "{differences:?}");
        assert_no_temporaries(&place.path(""));
        wait_until("at its end", || !reads_ahead(journey.server.process.id()));
    }
}

#[test]
fn a_warm_tree_is_opened_once_and_not_read_ahead() {
    const FILES: u32 = 300;
    let place = Place::new();
    let server = Server::start(&place);
    let (tree, log) = (place.source("t"), place.path("calls"));
    files(&place, &tree, FILES);
    let push = place.command(&words!["push", &tree, server.url(""), "--json"]);
    let strace = words!["strace", "-f", "-qq", "-e", "trace=open,openat,openat2", "-o", &log];
    if !Command::new("strace").arg("-V").output().is_ok_and(|shown| shown.status.success()) {
        return skip("strace(1)", "none");
    }
    let ran = Haul::start(behind(&strace, push)).finish();
    if ran.status != 0 && ran.events.is_empty() {
        return skip("the right to trace", ran.err);
    }
    ran.ok();
    let calls = fs::read_to_string(&log).unwrap();
    let opened = calls.lines().filter(|line| line.contains("/f0") || line.contains("\"f0"));
    let opened = opened.filter(|line| !line.contains("resumed") && !line.contains("= -1")).count();
    // The engines are chosen by the first file, which is opened once more for that.
    assert_eq!(opened, FILES as usize + 1, "{calls}");
}

/// Case of a user who gives up in the middle: the thread holds nothing up.
#[test]
fn reading_ahead_ends_with_a_session_that_is_cut() {
    let place = Place::new();
    let server = Server::start(&place);
    let tree = place.root("t");
    files(&place, &tree, 600);
    if !make_cold(&tree) {
        return;
    }
    let words = words!["pull", server.url("t"), place.target(""), "--bwlimit", "1M"];
    let mut client = place.start(&words);
    wait_until("read ahead", || reads_ahead(server.process.id()));
    client.kill();
    wait_until("at its end", || !reads_ahead(server.process.id()));
}
