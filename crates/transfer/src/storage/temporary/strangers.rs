//! Protection of a temporary and its journal against other programs of this host. It says what they
//! may do, and how it is noticed.

use super::Part;
use crate::error::io_fault;
use haul_protocol::message::{Fault, FaultCode, FileOffer, Growth, Side};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use std::{fs::File, io, time::Duration};

/// Time that a run that was killed may have written behind its last record: it makes one each
/// second. What a slower disk or path makes of it costs a look at what is there.
const UNJOURNALED_MAX: Duration = Duration::from_secs(2);

impl Part {
    /// Opens the journal of an earlier run: a file that has no other name, under which somebody
    /// else's would be written to.
    pub(super) fn open_journal(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.directory, &*self.journal_name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
            return Err(io::Error::other("it is no file of its own"));
        }
        Ok(file.into())
    }

    /// Creates a journal that nobody has made before.
    pub(super) fn create_journal(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&self.directory, &*self.journal_name, flags, Mode::from_raw_mode(0o600))?.into())
    }

    /// Whether the temporary changed after its journal was written last, but for what a run that
    /// ended may have received behind it. Nobody can set a ctime back; another mode or owner gives
    /// the journal a ctime, and no time of writing.
    pub(super) fn was_changed_since(&self) -> bool {
        let journal = statat(&self.directory, &*self.journal_name, AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(journal), Ok(file)) = (journal, rustix::fs::fstat(self.file.file())) else {
            return false;
        };
        let written_s = journal.st_ctime.min(journal.st_mtime);
        file.st_ctime.saturating_sub(written_s) > UNJOURNALED_MAX.as_secs().cast_signed()
    }

    /// Checks that the temporary has the size of what was received.
    ///
    /// # Errors
    /// If it has not the size of what was received: another program wrote to it, or cut it.
    pub fn check_size(&mut self, offer: &FileOffer, name: &[u8]) -> Result<(), Fault> {
        let what = "its temporary cannot be looked at";
        let there = self.file.file().metadata();
        let there = there.map_err(|error| io_fault(Side::Target, name, what, &error))?.len();
        let needs = offer.range.map_or(offer.size_bytes, |range| range.file_bytes);
        if offer.growth != Growth::NotGrowing || there == needs {
            return Ok(());
        }
        self.poisoned = true;
        let what = "another program changed its temporary while it arrived";
        Err(Fault::new(FaultCode::IoFailed, Side::Target, what)
            .at(name)
            .needs(format!("{needs} bytes, as they came"))
            .found(format!("{there} bytes"))
            .hint("find what writes to hidden files there, then run the same command again"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Part, Suspicion, Wanted};
    use crate::storage::{journal::Recorded, root::Root};
    use haul_protocol::{
        SpanIndex, SpanSet,
        message::{Digest, FaultCode, FileOffer, Growth, SpanRange},
    };
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::{
        fs::{self, File, Permissions},
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
        process::Command,
        time::{Duration, SystemTime},
    };

    const SIZE: u64 = 200_000;
    const PART: &str = ".x.haul-part";
    const JOURNAL: &str = ".x.haul-journal";

    fn offer() -> FileOffer {
        let source =
            FileOffer { inode: 7, device: 9, ctime_s: 5, mode: 0o644, ..FileOffer::default() };
        FileOffer { name: b"x".to_vec(), size_bytes: SIZE, ..source }
    }

    fn open(directory: &Path) -> (Part, SpanSet, Option<Suspicion>) {
        let root = Root::open(directory).unwrap();
        let wanted =
            Wanted { span_bytes: 65536, spans: 4, digest: Digest::AesGmac, recheck: false };
        let (part, _, durable, left) = Part::open(&root, b"x", &offer(), &wanted).unwrap();
        (part, durable, left.and_then(|left| left.suspicion))
    }

    /// Leaves what a run did that received the first span, and ended.
    fn left(directory: &Path) {
        let (mut part, ..) = open(directory);
        let spans = [SpanRange { first: SpanIndex(0), count: 1 }];
        let recorded = Recorded { spans: &spans, ..Recorded::default() };
        part.make_durable(recorded).unwrap();
        part.leave();
    }

    #[test]
    fn another_mode_of_both_does_not_hide_that_the_temporary_was_changed() {
        let directory = tempfile::tempdir().unwrap();
        left(directory.path());
        assert_eq!(open(directory.path()).2, None, "nobody touched it");
        left(directory.path());
        let long_ago = SystemTime::now() - Duration::from_secs(60);
        File::open(directory.path().join(JOURNAL)).unwrap().set_modified(long_ago).unwrap();
        for name in [PART, JOURNAL] {
            let mode = Permissions::from_mode(0o640);
            fs::set_permissions(directory.path().join(name), mode).unwrap();
        }
        assert_eq!(open(directory.path()).2, Some(Suspicion::ChangedSince));
    }

    #[test]
    fn a_journal_that_is_another_name_of_a_file_is_not_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, b"of somebody else").unwrap();
        left(directory.path());
        fs::remove_file(directory.path().join(JOURNAL)).unwrap();
        fs::hard_link(&victim, directory.path().join(JOURNAL)).unwrap();
        left(directory.path());
        assert_eq!(fs::read(&victim).unwrap(), b"of somebody else");
    }

    #[test]
    fn a_journal_that_has_another_name_too_or_is_no_file_is_not_taken_up() {
        let directory = tempfile::tempdir().unwrap();
        left(directory.path());
        let (journal, other) = (directory.path().join(JOURNAL), directory.path().join("other"));
        fs::hard_link(&journal, &other).unwrap();
        let bytes = fs::read(&other).unwrap();
        let (part, durable, _) = open(directory.path());
        assert!(durable.is_empty());
        part.leave();
        assert_eq!(fs::read(&other).unwrap(), bytes);
        fs::remove_file(&journal).unwrap();
        left(directory.path());
        fs::rename(&journal, &other).unwrap();
        std::os::unix::fs::symlink("other", &journal).unwrap();
        let bytes = fs::read(&other).unwrap();
        assert!(open(directory.path()).1.is_empty(), "it is a link");
        assert_eq!(fs::read(&other).unwrap(), bytes);
        fs::remove_file(&journal).unwrap();
        assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success());
        assert!(open(directory.path()).1.is_empty());
        assert!(fs::symlink_metadata(&journal).unwrap().is_file(), "it was begun anew");
    }

    #[test]
    fn no_other_program_inherits_a_journal() {
        let directory = tempfile::tempdir().unwrap();
        let (part, ..) = open(directory.path());
        let is_closed = |file: File| fcntl_getfd(file).unwrap().contains(FdFlags::CLOEXEC);
        assert!(is_closed(part.open_journal().unwrap()));
        fs::remove_file(directory.path().join(JOURNAL)).unwrap();
        assert!(is_closed(part.create_journal().unwrap()));
    }

    /// Bound of what a killed run may have written behind its last record.
    #[test]
    fn two_seconds_behind_the_journal_are_nothing_and_three_are_a_change() {
        for (seconds, suspicion) in [(2, None), (3, Some(Suspicion::ChangedSince))] {
            let directory = tempfile::tempdir().unwrap();
            left(directory.path());
            let changed_s = fs::metadata(directory.path().join(PART)).unwrap().ctime() - seconds;
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(changed_s.cast_unsigned());
            File::open(directory.path().join(JOURNAL)).unwrap().set_modified(then).unwrap();
            assert_eq!(open(directory.path()).2, suspicion);
        }
    }

    #[test]
    fn a_run_that_ends_leaves_its_journal_as_the_younger_one() {
        let directory = tempfile::tempdir().unwrap();
        left(directory.path());
        let (part, durable, _) = open(directory.path());
        assert_eq!(durable.iter().count(), 1);
        File::open(directory.path().join(JOURNAL))
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        part.leave();
        assert_eq!(open(directory.path()).2, None);
    }

    #[test]
    fn a_temporary_of_another_size_gets_no_name() {
        let directory = tempfile::tempdir().unwrap();
        for size in [SIZE + 1, 1000] {
            let (mut part, ..) = open(directory.path());
            part.check_size(&offer(), b"x").unwrap();
            let there = File::options().write(true).open(directory.path().join(PART)).unwrap();
            there.set_len(size).unwrap();
            let fault = part.check_size(&offer(), b"x").unwrap_err();
            assert_eq!(fault.code, FaultCode::IoFailed);
            assert!(fault.found.contains(&size.to_string()), "{fault:?}");
            assert!(part.publish().is_err());
            // A file that grows has the size of its last round.
            part.check_size(&FileOffer { growth: Growth::Growing, ..offer() }, b"x").unwrap();
        }
    }
}
