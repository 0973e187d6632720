//! Figures of a server and its process at one moment.
//!
//! They are taken anew at most twice a second, however many ask.

use std::{
    os::linux::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use haul_host::{DiskUse, Storage};

use super::process::Process;
use crate::server::{Observer, Snapshot};

/// Time for which figures serve whoever asks.
const FRESH: Duration = Duration::from_millis(500);
/// Numbers of sessions that are asked for, so that few snapshots serve all.
const SESSIONS_STEPS: [usize; 3] = [0, 1_000, SESSIONS_MAX];
/// Most sessions in one answer.
pub const SESSIONS_MAX: usize = 10_000;

/// Figures of a server and its process at one moment.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub taken: Instant,
    pub snapshot: Snapshot,
    pub process: Process,
    /// The disk's name, and what it did for all of the machine.
    pub disk: Option<(String, DiskUse)>,
    /// Time at which the watch began.
    pub started: SystemTime,
}

/// Looks at a running server for all that tell of it.
pub struct Watch {
    observer: Observer,
    /// Disk of the directory that is served, as in /sys/block.
    disk: Option<String>,
    started: SystemTime,
    last: Mutex<Option<Last>>,
}

struct Last {
    figures: Arc<Figures>,
    sessions_max: usize,
}

impl Watch {
    /// Watches a server; `served` is the directory that it serves, whose disk is watched.
    #[must_use]
    pub fn new(observer: Observer, served: &Path) -> Self {
        let started = SystemTime::now();
        Self { observer, disk: disk(served), started, last: Mutex::new(None) }
    }

    /// Figures with at least `sessions_min` sessions, as far as there are as many. While a loop is
    /// silent, what its streams had before counts on, so that no total ever shrinks.
    pub(super) fn figures(&self, sessions_min: usize) -> Arc<Figures> {
        let mut last = self.lock();
        if let Some(last) = &*last
            && last.figures.taken.elapsed() < FRESH
            && last.sessions_max >= sessions_min.min(SESSIONS_MAX)
        {
            return last.figures.clone();
        }
        let step = SESSIONS_STEPS.into_iter().find(|step| *step >= sessions_min);
        let sessions_max = step.unwrap_or(SESSIONS_MAX);
        let mut snapshot = self.observer.snapshot(sessions_max);
        if snapshot.loops_missing > 0
            && let Some(Last { figures, .. }) = &*last
        {
            snapshot.slack = figures.snapshot.slack;
            snapshot.reads = figures.snapshot.reads;
            snapshot.sessions_count = figures.snapshot.sessions_count;
        }
        let disk = self.disk.as_ref();
        let figures = Arc::new(Figures {
            taken: Instant::now(),
            snapshot,
            process: Process::now(),
            disk: disk.and_then(|name| Some((name.clone(), DiskUse::of(Path::new("/"), name)?))),
            started: self.started,
        });
        *last = Some(Last { figures: figures.clone(), sessions_max });
        figures
    }

    fn lock(&self) -> MutexGuard<'_, Option<Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Disk of a directory; memory, a network and a pool have none that could be named.
fn disk(served: &Path) -> Option<String> {
    let path = served.canonicalize().ok()?;
    let device = path.metadata().ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let storage = Storage::of(Path::new("/"), &path, major, minor);
    storage.device().map(|device| device.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::Policy,
        server::{Options, Server},
    };

    #[test]
    fn many_who_ask_at_once_get_one_look() {
        let root = tempfile::tempdir().unwrap();
        let server = Server::start(root.path(), Options::default(), Policy::default()).unwrap();
        let watch = Watch::new(server.observer(), root.path());
        let first = watch.figures(700);
        assert!(Arc::ptr_eq(&first, &watch.figures(1_000)));
        assert!(Arc::ptr_eq(&first, &watch.figures(0)));
        let more = watch.figures(2_000);
        assert!(!Arc::ptr_eq(&first, &more));
        assert!(Arc::ptr_eq(&more, &watch.figures(usize::MAX)));
        std::thread::sleep(FRESH);
        assert!(!Arc::ptr_eq(&more, &watch.figures(0)));
        assert!(first.process.resident_bytes > 0 && first.snapshot.loops_missing == 0);
    }
}
