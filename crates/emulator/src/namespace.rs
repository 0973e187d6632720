//! A network namespace: a host's network without the host, with settings of its own.
//!
//! Its name says which process made it, so that what a killed one left is found and removed.

use crate::EmulatorError;
use rustix::{
    process::{Pid, Signal, geteuid, kill_process},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// Directory in which ip(8) keeps the namespaces that have names (ip-netns(8)).
const PLACE: &str = "/run/netns";
/// First word of a namespace's name; kind, process, number and side follow.
const PREFIX: &str = "haul";

/// A network namespace that this process made; it is removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace, with its loopback interface up. `kind` and `side` are words without `-`.
    ///
    /// # Errors
    /// Without root or ip(8).
    pub fn make(kind: &str, side: &str) -> Result<Self, EmulatorError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            let what = "a network namespace".to_owned();
            let found = format!("user {}", geteuid().as_raw());
            return Err(EmulatorError::Unable { what, needs: "root", found });
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{kind}-{}-{number}-{side}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs ip(8) in the namespace.
    ///
    /// # Errors
    /// In ip's own words.
    pub fn ip(&self, words: &[&str]) -> Result<(), EmulatorError> {
        ip(&[&["-n", &self.name], words].concat())
    }

    /// Runs a program in the namespace and waits for it.
    ///
    /// # Errors
    /// If it is not there or fails, in its own words.
    pub fn run(&self, program: &str, words: &[&str]) -> Result<(), EmulatorError> {
        let mut command = Command::new(program);
        command.args(words);
        finish(&mut self.wrap(&command), &format!("{program} {}", words.join(" ")))
    }

    /// Words that run a program in the namespace when they stand before its own.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        // ip(8) would make a mount namespace too, and file systems that others have mounted just
        // now would stay alive in it.
        vec!["nsenter".into(), format!("--net={PLACE}/{}", self.name).into()]
    }

    /// Wraps a command so that it runs in the namespace.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        let words = self.words();
        let mut wrapped = Command::new(&words[0]);
        wrapped.args(&words[1..]);
        wrapped.arg(command.get_program()).args(command.get_args());
        if let Some(directory) = command.get_current_dir() {
            wrapped.current_dir(directory);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// Calls `act` in the namespace, on a thread of its own, which ends there.
    ///
    /// # Errors
    /// If it cannot be entered.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T, EmulatorError> {
        let place = format!("{PLACE}/{}", self.name);
        let failed = |found: String| EmulatorError::Failed { what: place.clone(), found };
        let enter = || {
            let namespace = File::open(&place).map_err(|error| failed(error.to_string()))?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|errno| failed(format!("cannot be entered: {errno}")))?;
            Ok(act())
        };
        let joined = thread::scope(|scope| scope.spawn(enter).join());
        joined.map_err(|_| failed("the thread in it panicked".to_owned()))?
    }

    /// Has the host drop what comes to it by TCP over an interface, and say nothing of it, but what
    /// goes to or comes from this port: so do many firewalls. It counts for connections that stand,
    /// too.
    ///
    /// # Errors
    /// If ip(8) refuses.
    pub fn drop_tcp_but(&self, device: &str, port: u16) -> Result<(), EmulatorError> {
        let port = port.to_string();
        self.rules(
            device,
            &[
                &["dport", &port, "lookup", "local"],
                &["sport", &port, "lookup", "local"],
                &["blackhole"],
            ],
        )
    }

    /// Has the host drop what comes over an interface for one connection of TCP, by its ports
    /// there and here, and say nothing of it.
    ///
    /// # Errors
    /// If ip(8) refuses.
    pub fn drop_connection(&self, device: &str, from_to: [u16; 2]) -> Result<(), EmulatorError> {
        let [from, to] = from_to.map(|port| port.to_string());
        self.rules(device, &[&["sport", &from, "dport", &to, "blackhole"]])
    }

    /// Has rules count, in this order, for what comes by TCP over an interface.
    fn rules(&self, device: &str, rules: &[&[&str]]) -> Result<(), EmulatorError> {
        // What is local stands before all rules, until it has another place.
        self.ip(&["rule", "add", "preference", "100", "lookup", "local"])?;
        for (number, rule) in rules.iter().enumerate() {
            let preference = (number + 1).to_string();
            let begin = ["rule", "add", "preference", &preference, "iif", device, "ipproto", "tcp"];
            self.ip(&[&begin[..], rule].concat())?;
        }
        self.ip(&["rule", "del", "preference", "0"])
    }

    /// Changes a setting below /proc/sys/net in the namespace, such as `ipv4/tcp_rmem`. The host's
    /// own stays as it is.
    ///
    /// # Errors
    /// If the kernel refuses, or does not know it in a namespace.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), EmulatorError> {
        let path = format!("/proc/sys/net/{setting}");
        let written = self.within(|| {
            // A setting that is the host's alone is not there in a namespace: none is ever made.
            let mut file = File::options().write(true).open(&path)?;
            std::io::Write::write_all(&mut file, value.as_bytes())
        })?;
        written.map_err(|error| EmulatorError::Failed {
            what: format!("net.{} = {value} in a namespace", setting.replace('/', ".")),
            found: error.to_string(),
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Removes namespaces whose process is gone, with what still runs in them, and gives their names.
#[must_use]
pub fn remove_leftovers() -> Vec<String> {
    let entries = fs::read_dir(PLACE).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let dead = names.filter(|name| maker(name).is_some_and(|id| !is_alive(id)));
    dead.filter(|name| {
        end_processes(name);
        ip(&["netns", "delete", name]).is_ok()
    })
    .collect()
}

/// Process that made a namespace, read from its name; `None` where haul did not make it.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.split('-');
    let (prefix, _kind, id) = (parts.next()?, parts.next()?, parts.next()?);
    let (number, _side) = (parts.next()?, parts.next()?);
    let is_ours = prefix == PREFIX && number.parse::<u32>().is_ok() && parts.next().is_none();
    id.parse().ok().filter(|_| is_ours)
}

fn is_alive(id: u32) -> bool {
    Path::new("/proc").join(id.to_string()).exists()
}

/// Kills what still runs in a namespace: a server that outlived its starter would keep it.
fn end_processes(name: &str) {
    let Ok(output) = Command::new("ip").args(["netns", "pids", name]).output() else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    let ids = text.split_whitespace().filter_map(|id| id.parse().ok().and_then(Pid::from_raw));
    for id in ids {
        let _ = kill_process(id, Signal::KILL);
    }
}

fn ip(words: &[&str]) -> Result<(), EmulatorError> {
    let mut command = Command::new("ip");
    command.args(words.iter().map(OsStr::new));
    finish(&mut command, &format!("ip {}", words.join(" ")))
}

fn finish(command: &mut Command, what: &str) -> Result<(), EmulatorError> {
    let failed = |found: String| EmulatorError::Failed { what: what.to_owned(), found };
    let ran = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => EmulatorError::Unable {
            what: what.to_owned(),
            needs: "ip(8) and tc(8) of iproute2, nsenter(1) of util-linux",
            found: format!("no {}", command.get_program().display()),
        },
        _ => failed(error.to_string()),
    })?;
    if ran.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&ran.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_haul_gives_are_taken_for_leftovers() {
        assert_eq!(maker("haul-wan-123-0-near"), Some(123));
        for other in
            ["haul", "haul-wan-123", "haul-wan-x-0-near", "vpn-wan-1-0-near", "haul-a-1-0-b-c"]
        {
            assert_eq!(maker(other), None, "{other}");
        }
    }

    #[test]
    fn a_setting_of_a_namespace_leaves_the_host_s_alone_and_leftovers_go() {
        let namespace = match Namespace::make("test", "near") {
            Ok(namespace) => namespace,
            Err(why) => return haul_testkit::skip::skip("root and ip(8)", why.to_string()),
        };
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        let before = read();
        namespace.set("ipv4/tcp_rmem", "4096 65536 77777").unwrap();
        assert!(namespace.within(read).unwrap().contains("77777"));
        assert_eq!(read(), before);
        let refused = namespace.set("ipv4/no_such_setting", "1").unwrap_err().to_string();
        assert!(refused.contains("net.ipv4.no_such_setting = 1"), "{refused}");
        // No process has this number (proc_sys_kernel(5), pid_max).
        let left = format!("{PREFIX}-test-4194305-0-near");
        ip(&["netns", "add", &left]).unwrap();
        assert!(remove_leftovers().contains(&left));
        assert!(!Path::new(PLACE).join(&left).exists());
        let name = namespace.name().to_owned();
        assert!(Path::new(PLACE).join(&name).exists(), "that of a living process stays");
        drop(namespace);
        assert!(!Path::new(PLACE).join(&name).exists());
    }
}
