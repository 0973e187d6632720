//! Copies over ssh beside what ssh does for people: terminals, forwarded ports, agents, questions.

use crate::{
    harness::{
        Place, assert_same_files,
        process::{Haul, Ran, behind},
        sshd::{Sshd, SshdSetup, there},
        wait_until,
    },
    ssh_ways::lacks_root,
};
use haul_testkit::skip::skip;
use std::{
    ffi::OsString,
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// Writes a script that can be run.
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A session of tmux, ports and commands that a person wants at each login: a copy has none of
/// them, as each would break in on its bytes or fail beside a login that has it already.
#[test]
fn what_a_configuration_does_for_people_is_left_out() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (local, remote) = (place.path("local-command"), place.path("remote-command"));
    for line in [
        "RequestTTY force".to_owned(),
        format!("RemoteCommand touch {}", remote.display()),
        format!("LocalForward 127.0.0.1:{port} 127.0.0.1:9"),
        "ExitOnForwardFailure yes".to_owned(),
        "PermitLocalCommand yes".to_owned(),
        format!("LocalCommand touch {}", local.display()),
        "ForwardAgent yes".to_owned(),
    ] {
        sshd.configure_ssh(&line);
    }
    place.file(&place.source("a"), 3 << 20);
    sshd.run(&place, &words!["push", place.source("a"), there("a")]).ok();
    sshd.run(&place, &words!["pull", there("a"), place.target("")]).ok();
    assert_same_files(&place.source("a"), &place.target("a"));
    assert!(!local.exists() && !remote.exists());
    // They do count for a person: this very ssh fails at the port, and then has all of them.
    let person = sshd.ssh(&[]);
    let said = String::from_utf8_lossy(&person.stderr).into_owned();
    assert!(!person.status.success() && said.contains("forward"), "{said}");
    drop(taken);
    assert!(sshd.ssh(&[]).status.success());
    assert!(local.exists() && remote.exists());
}

/// An ssh of this name that notes its words before it does what it is for.
fn noting_ssh(place: &Place) -> (PathBuf, String) {
    let (log, ssh) = (place.path("ssh.log"), place.path("bin/ssh"));
    let note = format!("printf '%s\\n' \"$@\" >> {}", log.display());
    script(&ssh, &format!("{note}\nexec /usr/bin/env ssh \"$@\""));
    let config = place.path("ssh_config");
    (log, format!("{} -F {}", ssh.display(), config.display()))
}

/// Runs a listing without a terminal; gives the words of ssh, each on a line.
fn words_of_ssh(place: &Place, environment: &[(&str, &str)]) -> String {
    let (log, ssh) = noting_ssh(place);
    let mut command = place.command(&words!["ls", there(""), "--ssh", ssh, "--json"]);
    command.envs(environment.iter().copied());
    let ran = Haul::start(behind(&words!["setsid"], command)).finish();
    assert_eq!(ran.status, 0, "{ran:?}");
    let text = fs::read_to_string(&log).unwrap();
    fs::remove_file(log).unwrap();
    text
}

/// A copy without a terminal ends rather than wait for an answer that nobody gives.
#[test]
fn ssh_asks_nothing_where_nobody_can_answer() {
    let place = Place::new();
    let Some(_sshd) = Sshd::start(&place) else { return };
    let has = |text: &str| text.lines().filter(|line| *line == "BatchMode=yes").count();
    // The other run of ssh tells its configuration, and connects to nowhere.
    let alone = words_of_ssh(&place, &[]);
    assert_eq!(has(&alone), 1, "{alone}");
    let asks = words_of_ssh(&place, &[("SSH_ASKPASS", "/bin/false")]);
    assert_eq!(has(&asks), 0, "{asks}");
}

/// A running ssh-agent(1), killed when dropped.
struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Agent {
    fn start(place: &Place) -> Option<Self> {
        let socket = place.path("agent");
        let mut command = Command::new("ssh-agent");
        command.arg("-D").arg("-a").arg(&socket).stdin(Stdio::null()).stdout(Stdio::null());
        match command.spawn() {
            Ok(child) => {
                let agent = Self { child, socket };
                wait_until("an agent", || agent.socket.exists());
                Some(agent)
            }
            Err(error) => {
                skip("ssh-agent (openssh-client)", error.to_string());
                None
            }
        }
    }

    fn add(&self, key: &Path) {
        let mut add = Command::new("ssh-add");
        add.arg("-q").arg(key).env("SSH_AUTH_SOCK", &self.socket).stdin(Stdio::null());
        let added = add.output().unwrap();
        assert!(added.status.success(), "{added:?}");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // An error says that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Changes lines of the configuration of ssh.
fn reconfigure(place: &Place, changes: &[(&str, &str)]) {
    let path = place.path("ssh_config");
    let mut text = fs::read_to_string(&path).unwrap();
    for (line, instead) in changes {
        assert!(text.contains(line), "{line}: {text}");
        text = text.replace(line, instead);
    }
    fs::write(path, text).unwrap();
}

/// The key is in an agent here alone, which the other side gets nothing of.
#[test]
fn a_key_of_an_agent_lets_a_copy_in_and_the_agent_stays_here() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let Some(agent) = Agent::start(&place) else { return };
    agent.add(&place.path("user_key"));
    fs::remove_file(place.path("user_key")).unwrap();
    reconfigure(&place, &[("IdentityAgent none", "IdentityAgent SSH_AUTH_SOCK")]);
    sshd.configure_ssh("ForwardAgent yes");
    place.file(&place.source("a"), 100_000);
    let seen = place.path("environment");
    let haul = format!("env > {}; haul", seen.display());
    let words = words!["push", place.source("a"), there("a"), "--remote-haul", haul, "--json"];
    let run = |agent: Option<&Agent>| {
        let mut command = place.command(&sshd.words(&words));
        command.envs(agent.map(|agent| ("SSH_AUTH_SOCK", &agent.socket)));
        Haul::start(command).finish()
    };
    run(None).refused(&["ssh to far failed", "permission denied"]);
    run(Some(&agent)).ok();
    assert_same_files(&place.source("a"), &sshd.home("a"));
    let seen = fs::read_to_string(seen).unwrap();
    assert!(seen.contains("SSH_CONNECTION") && !seen.contains("SSH_AUTH_SOCK"), "{seen}");
}

/// A desktop without a terminal, where a program asks in a window.
#[test]
fn a_question_of_ssh_may_be_asked_by_a_program() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    reconfigure(&place, &[("BatchMode yes", "BatchMode no")]);
    let mut lock = Command::new("ssh-keygen");
    lock.args(["-q", "-p", "-P", "", "-N", "open sesame", "-f"]).arg(place.path("user_key"));
    assert!(lock.stdin(Stdio::null()).output().unwrap().status.success());
    let asked = place.path("asked");
    let ask = place.path("ask");
    script(&ask, &format!("echo \"$1\" >> {}\necho open sesame", asked.display()));
    place.file(&place.source("a"), 100_000);
    let words = sshd.words(&words!["push", place.source("a"), there("a"), "--json"]);
    let run = |environment: &[(&str, OsString)]| {
        let mut command = place.command(&words);
        command.envs(environment.iter().cloned());
        Haul::start(behind(&words!["setsid"], command)).finish()
    };
    run(&[]).refused(&["ssh to far failed", "permission denied"]);
    assert!(!asked.exists());
    let ran = run(&[("SSH_ASKPASS", ask.into()), ("DISPLAY", ":0".into())]);
    ran.ok();
    assert_same_files(&place.source("a"), &sshd.home("a"));
    assert!(fs::read_to_string(asked).unwrap().contains("passphrase"));
    assert!(!format!("{ran:?}").contains("sesame"), "{ran:?}");
}

/// Python that runs a program at a terminal of its own, with its outputs as they are, and answers
/// each question for a password with its first word.
const AT_A_TERMINAL: &str = "
import os, pty, sys
outputs = [os.dup(1), os.dup(2)]
child, terminal = pty.fork()
if child == 0:
    for number, output in enumerate(outputs):
        os.dup2(output, number + 1)
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b''
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    seen += part
    if b'assword:' in seen:
        os.write(terminal, sys.argv[1].encode() + b'\\n')
        seen = b''
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
";
/// The second factor that the tests' PAM wants.
const CODE: &str = "314159";

/// An sshd that wants a key and then, by PAM, a code; whoever it asks is noted in the file `asked`.
/// Its files for PAM lie over those of this host, in a mount namespace of its own.
fn sshd_with_a_code(place: &Place) -> Option<Sshd> {
    let libraries = fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
    let folders = libraries.chain(["/usr/lib64".into(), "/lib".into()]);
    if !folders.into_iter().any(|folder| folder.join("security/pam_exec.so").exists()) {
        skip("PAM (pam_exec.so)", "none");
        return None;
    }
    let (check, rules) = (place.path("check"), place.path("pam.d"));
    let asked = place.path("asked");
    let text = format!(
        "code=$(tr -d '\\000')\necho \"$PAM_SERVICE\" >> {}\n[ \"$code\" = {CODE} ]",
        asked.display()
    );
    script(&check, &text);
    fs::create_dir(&rules).unwrap();
    let auth = format!("auth required pam_exec.so expose_authtok quiet {}", check.display());
    let others =
        ["auth", "account", "session"].map(|kind| format!("{kind} required pam_permit.so"));
    fs::write(rules.join("sshd"), format!("{auth}\n{}\n", others.join("\n"))).unwrap();
    let over = "mount --bind \"$0\" /etc/pam.d && exec \"$@\"";
    let setup = SshdSetup::new().behind(&words!["unshare", "--mount", "sh", "-c", over, rules]);
    let setup = setup.first_lines(&[
        "UsePAM yes",
        "KbdInteractiveAuthentication yes",
        "AuthenticationMethods publickey,keyboard-interactive",
    ]);
    let sshd = setup.start(place)?;
    reconfigure(place, &[("BatchMode yes", "BatchMode no\nNumberOfPasswordPrompts 1")]);
    Some(sshd)
}

/// Many sites want a second factor of each login: a copy has one, and asks as ssh does.
#[test]
fn a_second_factor_is_asked_for_once_at_the_terminal_or_by_a_program() {
    let place = Place::new();
    if lacks_root() {
        return;
    }
    let Some(sshd) = sshd_with_a_code(&place) else { return };
    place.file(&place.source("a"), 100_000);
    let (asked, ask) = (place.path("asked"), place.path("ask"));
    let times = || fs::read_to_string(&asked).unwrap_or_default().lines().count();
    let run = |name: &str, before: &[OsString], environment: &[(&str, OsString)]| -> Ran {
        let words = words!["push", place.source("a"), there(name), "--json"];
        let mut command = place.command(&sshd.words(&words));
        command.envs(environment.iter().cloned());
        Haul::start(behind(before, command)).finish()
    };
    let alone = words!["setsid"];
    run("a", &alone, &[]).refused(&["ssh to far failed", "permission denied"]);
    assert_eq!(times(), 0, "nobody was there to answer");
    script(&ask, &format!("echo {CODE}"));
    let by_program = [("SSH_ASKPASS", ask.clone().into()), ("DISPLAY", ":0".into())];
    let ran = run("b", &alone, &by_program);
    ran.ok();
    assert_eq!(times(), 1, "{ran:?}");
    assert_same_files(&place.source("a"), &sshd.home("b"));
    assert!(!format!("{ran:?}").contains(CODE), "{ran:?}");
    script(&ask, "echo 271828");
    run("c", &alone, &by_program).refused(&["ssh to far failed", "permission denied"]);
    assert_eq!(times(), 2, "a wrong code is no way in");
    if !Command::new("python3").arg("-V").output().is_ok_and(|shown| shown.status.success()) {
        return skip("python3", "none");
    }
    let ran = run("d", &words!["python3", "-c", AT_A_TERMINAL, CODE], &[]);
    ran.ok();
    assert_eq!(times(), 3, "{ran:?}");
    assert_same_files(&place.source("a"), &sshd.home("d"));
}
