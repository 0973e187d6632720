//! Links that appear in the root while a tree comes in or goes out.
//!
//! In a race, hundreds of times, nothing outside the root is read or written.

use crate::harness::{Place, server::Server, wait_until};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Fewest exchanges of directories with links in a race.
const EXCHANGES_MIN: u64 = 600;
const DIRECTORIES: usize = 6;
const SECRET: &[u8] = b"what nobody outside may read";

/// Exchanges of directories with links that lead out, over and over, until told to end; all of them
/// are where they were then.
struct Race<'a> {
    pairs: Vec<(PathBuf, PathBuf)>,
    exchanges: &'a AtomicU64,
    ended: &'a AtomicBool,
}

impl Race<'_> {
    fn run(&self) {
        while !self.ended.load(Ordering::Relaxed) {
            for (directory, link) in &self.pairs {
                for _ in 0..2 {
                    // One may be gone for a moment: it is made again.
                    if exchange(directory, link) {
                        self.exchanges.fetch_add(1, Ordering::Relaxed);
                    }
                    thread::sleep(Duration::from_micros(300));
                }
            }
        }
    }
}

fn exchange(one: &Path, other: &Path) -> bool {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
}

/// Makes a root with `tree/dN` and, for each, a link that leads to `outside/dN`, which has files of
/// the same names.
fn with_links(place: &Place) -> Vec<(PathBuf, PathBuf)> {
    fs::create_dir(place.root("links")).unwrap();
    (0..DIRECTORIES)
        .map(|number| {
            let (directory, name) = (place.root(format!("tree/d{number}")), format!("d{number}"));
            let outside = place.path("outside").join(&name);
            fs::create_dir_all(&directory).unwrap();
            fs::create_dir_all(&outside).unwrap();
            for file in 0..12 {
                fs::write(outside.join(format!("f{file}")), SECRET).unwrap();
            }
            let link = place.root("links").join(name);
            symlink(&outside, &link).unwrap();
            (directory, link)
        })
        .collect()
}

/// Checks that everything below `outside` is as it was made.
#[track_caller]
fn assert_untouched(place: &Place) {
    let outside = place.path("outside");
    let names = haul_testkit::tree::names(&outside).unwrap();
    assert_eq!(names.len(), DIRECTORIES * 13, "{names:?}");
    for name in names {
        let path = outside.join(&name);
        let meta = fs::symlink_metadata(&path).unwrap();
        assert!(meta.is_dir() || fs::read(&path).unwrap() == SECRET, "{name:?}");
    }
}

/// Runs transfers in a race until there were exchanges enough; returns the number of transfers.
/// Returns how many transfers.
fn in_race(place: &Place, pairs: Vec<(PathBuf, PathBuf)>, mut transfer: impl FnMut(u32)) -> u32 {
    let (exchanges, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let race = Race { pairs, exchanges: &exchanges, ended: &ended };
    let deadline = Instant::now() + crate::harness::PATIENCE;
    let count = thread::scope(|scope| {
        scope.spawn(|| race.run());
        let mut count = 0;
        while count < 3 || exchanges.load(Ordering::Relaxed) < EXCHANGES_MIN {
            assert!(Instant::now() < deadline, "{count} transfers and too few exchanges");
            transfer(count);
            count += 1;
        }
        ended.store(true, Ordering::Relaxed);
        count
    });
    assert_untouched(place);
    println!("{} exchanges in {count} transfers", exchanges.load(Ordering::Relaxed));
    count
}

#[test]
fn links_planted_while_a_tree_is_received_lead_nowhere() {
    let place = Place::new();
    let server = Server::start(&place);
    let pairs = with_links(&place);
    for number in 0..DIRECTORIES {
        for file in 0..12 {
            // Small ones in packs, ones of a span, and ones of several with a journal beside.
            let len_bytes = [3_000, 150_000, 300_000][file % 3];
            place.file(&place.source(format!("tree/d{number}/f{file}")), len_bytes);
        }
    }
    let mut failed = 0;
    let words = words!["push", place.source("tree"), server.url(""), "--span-size", "64K"];
    in_race(&place, pairs.clone(), |_| {
        let ran = place.run(&words);
        assert!(ran.status == 0 || ran.status == 1, "{ran:?}");
        failed += ran.named("file").iter().filter(|file| file["status"] == "failed").count();
        // What is in place is sent again: another time.
        for file in haul_testkit::tree::names(&place.path("source")).unwrap() {
            if place.source(&file).is_file() {
                let opened = fs::File::open(place.source(&file)).unwrap();
                opened.set_modified(std::time::SystemTime::now()).unwrap();
            }
        }
    });
    println!("{failed} files failed for the links");
    place.run(&words).ok();
    crate::harness::assert_same_trees(&place.source("tree"), &place.root("tree"));
    assert!(pairs.iter().all(|(directory, link)| directory.is_dir() && link.is_symlink()));
    server.still_serves(&place);
}

#[test]
fn links_planted_while_a_tree_is_sent_lead_nowhere() {
    let place = Place::new();
    let server = Server::start(&place);
    let pairs = with_links(&place);
    for number in 0..DIRECTORIES {
        for file in 0..12 {
            let len_bytes = [3_000, 150_000, 300_000][file % 3];
            place.file(&place.root(format!("tree/d{number}/f{file}")), len_bytes);
        }
    }
    // As a tree, by a path through one of them, and the link itself.
    let paths = ["tree", "tree/d0/f0", "tree/d0/", "tree/d0", "tree/"];
    in_race(&place, pairs, |count| {
        let target = place.target(format!("t{count}"));
        fs::create_dir(&target).unwrap();
        let path = paths[count as usize % paths.len()];
        let ran = place.run(&words!["pull", server.url(path), &target, "--span-size", "64K"]);
        assert!((0..=2).contains(&ran.status), "{ran:?}");
        for name in haul_testkit::tree::names(&target).unwrap() {
            let path = target.join(&name);
            let is_file = fs::symlink_metadata(&path).unwrap().is_file();
            assert!(!is_file || fs::read(&path).unwrap() != SECRET, "{name:?} came from outside");
        }
        fs::remove_dir_all(&target).unwrap();
    });
    place.pull(&words![server.url("tree"), place.target("last/")]).ok();
    crate::harness::assert_same_trees(&place.root("tree"), &place.target("last/tree"));
    server.still_serves(&place);
}

/// A directory that was renamed meanwhile: its mover must find files under their names, so one that
/// came into it after that has not arrived.
#[test]
fn what_comes_into_a_directory_that_was_renamed_meanwhile_is_no_file_in_place() {
    for new_place in ["nothing", "a directory", "a link"] {
        let place = Place::new();
        let server = Server::start(&place);
        let files: Vec<String> = (0..20).map(|number| format!("f{number:02}")).collect();
        for file in &files {
            place.file(&place.source("tree/d").join(file), 300_000);
        }
        let options =
            words!["--move", "--preserve", "none", "--bwlimit", "3M", "--span-size", "64K"];
        let words = [words!["push", place.source("tree"), server.url("")], options].concat();
        let (directory, moved) = (place.root("tree/d"), place.root("tree/moved"));
        let (ran, settled) = thread::scope(|scope| {
            let running = scope.spawn(|| place.run(&words));
            wait_until("a file has arrived", || !place.source("tree/d/f00").exists());
            fs::rename(&directory, &moved).unwrap();
            match new_place {
                "a directory" => fs::create_dir(&directory).unwrap(),
                "a link" => symlink("moved", &directory).unwrap(),
                _ => {}
            }
            // These had their names when it was renamed.
            let there = |file: &&String| moved.join(file).exists();
            let settled: Vec<String> = files.iter().filter(there).cloned().collect();
            (running.join().unwrap(), settled)
        });
        assert_eq!(ran.status, 1, "{new_place}: {ran:?}");
        assert!(settled.len() < files.len(), "all of them came before");
        for file in files.iter().filter(|file| !settled.contains(file)) {
            let source = place.source("tree/d").join(file);
            assert!(source.exists() || directory.join(file).exists(), "{new_place}: {file}");
        }
        server.still_serves(&place);
    }
}

/// A link that leads to where another token's root is: below the served directory, and not below
/// this token's.
#[test]
fn a_link_out_of_a_tokens_root_leads_nowhere_though_it_stays_in_the_servers() {
    let place = Place::new();
    place.file(&place.root("theirs/secret"), 1000);
    fs::create_dir(place.root("mine")).unwrap();
    symlink("../theirs", place.root("mine/out")).unwrap();
    symlink(place.root("theirs"), place.root("mine/away")).unwrap();
    let server = Server::start(&place);
    let state = words!["--state", place.path("state")];
    let words = words!["token", "new", "--read", "--write", "--root", "mine"];
    let made = place.run(&[words, state].concat());
    let token = made.events[0]["token"].as_str().unwrap().to_owned();
    place.file(&place.source("data"), 1000);
    for name in ["out", "away"] {
        let url = |path: &str| server.url_with(&token, server.address(), format!("{name}{path}"));
        let ran = place.pull(&words![url("/secret"), place.target("got")]);
        assert!(ran.status != 0 && !place.target("got").exists(), "{ran:?}");
        let ran = place.push(&words![place.source("data"), url("/planted")]);
        assert!(ran.status != 0 && !place.root("theirs/planted").exists(), "{ran:?}");
    }
    assert_eq!(haul_testkit::tree::names(&place.root("theirs")).unwrap().len(), 1);
}

/// A FIFO or a device that a file would replace: as root, in place of /dev/null, that would be the
/// end of it for all programs.
#[test]
fn no_file_replaces_a_fifo_or_a_device_by_whatever_way() {
    let place = Place::new();
    place.file(&place.source("t/pipe"), 1000);
    place.file(&place.root("served"), 1000);
    let server = Server::start(&place);
    let pipes = [place.path("pipe"), place.root("pipe"), place.root("t/pipe")];
    std::fs::create_dir_all(place.root("t")).unwrap();
    for pipe in &pipes {
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    }
    std::os::unix::fs::symlink("pipe", place.path("link")).unwrap();
    let source = place.source("t/pipe");
    let manifest = |name: &str| words!["--manifest", place.path(name)];
    for (what, words) in [
        ("pull", words!["pull", server.url("served"), place.path("pipe")]),
        ("pull by a link", words!["pull", server.url("served"), place.path("link")]),
        ("push", words!["push", source, server.url("")]),
        ("push of a tree", words!["push", place.source("t"), server.url("")]),
        ("replacing", words!["push", source, server.url(""), "--on-conflict", "replace"]),
        ("manifest", [words!["push", source, server.url("n1/")], manifest("pipe")].concat()),
        ("by a link", [words!["push", source, server.url("n2/")], manifest("link")].concat()),
    ] {
        let ran = place.run(&words);
        assert!(ran.status > 0, "{what}: {}", ran.err);
        let told = format!("{}{:?}", ran.err, ran.events);
        assert!(told.contains("a FIFO, socket or device"), "{what}: {told}");
        for pipe in &pipes {
            let kind = std::fs::metadata(pipe).unwrap().file_type();
            assert!(std::os::unix::fs::FileTypeExt::is_fifo(&kind), "{what}: {pipe:?}");
        }
    }
    assert!(place.path("link").is_symlink());
}
