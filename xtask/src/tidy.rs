//! `cargo xtask tidy`: the project's rules that no other tool knows, one file a rule below `tidy/`.
//!
//! A rule looks at text, at git's log and at what `cargo metadata` says; it changes nothing.
//! It looks at the files that git tracks or would track, so a new file is seen before its commit.

mod commit_subjects;
mod crate_edges;
mod doc_subjects;
mod error_words;
mod first_line;
mod forbidden_names;
mod licence_expression;
mod licences;
pub mod links;
mod machine_paths;
mod module_order;
mod named_packages;
mod packages;
mod project;
mod required_files;
mod secret_comparisons;
mod sizes;
mod unfinished;
mod unsafe_code;

use std::fmt;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::Outcome;
use project::Project;

/// One rule of the project.
struct Rule {
    name: &'static str,
    promise: &'static str,
    offences: fn(&Project) -> Vec<Offence>,
}

const RULES: [Rule; 17] = [
    crate_edges::RULE,
    packages::RULE,
    named_packages::RULE,
    unsafe_code::RULE,
    sizes::RULE,
    module_order::RULE,
    first_line::RULE,
    doc_subjects::RULE,
    error_words::RULE,
    secret_comparisons::RULE,
    forbidden_names::RULE,
    unfinished::RULE,
    machine_paths::RULE,
    licences::RULE,
    required_files::RULE,
    links::RULE,
    commit_subjects::RULE,
];

/// A place that breaks a rule, with what to do about it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offence {
    path: String,
    /// The line, counted from 1; `None` when the whole file is meant.
    line: Option<usize>,
    message: String,
}

impl Offence {
    fn in_file(path: &str, message: impl Into<String>) -> Offence {
        Offence { path: path.into(), line: None, message: message.into() }
    }

    fn at_line(path: &str, line: usize, message: impl Into<String>) -> Offence {
        Offence { path: path.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Offence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.path, self.message),
            None => write!(formatter, "{}: {}", self.path, self.message),
        }
    }
}

/// Applies every rule to the project at `root` and prints each offence on a line.
pub fn run(root: &Path) -> Result<Outcome> {
    let start = Instant::now();
    let project = Project::read(root)?;
    let mut offences_count = 0;
    for rule in &RULES {
        let mut offences = (rule.offences)(&project);
        offences.sort();
        if !offences.is_empty() {
            println!("tidy {}: {}", rule.name, rule.promise);
        }
        for offence in &offences {
            println!("  {offence}");
        }
        offences_count += offences.len();
    }
    println!(
        "tidy: {} rules, {} files, {offences_count} offences, {:.1} s",
        RULES.len(),
        project.files.len(),
        start.elapsed().as_secs_f64()
    );
    Ok(if offences_count == 0 { Outcome::InOrder } else { Outcome::NotInOrder })
}
