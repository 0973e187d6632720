//! `cargo xtask`: the project's own chores, checked, generated and tested in one place.
//!
//! Nothing here is part of `haul` itself. Each chore runs programs as children that it waits for,
//! and ends with an exit status other than 0 when anything it looked at is not in order.

mod bench;
mod check;
mod child;
mod dist;
mod file_tables;
mod generate;
mod hyperqueue;
mod jars;
mod jvm;
mod lab;
mod maven;
mod mutants;
mod prerequisites;
mod rust_text;
mod soak;
mod test;
mod test_totals;
mod tidy;
mod trials;
mod unpacked;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  check            rustfmt, clippy, tidy, generated files, documentation, the bench's own tests: all
                   that CI looks at before the tests
  tidy             the project's rules that no other tool knows
  gen [--check]    writes the generated files; with --check only compares them
  test [-- ARGS]   installs what the tests need, runs them all, and counts the skipped ones;
                   ARGS go to `cargo test`
  dist [--out DIR] [--target TRIPLE] [--try]
                   makes the release: archive, Debian package, digests, SBOM, installer; --try
                   installs all of it, and the packaged crates, without Rust or the repository
  jars             builds the jars of the JVM client twice, compares them and tries them
  bench peers [ARGS]
                   haul beside the movers that people use today; `bench --help` says more
  lab NAME [ARGS]  builds haul and runs a trial of lab/, as root: long paths, large files
  soak [NAMES]     runs the long forms of the tests of bad days, or those suites of them, and writes
                   docs/soak.md; an hour, as root
  mutants [--sample N] [--seed S] [--file TEXT]... [--minutes M]
                   breaks the code that handles bytes, one place at a time: the tests must notice.
                   Goes through the files that are not through yet, or those whose path holds TEXT;
                   --sample draws N mutants of the files that are through
";

/// The outcome of a chore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    InOrder,
    NotInOrder,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments, &project_root()) {
        Ok(Outcome::InOrder) => ExitCode::SUCCESS,
        Ok(Outcome::NotInOrder) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String], root: &Path) -> Result<Outcome> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["check"] => check::run(root),
        ["tidy"] => tidy::run(root),
        ["gen"] => generate::write(root),
        ["gen", "--check"] => generate::compare(root),
        ["test"] => test::run(root, &[]),
        ["test", "--", rest @ ..] => test::run(root, rest),
        ["dist", rest @ ..] => dist::run(root, rest),
        ["jars"] => jars::run(root),
        ["bench", rest @ ..] => bench::run(root, rest),
        ["lab", name, rest @ ..] => lab::run(root, name, rest),
        ["soak", names @ ..] => soak::run(root, names),
        ["mutants", rest @ ..] => mutants::run(root, rest),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(Outcome::InOrder)
        }
        [] => bail!("no command given\n{USAGE}"),
        other => bail!("cannot read the arguments `{}`\n{USAGE}", other.join(" ")),
    }
}

/// The directory that holds the workspace's `Cargo.toml`.
fn project_root() -> PathBuf {
    let manifest_directory = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let parent = manifest_directory.parent().map(Path::to_path_buf);
    parent.unwrap_or(manifest_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_holds_the_workspace() {
        let manifest = std::fs::read_to_string(project_root().join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[workspace]"));
    }

    #[test]
    fn an_unknown_command_is_answered_with_the_usage() {
        let arguments = [String::from("chekc")];
        let error = run(&arguments, Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("usage: cargo xtask COMMAND"));
    }
}
