//! A running `haul serve`, which can be killed and started again on its port.

use super::{
    Place, as_nobody,
    process::{Haul, behind},
};
use crate::words;
use std::{
    ffi::{OsStr, OsString},
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// Number of threads of a server that serves nobody: the first, its listener's, its log's, the one
/// that watches the tokens, and the one that waits for a hangup.
pub const IDLE_THREADS: u64 = 5;

/// Settings that a server is started with.
pub struct ServerSetup {
    root: OsString,
    state: PathBuf,
    options: Vec<OsString>,
    nobody: bool,
    unread: bool,
    descriptors: Option<u32>,
    /// Words that run the server, such as `taskset -c 0`.
    behind: Vec<OsString>,
    /// Variables to add to the server's environment.
    variables: Vec<(OsString, OsString)>,
}

impl ServerSetup {
    /// Settings of a server of the `root` of a place.
    pub fn new(place: &Place) -> Self {
        Self {
            root: place.path("root").into(),
            state: place.path("state"),
            options: Vec::new(),
            nobody: false,
            unread: false,
            descriptors: None,
            behind: Vec::new(),
            variables: Vec::new(),
        }
    }

    pub fn root(mut self, root: impl AsRef<OsStr>) -> Self {
        self.root = root.as_ref().to_owned();
        self
    }

    /// Takes another state directory: another key, other tokens.
    pub fn state(mut self, state: PathBuf) -> Self {
        self.state = state;
        self
    }

    pub fn options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(OsString::from));
        self
    }

    /// Runs the server as a user without rights; only root can.
    pub fn run_by_nobody(mut self) -> Self {
        self.nobody = true;
        self
    }

    /// Leaves what the server says unread, but for the first line.
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// Runs the server behind other words, such as `taskset -c 0`.
    pub fn behind(mut self, words: &[OsString]) -> Self {
        self.behind = words.to_vec();
        self
    }

    /// Adds a variable to the server's environment.
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().into()));
        self
    }

    pub fn start(self, place: &Place) -> Server {
        self.start_at(place, "127.0.0.1:0")
    }

    pub fn start_at(self, place: &Place, listen: &str) -> Server {
        let (process, url) = self.launch(place, listen);
        Server { setup: self, process, url }
    }

    fn launch(&self, place: &Place, listen: &str) -> (Haul, String) {
        let words = words!["serve", self.root, "--listen", listen];
        let words = [words, self.options.clone(), words!["--json"]].concat();
        let mut command = place.command(&words);
        command.env("HAUL_STATE", &self.state);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command = behind(&self.behind, command);
        if self.nobody {
            fs::create_dir_all(&self.state).unwrap();
            fs::set_permissions(&self.state, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&self.state, Some(super::NOBODY), Some(super::NOBODY)).unwrap();
            as_nobody(&mut command);
        }
        if let Some(most) = self.descriptors {
            command = with_few_descriptors(&command, most);
        }
        let start = if self.unread { Haul::start_unread } else { Haul::start };
        let process = start(command);
        let line = process.wait_for("listening line", |_| true);
        assert_eq!(line["event"], "listening", "the first line of a server: {line}");
        let url = line["url"].as_str().unwrap().to_owned();
        (process, url)
    }
}

/// Command that runs another with at most this many open descriptors.
pub fn with_few_descriptors(haul: &Command, most: u32) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {most}; exec \"$@\"")).arg("sh");
    command.arg(haul.get_program()).args(haul.get_args());
    command.current_dir(haul.get_current_dir().unwrap()).env_clear();
    command.envs(haul.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// A running server, killed when dropped.
pub struct Server {
    setup: ServerSetup,
    pub process: Haul,
    url: String,
}

impl Server {
    pub fn start(place: &Place) -> Self {
        ServerSetup::new(place).start(place)
    }

    /// The printed URL with this path behind it.
    pub fn url(&self, path: impl AsRef<OsStr>) -> OsString {
        let mut url = OsString::from(&self.url);
        url.push(path.as_ref());
        url
    }

    pub fn address(&self) -> SocketAddr {
        let authority = self.url.strip_prefix("haul://").unwrap().split('/').next().unwrap();
        authority.split('@').next_back().unwrap().parse().unwrap()
    }

    pub fn token(&self) -> haul_transfer::Token {
        self.url.parse::<haul_transfer::HaulUrl>().unwrap().token.unwrap()
    }

    /// The URL for another address or token.
    pub fn url_with(&self, token: &str, address: SocketAddr, path: impl AsRef<OsStr>) -> OsString {
        let mut url = OsString::from(format!("haul://{token}@{address}/"));
        url.push(path.as_ref());
        url
    }

    /// The URL by way of a proxy.
    pub fn url_by(&self, address: SocketAddr, path: impl AsRef<OsStr>) -> OsString {
        self.url_with(&self.token().reveal(), address, path)
    }

    /// Starts the server again as it was, on the same port.
    #[track_caller]
    pub fn restart(&mut self, place: &Place) {
        self.process.kill();
        let (process, url) = self.setup.launch(place, &self.address().to_string());
        assert_eq!(url, self.url, "a server that starts again keeps its URL");
        self.process = process;
    }

    /// Waits until this many sessions of the process have ended, counted from its start.
    #[track_caller]
    pub fn wait_for_sessions(&self, ended: usize) {
        self.process.wait_for_count("session_ended", ended);
    }

    /// Number of connections that were refused, in however few lines.
    pub fn refusals(&self) -> u64 {
        let events = self.process.events();
        let refused = events.iter().filter(|line| line["event"] == "refused");
        refused.map(|line| line["times"].as_u64().unwrap()).sum()
    }

    /// Waits until this many connections were refused: of a flood the log tells when its window is
    /// over.
    #[track_caller]
    pub fn wait_for_refusals(&self, count: u64) {
        let deadline = Instant::now() + super::PATIENCE;
        while self.refusals() < count {
            assert!(Instant::now() < deadline, "{} of {count} refused", self.refusals());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts a server that may have at most this many descriptors.
    pub fn start_with_few_descriptors(place: &Place, most: u32) -> Self {
        let mut setup = ServerSetup::new(place);
        setup.descriptors = Some(most);
        setup.start(place)
    }

    /// Checks that the server still serves: a small file goes there and back.
    #[track_caller]
    pub fn still_serves(&self, place: &Place) {
        let file = place.path("still-there");
        fs::write(&file, b"still there").unwrap();
        place.push(&words![file, self.url("")]).ok();
        place.pull(&words![self.url("still-there"), place.path("back-again")]).ok();
        let back = fs::read(place.path("back-again")).unwrap();
        assert_eq!(back, b"still there");
        fs::remove_file(place.path("back-again")).unwrap();
    }

    /// Most memory that the server ever had, in bytes (VmHWM). The pages of its program and its
    /// libraries count as much as those of a build without RDMA, whichever this is.
    pub fn memory_bytes(&self) -> u64 {
        const PROGRAM_KIB: u64 = 22 << 10;
        (self.status("VmHWM:") - self.status("RssFile:") + PROGRAM_KIB) << 10
    }

    /// Number of threads that the server has now.
    pub fn threads(&self) -> u64 {
        self.status("Threads:")
    }

    /// Waits until the server has no more threads than these.
    #[track_caller]
    pub fn wait_for_threads(&self, at_most: u64) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.threads() > at_most {
            let threads = self.threads();
            assert!(Instant::now() < deadline, "{threads} threads stay, {at_most} were there");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A number of /proc/PID/status (proc(5)).
    fn status(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Escapes the name of a file for a URL.
    pub fn escaped(name: &[u8]) -> String {
        name.iter().map(|byte| format!("%{byte:02X}")).collect()
    }
}
