//! Way of the data of a copy between two other machines through both of their ssh: by way of here.
//!
//! Frames of channels go on as they come, one at a time, and nothing else does: what one machine
//! says is never an order to the other. This process opens no session and knows no file; what
//! `--protection` leaves readable on a path can be read here.

use super::{
    channels::frames::{CREDIT, DATA, END, HEADER_BYTES, Header, OPEN, Outgoing, RESET, odd},
    frame::{self, FrameError},
    messages::Answer,
    ways::ProcessorUse,
};
use std::{
    io::{self, ErrorKind, Read},
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Both ssh, and what goes from one to the other.
#[derive(Debug)]
pub struct Bridge {
    to_source: Outgoing,
    to_target: Outgoing,
    /// Both ssh on this host.
    busy: ProcessorUse,
    /// The reason why the target takes no more, once it does not.
    over: Mutex<Option<String>>,
    /// Begin of a frame that the target has not taken yet.
    held_since: Mutex<Option<Instant>>,
}

/// A word of the machine that sends which is not for the target.
pub type Word = Result<Answer, FrameError>;

impl Bridge {
    /// A bridge between the standard inputs of two ssh.
    #[must_use]
    pub fn new(to_source: OwnedFd, to_target: OwnedFd, processes: [u32; 2]) -> Self {
        Self {
            to_source: Outgoing::new(to_source),
            to_target: Outgoing::new(to_target),
            busy: ProcessorUse::begin(processes.to_vec()),
            over: Mutex::default(),
            held_since: Mutex::default(),
        }
    }

    /// The way to the machine that sends.
    #[must_use]
    pub fn to_source(&self) -> &Outgoing {
        &self.to_source
    }

    /// The way to the target.
    #[must_use]
    pub fn to_target(&self) -> &Outgoing {
        &self.to_target
    }

    /// The reason why the target takes no more; `None` while it does.
    #[must_use]
    pub fn over(&self) -> Option<String> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Time for which the target has not taken a frame: behind it stand the words of the machine
    /// that sends, so that it cannot say itself that it stalls.
    #[must_use]
    pub fn held_for(&self) -> Duration {
        let since = *self.held_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn hold(&self, since: Option<Instant>) {
        *self.held_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Carries what the target says to the machine that sends, which sees an end when it ends.
    pub fn carry_from_target(&self, input: &mut dyn Read) {
        let mut frame = Vec::new();
        let error = loop {
            let carried = read_frame(input, &mut frame).and_then(|header| match header.kind {
                OPEN => Err(odd("an opened channel, which only a client may open".into())),
                _ => self.to_source.say(&frame, &[]),
            });
            if let Err(error) = carried {
                break error;
            }
        };
        self.end(&error);
    }

    /// Carries what the machine that sends says to the target, until it ends. What is not for the
    /// target is told; `false` says that nobody hears any more.
    pub fn carry_from_source(&self, input: &mut dyn Read, tell: &mut dyn FnMut(Word) -> bool) {
        let mut frame = Vec::new();
        loop {
            let mut first = [0];
            let word = match input.read_exact(&mut first) {
                Err(_) => Some(Err(FrameError::Ended)),
                Ok(()) if first[0] == frame::FIRST => {
                    Some(frame::read(&mut first.chain(&mut *input), 0, &mut Vec::new()))
                }
                Ok(()) => match read_behind(first[0], input, &mut frame) {
                    Ok(_) => {
                        // A target that is gone is told by the push that misses it.
                        self.hold(Some(Instant::now()));
                        let said = self.to_target.say(&frame, &[]);
                        self.hold(None);
                        said.err().iter().for_each(|error| self.end(error));
                        None
                    }
                    Err(error) if error.kind() == ErrorKind::InvalidData => {
                        Some(Err(FrameError::Damaged(error.to_string())))
                    }
                    Err(_) => Some(Err(FrameError::Ended)),
                },
            };
            let is_last = matches!(word, Some(Err(_)));
            if word.is_some_and(|word| !tell(word)) || is_last {
                return;
            }
        }
    }

    fn end(&self, error: &io::Error) {
        let why = match error.kind() {
            ErrorKind::InvalidData => format!("it sent {error}"),
            _ => "it, or haul there, said no more".to_owned(),
        };
        self.over.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.to_source.close();
    }

    /// Says how much of a processor both ssh have used here; `None` where they used none.
    #[must_use]
    pub fn costs_in_words(&self) -> Option<String> {
        self.busy.in_words().map(|share| format!("both ssh here used {share}"))
    }
}

/// Reads a whole frame of channels.
fn read_frame(input: &mut dyn Read, frame: &mut Vec<u8>) -> io::Result<Header> {
    let mut first = [0];
    input.read_exact(&mut first)?;
    read_behind(first[0], input, frame)
}

/// Reads what follows the first byte of a frame of channels, and gives the whole of it.
fn read_behind(kind: u8, input: &mut dyn Read, frame: &mut Vec<u8>) -> io::Result<Header> {
    if ![OPEN, DATA, CREDIT, END, RESET].contains(&kind) {
        return Err(odd(format!("a frame of kind {kind}")));
    }
    let header = Header::read_behind(kind, input)?;
    frame.clear();
    frame.extend_from_slice(&header.bytes());
    frame.resize(HEADER_BYTES + header.data_bytes(), 0);
    input.read_exact(&mut frame[HEADER_BYTES..])?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{
        frame::THROUGH,
        messages::{Order, PushEnded},
    };
    use std::io::PipeReader;

    /// A bridge, and what comes out at the source and at the target.
    fn bridge() -> (Bridge, PipeReader, PipeReader) {
        let (source, to_source) = io::pipe().unwrap();
        let (target, to_target) = io::pipe().unwrap();
        (Bridge::new(to_source.into(), to_target.into(), [0, 0]), source, target)
    }

    fn frame_of(kind: u8, value: u32, data: &[u8]) -> Vec<u8> {
        [&Header { kind, number: 7, value }.bytes()[..], data].concat()
    }

    fn message(message: &impl serde::Serialize) -> Vec<u8> {
        frame::bytes(message).unwrap()
    }

    fn rest(mut of: PipeReader) -> Vec<u8> {
        let mut bytes = Vec::new();
        of.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn frames_go_on_as_they_are_and_messages_between_them_stay_here() {
        let (bridge, source, target) = bridge();
        let (open, data) = (frame_of(OPEN, 0, b""), frame_of(DATA, 3, b"a\xff."));
        let ended = message(&Answer::Ended(Box::new(PushEnded::Interrupted)));
        let said = [&open[..], &ended, &data, &frame_of(END, 0, b"")].concat();
        let mut told = Vec::new();
        bridge.carry_from_source(&mut &said[..], &mut |word| {
            told.push(word);
            true
        });
        assert!(matches!(told[..], [Ok(Answer::Ended(_)), Err(FrameError::Ended)]), "{told:?}");
        let back = [frame_of(CREDIT, 3, b""), frame_of(DATA, 1, b"x")].concat();
        bridge.carry_from_target(&mut &back[..]);
        assert!(bridge.over().unwrap().contains("no more"));
        drop(bridge);
        assert_eq!(rest(target), [open, data, frame_of(END, 0, b"")].concat());
        assert_eq!(rest(source), back);
    }

    /// Either machine may be of an enemy: it must not speak to the other in the name of this one.
    #[test]
    fn neither_machine_gives_the_other_an_order() {
        let order = message(&Order::Channels);
        for said in [&order[..], &[THROUGH], b"hello, there", &frame_of(OPEN, 0, b"")] {
            let (bridge, source, _target) = bridge();
            bridge.carry_from_target(&mut &[said, &frame_of(END, 0, b"")].concat()[..]);
            assert!(bridge.over().unwrap().starts_with("it sent"), "{bridge:?}");
            // The source sees the end at once.
            assert_eq!(rest(source), b"");
        }
        for said in [&[THROUGH][..], b"hello, there", &frame_of(DATA, u32::MAX, b"")] {
            let (bridge, _source, target) = bridge();
            let mut told = Vec::new();
            bridge.carry_from_source(&mut &said[..], &mut |word| {
                told.push(word);
                true
            });
            assert!(matches!(told[..], [Err(FrameError::Damaged(_))]), "{told:?}");
            drop(bridge);
            assert_eq!(rest(target), b"");
        }
        // One that is an order to the target is no answer to us, and goes no further.
        let (bridge, _source, target) = bridge();
        bridge.carry_from_source(&mut &order[..], &mut |word| word.is_ok());
        drop(bridge);
        assert_eq!(rest(target), b"");
    }

    #[test]
    fn a_target_that_takes_nothing_is_noticed_and_one_that_takes_late_is_not_any_more() {
        let (bridge, _source, mut target) = bridge();
        assert_eq!(bridge.held_for(), Duration::ZERO);
        let said: Vec<u8> = (0..3).flat_map(|_| frame_of(DATA, 40_000, &[0; 40_000])).collect();
        std::thread::scope(|scope| {
            let carrier = scope.spawn(|| bridge.carry_from_source(&mut &said[..], &mut |_| true));
            let begun = Instant::now();
            while bridge.held_for() < Duration::from_millis(50) {
                assert!(begun.elapsed() < Duration::from_secs(60), "the pipe took all of it");
                std::thread::sleep(Duration::from_millis(1));
            }
            target.read_exact(&mut vec![0; said.len()]).unwrap();
            carrier.join().unwrap();
        });
        assert_eq!(bridge.held_for(), Duration::ZERO);
    }

    #[test]
    fn the_source_is_heard_out_when_the_target_is_gone() {
        let (bridge, mut source, target) = bridge();
        drop(target);
        let ended = message(&Answer::Ended(Box::new(PushEnded::Interrupted)));
        let said = [frame_of(DATA, 1, b"x"), frame_of(DATA, 1, b"y"), ended].concat();
        let mut words = 0;
        bridge.carry_from_source(&mut &said[..], &mut |word| {
            words += u32::from(word.is_ok());
            true
        });
        assert_eq!(words, 1);
        assert!(bridge.over().is_some());
        assert_eq!(source.read(&mut [0]).unwrap(), 0, "the source sees the end");
        assert!(bridge.to_source().say(b"x", b"").is_err());
    }
}
