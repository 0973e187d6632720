//! Programs that a bench starts where they are installed.

use crate::error::Lack;
use std::{env, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

/// The path of a program, by PATH.
pub fn find(name: &str) -> Result<PathBuf, Lack> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| {
            const ANY_EXECUTE: u32 = 0o111;
            found.is_file() && found.permissions().mode() & ANY_EXECUTE != 0
        })
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join(name)).find(is_program);
    found.ok_or_else(|| Lack::Program(name.to_owned()))
}

/// The first line that a program prints about its version.
pub fn version(program: &PathBuf) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let words: Vec<&str> = text.lines().next()?.split_whitespace().collect();
    Some(words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_said_to_be_missing() {
        let shell = find("sh").unwrap();
        assert!(shell.is_absolute() && shell.exists());
        let missing = find("no-such-program").unwrap_err().to_string();
        assert_eq!(missing, "needs no-such-program, found no such program");
    }
}
