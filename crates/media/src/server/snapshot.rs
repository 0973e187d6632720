//! Snapshot of what the server does at one moment.
//!
//! Each loop is asked for its part, and answers between two events. While nobody asks it costs
//! nothing.

use std::{
    net::IpAddr,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant, SystemTime},
};

use crate::{
    admission::Door,
    delivery::Reads,
    server::shared::{Shared, Totals},
    slack::SlackHistogram,
};

/// Time within which a loop answers, or its part is missing.
const PATIENCE: Duration = Duration::from_secs(2);

/// State of the server at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub time: SystemTime,
    pub up_time: Duration,
    pub totals: Totals,
    /// Slack of all periods of all streams since the start.
    pub slack: SlackHistogram,
    pub reads: Reads,
    pub door: Door,
    /// Number of answers of files that are under way.
    pub sessions_count: u64,
    /// The sessions, as many as were asked for.
    pub sessions: Vec<Session>,
    pub loops: usize,
    /// Loops that did not answer in time.
    pub loops_missing: usize,
}

/// An answer of a file that is under way.
#[derive(Clone, Debug)]
pub struct Session {
    /// Number of the answer, unlike that of any other since the start.
    pub id: u64,
    pub peer: IpAddr,
    /// The target as it came, with its query; a stranger wrote it.
    pub target: String,
    pub user_agent: Option<String>,
    pub since: SystemTime,
    /// Rate of the stream; `None` where it is sent as fast as it is taken.
    pub rate_bits_per_s: Option<u64>,
    pub state: State,
    /// Length of head and body.
    pub len_bytes: u64,
    pub sent_bytes: u64,
    pub periods: u64,
    pub misses: u64,
    pub held_back: u64,
    pub slack: SlackHistogram,
    /// Slack of the last period.
    pub slack_ms: Option<i64>,
    /// Film in the hand of the player, if it began to play with the first byte.
    pub buffer_s: f32,
    /// Probability, 0 to 1, that the player runs dry in the next period.
    pub rebuffer_risk: f32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The answer is sent whenever it is its turn.
    Sending,
    /// All that is released by now is sent.
    Waiting,
    /// The client takes no more.
    Blocked,
    /// The disk reads what comes next.
    Reading,
}

impl State {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Reading => "reading",
        }
    }
}

/// One loop's part of a snapshot.
#[derive(Debug, Default)]
pub(super) struct LoopPart {
    pub slack: SlackHistogram,
    pub reads: Reads,
    pub sessions_count: u64,
    pub sessions: Vec<Session>,
}

/// A question to a loop.
pub(super) struct Ask {
    pub sessions_max: usize,
    reply: Sender<LoopPart>,
}

impl Ask {
    pub fn answer(&self, part: LoopPart) {
        // Who asked may have lost patience.
        let _ = self.reply.send(part);
    }
}

/// Messages for a loop, from any thread.
#[derive(Clone)]
pub(super) struct Mailbox {
    pub wake: Arc<OwnedFd>,
    asks: Arc<Mutex<Vec<Ask>>>,
    /// Connections whose film's rate is known now.
    known: Arc<Mutex<Vec<usize>>>,
}

impl Mailbox {
    pub fn new(wake: Arc<OwnedFd>) -> Self {
        Self { wake, asks: Arc::default(), known: Arc::default() }
    }

    pub fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    pub fn take(&self) -> Vec<Ask> {
        std::mem::take(&mut *self.asks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn take_known(&self) -> Vec<usize> {
        std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn tell_known(&self, key: usize) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.wake();
    }

    fn ask(&self, sessions_max: usize) -> Receiver<LoopPart> {
        let (reply, receiver) = channel();
        let ask = Ask { sessions_max, reply };
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).push(ask);
        self.wake();
        receiver
    }
}

/// Looks at a running server from any thread.
#[derive(Clone)]
pub struct Observer {
    pub(super) shared: Arc<Shared>,
    pub(super) mailboxes: Vec<Mailbox>,
}

impl Observer {
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Asks all loops what they do, for at most `sessions_max` sessions.
    #[must_use]
    pub fn snapshot(&self, sessions_max: usize) -> Snapshot {
        let begun = Instant::now();
        let of_each = sessions_max.div_ceil(self.mailboxes.len().max(1));
        let asked: Vec<_> = self.mailboxes.iter().map(|one| one.ask(of_each)).collect();
        let mut snapshot = Snapshot {
            time: SystemTime::now(),
            up_time: self.shared.started.elapsed(),
            totals: self.totals(),
            slack: SlackHistogram::default(),
            reads: Reads::default(),
            door: self.shared.admission.door(begun),
            sessions_count: 0,
            sessions: Vec::new(),
            loops: self.mailboxes.len(),
            loops_missing: 0,
        };
        for receiver in asked {
            let Ok(part) = receiver.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) else {
                snapshot.loops_missing += 1;
                continue;
            };
            snapshot.slack.add(&part.slack);
            snapshot.reads.add(&part.reads);
            snapshot.sessions_count += part.sessions_count;
            snapshot.sessions.extend(part.sessions);
        }
        snapshot.sessions.truncate(sessions_max);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        policy::Policy,
        server::{Server, State, shared::Options},
    };
    use std::{
        fs,
        io::{Read, Write},
        net::TcpStream,
        time::Duration,
    };

    #[test]
    fn a_stream_under_way_is_seen_and_a_finished_one_is_not() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.mp4"), vec![0; 100_000]).unwrap();
        let server = Server::start(root.path(), Options::default(), Policy::default()).unwrap();
        let mut client = TcpStream::connect(server.local_addr()).unwrap();
        client
            .write_all(b"GET /a.mp4?rate=8k HTTP/1.1\r\nHost: h\r\nUser-Agent: u\r\n\r\n")
            .unwrap();
        assert!(client.read(&mut [0; 100]).unwrap() > 0);
        let snapshot = server.observer().snapshot(10);
        assert_eq!((snapshot.sessions_count, snapshot.loops_missing), (1, 0));
        let [session] = &snapshot.sessions[..] else { panic!("{snapshot:?}") };
        assert_eq!(session.target, "/a.mp4?rate=8k");
        assert_eq!(session.user_agent.as_deref(), Some("u"));
        assert_eq!((session.rate_bits_per_s, session.state), (Some(8_000), State::Waiting));
        assert!(session.sent_bytes == 9_000 && session.len_bytes > 100_000, "{session:?}");
        assert!(server.observer().snapshot(0).sessions.is_empty());
        drop(client);
        let is_gone = || server.observer().snapshot(10).sessions_count == 0;
        assert!((0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_gone()
        }));
    }
}
