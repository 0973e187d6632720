//! `haul generate-docs`: writes the man pages and shell completions that packages carry.
//!
//! Both are made from the command line itself, with no dates, so that the same program always
//! writes the same bytes.

use crate::{
    args::{self, examples, usage_problem},
    failure::{ExitStatus, Failure},
};
use anyhow::{Context, Result};
use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};
use std::{fs, path::Path};

/// # Errors
/// If the directory cannot be written.
pub fn run(directory: &Path) -> Result<ExitStatus, Failure> {
    write_all(directory).map_err(|error| {
        let what = format!("cannot write the documents to {}", directory.display());
        usage_problem(&what, "a directory that can be written", &format!("{error:#}"), "")
    })?;
    Ok(ExitStatus::AllDone)
}

/// What the roff crate puts before each part, so that apostrophes stay straight.
const DEFINITIONS: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

fn write_all(directory: &Path) -> Result<()> {
    let (man, completions) = (directory.join("man"), directory.join("completions"));
    for made in [&man, &completions] {
        fs::create_dir_all(made).with_context(|| made.display().to_string())?;
    }
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, "haul", &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut visible(&args::command()), "haul", &completions)
            .with_context(|| format!("completions for {shell}"))?;
    }
    Ok(())
}

/// The command line without what help hides.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|child| !child.is_hide_set()).cloned();
    Command::new("haul")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommands(shown)
}

/// The page of a command and those of its subcommands.
fn write_pages(command: &Command, name: &str, directory: &Path) -> Result<()> {
    for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
        write_pages(child, &format!("{name}-{}", child.get_name()), directory)?;
    }
    let path = directory.join(format!("{name}.1"));
    let page = page(command, name).with_context(|| format!("the page {name}"))?;
    fs::write(&path, page).with_context(|| path.display().to_string())
}

fn page(command: &Command, name: &str) -> Result<String> {
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(format!("haul {version}"))
        .manual("haul manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut page)?;
    }
    if command.get_subcommands().any(|child| !child.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    for section in examples::sections(name) {
        render_section(section, &mut page)?;
    }
    // Each part begins with the same definitions; once is enough.
    let page = String::from_utf8(page)?;
    Ok(format!("{DEFINITIONS}{}", page.replace(DEFINITIONS, "")))
}

/// A section whose lines stay as they are.
fn render_section(section: &examples::Section, page: &mut Vec<u8>) -> std::io::Result<()> {
    let mut roff = Roff::default();
    roff.control("SH", [section.title.to_uppercase().as_str()]);
    roff.control("nf", []);
    for line in section.lines.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.to_writer(page)
}
