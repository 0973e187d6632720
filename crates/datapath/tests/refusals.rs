//! Engines without io_uring, locked memory, O_DIRECT or root: each works or says why not.
//!
//! Each condition is that of a child process, which is this program again: it moves files with
//! every engine, checks the bytes, and prints each change of engines.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    os::unix::{
        fs::{FileExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use haul_datapath::{Buffers, EngineInfo, Host, IfCopied, SpanFile, Verdict, engines};
use haul_testkit::{content, mount::Mount, seed::Seed, skip::skip};
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

mod stream;

use stream::{BUFFERS, SocketBuffers, Tapped, check_all_done, receivers, run_with, senders, span};

/// Variable with the directory where the child moves its files; without it the test binary is
/// nobody's child.
const DIRECTORY: &str = "HAUL_REFUSALS_DIRECTORY";
/// Variable with the child's RLIMIT_MEMLOCK.
const MEMLOCK: &str = "HAUL_REFUSALS_MEMLOCK_BYTES";
/// Name of the test below, which the child runs.
const CHILD: &str = "every_engine_moves_every_byte_or_says_why_another_does";
/// Length of the file, less than a window of what an engine bears in vain: other reasons are looked
/// for here.
const LEN: u64 = 3_000_017;
/// The user nobody, on the distributions in use.
const NOBODY: u32 = 65_534;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn every_engine_moves_every_byte_or_says_why_another_does() {
    if let Ok(bytes) = std::env::var(MEMLOCK) {
        let bytes = bytes.parse().unwrap();
        let maximum = getrlimit(Resource::Memlock).maximum.map_or(bytes, |most| most.min(bytes));
        let limit = Rlimit { current: Some(bytes.min(maximum)), maximum: Some(maximum) };
        setrlimit(Resource::Memlock, limit).unwrap();
    }
    let directory = std::env::var_os(DIRECTORY)
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let read_write = engines::find("read-write").unwrap();
    for info in senders().into_iter().filter(|info| info.takes_tcp()) {
        round_trip(&directory, info, read_write);
    }
    for info in receivers().into_iter().filter(|info| info.takes_tcp()) {
        round_trip(&directory, read_write, info);
    }
}

/// Moves a file below `directory`, each engine with read-write behind it, and prints what gave up.
fn round_trip(directory: &Path, sender: &'static EngineInfo, receiver: &'static EngineInfo) {
    let seed = Seed::from_env_or_random();
    // Under a name, as other accounts may not open what has none by /proc/self/fd.
    let named = |name: &str| {
        let path = directory.join(name);
        let options = &mut File::options();
        options.read(true).write(true).create(true).truncate(true).open(&path).unwrap()
    };
    let (source, target) = (named("source"), named("target"));
    content::fill(&source, seed, LEN).unwrap();
    let (source, target) = (Arc::new(SpanFile::new(source)), Arc::new(SpanFile::new(target)));
    let cuts = [(0, 1_000_000), (1_000_000, 1_500_001), (2_500_001, LEN - 2_500_001)];
    let spans = |file| {
        let numbered = cuts.iter().zip(1..);
        numbered.map(|((at, len), id)| span(id, file, *at, *len)).collect::<Vec<_>>()
    };
    let (from, into) = (spans(&source), spans(&target));
    let read_write = engines::find("read-write").unwrap();
    let memory = Buffers { if_copied: IfCopied::GiveUp, ..BUFFERS };
    let (sent, received) = run_with(
        memory,
        vec![sender, read_write],
        vec![receiver, read_write],
        &from,
        &into,
        Tapped::Yes,
        SocketBuffers::Automatic,
    );
    check_all_done(&from, &sent);
    check_all_done(&into, &received);
    let content = content::bytes(seed, LEN as usize);
    let mut arrived = vec![0; LEN as usize];
    target.file().read_exact_at(&mut arrived, 0).unwrap();
    assert!(arrived == content, "{} -> {}: the target differs", sender.name, receiver.name);
    for seen in [&sent.seen, &received.seen] {
        assert!(seen.concat() == content, "{} -> {}: a tap", sender.name, receiver.name);
    }
    for fallback in sent.fallbacks.iter().chain(&received.fallbacks) {
        println!("fallback of {}: {}", fallback.from, fallback.why.replace('\n', " "));
    }
    fs::remove_file(directory.join("source")).unwrap();
    fs::remove_file(directory.join("target")).unwrap();
}

/// A child process, ended and waited for when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Runs `command`, which runs the child, to its end; returns the lines that tell of changes.
fn fallbacks_of(mut command: Command, directory: &Path) -> Vec<String> {
    let mut output = tempfile::tempfile().unwrap();
    command.env(DIRECTORY, directory).env_remove(haul_testkit::skip::LOG_VARIABLE);
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap());
    command.stderr(output.try_clone().unwrap());
    let begun = Instant::now();
    let mut child = loop {
        match command.spawn() {
            // A process that another test forks meanwhile has the copy of this program open to
            // write, until it runs its own.
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy
                    && begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            spawned => break Ended(spawned.unwrap()),
        }
    };
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(child);
    let mut said = String::new();
    std::io::Seek::rewind(&mut output).unwrap();
    std::io::Read::read_to_string(&mut output, &mut said).unwrap();
    assert!(status.is_some_and(|status| status.success()), "{status:?}:\n{said}");
    assert!(said.contains("1 passed"), "the child ran no test:\n{said}");
    let lines = said.lines().filter(|line| line.starts_with("fallback of "));
    lines.map(str::to_owned).collect()
}

fn child_words() -> [OsString; 3] {
    ["--exact", CHILD, "--nocapture"].map(OsString::from)
}

/// Words of an engine when it gave up; empty if it did not.
fn said_by<'lines>(lines: &'lines [String], engine: &str) -> Vec<&'lines str> {
    let begin = format!("fallback of {engine}: ");
    lines.iter().filter_map(|line| line.strip_prefix(begin.as_str())).collect()
}

/// Checks that every reason says what is needed and what was found.
fn check_reasons(lines: &[String]) {
    for line in lines {
        println!("{line}");
        assert!(line.contains("needs ") && line.contains("found "), "{line}");
    }
}

/// A directory on the disk of this project.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

#[test]
fn without_io_uring_only_its_own_engine_gives_up() {
    let directory = directory();
    let log = directory.path().join("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=io_uring_setup"]);
    // As kernel.io_uring_disabled does, and the seccomp profiles of containers.
    command.args(["-e", "inject=io_uring_setup:error=EPERM", "-o"]).arg(&log);
    let works = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        return skip("strace and the right to trace", "none");
    }
    command.arg(std::env::current_exe().unwrap()).args(child_words());
    let lines = fallbacks_of(command, directory.path());
    check_reasons(&lines);
    assert!(fs::read_to_string(&log).unwrap().contains("(INJECTED)"), "nothing was refused");
    let said = said_by(&lines, "io-uring");
    assert_eq!(said.len(), 2, "it sends and receives: {lines:?}");
    for why in said {
        assert!(why.starts_with("needs io_uring, found that io_uring_setup(2) fails"), "{why}");
        assert!(why.contains("kernel.io_uring_disabled") && why.contains("seccomp"), "{why}");
    }
    // It reads by a thread then.
    let others = said_by(&lines, "zerocopy-send");
    assert!(!others.iter().any(|why| why.contains("io_uring")), "{others:?}");
}

#[test]
fn a_host_that_has_switched_io_uring_off_is_told_by_the_probe() {
    let off = Host { io_uring_disabled: true, ..stream::host() };
    for info in engines::ENGINES {
        let verdict = (info.probe)(&off);
        if info.name == "io-uring" {
            let Verdict::Refused { needs, found } = verdict else { panic!("{verdict:?}") };
            assert!(needs.contains("kernel.io_uring_disabled = 0"), "{needs}");
            assert!(found.contains("forbids io_uring"), "{found}");
        } else {
            assert_eq!(verdict, (info.probe)(&stream::host()), "{}", info.name);
        }
    }
}

#[test]
fn an_old_kernel_is_named_by_those_that_need_a_newer_one() {
    let old = Host { kernel: (4, 9), ..stream::host() };
    for name in ["zerocopy-send", "zerocopy-receive", "dontcache"] {
        let verdict = (engines::find(name).unwrap().probe)(&old);
        let Verdict::Refused { needs, found } = verdict else { panic!("{name}: {verdict:?}") };
        assert!(needs.starts_with("Linux ") && found.contains("4.9"), "{name}: {needs}, {found}");
    }
}

#[test]
fn where_files_have_no_o_direct_those_that_need_it_say_so() {
    let directory = directory();
    let place = directory.path().join("ramfs");
    fs::create_dir(&place).unwrap();
    let _mount = match Mount::ramfs(&place) {
        Ok(mount) => mount,
        Err(why) => return skip("the right to mount a ramfs", &why),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(child_words());
    let lines = fallbacks_of(command, &place);
    check_reasons(&lines);
    for (name, times) in [("direct", 2), ("io-uring", 2), ("zerocopy-send", 1)] {
        let said = said_by(&lines, name);
        assert_eq!(said.len(), times, "{name}: {lines:?}");
        for why in said {
            assert!(why.contains("needs a file that can be opened with O_DIRECT"), "{why}");
        }
    }
    for name in ["read-write", "mmap", "sendfile", "splice"] {
        assert!(said_by(&lines, name).is_empty(), "{lines:?}");
    }
}

/// Lock of the tests that lock memory: all that an account has locked counts for the limit of each
/// of its processes.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs the child as nobody, with this limit of locked memory. `None` without root.
fn as_nobody(memlock_bytes: Option<u64>) -> Option<Vec<String>> {
    if !geteuid().is_root() {
        skip("root, to become nobody", "another account");
        return None;
    }
    let _alone = ONE_AT_A_TIME.lock();
    // In /var/tmp everybody may search all the way down, and it is a disk mostly.
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let files = directory.path().join("files");
    fs::create_dir(&files).unwrap();
    chown(&files, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(program);
    command.args(child_words()).uid(NOBODY).gid(NOBODY).current_dir(&files);
    if let Some(bytes) = memlock_bytes {
        command.env(MEMLOCK, bytes.to_string());
    }
    let lines = fallbacks_of(command, &files);
    check_reasons(&lines);
    Some(lines)
}

#[test]
fn a_plain_account_needs_nothing_else() {
    let Some(lines) = as_nobody(None) else { return };
    for name in ["read-write", "mmap", "sendfile", "splice"] {
        assert!(said_by(&lines, name).is_empty(), "{lines:?}");
    }
}

#[test]
fn without_locked_memory_zero_copy_sends_say_what_they_need() {
    let Some(lines) = as_nobody(Some(0)) else { return };
    let said = said_by(&lines, "zerocopy-send");
    let [why] = said[..] else { panic!("{lines:?}") };
    if why.contains("O_DIRECT") {
        return skip("O_DIRECT in /var/tmp", why);
    }
    assert!(why.contains("needs 1032 KiB of locked memory for a send"), "{why}");
    assert!(why.contains("raise RLIMIT_MEMLOCK (ulimit -l)"), "{why}");
    for why in said_by(&lines, "io-uring") {
        assert!(why.contains("RLIMIT_MEMLOCK may be too low for a ring"), "{why}");
    }
    for name in ["read-write", "mmap", "sendfile", "splice", "direct"] {
        assert!(said_by(&lines, name).is_empty(), "{lines:?}");
    }
}

/// One send fits and a second does not: each waits for the notice of the one before it.
#[test]
fn with_little_locked_memory_zero_copy_sends_wait_for_each_other() {
    let Some(lines) = as_nobody(Some(1_500_000)) else { return };
    let said = said_by(&lines, "zerocopy-send");
    assert!(!said.iter().any(|why| why.contains("locked memory")), "{said:?}");
}
