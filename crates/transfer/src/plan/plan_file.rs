//! The file of a plan, `plan.json`, and the places of its shards.

use super::shard::{Shard, ShardLoad, read_head_alone};
use crate::{
    error::{TransferError, problem},
    name::Name,
    problem::Problem,
    selection::Rule,
};
use rustix::{fs::OFlags, io::Errno};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fmt,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Version of the plan's files; a reader refuses a later one.
pub const VERSION: u32 = 1;
/// Version of a plan and a shard that have ranges of files, which a reader of version 1 would take
/// for the whole files.
pub const VERSION_WITH_RANGES: u32 = 2;
/// Version of a plan that grows: its shards are there before their number is known.
pub const VERSION_GROWING: u32 = 3;
/// Most shards of a plan: each has a file.
pub const SHARDS_MAX: u32 = 4096;
/// Most bytes of `plan.json`: it has patterns and targets, and no names.
const PLAN_BYTES_MAX: u64 = 16 << 20;
/// The file that a plan is known by.
pub(super) const PLAN_FILE: &str = "plan.json";
/// File by whose lock a planner has a directory to itself; it stays there.
pub(super) const LOCK_FILE: &str = ".haul-plan.lock";

/// A plan: what is moved, where to, and in how many shards.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Plan {
    /// Version of the format.
    #[serde(rename = "haul_plan")]
    pub version: u32,
    /// Text that this plan's shards have too, and no other's.
    pub id: String,
    /// The source directory as the user named it, and as each run names it.
    #[serde(flatten, serialize_with = "crate::name::exact_path")]
    #[serde(deserialize_with = "crate::name::read_exact_path")]
    pub source: Name,
    /// Targets as the user named them; shards take them in turn.
    pub targets: Vec<String>,
    /// Number of shards; of those that are there so far, while the plan grows.
    pub shards: u32,
    /// Number of files, links and empty directories in all shards.
    pub files: u64,
    /// Bytes of the files in all shards.
    pub bytes: u64,
    /// Rules that chose the names, in their order; `None` where the plan does not tell them.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "super::rules")]
    pub rules: Option<Vec<Rule>>,
    /// Number of entries that could not be listed, and are in no shard.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// State of a plan that grows; `None` once it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing: Option<Growth>,
    /// Directory of the plan; not in its file.
    #[serde(skip)]
    pub(super) place: PathBuf,
}

/// State of a plan that is still made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Growth {
    /// Number that grows while somebody makes the plan.
    pub beats: u64,
    /// Whether making it was given up.
    pub given_up: bool,
}

impl Plan {
    /// Reads the plan in a directory.
    ///
    /// # Errors
    /// If there is none that is whole, or it is of a later version, nothing can start. If its
    /// directory is not there, or answers with an error that may pass, a later look may find it.
    pub fn open(place: &Path) -> Result<Self, TransferError> {
        let path = place.join(PLAN_FILE);
        let what = format!("cannot read the plan {}", path.display());
        let needs = "a directory that `haul plan` has made, and has ended";
        let hint = "make it by `haul plan`";
        let refused = |error: io::Error| {
            let problem = problem(&what, needs, &error.to_string(), hint);
            // What is to be mounted may not be yet.
            let is_away = || fs::metadata(place).is_err_and(|it| it.kind() == ErrorKind::NotFound);
            match error.kind() == ErrorKind::NotFound && is_away() {
                true => TransferError::Unavailable(Box::new(problem)),
                false => unread(problem, &error),
            }
        };
        let file = open_file(&path).map_err(refused)?;
        let (owner, mode) = file.metadata().map(|it| (it.uid(), it.mode())).map_err(refused)?;
        let own = rustix::process::geteuid().as_raw();
        if (owner != own && owner != 0) || mode & 0o022 != 0 {
            // Whoever writes it says which files of this user go where.
            let needs = "a file that nobody but its user, or root, can write";
            let found = format!("owner {owner}, mode {:o}", mode & 0o777);
            let hint = "chmod go-w, or make the plan as this user";
            return Err(TransferError::start(problem(&what, needs, &found, hint)));
        }
        let mut text = Vec::new();
        file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut text).map_err(refused)?;
        if text.len() as u64 > PLAN_BYTES_MAX {
            let needs = format!("a file of at most {PLAN_BYTES_MAX} bytes");
            let problem = problem(&what, &needs, "a longer one", "make it again");
            return Err(TransferError::start(problem));
        }
        let mut plan: Self = serde_json::from_slice(&text)
            .map_err(|error| problem(&what, needs, &error.to_string(), "make it again"))
            .map_err(TransferError::start)?;
        plan.check(&what).map_err(TransferError::start)?;
        plan.place = place.to_owned();
        Ok(plan)
    }

    /// Checks what the file says: a later version first, which may have more of all.
    fn check(&self, what: &str) -> Result<(), Problem> {
        if self.version > VERSION_GROWING {
            let needs = format!("a plan of version {VERSION_GROWING}");
            let found = format!("version {}", self.version);
            return Err(problem(what, &needs, &found, "run the haul that has made it"));
        }
        if self.targets.is_empty() || (self.shards == 0 && self.growing.is_none()) {
            let needs = "at least one target and one shard";
            return Err(problem(what, needs, "none", "make it again"));
        }
        if self.shards > SHARDS_MAX {
            let needs = format!("at most {SHARDS_MAX} shards");
            return Err(problem(what, &needs, &self.shards.to_string(), "make it again"));
        }
        Ok(())
    }

    /// Reads a shard, counted from 1. A plan that has grown is run by as many runs as it might have
    /// had shards, so a shard that it does not have has no names.
    ///
    /// # Errors
    /// If there is no such shard, or its file is not whole, nothing can start. If the file answers
    /// with an error that may pass, a later look may find it.
    pub fn shard(&self, number: u32) -> Result<Shard, TransferError> {
        if self.has_grown() && (self.shards + 1..=SHARDS_MAX).contains(&number) {
            return Ok(Shard::empty(number));
        }
        if !(1..=self.shards).contains(&number) {
            let needs = format!("a shard from 1 to {}", self.shards);
            let hint = "start as many runs as the plan has shards";
            let problem = problem("there is no such shard", &needs, &number.to_string(), hint);
            return Err(TransferError::start(problem));
        }
        Shard::read(number, self)
    }

    /// Loads of all shards, as their first lines tell them.
    ///
    /// # Errors
    /// If the file of a shard cannot be read, or is of another plan.
    pub fn loads(&self) -> Result<Vec<ShardLoad>, Problem> {
        let load = |number| ShardLoad::read(&shard_path(&self.place, number), number, self);
        (1..=self.shards).map(load).collect()
    }

    /// Number of the files, links and empty directories that count in a shard: a file in several
    /// shards counts in the one that has its begin. `None` where the shard cannot be read.
    pub(crate) fn names_in(&self, number: u32) -> Option<u64> {
        let head = read_head_alone(&shard_path(&self.place, number), number, self);
        head.ok().map(|head| head.names())
    }

    /// Whether runs for so many shards leave none out. A plan that grows may have any number.
    #[must_use]
    pub fn is_run_by(&self, runs: u32) -> bool {
        match (self.version == VERSION_GROWING, self.growing) {
            (true, Some(_)) => true,
            (true, None) => runs >= self.shards,
            (false, _) => runs == self.shards,
        }
    }

    /// Whether all shards are there only now.
    fn has_grown(&self) -> bool {
        self.version == VERSION_GROWING && self.growing.is_none()
    }

    /// Number of all shards as a shard and the report of a run tell it: 0 in a plan that grows.
    pub(crate) fn shards_told(&self) -> u32 {
        if self.version == VERSION_GROWING { 0 } else { self.shards }
    }

    /// Checks that all shards are there.
    ///
    /// # Errors
    /// If the plan is still made, or making it was given up.
    pub fn check_whole(&self) -> Result<(), Problem> {
        let Some(Growth { given_up, .. }) = self.growing else { return Ok(()) };
        let what = format!("the plan in {} is not whole", self.place.display());
        let found = match given_up {
            true => format!("{} shards, and nobody makes more", self.shards),
            false => format!("{} shards so far", self.shards),
        };
        let hint = match given_up {
            true => "run these, and plan what is missing by `haul plan --again`",
            false => "wait until `haul plan` has ended",
        };
        Err(problem(&what, "a plan with all of its shards", &found, hint))
    }

    /// Directory of the plan.
    #[must_use]
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Whether files are cut into ranges; not known of a plan that grew.
    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.version == VERSION_WITH_RANGES
    }

    /// The target of a shard, counted from 1.
    #[must_use]
    pub fn target(&self, number: u32) -> &str {
        let at = number.saturating_sub(1) as usize % self.targets.len();
        &self.targets[at]
    }

    /// Writes the plan's file under its name, at last: it holds the targets' tokens, and is its
    /// user's alone.
    pub(super) fn write(&self) -> io::Result<()> {
        let hidden = self.place.join(".plan.json.new");
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        if text.len() as u64 > PLAN_BYTES_MAX {
            let found = format!("{PLAN_FILE} would have {} bytes, the most are", text.len());
            return Err(io::Error::other(format!("{found} {PLAN_BYTES_MAX}: give fewer patterns")));
        }
        let written = create_anew(&hidden).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&hidden, self.place.join(PLAN_FILE))
        });
        written.inspect_err(|_| drop(fs::remove_file(&hidden)))?;
        // The names of the shards too.
        File::open(&self.place)?.sync_all()
    }
}

/// The error of a file that cannot be read. What the file system may say today and not tomorrow,
/// such as EIO and ESTALE, is no reason to give up.
pub(crate) fn unread(problem: Problem, error: &io::Error) -> TransferError {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput
        | ErrorKind::InvalidData => TransferError::start(problem),
        _ => TransferError::Unavailable(Box::new(problem)),
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl fmt::Debug for Plan {
    /// Shows a plan without its targets, which may hold tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, source, shards, .. } = self;
        write!(f, "Plan({id}, {source}, {shards} shards)")
    }
}

/// Makes a file that is this user's alone, in the place of one of that name: another user may be
/// allowed to write to the directory, and have put a file or a link there.
pub(super) fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Opens a file of a plan: a pipe in its place is not waited for. A link is followed, as files that
/// Kubernetes mounts of a ConfigMap are links.
///
/// # Errors
/// If it cannot be opened, or is no regular file, which does not pass.
pub(super) fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut opened = File::options().read(true).custom_flags(flags).open(path);
    // Another host has a lease on it (fcntl(2)), as its writer by NFS: it is waited for.
    if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        && fs::metadata(path).is_ok_and(|there| there.is_file())
    {
        opened = File::open(path);
    }
    let is_other = |found: &str| io::Error::new(ErrorKind::InvalidInput, found);
    let file = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => is_other("it is a link to itself"),
        // A socket, and a device without a driver.
        Some(Errno::NXIO | Errno::NODEV) => is_other("it is no file"),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(is_other("it is no file")) }
}

pub(super) fn shard_path(place: &Path, number: u32) -> PathBuf {
    place.join(format!("shard-{number:05}.jsonl"))
}

/// Whether this is the name of a shard's file.
pub(super) fn is_shard(name: &OsStr) -> bool {
    let number = || name.to_str()?.strip_prefix("shard-")?.strip_suffix(".jsonl")?.parse().ok();
    let is_named = |number| shard_path(Path::new(""), number).as_os_str() == name;
    number().is_some_and(|number| (1..=SHARDS_MAX).contains(&number) && is_named(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::{fs::symlink, net::UnixListener};

    #[test]
    fn only_what_somebody_has_to_change_is_no_reason_to_read_again() {
        let may_pass = |errno: Errno| {
            let error = unread(problem("cannot read it", "", "", ""), &errno.into());
            matches!(error, TransferError::Unavailable(_))
        };
        for errno in [Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::NFILE, Errno::NOTCONN] {
            assert!(may_pass(errno), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::PERM, Errno::NOTDIR, Errno::ISDIR] {
            assert!(!may_pass(errno), "{errno}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_may_come_and_one_without_a_plan_has_none() {
        let place = tempfile::tempdir().unwrap();
        let none = Plan::open(place.path());
        assert!(matches!(none, Err(TransferError::CouldNotStart(_))), "{none:?}");
        let away = Plan::open(&place.path().join("mounted/later"));
        assert!(matches!(away, Err(TransferError::Unavailable(_))), "{away:?}");
        fs::write(place.path().join(PLAN_FILE), "{").unwrap();
        let spoilt = Plan::open(place.path());
        assert!(matches!(spoilt, Err(TransferError::CouldNotStart(_))), "{spoilt:?}");
    }

    /// `haul report` has an entry in memory for each shard, and ended by a signal.
    #[test]
    fn a_plan_that_says_too_much_is_refused_before_there_is_room_for_it() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join(PLAN_FILE);
        let write = |version: u32, shards: u32| {
            let plan = serde_json::json!({ "haul_plan": version, "id": "this", "path": "/data",
                "targets": ["h:x"], "shards": shards, "files": 1, "bytes": 1 });
            fs::write(&file, plan.to_string()).unwrap();
        };
        let refused = |words: &str| match Plan::open(scratch.path()) {
            Err(TransferError::CouldNotStart(problem)) => {
                assert!(problem.to_string().contains(words), "{problem}");
            }
            other => panic!("{other:?}"),
        };
        write(1, SHARDS_MAX);
        assert_eq!(Plan::open(scratch.path()).unwrap().shards, SHARDS_MAX);
        write(1, SHARDS_MAX + 1);
        refused("at most 4096 shards, found 4097");
        write(1, u32::MAX);
        refused("at most 4096 shards");
        write(9, u32::MAX);
        refused("a plan of version 3");
        write(1, 1);
        File::options().write(true).open(&file).unwrap().set_len(1 << 41).unwrap();
        refused("a file of at most 16777216 bytes");
    }

    #[test]
    fn a_plan_that_cannot_be_written_leaves_no_hidden_file() {
        let scratch = tempfile::tempdir().unwrap();
        let text = r#"{ "haul_plan": 1, "id": "this", "path": "/data", "targets": ["h:x"],
            "shards": 1, "files": 1, "bytes": 1 }"#;
        let mut plan: Plan = serde_json::from_str(text).unwrap();
        plan.place = scratch.path().to_owned();
        fs::create_dir(scratch.path().join(PLAN_FILE)).unwrap();
        assert!(plan.write().is_err());
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    /// Opening a pipe waits for its writer, and no signal ended that.
    #[test]
    fn what_is_no_file_in_a_plans_place_is_refused_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = UnixListener::bind(path("socket")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("file"), "{}").unwrap();
        for (name, to) in [("link", "file"), ("to-pipe", "pipe"), ("loop", "loop")] {
            symlink(to, path(name)).unwrap();
        }
        for (name, found) in [
            ("pipe", "no file"),
            ("socket", "no file"),
            ("directory", "no file"),
            ("to-pipe", "no file"),
            ("loop", "a link to itself"),
        ] {
            let error = open_file(&path(name)).unwrap_err();
            assert!(error.to_string().contains(found), "{name}: {error}");
            let stays = unread(problem("cannot read it", "", "", ""), &error);
            assert!(matches!(stays, TransferError::CouldNotStart(_)), "{name}: {stays}");
        }
        assert_eq!(open_file(Path::new("/dev/null")).unwrap_err().to_string(), "it is no file");
        assert!(open_file(&path("file")).is_ok() && open_file(&path("link")).is_ok());
        assert_eq!(open_file(&path("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
