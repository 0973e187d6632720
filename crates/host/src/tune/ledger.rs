//! Ledger of tuning, the memory of `--undo`. It says what was changed on this host, and what was
//! there before.
//!
//! A line of JSON for each step, on disk before the step is made, so that whatever ends the
//! program, the next one knows what may have been changed. One program at a time holds it
//! (flock(2)). A last line that was torn is of a step that was not begun.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::setting::{Setting, same};

/// The directory of the ledger on a host.
pub const DIRECTORY: &str = "/var/lib/haul/tune";
const FILE: &str = "ledger.jsonl";
/// The last ledger that was set back, for people who want to look it up.
const UNDONE: &str = "undone.jsonl";
/// The name of a file until it is whole. The holder of the ledger is alone, so one name is enough,
/// and the next writer removes what a killed one left.
const NEW: &str = ".haul-tune-new";
/// A directory of haul's alone, which goes with its last file.
const OWN_DIRECTORY: &str = "etc/haul";
/// The largest ledger that is read; several hundred changes have tens of kilobytes.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// A run that changes something begins.
    Begin {
        pid: u32,
        seconds_since_1970: u64,
        /// The number of this boot (/proc/sys/kernel/random/boot_id); empty where it could not be
        /// read.
        #[serde(default)]
        boot: String,
    },
    /// `setting` is about to become `new`.
    Before { check: String, setting: Setting, old: String, new: String },
    /// A file that holds settings for the next boot is about to be written; `old` is what it held.
    File { path: PathBuf, old: Content },
    /// The run is over, and all of it took.
    End,
    /// The run is over, and all of it was set back.
    SetBack,
}

/// Earlier content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    Nothing,
    Text(String),
    Link(PathBuf),
}

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("the ledger {path} cannot be {tried}: {source}")]
    Io { path: PathBuf, tried: &'static str, source: io::Error },
    #[error("another haul tune holds the ledger {path}: wait until it has ended")]
    Busy { path: PathBuf },
    #[error("line {line} of the ledger {path} makes no sense: {why}. Mend or remove the line")]
    Damaged { path: PathBuf, line: usize, why: String },
}

/// Changes that have not been set back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Settings as they were before the first change, and what the last made of them; in the order
    /// of the first changes.
    pub settings: Vec<Changed>,
    /// Earlier contents of the files, in order.
    pub files: Vec<(PathBuf, Content)>,
    /// Boots that numbers of interrupts belong to: they are given out anew at each.
    pub boots: BTreeMap<Setting, String>,
    /// Beginning of a run that was killed before its end, in seconds since 1970.
    pub broken_off_seconds: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub check: String,
    pub setting: Setting,
    pub old: String,
    pub new: String,
}

impl Changed {
    /// Whether the setting was remembered only: nobody asked to change it, another change disturbs
    /// it.
    #[must_use]
    pub fn is_remembered_only(&self) -> bool {
        same(&self.old, &self.new)
    }
}

impl Standing {
    /// The changes that were asked for.
    pub fn changes(&self) -> impl Iterator<Item = &Changed> {
        self.settings.iter().filter(|changed| !changed.is_remembered_only())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.files.is_empty()
    }

    fn of(records: &[Record]) -> Self {
        let mut standing = Self::default();
        let (mut place, mut this_boot) = (BTreeMap::new(), String::new());
        for record in records {
            match record {
                Record::Begin { seconds_since_1970, boot, .. } => {
                    this_boot.clone_from(boot);
                    standing.broken_off_seconds = Some(*seconds_since_1970);
                }
                Record::End | Record::SetBack => standing.broken_off_seconds = None,
                Record::Before { check, setting, old, new } => {
                    let known = *place.entry(setting.clone()).or_insert(standing.settings.len());
                    let boot = setting
                        .is_interrupt()
                        .then(|| standing.boots.insert(setting.clone(), this_boot.clone()))
                        .flatten();
                    match standing.settings.get_mut(known) {
                        Some(changed) => {
                            changed.new.clone_from(new);
                            // It was another interrupt before.
                            if boot.is_some_and(|boot| boot != this_boot) {
                                changed.old.clone_from(old);
                            }
                        }
                        None => standing.settings.push(Changed {
                            check: check.clone(),
                            setting: setting.clone(),
                            old: old.clone(),
                            new: new.clone(),
                        }),
                    }
                }
                Record::File { path, old } => {
                    if !standing.files.iter().any(|(known, _)| known == path) {
                        standing.files.push((path.clone(), old.clone()));
                    }
                }
            }
        }
        standing
    }
}

#[derive(Debug)]
pub struct Ledger {
    file: File,
    directory: PathBuf,
    records: Vec<Record>,
}

impl Ledger {
    /// Opens the ledger for changes, and makes one where there is none.
    ///
    /// # Errors
    /// If it cannot be opened, another holds it, or a line makes no sense.
    pub fn open(directory: &Path) -> Result<Self, LedgerError> {
        let path = directory.join(FILE);
        let failed = |tried| {
            let path = path.clone();
            move |source| LedgerError::Io { path, tried, source }
        };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(failed("made"))?;
        let mut options = File::options();
        let opened = options.read(true).append(true).create(true).mode(0o600).open(&path);
        let mut file = opened.map_err(failed("opened"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LedgerError::Busy { path }),
            Err(TryLockError::Error(source)) => return Err(failed("locked")(source)),
        }
        // Whoever held it until now may have closed it: then this file has another name.
        let is_in_place =
            fs::metadata(&path).and_then(|there| Ok(there.ino() == file.metadata()?.ino()));
        if !is_in_place.unwrap_or(false) {
            return Err(LedgerError::Busy { path });
        }
        let (records, whole_bytes) = read(&mut file, &path)?;
        file.set_len(whole_bytes).map_err(failed("cut"))?;
        sync_directory(directory).map_err(failed("synced"))?;
        Ok(Self { file, directory: directory.to_owned(), records })
    }

    /// Reads the ledger without holding it; nothing where there is none.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub fn peek(directory: &Path) -> Result<Standing, LedgerError> {
        let path = directory.join(FILE);
        match File::open(&path) {
            Ok(mut file) => {
                let mut standing = Standing::of(&read(&mut file, &path)?.0);
                if matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
                    // Whoever holds it is at work.
                    standing.broken_off_seconds = None;
                }
                Ok(standing)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Standing::default()),
            Err(source) => Err(LedgerError::Io { path, tried: "opened", source }),
        }
    }

    #[must_use]
    pub fn standing(&self) -> Standing {
        Standing::of(&self.records)
    }

    /// Changes since the last run began.
    #[must_use]
    pub fn this_run(&self) -> Standing {
        let begun = self.records.iter().rposition(|record| matches!(record, Record::Begin { .. }));
        Standing::of(&self.records[begun.unwrap_or(0)..])
    }

    /// Puts the beginning of a run on the disk.
    ///
    /// # Errors
    /// If it could not be put on the disk.
    pub fn begin(&mut self) -> Result<(), LedgerError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let pid = std::process::id();
        self.add(Record::Begin { pid, seconds_since_1970: now.as_secs(), boot: boot_id() })
    }

    /// Puts a record on the disk.
    ///
    /// # Errors
    /// If it could not be: then the step must not be made.
    pub fn add(&mut self, record: Record) -> Result<(), LedgerError> {
        let mut line = serde_json::to_string(&record).expect("records are plain data");
        line.push('\n');
        let whole = self.file.metadata().map(|metadata| metadata.len());
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| {
            // A full disk takes a part of a line, which must not become the beginning of the next.
            let _ = whole.and_then(|whole| self.file.set_len(whole));
            LedgerError::Io { path: self.directory.join(FILE), tried: "written", source }
        })?;
        self.records.push(record);
        Ok(())
    }

    /// Records that the last run was set back: nothing of it is left.
    ///
    /// # Errors
    /// If it could not be put on the disk.
    pub fn forget_this_run(&mut self) -> Result<(), LedgerError> {
        self.add(Record::SetBack)?;
        forget_last_run(&mut self.records);
        Ok(())
    }

    /// Ends a ledger of which all was set back: the file is kept under another name.
    ///
    /// # Errors
    /// If it could not be renamed.
    pub fn close(self) -> Result<(), LedgerError> {
        let path = self.directory.join(FILE);
        let renamed = fs::rename(&path, self.directory.join(UNDONE))
            .and_then(|()| sync_directory(&self.directory));
        renamed.map_err(|source| LedgerError::Io { path, tried: "renamed", source })
    }
}

/// The number of this boot of the host.
#[must_use]
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Writes a file so that it is whole or not there, whatever happens.
///
/// # Errors
/// What the system says.
pub fn write_whole(path: &Path, content: &Content) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let temporary = directory.join(NEW);
    let _ = fs::remove_file(&temporary);
    match content {
        Content::Nothing => {
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            if directory.ends_with(OWN_DIRECTORY) && fs::remove_dir(directory).is_ok() {
                return Ok(());
            }
        }
        Content::Text(text) => {
            let mut file = File::create_new(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
        }
        Content::Link(target) => {
            std::os::unix::fs::symlink(target, &temporary)?;
            fs::rename(&temporary, path)?;
        }
    }
    match sync_directory(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced,
    }
}

/// Reads the content of a file as it is now.
///
/// # Errors
/// If it is there and cannot be read, or is not text.
pub fn content(path: &Path) -> io::Result<Content> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::Nothing),
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_symlink() => Ok(Content::Link(fs::read_link(path)?)),
        Ok(_) => Ok(Content::Text(fs::read_to_string(path)?)),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Reads the records, and how many bytes they have in all without a torn line at the end.
fn read(file: &mut File, path: &Path) -> Result<(Vec<Record>, u64), LedgerError> {
    let failed = |source| LedgerError::Io { path: path.to_owned(), tried: "read", source };
    file.rewind().map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let mut records = Vec::new();
    for (index, line) in bytes[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let record = serde_json::from_slice(line).map_err(|error| LedgerError::Damaged {
            path: path.to_owned(),
            line: index + 1,
            why: error.to_string(),
        })?;
        records.push(record);
    }
    // A run that was set back left nothing: it is as if it had not been.
    let mut standing: Vec<Record> = Vec::new();
    for record in records {
        match record {
            Record::SetBack => forget_last_run(&mut standing),
            record => standing.push(record),
        }
    }
    Ok((standing, whole as u64))
}

fn forget_last_run(records: &mut Vec<Record>) {
    let begun = records.iter().rposition(|record| matches!(record, Record::Begin { .. }));
    records.truncate(begun.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(name: &str, old: &str, new: &str) -> Record {
        Record::Before {
            check: "a-check".to_owned(),
            setting: Setting::sysctl(name),
            old: old.to_owned(),
            new: new.to_owned(),
        }
    }

    #[test]
    fn of_two_changes_the_first_old_value_counts() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        for (old, new) in [("1", "2"), ("2", "3")] {
            ledger.begin().unwrap();
            ledger.add(before("net.a", old, new)).unwrap();
            ledger.add(Record::End).unwrap();
        }
        drop(ledger);
        let standing = Ledger::peek(directory.path()).unwrap();
        assert_eq!(standing.settings.len(), 1);
        assert_eq!((&standing.settings[0].old[..], &standing.settings[0].new[..]), ("1", "3"));
        assert_eq!(standing.broken_off_seconds, None);
    }

    #[test]
    fn a_run_that_did_not_end_is_seen_and_a_torn_line_is_no_step() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        ledger.begin().unwrap();
        ledger.add(before("net.a", "1", "2")).unwrap();
        ledger.file.write_all(br#"{"record":"before","che"#).unwrap();
        drop(ledger);
        let standing = Ledger::peek(directory.path()).unwrap();
        assert!(standing.broken_off_seconds.is_some());
        assert_eq!(standing.settings.len(), 1);
        // The next one writes behind the last whole line.
        let mut ledger = Ledger::open(directory.path()).unwrap();
        ledger.add(Record::End).unwrap();
        drop(ledger);
        assert_eq!(Ledger::peek(directory.path()).unwrap().broken_off_seconds, None);
    }

    #[test]
    fn a_run_that_was_set_back_leaves_those_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(directory.path()).unwrap();
        ledger.begin().unwrap();
        ledger.add(before("net.a", "1", "2")).unwrap();
        ledger.add(Record::End).unwrap();
        ledger.begin().unwrap();
        ledger.add(before("net.b", "1", "2")).unwrap();
        ledger.forget_this_run().unwrap();
        drop(ledger);
        let standing = Ledger::peek(directory.path()).unwrap();
        assert_eq!(standing.settings.len(), 1);
        assert_eq!(standing.settings[0].setting, Setting::sysctl("net.a"));
    }

    #[test]
    fn the_number_of_an_interrupt_belongs_to_a_boot() {
        let irq = Setting::file("/proc/irq/42/smp_affinity_list");
        let run = |boot: &str, old: &str| {
            let begin = Record::Begin { pid: 1, seconds_since_1970: 1, boot: boot.to_owned() };
            let (check, new) = ("interrupts".to_owned(), "3".to_owned());
            let before = Record::Before { check, setting: irq.clone(), old: old.to_owned(), new };
            [begin, before, Record::End]
        };
        let same = Standing::of(&[run("a", "0-7"), run("a", "3")].concat());
        assert_eq!((&same.settings[0].old[..], &same.boots[&irq][..]), ("0-7", "a"));
        let another = Standing::of(&[run("a", "0-7"), run("b", "0-3")].concat());
        assert_eq!((&another.settings[0].old[..], &another.boots[&irq][..]), ("0-3", "b"));
    }

    #[test]
    fn one_at_a_time_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let _ledger = Ledger::open(directory.path()).unwrap();
        assert!(matches!(Ledger::open(directory.path()), Err(LedgerError::Busy { .. })));
        assert!(Ledger::peek(directory.path()).unwrap().is_empty());
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "{\"record\":\"end\"}\nrubbish\n").unwrap();
        let error = Ledger::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn files_are_written_whole_and_what_was_there_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("90-haul.conf");
        for new in [
            Content::Text("a = 1\n".to_owned()),
            Content::Link(PathBuf::from("/somewhere")),
            Content::Nothing,
            Content::Nothing,
        ] {
            write_whole(&path, &new).unwrap();
            assert_eq!(content(&path).unwrap(), new);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
