//! List of the sessions that a server has open, in which a data connection finds its own.

use super::not_let_in::NotLetIn;
use crate::{
    Interrupt,
    digest::SessionKeys,
    locks::{Lock, lock, rank},
    session::{right_lost::RightLost, streams::Streams},
};
use haul_protocol::{StreamId, frame::Preface, limits::DATA_KEYS_BYTES, message::Fault};
use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::{Arc, atomic::Ordering, mpsc},
    time::Instant,
};

/// A session that is open, as other connections see it.
pub struct Entry {
    pub transfer: [u8; 16],
    pub token_id: String,
    pub keys: Arc<SessionKeys>,
    pub attach: mpsc::Sender<(StreamId, TcpStream)>,
    pub streams: Arc<Streams>,
    pub streams_granted: u64,
    pub interrupt: Interrupt,
    /// The reason why the token is good no more, once it is not.
    pub right_lost: RightLost,
    /// Whether the session is a probe and moves no files.
    pub is_probe: bool,
}

/// All sessions of a server, by their numbers.
pub struct Sessions {
    pub open: BTreeMap<[u8; 16], Entry>,
    pub ended_for_good: bool,
    pub cut_off_at: Option<Instant>,
    /// Keys that stand in for those of a session that is not there.
    nobodys: SessionKeys,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            ended_for_good: false,
            cut_off_at: None,
            nobodys: SessionKeys::from_bytes(&[0; DATA_KEYS_BYTES]),
        }
    }
}

impl Sessions {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Number of open sessions that are probes.
    pub fn probes(&self) -> usize {
        self.open.values().filter(|entry| entry.is_probe).count()
    }

    pub fn insert(&mut self, session: [u8; 16], entry: Entry) {
        self.open.insert(session, entry);
    }

    pub fn remove(&mut self, session: &[u8; 16]) -> Option<Entry> {
        self.open.remove(session)
    }

    pub fn interrupt_all(&self) {
        for entry in self.open.values() {
            entry.interrupt.store(true, Ordering::Relaxed);
            entry.streams.wake();
        }
    }

    /// Ends those of these sessions whose token is good no more: no stream of theirs moves another
    /// byte, whatever their clients do, and their threads tell the fault.
    pub fn end_without_right(
        &self,
        sessions: &[[u8; 16]],
        fault_of: impl Fn(&str) -> Option<Fault>,
    ) {
        for entry in sessions.iter().filter_map(|session| self.open.get(session)) {
            let Some(fault) = fault_of(&entry.token_id) else { continue };
            entry.right_lost.set(fault);
            if entry.is_probe {
                entry.interrupt.store(true, Ordering::Relaxed);
            }
            entry.streams.shut_all();
            entry.streams.wake();
        }
    }

    /// Gives a data connection to its session.
    ///
    /// A MAC is computed and compared whether or not there is such a session, so that the time
    /// until a stranger is turned away does not tell.
    pub fn attach(&self, preface: &Preface, socket: TcpStream) -> Result<(), NotLetIn> {
        let named = self.open.get(&preface.session);
        let keys = named.map_or(&self.nobodys, |entry| &*entry.keys);
        let is_signed = keys.verify_preface(preface);
        let entry = named.filter(|_| is_signed).ok_or(NotLetIn::UnknownStream)?;
        // Twice the agreed number: some may be about to end while others replace them.
        if !entry.streams.claim(preface.stream, entry.streams_granted * 2) {
            return Err(NotLetIn::StreamTooMany);
        }
        let _ = entry.attach.send((preface.stream, socket));
        entry.streams.wake();
        Ok(())
    }
}

/// A session's place in the list, which is given up however the session's thread ends.
///
/// A session that ends in order leaves by itself. One whose thread panics, as an event handler of
/// the program may, would stay: its transfer and its token would be taken for good, and its streams
/// would wait.
pub(super) struct Place<'a> {
    pub sessions: &'a Lock<Sessions, rank::Sessions>,
    pub session: [u8; 16],
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut sessions = lock(self.sessions);
        let Some(entry) = sessions.remove(&self.session) else { return };
        if !entry.is_probe {
            sessions.cut_off_at = Some(Instant::now());
        }
        drop(sessions);
        entry.streams.shut_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::waker::Waker;
    use haul_protocol::message::{FaultCode, Side};
    use std::net::TcpListener;

    const KEYS: [u8; DATA_KEYS_BYTES] = [7; DATA_KEYS_BYTES];

    fn entry(token_id: &str, is_probe: bool) -> (Entry, mpsc::Receiver<(StreamId, TcpStream)>) {
        let (attach, attached) = mpsc::channel();
        let entry = Entry {
            transfer: [1; 16],
            token_id: token_id.into(),
            keys: Arc::new(SessionKeys::from_bytes(&KEYS)),
            attach,
            streams: Streams::new(Waker::new().unwrap()),
            streams_granted: 1,
            interrupt: Interrupt::default(),
            right_lost: RightLost::default(),
            is_probe,
        };
        (entry, attached)
    }

    /// The keys that stand in for those of a session that is not there are known to all.
    #[test]
    fn a_preface_under_the_keys_that_stand_in_opens_nothing() {
        let mut sessions = Sessions::default();
        let (one, attached) = entry("one", false);
        sessions.insert([1; 16], one);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let standing_in = SessionKeys::from_bytes(&[0; DATA_KEYS_BYTES]);
        let own = SessionKeys::from_bytes(&KEYS);
        let id = StreamId(0);
        for session in [[1; 16], [2; 16], [0; 16]] {
            let refused = sessions.attach(&standing_in.sign_preface(id, session), connect());
            assert!(matches!(refused, Err(NotLetIn::UnknownStream)), "{session:?}");
        }
        let elsewhere = sessions.attach(&own.sign_preface(id, [2; 16]), connect());
        assert!(matches!(elsewhere, Err(NotLetIn::UnknownStream)));
        assert!(attached.try_recv().is_err());
        sessions.attach(&own.sign_preface(id, [1; 16]), connect()).unwrap();
        assert!(attached.try_recv().is_ok());
    }

    #[test]
    fn only_sessions_of_a_token_that_is_good_no_more_end() {
        let mut sessions = Sessions::default();
        for (number, token, is_probe) in [(1, "bad", false), (2, "bad", true), (3, "good", false)] {
            sessions.insert([number; 16], entry(token, is_probe).0);
        }
        let fault = Fault::new(FaultCode::TokenRevoked, Side::Unknown, "it was revoked");
        let fault_of = |token: &str| (token == "bad").then(|| fault.clone());
        // One that came since is looked at the next time.
        sessions.end_without_right(&[[2; 16], [3; 16], [9; 16]], fault_of);
        let ended = |number: u8| {
            let entry = &sessions.open[&[number; 16]];
            let is_interrupted = entry.interrupt.load(Ordering::Relaxed);
            (entry.right_lost.fault().cloned(), entry.streams.stopping(), is_interrupted)
        };
        assert_eq!(ended(1), (None, false, false));
        assert_eq!(ended(2), (Some(fault.clone()), true, true));
        assert_eq!(ended(3), (None, false, false));
        sessions.end_without_right(&[[1; 16]], fault_of);
        assert_eq!(ended(1), (Some(fault), true, false));
    }
}
