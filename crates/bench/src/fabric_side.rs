//! The two processes of `haul bench fabric`: one sends and measures, the other one answers.
//!
//! Both have the same list of tasks and go through it in step: the one that asks says over a
//! connection of its own how many repeats come, and hears when the other one has them all.

mod link;
pub mod processors;
mod task;

pub use task::{FabricRole, FabricSpec, FileWay, MessageWay, Repeats, Task, TaskDone};

use anyhow::{Context, Result, anyhow, bail};
use haul_fabric::{Figures, FileError, ReceiveEnd, SendEnd, Wait};
use link::{Answer, Ask, Links, connected, listening};
use rustix::{
    fs::sendfile,
    time::{ClockId, clock_gettime},
};
use std::{
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    time::Instant,
};

/// Repeats before a task is measured: connections are made and memory is touched.
const WARM_UPS: u64 = 3;
/// The byte by which the side that answers says that it has all.
const HAS_ALL: u8 = b'A';
/// Bytes that a read of a TCP connection takes.
const READ_BYTES: usize = 1 << 20;
/// The wait of the ends that files go through: processor time matters, as in the study.
const FILES_WAIT: Wait = Wait::Sleep;

/// The sides that send messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turns {
    One,
    Both,
}

/// Words of a side.
#[derive(Clone, Copy, Debug)]
pub enum FabricLine {
    /// The side that answers waits at this port.
    Listening(u16),
    Task(TaskDone),
}

/// Does the tasks of a side and tells what each took.
///
/// # Errors
/// The first one, which leaves nothing to go on with.
pub fn run(spec: &FabricSpec, tell: &mut dyn FnMut(FabricLine)) -> Result<()> {
    if let Some(processor) = spec.processor {
        processors::keep_on(None, processor)?;
    }
    match spec.role {
        FabricRole::Answer => {
            let mut links = listening(spec, &mut |port| tell(FabricLine::Listening(port)))?;
            for task in &spec.tasks {
                answer(*task, &mut links).with_context(|| task.words())?;
                answer(*task, &mut links).with_context(|| task.words())?;
            }
            // An end that closes too early would take the last completions from the other one.
            links.control.read_to_end(&mut Vec::new())?;
        }
        FabricRole::Ask { port } => {
            let mut links = connected(spec, port)?;
            for task in &spec.tasks {
                let done = measure(*task, spec, &mut links).with_context(|| task.words())?;
                tell(FabricLine::Task(done));
            }
        }
    }
    Ok(())
}

/// Does a task some times, to see how long it takes, and then as often as fits.
fn measure(task: Task, spec: &FabricSpec, links: &mut Links<Ask>) -> Result<TaskDone> {
    let file = match task {
        Task::File { file_bytes, .. } => {
            let path = spec.files.join(file_bytes.to_string());
            Some(File::open(&path).with_context(|| format!("cannot open {}", path.display()))?)
        }
        Task::Latency { .. } | Task::Bandwidth { .. } => None,
    };
    let warm = ask(task, file.as_ref(), WARM_UPS.min(spec.repeats.most), links)?;
    let repeats = spec.repeats.fitting(warm.all_ns / warm.repeats.max(1));
    ask(task, file.as_ref(), repeats, links)
}

/// One run of a task by the side that sends.
fn ask(task: Task, file: Option<&File>, repeats: u64, links: &mut Links<Ask>) -> Result<TaskDone> {
    links.make_for(task)?;
    let before = links.figures(task);
    let Links { control, tcp, .. } = links;
    control.write_all(&repeats.to_le_bytes())?;
    let mut tcp = tcp.try_clone()?;
    let mut control = control.try_clone()?;
    let (began, cpu_before) = (Instant::now(), cpu_ns());
    match task {
        Task::Latency { way, message_bytes } => match way.wait() {
            None => tcp_messages(&mut tcp, message_bytes, repeats, Turns::Both)?,
            Some(wait) => {
                let end = links.exchange(wait);
                let len_bytes = usize::try_from(message_bytes)?;
                for _ in 0..repeats {
                    end.send(len_bytes, |_| {})?;
                    end.receive()?;
                }
            }
        },
        Task::Bandwidth { way, message_bytes } => match way.wait() {
            None => tcp_messages(&mut tcp, message_bytes, repeats, Turns::One)?,
            Some(wait) => messages(&mut links.ends(wait).0, message_bytes, repeats)?,
        },
        Task::File { way: FileWay::TcpSendfile, file_bytes } => {
            let file = file.context("there is no file")?;
            (0..repeats).try_for_each(|_| send_by_kernel(&tcp, file, file_bytes))?;
        }
        Task::File { way, file_bytes } => {
            let file = file.context("there is no file")?;
            let end = &mut links.ends(FILES_WAIT).0;
            (0..repeats).try_for_each(|_| send_by_endpoint(end, way, file, file_bytes))?;
        }
    }
    let (sender_ns, cpu_after) = (ns_since(began), cpu_ns());
    let mut has_all = [0];
    control.read_exact(&mut has_all).context("the side that answers has gone")?;
    let all_ns = ns_since(began);
    let figures = difference(&before, &links.figures(task));
    Ok(TaskDone { repeats, sender_ns, all_ns, cpu_ns: cpu_after - cpu_before, ..figures })
}

/// One run of a task by the side that answers.
fn answer(task: Task, links: &mut Links<Answer>) -> Result<()> {
    links.make_for(task)?;
    let mut repeats = [0; 8];
    links.control.read_exact(&mut repeats).context("the side that asks has gone")?;
    let repeats = u64::from_le_bytes(repeats);
    match (task, task.wait()) {
        (Task::Latency { message_bytes, .. }, None) => {
            let mut message = vec![0; usize::try_from(message_bytes)?];
            for _ in 0..repeats {
                links.tcp.read_exact(&mut message)?;
                links.tcp.write_all(&message)?;
            }
        }
        (Task::Latency { message_bytes, .. }, Some(wait)) => {
            let end = links.exchange(wait);
            let len_bytes = usize::try_from(message_bytes)?;
            for _ in 0..repeats {
                end.receive()?;
                end.send(len_bytes, |_| {})?;
            }
        }
        (task, None) => take_from_socket(&mut links.tcp, task.len_bytes() * repeats)?,
        (task, Some(wait)) => take(&mut links.ends(wait).0, task.len_bytes() * repeats)?,
    }
    links.control.write_all(&[HAS_ALL])?;
    Ok(())
}

/// Sends messages by an endpoint, one behind the other, until all are over.
fn messages(send: &mut SendEnd, len_bytes: u64, repeats: u64) -> Result<()> {
    let message = vec![0; usize::try_from(len_bytes)?];
    for _ in 0..repeats {
        send.send(&message)?;
        send.flush()?;
    }
    send.settle()?;
    Ok(())
}

/// Takes bytes where they have arrived, without copying them.
fn take(end: &mut ReceiveEnd, len_bytes: u64) -> Result<()> {
    let mut left = len_bytes;
    while left > 0 {
        let came = end.peek()?.len();
        let taken = came.min(usize::try_from(left).unwrap_or(usize::MAX));
        end.skip(taken)?;
        left -= taken as u64;
    }
    Ok(())
}

fn tcp_messages(tcp: &mut TcpStream, len_bytes: u64, repeats: u64, turns: Turns) -> Result<()> {
    let mut message = vec![0; usize::try_from(len_bytes)?];
    for _ in 0..repeats {
        tcp.write_all(&message)?;
        if turns == Turns::Both {
            tcp.read_exact(&mut message)?;
        }
    }
    Ok(())
}

fn take_from_socket(tcp: &mut TcpStream, len_bytes: u64) -> Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut left = len_bytes;
    while left > 0 {
        let room = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let came = tcp.read(&mut buffer[..room])?;
        if came == 0 {
            bail!("the side that asks has gone");
        }
        left -= came as u64;
    }
    Ok(())
}

fn send_by_kernel(tcp: &TcpStream, file: &File, file_bytes: u64) -> Result<()> {
    let mut offset = 0;
    while offset < file_bytes {
        let room = usize::try_from(file_bytes - offset).unwrap_or(usize::MAX);
        if sendfile(tcp, file, Some(&mut offset), room).context("sendfile")? == 0 {
            bail!("the file ends early");
        }
    }
    Ok(())
}

/// Sends a file and waits for the completion: its memory is free then.
fn send_by_endpoint(end: &mut SendEnd, way: FileWay, file: &File, file_bytes: u64) -> Result<()> {
    let see = &mut |_: &[u8]| {};
    let sent = match way {
        FileWay::OneCopy => end.send_copied(file, 0, file_bytes, see),
        FileWay::SendFile => end.send_file(file, 0, file_bytes, see).map(drop),
        FileWay::TcpSendfile => bail!("not by an endpoint"),
    };
    sent.map_err(|(_, error)| match error {
        FileError::Truncated => anyhow!("the file ends early"),
        FileError::Read(error) => error.into(),
        FileError::Wire(error) => error.into(),
    })?;
    end.settle()?;
    Ok(())
}

/// Work of an end between two looks at its figures.
fn difference(before: &Figures, after: &Figures) -> TaskDone {
    let registering = after.registering - before.registering;
    TaskDone {
        buffered_bytes: after.buffered_bytes - before.buffered_bytes,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        window_bytes: after.window_bytes - before.window_bytes,
        windows: after.windows - before.windows,
        registering_ns: u64::try_from(registering.as_nanos()).unwrap_or(u64::MAX),
        messages: after.messages - before.messages,
        waits_for_room: after.waits_for_room - before.waits_for_room,
        ..TaskDone::default()
    }
}

fn ns_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Processor time of this process in all its threads.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Task {
    /// The wait of the endpoints of a task; `None` where it has none.
    pub fn wait(self) -> Option<Wait> {
        match self {
            Self::Latency { way, .. } | Self::Bandwidth { way, .. } => MessageWay::wait(way),
            Self::File { way: FileWay::TcpSendfile, .. } => None,
            Self::File { .. } => Some(FILES_WAIT),
        }
    }
}
