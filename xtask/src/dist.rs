//! Binary that is given away (`cargo xtask dist`). It is stripped, with its debug information
//! beside it.
//!
//! Debug information is four fifths of the binary. In a file of its own it is there for whoever
//! reads a core dump or a profile (`perf`, `gdb` find it by the link in the binary), and nobody
//! else downloads it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{Outcome, child};

const PROGRAM: &str = "haul";
const DEBUG: &str = "haul.debug";

/// Builds the program of the project at `root` by the profile `dist` and parts it.
pub fn run(root: &Path) -> Result<Outcome> {
    child::run(&mut child::cargo(root, &["build", "--profile", "dist", "--package", "haul-cli"]))?;
    let directory = target_directory(root).join("dist");
    part(&directory)?;
    for name in [PROGRAM, DEBUG] {
        let path = directory.join(name);
        let len_bytes = path.metadata().with_context(|| format!("no {}", path.display()))?.len();
        println!("{:>8.1} MB  {}", len_bytes as f64 / 1e6, path.display());
    }
    Ok(Outcome::InOrder)
}

/// Takes the debug information out of the program in `directory`, into a file beside it that the
/// program names.
fn part(directory: &Path) -> Result<()> {
    let stripped = format!("{PROGRAM}.stripped");
    let link = format!("--add-gnu-debuglink={DEBUG}");
    child::run(&mut child::command(directory, "objcopy", &["--only-keep-debug", PROGRAM, DEBUG]))
        .context("needs objcopy, which comes with the C compiler (apt-get install binutils)")?;
    let words = ["--strip-all", &link, PROGRAM, &stripped];
    child::run(&mut child::command(directory, "objcopy", &words))?;
    std::fs::rename(directory.join(&stripped), directory.join(PROGRAM))
        .context("cannot put the stripped program in its place")
}

/// The directory that cargo builds into.
fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parted_program_still_runs_and_names_its_debug_information() {
        let name = format!("haul-xtask-dist-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let program = directory.join(PROGRAM);
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let whole_bytes = program.metadata().unwrap().len();
        part(&directory).unwrap();
        assert!(program.metadata().unwrap().len() < whole_bytes);
        assert!(directory.join(DEBUG).exists());
        let bytes = std::fs::read(&program).unwrap();
        assert!(bytes.windows(DEBUG.len()).any(|text| text == DEBUG.as_bytes()));
        child::output_of(&mut child::command(&directory, &program, &["--list"])).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
