//! A real sshd(8) of a test, with keys, configuration and port of its own, and the ssh(1) to it.

use super::{PATIENCE, Place, process::Ran};
use crate::words;
use haul_testkit::skip::skip;
use std::{
    ffi::{OsStr, OsString},
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
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

/// Settings of an sshd.
#[derive(Default)]
pub struct SshdSetup {
    /// Options in front of the key that is let in, such as `command="..."`.
    key_options: String,
    no_haul: bool,
    /// Directories in front of the PATH there, each with a colon behind.
    search_first: String,
    /// More of the environment there, each with a blank in front.
    environment: String,
}

/// A running sshd, killed when dropped.
pub struct Sshd {
    child: Child,
    ssh_config: PathBuf,
    home: PathBuf,
}

impl SshdSetup {
    pub fn new() -> Self {
        Self::default()
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
        for _ in 0..STARTS_MAX {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
            if let Some(sshd) = self.start_on(place, &program, port) {
                let tried = sshd.ssh(&["true"]);
                if tried.status.success() || !self.key_options.is_empty() {
                    return Some(sshd);
                }
                let found = String::from_utf8_lossy(&tried.stderr).into_owned();
                skip("an sshd that lets the user of the tests in", found);
                return None;
            }
        }
        skip(needs, "one that does not listen");
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

    fn start_on(&self, place: &Place, program: &Path, address: SocketAddr) -> Option<Sshd> {
        write_configs(self, place, address.port());
        let mut command = Command::new(program);
        command.args(["-D", "-e", "-f"]).arg(place.path("sshd_config"));
        let log = fs::File::create(place.path("sshd.log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().ok()?;
        let (ssh_config, home) = (place.path("ssh_config"), place.path("home"));
        let mut sshd = Sshd { child, ssh_config, home };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if TcpStream::connect(address).is_ok() {
                return Some(sshd);
            }
            if !matches!(sshd.child.try_wait(), Ok(None)) {
                return None;
            }
            thread::sleep(Duration::from_millis(20));
        }
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
        "ListenAddress 127.0.0.1".to_owned(),
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
    fs::write(place.path("sshd_config"), lines.join("\n") + "\n").unwrap();
    let host_key = fs::read_to_string(place.path("host_key.pub")).unwrap();
    fs::write(place.path("known_hosts"), format!("{HOST} {host_key}")).unwrap();
    let lines = [
        format!("Host {HOST}"),
        "HostName 127.0.0.1".to_owned(),
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
        let mut command = Command::new("ssh");
        command.arg("-F").arg(&self.ssh_config).arg(HOST).args(words).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Words of a push, a pull or a listing that comes here.
    pub fn words(&self, words: &[OsString]) -> Vec<OsString> {
        [words, &words!["--ssh", self.ssh_command()]].concat()
    }

    pub fn run(&self, place: &Place, words: &[OsString]) -> Ran {
        place.run(&self.words(words))
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
