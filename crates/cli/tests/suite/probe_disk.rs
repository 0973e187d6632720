//! The real `haul probe disk`: what it measures, refuses and draws.
//!
//! It leaves nothing behind, however it ends.
//!
//! No test looks at how fast anything is: only that it was measured, or why it was not.

use haul_testkit::{mount::Mount, skip::skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longest time that anything may take. Far more than needed: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);
/// Options of a probe of little of everything.
const LITTLE: [&str; 5] =
    ["--size=8M", "--time=200ms", "--rounds=1", "--block-sizes=64K,256K", "--depths=2"];

/// Makes a directory on the disk of the build, which has O_DIRECT where /tmp may be memory.
fn fresh() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn probe(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(["probe", "disk"]).arg(directory).args(words);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn objects(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a probe: returns the objects it printed, and checks that nothing new is in the directory.
fn measured(directory: &Path, words: &[&str]) -> Vec<Value> {
    let before = names(directory);
    let output = probe(directory, &[words, &["--json"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(names(directory), before, "it left something behind");
    objects(&output)
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

fn of_event<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

fn has_delays(line: &Value) -> bool {
    let names = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"];
    let delays: Vec<f64> = names.map(|name| line["delays"][name].as_f64().unwrap()).into();
    delays.is_sorted() && delays[0] > 0.0
}

/// Mounts a tmpfs of this size below a fresh directory, or says why it cannot.
fn tmpfs(size: &str) -> Option<(TempDir, Mount)> {
    let directory = fresh();
    let path = directory.path().join("memory");
    fs::create_dir(&path).unwrap();
    match Mount::tmpfs(&path, size) {
        Ok(mount) => Some((directory, mount)),
        Err(why) => {
            skip("the right to mount a tmpfs", &why);
            None
        }
    }
}

#[test]
fn every_method_and_setting_has_a_rate_or_a_reason() {
    let directory = fresh();
    let page = directory.path().with_extension("html");
    let html = format!("--html={}", page.display());
    let lines = measured(directory.path(), &[&LITTLE[..], &[&html]].concat());
    assert_eq!(
        (lines[0]["event"].as_str(), lines[0]["bench"].as_str()),
        (Some("host"), Some("probe disk"))
    );
    let disk = of_event(&lines, "disk")[0];
    assert_eq!(disk["plan"]["len_bytes"], 8 << 20);
    assert!(!disk["file_system"].as_str().unwrap().is_empty());
    let has_direct = disk["refused"].as_array().unwrap().is_empty();
    let profiles = of_event(&lines, "profile");
    for profile in &profiles {
        assert!(profile["gb_per_s"].as_f64().unwrap() > 0.0, "{profile}");
        assert!(has_delays(profile), "{profile}");
        let intervals = profile["intervals"].as_array().unwrap();
        let bytes: u64 = intervals.iter().map(|one| one["bytes"].as_u64().unwrap()).sum();
        assert_eq!(Some(bytes), profile["bytes"].as_u64());
        assert_eq!(profile["sync_seconds"].is_null(), profile["operation"] == "read");
        assert!(profile["course"]["kind"].is_string(), "{profile}");
    }
    let methods: Vec<&str> =
        profiles.iter().map(|profile| profile["method"].as_str().unwrap()).collect();
    let cells = of_event(&lines, "cell");
    if has_direct {
        assert_eq!(methods, ["io-uring", "io-uring", "buffered", "buffered"]);
        // Two block sizes, one by one and two at a time, read and written.
        assert_eq!(cells.len(), 8);
    }
    for cell in cells {
        if cell["refused"].is_null() {
            assert!(cell["gb_per_s"]["median"].as_f64().unwrap() > 0.0, "{cell}");
            assert!(has_delays(cell), "{cell}");
        }
    }
    let verdict = lines.last().unwrap();
    assert_eq!(verdict["event"], "verdict");
    assert!(verdict["write"]["bytes_per_s"].as_f64().unwrap() > 0.0, "{verdict}");
    assert!(verdict["haul_writes_by"]["engine"].is_string(), "{verdict}");
    let page_text = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    assert!(page_text.contains("<svg ") && page_text.contains("Delay of a write over time"));
    assert!(!page_text.contains("NaN") && page_text.ends_with("</html>\n"));
}

#[test]
fn a_user_first_reads_what_the_disk_can_do() {
    let directory = fresh();
    let output = probe(directory.path(), &LITTLE[..2]).arg("--rounds=0").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let first = out.lines().next().unwrap();
    assert!(first.contains("writes best at ") && first.contains("bit/s"), "{first}");
    for heading in ["== The disk ==", "== Over time ==", "GB/s over time"] {
        assert!(out.contains(heading), "{heading}: {out}");
    }
    assert!(out.contains("\n  file  ") && out.contains("8.00 MiB"), "{out}");
}

/// Starts a probe and waits until it has its file open.
fn at_work(directory: &Path) -> Child {
    let words = ["--size=4M", "--time=60s", "--methods=buffered", "--rounds=1000"];
    let mut child = probe(directory, &words)
        .arg("--block-sizes=64K")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let open_files = PathBuf::from(format!("/proc/{}/fd", child.id()));
    let deadline = Instant::now() + PATIENCE;
    let is_open = || {
        let links = fs::read_dir(&open_files).into_iter().flatten().flatten();
        links.filter_map(|link| fs::read_link(link.path()).ok()).any(|target| {
            target.starts_with(directory) && target.to_string_lossy().ends_with("(deleted)")
        })
    };
    while !is_open() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was at work");
        assert!(Instant::now() < deadline, "it did not begin");
        thread::sleep(Duration::from_millis(2));
    }
    child
}

fn free_bytes(path: &Path) -> u64 {
    haul_host::FileSystem::of(fs::File::open(path).unwrap()).unwrap().free_bytes.unwrap()
}

#[test]
fn after_kill_9_nothing_is_left_and_the_space_is_free_again() {
    let Some((_directory, mount)) = tmpfs("256m") else { return };
    let free_before = free_bytes(mount.path());
    let mut child = at_work(mount.path());
    assert!(names(mount.path()).is_empty(), "its file has no name while it is at work");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(mount.path()).is_empty());
    assert_eq!(free_bytes(mount.path()), free_before);
}

#[test]
fn ctrl_c_ends_it_at_once_with_nothing_left() {
    let directory = fresh();
    let path = fs::canonicalize(directory.path()).unwrap();
    let child = at_work(&path);
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("interrupted; nothing is left"), "{output:?}");
    assert!(names(&path).is_empty());
}

#[test]
fn memory_has_no_direct_way_and_says_so() {
    let Some((_directory, mount)) = tmpfs("512m") else { return };
    let lines = measured(mount.path(), &LITTLE);
    let disk = of_event(&lines, "disk")[0];
    assert_eq!(
        (disk["place"].as_str(), disk["file_system"].as_str()),
        (Some("memory"), Some("tmpfs"))
    );
    let refused = disk["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 2, "{disk}");
    for method in refused {
        let why = method["refused"].as_str().unwrap();
        assert!(why.contains("needs a disk, found tmpfs"), "{why}");
    }
    for line in lines.iter().filter(|line| line["event"] == "profile" || line["event"] == "cell") {
        assert_eq!(line["method"], "buffered");
        assert!(line["refused"].is_null(), "{line}");
    }
    let verdict = lines.last().unwrap()["sentences"].to_string();
    assert!(verdict.contains("There is no disk below"), "{verdict}");
}

#[test]
fn where_no_method_works_the_reason_stands_first_and_the_status_is_1() {
    let Some((_directory, mount)) = tmpfs("512m") else { return };
    let words = [&LITTLE[..], &["--methods=direct,io-uring"]].concat();
    let output = probe(mount.path(), &words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let out = text(&output.stdout);
    let first = out.lines().next().unwrap();
    assert!(first.starts_with("Nothing could be measured: direct needs a disk"), "{first}");
}

#[test]
fn without_io_uring_the_direct_way_is_measured_one_by_one() {
    let directory = fresh();
    let log = directory.path().with_extension("strace");
    let inject = "inject=io_uring_setup:error=EPERM";
    let mut command = Command::new("strace");
    command.args(["-D", "-f", "-o"]).arg(&log).args(["-e", "trace=io_uring_setup", "-e", inject]);
    command.arg(env!("CARGO_BIN_EXE_haul")).args(["probe", "disk"]).arg(directory.path());
    command.args(LITTLE).arg("--json");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip("strace", error.to_string()),
    };
    let injected = fs::read_to_string(&log).unwrap_or_default().contains("(INJECTED)");
    let _ = fs::remove_file(&log);
    if !injected {
        return skip("the right to trace", text(&output.stderr));
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines = objects(&output);
    let refused = &of_event(&lines, "disk")[0]["refused"][0];
    assert_eq!(refused["method"], "io-uring");
    assert!(refused["refused"].as_str().unwrap().contains("needs io_uring"), "{refused}");
    let is_direct = |line: &&Value| line["method"] == "direct" && line["refused"].is_null();
    assert_eq!(of_event(&lines, "profile").into_iter().filter(is_direct).count(), 2);
}

#[test]
fn a_file_system_without_preallocation_is_measured_through_a_loop_device() {
    let directory = fresh();
    let (path, image) = (directory.path().join("disk"), directory.path().join("image"));
    fs::create_dir(&path).unwrap();
    let mount = match Mount::ext2(&path, &image, 96 << 20) {
        Ok(mount) => mount,
        Err(why) => return skip("the right to mount an ext2", &why),
    };
    let lines = measured(mount.path(), &LITTLE);
    let disk = of_event(&lines, "disk")[0];
    assert_eq!(
        (disk["device"]["kind"].as_str(), disk["space_taken"].as_bool()),
        (Some("loop"), Some(false))
    );
    assert!(disk["device"]["model"].as_str().unwrap().ends_with("image"), "{disk}");
    assert!(of_event(&lines, "profile").iter().any(|line| line["refused"].is_null()));
}

/// Checks that nothing started: the status, the words, and with --json an error event with the
/// same.
#[track_caller]
fn cannot_start(directory: &Path, words: &[&str], says: &[&str]) {
    let output = probe(directory, words).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let err = text(&output.stderr);
    for part in says {
        assert!(err.contains(part), "{part}: {err}");
    }
    let output = probe(directory, &[words, &["--json"]].concat()).output().unwrap();
    let error = &objects(&output)[0];
    assert_eq!((output.status.code(), error["event"].as_str()), (Some(2), Some("error")));
}

#[test]
fn what_is_no_directory_is_named() {
    let directory = fresh();
    let file = directory.path().join("file");
    fs::write(&file, "a file").unwrap();
    cannot_start(&directory.path().join("nowhere"), &LITTLE, &["nowhere", "No such file"]);
    cannot_start(&file, &LITTLE, &["file", "Not a directory"]);
    let page = ["--html=nowhere/page.html"];
    cannot_start(directory.path(), &page, &["cannot write the page"]);
    assert_eq!(fs::read(&file).unwrap(), b"a file");
}

#[test]
fn a_disk_that_takes_nothing_or_has_no_room_is_said_with_what_it_needs() {
    let Some((_directory, mount)) = tmpfs("16m") else { return };
    let large = ["--size=1G"];
    cannot_start(mount.path(), &large, &["no room", "needs 1 GiB free", "found 16 MiB", "--size"]);
    fs::write(mount.path().join("others"), vec![1; 15 << 20]).unwrap();
    cannot_start(mount.path(), &[], &["no room", "free for one block twice", "another DIR"]);
    mount.make_read_only().unwrap();
    cannot_start(mount.path(), &LITTLE, &["the right to write there", "Read-only"]);
    assert_eq!(names(mount.path()).len(), 1);
}
