//! The real `haul tune`, which changes a system and sets it back, in a namespace of its own.
//!
//! The namespace has its own buffers, cards and queues. The program is killed at each of its steps,
//! and started where it may not change anything.

use crate::harness::{Place, as_nobody, far::Far, is_root, process::behind, server::Server};
use haul_testkit::{skip::skip, wan::Path};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    process::{Command, Output},
    time::Duration,
};

/// Name of the namespace's card; the other end of the pair is there too.
const CARD: &str = "haul-t0";
const OTHER: &str = "haul-t1";
/// Checks whose settings belong to a network namespace, so that the host's own are never touched.
const CHECKS: &str = "tcp-buffers,tcp-options,metrics-save,txqueuelen,mtu,offloads";
/// Number of steps beyond those of any run.
const STEPS_MAX: u32 = 60;

/// A network namespace with a pair of cards and settings that need tuning; removed when dropped.
struct Namespace {
    name: String,
}

impl Namespace {
    fn make() -> Result<Self, String> {
        if !is_root() {
            return Err("another user".to_owned());
        }
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("haul-tune-{}-{count}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let this = Self { name };
        for line in [
            &format!("ip link add {CARD} type veth peer name {OTHER}")[..],
            &format!("ip link set {CARD} up"),
            &format!("ip link set {OTHER} up"),
            "sysctl -qw net.ipv4.tcp_rmem=4096,131072,6291456",
            "sysctl -qw net.ipv4.tcp_wmem=4096,16384,4194304",
            "sysctl -qw net.ipv4.tcp_no_metrics_save=0",
            "sysctl -qw net.ipv4.tcp_sack=0",
            &format!("ethtool -K {CARD} gro off tso off"),
        ] {
            let words: Vec<String> = line.split(' ').map(|word| word.replace(',', " ")).collect();
            run(&mut this.enter(Command::new(&words[0]).args(&words[1..])))?;
        }
        Ok(this)
    }

    /// Command that runs another inside the namespace.
    fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.name]).arg(command.get_program());
        inside.args(command.get_args());
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }

    /// Settings of the namespace that the checks could change.
    fn settings(&self) -> String {
        let script = format!(
            "cd /proc/sys/net/ipv4; grep -H . tcp_* 2>/dev/null; cat /sys/class/net/*/mtu \
             /sys/class/net/*/tx_queue_len; ethtool -k {CARD}; ethtool -k {OTHER}; \
             tc qdisc show; sysctl net.core 2>/dev/null"
        );
        let output = self.enter(Command::new("sh").args(["-c", &script])).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // A count that grows by itself, and a key that is made at the first look.
        let is_setting = |line: &&str| !line.contains("fastopen_key") && !line.contains("backlog");
        text.lines().filter(is_setting).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run(Command::new("ip").args(["netns", "delete", &self.name]));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Command of `haul tune WORDS` with the ledger and the files for the next boot in the place.
fn tune(place: &Place, words: &[&str]) -> Command {
    let ledger = place.path("ledger");
    let mut all: Vec<OsString> = words!["tune", "--ledger", ledger];
    all.extend(words.iter().map(OsString::from));
    place.command(&all)
}

fn apply(place: &Place, checks: &str) -> Command {
    let boot = place.path("boot");
    fs::create_dir_all(&boot).unwrap();
    let (apply, boot) = (format!("--apply={checks}"), boot.to_str().unwrap().to_owned());
    tune(place, &["--nic", CARD, "--rate", "10G", &apply, "--boot-root", &boot])
}

/// Objects that a run printed, and nothing but lines of JSON.
#[track_caller]
fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn ok(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_is_applied_is_seen_in_the_system_and_set_back_exactly() {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(why) => return skip("root, ip(8), ethtool(8) and sysctl(8)", &why),
    };
    let place = Place::new();
    let before = namespace.settings();
    let applied = namespace.enter(apply(&place, CHECKS).arg("--json")).output().unwrap();
    ok(&applied);
    let changes: Vec<Value> =
        lines(&applied).into_iter().filter(|line| line["event"] == "change").collect();
    assert!(changes.len() >= 5, "{applied:?}");
    let after = namespace.settings();
    for words in ["tcp_rmem:4096\t131072\t33554432", "tcp_no_metrics_save:1", "tcp_sack:1"] {
        assert!(!before.contains(words) && after.contains(words), "{words} not in {after}");
    }
    let sysctl = fs::read_to_string(place.path("boot/etc/sysctl.d/90-haul-dtn.conf")).unwrap();
    assert!(sysctl.contains("\nnet.ipv4.tcp_rmem = 4096 131072 33554432\n"), "{sysctl}");

    // Once more, and there is nothing to do.
    let again = namespace.enter(apply(&place, CHECKS).arg("--json")).output().unwrap();
    ok(&again);
    assert!(lines(&again).iter().all(|line| line["event"] != "change"), "{again:?}");
    assert_eq!(namespace.settings(), after);

    let undone = namespace.enter(tune(&place, &["--undo"]).arg("--json")).output().unwrap();
    ok(&undone);
    assert_eq!(namespace.settings(), before);
    let left: Vec<_> = haul_testkit::tree::names(&place.path("boot")).unwrap();
    let files: Vec<_> =
        left.iter().filter(|name| place.path("boot").join(name).is_file()).collect();
    assert!(files.is_empty(), "{files:?}");
    let nothing = namespace.enter(&tune(&place, &["--undo"])).output().unwrap();
    ok(&nothing);
    assert!(String::from_utf8_lossy(&nothing.stdout).starts_with("Nothing to set back"));
}

#[test]
fn a_run_killed_at_any_of_its_steps_is_told_and_undone() {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(why) => return skip("root, ip(8), ethtool(8) and sysctl(8)", &why),
    };
    let before = namespace.settings();
    let mut told = 0;
    for step in 1..=STEPS_MAX {
        let place = Place::new();
        // Each step is on the disk before it is made, so each of these calls begins one.
        let inject = format!("inject=fdatasync:signal=KILL:when={step}");
        let traced =
            words!["strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync", "-e", inject];
        let killed = behind(&traced, apply(&place, CHECKS));
        let output = match namespace.enter(&killed).output() {
            Ok(output) => output,
            Err(error) => return skip("strace(1)", error.to_string()),
        };
        let came_to_its_end = output.status.success();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if words.contains("strace:") && !words.contains("killed by SIGKILL") {
            return skip("strace(1) that may trace", &words);
        }
        let audit = namespace.enter(&tune(&place, &["--nic", CARD])).output().unwrap();
        ok(&audit);
        let says = String::from_utf8_lossy(&audit.stdout).into_owned();
        let is_told = says.contains("was broken off in the middle");
        // Killed when the ledger had its last line, nothing was left to be done.
        assert!(is_told || says.contains("are as haul tune set them"), "step {step}: {says}");
        assert!(!(is_told && came_to_its_end), "{says}");
        told += u32::from(is_told);
        ok(&namespace.enter(&tune(&place, &["--undo"])).output().unwrap());
        assert_eq!(namespace.settings(), before, "killed at step {step}");
        if came_to_its_end {
            assert!(told >= 5 && told + 2 >= step, "{told} of {step} steps were told");
            return;
        }
    }
    panic!("more than {STEPS_MAX} steps");
}

#[test]
fn at_the_first_failure_all_of_the_run_is_set_back() {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(why) => return skip("root, ip(8), ethtool(8) and sysctl(8)", &why),
    };
    let place = Place::new();
    let before = namespace.settings();
    let path = "/proc/sys/net/ipv4/tcp_no_metrics_save";
    let traced = words![
        "strace",
        "-f",
        "-o",
        "/dev/null",
        "-P",
        path,
        "-e",
        "trace=write",
        "-e",
        "inject=write:error=EIO:when=1"
    ];
    let command = behind(&traced, apply(&place, "tcp-buffers,metrics-save"));
    let output = match namespace.enter(&command).output() {
        Ok(output) => output,
        Err(error) => return skip("strace(1)", error.to_string()),
    };
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if words.contains("strace:") {
        return skip("strace(1) that may trace", &words);
    }
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(words.contains(path) && words.contains("were set back"), "{words}");
    assert_eq!(namespace.settings(), before);
    let nothing = namespace.enter(&tune(&place, &["--undo"])).output().unwrap();
    assert!(String::from_utf8_lossy(&nothing.stdout).starts_with("Nothing to set back"));
}

#[test]
fn the_script_of_a_dry_run_does_what_apply_does() {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(why) => return skip("root, ip(8), ethtool(8) and sysctl(8)", &why),
    };
    let place = Place::new();
    let before = namespace.settings();
    let script = namespace.enter(apply(&place, CHECKS).arg("--dry-run")).output().unwrap();
    ok(&script);
    assert_eq!(namespace.settings(), before, "a dry run changes nothing");
    ok(&namespace.enter(&apply(&place, CHECKS)).output().unwrap());
    let applied = namespace.settings();
    let back = namespace.enter(tune(&place, &["--undo"]).arg("--dry-run")).output().unwrap();
    let run_script = |script: &Output| {
        let text = String::from_utf8_lossy(&script.stdout).into_owned();
        run(&mut namespace.enter(Command::new("sh").args(["-c", &text]))).unwrap();
    };
    run_script(&back);
    assert_eq!(namespace.settings(), before);
    run_script(&script);
    assert_eq!(namespace.settings(), applied);
}

#[test]
fn settings_that_belong_to_the_host_are_said_to_be_its() {
    let namespace = match Namespace::make() {
        Ok(namespace) => namespace,
        Err(why) => return skip("root, ip(8), ethtool(8) and sysctl(8)", &why),
    };
    let place = Place::new();
    // As in a container: nobody here may write below /proc/sys.
    let words =
        words!["unshare", "-m", "sh", "-c", "mount -o bind,ro /proc/sys /proc/sys && \"$@\"", "sh"];
    let output = namespace.enter(&behind(&words, tune(&place, &["--json"]))).output().unwrap();
    ok(&output);
    let of_tcp = |line: &&Value| line["check"] == "tcp-buffers" && line["state"] == "improve";
    let all = lines(&output);
    let findings: Vec<&Value> = all.iter().filter(of_tcp).collect();
    assert!(!findings.is_empty(), "{output:?}");
    for finding in findings {
        assert_eq!(finding["needs"], "container-host", "{finding}");
        assert_eq!(finding["changes"], serde_json::json!([]), "{finding}");
    }
}

#[test]
fn a_card_that_is_not_there_is_a_finding() {
    let place = Place::new();
    let output = tune(&place, &["--nic", "no-such-card", "--json"]).output().unwrap();
    ok(&output);
    let lines = lines(&output);
    let about = |line: &&Value| line["check"] == "card" && line["subject"] == "no-such-card";
    assert!(lines.iter().any(|line| about(&line)), "{output:?}");
    assert_eq!(lines.last().unwrap()["event"], "report");
}

#[test]
fn with_a_server_the_path_and_the_peer_are_told_too() {
    let place = Place::new();
    let server = Server::start(&place);
    let output = tune(&place, &[server.url("").to_str().unwrap(), "--json"]).output().unwrap();
    ok(&output);
    let lines = lines(&output);
    let named = |name: &str| lines.iter().filter(|line| line["event"] == name).collect::<Vec<_>>();
    assert_eq!(named("path")[0]["path"]["passes_to_server_bytes"], 65535);
    assert!(named("peer")[0]["score"].as_u64().unwrap() <= 100);
    let (own, of_peer) = (named("finding"), named("peer_finding"));
    // One host is both, so both find the same.
    assert_eq!(own.len(), of_peer.len());
    for key in ["check", "subject", "state", "wanted"] {
        assert!(own.iter().zip(&of_peer).all(|(own, peer)| own[key] == peer[key]), "{key}");
    }
}

#[test]
fn a_change_that_helps_is_kept_and_another_is_set_back() {
    let place = Place::new();
    let path = Path::new(Duration::from_millis(40), 500_000_000, 0.0);
    let Some(far) = Far::start(&place, path) else { return };
    let near = |script: &str| {
        let output = far.wan.near(Command::new("sh").args(["-c", script])).output().unwrap();
        ok(&output);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // 256 KiB at 40 ms are some 50 Mbit/s.
    near(
        "sysctl -qw net.ipv4.tcp_wmem='4096 16384 262144' net.ipv4.tcp_rmem='4096 16384 262144' \
         net.ipv4.tcp_no_metrics_save=0",
    );
    let shown = "sysctl -n net.ipv4.tcp_wmem net.ipv4.tcp_rmem net.ipv4.tcp_no_metrics_save";
    let before = near(shown);
    let measured = tune(
        &place,
        &[
            "--apply=tcp-buffers,metrics-save",
            "--rate=1G",
            "--measure",
            "--measure-time=1s",
            "--this-boot",
            "--json",
            far.url(),
        ],
    );
    let output = far.wan.near(&measured).output().unwrap();
    ok(&output);
    let lines = lines(&output);
    let kept = |check: &str| {
        let line = lines.iter().find(|line| line["event"] == "measured" && line["check"] == check);
        line.unwrap_or_else(|| panic!("no {check} in {output:?}"))["kept"].as_bool().unwrap()
    };
    assert!(kept("tcp-buffers"), "{output:?}");
    let after = near(shown);
    assert!(after.contains("33554432"), "{after}");
    // What does not help is as it was; whether it does is for the path to say.
    assert_eq!(after.trim().ends_with('1'), kept("metrics-save"), "{after} {output:?}");
    ok(&far.wan.near(&tune(&place, &["--undo"])).output().unwrap());
    assert_eq!(near(shown), before);
}

#[test]
fn a_user_without_rights_is_told_what_needs_them() {
    let place = Place::new();
    if !place.open_to_nobody(&[]) {
        return skip("root, and a program that others may run", "another user");
    }
    let mut audit = tune(&place, &["--json"]);
    as_nobody(&mut audit);
    ok(&audit.output().unwrap());
    let mut command = tune(&place, &["--apply=metrics-save,tcp-buffers,backlog", "--this-boot"]);
    as_nobody(&mut command);
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        // A host that is tuned already.
        assert!(String::from_utf8_lossy(&output.stdout).contains("Nothing had to be changed"));
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(words.contains("root") && words.contains("--dry-run"), "{words}");
}

#[test]
fn mistakes_on_the_command_line_are_named() {
    let place = Place::new();
    for (words, expected) in [
        (&["--apply=no-such-check", "--this-boot"][..], "there is no check \"no-such-check\""),
        (&["--explain", "rnigs"], "Choose among"),
        (&["--rate", "fast"], "bits a second"),
        (&["--rtt", "far"], "round trip time"),
        (&["--undo", "--apply"], "cannot be used with"),
    ] {
        let output = tune(&place, words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let says = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(says.contains(expected), "{expected} not in {says}");
    }
}
