//! Loop of a session's thread on either side, and the trait of the role that it drives.

use super::listening::{Listening, Next};
use crate::{
    Interrupt,
    events::Event,
    storage::waited_for::{self, Held},
    transport::{
        control::{Control, ControlError},
        waker::Waker,
    },
};
use haul_protocol::{
    Message, ProtocolError,
    message::{self, Fault},
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// The longest sleep of a session's thread.
const TURN: Duration = Duration::from_millis(100);
/// The most files under way that are looked at to find one to name.
pub(super) const LOOKED_AT_MAX: usize = 64;
const GOODBYE: Duration = Duration::from_secs(2);

/// Ways in which a session ends.
#[derive(Clone, Debug)]
pub enum SessionEnd {
    /// Every file is settled and both sides have reported.
    Finished,
    /// One side ended the session with a reason.
    Refused(Fault),
    /// The connection was lost; another may go on.
    Lost(String),
    Interrupted,
}

/// One direction of a transfer, on one side of it.
pub trait Role {
    /// Handles a message of the peer.
    ///
    /// # Errors
    /// If the peer broke the protocol.
    fn handle(&mut self, message: Message) -> Result<(), ProtocolError>;
    /// Does what has come up: offers, events, streams, progress.
    ///
    /// # Errors
    /// A fault that ends the session.
    fn pump(&mut self, now: Instant) -> Result<Pumped, Fault>;
    fn poll_message(&mut self) -> Option<Message>;
    /// Takes the time when the peer last said anything.
    fn heard(&mut self, _at: Instant) {}
    /// Whether the other side still waits for what this one says at the end.
    fn has_last_word(&self) -> bool;
    /// Bytes that the role's streams have moved so far: sent and acknowledged, or received.
    fn moved_bytes(&self) -> u64 {
        0
    }
    /// Whether this session holds what another session waits for.
    fn holds(&self, _held: &Held) -> bool {
        false
    }
    /// Prepares an orderly end that the user wants: whether there will be one, so that the loop
    /// goes on until then.
    fn ends_in_order(&mut self, _now: Instant) -> bool {
        false
    }
}

#[derive(Clone, Debug)]
pub enum Pumped {
    GoOn,
    Ended(SessionEnd),
}

/// Runs a role over a control connection until the session ends; it is lost when nothing was heard
/// for `lost_after`.
pub fn drive(
    control: &mut Control,
    role: &mut dyn Role,
    waker: &Waker,
    interrupt: &Interrupt,
    lost_after: Duration,
) -> SessionEnd {
    let mut listening = Listening::new(lost_after, Instant::now());
    loop {
        let now = Instant::now();
        role.heard(control.heard_at);
        let pumped = role.pump(now);
        while let Some(message) = role.poll_message() {
            control.queue(message);
        }
        match pumped {
            Ok(Pumped::GoOn) => {}
            Ok(Pumped::Ended(end)) => {
                // Who has heard the other's last word has none of his own that matters.
                let is_heard = matches!(end, SessionEnd::Finished) && !role.has_last_word();
                let patience = if is_heard { Duration::ZERO } else { GOODBYE };
                control.close(patience);
                return end;
            }
            Err(fault) => return refuse(control, fault),
        }
        if interrupt.load(Ordering::Relaxed) && !role.ends_in_order(now) {
            control.close(GOODBYE);
            return SessionEnd::Interrupted;
        }
        let is_doubted = listening.is_doubted(control.heard_at);
        let is_waited_for = waited_for::is_waited_for(is_doubted, |held| role.holds(held));
        let waited_for = is_waited_for.then(|| role.moved_bytes());
        match listening.look(now, control.heard_at, waited_for) {
            Next::Nothing => {}
            Next::Ping => control.queue(Message::Ping(message::Ping { number: 0 })),
            Next::GiveUp(why) => return SessionEnd::Lost(why),
        }
        let messages = match control.turn(TURN, Some(waker)) {
            Ok(messages) => messages,
            Err(ControlError::Protocol(error)) => return refuse(control, error.to_fault()),
            Err(error) => return SessionEnd::Lost(error.to_string()),
        };
        for message in messages {
            let handled = match message {
                Message::Ping(ping) => {
                    control.queue(Message::Pong(ping));
                    Ok(())
                }
                Message::Pong(_) => Ok(()),
                message => role.handle(message),
            };
            if let Err(error) = handled {
                return refuse(control, error.to_fault());
            }
        }
    }
}

fn refuse(control: &mut Control, fault: Fault) -> SessionEnd {
    control.queue(Message::Refused(fault.clone()));
    control.close(GOODBYE);
    SessionEnd::Refused(fault)
}

/// Receiver of a role's events: the client's user, or the server's log.
pub type EventSink<'a> = &'a mut dyn FnMut(Event);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        state::StateDirectory,
        storage::waited_for::Waiting,
        transport::tls::{client_config, server_config},
    };
    use haul_protocol::message::{FaultCode, Notice, OffersEnd, Ping, Side};
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        thread,
    };

    /// Makes both ends of a control connection, whose handshake is over, and a second handle of the
    /// peer's socket.
    fn pair() -> (Control, Control, TcpStream) {
        let state = tempfile::tempdir().unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(state.path(), private).unwrap();
        let identity = StateDirectory::open(state.path()).unwrap().identity().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let raw = client.try_clone().unwrap();
        let name = rustls::pki_types::ServerName::try_from("haul").unwrap();
        let config = client_config(identity.fingerprint()).unwrap();
        let of_client = rustls::ClientConnection::new(config, name).unwrap();
        let of_server = rustls::ServerConnection::new(server_config(&identity).unwrap()).unwrap();
        let mut client = Control::new(client, of_client.into()).unwrap();
        let mut server = Control::new(server, of_server.into()).unwrap();
        let a_moment = Duration::from_millis(2);
        for _ in 0..8 {
            assert!(client.turn(a_moment, None).unwrap().is_empty());
            assert!(server.turn(a_moment, None).unwrap().is_empty());
        }
        (server, client, raw)
    }

    /// A role that does as a test says.
    #[derive(Default)]
    struct Scripted {
        /// Outcomes of the turns, the last first; where there is none left it goes on.
        pumps: Vec<Result<Pumped, Fault>>,
        says: Vec<Message>,
        handled: Vec<Message>,
        refuses: bool,
        has_last_word: bool,
        /// Number of turns for which it goes on when its user wants an end.
        turns_left: Option<usize>,
        holds: bool,
    }

    impl Role for Scripted {
        fn handle(&mut self, message: Message) -> Result<(), ProtocolError> {
            self.handled.push(message);
            if self.refuses {
                return Err(ProtocolError::new("not now"));
            }
            self.pumps.push(Ok(Pumped::Ended(SessionEnd::Finished)));
            Ok(())
        }

        fn pump(&mut self, _now: Instant) -> Result<Pumped, Fault> {
            self.pumps.pop().unwrap_or(Ok(Pumped::GoOn))
        }

        fn poll_message(&mut self) -> Option<Message> {
            self.says.pop()
        }

        fn has_last_word(&self) -> bool {
            self.has_last_word
        }

        fn holds(&self, _held: &Held) -> bool {
            self.holds
        }

        fn ends_in_order(&mut self, _now: Instant) -> bool {
            let left = self.turns_left.as_mut().filter(|left| **left > 0);
            left.is_some_and(|left| {
                *left -= 1;
                true
            })
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    /// Drives a role while the peer says something and hears what comes, and gives that.
    fn driven(
        role: &mut Scripted,
        interrupted: bool,
        lost_after: Duration,
        peer_says: Vec<Message>,
    ) -> (SessionEnd, Vec<Message>) {
        let (mut ours, mut theirs, _raw) = pair();
        let peer = thread::spawn(move || {
            peer_says.into_iter().for_each(|message| theirs.queue(message));
            let mut heard = Vec::new();
            while let Ok(messages) = theirs.turn(Duration::from_millis(20), None) {
                heard.extend(messages);
            }
            heard
        });
        let (waker, interrupt) = (Waker::new().unwrap(), Interrupt::default());
        interrupt.store(interrupted, Ordering::Relaxed);
        let end = drive(&mut ours, role, &waker, &interrupt, lost_after);
        drop(ours);
        (end, peer.join().unwrap())
    }

    fn fault() -> Fault {
        Fault::new(FaultCode::IoFailed, Side::Target, "it failed")
    }

    fn offers_end() -> Message {
        Message::OffersEnd(OffersEnd::default())
    }

    #[test]
    fn messages_go_to_the_role_but_signs_of_life_which_are_answered() {
        let mut role =
            Scripted { says: vec![Message::Notice(Notice::default())], ..Default::default() };
        let ping = |number| Message::Ping(Ping { number });
        let pong = |number| Message::Pong(Ping { number });
        let (end, heard) = driven(&mut role, false, LONG, vec![ping(5), pong(6), offers_end()]);
        assert!(matches!(end, SessionEnd::Finished), "{end:?}");
        assert_eq!(role.handled, [offers_end()]);
        assert_eq!(heard, [Message::Notice(Notice::default()), pong(5)]);
    }

    #[test]
    fn a_fault_of_either_side_is_told_and_ends_the_session() {
        let mut role = Scripted { pumps: vec![Err(fault())], ..Default::default() };
        let (end, heard) = driven(&mut role, false, LONG, Vec::new());
        assert!(matches!(end, SessionEnd::Refused(why) if why == fault()));
        assert_eq!(heard, [Message::Refused(fault())]);
        let mut role = Scripted { refuses: true, ..Default::default() };
        let (end, heard) = driven(&mut role, false, LONG, vec![offers_end()]);
        assert!(matches!(end, SessionEnd::Refused(_)), "{end:?}");
        assert!(matches!(&heard[..], [Message::Refused(_)]), "{heard:?}");
    }

    #[test]
    fn a_session_whose_user_has_enough_ends_at_once_or_in_order() {
        let mut role = Scripted::default();
        let (end, _) = driven(&mut role, true, LONG, Vec::new());
        assert!(matches!(end, SessionEnd::Interrupted), "{end:?}");
        let mut role = Scripted { turns_left: Some(3), ..Default::default() };
        let (end, _) = driven(&mut role, true, LONG, Vec::new());
        assert!(matches!(end, SessionEnd::Interrupted) && role.turns_left == Some(0), "{end:?}");
        let mut role = Scripted { turns_left: Some(1000), ..Default::default() };
        let (end, _) = driven(&mut role, true, LONG, vec![offers_end()]);
        assert!(matches!(end, SessionEnd::Finished), "{end:?}");
    }

    #[test]
    fn only_who_may_have_words_left_to_be_heard_waits_at_the_end() {
        let finished = || Ok(Pumped::Ended(SessionEnd::Finished));
        let lost = || Ok(Pumped::Ended(SessionEnd::Lost("it is".into())));
        for (end, has_last_word, waits) in
            [(finished(), false, false), (finished(), true, true), (lost(), false, true)]
        {
            let (mut ours, theirs, _raw) = pair();
            let waker = Waker::new().unwrap();
            // Nobody reads the goodbye, or closes.
            let mut role = Scripted { pumps: vec![end], has_last_word, ..Default::default() };
            let begun = Instant::now();
            drive(&mut ours, &mut role, &waker, &Interrupt::default(), LONG);
            let has_waited = begun.elapsed() > Duration::from_millis(200);
            assert_eq!(has_waited, waits, "{:?}", begun.elapsed());
            drop(theirs);
        }
    }

    #[test]
    fn a_silent_peer_is_asked_and_given_up() {
        let (mut ours, mut theirs, _raw) = pair();
        let peer = thread::spawn(move || {
            let mut heard = Vec::new();
            for _ in 0..40 {
                heard.extend(theirs.turn(Duration::from_millis(10), None).unwrap_or_default());
            }
            (heard, theirs)
        });
        let waker = Waker::new().unwrap();
        let (mut role, lost_after) = (Scripted::default(), Duration::from_millis(900));
        let begun = Instant::now();
        let end = drive(&mut ours, &mut role, &waker, &Interrupt::default(), lost_after);
        assert!(matches!(end, SessionEnd::Lost(_)) && begun.elapsed() >= lost_after, "{end:?}");
        // Asked after half of that time; by then the peer's own may be over.
        let (heard, _theirs) = peer.join().unwrap();
        assert!(heard.iter().all(|it| matches!(it, Message::Ping(_))), "{heard:?}");
    }

    #[test]
    fn a_peer_that_holds_what_another_waits_for_is_asked_at_once() {
        let inode = (u64::from(std::process::id()), 0xfeed);
        let _waiting = Waiting::new(Held::File(inode.0, inode.1));
        for holds in [true, false] {
            let mut role = Scripted { holds, ..Default::default() };
            let (end, heard) = driven(&mut role, false, Duration::from_secs(1), Vec::new());
            // A peer that answers pings by nothing is lost; who is waited for asks sooner.
            assert!(matches!(end, SessionEnd::Lost(_)), "{end:?}");
            let pings = heard.iter().filter(|it| matches!(it, Message::Ping(_))).count();
            assert_eq!(pings > 1, holds, "{heard:?}");
        }
    }

    #[test]
    fn a_connection_that_ends_is_lost_and_one_that_says_what_may_not_be_is_refused() {
        let (mut ours, theirs, _raw) = pair();
        let waker = Waker::new().unwrap();
        drop((theirs, _raw));
        let mut role = Scripted::default();
        let end = drive(&mut ours, &mut role, &waker, &Interrupt::default(), LONG);
        assert!(matches!(end, SessionEnd::Lost(_)), "{end:?}");
        let (mut ours, _theirs, mut raw) = pair();
        raw.write_all(b"this is no TLS record at all, and never was").unwrap();
        let end = drive(&mut ours, &mut role, &waker, &Interrupt::default(), LONG);
        assert!(matches!(end, SessionEnd::Lost(_)), "{end:?}");
        assert!(role.handled.is_empty());
    }

    #[test]
    fn a_role_need_not_hold_or_move_anything() {
        struct Plain;
        impl Role for Plain {
            fn handle(&mut self, _message: Message) -> Result<(), ProtocolError> {
                Ok(())
            }
            fn pump(&mut self, _now: Instant) -> Result<Pumped, Fault> {
                Ok(Pumped::GoOn)
            }
            fn poll_message(&mut self) -> Option<Message> {
                None
            }
            fn has_last_word(&self) -> bool {
                false
            }
        }
        assert_eq!(Plain.moved_bytes(), 0);
        assert!(!Plain.holds(&Held::File(1, 1)) && !Plain.ends_in_order(Instant::now()));
    }
}
