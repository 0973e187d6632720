//! Writes the man pages and shell completions that packages carry, below a directory that is named.
//!
//! Both are made from the command line that `haul` itself describes, with no dates, so that the
//! same source always gives the same bytes. It is a program of its own so that `haul` carries
//! nothing of it; `cargo xtask gen` runs it.

#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail};
use clap::Command;
use clap_complete::{Shell, generate_to};
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};
use haul::args::{self, examples};
use std::{fs, path::Path};

fn main() -> Result<()> {
    let mut words = std::env::args_os().skip(1);
    let (Some(directory), None) = (words.next(), words.next()) else {
        bail!("needs one word, the directory to write man/ and completions/ to")
    };
    let directory = Path::new(&directory);
    write_all(directory)
        .with_context(|| format!("cannot write the documents to {}", directory.display()))
}

/// Lines that the roff crate puts before each part, so that apostrophes stay straight.
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

/// Writes the page of a command and those of its subcommands.
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

/// Adds a section whose lines stay as they are.
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
