//! Results of a bench or a probe, shown as they were asked for: tables, JSON lines, a page.

use crate::{
    args::{results::LowResults, usage_problem},
    failure::{ExitStatus, Failure},
    ui::{json, print_to_stdout},
};
use haul_report::results::Results;
use std::fs::File;

/// Shows results: on standard output, and as a page where one was asked for.
///
/// # Errors
/// If the page cannot be written; the tables were shown then.
pub fn show(results: Results, output: &LowResults) -> Result<ExitStatus, Failure> {
    if output.json {
        json::print(&results.facts);
        results.objects().for_each(|object| json::print(&object));
    } else {
        print_to_stdout(&results.text());
    }
    let status = if results.measured { ExitStatus::AllDone } else { ExitStatus::SomeFailed };
    if let Some(path) = &output.html {
        std::fs::write(path, results.page().html()).map_err(|error| {
            let what = format!("cannot write the page {}", path.display());
            let problem = usage_problem(&what, "", &error.to_string(), "name another --html");
            Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
        })?;
    }
    Ok(status)
}

/// Finds out before the first measurement whether the page can be written after the last.
///
/// # Errors
/// Says why it cannot.
pub fn ready(output: &LowResults) -> Result<(), Failure> {
    let Some(path) = &output.html else { return Ok(()) };
    let is_new = !path.exists();
    match File::options().append(true).create(true).open(path) {
        Ok(_) if is_new => {
            // Nothing is there until there is something to show.
            let _ = std::fs::remove_file(path);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("cannot write the page {}", path.display());
            Err(usage_problem(&what, "", &error.to_string(), "name another --html").into())
        }
    }
}
