//! Copies this program to a machine that has no haul, over the ssh that starts it.
//!
//! That is `--install-remote`. ssh is run once. Its command is a script for sh(1) that begins the
//! haul of the PATH there, else the copy of an earlier run whose digest fits, and else asks for the
//! program on standard input. A copy has no name that can be run before its digest is right and it
//! has started once.

use super::{messages::Lacks, problem};
use aws_lc_rs::digest::{Context, SHA256};
use haul_transfer::{Event, Problem, Side, internals::hex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// This program, as it runs.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Digits of the digest in the name of a copy.
const NAME_DIGITS: usize = 12;
/// Copies that are kept in a directory, those used last.
const COPIES_MAX: usize = 3;
/// Most bytes of one write: what a pipe that poll(2) calls writable takes at once (PIPE_BUF).
const PART_BYTES: usize = 4096;
/// Interval at which a copy that gets on is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time after which a copy is told while it runs.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// This program, ready to be copied.
#[derive(Debug)]
pub struct Installer {
    file: File,
    len_bytes: u64,
    /// SHA-256 in hexadecimal.
    digest: String,
}

impl Installer {
    /// Opens this program and takes its digest.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of_this_program() -> Result<Self, Problem> {
        let read = || -> io::Result<Self> {
            let mut file = File::open(OWN_PROGRAM)?;
            let (mut context, mut part, mut len_bytes) = (Context::new(&SHA256), [0; 1 << 16], 0);
            loop {
                let len = file.read(&mut part)?;
                if len == 0 {
                    break;
                }
                context.update(&part[..len]);
                len_bytes += len as u64;
            }
            let digest = hex(context.finish().as_ref());
            Ok(Self { file, len_bytes, digest })
        };
        read().map_err(|error| {
            let what = format!("cannot read this program ({OWN_PROGRAM}) to copy it");
            problem(&what, "", &error.to_string(), "leave out --install-remote")
        })
    }

    /// The command for the shell there, for a request of so many bytes, which is written at once
    /// and again behind the program.
    ///
    /// It is one line without a `'` and a `!`, so that each login shell takes it as it is, csh(1)
    /// too. `haul` is a plain word.
    #[must_use]
    pub fn command(&self, haul: &str, request_bytes: usize) -> String {
        let name = format!("haul-{}-{}", env!("CARGO_PKG_VERSION"), &self.digest[..NAME_DIGITS]);
        let head = format!(
            "h={haul}; n={name}; s={}; z={}; r={request_bytes}; w=\"Linux {}\"; k={};",
            self.digest,
            self.len_bytes,
            std::env::consts::ARCH,
            COPIES_MAX + 1
        );
        let lines = SCRIPT.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let script: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        format!("sh -c '{head} {}'", script.join(" "))
    }

    /// Copies the program to a far end that has asked for it; says whether all of it went out.
    /// `goes_on` is asked often, and ends the copy by a false. A far end that reads no more says
    /// why by itself.
    ///
    /// # Errors
    /// If the program cannot be read.
    pub fn copy(
        &mut self,
        to: &mut (impl Write + AsFd),
        far: &str,
        goes_on: &mut dyn FnMut(Duration) -> bool,
    ) -> io::Result<bool> {
        let (mut part, begun) = ([0; PART_BYTES], Instant::now());
        let (mut left, mut moved_at, mut is_told) = (self.len_bytes, begun, false);
        self.file.rewind()?;
        while left > 0 && goes_on(moved_at.elapsed()) {
            if !is_told && begun.elapsed() > TOLD_AFTER {
                let bytes = haul_report::units::bytes(self.len_bytes);
                let _ = writeln!(io::stderr(), "haul: {far} has no haul; {bytes} of it go there");
                is_told = true;
            }
            if !is_writable(to)? {
                continue;
            }
            let len = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.file.read_exact(&mut part[..len])?;
            if to.write_all(&part[..len]).is_err() {
                break;
            }
            (left, moved_at) = (left - len as u64, Instant::now());
        }
        Ok(left == 0)
    }

    /// The event that tells of a copy.
    #[must_use]
    pub fn told(&self, far: &str, lacks: &Lacks) -> Event {
        let bytes = haul_report::units::bytes(self.len_bytes);
        let directory = haul_report::printable::printable(&lacks.directory);
        let why = format!(
            "{far} has no haul; this one ({bytes}) is now in {directory} there, and the next copy \
             finds it"
        );
        Event::Fallback { side: Side::Path, from_to: "no haul -> a copy of this one".into(), why }
    }
}

/// Checks that what `--remote-haul` says leaves room for a copy.
///
/// # Errors
/// If it is more than a name or a path, for the script asks whether that is there.
pub fn check_name(haul: &str) -> Result<(), Problem> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/~+-".contains(c);
    if haul.chars().all(is_plain) {
        return Ok(());
    }
    let needs = "a --remote-haul that is a name or a path, or none";
    let hint = "leave out one of both";
    Err(problem("cannot take --install-remote", needs, &format!("{haul:?}"), hint))
}

fn is_writable(to: &impl AsFd) -> io::Result<bool> {
    let wait = Timespec::try_from(LOOK_EVERY).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(to, PollFlags::OUT)];
    match poll(&mut fds, Some(&wait)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The script for sh(1), which says itself what it does.
const SCRIPT: &str = include_str!("install.sh");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{frame, messages::Answer};
    use std::process::{Command, Stdio};

    fn installer() -> Installer {
        Installer::of_this_program().unwrap()
    }

    #[test]
    fn the_script_is_one_word_of_each_login_shell() {
        let command = installer().command("haul", 77);
        let script = command.strip_prefix("sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(!script.contains(['\'', '!', '\n']), "{script}");
        // fish(1) reads these within quotes.
        assert!(!script.contains(r"\\"), "{script}");
        for shell in ["sh", "bash", "dash", "busybox"] {
            let mut check = Command::new(shell);
            if shell == "busybox" {
                check.arg("sh");
            }
            match check.args(["-n", "-c", script]).stdin(Stdio::null()).output() {
                Ok(checked) => assert!(checked.status.success(), "{shell}: {checked:?}"),
                Err(error) => assert_ne!(shell, "sh", "{error}"),
            }
        }
    }

    #[test]
    fn the_frames_of_the_script_are_read_as_ours() {
        let say = SCRIPT.lines().find(|line| line.starts_with("say()")).unwrap();
        let said = r#"say "{\"lacks\":{\"directory\":\"/x y\"}}"; say "{\"installed\":{}}""#;
        let output = Command::new("sh").args(["-c", &format!("{say} {said}")]).output().unwrap();
        let (mut from, mut read) = (&output.stdout[..], Vec::new());
        for _ in 0..2 {
            let mut noise = Vec::new();
            read.push(frame::read::<Answer>(&mut from, 0, &mut noise).unwrap());
        }
        let [Answer::Lacks(Lacks { directory }), Answer::Installed {}] = &read[..] else {
            panic!("{read:?}")
        };
        assert_eq!((directory.as_str(), from), ("/x y", &b""[..]));
    }

    #[test]
    fn only_a_plain_word_is_looked_for() {
        for good in ["haul", "/opt/haul-1.2/bin/haul", "~/bin/haul"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["sudo haul", "haul; x", "$HOME/haul", "'haul'", "a`b`"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_digest_is_that_of_sha256sum() {
        let own = installer();
        let Ok(said) = Command::new("sha256sum").arg(std::env::current_exe().unwrap()).output()
        else {
            return haul_testkit::skip::skip("sha256sum", "none");
        };
        assert!(String::from_utf8_lossy(&said.stdout).starts_with(&own.digest));
        assert_eq!(own.len_bytes, own.file.metadata().unwrap().len());
    }

    #[test]
    fn a_copy_is_the_program_and_ends_where_nobody_waits_for_it() {
        let mut own = installer();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let read = std::thread::spawn(move || {
            let mut context = Context::new(&SHA256);
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            context.update(&bytes);
            hex(context.finish().as_ref())
        });
        assert!(own.copy(&mut writer, "dtn1", &mut |_| true).unwrap());
        drop(writer);
        assert_eq!(read.join().unwrap(), own.digest);
        let (_reader, mut writer) = std::io::pipe().unwrap();
        let mut asked = 0;
        let mut goes_on = |_| {
            asked += 1;
            asked < 40
        };
        assert!(!own.copy(&mut writer, "dtn1", &mut goes_on).unwrap());
        assert_eq!(asked, 40, "a pipe that nobody reads is no reason to wait");
    }
}
