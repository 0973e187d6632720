//! Arguments of `haul plan`, and their check.

use super::{
    simulation::{LowFleet, parse_fleet},
    ssh::planned_target,
    tree::LowRules,
    usage_problem,
};
use clap::Args;
use haul_transfer::{
    EarlierPlan, Fleet, LargeFiles, Plan, PlanRequest, Problem, SHARDS_MAX, STRIPE_UNIT_BYTES,
    Selection, ShardSize, ShardState, Shards, TransferError, internals::parse_size,
};
use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

/// Cuts a directory into shards that many machines move
///
/// Lists SOURCE once and writes a directory with a file for each shard; all shards have about equal
/// bytes and numbers of files. Then `haul push --plan PLAN --shard K` moves shard K, on any machine
/// that reads SOURCE and PLAN: started by Slurm, Kubernetes, HyperQueue, GNU parallel, or a loop
/// over ssh. Nobody coordinates, and a shard that failed is run again by the same command.
///
/// With several URLs the shards take turns: shard 1 goes to the first URL, shard 2 to the second.
/// PLAN holds them with their tokens, so only its owner can read it.
///
/// With --shard-size in place of --shards the plan grows while its shards are run: each shard is
/// there when it is full, and a run waits for its shard until it is there. Start as many runs as
/// there may be shards: those whose shard never comes end with all done when the plan is whole.
///
/// With --again it plans what differs from an earlier plan of the same source and targets: what is
/// new or has another size, time, mode or owner, and what no run has moved yet.
///
/// With --simulate it predicts how long a fleet takes for the plan, and what limits it. A plan that
/// is there is named alone.
#[derive(Debug, Args)]
#[command(override_usage = "\
    haul plan [OPTIONS] <SOURCE> <URL|[USER@]HOST:PATH>... <--shards <N>|--shard-size <SIZE>> \
    --out <PLAN>\n       \
    haul plan [OPTIONS] --again <EARLIER-PLAN>... <--shards <N>|--shard-size <SIZE>> \
    --out <PLAN>\n       \
    haul plan --simulate <FLEET> [--json] <PLAN>")]
pub struct LowPlan {
    // One list, so that options may stand anywhere among the words.
    #[arg(value_name = "SOURCE", required_unless_present = "again", num_args = 1..)]
    #[arg(help = "A directory, `dir` or `dir/`, and then haul://[TOKEN@]HOST[:PORT]/dir/ or \
                  [USER@]HOST:dir/, one or several; with --simulate a PLAN alone")]
    pub words: Vec<OsString>,
    /// Number of shards: several for each machine, so that one that is slow holds up little
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    #[arg(required_unless_present_any = ["simulate", "shard_size"])]
    pub shards: Option<u32>,
    /// Size of a shard, as 1T, or 1T,500000 for so many files at most (else a million): its runs
    /// can begin while the plan is still made
    #[arg(long, value_name = "SIZE[,FILES]", value_parser = parse_shard_size)]
    #[arg(conflicts_with = "shards")]
    pub shard_size: Option<LowShardSize>,
    /// Plan only what differs from this earlier plan, or what no run of it has moved
    ///
    /// Source, targets and patterns are those of the earlier plan. A name is left out if it has the
    /// same size, time of modification and change time of its inode as then, and a run has ended
    /// with its shard done; the reports of the runs tell. After several plans name all of them, the
    /// oldest first.
    #[arg(long, value_name = "EARLIER-PLAN")]
    pub again: Vec<PathBuf>,
    /// The directory to write, outside of SOURCE, where every run can read it
    #[arg(long, value_name = "PLAN", required_unless_present = "simulate")]
    pub out: Option<PathBuf>,
    /// Predict the time of the plan on a fleet such as nodes=4,nic=25Gbit, and what limits it
    #[arg(long, value_name = "FLEET", value_parser = parse_fleet)]
    pub simulate: Option<LowFleet>,
    /// Cut large files at multiples of SIZE, as of the stripes of a parallel file system, for
    /// several shards; else those of Lustre are used where the source has them, or 64M
    #[arg(long, value_name = "SIZE", value_parser = parse_stripe)]
    pub stripe_size: Option<u64>,
    /// The URLs lead to one directory, on a file system that their servers share: large files are
    /// cut, though several servers write them
    #[arg(long)]
    pub shared_target: bool,
    /// Cut no file
    #[arg(long, conflicts_with = "stripe_size")]
    pub whole_files: bool,
    #[command(flatten)]
    pub rules: LowRules,
    /// Print one JSON object a line: a shard each, then the plan, and last the simulation
    #[arg(long)]
    pub json: bool,
}

/// A plan as it was asked for.
#[derive(Debug)]
pub enum PlanWanted {
    /// A plan to make.
    New(Box<PlanRequest>),
    /// The directory of one that is there, to be simulated.
    Existing(PathBuf),
}

/// Size of a shard, in bytes and in files.
pub type LowShardSize = (u64, u64);

/// Files of a shard, where its size alone is named.
const SHARD_FILES: u64 = 1_000_000;

/// Reads the size of a shard.
fn parse_shard_size(text: &str) -> Result<LowShardSize, String> {
    let (bytes, files) = text.split_once(',').map_or((text, None), |(b, f)| (b, Some(f)));
    let bytes = parse_size(bytes).map_err(|error| error.to_string())?;
    let files = files.map_or(Ok(SHARD_FILES), str::parse).map_err(|error| error.to_string())?;
    if bytes == 0 || files == 0 {
        return Err("at least one byte and one file are needed, as 1T,500000".into());
    }
    Ok((bytes, files))
}

/// Reads a size at which files may be cut.
fn parse_stripe(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes == 0 || !bytes.is_multiple_of(STRIPE_UNIT_BYTES) {
        return Err("a multiple of 64K is needed, as 1M".into());
    }
    Ok(bytes)
}

impl LowPlan {
    /// Checks the words of `haul plan`.
    ///
    /// # Errors
    /// If a target is none, or words are missing or too many for what is wanted.
    pub fn checked(&self) -> Result<PlanWanted, Problem> {
        match (&self.words[..], &self.again[..], &self.simulate) {
            ([], [_, ..], _) => self.again().map(PlanWanted::New),
            (_, [_, ..], _) => {
                let needs = "no SOURCE and no URL: they are those of the earlier plan";
                let hint = "haul plan --again EARLIER-PLAN --shards 16 --out PLAN";
                Err(usage_problem("cannot take --again", needs, "more words", hint))
            }
            ([plan], [], Some(_)) => self.existing(plan).map(PlanWanted::Existing),
            ([source, targets @ ..], [], _) if !targets.is_empty() => {
                self.new_plan(source, targets).map(PlanWanted::New)
            }
            _ => Err(usage_problem(
                "nothing to plan",
                "a directory and a URL",
                "fewer words",
                "haul plan SOURCE URL --shards 16 --out PLAN",
            )),
        }
    }

    /// A plan of what differs from earlier ones.
    fn again(&self) -> Result<Box<PlanRequest>, Problem> {
        if !self.rules.0.is_empty() {
            let needs = "the patterns of the earlier plan";
            let hint = "leave them out, or make a new plan without --again";
            let found = "--include or --exclude";
            return Err(usage_problem("cannot take --again", needs, found, hint));
        }
        let plans: Result<Vec<Plan>, _> =
            self.again.iter().map(|place| Plan::open(place)).collect::<Result<_, _>>();
        let plans = plans.map_err(|error: TransferError| error.problem())?;
        let first = &plans[0];
        let is_alike = |plan: &Plan| {
            (&plan.source, &plan.targets, &plan.rules)
                == (&first.source, &first.targets, &first.rules)
        };
        if let Some(other) = plans.iter().find(|plan| !is_alike(plan)) {
            let needs = "plans of one source, to the same targets, by the same patterns";
            let found = format!("others in {}", other.place().display());
            let hint = "name each plan that was made by --again of the first, the oldest first";
            return Err(usage_problem("cannot take --again", needs, &found, hint));
        }
        let Some(rules) = first.rules.clone() else {
            let needs = "a plan that tells by which patterns its names were chosen";
            let found = "one by an earlier haul or another tool";
            let hint = "make a new plan of the source, without --again";
            return Err(usage_problem("cannot take --again", needs, found, hint));
        };
        let mut selection = Selection::default();
        selection.rules = rules;
        let source = PathBuf::from(OsString::from_vec(first.source.0.clone()));
        let mut request = self.request(source, first.targets.clone(), selection)?;
        if request.targets.len() > 1 && !self.shared_target {
            self.check_keeps_targets(request.targets.len())?;
            request.keeps_targets = true;
        }
        for plan in plans {
            if plan.is_being_made()? {
                let what = format!("cannot take --again {}", plan.place().display());
                let hint = "wait until `haul plan` has ended there";
                return Err(usage_problem(
                    &what,
                    "a plan that grows no more",
                    "one that does",
                    hint,
                ));
            }
            let fleet = Fleet::read(&plan)?;
            let done = fleet.shards.iter().filter(|shard| shard.state == ShardState::Done);
            let done = done.map(|shard| shard.number).collect();
            request.again.push(EarlierPlan { plan, done });
        }
        Ok(request)
    }

    /// Checks that each name can stay with its server.
    fn check_keeps_targets(&self, targets: usize) -> Result<(), Problem> {
        let needs = format!(
            "at least {targets} shards, one for each URL: what has changed goes where the earlier \
             runs have brought it"
        );
        let found = match self.shards {
            Some(shards) if shards as usize >= targets => return Ok(()),
            Some(shards) => shards.to_string(),
            None => "--shard-size".to_owned(),
        };
        let hint =
            "name more by --shards, or say --shared-target if the URLs lead to one directory";
        Err(usage_problem("cannot take --again", &needs, &found, hint))
    }

    fn existing(&self, plan: &OsString) -> Result<PathBuf, Problem> {
        let is_made = self.shards.is_some()
            || self.shard_size.is_some()
            || self.out.is_some()
            || self.stripe_size.is_some()
            || self.shared_target
            || self.whole_files
            || !self.rules.0.is_empty();
        if is_made {
            let what = format!("cannot make a plan of {} alone", plan.to_string_lossy());
            let needs = "a directory and a URL";
            let hint = "leave out the options of a new plan where an existing one is simulated";
            return Err(usage_problem(&what, needs, "no URL", hint));
        }
        Ok(plan.into())
    }

    fn new_plan(
        &self,
        source: &OsString,
        targets: &[OsString],
    ) -> Result<Box<PlanRequest>, Problem> {
        let hint = "one directory is planned; the words behind it are targets";
        let targets = targets.iter().map(|word| planned_target(word, hint));
        let targets: Vec<String> = targets.collect::<Result<_, _>>()?;
        let here = std::env::current_dir().map_err(|error| {
            let hint = "name the source from the root on";
            usage_problem("cannot tell this directory", "one", &error.to_string(), hint)
        })?;
        let mut selection = Selection::default();
        selection.rules.clone_from(&self.rules.0);
        self.request(here.join(source), targets, selection)
    }

    /// The plan to make; `source` is a path from the root on, for runs that begin in another
    /// directory.
    fn request(
        &self,
        source: PathBuf,
        targets: Vec<String>,
        selection: Selection,
    ) -> Result<Box<PlanRequest>, Problem> {
        let size = self.shard_size.map(|(bytes, files)| Shards::Size(ShardSize { bytes, files }));
        let shards = self.shards.map(Shards::Count).or(size);
        let (Some(shards), Some(place)) = (shards, self.out.clone()) else {
            let (needs, found) = ("--shards or --shard-size, and --out", "not both");
            let hint = "to simulate a plan that is there, name its directory alone";
            return Err(usage_problem("cannot make a plan", needs, found, hint));
        };
        // Servers that share no file system would each have a part of the file.
        let is_cut = !self.whole_files && (targets.len() == 1 || self.shared_target);
        let stripe_bytes = self.stripe_size;
        let large_files = if is_cut { LargeFiles::Cut { stripe_bytes } } else { LargeFiles::Whole };
        Ok(Box::new(PlanRequest {
            source,
            targets,
            shards,
            selection,
            large_files,
            place,
            again: Vec::new(),
            keeps_targets: false,
        }))
    }
}
