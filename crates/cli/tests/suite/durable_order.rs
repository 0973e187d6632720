//! Order in which a received file becomes durable, as the kernel is asked for it.
//!
//! Watched by strace(1) on the side that receives: data before the journal that tells of it, the
//! whole file before its name, the directory after the name. A crash of the host in between is then
//! harmless, whichever it hits; the long forms of `bad_days::disks` cut the power to see that.

use crate::harness::journey::{Journey, WAYS, Way};
use haul_testkit::{skip::skip, strace::Strace};
use std::collections::HashMap;

const CALLS: &str =
    "fsync,fdatasync,syncfs,write,pwrite64,pwritev,unlinkat,renameat,renameat2,linkat";
/// Beginning of a journal's head, which tells of no span.
const HEAD: &str = "haul-jn";

/// A system call that succeeded, with the lines of the log at which it began and ended.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: String,
    began: usize,
    ended: usize,
}

impl Call {
    fn syncs(&self, path: &str) -> bool {
        matches!(&*self.name, "fsync" | "fdatasync") && self.arguments.contains(path)
    }

    fn writes(&self, path: &str) -> bool {
        self.name.starts_with(['w', 'p']) && self.descriptor().contains(path)
    }

    /// First argument, with its path.
    fn descriptor(&self) -> &str {
        self.arguments.split(',').next().unwrap()
    }
}

/// The calls in a log of `strace -f -y`, in the order of their ends.
fn calls_in(log: &str) -> Vec<Call> {
    let (mut begun, mut calls) = (HashMap::new(), Vec::new());
    for (at, line) in log.lines().enumerate() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if let Some(start) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, (at, start.to_owned()));
            continue;
        }
        let (began, whole) = match text.strip_prefix("<... ") {
            Some(rest) => {
                let Some((began, start)) = begun.remove(thread) else { continue };
                let (_, end) = rest.split_once("resumed>").unwrap();
                (began, start + end)
            }
            None => (at, text.to_owned()),
        };
        let Some((name, rest)) = whole.split_once('(') else { continue };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else { continue };
        if !result.starts_with('-') {
            let (name, arguments) = (name.to_owned(), arguments.to_owned());
            calls.push(Call { name, arguments, began, ended: at });
        }
    }
    calls
}

/// The calls of the side that receives a source slowly, which `make` makes.
fn calls_of_a_receiver(way: Way, make: impl Fn(&Journey)) -> Option<Vec<Call>> {
    let journey = Journey::new(way);
    let place = &journey.place;
    make(&journey);
    let (server, log) = (&journey.server, place.path("calls"));
    let command = match way {
        Way::Push => words!["push", place.source("f"), server.url("f")],
        Way::Pull => words!["pull", server.url("f"), place.target("f")],
    };
    let slowly = words!["--bwlimit", "2M", "--span-size", "1M", "--streams", "1"];
    let watch = |process| match Strace::watch(process, CALLS, &log) {
        Ok(strace) => Some(strace),
        Err(why) => {
            skip("strace(1) that may trace", why.to_string());
            None
        }
    };
    let watched = if way == Way::Push { Some(watch(server.process.id())?) } else { None };
    let client = place.start(&[command, slowly].concat());
    let watched = match watched {
        Some(strace) => strace,
        None => watch(client.id())?,
    };
    client.finish().ok();
    server.wait_for_sessions(1);
    Some(calls_in(&watched.log()))
}

#[test]
fn data_is_synced_before_its_journal_and_the_directory_after_the_name() {
    for way in WAYS {
        // Its spans are journaled on the way.
        let make = |journey: &Journey| journey.place.file(&journey.from("f"), 6 << 20);
        let Some(calls) = calls_of_a_receiver(way, make) else { return };
        let (part, journal) = (".f.haul-part", ".f.haul-journal");
        let is_between =
            |call: &Call, from: usize, to: usize| call.began >= from && call.ended < to;
        let records: Vec<&Call> = calls
            .iter()
            .filter(|call| call.writes(journal) && !call.arguments.contains(HEAD))
            .collect();
        assert!(records.len() >= 2, "{way:?}: the file took longer than two records: {calls:#?}");
        let mut from = 0;
        for record in &records {
            let synced = calls.iter().any(|c| c.syncs(part) && is_between(c, from, record.began));
            assert!(synced, "{way:?}: {record:?} tells of data that is not synced: {calls:#?}");
            from = record.ended;
        }
        let is_named =
            |call: &&Call| call.name.starts_with("rename") && call.arguments.contains(part);
        let named = calls.iter().find(is_named).unwrap_or_else(|| panic!("no name: {calls:#?}"));
        let whole = calls.iter().find(|c| c.syncs(part) && is_between(c, from, named.began));
        let whole = whole.unwrap_or_else(|| panic!("{way:?}: named before a sync: {calls:#?}"));
        let forgotten = calls.iter().any(|call| {
            call.name == "unlinkat"
                && call.arguments.contains(journal)
                && is_between(call, whole.ended, named.began)
        });
        assert!(forgotten, "{way:?}: the journal outlives the temporary: {calls:#?}");
        // `renameat(11</the/directory>, ".f.haul-part", 11</the/directory>, "f")`
        let directory = named.descriptor().split_once('<').unwrap().1;
        let kept = calls.iter().any(|call| call.syncs(directory) && call.began > named.ended);
        assert!(kept, "{way:?}: the name is not synced: {calls:#?}");
    }
}

/// Small files in a new directory: each is synced with its file system before the list tells of it,
/// and all before the directory has its name.
#[test]
fn a_hidden_directory_is_synced_before_its_list_tells_of_it_and_before_it_has_its_name() {
    for way in WAYS {
        let make = |journey: &Journey| {
            for number in 0..150 {
                journey.place.file(&journey.from(&format!("f/{number}")), 40 << 10);
            }
        };
        let Some(calls) = calls_of_a_receiver(way, make) else { return };
        let (hidden, list) = (".f.haul-staged", ".f.haul-durable");
        let is_file =
            |call: &&Call| call.writes(hidden) && matches!(&*call.name, "write" | "pwrite64");
        let seen = calls.iter().filter(is_file).count();
        // A client is watched once it runs, and may have written some by then.
        let unseen = if way == Way::Push { 0 } else { 30 };
        assert!((150 - unseen..=150).contains(&seen), "{way:?}: {seen} files: {calls:#?}");
        let syncs = || calls.iter().filter(|call| call.name == "syncfs");
        let told: Vec<&Call> = calls.iter().filter(|call| call.writes(list)).collect();
        assert!(told.len() >= 2, "{way:?}: it took longer than two groups: {calls:#?}");
        let first = told[0].began;
        for told in &told {
            let sync = syncs().rfind(|sync| sync.ended < told.began);
            let sync = sync.unwrap_or_else(|| panic!("{way:?}: told before a sync: {calls:#?}"));
            // A line of 16 bytes first, 12 for a batch, 16 a name: `storage/staged/list.rs`.
            let bytes: usize = told.arguments.rsplit(", ").nth(1).unwrap().parse().unwrap();
            let names = (bytes - if told.began == first { 28 } else { 12 }) / 16;
            let written = calls.iter().filter(is_file).filter(|c| c.ended < sync.began).count();
            assert!(
                written + 150 - seen >= names,
                "{way:?}: {names} told, {written} synced: {calls:#?}"
            );
        }
        // The last is for a kill alone: the directory gets its name next.
        for told in &told[..told.len() - 1] {
            let lasts = calls.iter().any(|call| call.syncs(list) && call.began > told.ended);
            assert!(lasts, "{way:?}: the list is not synced: {calls:#?}");
        }
        let is_named = |call: &&Call| call.name == "renameat2" && call.arguments.contains(hidden);
        let named = calls.iter().find(is_named).unwrap_or_else(|| panic!("no name: {calls:#?}"));
        let last_file = calls.iter().rfind(is_file).unwrap();
        let is_whole = syncs().any(|sync| sync.began > last_file.ended && sync.ended < named.began);
        assert!(is_whole, "{way:?}: named before all was synced: {calls:#?}");
        let directory = named.descriptor().split_once('<').unwrap().1;
        let kept = calls.iter().find(|call| call.syncs(directory) && call.began > named.ended);
        let kept = kept.unwrap_or_else(|| panic!("{way:?}: the name is not synced: {calls:#?}"));
        let forgotten = calls.iter().find(|c| c.name == "unlinkat" && c.arguments.contains(list));
        let is_last = forgotten.is_some_and(|call| call.began > kept.ended);
        assert!(is_last, "{way:?}: the list goes before the name is there to stay: {calls:#?}");
    }
}

#[test]
fn a_log_of_strace_is_read_as_the_calls_that_succeeded() {
    let log = "7 fsync(3</a/.f.haul-part> <unfinished ...>\n\
        8 write(4</a/.f.haul-journal>, \"x = y\", 64) = 64\n\
        7 <... fsync resumed>)     = 0\n\
        8 unlinkat(5</a>, \"b\", 0) = -1 ENOENT (No such file or directory)\n\
        8 +++ exited with 0 +++\n";
    let calls = calls_in(log);
    let seen: Vec<_> = calls.iter().map(|c| (&*c.name, c.began, c.ended)).collect();
    assert_eq!(seen, [("write", 1, 1), ("fsync", 0, 2)]);
    assert!(calls[0].writes(".f.haul-journal") && calls[1].syncs(".f.haul-part"));
}
