//! A real sshd(8) of a test, with keys, configuration and port of its own, and the ssh(1) to it.

use super::{
    PATIENCE, Place,
    process::{Haul, Ran, behind},
};
use crate::words;
use haul_emulator::{namespace::Namespace, veth::Veth};
use haul_testkit::skip::skip;
use std::{
    ffi::{OsStr, OsString},
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Ports that are tried: another process may take one just now.
const STARTS_MAX: u32 = 10;
/// The name by which the tests' ssh knows the machine.
pub const HOST: &str = "far";

/// The word for a path of the machine of the tests' sshd.
pub fn there(path: impl AsRef<OsStr>) -> OsString {
    let mut word = OsString::from(format!("{HOST}:"));
    word.push(path);
    word
}

/// Network between an sshd and its ssh.
#[derive(Clone, Copy, Debug)]
pub enum Network {
    Loopback,
    /// Each is in a namespace of its own, with a wire between both.
    Apart,
}

/// Runs tests of the module, which take a [`Network`], in each of them.
#[macro_export]
macro_rules! in_each_network {
    ($($name:ident),* $(,)?) => {
        mod on_loopback {
            $(#[test]
            fn $name() {
                super::$name($crate::harness::sshd::Network::Loopback);
            })*
        }
        mod apart {
            $(#[test]
            fn $name() {
                super::$name($crate::harness::sshd::Network::Apart);
            })*
        }
    };
}

/// Place of an sshd and of the ssh that comes to it.
struct Ends {
    /// Address at which it listens.
    address: String,
    /// Words that run a program where it runs; none for this host.
    at: Vec<OsString>,
    /// Words that run a program where its ssh runs.
    from: Vec<OsString>,
    /// Wire between both, which goes with them.
    _wire: Option<Veth>,
}

impl Default for Ends {
    fn default() -> Self {
        let address = Ipv4Addr::LOCALHOST.to_string();
        Self { address, at: Vec::new(), from: Vec::new(), _wire: None }
    }
}

/// Settings of an sshd.
#[derive(Default)]
pub struct SshdSetup {
    ends: Ends,
    /// Options in front of the key that is let in, such as `command="..."`.
    key_options: String,
    no_haul: bool,
    /// Directories in front of the PATH there, each with a colon behind.
    search_first: String,
    /// More of the environment there, each with a blank in front.
    environment: String,
    /// Lines in front of its configuration, of which the first for a keyword counts.
    first_lines: String,
}

/// A running sshd, killed when dropped.
pub struct Sshd {
    child: Child,
    ssh_config: PathBuf,
    home: PathBuf,
    ends: Ends,
    /// Port at which it listens.
    pub port: u16,
}

impl SshdSetup {
    pub fn new() -> Self {
        Self::default()
    }

    /// Settings of an sshd in a network; `None` and a skipped test where there can be none.
    pub fn on(network: Network) -> Option<Self> {
        match network {
            Network::Loopback => Some(Self::new()),
            Network::Apart => match Veth::start() {
                Ok(wire) => {
                    let hosts = wire.hosts();
                    let setup = Self::new().between(hosts.near, hosts.far, hosts.far_address);
                    Some(Self { ends: Ends { _wire: Some(wire), ..setup.ends }, ..setup })
                }
                Err(why) => {
                    skip("root and ip(8)", why);
                    None
                }
            },
        }
    }

    /// Has sshd run in a namespace and listen at an address there, and its ssh in another one.
    pub fn between(mut self, from: &Namespace, at: &Namespace, address: &str) -> Self {
        let address = address.to_owned();
        self.ends = Ends { address, at: at.words(), from: from.words(), _wire: None };
        self
    }

    pub fn key_options(mut self, options: &str) -> Self {
        self.key_options = format!("{options} ");
        self
    }

    /// Leaves haul out of the PATH there.
    pub fn without_haul(mut self) -> Self {
        self.no_haul = true;
        self
    }

    /// Puts a directory in front of the PATH there.
    pub fn search_first(mut self, directory: &Path) -> Self {
        self.search_first = format!("{}:", directory.display());
        self
    }

    /// Sets a variable there.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment += &format!(" {name}={value}");
        self
    }

    /// Has sshd run behind words, such as those of unshare(1).
    pub fn behind(mut self, words: &[OsString]) -> Self {
        self.ends.at = words.to_vec();
        self
    }

    /// Puts lines in front of its configuration; it may let nobody in by a key alone.
    pub fn first_lines(mut self, lines: &[&str]) -> Self {
        self.first_lines = lines.join("\n") + "\n";
        self
    }

    /// Starts sshd; `None` and a skipped test where there is none, or it lets nobody in.
    pub fn start(self, place: &Place) -> Option<Sshd> {
        let needs = "sshd and ssh (openssh-server, openssh-client)";
        let Some(program) = program() else {
            skip(needs, "no sshd");
            return None;
        };
        if let Err(why) = self.write_keys(place) {
            skip(needs, why);
            return None;
        }
        if super::is_root() {
            // Where no init system has made it.
            let _ = fs::create_dir("/run/sshd");
        }
        let mut started = None;
        for _ in 0..STARTS_MAX {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
            started = self.start_on(place, &program, port.port()).map(|child| (child, port.port()));
            if started.is_some() {
                break;
            }
        }
        let Some((child, port)) = started else {
            skip(needs, "one that does not listen");
            return None;
        };
        let (ssh_config, home) = (place.path("ssh_config"), place.path("home"));
        let sshd = Sshd { child, ssh_config, home, ends: self.ends, port };
        let tried = sshd.ssh(&["true"]);
        let may_be_alone = self.key_options.is_empty() && self.first_lines.is_empty();
        if tried.status.success() || !may_be_alone {
            return Some(sshd);
        }
        let found = String::from_utf8_lossy(&tried.stderr).into_owned();
        skip("an sshd that lets the user of the tests in", found);
        None
    }

    fn write_keys(&self, place: &Place) -> Result<(), String> {
        for key in ["host_key", "user_key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(place.path(key));
            let made = keygen.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
            if !made.status.success() {
                return Err(String::from_utf8_lossy(&made.stderr).into_owned());
            }
        }
        let public = fs::read_to_string(place.path("user_key.pub")).unwrap();
        let line = format!("{}{public}", self.key_options);
        fs::write(place.path("authorized_keys"), line).unwrap();
        fs::create_dir_all(place.path("home")).unwrap();
        Ok(())
    }

    fn start_on(&self, place: &Place, program: &Path, port: u16) -> Option<Child> {
        write_configs(self, place, port);
        let log = place.path("sshd.log");
        let mut command = Command::new(program);
        command.args(["-D", "-e", "-f"]).arg(place.path("sshd_config"));
        let mut command = behind(&self.ends.at, command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().ok()?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if fs::read_to_string(&log).unwrap().contains("Server listening on") {
                return Some(child);
            }
            if !matches!(child.try_wait(), Ok(None)) {
                return None;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // It may be gone by now.
        let _ = child.kill();
        let _ = child.wait();
        None
    }
}

/// Writes the configurations of both ends, for this port.
pub fn write_configs(setup: &SshdSetup, place: &Place, port: u16) {
    let path = |name: &str| place.path(name).display().to_string();
    let haul = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap().display();
    let with_haul = if setup.no_haul { String::new() } else { format!("{haul}:") };
    let search = format!("{}{with_haul}/usr/bin:/bin", setup.search_first);
    let lines = [
        format!("Port {port}"),
        format!("ListenAddress {}", setup.ends.address),
        format!("HostKey {}", path("host_key")),
        format!("AuthorizedKeysFile {}", path("authorized_keys")),
        "PidFile none".to_owned(),
        "StrictModes no".to_owned(),
        "UsePAM no".to_owned(),
        "PasswordAuthentication no".to_owned(),
        "KbdInteractiveAuthentication no".to_owned(),
        "PermitRootLogin yes".to_owned(),
        "PrintMotd no".to_owned(),
        format!("SetEnv HOME={} PATH={search}{}", path("home"), setup.environment),
        format!("Subsystem haul {haul}/haul serve --over-ssh"),
    ];
    let text = format!("{}{}\n", setup.first_lines, lines.join("\n"));
    fs::write(place.path("sshd_config"), text).unwrap();
    let host_key = fs::read_to_string(place.path("host_key.pub")).unwrap();
    fs::write(place.path("known_hosts"), format!("{HOST} {host_key}")).unwrap();
    let lines = [
        format!("Host {HOST}"),
        format!("HostName {}", setup.ends.address),
        format!("Port {port}"),
        format!("HostKeyAlias {HOST}"),
        format!("IdentityFile {}", path("user_key")),
        "IdentitiesOnly yes".to_owned(),
        "IdentityAgent none".to_owned(),
        format!("UserKnownHostsFile {}", path("known_hosts")),
        "GlobalKnownHostsFile none".to_owned(),
        "StrictHostKeyChecking yes".to_owned(),
        "BatchMode yes".to_owned(),
    ];
    fs::write(place.path("ssh_config"), lines.join("\n") + "\n").unwrap();
}

/// The sshd of this host.
pub fn program() -> Option<PathBuf> {
    let known = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    known.map(PathBuf::from).into_iter().find(|path| path.is_file())
}

impl Sshd {
    pub fn start(place: &Place) -> Option<Self> {
        SshdSetup::new().start(place)
    }

    /// Words of a command of ssh that comes to this sshd.
    pub fn ssh_command(&self) -> String {
        format!("ssh -F {}", self.ssh_config.display())
    }

    /// Adds a line to the configuration of ssh.
    pub fn configure_ssh(&self, line: &str) {
        let text = fs::read_to_string(&self.ssh_config).unwrap();
        fs::write(&self.ssh_config, text + line + "\n").unwrap();
    }

    /// Runs a plain ssh with these words behind the host.
    pub fn ssh(&self, words: &[&str]) -> Output {
        self.ssh_with(&[&[HOST], words].concat())
    }

    /// Runs a plain ssh with these words.
    pub fn ssh_with(&self, words: &[&str]) -> Output {
        let mut command = Command::new("ssh");
        command.arg("-F").arg(&self.ssh_config).args(words);
        behind(&self.ends.from, command).stdin(Stdio::null()).output().unwrap()
    }

    /// Address at which sshd listens.
    pub fn address(&self) -> &str {
        &self.ends.address
    }

    /// Has a command run where the ssh to this sshd runs.
    pub fn near(&self, command: Command) -> Command {
        behind(&self.ends.from, command)
    }

    /// Words of a push, a pull or a listing that comes here.
    pub fn words(&self, words: &[OsString]) -> Vec<OsString> {
        [words, &words!["--ssh", self.ssh_command()]].concat()
    }

    pub fn run(&self, place: &Place, words: &[OsString]) -> Ran {
        self.start_haul(place, words).finish()
    }

    /// Starts `haul WORDS --json` that comes here.
    pub fn start_haul(&self, place: &Place, words: &[OsString]) -> Haul {
        let words = [&self.words(words)[..], &words!["--json"]].concat();
        Haul::start(self.near(place.command(&words)))
    }

    /// Path below the home directory there.
    pub fn home(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// Ids of the processes that serve a copy here.
    pub fn far_ends(&self) -> Vec<u32> {
        let mut home = b"HOME=".to_vec();
        home.extend_from_slice(self.home.as_os_str().as_bytes());
        let is_far_end = |id: &u32| {
            let read = |name: &str| fs::read(format!("/proc/{id}/{name}")).unwrap_or_default();
            let has =
                |text: &[u8], part: &[u8]| text.split(|byte| *byte == 0).any(|one| one == part);
            has(&read("cmdline"), b"--over-ssh") && has(&read("environ"), &home)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        ids.filter(is_far_end).collect()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // An error says that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let deadline = Instant::now() + PATIENCE;
        while !self.far_ends().is_empty() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
