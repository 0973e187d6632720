//! The command line of haul: reads arguments, runs a command, shows what happens.
//!
//! All that moves bytes is in `haul_transfer`. This crate is a library only so that its tests can
//! draw its screens, and haul-docs describe its command line.

#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod failure;
pub mod interrupt;
pub mod ssh;
pub mod ui;

use args::{LowArgs, LowCommand};
use clap::{FromArgMatches, error::ErrorKind};
use failure::{ExitStatus, Failure};
use std::{ffi::OsString, process::ExitCode};

/// Runs one command line to its end and returns the exit status.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let parsed = args::command()
        .try_get_matches_from(&words)
        .and_then(|matches| LowArgs::from_arg_matches(&matches));
    let status = match parsed {
        Ok(low) => {
            let json = wants_json(&low.command);
            run_command(low.command).unwrap_or_else(|failure| failure.show(json))
        }
        Err(error) => show_usage_error(&error, &words),
    };
    let is_cut_short = status == ExitStatus::AllDone && ui::output::has_failed();
    let status = if is_cut_short { ExitStatus::SomeFailed } else { status };
    ExitCode::from(status as u8)
}

fn run_command(command: LowCommand) -> Result<ExitStatus, Failure> {
    match command {
        LowCommand::Demo(low) => commands::demo::run(&low),
        LowCommand::Serve(low) => commands::serve::run(low),
        LowCommand::Media(low) => commands::media::run(&low),
        LowCommand::Push(low) => commands::push::run(&low),
        LowCommand::Pull(low) => commands::pull::run(&low),
        LowCommand::Copy(low) => commands::copy::run(low),
        LowCommand::Plan(low) => commands::plan::run(&low),
        LowCommand::Report(low) => commands::report::run(&low),
        LowCommand::Ls(low) => commands::ls::run(&low),
        LowCommand::Verify(low) => commands::verify::run(low),
        LowCommand::Token(low) => commands::token::run(low),
        LowCommand::Probe(low) => commands::probe::run(&low),
        LowCommand::Tune(low) => commands::tune::run(&low),
        LowCommand::Bench(low) => commands::bench::run(&low),
        #[cfg(feature = "bench")]
        LowCommand::BenchSide(low) => commands::bench::run_side(&low.spec),
    }
}

fn wants_json(command: &LowCommand) -> bool {
    use args::token::LowTokenCommand;
    match command {
        LowCommand::Serve(low) => low.json,
        LowCommand::Media(low) => low.json,
        LowCommand::Push(low) => low.transfer.json,
        LowCommand::Pull(low) => low.transfer.json,
        LowCommand::Copy(low) => low.transfer.json,
        LowCommand::Plan(low) => low.json,
        LowCommand::Report(low) => low.json,
        LowCommand::Ls(low) => low.json,
        LowCommand::Verify(low) => low.json,
        LowCommand::Token(low) => match &low.command {
            LowTokenCommand::New(low) => low.json,
            LowTokenCommand::List(low) => low.json,
            LowTokenCommand::Revoke(low) => low.json,
        },
        LowCommand::Probe(low) => low.json(),
        LowCommand::Tune(low) => low.json,
        LowCommand::Bench(low) => low.json(),
        LowCommand::Demo(_) => false,
        #[cfg(feature = "bench")]
        LowCommand::BenchSide(_) => false,
    }
}

/// Prints help and version on standard output with status 0, a mistake on standard error with
/// status 2.
fn show_usage_error(error: &clap::Error, words: &[OsString]) -> ExitStatus {
    let json = words.iter().any(|word| word == "--json");
    if let Some(problem) = args::habits::habit(error, words) {
        return Failure::from(problem).show(json);
    }
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let has_colours = ui::Look::of_output(false).colour == ui::line::Colour::On;
        let text = error.render();
        let text = if has_colours { text.ansi().to_string() } else { text.to_string() };
        ui::print_to_stdout(text.trim_end());
        return ExitStatus::AllDone;
    }
    // Nothing can be done about a closed standard error.
    let _ = error.print();
    if json {
        let text = error.to_string();
        // Its first paragraph: what it speaks of may stand on lines of its own.
        let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        let first = lines.collect::<Vec<_>>().join(" ");
        let found = first.strip_prefix("error: ").unwrap_or(&first);
        let what = "cannot read the command line";
        let hint = "haul help lists the commands and their options";
        ui::json::print_error(&args::usage_problem(what, "", found, hint));
    }
    ExitStatus::CouldNotStart
}
