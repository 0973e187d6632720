//! System calls that fail with EIO, ENOSPC, EDQUOT or EROFS, one at a time or for good.
//!
//! They fail on either side: strace(1) makes them. What goes through io_uring is met by `disks.rs`.

use super::{Journey, Way, assert_nothing_wrong, assert_told, mixed_tree};
use crate::harness::{is_long, process::Ran};
use haul_testkit::{Unavailable, seed::Random, skip::skip, strace::Strace};
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::{Duration, Instant},
};

const ERRORS: [&str; 4] = ["EIO", "ENOSPC", "EDQUOT", "EROFS"];
/// Calls of each thread that fail: the first such call, a later one, all of them, or all but the
/// first.
const WHEN: [&str; 6] = ["1", "2", "3", "5", "1+", "3+"];

/// Names by which strace knows the calls of a receiver: renameat(2) has two numbers.
const OF_THE_TARGET: &[&str] = &[
    "openat2",
    "openat",
    "mkdirat",
    "fallocate",
    "ftruncate",
    "flock",
    "pwrite64",
    "write",
    "fchmod",
    "utimensat",
    "fsync",
    "fdatasync",
    "syncfs",
    "linkat",
    "/^rename",
    "unlinkat",
    "symlinkat",
];
const OF_THE_SOURCE: &[&str] =
    &["openat2", "openat", "getdents64", "pread64", "preadv2", "sendfile", "readlinkat"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

/// A system call that fails, where and when.
#[derive(Clone, Copy, Debug)]
struct Case {
    side: Side,
    call: &'static str,
    error: &'static str,
    when: &'static str,
    /// Whether the target's directories are there before: names are taken in another way then.
    is_known: bool,
}

/// Calls of a side in a direction: the receiver's, or the sender's.
fn calls_of(side: Side, way: Way) -> &'static [&'static str] {
    let receives = (side == Side::Server) == (way == Way::Push);
    if receives { OF_THE_TARGET } else { OF_THE_SOURCE }
}

/// Cases for a side and a way: everything in the long form, each call once or twice in the short
/// one.
fn cases(side: Side, way: Way, random: &mut Random) -> Vec<Case> {
    let mut cases = Vec::new();
    for call in calls_of(side, way) {
        if is_long() {
            for (error, when) in ERRORS.iter().flat_map(|e| WHEN.iter().map(move |w| (*e, *w))) {
                let is_known = random.below(2) == 0;
                cases.push(Case { side, call, error, when, is_known });
            }
        } else {
            let (error, when) = (*random.one_of(&ERRORS), *random.one_of(&WHEN));
            let is_known = random.below(2) == 0;
            cases.push(Case { side, call, error, when, is_known });
        }
    }
    cases
}

/// Both ends of a transfer, the tree that is moved, and what became of the cases.
struct Bench {
    journey: Journey,
    cases: u32,
    met: u32,
}

impl Bench {
    fn new(way: Way) -> Self {
        let journey = Journey::new(way);
        mixed_tree(&journey.place, &journey.from("tree"));
        Self { journey, cases: 0, met: 0 }
    }

    /// Options of a transfer: small spans, so that there are several, and engines whose calls
    /// strace sees.
    fn options(&self, random: &mut Random) -> Vec<OsString> {
        let receivers = ["io-uring", "read-write", "direct", "dontcache"];
        let senders = ["sendfile", "read-write", "mmap", "splice"];
        words![
            "--span-size",
            "64K",
            "--retry-for",
            "2s",
            "--stall-timeout",
            "2s",
            "--streams",
            "2",
            "--receive-engine",
            *random.one_of(&receivers),
            "--send-engine",
            *random.one_of(&senders)
        ]
    }

    /// Runs a transfer with a failing call, and then without; `None` where nothing can be traced.
    fn suffer(&mut self, case: Case, random: &mut Random) -> Option<()> {
        self.cases += 1;
        let into = format!("n{}", self.cases);
        let options = self.options(random);
        let journey = &self.journey;
        let place = &journey.place;
        println!("{into}: {case:?} {options:?}");
        if case.is_known {
            fs::create_dir_all(journey.to(&into).join("tree/small/deep")).unwrap();
        }
        let begun = Instant::now();
        let (ran, met) = match with_failing_call(journey, &case, &into, &options) {
            Ok(ran_and_met) => ran_and_met,
            Err(why) => {
                skip("strace and the right to trace", &why);
                return None;
            }
        };
        let took = begun.elapsed();
        self.met += u32::from(met > 0);
        println!("    met {met}, status {}, {took:?}: {}", ran.status, ran.err);
        assert!((0..=2).contains(&ran.status), "{ran:?}");
        if ran.status != 0 {
            assert_told(&ran);
        }
        if !case.when.ends_with('+') && ran.status == 1 && met <= 2 {
            assert_the_rest_arrived(&ran);
        }
        let (from, to) = (journey.from("tree"), journey.to(&into).join("tree"));
        assert_nothing_wrong(&from, &to);
        // A journal that could not be removed does no harm; the next run removes it.
        if ran.status == 0 && case.call != "unlinkat" {
            journey.assert_arrived("tree", &into);
        }
        // A session that has just failed may be syncing what it keeps.
        journey.completes("tree", &into, &options);
        fs::remove_dir_all(place.root(&into)).or_else(|_| fs::remove_dir_all(to)).unwrap();
        Some(())
    }
}

/// Checks that one call that failed costs what it was for, and no other file.
#[track_caller]
fn assert_the_rest_arrived(ran: &Ran) {
    let Some(report) = ran.named("report").pop() else {
        // It was for the target as a whole.
        ran.says(&["target", "cannot be opened"]);
        return;
    };
    let count = |key: &str| report["files"][key].as_u64().unwrap();
    assert!(count("failed") >= 1, "{ran:?}");
    // What cannot be looked into takes with it what is below, and the tree is all there is.
    let is_all = ran.named("error").iter().any(|error| error["path"] == "tree");
    assert!(count("done") > 0 || is_all, "one fault and nothing arrived: {ran:?}");
}

/// Runs a transfer of which a call fails, and tells how many did.
fn with_failing_call(
    journey: &Journey,
    case: &Case,
    into: &str,
    options: &[OsString],
) -> Result<(Ran, usize), Unavailable> {
    let fault = format!("{}:error={}:when={}", case.call, case.error, case.when);
    let log = journey.place.path("strace");
    let limited = path_of(journey, case, into);
    let limited = limited.as_deref();
    if case.side == Side::Server {
        let strace = Strace::attach(journey.server.process.id(), &fault, limited, &log)?;
        let ran = journey.run("tree", into, options);
        return Ok((ran, strace.detach()));
    }
    // While the server holds still, the client waits for it, with all that it needs at its start.
    let server = &journey.server.process;
    server.signal(rustix::process::Signal::STOP);
    let client = journey.start("tree", into, options);
    wait_for_a_connection(client.id());
    let strace = Strace::attach(client.id(), &fault, limited, &log);
    server.signal(rustix::process::Signal::CONT);
    let strace = strace?;
    let ran = client.finish();
    Ok((ran, strace.detach()))
}

/// The path that strace watches for write(2): only the journal's writes are meant, not those of
/// sockets and screen.
fn path_of(journey: &Journey, case: &Case, into: &str) -> Option<PathBuf> {
    (case.call == "write").then(|| journey.to(into).join("tree/.large.haul-journal"))
}

/// Waits until a process has a socket.
fn wait_for_a_connection(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        if links.any(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:")) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the client does not connect");
}

fn calls_fail(side: Side, way: Way) {
    let mut bench = Bench::new(way);
    let mut random = bench.journey.place.seed.random();
    for case in cases(side, way, &mut random) {
        if bench.suffer(case, &mut random).is_none() {
            return;
        }
    }
    bench.journey.server.still_serves(&bench.journey.place);
    let side = match side {
        Side::Server => "server",
        Side::Client => "client",
    };
    println!("soak: {way:?}, at the {side}: {} cases, {} of them met", bench.cases, bench.met);
    assert!(bench.met >= bench.cases / 4, "too few of the calls were made: {}", bench.met);
}

#[test]
fn a_directory_that_cannot_be_given_its_mode_is_named_by_both_sides() {
    for (side, way) in [(Side::Server, Way::Push), (Side::Client, Way::Pull)] {
        let journey = Journey::new(way);
        let from = journey.from("tree");
        journey.place.file(&from.join("deep/file"), 100);
        fs::set_permissions(from.join("deep"), fs::Permissions::from_mode(0o750)).unwrap();
        let case = Case { side, call: "fchmod", error: "EIO", when: "1+", is_known: false };
        let (ran, met) = match with_failing_call(&journey, &case, "n", &[]) {
            Ok(ran_and_met) => ran_and_met,
            Err(why) => return skip("strace and the right to trace", &why),
        };
        assert_eq!((ran.status, met), (1, 2), "both directories: {ran:?}");
        ran.says(&["target", "tree/deep", "cannot be given its attributes", "its mode"]);
        assert_eq!(ran.named("report")[0]["files"]["failed"], 2, "{ran:?}");
        journey.completes("tree", "n", &[]);
        let (again, met) = with_failing_call(&journey, &case, "n", &[]).unwrap();
        assert_eq!((again.status, met), (0, 2), "they have it already: {again:?}");
    }
}

#[test]
fn calls_of_a_server_that_receives_fail() {
    calls_fail(Side::Server, Way::Push);
}

#[test]
fn calls_of_a_server_that_sends_fail() {
    calls_fail(Side::Server, Way::Pull);
}

#[test]
fn calls_of_a_client_that_sends_fail() {
    calls_fail(Side::Client, Way::Push);
}

#[test]
fn calls_of_a_client_that_receives_fail() {
    calls_fail(Side::Client, Way::Pull);
}
