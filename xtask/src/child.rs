//! Cargo and other programs as children of `cargo xtask`, started and waited for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Directories where distributions keep the tools of an administrator; a user's PATH may lack them.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Variables that cargo sets for the program it runs. A cargo below that program must not see
/// them: a build script that watches one of them would be built again for nothing.
const CARGO_RUN_PREFIXES: [&str; 4] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_"];

/// A cargo command at `root`, of the toolchain that runs this program, without standard input.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    command(root, &program, arguments)
}

/// A command at `root`, without standard input.
pub fn command(root: &Path, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if CARGO_RUN_PREFIXES.iter().any(|prefix| name_text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command whose output goes to the terminal; an exit status other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}

/// Runs a command and returns its standard output; its standard error is part of the error.
pub fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let shown = shown(command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` ended with {}:\n{}", output.status, stderr.trim_end());
    }
    Ok(output.stdout)
}

/// The search path with the system directories in it.
pub fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for directory in SYSTEM_DIRECTORIES {
        if !directories.iter().any(|known| known == Path::new(directory)) {
            directories.push(directory.into());
        }
    }
    directories
}

/// Whether a program of this name is on the search path.
pub fn is_installed(name: &str) -> bool {
    search_path().iter().any(|directory| directory.join(name).is_file())
}

/// Whether this process is root's.
pub fn is_root(root: &Path) -> bool {
    output_of(&mut command(root, "id", &["-u"])).is_ok_and(|output| output.trim_ascii() == b"0")
}

/// The command as a person would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_child_is_named_with_its_words() {
        let mut command = command(Path::new("/"), "sh", &["-c", "echo no room >&2; exit 3"]);
        let error = output_of(&mut command).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c"), "{error}");
        assert!(error.contains("exit status: 3") && error.ends_with("no room"), "{error}");
    }

    #[test]
    fn a_shell_is_installed_and_nonsense_is_not() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program-7117"));
    }
}
