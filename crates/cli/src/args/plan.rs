//! Arguments of `haul plan`, and their check.

use super::{ssh::OtherSide, transfer::parse_url, tree::LowRules, usage_problem};
use clap::Args;
use haul_transfer::{Problem, SHARDS_MAX, Selection};
use std::{ffi::OsString, path::PathBuf};

/// Cuts a directory into shards that many machines move
///
/// Lists SOURCE once and writes a directory with a file for each shard; all shards have about equal
/// bytes and numbers of files. Then `haul push --plan PLAN --shard K` moves shard K, on any machine
/// that reads SOURCE and PLAN: started by Slurm, Kubernetes, HyperQueue, GNU parallel, or a loop
/// over ssh. Nobody coordinates, and a shard that failed is run again by the same command.
///
/// With several URLs the shards take turns: shard 1 goes to the first URL, shard 2 to the second.
/// PLAN holds them with their tokens, so only its owner can read it.
#[derive(Debug, Args)]
#[command(override_usage = "haul plan [OPTIONS] <SOURCE> <URL|[USER@]HOST:PATH>... --shards <N> \
                            --out <PLAN>")]
pub struct LowPlan {
    // One list, so that options may stand anywhere among the words.
    #[arg(value_name = "SOURCE", required = true, num_args = 2..)]
    #[arg(help = "A directory, `dir` or `dir/`, and then haul://[TOKEN@]HOST[:PORT]/dir/ or \
                  [USER@]HOST:dir/, one or several")]
    pub words: Vec<OsString>,
    /// Number of shards: several for each machine, so that one that is slow holds up little
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    pub shards: u32,
    /// The directory to write, outside of SOURCE, where every run can read it
    #[arg(long, value_name = "PLAN")]
    pub out: PathBuf,
    #[command(flatten)]
    pub rules: LowRules,
    /// Print one JSON object a line: a shard each, and last the plan
    #[arg(long)]
    pub json: bool,
}

/// A plan to make, of which every word was checked.
#[derive(Debug)]
pub struct CheckedPlan {
    /// The source, from the root on, for runs that begin in another directory.
    pub source: PathBuf,
    pub targets: Vec<String>,
    pub selection: Selection,
}

impl LowPlan {
    /// Checks the words of `haul plan`.
    ///
    /// # Errors
    /// If a target is none.
    pub fn checked(&self) -> Result<CheckedPlan, Problem> {
        let [source, targets @ ..] = &self.words[..] else {
            return Err(usage_problem(
                "nothing to plan",
                "a directory and a URL",
                "fewer words",
                "haul plan SOURCE URL --shards 16 --out PLAN",
            ));
        };
        let targets = targets.iter().map(|word| {
            if !OtherSide::is_named_by(word) {
                let what = format!("cannot plan to {}", word.to_string_lossy());
                let needs = "a URL that `haul serve` printed, or user@host:path";
                let hint = "one directory is planned; the words behind it are targets";
                return Err(usage_problem(&what, needs, "none", hint));
            }
            let text = word.to_str().ok_or_else(|| {
                let hint = "in a URL %FF stands for such a byte";
                usage_problem("cannot plan to this target", "UTF-8", "other bytes", hint)
            })?;
            if text.starts_with("haul://") {
                parse_url(word)?;
            }
            Ok(text.to_owned())
        });
        let targets = targets.collect::<Result<_, _>>()?;
        let here = std::env::current_dir().map_err(|error| {
            let hint = "name the source from the root on";
            usage_problem("cannot tell this directory", "one", &error.to_string(), hint)
        })?;
        let mut selection = Selection::default();
        selection.rules.clone_from(&self.rules.0);
        Ok(CheckedPlan { source: here.join(source), targets, selection })
    }
}
