//! The movers of small files: the bare floor, haul, tar over a socket, and rsync with its daemon.
//!
//! The clock of a run begins before its first process, with the exception of `haul serve`, which
//! listens already, and ends when all is durable: haul says so by its end, the floor syncs itself,
//! and for tar and rsync the file system is synced within the clock.

use crate::{
    error::Lack,
    floor::FloorSpec,
    side::SideLine,
    small_files::{
        calls::Counting,
        host_time,
        place::Place,
        process::{Process, command, poll_one},
        programs,
        tree::{FILES_A_DIRECTORY, Tree},
    },
    workshop::Workshop,
};
use anyhow::{Context, Result, bail, ensure};
use haul_sys::process_clock::cpu_time_of;
use haul_transfer::{HaulUrl, TOKEN_VARIABLE};
use rustix::{
    rand::{GetRandomFlags, getrandom},
    time::{ClockId, clock_gettime},
};
use serde::Serialize;
use std::{
    env,
    fs::{self, File},
    io::Write,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// Threads of the floor: as many as sides that work at once.
const FLOOR_THREADS: u64 = 2;
/// Longest time of a run: a minute, and as long for each file as no mover takes, even traced.
const TIME_MAX: Duration = Duration::from_secs(60);
const FILE_TIME_MAX: Duration = Duration::from_millis(10);
/// Interval between looks at whether a client that is to connect has ended.
const ACCEPT_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Tries to connect to oneself, where others connect first.
const CONNECTS_MAX: u32 = 8;
/// The name by which rsync's client proves that it is ours.
const RSYNC_USER: &str = "bench";
/// Directories below a place.
pub const SOURCE: &str = "source";
pub const TARGET: &str = "target";
/// The directory in both that is moved: each mover makes it.
pub const TREE: &str = "tree";

/// A mover of small files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mover {
    Floor,
    HaulPush,
    HaulPull,
    Tar,
    RsyncPush,
    RsyncPull,
}

impl Mover {
    pub const ALL: [Self; 6] =
        [Self::Floor, Self::HaulPush, Self::HaulPull, Self::Tar, Self::RsyncPush, Self::RsyncPull];

    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "bare floor",
            Self::HaulPush => "haul push",
            Self::HaulPull => "haul pull",
            Self::Tar => "tar",
            Self::RsyncPush => "rsync push",
            Self::RsyncPull => "rsync pull",
        }
    }

    /// The program that has to be installed.
    pub fn program(self) -> Option<&'static str> {
        match self {
            Self::Floor | Self::HaulPush | Self::HaulPull => None,
            Self::Tar => Some("tar"),
            Self::RsyncPush | Self::RsyncPull => Some("rsync"),
        }
    }

    /// The program, found; this one for haul and the floor.
    pub fn find(self) -> Result<PathBuf, Lack> {
        match self.program() {
            Some(name) => programs::find(name),
            None => Ok(env::current_exe()?),
        }
    }
}

/// Figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    pub seconds: f64,
    /// Processor time of the sender's processes, in user and kernel mode.
    pub sends: Duration,
    /// Processor time of the receiver's processes, with the sync.
    pub receives: Duration,
    /// Time that the host's processors worked meanwhile, for anybody: the kernel's threads too.
    pub host: Option<Duration>,
}

/// The surroundings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Bed<'a> {
    pub workshop: &'a Workshop,
    pub place: &'a Place,
    pub tree: Tree,
    pub counting: &'a Counting<'a>,
}

impl Bed<'_> {
    /// The tree that is sent.
    pub fn source(&self) -> PathBuf {
        self.place.directory.join(SOURCE).join(TREE)
    }

    /// The directory that the tree arrives in.
    pub fn target(&self) -> PathBuf {
        self.place.directory.join(TARGET)
    }

    /// Runs the mover once; its target is there and empty.
    pub fn run(&self, mover: Mover) -> Result<Moved> {
        match mover {
            Mover::Floor => self.floor(),
            Mover::HaulPush | Mover::HaulPull => self.haul(mover),
            Mover::Tar => self.tar(),
            Mover::RsyncPush | Mover::RsyncPull => self.rsync(mover),
        }
    }

    fn until(&self) -> Instant {
        let files = u32::try_from(self.tree.files).unwrap_or(u32::MAX);
        Instant::now() + TIME_MAX + FILE_TIME_MAX.saturating_mul(files)
    }

    /// The program of a mover as a side of this name; standard input is empty.
    fn program(&self, mover: Mover, name: &str) -> Result<Command> {
        let program = mover.find()?;
        let mut command = command(&self.counting.words(name), program.as_os_str());
        command.current_dir(self.workshop.path()).stdin(Stdio::null());
        command.env("HAUL_STATE", self.workshop.path().join("state")).env_remove(TOKEN_VARIABLE);
        Ok(command)
    }

    fn floor(&self) -> Result<Moved> {
        let spec = FloorSpec {
            floor: self.target().join(TREE),
            files: self.tree.files,
            file_bytes: self.tree.file_bytes as usize,
            files_a_directory: FILES_A_DIRECTORY,
            threads: FLOOR_THREADS,
        };
        let mut command = self.program(Mover::Floor, "floor")?;
        command.args(["bench-side", &serde_json::to_string(&spec)?]);
        let (until, clock) = (self.until(), Clock::start());
        let floor = Process::start(self.workshop, "floor", &mut command, None)?;
        let output = floor.output().to_owned();
        let used = floor.wait(until, self.workshop)?;
        let moved = clock.stop();
        let said = fs::read_to_string(output).context("the floor said nothing")?;
        let line = serde_json::from_str::<SideLine>(said.trim());
        match line.context("the floor printed an odd line")? {
            SideLine::Done(_) => Ok(Moved { receives: used.cpu, ..moved }),
            SideLine::Refused { why, .. } => bail!("{why}"),
            SideLine::Listening { .. } | SideLine::Fabric(_) => {
                bail!("the floor listens, which it was not asked to")
            }
        }
    }

    fn haul(&self, mover: Mover) -> Result<Moved> {
        let until = self.until();
        let mut serve = self.program(mover, "serve")?;
        serve.arg("serve").arg(&self.place.directory);
        serve.args(["--listen", "127.0.0.1:0", "--once", "--json"]);
        let server = Process::start(self.workshop, "serve", &mut serve, None)?;
        let read = |line: &serde_json::Value| line["url"].as_str().map(str::to_owned);
        let url = server.wait_for(until, self.workshop, read)?;
        let url = url.parse::<HaulUrl>().context("the server printed an odd URL")?;
        let token = url.token.as_ref().context("the URL has no token")?.reveal();
        let remote =
            |path: &str| HaulUrl { token: None, path: path.into(), ..url.clone() }.reveal();
        let mut client = self.program(mover, "client")?;
        if mover == Mover::HaulPush {
            client.arg("push").arg(self.source()).arg(remote(&format!("{TARGET}/")));
        } else {
            client.arg("pull").arg(remote(&format!("{SOURCE}/{TREE}"))).arg(self.target());
        }
        client.args(["--protection", "safe", "--retry-for", "0s", "--json", "--quiet"]);
        client.env(TOKEN_VARIABLE, token);
        let before = cpu_time_of(server.id()).context("the server has no clock")?;
        let clock = Clock::start();
        let client = Process::start(self.workshop, "client", &mut client, None)?;
        let client_used = client.wait(until, self.workshop)?.cpu;
        let moved = clock.stop();
        // What it does after that counts, too.
        let server_used = server.wait(until, self.workshop)?.cpu.saturating_sub(before);
        let (sends, receives) = match mover {
            Mover::HaulPush => (client_used, server_used),
            _ => (server_used, client_used),
        };
        Ok(Moved { sends, receives, ..moved })
    }

    fn tar(&self) -> Result<Moved> {
        let (near, far) = connected()?;
        let until = self.until();
        let mut send = self.program(Mover::Tar, "send")?;
        send.arg("-C").arg(self.place.directory.join(SOURCE)).args(["-cf", "-", TREE]);
        let mut receive = self.program(Mover::Tar, "receive")?;
        receive.arg("-C").arg(self.target()).args(["--no-same-owner", "-xf", "-"]);
        receive.stdin(Stdio::from(std::os::fd::OwnedFd::from(far)));
        let near = Stdio::from(std::os::fd::OwnedFd::from(near));
        let clock = Clock::start();
        let sender = Process::start(self.workshop, "tar-send", &mut send, Some(near))?;
        let receiver = Process::start(self.workshop, "tar-receive", &mut receive, None)?;
        // Their ends of the connection: nobody would see the other's end.
        drop((send, receive));
        let sends = sender.wait(until, self.workshop)?.cpu;
        let received = receiver.wait(until, self.workshop)?.cpu;
        let synced = self.sync()?;
        Ok(Moved { sends, receives: received + synced, ..clock.stop() })
    }

    fn rsync(&self, mover: Mover) -> Result<Moved> {
        let until = self.until();
        let password = password()?;
        let configuration = self.rsync_configuration(&password)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let remote = format!("rsync://{RSYNC_USER}@127.0.0.1:{port}/files");
        let mut client = self.program(mover, "client")?;
        client.args(["--archive", "--whole-file"]).env("RSYNC_PASSWORD", &password);
        if mover == Mover::RsyncPush {
            client.arg(self.source()).arg(format!("{remote}/{TARGET}/"));
        } else {
            client.arg(format!("{remote}/{SOURCE}/{TREE}")).arg(self.target());
        }
        let mut daemon = self.program(mover, "daemon")?;
        daemon.arg("--daemon").arg(configuration);
        let clock = Clock::start();
        let client = Process::start(self.workshop, "client", &mut client, None)?;
        let socket = accept(&listener, &client)?;
        daemon.stdin(Stdio::from(std::os::fd::OwnedFd::from(socket.try_clone()?)));
        let socket = Stdio::from(std::os::fd::OwnedFd::from(socket));
        let server = Process::start(self.workshop, "daemon", &mut daemon, Some(socket))?;
        drop(daemon);
        let client_used = client.wait(until, self.workshop)?.cpu;
        let server_used = server.wait(until, self.workshop)?.cpu;
        let synced = self.sync()?;
        let moved = clock.stop();
        let (sends, received) = match mover {
            Mover::RsyncPush => (client_used, server_used),
            _ => (server_used, client_used),
        };
        Ok(Moved { sends, receives: received + synced, ..moved })
    }

    /// Writes what rsync's daemon reads: only our client may come, by a password of this run.
    fn rsync_configuration(&self, password: &str) -> Result<String> {
        let at = |name: &str| self.workshop.path().join(name);
        let (secrets, configuration) = (at("rsyncd.secrets"), at("rsyncd.conf"));
        let _ = fs::remove_file(&secrets);
        const OWNER_READS: u32 = 0o600;
        let mut options = File::options();
        let mut file = options.write(true).create_new(true).mode(OWNER_READS).open(&secrets)?;
        writeln!(file, "{RSYNC_USER}:{password}")?;
        let is_root = rustix::process::geteuid().is_root();
        let user = if is_root { "uid = root\ngid = root\n" } else { "" };
        let text = format!(
            "use chroot = no\nreverse lookup = no\nlog file = {}\n[files]\npath = {}\n\
             read only = no\nauth users = {RSYNC_USER}\nsecrets file = {}\n{user}",
            at("rsyncd.log").display(),
            self.place.directory.display(),
            secrets.display(),
        );
        fs::write(&configuration, text).context("cannot write rsync's configuration")?;
        Ok(format!("--config={}", configuration.display()))
    }

    /// Makes the target durable; the processor time that this takes.
    fn sync(&self) -> Result<Duration> {
        let own = || -> Result<Duration> {
            let time = clock_gettime(ClockId::ThreadCPUTime);
            Duration::try_from(time).context("a thread's clock")
        };
        let before = own()?;
        self.place.sync()?;
        Ok(own()?.saturating_sub(before))
    }
}

/// The clock of a run, and the work of the host's processors meanwhile.
struct Clock {
    host: Option<Duration>,
    started: Instant,
}

impl Clock {
    fn start() -> Self {
        let host = host_time::busy();
        Self { host, started: Instant::now() }
    }

    fn stop(self) -> Moved {
        let seconds = self.started.elapsed().as_secs_f64();
        let host = host_time::busy().zip(self.host);
        let host = host.map(|(after, before)| after.saturating_sub(before));
        Moved { seconds, host, ..Moved::default() }
    }
}

/// A password that nobody guesses while a run lasts.
fn password() -> Result<String> {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).context("getrandom")?;
    ensure!(filled == bytes.len(), "the kernel gave {filled} random bytes only");
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Two ends of a TCP connection over loopback, both ours.
fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    let near = TcpStream::connect(listener.local_addr()?).context("cannot connect")?;
    for _ in 0..CONNECTS_MAX {
        let (far, from) = listener.accept()?;
        if from == near.local_addr()? {
            return Ok((near, far));
        }
    }
    bail!("others connect to a port of this bench")
}

/// The connection of a client that is to come, unless it ends before.
fn accept(listener: &TcpListener, client: &Process) -> Result<TcpStream> {
    while !poll_one(listener, ACCEPT_LOOK_EVERY)? {
        ensure!(!client.has_ended()?, "rsync did not connect: {}", client.says());
    }
    let (socket, _) = listener.accept()?;
    Ok(socket)
}
