//! Skipped tests, which do not count as passed: each says why this host cannot run it.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// The variable that names the file where `cargo xtask test` collects the skipped tests.
pub const LOG_VARIABLE: &str = "HAUL_SKIP_LOG";

/// Says that the running test is skipped. The test returns right after it, having checked nothing:
///
/// ```
/// # use haul_testkit::skip::skip;
/// fn a_test_of_kernel_tls(host_has_it: bool) {
///     if !host_has_it {
///         return skip("kernel TLS", "a kernel without the module tls");
///     }
/// }
/// ```
///
/// The line `skipped: needs {needs}, found {found}` goes to standard output and, with the name of
/// the test, to the file named by `HAUL_SKIP_LOG`.
///
/// # Panics
///
/// When `HAUL_SKIP_LOG` is set and cannot be written: a skipped test would count as passed.
pub fn skip(needs: &str, found: impl Display) {
    let found = one_line(&found.to_string());
    let line = format!("skipped: needs {}, found {found}", one_line(needs));
    println!("{line}");
    let Some(log) = std::env::var_os(LOG_VARIABLE) else { return };
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let thread = std::thread::current();
    let test = one_line(thread.name().unwrap_or_default());
    // One write in append mode, so that test binaries that run side by side do not mix lines.
    let record = format!("{line}\t{program}\t{test}\n");
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&log)
        .unwrap_or_else(|error| panic!("cannot open the skip log {}: {error}", log.display()));
    file.write_all(record.as_bytes())
        .unwrap_or_else(|error| panic!("cannot write the skip log {}: {error}", log.display()));
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_answered_over_many_lines_becomes_one_line() {
        assert_eq!(one_line("mount: denied\n\tsee dmesg\n"), "mount: denied see dmesg");
    }
}
