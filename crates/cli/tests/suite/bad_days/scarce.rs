//! Too little of everything: memory, descriptors, cores, rights, locked memory, no io_uring. A
//! transfer gets there all the same, or says what it needs.

use super::{Journey, KIB, MIB, WAYS, Way, mixed_tree};
use crate::harness::{
    Place,
    process::{Haul, Ran, behind, runnable},
    server::{Server, ServerSetup},
};
use haul_testkit::{memory_limit::MemoryLimit, mount::Mount, skip::skip};
use std::{ffi::OsString, fs, path::Path};

/// A server and clients that all run behind these words.
fn poor(way: Way, words: &[OsString]) -> Journey {
    let place = Place::new();
    let server = ServerSetup::new(&place).behind(words).start(&place);
    Journey { place, server, way }
}

fn start_behind(journey: &Journey, words: &[OsString], name: &str, options: &[OsString]) -> Haul {
    let of_haul = [journey.words(name, "", options), words!["--json"]].concat();
    Haul::start(behind(words, journey.place.command(&of_haul)))
}

#[track_caller]
fn arrives(journey: &Journey, words: &[OsString], name: &str, options: &[OsString]) -> Ran {
    let ran = start_behind(journey, words, name, options).finish();
    ran.ok();
    journey.assert_arrived(name, "");
    ran
}

/// The soft and the hard limit of a process as /proc tells them (proc(5)).
fn limit_of(pid: u32, name: &str) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn sixty_four_descriptors_are_enough_for_many_large_files_streams_and_links() {
    let Some(words) = runnable(&["prlimit", "--nofile=64:64"]) else { return };
    for way in WAYS {
        let journey = poor(way, &words);
        assert_eq!(limit_of(journey.server.process.id(), "Max open files"), "64");
        let from = journey.from("tree");
        for number in 0..90 {
            journey.place.file(&from.join(format!("large{number}")), 3 * 64 * KIB + number);
            journey.place.file(&from.join(format!("small/f{number}")), number * 100);
        }
        mixed_tree(&journey.place, &from.join("mixed"));
        let options = words!["--span-size", "64K", "--streams", "8"];
        arrives(&journey, &words, "tree", &options);
        if way == Way::Push {
            let to_nowhere = words!["push", from, journey.server.url("null:"), "--json"];
            Haul::start(behind(&words, journey.place.command(&to_nowhere))).finish().ok();
        }
    }
}

/// A deep tree: a directory is open for each level while it is listed.
#[test]
fn sixty_four_descriptors_are_enough_for_a_deep_tree() {
    let Some(words) = runnable(&["prlimit", "--nofile=64:64"]) else { return };
    for way in WAYS {
        let journey = poor(way, &words);
        let mut deep = journey.from("tree");
        for level in 0..100 {
            journey.place.file(&deep.join("file"), level);
            deep.push(format!("d{level}"));
        }
        fs::create_dir_all(&deep).unwrap();
        arrives(&journey, &words, "tree", &[]);
    }
}

/// Clients in larger number than a server has descriptors for: several are told so or wait, all
/// arrive at last.
#[test]
fn a_server_of_few_descriptors_serves_many_clients_one_after_the_other() {
    let Some(words) = runnable(&["prlimit", "--nofile=64:64"]) else { return };
    let journey = poor(Way::Push, &words);
    journey.place.file(&journey.place.source("data"), MIB);
    let start = |number: u32| {
        let url = journey.server.url(format!("n{number}/"));
        let words = words!["push", journey.place.source("data"), url, "--span-size", "64K"];
        journey.place.start(&words)
    };
    let running: Vec<Haul> = (0..12).map(start).collect();
    let ran: Vec<Ran> = running.into_iter().map(Haul::finish).collect();
    let arrived = ran.iter().filter(|ran| ran.status == 0).count();
    println!("{arrived} of 12 arrived at once");
    for (number, ran) in ran.iter().enumerate() {
        if ran.status != 0 {
            super::assert_told(ran);
        }
        let url = journey.server.url(format!("n{number}/"));
        journey.place.push(&words![journey.place.source("data"), url]).ok();
        journey.assert_arrived("data", &format!("n{number}"));
    }
    journey.server.still_serves(&journey.place);
}

/// Processes without the right to lock more, to raise limits, to set up networks, or to do anything
/// else that root may.
#[test]
fn without_capabilities_and_with_64_kib_of_locked_memory_all_arrives() {
    let bare = ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"];
    let words = [&["prlimit", "--memlock=65536:65536", "setpriv"][..], &bare[..]].concat();
    let Some(words) = runnable(&words) else { return };
    for way in WAYS {
        let journey = poor(way, &words);
        let id = journey.server.process.id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
        assert_eq!(limit_of(id, "Max locked memory"), "65536");
        mixed_tree(&journey.place, &journey.from("tree"));
        journey.place.file(&journey.from("tree/larger"), 24 * MIB + 1);
        for engine in ["auto", "io-uring", "direct"] {
            let send = if engine == "direct" { "io-uring" } else { engine };
            let options = words!["--receive-engine", engine, "--send-engine", send];
            let ran = arrives(&journey, &words, "tree", &options);
            println!("{way:?} {engine}: {}", ran.report()["receive_engine"]);
            fs::remove_dir_all(journey.to("tree")).unwrap();
        }
    }
}

#[test]
fn one_core_is_enough() {
    let Some(words) = runnable(&["taskset", "-c", "0"]) else { return };
    for way in WAYS {
        let journey = poor(way, &words);
        mixed_tree(&journey.place, &journey.from("tree"));
        journey.place.file(&journey.from("tree/larger"), 16 * MIB + 1);
        arrives(&journey, &words, "tree", &words!["--streams", "4", "--span-size", "256K"]);
    }
}

/// Client that ended by a panic: nothing came on a stream for the time of a stall, as nothing was
/// to come, and another stream was opened for which no engine had been chosen.
#[test]
fn files_without_a_byte_arrive_when_their_sync_takes_longer_than_a_stall() {
    let log = tempfile::tempdir().unwrap();
    let file = log.path().join("strace").into_os_string().into_string().unwrap();
    let strace = ["strace", "-D", "-f", "-o", &file, "-e", "trace=syncfs", "-e"];
    let slow = "inject=syncfs:delay_enter=3000000";
    let Some(words) = runnable(&[&strace[..], &[slow]].concat()) else { return };
    let journey = poor(Way::Pull, &[]);
    for number in 0..40 {
        journey.place.file(&journey.from(&format!("tree/{number}")), 0);
    }
    let ran = arrives(&journey, &words, "tree", &words!["--stall-timeout", "1s"]);
    assert!(ran.named("stall").is_empty(), "{ran:?}");
    assert!(ran.report()["seconds"].as_f64().unwrap() > 3.0, "its sync was not slow: {ran:?}");
}

/// Hosts without io_uring: a kernel that lacks it (ENOSYS), a container that forbids it (EPERM) or
/// one without room for the ring (ENOMEM).
#[test]
fn without_io_uring_another_engine_is_taken_and_the_one_asked_for_says_why() {
    let log = tempfile::tempdir().unwrap();
    for (way, error) in [(Way::Push, "EPERM"), (Way::Pull, "ENOSYS"), (Way::Push, "ENOMEM")] {
        let inject = format!("inject=io_uring_setup:error={error}");
        let file = log.path().join("strace").into_os_string().into_string().unwrap();
        let strace = ["strace", "-D", "-f", "-o", &file, "-e", "trace=io_uring_setup", "-e"];
        let Some(words) = runnable(&[&strace[..], &[&inject]].concat()) else { return };
        let journey = poor(way, &words);
        mixed_tree(&journey.place, &journey.from("tree"));
        let ran = arrives(&journey, &words, "tree", &words!["--span-size", "64K"]);
        assert_ne!(ran.report()["receive_engine"], "io-uring", "{ran:?}");
        fs::remove_dir_all(journey.to("tree")).unwrap();
        let asked = words!["--receive-engine", "io-uring", "--span-size", "64K"];
        let ran = start_behind(&journey, &words, "tree", &asked).finish();
        if ran.status == 0 {
            // It went on with another one, and said so.
            assert!(!ran.named("fallback").is_empty(), "{ran:?}");
            journey.assert_arrived("tree", "");
        } else {
            ran.says(&["io-uring"]);
        }
        println!("{error}: {}", ran.err.trim());
    }
}

/// Moves a file larger than the limit, or a tree of thousands, in little memory: the page cache
/// counts too.
fn moves_in_little_memory(way: Way, make: impl Fn(&Place, &Path), options: &[OsString]) {
    const LIMIT: u64 = 256 * MIB;
    let limits = (MemoryLimit::new(LIMIT), MemoryLimit::new(LIMIT));
    let (of_server, of_client) = match limits {
        (Ok(one), Ok(other)) => (one, other),
        (Err(why), _) | (_, Err(why)) => {
            return skip("root and control groups that limit memory", &why);
        }
    };
    let journey = poor(way, &of_server.words());
    assert!(of_server.holds(journey.server.process.id()));
    make(&journey.place, &journey.from("tree"));
    arrives(&journey, &of_client.words(), "tree", options);
    assert_eq!((of_server.killed(), of_client.killed()), (0, 0));
    let names = haul_testkit::tree::names(&journey.to("tree")).unwrap().len();
    let noun = if names == 1 { "name" } else { "names" };
    println!("soak: {way:?} of {names} {noun} in 256 MiB of memory on each side");
    // Its control groups go away only without processes.
    drop(journey);
}

#[test]
fn a_file_larger_than_the_memory_of_either_side_arrives() {
    let len = if crate::harness::is_long() { 3 << 30 } else { 320 * MIB };
    for way in WAYS {
        let make = |place: &Place, tree: &Path| place.file(&tree.join("large"), len);
        moves_in_little_memory(way, make, &[]);
    }
}

#[test]
fn thousands_of_files_arrive_in_little_memory() {
    let directories = if crate::harness::is_long() { 40 } else { 12 };
    let make = |_: &Place, tree: &Path| {
        for directory in 0..directories {
            let directory = tree.join(format!("d{directory}"));
            fs::create_dir_all(&directory).unwrap();
            for file in 0..500 {
                fs::write(directory.join(format!("f{file}")), vec![file as u8; 2000]).unwrap();
            }
        }
    };
    let ways = if crate::harness::is_long() { &WAYS[..] } else { &WAYS[..1] };
    for way in ways {
        moves_in_little_memory(*way, make, &[]);
    }
}

/// The limit on file sizes, beyond which the kernel ends a process that writes, unless it says
/// otherwise.
#[test]
fn a_file_beyond_the_limit_on_file_sizes_fails_alone_and_the_next_run_brings_it() {
    let Some(words) = runnable(&["prlimit", "--fsize=4194304"]) else { return };
    for way in WAYS {
        for engine in ["auto", "io-uring", "direct", "splice", "read-write"] {
            let place = Place::new();
            let (of_server, of_client) = match way {
                Way::Push => (&words[..], &[][..]),
                Way::Pull => (&[][..], &words[..]),
            };
            let server = ServerSetup::new(&place).behind(of_server).start(&place);
            let mut journey = Journey { place, server, way };
            mixed_tree(&journey.place, &journey.from("tree"));
            journey.place.file(&journey.from("tree/too-large"), 4 * MIB + 1);
            journey.place.file(&journey.from("tree/fits"), 4 * MIB);
            let options = words!["--receive-engine", engine, "--span-size", "64K"];
            let ran = start_behind(&journey, of_client, "tree", &options).finish();
            ran.failed(1);
            ran.says(&["too-large", "target", "ulimit -f", "4194304 bytes"]);
            super::assert_nothing_wrong(&journey.from("tree"), &journey.to("tree"));
            assert!(journey.to("tree/fits").exists() && !journey.to("tree/too-large").exists());
            journey.server.process.kill();
            journey.server = ServerSetup::new(&journey.place).start(&journey.place);
            journey.completes("tree", "", &[]);
        }
    }
}

#[test]
fn a_stack_of_64_kib_is_enough() {
    let Some(words) = runnable(&["bash", "-c", "ulimit -s 64; exec \"$@\"", "bash"]) else {
        return;
    };
    for way in WAYS {
        let journey = poor(way, &words);
        assert_eq!(limit_of(journey.server.process.id(), "Max stack size"), "65536");
        mixed_tree(&journey.place, &journey.from("tree"));
        arrives(&journey, &words, "tree", &words!["--span-size", "64K"]);
    }
}

/// The least address space, in KiB, with which the program says its version.
fn least_address_space(place: &Place) -> u64 {
    let (mut too_little, mut enough) = (1, 8 << 20);
    while enough - too_little > 16 {
        let middle = u64::midpoint(too_little, enough);
        if in_address_space(place, middle).status == 0 {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    enough
}

fn in_address_space(place: &Place, kib: u64) -> Ran {
    let limit = format!("ulimit -v {kib}; exec \"$@\"");
    let words = words!["bash", "-c", limit, "bash"];
    Haul::start(behind(&words, place.command(&words!["--version", "--json"]))).finish()
}

#[test]
fn without_memory_to_start_it_says_so_and_ends_with_status_2() {
    let place = Place::new();
    let least = least_address_space(&place);
    for less_mib in [1, 4, 9, 20, 30, 36] {
        let ran = in_address_space(&place, least - less_mib * 1024);
        ran.refused(&["no room for it", "40 mib", "ulimit -v"]);
    }
}

/// The file system ramfs, which counts no blocks; that is not the same as having none left.
#[test]
fn a_target_that_does_not_say_how_much_is_free_takes_a_large_file() {
    let place = Place::new();
    let _ramfs = match Mount::ramfs(&place.path("root")) {
        Ok(mount) => mount,
        Err(why) => return skip("a user who may mount (root)", &why),
    };
    let server = Server::start(&place);
    let journey = Journey { place, server, way: Way::Push };
    mixed_tree(&journey.place, &journey.from("tree"));
    journey.place.file(&journey.from("tree/larger"), 24 * MIB + 1);
    let looked = journey.run("tree", "", &words!["--preflight"]);
    let checks = looked.report()["preflight"].as_array().unwrap();
    let space = checks.iter().find(|check| check["name"] == "space").unwrap();
    assert_eq!(space["verdict"], "ok", "{space}");
    journey.completes("tree", "", &[]);
}
