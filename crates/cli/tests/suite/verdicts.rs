//! Verdicts: each stage made the bottleneck in turn.
//!
//! The report and the intervals must name it, with something to do about it. Most need root.

use crate::harness::{
    Place,
    far::Far,
    process::{Haul, Ran, behind},
    server::{Server, ServerSetup},
};
use haul_testkit::{disk_limit::DiskLimit, mount::Mount, skip::skip, strace::Strace, wan::Path};
use serde_json::Value;
use std::{
    ffi::OsString,
    process::{Child, Command, Stdio},
    time::Duration,
};

const MIB: u64 = 1 << 20;
/// Share of time that threads with a core to themselves may wait for it: beyond, the machine is too
/// busy.
const BUSY_SHARE: f64 = 0.25;
/// Share of the processors that a hypervisor may take: beyond, what ran just then seems slow by
/// itself.
const STOLEN_SHARE: f64 = 0.1;
const RTT: Duration = Duration::from_millis(40);

/// Checks that the report and more than half of the intervals name the stage, and that the advice
/// holds these words.
#[track_caller]
fn assert_verdict(ran: &Ran, stage: &str, advice: &[&str]) {
    ran.ok();
    let bottleneck = &ran.report()["bottleneck"];
    println!("{bottleneck}\n{}", ran.report()["stages"]);
    assert_eq!(bottleneck["stage"], stage, "{ran:?}");
    let remedy = bottleneck["remedy"].as_str().unwrap();
    for words in advice {
        assert!(remedy.contains(words), "not about {words}: {remedy}");
    }
    let verdict = bottleneck["verdict"].as_str().unwrap();
    assert!(verdict.ends_with(remedy) && verdict.contains("of the time"), "{verdict}");
    assert_ne!(bottleneck["next_stage"], stage);
    let share = |key: &str| bottleneck[key].as_f64().unwrap();
    let is_limit = stage == "limit";
    assert!(is_limit || share("next_share") <= share("share"), "{bottleneck}");
    assert!(!verdict.contains("allow") || verdict.contains("allows at most "), "{verdict}");
    let intervals = ran.named("progress");
    let limits: Vec<&Value> = intervals.iter().map(|line| &line["limiting"]).collect();
    let told: Vec<&Value> = limits.into_iter().filter(|limiting| !limiting.is_null()).collect();
    let right = told.iter().filter(|limiting| limiting["stage"] == stage).count();
    // A host may be so fast that a run is over within its second interval, or its first. The first
    // begins with the session.
    let seconds = ran.report()["seconds"].as_f64().unwrap();
    let due = (seconds - 0.5).clamp(0.0, 2.0).floor() as usize;
    assert!(told.len() >= due, "too few intervals: {ran:?}");
    assert!(told.is_empty() || right * 2 > told.len(), "{right} of {}: {told:?}", told.len());
}

/// The share of a stage in the report.
fn share(ran: &Ran, stage: &str) -> f64 {
    let stages = ran.report()["stages"].as_array().unwrap();
    let of_stage = stages.iter().find(|pair| pair[0] == stage);
    of_stage.map_or(0.0, |pair| pair[1].as_f64().unwrap())
}

/// Pushes from a disk that is limited to 8 MiB a second, and checks that it is named.
fn from_slow_disk(engine: Option<&str>) {
    const RATE: u64 = 8 * MIB;
    let place = Place::new();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = match Mount::ext4(&disk, &place.path("image"), 128 * MIB) {
        Ok(mount) => mount,
        Err(why) => return skip("root and loop devices", &why),
    };
    place.file(&disk.join("file"), 4 * RATE);
    // Nothing of it is in the page cache afterwards.
    mount.mount_again().unwrap();
    let limit = match DiskLimit::of_reads(&disk, RATE) {
        Ok(limit) => limit,
        Err(why) => return skip("root and control groups that limit disks", &why),
    };
    let server = Server::start(&place);
    let mut words = words!["push", disk.join("file"), server.url(""), "--json"];
    if let Some(engine) = engine {
        words.extend(words!["--send-engine", engine]);
    }
    let client = Haul::start(behind(&limit.words(), place.command(&words)));
    let ran = client.finish();
    assert_verdict(&ran, "source_disk", &["source disk", "page cache"]);
}

#[test]
fn a_slow_source_disk_is_named_with_the_engine_of_haul_s_choice() {
    from_slow_disk(None);
}

/// The digest of pages that sendfile sends: it maps them, and waits for the disk in its place.
#[test]
fn a_slow_source_disk_is_named_where_the_digest_waits_for_it() {
    from_slow_disk(Some("sendfile"));
}

/// Runs a push to a server, or a pull from it, of which certain calls take longer than they would.
fn with_slow_calls(command: &str, fault: &str, size_bytes: u64, words: &[OsString]) -> Option<Ran> {
    let place = Place::new();
    place.file(&place.source("file"), size_bytes);
    place.file(&place.root("there"), size_bytes);
    let server = Server::start(&place);
    let log = place.path("strace");
    let slow = match Strace::attach(server.process.id(), fault, None, &log) {
        Ok(slow) => slow,
        Err(why) => {
            skip("strace and the right to trace", &why);
            return None;
        }
    };
    let ends = match command {
        "push" => words![command, place.source("file"), server.url("")],
        _ => words![command, server.url("there"), place.target("")],
    };
    let ran = place.run(&[&ends, words].concat());
    let _ = slow.detach();
    Some(ran)
}

#[test]
fn a_slow_target_disk_is_named() {
    let words = words!["--receive-engine", "read-write", "--streams", "1"];
    // Of a block of 1 MiB.
    let fault = "pwrite64:delay_exit=100000";
    let Some(ran) = with_slow_calls("push", fault, 40 * MIB, &words) else { return };
    assert_verdict(&ran, "target_disk", &["target disk"]);
}

/// Findings of a server, which come to the client while it pulls.
#[test]
fn a_server_s_slow_source_disk_is_named_to_who_pulls() {
    let words = words!["--send-engine", "read-write", "--streams", "1"];
    let fault = "pread64:delay_exit=100000";
    let Some(ran) = with_slow_calls("pull", fault, 40 * MIB, &words) else { return };
    assert_verdict(&ran, "source_disk", &["source disk", "page cache"]);
}

#[test]
fn a_slow_sync_is_named() {
    let Some(ran) =
        with_slow_calls("push", "fdatasync,fsync,syncfs:delay_exit=4000000", 8 * MIB, &[])
    else {
        return;
    };
    assert_verdict(&ran, "sync", &["synced writes"]);
}

#[test]
fn a_slow_reading_back_is_named() {
    let words = words!["--verify-target"];
    let Some(ran) = with_slow_calls("push", "pread64,preadv2:delay_exit=500000", 8 * MIB, &words)
    else {
        return;
    };
    assert_verdict(&ran, "read_back", &["--verify-target"]);
}

/// A setting of a kernel at one end of a path.
enum At<'a> {
    Near(&'a str),
    Far(&'a str),
}

/// Starts a server at the far end of a path, with settings of the kernels at its ends.
fn far_with(place: &Place, path: Path, settings: &[At<'_>]) -> Option<Far> {
    let far = Far::start(place, path)?;
    for setting in settings {
        let mut sysctl = Command::new("sysctl");
        let (At::Near(words) | At::Far(words)) = setting;
        sysctl.args(["-q", "-w", words]);
        let mut sysctl = match setting {
            At::Near(_) => far.wan.near(&sysctl),
            At::Far(_) => far.wan.far(&sysctl),
        };
        if !sysctl.status().is_ok_and(|status| status.success()) {
            skip("sysctl(8)", "none, or it refuses");
            return None;
        }
    }
    Some(far)
}

/// Runs a push over a path with settings at its ends.
fn over(path: Path, settings: &[At<'_>], size_bytes: u64) -> Option<Ran> {
    let place = Place::new();
    let far = far_with(&place, path, settings)?;
    place.file(&place.source("file"), size_bytes);
    let words = words!["push", place.source("file"), far.url(), "--streams", "1"];
    Some(far.run(&place, &words))
}

#[test]
fn a_small_receive_window_is_named() {
    let path = Path::new(RTT, 1_000_000_000, 0.0);
    let small = "net.ipv4.tcp_rmem=4096 131072 131072";
    // BBR's congestion window, of what it measures, comes close to the receiver's and is now and
    // then the smaller; reno's grows past it.
    let reno = "net.ipv4.tcp_congestion_control=reno";
    let Some(ran) = over(path, &[At::Far(small), At::Near(reno)], 6 * MIB) else { return };
    assert_verdict(&ran, "receiver_window", &["net.ipv4.tcp_rmem at the receiver", "MiB"]);
}

#[test]
fn a_small_send_buffer_is_named() {
    let path = Path::new(RTT, 1_000_000_000, 0.0);
    let small = "net.ipv4.tcp_wmem=4096 16384 32768";
    let Some(ran) = over(path, &[At::Near(small)], 3 * MIB) else { return };
    assert_verdict(&ran, "send_buffer", &["net.ipv4.tcp_wmem at the sender", "MiB"]);
}

#[test]
fn a_small_send_buffer_is_named_where_the_kernel_counts_none() {
    let path = Path::new(RTT, 1_000_000_000, 0.0);
    let small = "net.ipv4.tcp_wmem=4096 16384 32768";
    // It does not pace: each sendfile(2) is in flight before it waits for room.
    let reno = "net.ipv4.tcp_congestion_control=reno";
    let Some(ran) = over(path, &[At::Near(small), At::Near(reno)], 16 * MIB) else { return };
    assert_verdict(&ran, "send_buffer", &["net.ipv4.tcp_wmem at the sender", "MiB"]);
}

/// Verdicts of a push, which named the buffer, and of the probe, which named the congestion window.
#[test]
fn a_probe_names_a_small_send_buffer_as_a_push_does() {
    let path = Path::new(RTT, 1_000_000_000, 0.0);
    let small = "net.ipv4.tcp_wmem=4096 16384 32768";
    // It does not pace, so that the kernel counts no full buffer.
    let reno = "net.ipv4.tcp_congestion_control=reno";
    let place = Place::new();
    let settings = [At::Near(small), At::Near(reno)];
    let Some(far) = far_with(&place, path, &settings) else { return };
    let options = words!["--streams", "1", "--time", "3s", "--omit", "1s", "--no-path-mtu"];
    let ran = far.run(&place, &[words!["probe", "net", far.url()], options].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    let verdict = &ran.report()["verdict"];
    assert_eq!(verdict["limit"], "send_buffer", "{ran:?}");
    assert!(verdict["advice"].as_str().unwrap().contains("tcp_wmem at the sender"), "{verdict}");
}

#[test]
fn a_slow_link_is_named() {
    // The path and its queue hold less than the window that a receiver offers at first.
    let path = Path { queue_bytes: 32 << 10, ..Path::new(RTT, 4_000_000, 0.0) };
    let Some(ran) = over(path, &[], 2 * MIB) else { return };
    assert_verdict(&ran, "network", &[]);
    let remedy = ran.report()["bottleneck"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("link") && remedy.contains("--streams") || remedy.contains("lost"));
}

#[test]
fn loss_is_named_with_its_share() {
    let path = Path::new(RTT, 8_000_000, 0.03);
    // What waits behind a lost packet fills the window that a receiver offers at first, which
    // would then be the limit.
    let wide = "net.ipv4.tcp_rmem=4096 8388608 33554432";
    let Some(ran) = over(path, &[At::Far(wide)], 4 * MIB) else { return };
    assert_verdict(&ran, "network", &["packets are lost", "% of the bytes went out again"]);
}

/// Processes that use up a core for some seconds, ended when dropped.
struct Busy(Vec<Child>);

impl Busy {
    /// Starts processes on a core; `None` without timeout(1) or taskset(1).
    fn on_core(core: &str, count: usize) -> Option<Self> {
        let mut busy = Self(Vec::new());
        for _ in 0..count {
            let mut command = Command::new("timeout");
            command.args(["20", "taskset", "-c", core, "sh", "-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().ok()?;
            std::thread::sleep(Duration::from_millis(50));
            let has_ended = !matches!(child.try_wait(), Ok(None));
            busy.0.push(child);
            if has_ended {
                return None;
            }
        }
        Some(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // timeout(1) passes SIGTERM on to what it runs; SIGKILL would leave that alone.
            let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(id) = id {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            }
            let _ = child.wait();
        }
    }
}

/// Pushes zeros to a server that throws them away, one of both on core 0 with others.
fn on_a_shared_core(shared: &str) -> Option<Ran> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        skip("2 cores", "1");
        return None;
    }
    let place = Place::new();
    let Some(_busy) = Busy::on_core("0", 4) else {
        skip("taskset(1) and timeout(1)", "none that runs on core 0");
        return None;
    };
    let pin = |side: &str| {
        if side == shared {
            words!["taskset", "-c", "0"]
        } else {
            words!["nice", "-n", "-20", "taskset", "-c", "1"]
        }
    };
    let server = ServerSetup::new(&place).root("null:").behind(&pin("target")).start(&place);
    let words = words!["push", "zero:4G", server.url(""), "--streams", "1", "--json"];
    let ran = Haul::start(behind(&pin("source"), place.command(&words))).finish();
    ran.ok();
    let other = if shared == "source" { "target_run_queue" } else { "source_run_queue" };
    let queued = share(&ran, other);
    if queued > BUSY_SHARE {
        skip("core 1 idle", format!("a thread that waited {queued} of the time for it"));
        return None;
    }
    Some(ran)
}

#[test]
fn a_sender_that_shares_its_core_is_named() {
    let Some(ran) = on_a_shared_core("source") else { return };
    assert_verdict(&ran, "source_run_queue", &["cores of its own"]);
}

#[test]
fn a_receiver_that_shares_its_core_is_named() {
    let Some(ran) = on_a_shared_core("target") else { return };
    assert_verdict(&ran, "target_run_queue", &["cores of its own"]);
}

/// Time of all processors so far and what a hypervisor gave to others of it (proc_stat(5)), in
/// ticks.
fn ticks() -> (f64, f64) {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    (ticks.iter().sum(), ticks.get(7).copied().unwrap_or(0.0))
}

#[test]
fn a_digest_that_takes_most_is_named() {
    let place = Place::new();
    // Before others; without root only as they are.
    let first = words!["nice", "-n", "-20"];
    let server = ServerSetup::new(&place).root("null:").behind(&first).start(&place);
    let (url, manifest) = (server.url(""), place.path("manifest"));
    let words = words!["push", "zero:6G", url, "--streams", "1", "--manifest", manifest, "--json"];
    let before = ticks();
    let ran = Haul::start(behind(&first, place.command(&words))).finish();
    let after = ticks();
    ran.ok();
    let queued = share(&ran, "source_run_queue") + share(&ran, "target_run_queue");
    if queued > BUSY_SHARE && ran.report()["bottleneck"]["stage"] != "source_digest" {
        return skip("cores that are idle", format!("threads that waited {queued} for one"));
    }
    let stolen = (after.1 - before.1) / (after.0 - before.0).max(1.0);
    if stolen > STOLEN_SHARE {
        return skip(
            "cores that no hypervisor gives to others",
            format!("{stolen:.2} of them taken"),
        );
    }
    assert_verdict(&ran, "source_digest", &["--protection clear", "--manifest"]);
}

#[test]
fn a_rate_limit_says_so_itself() {
    let place = Place::new();
    place.file(&place.source("file"), 48 * MIB);
    let server = Server::start(&place);
    let words = words![place.source("file"), server.url(""), "--bwlimit", "12M"];
    assert_verdict(&place.push(&words), "limit", &["--bwlimit"]);
}
