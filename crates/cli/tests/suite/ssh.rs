//! Copies over ssh, against a real sshd: `user@host:path` in the place of a URL.

use crate::harness::{
    Place, assert_same_files, assert_same_trees,
    process::{Haul, Ran},
    sshd::{HOST, Network, Sshd, SshdSetup, there},
    wait_until,
};
use crate::{
    in_each_network,
    ssh_ways::{way, ways},
};
use haul_testkit::skip::skip;
use haul_transfer::SOFTWARE;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::{ffi::OsStringExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

in_each_network!(
    data_goes_to_the_address_that_ssh_came_to,
    files_and_trees_go_there_and_back_and_are_listed,
    what_a_login_script_prints_is_skipped,
    a_machine_without_haul_is_told_with_what_to_do,
    a_key_that_is_refused_and_a_host_that_is_unknown_are_told,
    what_ssh_asks_is_asked_at_the_terminal,
    a_key_may_be_for_one_directory_and_for_reading_alone,
    a_subsystem_of_sshd_needs_no_path_to_haul,
    copies_share_a_connection_of_ssh_that_stands,
    a_copy_goes_on_when_ssh_is_gone_and_its_server_ends_with_it,
    an_answer_that_cannot_be_used_is_told,
);

fn sshd_on(network: Network, place: &Place) -> Option<Sshd> {
    SshdSetup::on(network)?.start(place)
}

fn names(ran: &Ran) -> Vec<&str> {
    assert_eq!(ran.status, 0, "{ran:?}");
    let entries = ran.named("entry").into_iter();
    let mut names: Vec<&str> = entries.map(|entry| entry["path"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

fn files_and_trees_go_there_and_back_and_are_listed(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    place.tree(&place.source("run7"), 2, 6);
    let odd = OsString::from_vec(b"a b%20\xff*".to_vec());
    place.file(&place.source(&odd), 300_000);
    let run = |words: &[OsString]| sshd.run(&place, words);

    // A path without a / in front is below the home directory there.
    let ran = run(&words!["push", place.source(&odd), place.source("run7"), there("new/deep/")]);
    ran.ok();
    assert_same_files(&place.source(&odd), &sshd.home("new/deep").join(&odd));
    assert_same_trees(&place.source("run7"), &sshd.home("new/deep/run7"));
    let ran = run(&words!["push", place.source(&odd), there(place.root("other"))]);
    let to = ran.ok()["to"].as_str().unwrap().to_owned();
    assert_eq!(to, there(place.root("other")).to_str().unwrap(), "as the user calls it");
    assert_same_files(&place.source(&odd), &place.root("other"));

    run(&words!["pull", there("new/deep/run7"), place.target("")]).ok();
    assert_same_trees(&place.source("run7"), &place.target("run7"));
    let absolute = there(sshd.home("new/deep").join(&odd));
    let ran = run(&words!["pull", absolute, there("~/new/deep/run7/d0/"), place.target("two/")]);
    ran.ok();
    assert_same_files(&place.source(&odd), &place.target("two").join(&odd));
    assert!(place.target("two/f0").exists());
    run(&words!["pull", there("new/deep/run7/d?/f1"), "null:"]).refused(&["two sources"]);
    run(&words!["pull", there("new/deep/run7/d1/f*"), place.target("fit/")]).ok();
    assert_eq!(fs::read_dir(place.target("fit")).unwrap().count(), 6);

    assert_eq!(names(&run(&words!["ls", there("new/deep/run7")])), ["d0", "d1"]);
    assert_eq!(names(&run(&words!["ls", there("")])), ["new"]);
    run(&words!["ls", there("absent/x")]).refused(&["absent", "far: cannot look at"]);
    run(&words!["pull", there("new/absent"), "."]).refused(&["absent"]);
    run(&words!["push", "zero:4M", there("null:")]).ok();
    assert!(!sshd.home("null:").exists());
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// The name that ssh uses leads to that address as well, so nothing else is tried.
fn data_goes_to_the_address_that_ssh_came_to(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    place.file(&place.source("a"), 3 << 20);
    for (words, option) in [
        (words!["push", place.source("a"), there("a")], "--protection=safe"),
        (words!["pull", there("a"), place.target("")], "--protection=private"),
    ] {
        let ran = sshd.run(&place, &[words, words![option]].concat());
        assert_eq!((way(&ran), ways(&ran)), (String::new(), vec![]), "{ran:?}");
        let server = ran.named("session")[0]["server"].as_str().unwrap().to_owned();
        assert_eq!(server.rsplit_once(':').unwrap().0, sshd.address(), "{ran:?}");
    }
    assert_same_files(&place.source("a"), &sshd.home("a"));
    assert_same_files(&place.source("a"), &place.target("a"));
}

/// A push with `--delete`, and a pull with `--move`, whose tokens may remove; no other may.
#[test]
fn extra_files_and_moved_sources_are_removed_where_that_was_asked_for() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.tree(&place.source("run7"), 1, 3);
    fs::create_dir(sshd.home("run7")).unwrap();
    fs::write(sshd.home("run7/extra"), b"x").unwrap();
    let run7 = words!["push", place.source("run7/"), there("run7/")];
    sshd.run(&place, &run7).ok();
    assert!(sshd.home("run7/extra").exists());
    sshd.run(&place, &[run7, words!["--delete"]].concat()).ok();
    assert!(!sshd.home("run7/extra").exists());
    sshd.run(&place, &words!["pull", there("run7/d0/f0"), place.target(""), "--move"]).ok();
    assert!(place.target("f0").exists() && !sshd.home("run7/d0/f0").exists());
}

/// Words and environment of ssh, which other users of a machine can see, hold nothing of a copy.
#[test]
fn ssh_is_run_once_and_is_told_the_host_and_nothing_else() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.file(&place.source("secret-name"), 5_000_000);
    let log = place.path("ssh.log");
    let text = format!(
        "{{ echo RUN; printf '%s\\n' \"$@\"; env; }} >> {}\nexec {} \"$@\"",
        log.display(),
        sshd.ssh_command()
    );
    fs::write(place.path("my-ssh"), text).unwrap();
    let ssh = words!["--ssh", format!("sh {}", place.path("my-ssh").display())];
    let push = words!["push", place.source("secret-name"), there("kept/secret-name")];
    place.run(&[push, ssh.clone()].concat()).ok();
    let pull = words!["pull", there("kept/secret-*"), place.target("")];
    let mut command = place.command(&[pull, ssh, words!["--json"]].concat());
    command.env("HAUL_TOKEN", "not-for-ssh");
    Haul::start(command).finish().ok();
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.lines().filter(|line| *line == "RUN").count(), 2, "{log}");
    assert_eq!(log.lines().filter(|line| *line == "haul serve --over-ssh").count(), 2, "{log}");
    for secret in ["secret", "not-for-ssh", "haul://", "kept"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
    // A token has 53 of these; no word of ssh's is so long.
    let is_of_token = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let longest = log.split(|c: char| !is_of_token(c)).map(str::len).max();
    assert!(longest < Some(53), "{log}");
}

fn what_a_login_script_prints_is_skipped(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    let noise = "echo Welcome to far; head -c 60000 /dev/zero; echo to-stderr >&2\n";
    fs::write(sshd.home(".bashrc"), noise).unwrap();
    let printed = sshd.ssh(&["true"]).stdout.len();
    if printed < 60_000 {
        return skip("a login shell that reads .bashrc, as bash of Debian", "another");
    }
    place.file(&place.source("a"), 100_000);
    sshd.run(&place, &words!["push", place.source("a"), there("a")]).ok();
    assert_same_files(&place.source("a"), &sshd.home("a"));
    fs::write(sshd.home(".bashrc"), "echo account closed; exit 0\n").unwrap();
    let refused = sshd.run(&place, &words!["push", place.source("a"), there("a")]);
    refused.refused(&["did not answer", "account closed", "exit status 0"]);
    fs::write(sshd.home(".bashrc"), "yes\n").unwrap();
    sshd.run(&place, &words!["ls", there("a")]).refused(&["64 KiB", "printed"]);
}

fn a_machine_without_haul_is_told_with_what_to_do(network: Network) {
    let place = Place::new();
    let Some(setup) = SshdSetup::on(network) else { return };
    let Some(sshd) = setup.without_haul().start(&place) else { return };
    fs::write(sshd.home("a"), b"a").unwrap();
    let pull = words!["pull", there("a"), place.target("")];
    let ran = sshd.run(&place, &pull);
    ran.refused(&["far has no haul", "not found", "exit status 127", "--remote-haul"]);
    let with =
        |haul: &str| sshd.run(&place, &[pull.clone(), words!["--remote-haul", haul]].concat());
    with("/etc/passwd").refused(&["cannot be run", "exit status 126"]);
    with("echo").refused(&["did not answer", "serve --over-ssh"]);
    with(env!("CARGO_BIN_EXE_haul")).ok();
    let ran = place.run(&[pull, words!["--ssh", "no-such-ssh"]].concat());
    ran.refused(&["cannot run no-such-ssh", "openssh-client"]);
}

fn a_key_that_is_refused_and_a_host_that_is_unknown_are_told(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    let ls = words!["ls", there("")];
    fs::write(place.path("authorized_keys"), "").unwrap();
    sshd.run(&place, &ls).refused(&["ssh to far failed", "permission denied", "ssh -v far"]);
    fs::write(place.path("known_hosts"), "").unwrap();
    sshd.run(&place, &ls).refused(&["host key verification failed", "`ssh far` at a terminal"]);
    sshd.configure_ssh("Host gone\nHostName no-such-host.invalid");
    let ran = sshd.run(&place, &words!["ls", "gone:"]);
    ran.refused(&["ssh to gone failed", "could not resolve", "./NAME"]);
    // A scheduler tries again what an sshd that is away has stopped, and no more.
    place.tree(&place.source("tree"), 1, 3);
    sshd.configure_ssh("Host away\nHostName 127.0.0.1\nPort 1");
    for (target, status) in [("away:x", 1), ("far:x", 2)] {
        let ran = sshd.run(&place, &words!["push", place.source("tree"), target, "--part", "1/2"]);
        assert_eq!(ran.status, status, "{ran:?}");
    }
    drop(sshd);
}

/// A terminal of script(1), in which a command runs that asks.
struct Terminal {
    script: Child,
    said: Vec<u8>,
}

impl Terminal {
    /// Runs haul's words; `None` and a skipped test where there is no script(1).
    fn start(place: &Place, sshd: &Sshd, words: &[OsString]) -> Option<Self> {
        let quoted = |word: &OsString| format!("'{}'", word.to_str().unwrap());
        let words: Vec<_> = words.iter().map(quoted).collect();
        let line = format!("{} {}", env!("CARGO_BIN_EXE_haul"), words.join(" "));
        let mut command = place.command(&words![]);
        let environment: Vec<_> =
            command.get_envs().map(|(k, v)| (k.to_owned(), v.map(OsStr::to_owned))).collect();
        command = Command::new("/usr/bin/script");
        command.args(["-qefc", &line, "/dev/null"]).env_clear().current_dir(place.path(""));
        command.envs(environment.into_iter().filter_map(|(key, value)| Some((key, value?))));
        let mut command = sshd.near(command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        match command.spawn() {
            Ok(script) => Some(Self { script, said: Vec::new() }),
            Err(error) => {
                skip("script (bsdutils)", error.to_string());
                None
            }
        }
    }

    /// Waits for a question and answers it.
    fn answer(&mut self, question: &str, answer: &str) {
        let out = self.script.stdout.as_mut().unwrap();
        let mut part = [0; 4096];
        while !self.said.windows(question.len()).any(|words| words == question.as_bytes()) {
            let got = out.read(&mut part).unwrap();
            assert!(got > 0, "no {question:?}: {}", String::from_utf8_lossy(&self.said));
            self.said.extend_from_slice(&part[..got]);
        }
        self.script.stdin.as_mut().unwrap().write_all(answer.as_bytes()).unwrap();
    }

    /// Waits for the end; says what stood on the terminal.
    fn finish(mut self) -> (ExitStatus, String) {
        let mut out = self.script.stdout.take().unwrap();
        out.read_to_end(&mut self.said).unwrap();
        let status = self.script.wait().unwrap();
        (status, String::from_utf8_lossy(&self.said).into_owned())
    }
}

fn what_ssh_asks_is_asked_at_the_terminal(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    place.file(&place.source("a"), 100_000);
    let config = place.path("ssh_config");
    let text = fs::read_to_string(&config).unwrap();
    let asks = text.replace("HostKeyChecking yes", "HostKeyChecking ask");
    fs::write(&config, asks.replace("BatchMode yes", "BatchMode no")).unwrap();
    fs::write(place.path("known_hosts"), "").unwrap();
    let mut lock = Command::new("ssh-keygen");
    lock.args(["-q", "-p", "-P", "", "-N", "open sesame", "-f"]).arg(place.path("user_key"));
    assert!(lock.stdin(Stdio::null()).output().unwrap().status.success());
    let words = sshd.words(&words!["push", place.source("a"), there("a")]);
    let Some(mut terminal) = Terminal::start(&place, &sshd, &words) else { return };
    terminal.answer("continue connecting", "yes\n");
    terminal.answer("passphrase", "open sesame\n");
    let (status, said) = terminal.finish();
    assert!(status.success(), "{said}");
    assert_same_files(&place.source("a"), &sshd.home("a"));
    assert!(fs::read_to_string(place.path("known_hosts")).unwrap().contains("ssh-ed25519"));
    assert!(!said.contains("sesame"), "{said}");
    // A host key that is another one is no question.
    let other = place.path("user_key.pub");
    fs::write(place.path("known_hosts"), format!("{HOST} {}", fs::read_to_string(other).unwrap()))
        .unwrap();
    let Some(terminal) = Terminal::start(&place, &sshd, &words) else { return };
    let (status, said) = terminal.finish();
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.to_lowercase().contains("host key verification failed"), "{said}");
}

/// `command="haul serve --over-ssh DIR"` of authorized_keys(5): a key for one directory.
fn a_key_may_be_for_one_directory_and_for_reading_alone(network: Network) {
    let place = Place::new();
    let haul = env!("CARGO_BIN_EXE_haul");
    let root = place.path("root").display().to_string();
    let forced = format!("command=\"{haul} serve --over-ssh {root} --read-only\",restrict");
    let Some(setup) = SshdSetup::on(network) else { return };
    let Some(sshd) = setup.key_options(&forced).start(&place) else { return };
    place.file(&place.root("run7/a"), 1000);
    fs::write(sshd.home("b"), b"b").unwrap();
    let run = |words: &[OsString]| sshd.run(&place, words);
    for path in ["run7/a", "/run7/a", "~/run7/a"] {
        run(&words!["pull", there(path), place.target("")]).ok();
        assert_same_files(&place.root("run7/a"), &place.target("a"));
        fs::remove_file(place.target("a")).unwrap();
    }
    assert_eq!(names(&run(&words!["ls", there("/")])), ["run7"]);
    run(&words!["pull", there(sshd.home("b")), place.target("")]).refused(&["b"]);
    let outside = run(&words!["pull", there("../home/b"), place.target("")]);
    outside.refused(&["name is refused"]);
    run(&words!["push", place.root("run7/a"), there("new")]).refused(&["read-only"]);
    assert!(!place.root("new").exists() && !place.target("b").exists());
}

fn a_subsystem_of_sshd_needs_no_path_to_haul(network: Network) {
    let place = Place::new();
    let Some(setup) = SshdSetup::on(network) else { return };
    let Some(sshd) = setup.without_haul().start(&place) else { return };
    place.file(&place.source("a"), 100_000);
    let push = words!["push", place.source("a"), there("a"), "--remote-haul"];
    sshd.run(&place, &[push.clone(), words!["subsystem:haul"]].concat()).ok();
    assert_same_files(&place.source("a"), &sshd.home("a"));
    let ran = sshd.run(&place, &[push, words!["subsystem:other"]].concat());
    ran.refused(&["subsystem request failed", "sshd_config"]);
}

/// ControlMaster of ssh_config(5): several copies, one login.
fn copies_share_a_connection_of_ssh_that_stands(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    let socket = place.path("control");
    sshd.configure_ssh(&format!(
        "ControlPath {}\nControlMaster auto\nControlPersist 60",
        socket.display()
    ));
    place.file(&place.source("a"), 100_000);
    sshd.run(&place, &words!["push", place.source("a"), there("a")]).ok();
    assert!(socket.exists(), "the first copy has left it");
    // Nobody can log in any more.
    fs::write(place.path("authorized_keys"), "").unwrap();
    sshd.run(&place, &words!["pull", there("a"), place.target("")]).ok();
    assert_same_files(&place.source("a"), &place.target("a"));
    let ended = sshd.ssh_with(&["-O", "exit", HOST]);
    assert!(ended.status.success(), "{ended:?}");
}

/// A push that takes some seconds, once bytes have moved.
pub fn slow_push(place: &Place, sshd: &Sshd, options: &[OsString]) -> Haul {
    place.file(&place.source("large"), 24 << 20);
    let words = words!["push", place.source("large"), there("large"), "--bwlimit", "6M"];
    let words = [words, words!["--span-size", "1M"], options.to_vec()].concat();
    let push = sshd.start_haul(place, &words);
    push.wait_for_bytes("bytes_durable", 1 << 20);
    push
}

/// Id of the ssh that a process of haul has started.
pub fn ssh_of(haul: &Haul) -> Pid {
    let parent = format!("PPid:\t{}", haul.id());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |id: &i32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        status.lines().any(|line| line == parent)
    };
    let children: Vec<i32> = ids.filter(is_child).collect();
    assert_eq!(children.len(), 1, "one ssh");
    Pid::from_raw(children[0]).unwrap()
}

fn a_copy_goes_on_when_ssh_is_gone_and_its_server_ends_with_it(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    let push = slow_push(&place, &sshd, &[]);
    kill_process(ssh_of(&push), Signal::KILL).unwrap();
    let ran = push.finish();
    ran.ok();
    assert_same_files(&place.source("large"), &sshd.home("large"));
    let told = ran.named("fallback");
    let is_told = |event: &&&serde_json::Value| event["from_to"] == "with ssh -> without it";
    assert_eq!(told.iter().filter(is_told).count(), 1, "{ran:?}");
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// A server whose ssh and client are both gone serves the one that comes back, and then ends.
#[test]
fn a_client_that_comes_back_within_the_grace_is_served() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.file(&place.source("large"), 24 << 20);
    let text = format!("{} \"$@\" | tee {}\n", sshd.ssh_command(), place.path("told").display());
    fs::write(place.path("my-ssh"), text).unwrap();
    let ssh = format!("sh {}", place.path("my-ssh").display());
    let words = words!["push", place.source("large"), there("large"), "--span-size", "1M"];
    let slow = words!["--ssh", ssh, "--bwlimit", "6M", "--retry-for", "1h"];
    let mut push = place.start(&[words, slow].concat());
    push.wait_for_bytes("bytes_durable", 1 << 20);
    push.kill();
    // A server without a grace ends within a fraction of this.
    thread::sleep(Duration::from_secs(2));
    let told = fs::read(place.path("told")).unwrap();
    let begin = told.iter().position(|byte| *byte == b'{').unwrap();
    let told: serde_json::Value = serde_json::from_slice(&told[begin..]).unwrap();
    let start = &told["started"];
    let (token, port) = (start["token"].as_str().unwrap(), start["port"].as_u64().unwrap());
    let url = format!("haul://{token}@127.0.0.1:{port}/large");
    let ran = place.push(&words![place.source("large"), url]);
    ran.ok();
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// A client that lost both connections has the grace to come back, and no more.
#[test]
fn a_server_whose_client_is_gone_ends_after_its_grace_and_leaves_the_rest_for_a_resume() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let mut push = slow_push(&place, &sshd, &words!["--retry-for", "1s"]);
    push.kill();
    assert!(!sshd.home("large").exists(), "nothing half has a name");
    wait_until("over there", || sshd.far_ends().is_empty());
    let ran = sshd.run(&place, &words!["push", place.source("large"), there("large")]);
    ran.ok();
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
}

#[test]
fn an_interrupted_copy_leaves_no_server_behind() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let push = slow_push(&place, &sshd, &words!["--retry-for", "1h"]);
    push.signal(Signal::INT);
    let ran = push.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// Ctrl-C at a terminal reaches every program there: ssh stays, so that the other side hears of it.
#[test]
fn ctrl_c_at_a_terminal_leaves_no_server_behind() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.file(&place.source("large"), 24 << 20);
    let words = words!["push", place.source("large"), there("large"), "--bwlimit", "6M"];
    let words = [sshd.words(&words), words!["--retry-for", "1h", "--json"]].concat();
    let mut command = place.command(&words);
    command.process_group(0);
    let push = Haul::start(command);
    push.wait_for_bytes("bytes_durable", 1 << 20);
    let group = Pid::from_raw(i32::try_from(push.id()).unwrap()).unwrap();
    kill_process_group(group, Signal::INT).unwrap();
    let ran = push.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.named("fallback").is_empty(), "{ran:?}");
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// ProxyJump of ssh_config(5), by an alias of the same sshd. Nobody here knows where the machine
/// behind is, and loopback, which its ssh came to, means another machine in each place.
#[test]
fn ssh_may_go_by_way_of_another_host() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let config = place.path("ssh_config");
    let text = fs::read_to_string(&config).unwrap();
    let gate = text.replace("Host far", "Host gate");
    fs::write(&config, text + "ProxyJump gate\n" + &gate).unwrap();
    place.file(&place.source("a"), 100_000);
    let ran = sshd.run(&place, &words!["push", place.source("a"), there("a")]);
    // Without another address this host has none to which the other side could come.
    let is_alone = haul_transfer::internals::own_addresses().is_empty();
    let other = if is_alone { "through ssh" } else { "connections from there" };
    assert_eq!(ways(&ran), [format!("connections to far -> {other}")], "{ran:?}");
    assert_same_files(&place.source("a"), &sshd.home("a"));
    fs::write(&config, fs::read_to_string(&config).unwrap().replace("Host gate", "Host door"))
        .unwrap();
    let refused = sshd.run(&place, &words!["ls", there("")]);
    refused.refused(&["ssh to far failed", "gate"]);
}

#[test]
fn the_server_takes_a_port_of_the_range_that_is_open() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ls = |range: String| sshd.run(&place, &words!["ls", there(""), "--port-range", range]);
    ls(port.to_string()).refused(&["cannot listen on any of the ports", "--port-range"]);
    let last = port.saturating_add(9);
    place.file(&place.source("a"), 100_000);
    let words =
        words!["push", place.source("a"), there("a"), "--port-range", format!("{port}-{last}")];
    let ran = sshd.run(&place, &words);
    ran.ok();
    let server = ran.named("session")[0]["server"].as_str().unwrap().to_owned();
    let used: u16 = server.rsplit(':').next().unwrap().parse().unwrap();
    assert!((port + 1..=last).contains(&used), "{server}");
}

/// A copy of this program that says to be an older one, from before there were other ways.
fn older_haul(place: &Place) -> PathBuf {
    let path = place.path("older-haul");
    fs::copy(env!("CARGO_BIN_EXE_haul"), &path).unwrap();
    let mut words = Command::new("sed");
    let software = SOFTWARE.replace('.', "\\.");
    words.args(["-i", "-e", &format!("s/{software}/haul 0.0.9/g;s/takes_orders/takes_nothin/g")]);
    assert_eq!(SOFTWARE.len(), "haul 0.0.9".len(), "no byte of a program moves");
    assert!(words.arg(&path).env("LC_ALL", "C").status().unwrap().success());
    path
}

/// An older haul has what the protocol had, and lacks what came later.
#[test]
fn an_older_far_end_copies_and_is_told() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let program = older_haul(&place);
    let older = words!["--remote-haul", program];
    let run = |words: &[OsString]| sshd.run(&place, &[words, &older].concat());
    place.tree(&place.source("run7"), 2, 6);
    for words in [
        words!["push", place.source("run7"), there("")],
        words!["pull", there("run7"), place.target("")],
    ] {
        let ran = run(&words);
        assert_eq!((way(&ran), ways(&ran)), (String::new(), vec![]), "{ran:?}");
        assert_eq!(ran.named("session")[0]["server_software"], "haul 0.0.9", "{ran:?}");
    }
    assert_same_trees(&place.source("run7"), &sshd.home("run7"));
    assert_same_trees(&place.source("run7"), &place.target("run7"));
    let push = [words!["push", place.source("run7"), there("again")], older.clone()].concat();
    let shown = place.command(&sshd.words(&push)).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains(&format!("haul 0.0.9 where this is {SOFTWARE}")), "{shown}");
    for option in ["--through-ssh", "--reverse"] {
        let ran = run(&words!["push", place.source("run7"), there("other"), option]);
        ran.refused(&["far has no other way", "haul 0.0.9", "install the newer haul"]);
    }
    // Where its port is closed there is nothing else to try.
    let closed =
        format!("{} serve --over-ssh --listen 127.0.0.1:1 #", older_haul(&place).display());
    let ran = sshd.run(&place, &words!["ls", there(""), "--remote-haul", closed]);
    ran.refused(&["ssh reaches far", "below 1024", "--port-range"]);
    assert!(!sshd.home("other").exists());
}

/// Programs of other versions at the other side, and one that lies.
fn an_answer_that_cannot_be_used_is_told(network: Network) {
    let place = Place::new();
    let Some(sshd) = sshd_on(network, &place) else { return };
    let answer_to = |json: &str, options: &[OsString]| {
        let len = json.len();
        assert!(len < 256, "one byte of the length");
        let far = place.path("far-haul");
        let frame = format!("\\377haul over ssh\\n\\000\\000\\000\\000\\{len:03o}");
        fs::write(place.path("far.json"), json).unwrap();
        let json = place.path("far.json");
        let text = format!("printf '{frame}'; cat {}; cat > /dev/null\n", json.display());
        fs::write(&far, text).unwrap();
        let haul = format!("sh {}", far.display());
        sshd.run(&place, &[&words!["ls", there(""), "--remote-haul", haul], options].concat())
    };
    let answer = |json: &str| answer_to(json, &[]);
    let start = |version: u32, token: &str, paths: &[&str]| {
        let start = serde_json::json!({
            "version": version, "software": "haul 9", "token": token, "port": 1, "addresses": [],
            "paths": paths, "root": "/", "grace_ms": 1,
        });
        serde_json::json!({ "started": start }).to_string()
    };
    let token = haul_transfer::Token::generate([3; 16]).unwrap().reveal();
    answer(&start(2, &token, &[])).refused(&["version 2 of haul 9", "same haul"]);
    answer(&start(1, "x", &[])).refused(&["no token of haul 9"]);
    answer(&start(1, &token, &[])).refused(&["other paths of haul 9"]);
    let no_address = ["ssh reaches far", "it told no address", "below 1024"];
    let closed_port = ["ssh reaches far", "refused", &format!("{}, port 1)", sshd.address())];
    answer(&start(1, &token, &["a"])).refused(match network {
        Network::Loopback => &no_address,
        // The name that ssh uses leads to any port of another machine.
        Network::Apart => &closed_port,
    });
    let closed = start(1, &token, &["a"]).replace("\"port\":1,", "\"port\":1024,");
    answer(&closed).refused(&[
        "ssh reaches far",
        "refused",
        &format!("{}, port 1024", sshd.address()),
    ]);
    let other_way = answer_to(&start(1, &token, &["a"]), &words!["--through-ssh"]);
    other_way.refused(&["far has no other way", "haul 9", "install the newer haul"]);
    answer("{}").refused(&["cannot be read"]);
    let refusal = r#"{"refused":{"what":"the disk is \u001b[31m away","new":1}}"#;
    let ran = answer(refusal);
    assert_eq!(ran.status, 2, "{ran:?}");
    assert!(ran.says(&["far: the disk is"]).is_object() && !ran.err.contains('\x1b'), "{ran:?}");
}
