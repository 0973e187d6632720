//! The machine that is audited: its files below a root, what its programs say, and what it is.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::below;

/// The directory of the answers of programs in a stored host, each in a file named as its command.
pub const STORED_ANSWERS: &str = "answers";
/// A file of /proc or /sys that is longer than this holds no setting.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// Longest wait for a program's answer: one that says nothing for this long hangs.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Interval between checks whether a program has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A value that could not be had, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file or the command.
    pub what: String,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The file is not there: this kernel or driver lacks it, or hides it.
    Missing,
    NoRight,
    /// The program is not installed; holds the name of its Debian package.
    NoProgram(&'static str),
    /// The value was read and makes no sense; holds what was read.
    Nonsense(String),
    /// The card or disk is gone; holds the system's words, or the program's.
    NoDevice(String),
    /// The driver or file system lacks it; holds the system's words, or the program's.
    NotSupported(String),
    /// Any other reason, in the system's words or the program's.
    Failed(String),
}

impl Why {
    /// The reason that the system gave.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        let words = error.to_string();
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NODEV | Errno::NXIO) => Self::NoDevice(words),
            Some(Errno::OPNOTSUPP) => Self::NotSupported(words),
            _ => Self::Failed(words),
        }
    }

    /// Finds the reason in a program's words: ip(8), tc(8) and ethtool(8) have an exit status for
    /// failure, and nothing but words for which one it was.
    fn of_program(words: &str) -> Self {
        if has_any(words, &["Operation not permitted", "Permission denied"]) {
            return Self::NoRight;
        }
        let line = words.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("failed");
        let line = line.to_owned();
        if has_any(&line, &["No such device", "Cannot find device", "does not exist"]) {
            Self::NoDevice(line)
        } else if has_any(&line, &["not supported"]) {
            Self::NotSupported(line)
        } else {
            Self::Failed(line)
        }
    }
}

fn has_any(words: &str, any: &[&str]) -> bool {
    any.iter().any(|some| words.contains(some))
}

impl Unread {
    #[must_use]
    pub fn nonsense(what: impl Into<String>, read: &str) -> Self {
        let read: String = read.chars().take(80).filter(|sign| !sign.is_control()).collect();
        Self { what: what.into(), why: Why::Nonsense(read) }
    }

    /// The reason as words of a finding.
    #[must_use]
    pub fn words(&self) -> String {
        let what = &self.what;
        match &self.why {
            Why::Missing => format!("{what} is not there"),
            Why::NoRight => format!("{what}: permission denied"),
            Why::NoProgram(package) => {
                format!("{what}: not installed (apt-get install {package})")
            }
            Why::Nonsense(read) => format!("{what} holds \"{read}\", which makes no sense"),
            Why::NoDevice(words) | Why::NotSupported(words) | Why::Failed(words) => {
                format!("{what}: {words}")
            }
        }
    }
}

/// The kind of a host, by what it shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    Hardware,
    /// A virtual machine: its processors and cards are what a hypervisor gives it.
    Virtual,
    /// A container: most settings are its host's.
    Container,
}

/// The files and programs of a machine. Below another root than `/` it is a stored host: nothing
/// is run, the answers of programs are files.
#[derive(Clone, Debug)]
pub struct Machine {
    root: PathBuf,
    kernel_tls: Option<fn() -> io::Result<()>>,
}

impl Machine {
    /// Takes the machine whose files lie below `root`.
    ///
    /// # Panics
    /// Never; `root` need not exist.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), kernel_tls: None }
    }

    /// Gives it a trial of the kernel's TLS, which this crate has none of.
    #[must_use]
    pub fn trying_kernel_tls(self, trial: fn() -> io::Result<()>) -> Self {
        Self { kernel_tls: Some(trial), ..self }
    }

    /// Tries whether the kernel encrypts and decrypts TLS; `None` where nobody can tell.
    #[must_use]
    pub fn try_kernel_tls(&self) -> Option<io::Result<()>> {
        if self.is_live() {
            return self.kernel_tls.map(|trial| trial());
        }
        let stored = fs::read_to_string(self.root.join(STORED_ANSWERS).join("kernel-tls")).ok()?;
        Some(stored.strip_prefix("! ").map_or(Ok(()), |words| Err(io::Error::other(words.trim()))))
    }

    #[must_use]
    pub fn live() -> Self {
        Self::below(Path::new("/"))
    }

    #[must_use]
    pub fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The place of `path` below the machine's root.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        below(&self.root, path)
    }

    /// The text of a file without the blanks around it.
    ///
    /// # Errors
    /// Why it could not be read.
    pub fn text(&self, path: &str) -> Result<String, Unread> {
        let unread = |error: io::Error| {
            let why = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::Missing,
                io::ErrorKind::PermissionDenied => Why::NoRight,
                _ => Why::of(&error),
            };
            Unread { what: path.to_owned(), why }
        };
        let file = fs::File::open(self.path(path)).map_err(unread)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, TEXT_BYTES_MAX), &mut bytes)
            .map_err(unread)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The number in a file that holds one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn number(&self, path: &str) -> Result<i64, Unread> {
        let text = self.text(path)?;
        text.parse().map_err(|_| Unread::nonsense(path, &text))
    }

    /// The value of a setting by its name in sysctl(8), its words one blank apart.
    ///
    /// # Errors
    /// Why it could not be read.
    pub fn sysctl(&self, name: &str) -> Result<String, Unread> {
        let text = self.text(&sysctl_path(name))?;
        Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The names in a directory, in order; none if it cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The last part of what a symbolic link names.
    #[must_use]
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Runs a program and returns what it prints. The program gets no input, and its words are
    /// always the English ones.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn answer(&self, command: &[&str]) -> Result<String, Unread> {
        let what = command.join(" ");
        if !self.is_live() {
            return self.stored_answer(&what);
        }
        run(command)
    }

    /// Reads a stored answer; one that begins with `! ` is what the program said when it failed.
    fn stored_answer(&self, what: &str) -> Result<String, Unread> {
        let path = self.root.join(STORED_ANSWERS).join(what.replace('/', "_"));
        let Ok(text) = fs::read_to_string(path) else {
            let program = what.split(' ').next().unwrap_or_default();
            return Err(Unread { what: what.to_owned(), why: Why::NoProgram(package(program)) });
        };
        match text.strip_prefix("! ") {
            Some(words) => Err(failed(what, words)),
            None => Ok(text),
        }
    }

    /// The kind of this host.
    #[must_use]
    pub fn platform(&self) -> Platform {
        let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
        let cgroup = self.text("/proc/1/cgroup").unwrap_or_default();
        let named = ["docker", "kubepods", "lxc", "containerd"];
        if (marks.iter().any(|mark| self.exists(mark)) && !self.has_own_disk())
            || named.iter().any(|name| cgroup.contains(name))
        {
            return Platform::Container;
        }
        // The processor itself says that a hypervisor runs it (CPUID 1, ECX bit 31).
        let flags = self.text("/proc/cpuinfo").unwrap_or_default();
        let is_virtual = flags.lines().filter(|line| line.starts_with("flags"));
        if is_virtual.flat_map(str::split_whitespace).any(|flag| flag == "hypervisor")
            || self.exists("/sys/hypervisor/type")
        {
            return Platform::Virtual;
        }
        Platform::Hardware
    }

    /// Whether the root lies on a disk as a whole, as that of a machine that boots: some are made
    /// from the images of containers and have their marks.
    fn has_own_disk(&self) -> bool {
        let table = self.text("/proc/self/mountinfo").unwrap_or_default();
        let is_disk = |line: &str| {
            let Some((mount, file_system)) = line.split_once(" - ") else { return false };
            let mut fields = mount.split(' ').skip(3);
            let is_whole_root = fields.next() == Some("/") && fields.next() == Some("/");
            let source = file_system.split(' ').nth(1).unwrap_or_default();
            is_whole_root && source.starts_with("/dev/")
        };
        table.lines().any(is_disk)
    }

    /// Whether nobody here may write the file: it lies on a read-only mount, as /proc/sys in a
    /// container, or has no mode for writing, as what belongs to the first network namespace.
    #[must_use]
    pub fn is_read_only(&self, path: &str) -> bool {
        let metadata = fs::metadata(self.path(path));
        if metadata.is_ok_and(|metadata| metadata.permissions().mode() & 0o222 == 0) {
            return true;
        }
        let table = self.text("/proc/self/mountinfo").unwrap_or_default();
        let beneath = |point: &str| {
            path == point
                || point == "/"
                || path.strip_prefix(point).is_some_and(|rest| rest.starts_with('/'))
        };
        // The last of the longest: later mounts lie over earlier ones.
        let mut best: Option<(usize, bool)> = None;
        for line in table.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let (Some(point), Some(options)) = (fields.get(4), fields.get(5)) else { continue };
            if beneath(point) && best.is_none_or(|(length, _)| point.len() >= length) {
                best = Some((point.len(), options.split(',').any(|option| option == "ro")));
            }
        }
        best.is_some_and(|(_, read_only)| read_only)
    }

    /// The network interfaces with a device behind them: not loopback, bridges and the like.
    #[must_use]
    pub fn cards(&self) -> Vec<String> {
        let mut names = self.names("/sys/class/net");
        names.retain(|name| self.exists(&format!("/sys/class/net/{name}/device")));
        names
    }

    /// Whether the host has this network interface: a name with a blank or a slash is that of none
    /// (net/core/dev.c, dev_valid_name).
    #[must_use]
    pub fn has_interface(&self, name: &str) -> bool {
        let is_name = !name.is_empty()
            && !name.starts_with(['.', '-'])
            && !name.contains(|sign: char| sign == '/' || sign.is_whitespace());
        is_name && self.path(&format!("/sys/class/net/{name}")).is_dir()
    }

    /// The numbers of the processors that are on.
    #[must_use]
    pub fn processors(&self) -> Vec<u32> {
        let online = self.text("/sys/devices/system/cpu/online").unwrap_or_default();
        crate::cpu::list(&online).unwrap_or_default()
    }

    /// Whether a running process has this name (/proc/PID/comm).
    #[must_use]
    pub fn runs(&self, name: &str) -> bool {
        let of_processes = self.names("/proc").into_iter();
        of_processes
            .filter(|entry| entry.bytes().all(|byte| byte.is_ascii_digit()))
            .any(|entry| self.text(&format!("/proc/{entry}/comm")).is_ok_and(|comm| comm == name))
    }
}

/// The path at which sysctl(8) finds a setting.
#[must_use]
pub fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Runs a program to its end.
pub(crate) fn run(command: &[&str]) -> Result<String, Unread> {
    let what = command.join(" ");
    let (program, words) = command.split_first().expect("a command has a name");
    let child = Command::new(program)
        .args(words)
        .env("LC_ALL", "C")
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let answer = child.and_then(|child| finish(child, ANSWER_MAX));
    match answer {
        Ok(answer) if answer.status.success() => {
            Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
        }
        Ok(answer) => {
            let words = String::from_utf8_lossy(&answer.stderr).into_owned()
                + &String::from_utf8_lossy(&answer.stdout);
            Err(failed(&what, &words))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Unread { what, why: Why::NoProgram(package(program)) })
        }
        Err(error) => Err(Unread { what, why: Why::of(&error) }),
    }
}

/// Waits for the end of a program, and ends one that hangs, as on a driver that does.
fn finish(mut child: Child, patience: Duration) -> io::Result<Output> {
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let read = |stream: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            // What was read until an error counts.
            let _ = stream.map(|stream| stream.take(TEXT_BYTES_MAX).read_to_end(&mut bytes));
            bytes
        };
        let out = scope.spawn(move || read(out.as_mut().map(|out| out as &mut dyn Read)));
        let err = scope.spawn(move || read(err.as_mut().map(|err| err as &mut dyn Read)));
        let until = Instant::now() + patience;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Ok(status);
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                let why = format!("no answer within {} s", patience.as_secs());
                break Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            thread::sleep(LOOK_AGAIN);
        };
        let of = |thread: thread::ScopedJoinHandle<'_, Vec<u8>>| thread.join().unwrap_or_default();
        let (stdout, stderr) = (of(out), of(err));
        Ok(Output { status: status?, stdout, stderr })
    })
}

fn failed(what: &str, words: &str) -> Unread {
    Unread { what: what.to_owned(), why: Why::of_program(words) }
}

/// The Debian package that has a program.
fn package(program: &str) -> &'static str {
    match program {
        "ethtool" => "ethtool",
        "dcb" | "ip" | "tc" => "iproute2",
        "ibv_devinfo" => "ibverbs-utils",
        "lspci" | "setpci" => "pciutils",
        "systemctl" => "systemd",
        _ => "the package that has it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a machine of these files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine::below(root.path());
        (root, machine)
    }

    #[test]
    fn a_machine_made_from_a_containers_image_is_no_container() {
        let disk = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n";
        let overlay = "27 1 0:40 / / rw,relatime - overlay overlay rw,lowerdir=/a\n";
        let flags = "flags\t\t: fpu hypervisor\n";
        let mark = (".dockerenv", "");
        let found = |files: &[(&str, &str)]| machine(files).1.platform();
        let mountinfo = "proc/self/mountinfo";
        assert_eq!(found(&[mark, (mountinfo, overlay)]), Platform::Container);
        assert_eq!(found(&[mark, (mountinfo, disk), ("proc/cpuinfo", flags)]), Platform::Virtual);
        assert_eq!(found(&[(mountinfo, disk)]), Platform::Hardware);
        assert_eq!(found(&[("proc/1/cgroup", "0::/docker/1\n")]), Platform::Container);
    }

    #[test]
    fn the_last_and_longest_mount_says_whether_a_file_may_be_written() {
        let table = "1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / /proc rw - proc proc rw\n\
            3 2 0:2 /sys /proc/sys ro,nosuid - proc proc rw\n";
        let (_root, machine) = machine(&[("proc/self/mountinfo", table)]);
        assert!(machine.is_read_only("/proc/sys/net/core/rmem_max"));
        assert!(!machine.is_read_only("/proc/sysrq-trigger"));
        assert!(!machine.is_read_only("/sys/block/sda/queue/scheduler"));
    }

    #[test]
    fn nonsense_is_shown_short_and_without_what_plays_with_a_terminal() {
        let long = format!("\u{1b}[31m{}", "x".repeat(500));
        let words = Unread::nonsense("/sys/x", &long).words();
        assert!(!words.contains('\u{1b}') && words.len() < 150, "{words}");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let start = |words: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", words]).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let long = Duration::from_secs(60);
        let said = finish(start("echo one; echo two >&2"), long).unwrap();
        assert_eq!((&said.stdout[..], &said.stderr[..]), (&b"one\n"[..], &b"two\n"[..]));
        let error = finish(start("exec sleep 600"), Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
