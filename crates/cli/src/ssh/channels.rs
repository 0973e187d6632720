//! Connections that go through ssh itself: channels within its standard input and output.
//!
//! It is the last way, for where no port of either machine can be reached. Each connection of the
//! client ends in this process, by a socket of loopback, and its bytes go on as frames; the other
//! end gives them to its server in the same way. A channel has a credit, so that one whose reader
//! is slow holds up no other, and neither end keeps more than the credits it has given.
//!
//! A frame has 9 bytes in front: a kind, the channel's number, and a length or a credit, each with
//! its highest byte first. Behind [`DATA`] follow as many bytes.

pub mod frames;

use super::frame::THROUGH;
use frames::{CREDIT, DATA, DATA_BYTES_MAX, END, Header, OPEN, Outgoing, RESET, odd};
use haul_transfer::Inlet;
use std::{
    collections::{HashMap, VecDeque},
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

/// Bytes of a channel that may be under way. ssh itself has no more than 2 MiB of all of them.
const CREDIT_BYTES: u32 = 1 << 20;
/// Most channels at a time: the streams of a session, what it replaces them by, and its control.
const CHANNELS_MAX: usize = 64;
/// Stack of a channel's threads; their buffers are on the heap.
const STACK_BYTES: usize = 128 << 10;

/// All channels of one end.
pub struct Channels {
    outgoing: Arc<Outgoing>,
    open: Mutex<HashMap<u32, Arc<Channel>>>,
    next: AtomicU32,
    carried_bytes: AtomicU64,
    /// The reason why there are none any more.
    over: Mutex<Option<String>>,
}

impl std::fmt::Debug for Channels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channels({:?})", self.over)
    }
}

/// How the other end went.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other end said that it is through.
    Through,
    /// The other end's output ended.
    Gone,
    /// The other end said something that no end may say.
    Violated(String),
}

#[derive(Debug)]
struct Channel {
    number: u32,
    socket: TcpStream,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that may be sent still.
    may_send: u32,
    /// Bytes that came and are not written yet.
    come: VecDeque<Vec<u8>>,
    come_bytes: usize,
    /// No more comes.
    has_ended: bool,
    /// Nothing goes or comes any more.
    is_reset: bool,
    /// Directions that are done.
    done: u8,
}

impl Channels {
    /// Channels whose frames go to `writer`.
    #[must_use]
    pub fn new(writer: OwnedFd) -> Arc<Self> {
        Self::beside(Arc::new(Outgoing::new(writer)))
    }

    /// Channels whose frames go where others write, too.
    #[must_use]
    pub fn beside(outgoing: Arc<Outgoing>) -> Arc<Self> {
        Arc::new(Self {
            outgoing,
            open: Mutex::default(),
            next: AtomicU32::new(1),
            carried_bytes: AtomicU64::new(0),
            over: Mutex::default(),
        })
    }

    /// Bytes that have gone and come by all channels.
    #[must_use]
    pub fn carried_bytes(&self) -> u64 {
        self.carried_bytes.load(Ordering::Relaxed)
    }

    /// The reason why there are no channels any more; `None` while there are.
    #[must_use]
    pub fn over(&self) -> Option<String> {
        lock(&self.over).clone()
    }

    /// Opens a channel, and gives the socket whose bytes it carries.
    ///
    /// # Errors
    /// If there is no way any more, or no socket or thread can be had.
    pub fn connect(self: &Arc<Self>) -> io::Result<TcpStream> {
        let (near, relayed) = pair()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let channel = self.add(number, relayed)?;
        // Its thread says that it is open: ssh may take nothing now, and nobody waits for that.
        self.run(&channel, true)?;
        Ok(near)
    }

    /// Reads what the other end says until it ends. With `inlet` its channels are connections to
    /// that server; without, it may open none.
    pub fn read_from(self: &Arc<Self>, input: &mut dyn Read, inlet: Option<&Inlet>) -> Ended {
        let ended = loop {
            match self.read_frame(input, inlet) {
                Ok(None) => {}
                Ok(Some(ended)) => break ended,
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    break Ended::Violated(error.to_string());
                }
                Err(_) => break Ended::Gone,
            }
        };
        let why = match &ended {
            Ended::Through => "the other side is through".to_owned(),
            Ended::Gone => "ssh has ended".to_owned(),
            Ended::Violated(what) => format!("the other side of ssh sent {what}"),
        };
        self.end(why);
        ended
    }

    /// Ends all channels.
    pub fn end(&self, why: String) {
        lock(&self.over).get_or_insert(why);
        let open: Vec<Arc<Channel>> =
            lock(&self.open).drain().map(|(_, channel)| channel).collect();
        open.iter().for_each(|channel| channel.reset());
    }

    /// Says that all is done, unless the writer is held up by what nobody reads.
    ///
    /// # Errors
    /// If it cannot be said.
    pub fn say_through(&self) -> io::Result<()> {
        self.outgoing.say_through()
    }

    fn read_frame(
        self: &Arc<Self>,
        input: &mut dyn Read,
        inlet: Option<&Inlet>,
    ) -> io::Result<Option<Ended>> {
        let mut kind = [0];
        input.read_exact(&mut kind)?;
        if kind[0] == THROUGH {
            return Ok(Some(Ended::Through));
        }
        let header = Header::read_behind(kind[0], input)?;
        let Header { kind, number, value } = header;
        let channel = lock(&self.open).get(&number).cloned();
        match (kind, channel) {
            (OPEN, None) => match inlet {
                Some(inlet) => self.accept(number, inlet),
                None => return Err(odd("an opened channel, which only a client may open".into())),
            },
            (DATA, channel) => {
                let mut bytes = vec![0; header.data_bytes()];
                input.read_exact(&mut bytes)?;
                self.carried_bytes.fetch_add(u64::from(value), Ordering::Relaxed);
                // One that has gone here may have been under way there.
                let is_within = channel.is_none_or(|channel| channel.take(bytes));
                if !is_within {
                    return Err(odd("more bytes than a channel has credit for".into()));
                }
            }
            (CREDIT, Some(channel)) => channel.change(|state| {
                state.may_send = state.may_send.saturating_add(value).min(CREDIT_BYTES);
            }),
            (END, Some(channel)) => channel.change(|state| state.has_ended = true),
            (RESET, Some(channel)) => channel.reset(),
            (CREDIT | END | RESET, None) => {}
            (kind, _) => return Err(odd(format!("a frame of kind {kind}"))),
        }
        Ok(None)
    }

    /// Takes a channel that the other end has opened. One for which there is no room is reset, and
    /// the client makes another later.
    fn accept(self: &Arc<Self>, number: u32, inlet: &Inlet) {
        let taken = pair().and_then(|(for_server, relayed)| {
            let channel = self.add(number, relayed)?;
            inlet.give(for_server)?;
            self.run(&channel, false)
        });
        if taken.is_err() {
            self.forget(number);
            let _ = self.say(RESET, number, 0, &[]);
        }
    }

    fn add(&self, number: u32, socket: TcpStream) -> io::Result<Arc<Channel>> {
        let mut open = lock(&self.open);
        // Whoever ends them all says so first, and takes what is open then.
        if let Some(over) = self.over() {
            return Err(io::Error::other(over));
        }
        if open.len() >= CHANNELS_MAX {
            return Err(io::Error::other(format!("more than {CHANNELS_MAX} channels")));
        }
        let state = Mutex::new(State { may_send: CREDIT_BYTES, ..State::default() });
        let channel = Arc::new(Channel { number, socket, state, changed: Condvar::new() });
        open.insert(number, channel.clone());
        Ok(channel)
    }

    /// Starts the two threads of a channel; `opens` where this end has opened it.
    fn run(self: &Arc<Self>, channel: &Arc<Channel>, opens: bool) -> io::Result<()> {
        let start = |name: &str, work: fn(&Channels, &Channel, bool) -> io::Result<()>| {
            let (channels, channel) = (self.clone(), channel.clone());
            let name = format!("haul-ssh-{name}-{}", channel.number);
            let builder = thread::Builder::new().name(name).stack_size(STACK_BYTES);
            builder.spawn(move || {
                if work(&channels, &channel, opens).is_err() && channel.reset_once() {
                    let _ = channels.say(RESET, channel.number, 0, &[]);
                }
                channels.direction_done(&channel);
            })
        };
        let started = start("out", Self::carry_out).and_then(|_| start("in", Self::carry_in));
        started.map(drop).inspect_err(|_| self.forget(channel.number))
    }

    /// Notes that a direction is over. A channel counts until both threads have left.
    fn direction_done(&self, channel: &Channel) {
        let mut state = lock(&channel.state);
        state.done += 1;
        let is_over = state.done == 2;
        drop(state);
        if is_over {
            lock(&self.open).remove(&channel.number);
        }
    }

    fn forget(&self, number: u32) {
        let forgotten = lock(&self.open).remove(&number);
        forgotten.iter().for_each(|channel| channel.reset());
    }

    /// Carries what the socket gives to the other end, within the credit.
    fn carry_out(&self, channel: &Channel, opens: bool) -> io::Result<()> {
        if opens {
            self.say(OPEN, channel.number, 0, &[])?;
        }
        let mut buffer = vec![0; DATA_BYTES_MAX];
        loop {
            let len = match (&channel.socket).read(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if len == 0 {
                // A reset ends the socket, too, and was told or heard of already.
                let is_reset = lock(&channel.state).is_reset;
                return if is_reset { Ok(()) } else { self.say(END, channel.number, 0, &[]) };
            }
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                let part = channel.take_credit(rest.len())?;
                let (now, later) = rest.split_at(part as usize);
                self.say(DATA, channel.number, part, now)?;
                self.carried_bytes.fetch_add(u64::from(part), Ordering::Relaxed);
                rest = later;
            }
        }
    }

    /// Carries what came to the socket, and gives credit for it.
    fn carry_in(&self, channel: &Channel, _: bool) -> io::Result<()> {
        while let Some(bytes) = channel.next_come()? {
            (&channel.socket).write_all(&bytes)?;
            let credit = u32::try_from(bytes.len()).expect("a frame has less");
            channel.change(|state| state.come_bytes -= bytes.len());
            self.say(CREDIT, channel.number, credit, &[])?;
        }
        channel.socket.shutdown(Shutdown::Write)
    }

    fn say(&self, kind: u8, number: u32, value: u32, bytes: &[u8]) -> io::Result<()> {
        self.outgoing.say(&Header { kind, number, value }.bytes(), bytes)
    }
}

impl Channel {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Ends it, both ways at once.
    fn reset(&self) {
        let _ = self.reset_once();
    }

    /// Ends it; whether it had not been ended before.
    fn reset_once(&self) -> bool {
        let mut was = false;
        self.change(|state| was = std::mem::replace(&mut state.is_reset, true));
        let _ = self.socket.shutdown(Shutdown::Both);
        !was
    }

    /// Keeps what came, unless it is more than there was credit for.
    fn take(&self, bytes: Vec<u8>) -> bool {
        let mut is_within = true;
        self.change(|state| {
            state.come_bytes += bytes.len();
            is_within = state.come_bytes <= CREDIT_BYTES as usize;
            if !is_within || state.is_reset || bytes.is_empty() {
                return;
            }
            // Many small frames take no more memory than few large ones.
            match state.come.back_mut() {
                Some(last) if last.len() + bytes.len() <= DATA_BYTES_MAX => last.extend(bytes),
                _ => state.come.push_back(bytes),
            }
        });
        is_within
    }

    /// Takes credit for as many bytes, or for fewer; waits until there is some.
    fn take_credit(&self, len: usize) -> io::Result<u32> {
        let mut state = self.wait(|state| state.may_send > 0)?;
        let part = state.may_send.min(u32::try_from(len).unwrap_or(u32::MAX));
        state.may_send -= part;
        Ok(part)
    }

    /// Takes the next bytes that came; `None` at their end.
    fn next_come(&self) -> io::Result<Option<Vec<u8>>> {
        let mut state = self.wait(|state| !state.come.is_empty() || state.has_ended)?;
        Ok(state.come.pop_front())
    }

    fn wait(&self, is_there: impl Fn(&State) -> bool) -> io::Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.state);
        loop {
            if state.is_reset {
                return Err(ErrorKind::ConnectionReset.into());
            }
            if is_there(&state) {
                return Ok(state);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two sockets of loopback that are connected to one another.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    loop {
        let (far, peer) = listener.accept()?;
        // Another user of this host may have been faster.
        if peer == near.local_addr()? {
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            return Ok((near, far));
        }
    }
}

#[cfg(test)]
mod tests;
