//! Rates of films by their containers, read by a thread of its own.
//!
//! A film's head and tail may have to come from a slow disk. A rate is remembered for as long as
//! the film is the same.

use std::{
    collections::HashMap,
    fs::File,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::snapshot::Mailbox;
use crate::{
    container,
    http::condition::Validators,
    pace::Rate,
    site::{Identity, OpenFile},
};

/// Most films whose rates are asked for and not found yet.
const QUESTIONS_MAX: usize = 1024;
/// Most films whose rates are remembered.
const KNOWN_MAX: usize = 100_000;

/// Answer to the question for a film's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Rate of the film; `None` where its container does not tell.
    Rate(Option<Rate>),
    /// The rate is not known yet: the connection that asked is told when it is.
    Later,
    /// The rate is not known, and as many films wait as may.
    TooMany,
}

/// Time for which a found rate holds, whatever the film: one that is being written is another at
/// each look.
const HOLDS: Duration = Duration::from_secs(1);

/// Rate of a film as it was, and when it was found.
#[derive(Debug)]
struct Found {
    validators: Validators,
    rate: Option<Rate>,
    at: Instant,
}

impl Found {
    fn is_of(&self, file: &OpenFile) -> bool {
        self.validators == file.validators || self.at.elapsed() < HOLDS
    }
}

type Book = HashMap<Identity, Found>;

/// Connections that wait for the rate of a film, each with the mailbox of its loop.
type Waiting = HashMap<Identity, Vec<(Mailbox, usize)>>;

pub(super) struct Rates {
    shared: Arc<Rooms>,
    questions: SyncSender<Question>,
}

/// Known rates, and connections that wait for others; whoever needs both takes `waiting` first.
#[derive(Default)]
struct Rooms {
    waiting: Mutex<Waiting>,
    known: Mutex<Book>,
}

impl Rooms {
    fn known(&self) -> MutexGuard<'_, Book> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Question {
    file: Arc<File>,
    len_bytes: u64,
    identity: Identity,
    validators: Validators,
}

impl Rates {
    /// Starts the thread that finds rates; it ends with the server.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start() -> io::Result<Self> {
        let shared = Arc::<Rooms>::default();
        let (questions, receiver) = sync_channel(QUESTIONS_MAX);
        let own = shared.clone();
        thread::Builder::new()
            .name("haul-media-rate".to_owned())
            .spawn(move || find_all(&receiver, &own))?;
        Ok(Self { shared, questions })
    }

    /// Gives the rate of a film; connection `key` of the mailbox's loop goes on when it is known.
    pub fn of(&self, file: &OpenFile, mailbox: &Mailbox, key: usize) -> Known {
        if let Some(found) = self.shared.known().get(&file.identity)
            && found.is_of(file)
        {
            return Known::Rate(found.rate);
        }
        let mut waiting = self.shared.waiting();
        // It may be known by now: who finds it tells those who wait afterwards.
        let is_known =
            self.shared.known().get(&file.identity).is_some_and(|found| found.is_of(file));
        if is_known {
            mailbox.tell_known(key);
            return Known::Later;
        }
        if let Some(others) = waiting.get_mut(&file.identity) {
            others.push((mailbox.clone(), key));
            return Known::Later;
        }
        let question = Question {
            file: file.file.clone(),
            len_bytes: file.len_bytes,
            identity: file.identity,
            validators: file.validators.clone(),
        };
        if self.questions.try_send(question).is_err() {
            return Known::TooMany;
        }
        waiting.insert(file.identity, vec![(mailbox.clone(), key)]);
        Known::Later
    }
}

fn find_all(questions: &Receiver<Question>, shared: &Rooms) {
    for question in questions {
        let Question { file, len_bytes, identity, validators } = question;
        let rate = container::average_rate(&file, len_bytes);
        let mut known = shared.known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(identity, Found { validators, rate, at: Instant::now() });
        drop(known);
        let waiters = shared.waiting().remove(&identity);
        for (mailbox, key) in waiters.into_iter().flatten() {
            mailbox.tell_known(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::{self, Site};
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn where_as_many_wait_as_may_one_more_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let site = Site::open(root.path()).unwrap();
        let [first, second] = ["a.mp4", "b.mp4"].map(|name| {
            std::fs::write(root.path().join(name), "film").unwrap();
            match site.find(format!("/{name}").as_bytes()) {
                site::Found::File(file) => file,
                other => panic!("{other:?}"),
            }
        });
        let mailbox = Mailbox::new(Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let (questions, asked) = sync_channel(1);
        let rates = Rates { shared: Arc::default(), questions };
        assert_eq!(rates.of(&first, &mailbox, 0), Known::Later);
        // Whoever wants the same film asks nothing more.
        assert_eq!(rates.of(&first, &mailbox, 1), Known::Later);
        assert_eq!(rates.of(&second, &mailbox, 2), Known::TooMany);
        let Rates { shared, questions } = rates;
        drop(questions);
        find_all(&asked, &shared);
        let rates = Rates { shared, questions: sync_channel(1).0 };
        assert_eq!(mailbox.take_known(), [0, 1]);
        assert!(rates.shared.waiting().is_empty());
        assert_eq!(rates.of(&first, &mailbox, 3), Known::Rate(None));
        // It is written to meanwhile, at each look.
        std::fs::write(root.path().join("a.mp4"), "a longer film").unwrap();
        let site::Found::File(longer) = site.find(b"/a.mp4") else { panic!("it is gone") };
        assert_ne!(longer.validators, first.validators);
        assert_eq!(rates.of(&longer, &mailbox, 4), Known::Rate(None));
        if let Some(found) = rates.shared.known().get_mut(&first.identity) {
            found.at -= HOLDS;
        }
        assert_eq!(rates.of(&first, &mailbox, 5), Known::Rate(None));
        assert_ne!(rates.of(&longer, &mailbox, 6), Known::Rate(None));
    }
}
