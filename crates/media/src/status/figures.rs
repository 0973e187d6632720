//! What is seen of a server and its process at one moment, taken anew at most twice a second,
//! however many ask.

use std::{
    os::linux::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use haul_host::{DiskUse, Storage};

use super::process::Process;
use crate::server::{Observer, Snapshot};

/// Whoever asks within this time gets the same figures.
const FRESH: Duration = Duration::from_millis(500);
/// Sessions are asked for by these numbers, so that few snapshots serve all.
const SESSIONS_STEPS: [usize; 3] = [0, 1_000, SESSIONS_MAX];
/// Of one answer.
pub const SESSIONS_MAX: usize = 10_000;

/// One moment.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub taken: Instant,
    pub snapshot: Snapshot,
    pub process: Process,
    /// The disk's name, and what it did for all of the machine.
    pub disk: Option<(String, DiskUse)>,
    /// When the watch began.
    pub started: SystemTime,
}

/// Looks at a running server for all that tell of it.
pub struct Watch {
    observer: Observer,
    /// Of the directory that is served, as in /sys/block.
    disk: Option<String>,
    started: SystemTime,
    last: Mutex<Option<Last>>,
}

struct Last {
    figures: Arc<Figures>,
    sessions_max: usize,
}

impl Watch {
    /// `served` is the directory that the server serves: its disk is watched.
    #[must_use]
    pub fn new(observer: Observer, served: &Path) -> Self {
        let started = SystemTime::now();
        Self { observer, disk: disk(served), started, last: Mutex::new(None) }
    }

    /// With at least so many sessions, as far as there are so many. While a loop is silent, what
    /// its streams had before counts on, so that no total ever shrinks.
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

/// Memory, a network and a pool have none that could be named.
fn disk(served: &Path) -> Option<String> {
    let path = served.canonicalize().ok()?;
    let device = path.metadata().ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let storage = Storage::of(Path::new("/"), &path, major, minor);
    storage.device().map(|device| device.name.clone())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        admission::{
            Door, Refusals, Why,
            capacity::{Resource, Share},
        },
        policy::Policy,
    };
    use crate::{
        server::{Options, Reads, Server, Session, State, Totals},
        slack::SlackHistogram,
    };
    use std::{net::IpAddr, time::UNIX_EPOCH};

    /// A server with some streams, two seconds and many bytes after another one.
    pub fn example(later: u32) -> Figures {
        let later = u64::from(later);
        let mut slack = SlackHistogram::default();
        for slack_ms in [-5_000, -50, 10, 2_700, 2_900, 20_000] {
            (0..=later).for_each(|_| slack.tell(slack_ms));
        }
        let totals = Totals {
            connections: 3,
            accepted: 7 + later,
            turned_away: 1,
            requests: 9 + later,
            sent_bytes: 1_000_000 * (1 + later),
            streams: 5,
            periods: 6 * (1 + later),
            misses: 2 * (1 + later),
            misses_here: 1,
            held_back: 1,
            refused: 3,
            rings_lost: 1,
        };
        let reads = Reads {
            waiting: 1,
            in_flight: 2,
            finished: 100,
            read_bytes: 100 << 20,
            late: 3,
            time: Duration::from_millis(2_500),
        };
        let disk = DiskUse {
            reads: 10,
            read_bytes: 5_000_000 * (1 + later),
            written_bytes: 0,
            busy: Duration::from_millis(500 * (1 + later)),
        };
        let process = Process {
            cpu: Duration::from_millis(300 * (1 + later)),
            open_files: 12,
            open_files_max: Some(1024),
            resident_bytes: 8 << 20,
        };
        Figures {
            taken: Instant::now() + Duration::from_secs(2 * later),
            snapshot: Snapshot {
                time: UNIX_EPOCH + Duration::from_secs(1_000_000 + 2 * later),
                up_time: Duration::from_secs(60 + 2 * later),
                totals,
                slack,
                reads,
                door: Door {
                    is_limited: true,
                    admitted: 5,
                    refused: refusals(),
                    streams: 4,
                    taken: Share { disk: 0.5, processors: 0.25, network: 0.0 },
                    limit: Share { disk: 0.75, processors: 0.9, network: 0.9 },
                    streams_max: Some(10),
                    is_shut: false,
                },
                sessions_count: 3,
                sessions: vec![session(1, 0.0, 0), session(2, 0.9, 4), session(3, 0.2, 4)],
                loops: 2,
                loops_missing: 0,
            },
            process,
            disk: Some(("nvme0n1".to_owned(), disk)),
            started: UNIX_EPOCH + Duration::from_millis(999_940_250),
        }
    }

    fn refusals() -> Refusals {
        let mut refusals = Refusals::default();
        for why in [Why::Full(Resource::Disk), Why::Full(Resource::Disk), Why::Late] {
            refusals.count(why);
        }
        refusals
    }

    pub fn session(id: u64, rebuffer_risk: f32, periods: u64) -> Session {
        Session {
            id,
            peer: IpAddr::from([192, 0, 2, 7]),
            target: "/<b>film</b>.mp4?rate=2M".to_owned(),
            user_agent: Some("VLC \"3\"\n".to_owned()),
            since: UNIX_EPOCH + Duration::from_secs(999_990),
            rate_bits_per_s: Some(2_000_000),
            state: State::Waiting,
            len_bytes: 4_000_000,
            sent_bytes: 1_000_000,
            periods,
            misses: 1,
            held_back: 0,
            slack: SlackHistogram::default(),
            slack_ms: (periods > 0).then_some(-20),
            buffer_s: 1.25,
            rebuffer_risk,
        }
    }

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
