//! Rates of films by their containers: read by a thread of its own, as a film's head and tail may
//! have to come from a slow disk, and remembered for as long as the film is the same.

use std::{
    collections::HashMap,
    fs::File,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use super::snapshot::Mailbox;
use crate::{
    container,
    http::condition::Validators,
    pace::Rate,
    site::{Identity, OpenFile},
};

/// Films that wait; one more is sent as fast as it is taken.
const QUESTIONS_MAX: usize = 1024;
/// Films that are remembered.
const KNOWN_MAX: usize = 100_000;

/// What is known of a film's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// `None` where its container does not tell.
    Rate(Option<Rate>),
    /// Who asked is told when it is known.
    Later,
}

/// Of a film as it was, its rate.
type Book = HashMap<Identity, (Validators, Option<Rate>)>;

pub(super) struct Rates {
    known: Arc<Mutex<Book>>,
    questions: SyncSender<Question>,
}

struct Question {
    file: Arc<File>,
    len_bytes: u64,
    identity: Identity,
    validators: Validators,
    /// Who waits for it.
    mailbox: Mailbox,
    key: usize,
}

impl Rates {
    /// The thread ends with the server.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start() -> io::Result<Self> {
        let known = Arc::<Mutex<Book>>::default();
        let (questions, receiver) = sync_channel(QUESTIONS_MAX);
        let own = known.clone();
        thread::Builder::new()
            .name("haul-media-rate".to_owned())
            .spawn(move || find_all(&receiver, &own))?;
        Ok(Self { known, questions })
    }

    /// The connection `key` of the mailbox's loop goes on when it is known.
    pub fn of(&self, file: &OpenFile, mailbox: &Mailbox, key: usize) -> Known {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((validators, rate)) = known.get(&file.identity)
            && *validators == file.validators
        {
            return Known::Rate(*rate);
        }
        drop(known);
        let question = Question {
            file: file.file.clone(),
            len_bytes: file.len_bytes,
            identity: file.identity,
            validators: file.validators.clone(),
            mailbox: mailbox.clone(),
            key,
        };
        match self.questions.try_send(question) {
            Ok(()) => Known::Later,
            Err(_) => Known::Rate(None),
        }
    }
}

fn find_all(questions: &Receiver<Question>, known: &Mutex<Book>) {
    for question in questions {
        let Question { file, len_bytes, identity, validators, mailbox, key } = question;
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = lock().get(&identity).is_none_or(|(known, _)| *known != validators);
        if is_new {
            let rate = container::average_rate(&file, len_bytes);
            let mut known = lock();
            if known.len() >= KNOWN_MAX {
                known.clear();
            }
            known.insert(identity, (validators, rate));
        }
        mailbox.tell_known(key);
    }
}
