//! What a bench found, shown as it was asked for: tables, JSON lines, a page.

use super::host_facts::HostFacts;
use crate::{
    args::{bench::LowBenchOutput, usage_problem},
    failure::{ExitStatus, Failure},
    ui::{self, json},
};
use haul_report::page::{Page, Section};
use serde::Serialize;
use std::fs::File;

/// All of it, in the order it is shown in.
#[derive(Debug)]
pub struct Results {
    pub title: String,
    pub words: Vec<String>,
    pub facts: HostFacts,
    pub sections: Vec<Section>,
    /// One object a line; the host's facts come before.
    pub lines: Vec<serde_json::Value>,
    /// At least one thing was measured.
    pub measured: bool,
}

impl Results {
    pub fn line(&mut self, object: &impl Serialize) {
        self.lines.push(serde_json::to_value(object).expect("results are plain data"));
    }

    /// The verdict before all else, also before the host's facts.
    ///
    /// # Errors
    /// As `show`.
    pub fn show_with_verdict(
        mut self,
        verdict: Vec<String>,
        output: &LowBenchOutput,
    ) -> Result<ExitStatus, Failure> {
        if !output.json {
            ui::print_to_stdout(&(verdict.join("\n") + "\n"));
        }
        self.show_on_terminal(output);
        self.words.splice(0..0, verdict);
        self.write_page(output)
    }

    /// # Errors
    /// If the page cannot be written; the tables were shown then.
    pub fn show(self, output: &LowBenchOutput) -> Result<ExitStatus, Failure> {
        self.show_on_terminal(output);
        self.write_page(output)
    }

    fn show_on_terminal(&self, output: &LowBenchOutput) {
        if output.json {
            json::print(&self.facts);
            self.lines.iter().for_each(json::print);
        } else {
            self.print();
        }
    }

    fn write_page(self, output: &LowBenchOutput) -> Result<ExitStatus, Failure> {
        let status = if self.measured { ExitStatus::AllDone } else { ExitStatus::SomeFailed };
        if let Some(path) = &output.html {
            let page = Page {
                title: self.title,
                words: self.words,
                facts: self.facts.rows(),
                sections: self.sections,
            };
            std::fs::write(path, page.html()).map_err(|error| {
                let what = format!("cannot write the page {}", path.display());
                let problem = usage_problem(&what, "", &error.to_string(), "name another --html");
                Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
            })?;
        }
        Ok(status)
    }

    fn print(&self) {
        let mut parts = vec![self.title.clone()];
        let facts = self.facts.rows().into_iter().map(|(fact, value)| [format!("  {fact}"), value]);
        parts.push(ui::aligned(&facts.collect::<Vec<_>>()));
        parts.extend(self.words.iter().cloned());
        for section in &self.sections {
            parts.push(format!("== {} ==", section.title));
            parts.extend(section.words.iter().cloned());
            parts.extend(section.tables.iter().map(|table| table.text()));
        }
        ui::print_to_stdout(&parts.join("\n\n"));
    }
}

/// Finds out before the first measurement whether the page can be written after the last.
///
/// # Errors
/// Says why it cannot.
pub fn ready(output: &LowBenchOutput) -> Result<(), Failure> {
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

/// A bench that broke off.
pub fn broke_off(bench: &str, error: &anyhow::Error) -> Failure {
    let what = format!("haul bench {bench} broke off");
    let problem = usage_problem(&what, "", &format!("{error:#}"), "");
    Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
}
