//! Command line of `haul`: its words are read here, and nothing is done.
//!
//! [`LowArgs`] is what was typed. Each command's arguments are then checked into a request of the
//! library (`checked`); only a request reaches a command.

pub mod bench;
pub mod block_sizes;
pub mod connections;
pub mod copy;
pub mod demo;
pub mod examples;
pub mod habits;
pub mod ls;
pub mod media;
pub mod plan;
pub mod probe;
pub mod proxy;
pub mod recording;
pub mod relayed;
pub mod report;
pub mod results;
pub mod serve;
pub mod shard_number;
pub mod simulation;
pub mod ssh;
pub mod token;
pub mod transfer;
pub mod tree;
pub mod tune;
pub mod values;
pub mod verify;

use clap::{Args, CommandFactory, Parser, Subcommand};
use haul_transfer::Problem;
use std::path::PathBuf;

/// Moves files between machines, and proves that every byte arrived
///
/// `haul serve DIR` on one machine prints a URL. `haul push FILE... URL` and `haul pull URL... DIR`
/// on another move files to it and from it. Every byte is verified and on disk before a file gets
/// its name, and a transfer that was broken off goes on where it stopped when the same command is
/// run again. The report at the end says what limited it.
///
/// New here? `haul demo` shows all of it in less than a minute.
#[derive(Debug, Parser)]
#[command(name = "haul", version, propagate_version = true, arg_required_else_help = true)]
#[command(subcommand_value_name = "COMMAND")]
pub struct LowArgs {
    #[command(subcommand)]
    pub command: LowCommand,
}

/// The commands that are built; help, man pages and completions are made from this list.
#[derive(Debug, Subcommand)]
pub enum LowCommand {
    Demo(demo::LowDemo),
    Serve(serve::LowServe),
    Push(transfer::LowPush),
    Pull(transfer::LowPull),
    Copy(copy::LowCopy),
    Plan(plan::LowPlan),
    Report(report::LowReport),
    Ls(ls::LowLs),
    Verify(verify::LowVerify),
    Media(media::LowMedia),
    Token(token::LowToken),
    Probe(probe::LowProbe),
    Tune(tune::LowTune),
    Bench(bench::LowBench),
    #[cfg(feature = "bench")]
    BenchSide(bench::LowBenchSide),
}

/// Directory of a server's key and tokens, and of what was measured.
#[derive(Debug, Args)]
pub struct LowState {
    /// The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)
    ///
    /// Without it, and without HAUL_STATE: $XDG_STATE_HOME/haul, else ~/.local/state/haul.
    #[arg(long = "state", value_name = "DIR", env = "HAUL_STATE", hide_env_values = true)]
    pub directory: Option<PathBuf>,
}

impl LowState {
    /// The state directory to use.
    #[must_use]
    pub fn checked(self) -> PathBuf {
        self.directory_or_default()
    }

    /// The state directory that was named, or the default one.
    #[must_use]
    pub fn directory_or_default(&self) -> PathBuf {
        let named = self.directory.as_ref().filter(|path| !path.as_os_str().is_empty());
        named.cloned().unwrap_or_else(haul_transfer::default_state_directory)
    }
}

/// The whole command line, with examples, exit statuses and environment below each help.
#[must_use]
pub fn command() -> clap::Command {
    examples::with_examples(LowArgs::command())
}

/// A host as it stands in a URL, without the brackets of IPv6.
///
/// # Errors
/// If it is none, or has a port behind it.
pub fn checked_host(option: &str, host: &str, hint: &str) -> Result<String, Problem> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let bracketed = if bare.contains(':') { format!("[{bare}]") } else { bare.to_owned() };
    let parsed = format!("haul://{bracketed}:1/").parse::<haul_transfer::HaulUrl>().ok();
    parsed.filter(|url| url.host == bare).map(|url| url.host).ok_or_else(|| {
        let what = format!("cannot take {option}");
        usage_problem(&what, "a host name or an address, without a port", host, hint)
    })
}

/// A mistake on the command line that `clap` cannot know.
#[must_use]
pub fn usage_problem(what: &str, needs: &str, found: &str, hint: &str) -> Problem {
    Problem::in_general(what, needs, found, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_does_not_contradict_itself() {
        command().debug_assert();
    }
}
