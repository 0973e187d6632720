//! `cargo xtask bench peers`: builds haul, and measures it beside the movers that people use today.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{Outcome, child};

const USAGE: &str = "\
usage: cargo xtask bench peers [ARGS]

Builds the release binaries and runs bench/peers: haul beside nginx and curl, GridFTP, XRootD,
rsync, rclone, lftp, scp, tar | nc, iperf3, cp, and the engines without a protocol; beside FDT,
bbcp, etransfer, mscp and WDT where their paths are given. Same files, same sync, interleaved, each
row with cubic or reno for all and once more as the system is set; large files on ext4 and xfs too.
It takes about an hour and 40 GB of disk.

As root it installs missing peers (--install), and makes the network namespace of one congestion
control for all, the file systems in images and the control group of a file larger than memory;
without root these are skipped with a reason.
The report goes to bench/reports/DATE-peers.md and ends with haul's targets; of a part (--only,
--quick) only to standard output. Exit status: 0 when every row that could be run gave its numbers.

  cargo xtask bench peers --quick             each row once with small sizes, in some minutes
  cargo xtask bench peers --only haul,rsync   these movers or rows
  cargo xtask bench peers --fdt fdt.jar       a mover that no distribution has
  cargo xtask bench peers --help              all options; bench/README.md says what is measured
";

const SCRIPT: &str = "bench/peers";
const TESTS: [&str; 3] = [
    "bench/tests/test_peers.py",
    "bench/tests/test_probe_disk.py",
    "bench/tests/test_media_streams.py",
];
const REPORTS: &str = "bench/reports";
/// Options that ask for less than the whole comparison, or name their own report.
const WITHOUT_REPORT: [&str; 3] = ["--report", "--only", "--quick"];

/// Runs a bench; `arguments` are its name and what goes to it.
pub fn run(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    match arguments {
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(Outcome::InOrder)
        }
        ["peers", rest @ ..] => peers(root, rest),
        [other, ..] => bail!("there is no bench `{other}`\n{USAGE}"),
    }
}

/// Runs the bench's own tests, which need neither haul nor a peer.
pub fn test(root: &Path) -> Result<Outcome> {
    if !child::is_installed("python3") {
        println!("bench/tests skipped: needs python3, found none");
        return Ok(Outcome::InOrder);
    }
    for tests in TESTS {
        child::run(&mut python(root, &[tests]))?;
    }
    Ok(Outcome::InOrder)
}

fn peers(root: &Path, rest: &[&str]) -> Result<Outcome> {
    if !child::is_installed("python3") {
        bail!("bench/peers needs Python 3.9 or newer, found no python3: apt-get install python3");
    }
    if !asks_for_help(rest) {
        let mut words = vec!["build", "--release", "--package", "haul-cli"];
        words.extend(["--package", "haul-datapath", "--bins", "--examples"]);
        child::run(&mut child::cargo(root, &words))?;
    }
    let date = child::output_of(&mut child::command(root, "date", &["+%F"]))?;
    let report = free_report(root, String::from_utf8_lossy(&date).trim());
    let words = words_of(rest, child::is_root(root), &report);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let status = python(root, &words).status().context("cannot start python3")?;
    match status.code() {
        Some(0) => Ok(Outcome::InOrder),
        Some(1) => Ok(Outcome::NotInOrder),
        _ => bail!("{SCRIPT} ended with {status}"),
    }
}

fn asks_for_help(rest: &[&str]) -> bool {
    rest.iter().any(|word| ["-h", "--help"].contains(word))
}

/// Arguments of `python3` for a comparison.
fn words_of(rest: &[&str], is_root: bool, report: &str) -> Vec<String> {
    let mut words = vec![SCRIPT.to_owned()];
    words.extend(rest.iter().map(|&word| word.to_owned()));
    if is_root && !rest.contains(&"--install") {
        words.push("--install".to_owned());
    }
    let names = |word: &&str| WITHOUT_REPORT.contains(&word.split('=').next().unwrap_or(word));
    if !rest.iter().any(names) {
        words.extend(["--report".to_owned(), report.to_owned()]);
    }
    words
}

/// The path of a report that no other of the same day has.
fn free_report(root: &Path, date: &str) -> String {
    let names = std::iter::once(format!("{REPORTS}/{date}-peers.md"))
        .chain((2..).map(|number| format!("{REPORTS}/{date}-peers-{number}.md")));
    names.into_iter().find(|name| !root.join(name).exists()).unwrap_or_default()
}

fn python(root: &Path, words: &[&str]) -> std::process::Command {
    child::command(root, "python3", words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_run_installs_as_root_and_writes_a_report() {
        let words = words_of(&["--rounds", "3"], true, "bench/reports/x.md");
        let expected = ["bench/peers", "--rounds", "3", "--install", "--report"];
        assert_eq!(words[..5], expected);
        assert_eq!(words[5], "bench/reports/x.md");
        assert_eq!(words_of(&[], false, "x"), ["bench/peers", "--report", "x"]);
    }

    #[test]
    fn a_part_or_an_own_report_leaves_the_reports_alone() {
        for part in [vec!["--quick"], vec!["--only", "haul"], vec!["--report=y"]] {
            let mut expected = vec!["bench/peers"];
            expected.extend(&part);
            assert_eq!(words_of(&part, false, "x"), expected);
        }
    }

    #[test]
    fn no_report_is_written_over() {
        let folder = std::env::temp_dir().join(format!("haul-xtask-bench-{}", std::process::id()));
        let reports = folder.join(REPORTS);
        std::fs::create_dir_all(&reports).unwrap();
        let first = free_report(&folder, "2026-01-02");
        std::fs::write(folder.join(&first), "").unwrap();
        let second = free_report(&folder, "2026-01-02");
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(first, "bench/reports/2026-01-02-peers.md");
        assert_eq!(second, "bench/reports/2026-01-02-peers-2.md");
    }

    #[test]
    fn a_bench_that_is_not_there_is_named_with_those_that_are() {
        let error = run(Path::new("/nowhere"), &["pears"]).unwrap_err().to_string();
        assert!(error.contains("`pears`") && error.contains("bench peers"), "{error}");
    }
}
