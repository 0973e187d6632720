//! The command that runs ssh(1) for a copy: no terminal there, nothing secret among its words.

use super::{
    install::{self, Installer},
    login::Login,
    problem,
};
use haul_transfer::{Problem, TOKEN_VARIABLE};
use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

/// Options of OpenSSH that keep what a user's configuration does for a person at a terminal away
/// from a copy, as scp(1) sets them.
const QUIET_LINE: [&str; 11] = [
    "-x",
    "-o",
    "PermitLocalCommand=no",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "RemoteCommand=none",
    "-o",
    "RequestTTY=no",
    "-o",
    "ForwardAgent=no",
];

/// Directories in which sh(1) looks for programs where there is no PATH.
const SEARCH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// haul at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarHaul {
    /// Words for the shell there, before haul's own.
    Command(String),
    /// Name of a Subsystem in its sshd_config(5).
    Subsystem(String),
}

/// ssh(1), or another program that takes its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshProgram {
    words: Vec<String>,
    pub far_haul: FarHaul,
    /// Whether haul is copied to a machine that has none.
    pub installs: bool,
}

impl SshProgram {
    /// Reads what `--ssh` and `--remote-haul` say.
    ///
    /// # Errors
    /// If one of them is no command.
    pub fn new(ssh: &str, remote_haul: &str) -> Result<Self, Problem> {
        let words = split_words(ssh).filter(|words| !words.is_empty()).ok_or_else(|| {
            let hint = "write it like --ssh 'ssh -p 2222'";
            problem("cannot take --ssh", "a program and its options", &format!("{ssh:?}"), hint)
        })?;
        let far_haul = match remote_haul.strip_prefix("subsystem:") {
            Some(name) => FarHaul::Subsystem(name.to_owned()),
            None => FarHaul::Command(remote_haul.to_owned()),
        };
        let (FarHaul::Subsystem(text) | FarHaul::Command(text)) = &far_haul;
        if text.trim().is_empty() || text.starts_with('-') {
            let hint = "write it like --remote-haul /opt/bin/haul, or --remote-haul subsystem:haul";
            let found = format!("{remote_haul:?}");
            return Err(problem("cannot take --remote-haul", "a program there", &found, hint));
        }
        Ok(Self { words, far_haul, installs: false })
    }

    /// Lets haul be copied to a machine that has none.
    ///
    /// # Errors
    /// If haul is started there by something else than its name.
    pub fn installing(self) -> Result<Self, Problem> {
        match &self.far_haul {
            FarHaul::Command(haul) => install::check_name(haul)?,
            FarHaul::Subsystem(name) => {
                let needs = "a haul that a shell there starts";
                let found = format!("--remote-haul subsystem:{name}, which sshd there starts");
                let hint = "leave out one of both";
                return Err(problem("cannot take --install-remote", needs, &found, hint));
            }
        }
        Ok(Self { installs: true, ..self })
    }

    /// The program, as an error names it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.words[0]
    }

    /// Whether the program is there: the shell that starts it would say what the other side's says.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let name = Path::new(&self.words[0]);
        if name.components().count() > 1 {
            return name.is_file();
        }
        let search = std::env::var_os("PATH").unwrap_or_else(|| SEARCH_DEFAULT.into());
        std::env::split_paths(&search).any(|directory| directory.join(name).is_file())
    }

    /// The command that tells the configuration for a login, and connects to nowhere (`ssh -G`);
    /// `None` for a program that is not known to have it.
    #[must_use]
    pub fn configuration(&self, login: &Login) -> Option<Command> {
        self.is_openssh().then(|| {
            let mut command = Command::new(&self.words[0]);
            command.args(&self.words[1..]).arg("-G").arg(login.word());
            command.stdin(Stdio::null()).stderr(Stdio::null());
            command
        })
    }

    fn is_openssh(&self) -> bool {
        Path::new(&self.words[0]).file_name().is_some_and(|name| name == "ssh")
    }

    /// The command that starts haul at a login, with pipes to it. An installer copies it there
    /// where it lacks, for a request of so many bytes.
    #[must_use]
    pub fn command(&self, login: &Login, installer: Option<(&Installer, usize)>) -> Command {
        // Ctrl-C at a terminal is for haul, which ends the copy in order and then ssh.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' INT; exec \"$@\"", "sh"]).args(&self.words).arg("-T");
        if self.is_openssh() {
            command.args(QUIET_LINE);
            if !can_ask() {
                command.args(["-o", "BatchMode=yes"]);
            }
        }
        match &self.far_haul {
            FarHaul::Command(haul) => {
                let plain = || format!("{haul} serve --over-ssh");
                let copying =
                    |(installer, bytes): (&Installer, usize)| installer.command(haul, bytes);
                command.arg(login.word()).arg(installer.map_or_else(plain, copying));
            }
            FarHaul::Subsystem(name) => {
                command.arg("-s").arg(login.word()).arg(name);
            }
        }
        command.env_remove(TOKEN_VARIABLE);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Whether ssh(1) can ask for a password: it does so at the terminal, or by a program of its own.
fn can_ask() -> bool {
    let has_terminal = || File::options().read(true).write(true).open("/dev/tty").is_ok();
    std::env::var_os("SSH_ASKPASS").is_some() || has_terminal()
}

/// Splits a command at its blanks, as rsync does with that of `-e`; quotes keep blanks. `None`
/// where a quote does not end.
fn split_words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in text.chars() {
        match (quote, character) {
            (Some(open), end) if open == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, blank) if blank.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn words(ssh: &str, remote_haul: &str) -> Vec<String> {
        let place = crate::ssh::login::parse(OsStr::new("ann@[::1]:x")).unwrap().unwrap();
        let command = SshProgram::new(ssh, remote_haul).unwrap().command(&place.login, None);
        let words = command.get_args().skip_while(|word| *word != "sh").skip(1);
        words.map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn ssh_gets_the_host_and_one_command_and_nothing_of_what_is_copied() {
        let all = words("ssh -p 2222", "haul");
        assert_eq!(all[..4], ["ssh", "-p", "2222", "-T"]);
        assert_eq!(all[all.len() - 2..], ["ann@::1", "haul serve --over-ssh"]);
        let all = words("plink -i 'my key'", "subsystem:haul");
        assert_eq!(all, ["plink", "-i", "my key", "-T", "-s", "ann@::1", "haul"]);
    }

    #[test]
    fn a_command_that_is_none_is_refused() {
        assert_eq!(split_words(r#"a 'b c'"d" """#).unwrap(), ["a", "b cd", ""]);
        for (ssh, haul) in
            [("", "haul"), ("ssh 'x", "haul"), ("ssh", " "), ("ssh", "-x"), ("ssh", "subsystem:")]
        {
            assert!(SshProgram::new(ssh, haul).is_err(), "{ssh:?} {haul:?}");
        }
    }
}
