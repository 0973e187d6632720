//! Options of `haul push` and `haul pull` for trees.
//!
//! They say which files are meant, what happens to those that are there already, which attributes
//! arrive.

use super::{
    shard_number::parse_part,
    usage_problem,
    values::{parse_moment, parse_preserve},
};
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum, builder::ValueParser,
};
use haul_transfer::{
    Effect, OnConflict, PackedNames, Part, Preserve, Problem, Removal, Rule, TransferOptions,
    internals::parse_size,
};
use std::{
    ffi::{OsStr, OsString},
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

const TREES: &str = "Trees";

#[derive(Debug, Args)]
#[command(next_help_heading = TREES)]
pub struct LowTree {
    #[command(flatten)]
    pub rules: LowRules,
    /// Move only the names that this file lists, one a line, below the one source; - is standard
    /// input
    ///
    /// A directory stands for all below it.
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,
    /// The names of --files-from end with a zero byte, not with a line feed
    #[arg(long, requires = "files_from")]
    pub from0: bool,
    /// Move only one part of the files, by their names: 2/16 is the second of sixteen
    ///
    /// For as many machines that are started alike, each with its part; together they move all.
    /// auto/16 takes the number that a scheduler tells: PARALLEL_SEQ, HQ_TASK_ID or
    /// SLURM_ARRAY_TASK_ID, counted from 1, JOB_COMPLETION_INDEX or SLURM_PROCID, counted from 0.
    /// For `haul push` only.
    #[arg(long, value_name = "K/N", value_parser = parse_part)]
    pub part: Option<Part>,
    /// Leave out smaller files
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub min_size: Option<u64>,
    /// Leave out larger files
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_size: Option<u64>,
    /// Leave out files changed later than so long ago (2h, 7d), or than a date (2026-01-31)
    #[arg(long, value_name = "AGE", value_parser = parse_moment, allow_hyphen_values = true)]
    pub min_age: Option<i64>,
    /// Leave out files changed earlier than so long ago (2h, 7d), or than a date (2026-01-31)
    #[arg(long, value_name = "AGE", value_parser = parse_moment, allow_hyphen_values = true)]
    pub max_age: Option<i64>,
    /// Fate of a file whose name is taken at the target
    #[arg(long, value_name = "WHAT", default_value = "skip-same")]
    pub on_conflict: ConflictName,
    /// Tell whether a file is the same by its bytes, not by size and time
    ///
    /// Only files of the same size are read, on both sides.
    #[arg(long)]
    pub checksum_compare: bool,
    /// Remove from the target what the source directories do not have, after all else succeeded
    ///
    /// What --include, --exclude and the limits leave out stays. Not with --on-conflict keep-both.
    #[arg(long, conflicts_with_all = ["files_from", "part"])]
    pub delete: bool,
    /// Remove nothing if more than so many names would go
    #[arg(long, value_name = "N", requires = "delete")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub max_delete: Option<u64>,
    /// Say what would be copied, replaced and removed, and do nothing
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    /// Say by which facts each side chose its engine, what else there was, and the choice
    ///
    /// With --dry-run nothing is moved, and the choice is said all the same.
    #[arg(long)]
    pub explain: bool,
    /// Look at room, rights, names, limits, the port, clocks and tuning on both sides; move nothing
    #[arg(long)]
    pub preflight: bool,
    /// Remove each source file once it is durable at the target, and directories left empty
    ///
    /// A file that is there already is compared by its bytes first, and one that is the source
    /// itself by another path is refused. The directories that you name stay. The contents of a
    /// directory (`x/`) are moved alone, with no other source.
    #[arg(long = "move")]
    pub move_sources: bool,
    /// Attributes that arrive with each file: mode, mtime, owner, group, xattrs, acls, all or none
    ///
    /// Owners are matched by name, else by number; setting them needs root at the target. Without
    /// `mode` the umask there takes its part of the source's mode.
    #[arg(long, value_name = "LIST", default_value = "mode,mtime", value_parser = parse_preserve)]
    pub preserve: Preserve,
}

/// `--include` and `--exclude` in the order in which they were given.
#[derive(Debug, Default)]
pub struct LowRules(pub Vec<Rule>);

impl Args for LowRules {
    fn augment_args(command: Command) -> Command {
        let rule = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .value_parser(ValueParser::os_string())
                .help_heading(TREES)
                .help(help)
        };
        let include = rule("include", "Take what fits, as --exclude says").long_help(
            "Take what fits, as --exclude says\n\nWithout any --exclude, nothing else is taken.",
        );
        let exclude = rule("exclude", "Leave out what fits: *.tmp, /top/*.log, cache/").long_help(
            "Leave out what fits: *.tmp, /top/*.log, cache/\n\n\
             The first of --include and --exclude that fits a name decides. A pattern that begins \
             with / fits from the top, others at every depth; one that ends with / fits \
             directories. * and ? stay within a name, ** crosses directories, dir/*** is dir and \
             all in it, [a-z] and [[:digit:]] are one character, {a,b} is either. A directory that \
             is left out is not looked into.",
        );
        command.arg(include).arg(exclude)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LowRules {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut rules = Vec::new();
        for (name, effect) in [("include", Effect::Include), ("exclude", Effect::Exclude)] {
            let patterns = matches.get_many::<OsString>(name).unwrap_or_default();
            let places = matches.indices_of(name).unwrap_or_default();
            rules.extend(places.zip(patterns).map(|(place, pattern)| {
                (place, Rule { effect, pattern: pattern.as_bytes().to_vec() })
            }));
        }
        rules.sort_by_key(|(place, _)| *place);
        Ok(Self(rules.into_iter().map(|(_, rule)| rule).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// `--on-conflict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConflictName {
    /// A file that is the same by size and time stays, one that differs is replaced
    SkipSame,
    /// Even what is the same is replaced
    Replace,
    /// A file that differs stays, and the new one fails
    Fail,
    /// A file that differs stays, and the new one is stored as NAME.1, NAME.2, ...
    KeepBoth,
}

impl From<ConflictName> for OnConflict {
    fn from(name: ConflictName) -> Self {
        match name {
            ConflictName::SkipSame => Self::SkipSame,
            ConflictName::Replace => Self::Replace,
            ConflictName::Fail => Self::Fail,
            ConflictName::KeepBoth => Self::KeepBoth,
        }
    }
}

impl LowTree {
    /// Puts what was chosen into the options; `sources` are as the user named them.
    ///
    /// # Errors
    /// Says which option cannot be taken and why.
    pub fn add_to(
        &self,
        options: &mut TransferOptions,
        sources: &[impl AsRef<OsStr>],
    ) -> Result<(), Problem> {
        if self.files_from.is_some() && sources.len() != 1 {
            return Err(usage_problem(
                "cannot take --files-from",
                "one source directory, which the names are below",
                &format!("{} sources", sources.len()),
                "move from each directory by a command of its own",
            ));
        }
        let unverified = options.digest_name() == "none";
        if self.move_sources && unverified {
            return Err(usage_problem(
                "cannot take --move",
                "bytes that are verified before their source is removed",
                "--digest none",
                "leave out --digest",
            ));
        }
        let names = match &self.files_from {
            Some(file) => Some(Arc::new(self.read_names(file)?)),
            None => None,
        };
        let selection = &mut options.selection;
        selection.rules.clone_from(&self.rules.0);
        selection.names = names;
        selection.part = self.part;
        (selection.size_min, selection.size_max) = (self.min_size, self.max_size);
        (selection.modified_from, selection.modified_until) = (self.max_age, self.min_age);
        let file_options = &mut options.file_options;
        file_options.on_conflict = self.on_conflict.into();
        // A source is removed only when what is there holds its very bytes.
        file_options.compare_content = self.checksum_compare || self.move_sources;
        let removal = Removal::new(self.max_delete);
        file_options.removal = self.delete.then_some(removal);
        file_options.dry_run = self.dry_run || self.preflight;
        file_options.preflight = self.preflight;
        file_options.explain = self.explain;
        file_options.move_sources = self.move_sources;
        file_options.preserve = self.preserve;
        Ok(())
    }

    fn read_names(&self, file: &Path) -> Result<PackedNames, Problem> {
        let failed = |error: &std::io::Error| {
            let what = format!("cannot read the names in {}", file.display());
            usage_problem(&what, "a file of names", &error.to_string(), "- is standard input")
        };
        let opened: Box<dyn Read> = if file == Path::new("-") {
            Box::new(std::io::stdin())
        } else {
            Box::new(std::fs::File::open(file).map_err(|error| failed(&error))?)
        };
        let end = if self.from0 { 0 } else { b'\n' };
        let mut names = PackedNames::default();
        for line in BufReader::new(opened).split(end) {
            let line = line.map_err(|error| failed(&error))?;
            let line = line.strip_prefix(b"./").unwrap_or(&line);
            let name = line.strip_suffix(b"/").unwrap_or(line);
            if name.is_empty() {
                continue;
            }
            if let Err(why) = haul_protocol::name::check_relative_name(name) {
                let what = format!("cannot take the name {:?}", String::from_utf8_lossy(name));
                let hint = "names are below the source, as in dir/file";
                return Err(usage_problem(&what, "a name below the source", why, hint));
            }
            names.push(name);
        }
        names.sort();
        Ok(names)
    }
}
