//! Connections between the two processes of `haul bench fabric`, and their endpoints.
//!
//! Each pair of endpoints has a TCP connection beside it, over which its contact goes. A wait has
//! two pairs, one for each direction, which are made when the first task needs them.

use super::task::{FabricSpec, Task};
use anyhow::{Context, Result, bail};
use haul_fabric::{Contact, Exchange, Fabric, Figures, Pair, ReceiveEnd, SendEnd, Wait};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

/// Registered memory of an end, in bytes: messages of up to 1 MiB.
const END_BYTES_MAX: usize = 32 << 20;
/// Longest wait for the other side's endpoint.
const TIME_MAX: Duration = Duration::from_secs(20);
/// The longest contact that is read, in bytes.
const CONTACT_BYTES_MAX: u64 = 4096;

/// Ends of the side that asks: towards the other one, and back.
pub type Ask = (SendEnd, ReceiveEnd);
/// Ends of the side that answers: what comes, and the way back.
pub type Answer = (ReceiveEnd, SendEnd);

/// The way to the other side's process.
#[derive(Debug)]
enum Other {
    Listener(TcpListener),
    At(SocketAddr),
}

/// Connections of a side.
#[derive(Debug)]
pub struct Links<Ends> {
    /// Over which both sides agree on what comes.
    pub control: TcpStream,
    /// The connection that is measured beside endpoints.
    pub tcp: TcpStream,
    other: Other,
    fabric: Fabric,
    ends: Vec<(Wait, Ends)>,
    /// Ends whose sides take turns, with messages of up to this length.
    exchanges: Vec<(Wait, Exchange)>,
    message_bytes_max: usize,
}

/// Two ends, one for each direction, that a side makes of pairs.
pub trait Ends: Sized {
    /// Makes the ends of the pair that comes first and the one that comes second.
    ///
    /// # Errors
    /// If memory cannot be registered, or the other side has gone.
    fn made(next: impl Fn() -> Result<Pair>) -> Result<Self>;
}

impl Ends for Ask {
    fn made(next: impl Fn() -> Result<Pair>) -> Result<Self> {
        let send = next()?.into_sender(END_BYTES_MAX)?;
        Ok((send, next()?.into_receiver(END_BYTES_MAX)?))
    }
}

impl Ends for Answer {
    fn made(next: impl Fn() -> Result<Pair>) -> Result<Self> {
        let receive = next()?.into_receiver(END_BYTES_MAX)?;
        Ok((receive, next()?.into_sender(END_BYTES_MAX)?))
    }
}

impl<Made: Ends> Links<Made> {
    /// Makes the endpoints that a task needs, in step with the other side.
    ///
    /// # Errors
    /// What the provider says, or that the other side has gone.
    pub fn make_for(&mut self, task: Task) -> Result<()> {
        let Some(wait) = task.wait() else { return Ok(()) };
        if let Task::Latency { .. } = task {
            if self.exchanges.iter().all(|(made, _)| *made != wait) {
                let exchange = self.pair(wait)?.into_exchange(self.message_bytes_max)?;
                self.exchanges.push((wait, exchange));
            }
            return Ok(());
        }
        if self.ends.iter().any(|(made, _)| *made == wait) {
            return Ok(());
        }
        let ends = Made::made(|| self.pair(wait))?;
        self.ends.push((wait, ends));
        Ok(())
    }

    /// The ends with this wait.
    ///
    /// # Panics
    /// If no task had them made.
    pub fn ends(&mut self, wait: Wait) -> &mut Made {
        let found = self.ends.iter_mut().find(|(made, _)| *made == wait);
        &mut found.expect("the task had them made").1
    }

    /// The end with this wait whose sides take turns.
    ///
    /// # Panics
    /// If no task had it made.
    pub fn exchange(&mut self, wait: Wait) -> &mut Exchange {
        let found = self.exchanges.iter_mut().find(|(made, _)| *made == wait);
        &mut found.expect("the task had it made").1
    }

    fn pair(&self, wait: Wait) -> Result<Pair> {
        let fabric = self.fabric.waiting(wait);
        let mut lifeline = match &self.other {
            Other::Listener(listener) => listener.accept()?.0,
            Other::At(address) => TcpStream::connect(address)?,
        };
        if let Other::Listener(_) = self.other {
            let mut ticket = [0; 16];
            rustix::rand::getrandom(&mut ticket, rustix::rand::GetRandomFlags::empty())?;
            let listening = fabric.listen(ticket)?;
            let contact = listening.contact().encode();
            lifeline.write_all(&(contact.len() as u64).to_le_bytes())?;
            lifeline.write_all(&contact)?;
            return Ok(listening.accept(lifeline.into(), TIME_MAX)?);
        }
        let mut len = [0; 8];
        lifeline.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        if len > CONTACT_BYTES_MAX {
            bail!("the other side tells of no endpoint");
        }
        let mut contact = vec![0; usize::try_from(len)?];
        lifeline.read_exact(&mut contact)?;
        Ok(fabric.connect(&Contact::decode(&contact)?, lifeline.into(), TIME_MAX)?)
    }
}

impl Links<Ask> {
    /// Figures of the end that a task sends through; zeros where it has none.
    pub fn figures(&self, task: Task) -> Figures {
        let found = self.ends.iter().find(|(made, _)| Some(*made) == task.wait());
        found.map_or_else(Figures::default, |(_, ends)| ends.0.figures().clone())
    }
}

/// The longest message that goes to and fro.
fn message_bytes_max(spec: &FabricSpec) -> Result<usize> {
    let lengths = spec.tasks.iter().map(|task| match task {
        Task::Latency { message_bytes, .. } => *message_bytes,
        Task::Bandwidth { .. } | Task::File { .. } => 0,
    });
    Ok(usize::try_from(lengths.max().unwrap_or(0))?)
}

fn open(spec: &FabricSpec) -> Result<Fabric> {
    let provider = spec.fabric.parse()?;
    Ok(Fabric::open(provider, spec.address)?)
}

/// Listens, says where, and waits for the other side.
///
/// # Errors
/// If the provider or the address cannot be had.
pub fn listening(spec: &FabricSpec, tell: &mut dyn FnMut(u16)) -> Result<Links<Answer>> {
    let fabric = open(spec)?;
    let listener = TcpListener::bind((spec.address, 0)).context("cannot listen")?;
    tell(listener.local_addr()?.port());
    let accept = || -> Result<TcpStream> {
        let (socket, _) = listener.accept()?;
        socket.set_nodelay(true)?;
        Ok(socket)
    };
    let (control, tcp) = (accept()?, accept()?);
    let other = Other::Listener(listener);
    let message_bytes_max = message_bytes_max(spec)?;
    let (ends, exchanges) = (Vec::new(), Vec::new());
    Ok(Links { control, tcp, other, fabric, ends, exchanges, message_bytes_max })
}

/// Connects to the side that listens.
///
/// # Errors
/// If the provider cannot be had, or nobody listens.
pub fn connected(spec: &FabricSpec, port: u16) -> Result<Links<Ask>> {
    let fabric = open(spec)?;
    let at = SocketAddr::from((spec.address, port));
    let connect = || -> Result<TcpStream> {
        let socket = TcpStream::connect(at).context("cannot connect")?;
        socket.set_nodelay(true)?;
        Ok(socket)
    };
    let (control, tcp) = (connect()?, connect()?);
    let (ends, exchanges) = (Vec::new(), Vec::new());
    let message_bytes_max = message_bytes_max(spec)?;
    Ok(Links { control, tcp, other: Other::At(at), fabric, ends, exchanges, message_bytes_max })
}
