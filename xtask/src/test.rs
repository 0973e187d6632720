//! `cargo xtask test`: runs every test of the workspace and counts those this host cannot run.
//!
//! The output of `cargo test` is passed on as it comes. After it stand the reasons of the skipped
//! tests, and on the last line `N passed, N failed, N skipped`.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result};

use crate::test_totals::TestTotals;
use crate::{Outcome, child, prerequisites};

/// The variable that tells `haul_testkit::skip` where to write.
const SKIP_LOG_VARIABLE: &str = "HAUL_SKIP_LOG";

/// Runs the tests of the project at `root`; `arguments` go to `cargo test`.
pub fn run(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    prerequisites::provide(root);
    let skip_log = SkipLog::create()?;
    let mut totals = TestTotals::default();
    let status = run_cargo_test(root, arguments, &skip_log, &mut totals)?;
    let skipped = skip_log.read()?;
    let counts = totals.finish(&skipped);
    print_reasons(&skipped);
    if !status.success() {
        println!("test: cargo test ended with {status}");
    }
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    let is_in_order = status.success() && counts.failed == 0;
    Ok(if is_in_order { Outcome::InOrder } else { Outcome::NotInOrder })
}

fn run_cargo_test(
    root: &Path,
    arguments: &[&str],
    skip_log: &SkipLog,
    totals: &mut TestTotals,
) -> Result<ExitStatus> {
    let mut command = child::cargo(root, &["test", "--workspace", "--no-fail-fast"]);
    command.args(arguments).env(SKIP_LOG_VARIABLE, &skip_log.path);
    command.env("PATH", std::env::join_paths(child::search_path())?);
    let mut cargo = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    #[expect(clippy::disallowed_methods, reason = "an error of it is returned")]
    let passed_on = match cargo.stdout.take() {
        Some(output) => pass_on(BufReader::new(output), &mut std::io::stdout(), totals),
        None => Ok(()),
    };
    let status = cargo.wait().context("cannot wait for cargo test")?;
    passed_on.context("cannot pass on the output of cargo test")?;
    Ok(status)
}

/// Passes every line on as it comes, byte for byte, and counts the tests in it.
fn pass_on(
    mut output: impl BufRead,
    target: &mut impl Write,
    totals: &mut TestTotals,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line)? > 0 {
        target.write_all(&line)?;
        target.flush()?;
        totals.read_line(String::from_utf8_lossy(&line).trim_end_matches('\n'));
        line.clear();
    }
    Ok(())
}

fn print_reasons(skipped: &str) {
    println!();
    for line in skipped.lines() {
        let mut parts = line.split('\t');
        let reason = parts.next().unwrap_or_default();
        let place: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        println!("{reason} ({})", place.join(" "));
    }
}

/// The file where tests write why they are skipped; removed when dropped.
struct SkipLog {
    path: PathBuf,
}

impl SkipLog {
    fn create() -> Result<SkipLog> {
        let name = format!("haul-skipped-{}.log", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
        Ok(SkipLog { path })
    }

    fn read(&self) -> Result<String> {
        match std::fs::read(&self.path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error).context("cannot read the log of the skipped tests"),
        }
    }
}

impl Drop for SkipLog {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_totals::Counts;

    #[test]
    fn output_is_passed_on_byte_for_byte_also_when_it_is_not_text() {
        let output: &[u8] = b"running 1 test\n\xff\xfe\r\ntest a ... ok\ntest result: ok. 1 passed";
        let mut passed_on = Vec::new();
        let mut totals = TestTotals::default();
        pass_on(output, &mut passed_on, &mut totals).unwrap();
        assert_eq!(passed_on, output);
        assert_eq!(totals.finish(""), Counts { passed: 1, failed: 0, skipped: 0 });
    }
}
