//! The real `haul bench media`: each part measures or says why not.
//!
//! Another server is asked from outside only, and nothing is left behind.
//!
//! No test looks at how fast anything is.

use crate::harness::{Place, as_nobody, is_root, process::Haul, wait_until};
use haul_media::delivery::METHODS;
use haul_testkit::skip::skip;
use rustix::process::Signal;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

/// Options of a crowd of a second: eight viewers, three films of two periods.
const SMALL: [&str; 10] = [
    "--users=8",
    "--mean-gap=40ms",
    "--films=3",
    "--film-size=200K",
    "--rate=2M",
    "--periods=4",
    "--period=300ms",
    "--seed=5",
    "--rounds=1",
    "--disk-share=1",
];

fn media(place: &Place, more: &[&str]) -> Vec<OsString> {
    let words = words!["bench", "media", "--dir", place.path("target")];
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let is_own = |small: &&&str| more.iter().all(|word| name(word) != name(small));
    let small = SMALL.iter().filter(is_own);
    words.into_iter().chain(small.chain(more).map(OsString::from)).collect()
}

fn program(place: &Place, words: &[OsString]) -> Haul {
    let words = [words, &words!["--json"]].concat();
    let mut command = place.command(&words);
    // Where mkfs(8), losetup(8) and mount(8) are.
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Haul::start(command)
}

/// Directories of control groups that a process made.
fn groups_of(process: u32) -> Vec<String> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/blkio"];
    let entries = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten());
    let names = entries.flatten().map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("haul-bench-{process}-"))).collect()
}

/// Mounts below a directory that `/proc/mounts` still has.
fn mounts_in(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let within = directory.to_str().unwrap();
    mounts.lines().filter(|line| line.contains(within)).map(str::to_owned).collect()
}

/// Processes whose working directory is `directory`.
fn works_in(directory: &Path) -> Vec<OsString> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let works = |process: &fs::DirEntry| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == directory)
    };
    processes.filter(works).map(|process| process.file_name()).collect()
}

#[track_caller]
fn left_nothing(place: &Place, process: u32) {
    assert_eq!(fs::read_dir(place.path("target")).unwrap().count(), 0);
    assert_eq!(groups_of(process), [""; 0]);
    assert_eq!(mounts_in(&place.path("target")), [""; 0]);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Checks that a whole crowd was met: each film was played, each period counted, and times are in
/// order.
#[track_caller]
fn met_the_crowd(cell: &Value) {
    assert!(cell["refused"].is_null(), "{cell}");
    assert_eq!((&cell["turned_away"], &cell["failed"]), (&0.into(), &0.into()), "{cell}");
    let (streams, periods) = (number(&cell["streams"]), number(&cell["periods"]));
    let most = 8.0 * number(&cell["rounds"]);
    assert!((1.0..=most).contains(&streams) && periods >= streams, "{cell}");
    let share = number(&cell["miss_share"]["median"]);
    assert!((0.0..=1.0).contains(&share), "{cell}");
    assert!(number(&cell["misses"]) <= periods, "{cell}");
    for times in ["late_ms", "first_byte_ms", "start_up_ms"] {
        let times = &cell[times];
        assert!(number(&times["p50"]) <= number(&times["p99"]), "{cell}");
        assert!(number(&times["p99"]) <= number(&times["max"]), "{cell}");
    }
    assert!(number(&cell["first_byte_ms"]["max"]) > 0.0, "{cell}");
    assert!(number(&cell["received_bytes"]) > 0.0 && number(&cell["watched_s"]) > 0.0, "{cell}");
}

/// Checks the verdict of figure 11 against the crowds of the cells: each pair of the study's order
/// has to come out in each crowd, summed up over the disks.
#[track_caller]
fn is_judged_by_the_cells(figure: &Value, cells: &[&Value]) {
    assert_eq!(figure["figure"], "figure 11");
    if cells.iter().any(|cell| cell["disk_is_bound"] == false) {
        return;
    }
    let misses = |name: &str, crowd: usize| {
        let of_method = || cells.iter().filter(|cell| cell["method"] == name);
        let sum = |field: &str| -> f64 {
            of_method().map(|cell| number(&cell["crowds"][crowd][field])).sum()
        };
        sum("misses") / sum("periods")
    };
    let pairs = [("one-copy", "direct"), ("direct", "two-copy"), ("normal", "normal-no-readahead")];
    let came_out = (0..2)
        .all(|crowd| pairs.iter().all(|(one, other)| misses(one, crowd) < misses(other, crowd)));
    let expected = if came_out { "came_out" } else { "did_not_come_out" };
    assert_eq!(figure["verdict"], expected, "{figure}");
}

#[test]
fn each_method_meets_the_crowd_and_the_verdict_is_of_the_figures() {
    let place = Place::new();
    let page = place.path("page.html");
    let words = media(&place, &["--only=crowd", "--rounds=2", "--disk-share=1,2"]);
    let words = [words, words!["--html", page]].concat();
    let running = program(&place, &words);
    let process = running.id();
    let ran = running.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(
        (&ran.events[0]["event"], &ran.events[0]["bench"]),
        (&"host".into(), &"media".into())
    );
    let cells = ran.named("cell");
    let names: Vec<&str> = cells.iter().map(|cell| cell["method"].as_str().unwrap()).collect();
    assert!(METHODS.iter().all(|method| names.contains(&method.name())), "{names:?}");
    assert!(names.contains(&"normal-no-readahead"), "{names:?}");
    for cell in &cells {
        met_the_crowd(cell);
        assert_eq!(cell["rounds"], 2);
        // A server that did nothing used nothing: these cannot come out.
        assert!(number(&cell["cpu_s"]) > 0.0 && number(&cell["memory_bytes"]) > 0.0, "{cell}");
        assert!(number(&cell["cpu_us_per_stream_s"]["median"]) > 0.0, "{cell}");
        assert!(number(&cell["server"]["streams"]) > 0.0, "{cell}");
        let sent = number(&cell["server"]["sent_bytes"]);
        assert!(sent > 0.0 && sent <= number(&cell["received_bytes"]) * 2.0, "{cell}");
        if cell["disk_is_bound"] == true {
            // Cold films come from the disk, each page at least once.
            assert!(number(&cell["disk_read_bytes"]) >= 100_000.0, "{cell}");
            assert!(number(&cell["disk_reads"]) > 0.0, "{cell}");
        }
    }
    assert_eq!(cells.len(), 2 * (METHODS.len() + 1));
    for share in [1.0, 2.0] {
        let of_share = cells.iter().filter(|cell| cell["disk_share"] == share);
        assert_eq!(of_share.count(), METHODS.len() + 1);
    }
    // The same crowd for all.
    assert!(cells.iter().all(|cell| cell["streams"] == cells[0]["streams"]), "{cells:?}");
    let bounds = &ran.named("bounds")[0];
    let is_bound = cells.iter().all(|cell| cell["disk_is_bound"] == true);
    let says_not = bounds["notes"]
        .as_array()
        .unwrap()
        .iter()
        .any(|note| note.as_str().unwrap().starts_with("The disk was not bound: needs "));
    assert_eq!(is_bound, !says_not, "{bounds}");
    is_judged_by_the_cells(ran.named("figure")[0], &cells);
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg ").count(), 3);
    assert!(page.contains("Figure 11") && page.contains("Poisson"));
    left_nothing(&place, process);
}

#[test]
fn the_other_figures_have_a_time_or_a_reason() {
    let place = Place::new();
    let page = place.path("page.html");
    let parts = "--only=single-file,response,combinations";
    let words = media(&place, &[parts, "--file-size=2M", "--sizes=64K,256K"]);
    let running = program(&place, &[words, words!["--html", page]].concat());
    let process = running.id();
    let ran = running.finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let cells = ran.named("cell");
    let of = |table: &str| -> Vec<&&Value> {
        cells.iter().filter(|cell| cell["table"] == table).collect()
    };
    let methods = METHODS.len() + 1;
    assert_eq!(of("single-file").len(), methods * 2);
    assert_eq!(of("response").len(), methods * 2 * 2);
    for cell in of("single-file") {
        if cell["refused"].is_null() {
            assert!(number(&cell["cpu_s_per_gb"]["median"]) > 0.0, "{cell}");
            assert!(number(&cell["seconds"]["lowest"]) > 0.0, "{cell}");
        }
    }
    for cell in of("response") {
        if cell["refused"].is_null() {
            let (first, whole) = (&cell["first_byte_ms"]["lowest"], &cell["whole_ms"]["highest"]);
            assert!(number(first) > 0.0 && number(first) <= number(whole), "{cell}");
        }
    }
    assert!(of("combinations").iter().any(|cell| cell["send_engine"] == "read-write"), "{ran:?}");
    assert!(of("combinations").iter().all(|cell| cell["send_block_bytes"] == 32 << 10));
    let figures = ran.named("figure");
    let numbers: Vec<&Value> = figures.iter().map(|figure| &figure["figure"]).collect();
    assert_eq!(numbers, ["figure 8", "figure 9", "figure 10"], "there was no crowd");
    for (figure, table, less, more) in [
        (&figures[0], "single-file", "one-copy", "two-copy"),
        (&figures[1], "response", "one-copy", "two-copy"),
        (&figures[2], "combinations", "sendfile", "read-write"),
    ] {
        let median = |name: &str, source: &str| -> Option<f64> {
            let is_this = |cell: &&&Value| {
                let named = [&cell["method"], &cell["send_engine"]].contains(&&name.into());
                named && cell["source"] == source && cell["bytes"] != (64 << 10)
            };
            let cell = of(table).into_iter().find(|cell| is_this(cell))?;
            let cost = ["cpu_s_per_gb", "whole_ms", "seconds"].map(|name| &cell[name]["median"]);
            cost.into_iter().find_map(Value::as_f64)
        };
        let holds = |source| Some(median(less, source)? < median(more, source)?);
        let both = ["warm", "cold"].map(holds);
        let expected = match both {
            [Some(true), Some(true)] => "came_out",
            [Some(false), _] | [_, Some(false)] => "did_not_come_out",
            _ => "not_measured",
        };
        assert_eq!(figure["verdict"], expected, "{both:?} {figure}");
    }
    assert_eq!(fs::read_to_string(page).unwrap().matches("<svg ").count(), 4);
    left_nothing(&place, process);
}

#[test]
fn another_server_is_asked_from_outside_only() {
    let place = Place::new();
    for name in ["a.mp4", "b.mp4"] {
        place.file(&place.root(name), 200_000);
    }
    let served = place.start(&words!["media", place.root(""), "--listen", "127.0.0.1:0"]);
    let line = served.wait_for("start", |event| event["event"] == "listening");
    let url = line["url"].as_str().unwrap().to_owned();
    let pid = format!("--pid={}", served.id());
    for (url, more) in [(url.clone(), &[pid.as_str()][..]), (format!("{url}a.mp4"), &[])] {
        let words = media(&place, &[&["--against", &url], more].concat());
        let ran = program(&place, &words).finish();
        assert_eq!(ran.status, 0, "{ran:?}");
        let cell = ran.named("cell")[0].clone();
        met_the_crowd(&cell);
        assert_eq!(cell["method"], url.trim_end_matches('?'));
        assert_eq!(cell["cpu_s"].is_null(), more.is_empty(), "{cell}");
        assert!(ran.named("figure").is_empty() && cell["server"].is_null());
    }
}

/// A server that takes connections and never says a word has missed all, and measured is nothing.
#[test]
fn a_server_that_does_nothing_has_no_figures() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/film.mp4", silent.local_addr().unwrap());
    let ran = program(&place, &media(&place, &["--against", &url])).finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    let cell = &ran.named("cell")[0];
    assert!(cell["refused"].as_str().unwrap().contains("no answer came"), "{cell}");
    assert!(cell["miss_share"].is_null() && cell["first_byte_ms"].is_null(), "{cell}");
    assert_eq!(cell["misses"], cell["periods"], "{cell}");
    assert_eq!(cell["streams"], 0);
    let page = format!("http://{}/", silent.local_addr().unwrap());
    drop(silent);
    let ran = program(&place, &media(&place, &["--against", &page])).finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("cannot read the page"), "{ran:?}");
}

#[test]
fn ctrl_c_removes_films_servers_and_groups() {
    let place = Place::new();
    let words = media(&place, &["--only=crowd", "--periods=100000", "--users=100000"]);
    let running = program(&place, &words);
    let process = running.id();
    let log = || {
        let made = fs::read_dir(place.path("target")).into_iter().flatten().flatten();
        made.map(|entry| entry.path().join("media.errors")).any(|errors| errors.exists())
    };
    wait_until("started a server", log);
    running.signal(Signal::INT);
    let ran = running.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.err.contains("interrupted"), "{ran:?}");
    left_nothing(&place, process);
}

/// A bench that is killed (kill -9): its server ends with it, and its films and their disk go with
/// the next bench.
#[test]
fn what_a_killed_bench_leaves_goes_with_the_next() {
    let place = Place::new();
    let words = media(&place, &["--only=crowd", "--periods=100000", "--users=100000"]);
    let running = program(&place, &words);
    let directories = || -> Vec<PathBuf> {
        let made = fs::read_dir(place.path("target")).into_iter().flatten().flatten();
        made.map(|entry| entry.path()).collect()
    };
    let log = || directories().iter().any(|directory| directory.join("media.errors").exists());
    wait_until("started a server", log);
    let left = directories()[0].clone();
    let killed = running.id();
    running.signal(Signal::KILL);
    assert_ne!(running.finish().status, 0);
    assert!(left.exists());
    wait_until("ended its server", || works_in(&left).is_empty());
    let words = media(&place, &["--only=crowd", "--methods=one-copy"]);
    assert_eq!(program(&place, &words).finish().status, 0);
    left_nothing(&place, killed);
}

#[test]
fn without_root_it_says_what_is_not_bound_and_goes_on() {
    let place = Place::new();
    let words = [media(&place, &["--only=crowd", "--methods=one-copy"]), words!["--json"]].concat();
    let mut command = place.command(&words);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    if is_root() {
        if !place.open_to_nobody(&[&place.path("target")]) {
            return skip("a program that every user may run", "one in a closed directory");
        }
        as_nobody(&mut command);
    }
    let ran = Haul::start(command).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let cell = ran.named("cell")[0].clone();
    met_the_crowd(&cell);
    assert_eq!(cell["disk_is_bound"], false);
    let notes = ran.named("bounds")[0]["notes"].to_string();
    for part in ["no device of their own", "memory was not bound", "disk was not bound"] {
        assert!(notes.contains(part), "{notes}");
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    let place = Place::new();
    for (words, needs) in [
        (["--theta=2"], "0 to 1"),
        (["--memory=1M"], "16 MiB or more"),
        (["--against=https://host/"], "https is not spoken here"),
    ] {
        program(&place, &media(&place, &words)).finish().refused(&[needs]);
    }
}
