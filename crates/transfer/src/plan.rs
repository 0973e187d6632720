//! Plan of a transfer by many runs (`haul plan`): a tree's names, cut into shards of equal weight.
//!
//! A plan is a directory (SPEC, "Plans"): `shard-00001.jsonl` and so on, each a line about itself
//! and a line for each name, and `plan.json`, which is there once all of them are. Whoever has the
//! directory runs a shard; nobody coordinates.

mod balance;
mod making;
mod shard;

pub use making::{Made, make};
pub use shard::Shard;

use crate::{error::problem, name::Name, problem::Problem};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Version of the plan's files; a reader refuses a later one.
pub const VERSION: u32 = 1;
/// Most shards of a plan: each has a file.
pub const SHARDS_MAX: u32 = 4096;
/// The file that a plan is known by.
const PLAN_FILE: &str = "plan.json";

/// A plan: what is moved, where to, and in how many shards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// Version of the format.
    #[serde(rename = "haul_plan")]
    pub version: u32,
    /// The source directory as the user named it, and as each run names it.
    #[serde(flatten, serialize_with = "crate::name::exact_path")]
    #[serde(deserialize_with = "crate::name::read_exact_path")]
    pub source: Name,
    /// Targets as the user named them; shards take them in turn.
    pub targets: Vec<String>,
    /// Number of shards.
    pub shards: u32,
    /// Number of files, links and empty directories in all shards.
    pub files: u64,
    /// Bytes of the files in all shards.
    pub bytes: u64,
    /// Directory of the plan; not in its file.
    #[serde(skip)]
    place: PathBuf,
}

impl Plan {
    /// Reads the plan in a directory.
    ///
    /// # Errors
    /// If there is none that is whole, or it is of a later version.
    pub fn open(place: &Path) -> Result<Self, Problem> {
        let path = place.join(PLAN_FILE);
        let what = format!("cannot read the plan {}", path.display());
        let needs = "a directory that `haul plan` has made, and has ended";
        let text = fs::read(&path)
            .map_err(|error| problem(&what, needs, &error.to_string(), "make it by `haul plan`"))?;
        let mut plan: Self = serde_json::from_slice(&text)
            .map_err(|error| problem(&what, needs, &error.to_string(), "make it again"))?;
        if plan.version > VERSION || plan.targets.is_empty() || plan.shards == 0 {
            let needs = format!("a plan of version {VERSION}");
            let found = format!("version {}", plan.version);
            return Err(problem(&what, &needs, &found, "run the haul that has made it"));
        }
        plan.place = place.to_owned();
        Ok(plan)
    }

    /// Reads a shard, counted from 1.
    ///
    /// # Errors
    /// If there is no such shard, or its file is not whole.
    pub fn shard(&self, number: u32) -> Result<Shard, Problem> {
        if !(1..=self.shards).contains(&number) {
            let needs = format!("a shard from 1 to {}", self.shards);
            let hint = "start as many runs as the plan has shards";
            return Err(problem("there is no such shard", &needs, &number.to_string(), hint));
        }
        Shard::read(&shard_path(&self.place, number), number, self.shards)
    }

    /// The target of a shard, counted from 1.
    #[must_use]
    pub fn target(&self, number: u32) -> &str {
        let at = number.saturating_sub(1) as usize % self.targets.len();
        &self.targets[at]
    }

    /// Writes the plan's file under its name, at last: it holds the targets' tokens, and is its
    /// user's alone.
    fn write(&self) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let hidden = self.place.join(".plan.json.new");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&hidden)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        io::Write::write_all(&mut file, b"\n")?;
        file.sync_all()?;
        fs::rename(&hidden, self.place.join(PLAN_FILE))
    }
}

fn shard_path(place: &Path, number: u32) -> PathBuf {
    place.join(format!("shard-{number:05}.jsonl"))
}
