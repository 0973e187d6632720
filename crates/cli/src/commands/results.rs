//! Results of a bench or a probe, shown as they were asked for: tables, JSON lines, a page.

use crate::{
    args::{results::LowResults, usage_problem},
    failure::{ExitStatus, Failure},
    ui::{json, print_to_stdout},
};
use haul_report::{html_page::Page, results::Results};
use haul_transfer::Problem;
use std::{fs::File, io, path::Path};

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
    if let Some(path) = &output.lines_file {
        let facts = json::text_of(&results.facts);
        let objects = results.objects().map(|object| json::text_of(&object));
        let lines: Vec<String> = [facts].into_iter().chain(objects).collect();
        write("lines", path, output, &(lines.join("\n") + "\n"))?;
    }
    if let Some(path) = &output.html {
        let name = output.lines_file.as_deref().and_then(Path::file_name);
        let lines_file = name.map(|name| name.to_string_lossy().into_owned());
        let page = Page { lines_file, ..results.page() };
        write("page", path, output, &page.html())?;
    }
    Ok(status)
}

fn write(what: &str, path: &Path, output: &LowResults, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        let problem = cannot_write(what, path, output, &error);
        Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
    })
}

fn cannot_write(what: &str, path: &Path, output: &LowResults, error: &io::Error) -> Problem {
    let what = format!("cannot write the {what} {}", path.display());
    let option = if output.lines_file.is_some() { "--report" } else { "--html" };
    usage_problem(&what, "", &error.to_string(), &format!("name another {option}"))
}

/// Finds out before the first measurement whether the page can be written after the last.
///
/// # Errors
/// Says why it cannot.
pub fn ready(output: &LowResults) -> Result<(), Failure> {
    for (what, path) in [("page", &output.html), ("lines", &output.lines_file)] {
        let Some(path) = path else { continue };
        let is_new = !path.exists();
        match File::options().append(true).create(true).open(path) {
            Ok(_) if is_new => {
                // Nothing is there until there is something to show.
                let _ = std::fs::remove_file(path);
            }
            Ok(_) => {}
            Err(error) => return Err(cannot_write(what, path, output, &error).into()),
        }
    }
    Ok(())
}
