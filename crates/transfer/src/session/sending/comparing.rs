//! Comparison of contents with files of the same size at the receiver.
//!
//! The source's content is hashed beside the session's thread, and another offer says whether the
//! two are the same.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::{
    error::io_fault,
    session::hashing::{Content, Hashing},
    storage::source::{Ctime, SourceEntry},
};
use haul_protocol::{
    FileId,
    file_life::NextStep,
    message::{Compared, Side},
};
use std::{collections::BTreeMap, io, time::Instant};

/// The most files that are compared, beside those whose offers are open: no more are met before.
const FILES_MAX: usize = 1024;

pub(super) struct Comparing {
    /// Sources being compared, each with the content of the receiver's file.
    files: BTreeMap<FileId, (SourceEntry, Content)>,
    hashing: Hashing,
}

impl Comparing {
    /// Starts with no file; `wake` is called when one has been read.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { files: BTreeMap::new(), hashing: Hashing::new(wake) }
    }
}

impl Stage for Comparing {
    fn settled(&mut self, settled: &mut Settled, context: &mut Context<'_>) {
        let NextStep::Compare(compare) = &settled.step else { return };
        let theirs = compare.blake3;
        let Settled { file, entry, .. } = settled;
        let source = entry.clone();
        let begun = self.hashing.begin_hash(*file, entry.offer.size_bytes, move || {
            source.open().map_err(|fault| io::Error::other(fault.what))
        });
        match begun {
            Ok(()) => drop(self.files.insert(*file, (entry.clone(), theirs))),
            Err(error) => not_compared(*file, entry.clone(), &error, context),
        }
    }

    fn tick(&mut self, _now: Instant, context: &mut Context<'_>) {
        for (file, hashed) in self.hashing.take_results() {
            let Some((mut entry, theirs)) = self.files.remove(&file) else { continue };
            match hashed.and_then(|mine| still_the_same(&entry).map(|()| mine)) {
                Ok(mine) => {
                    let is_same = mine == theirs;
                    let compared =
                        if is_same { Compared::SameContent } else { Compared::OtherContent };
                    entry.offer.compared = compared;
                    context.offer(entry, Some(file));
                }
                Err(error) => not_compared(file, entry, &error, context),
            }
        }
    }

    fn keeps_some(&self) -> bool {
        !self.files.is_empty()
    }

    fn is_full(&self) -> bool {
        self.files.len() >= FILES_MAX
    }

    fn stop(&mut self) {
        self.hashing.stop();
    }
}

/// Checks that a source that was read is still what was offered.
fn still_the_same(entry: &SourceEntry) -> io::Result<()> {
    let now = entry.check().map_err(|fault| io::Error::other(fault.what))?;
    if now.differs(Ctime::of_offer(&entry.offer)) {
        return Err(io::Error::other("its inode changed while it was read"));
    }
    Ok(())
}

fn not_compared(file: FileId, entry: SourceEntry, error: &io::Error, context: &mut Context<'_>) {
    // What changed says more than how reading it failed.
    let fault = entry
        .check()
        .err()
        .unwrap_or_else(|| io_fault(Side::Source, &entry.offer.name, "cannot be compared", error));
    context.failed_here.push_back((file, entry, fault));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        session::sending::without_peer::{self, wait_until},
    };
    use haul_protocol::message::{Compare, Fault, FaultCode};
    use std::{fs, path::Path};

    const FILE: FileId = FileId(5);
    const BYTES: [u8; 3000] = [7; 3000];

    /// A session that has met a file of which the receiver has another of the same size.
    struct Session<'a> {
        context: Context<'a>,
        comparing: Comparing,
        directory: tempfile::TempDir,
    }

    impl<'a> Session<'a> {
        fn begin(hear: &'a mut dyn FnMut(Event)) -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("data"), BYTES).unwrap();
            let context = without_peer::begin(FileOptions::default(), hear).context;
            Self { context, comparing: Comparing::new(|| {}), directory }
        }

        fn entry(&self) -> SourceEntry {
            without_peer::files(self.directory.path()).remove(0)
        }

        /// Compares a source with what the receiver has. Gives the word that the next offer brings
        /// of it, or the fault.
        fn compare(&mut self, entry: SourceEntry, theirs: Content) -> Result<Compared, Fault> {
            let step = NextStep::Compare(Compare { blake3: theirs });
            let (content, stored_as, is_told, now) = (None, None, true, Instant::now());
            let mut settled = Settled { file: FILE, entry, step, content, stored_as, is_told, now };
            self.comparing.settled(&mut settled, &mut self.context);
            let (comparing, context) = (&mut self.comparing, &mut self.context);
            wait_until("compared", || {
                comparing.tick(now, context);
                !comparing.keeps_some()
            });
            match (context.to_offer.pop_front(), context.failed_here.pop_front()) {
                (Some(again), None) => {
                    assert_eq!(again.before, Some(FILE));
                    Ok(again.entry.offer.compared)
                }
                (None, Some((file, _, fault))) => {
                    assert_eq!((file, &fault.path[..]), (FILE, &b"data"[..]));
                    Err(fault)
                }
                _ => panic!("one of the two"),
            }
        }
    }

    #[test]
    fn another_offer_says_whether_the_contents_are_the_same() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        let same = *blake3::hash(&BYTES).as_bytes();
        let other = *blake3::hash(&BYTES[1..]).as_bytes();
        for (theirs, expected) in [(same, Compared::SameContent), (other, Compared::OtherContent)] {
            let entry = session.entry();
            assert_eq!(session.compare(entry, theirs), Ok(expected));
        }
    }

    #[test]
    fn a_source_that_changed_while_it_was_read_is_not_called_the_same() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        let theirs = *blake3::hash(&BYTES).as_bytes();
        let mut inode = session.entry();
        inode.offer.ctime_s -= 1;
        let fault = session.compare(inode, theirs).unwrap_err();
        assert_eq!((fault.what.as_str(), fault.code), ("cannot be compared", FaultCode::IoFailed));
        assert!(fault.found.contains("its inode changed"), "{fault:?}");
        let change = |change: fn(&Path), session: &mut Session<'_>| {
            let entry = session.entry();
            change(&session.directory.path().join("data"));
            session.compare(entry, theirs).unwrap_err()
        };
        let fault = change(|path| fs::write(path, "shorter").unwrap(), &mut session);
        assert_eq!(fault.code, FaultCode::SourceChanged, "{fault:?}");
        let fault = change(|path| fs::remove_file(path).unwrap(), &mut session);
        assert_eq!(fault.code, FaultCode::NotFound, "{fault:?}");
    }

    #[test]
    fn a_session_that_is_over_compares_nothing_any_more() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        session.comparing.stop();
        let entry = session.entry();
        let fault = session.compare(entry, *blake3::hash(&BYTES).as_bytes()).unwrap_err();
        assert_eq!(fault.what, "cannot be compared");
    }

    #[test]
    fn the_walk_waits_while_as_many_are_compared_as_may_be() {
        let mut hear = |_| {};
        let mut session = Session::begin(&mut hear);
        let entry = session.entry();
        assert!(!session.comparing.keeps_some());
        for number in 0..FILES_MAX as u32 {
            assert!(!session.comparing.is_full(), "{number}");
            session.comparing.files.insert(FileId(number), (entry.clone(), [0; 32]));
        }
        assert!(session.comparing.is_full() && session.comparing.keeps_some());
    }
}
