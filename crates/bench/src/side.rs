//! A side of a measured pair of engines, as a process of its own, so that all that it uses counts.
//!
//! `haul bench engines` and `haul bench files` start two of these for each measurement. A side
//! reads what to do from its command line, and prints JSON lines: where it listens, then what it
//! used. Processor time and context switches are the kernel's account of the whole process, with
//! the threads that engines and io_uring start.

mod samples;

use crate::{
    fabric_side::{self, FabricLine, FabricSpec, TaskDone},
    floor::{self, FloorSpec},
    workshop,
};
use anyhow::{Context, Result, bail};
use haul_datapath::{
    Boundary, Buffers, EngineError, FileSpan, Host, IfCopied, Remedy, SpanFile, SpanId, Wait, Wire,
    choose::{send_buffer_bytes, span_bytes},
    engines,
    fallback::{Receiver, Sender},
};
use haul_sys::{
    congestion::set_congestion,
    perf_counter::SystemCallCounter,
    usage::{self, Usage},
};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, sockopt},
    time::{ClockId, clock_gettime},
};
use samples::{Counted, sample_until};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Memory for the engines of a side, in bytes, shared by its streams: what a session of haul has.
const BUFFER_BYTES_MAX: usize = 32 << 20;
/// A span's frame header and trailer, in bytes, about as long as those of the protocol.
const HEADER_BYTES: usize = 64;
const TRAILER_BYTES: usize = 32;
/// Byte by which a receiver says on a new connection that its engine is open.
const READY: u8 = b'R';

/// Work of a side; its file names are relative to its working directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SideSpec {
    pub engine: String,
    pub role: Role,
    pub streams: u32,
    pub len_bytes: u64,
    /// Bytes that one call moves; `None` is the engine's own number.
    pub block_bytes: Option<usize>,
    /// The source or target; `None` sends zeros, or throws away what is received.
    pub file: Option<PathBuf>,
    /// Length of the window whose bytes are sent again and again: a fixed offset.
    pub repeating_bytes: Option<u64>,
    pub congestion: Option<String>,
    /// Interval at which the bytes are sampled, if they are.
    pub sample_every_ms: Option<u64>,
    /// Whether system calls are counted, which makes each of them slower.
    pub count_calls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Send {
        port: u16,
    },
    Receive,
    /// Read the file once and do nothing else: its pages then count for the control group of the
    /// side.
    Read,
}

/// A line that a side prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SideLine {
    Listening {
        port: u16,
    },
    Done(SideDone),
    /// A task of `haul bench fabric` is done.
    Fabric(TaskDone),
    Refused {
        why: String,
        /// Whether the other side went away, so that it knows the reason.
        by_peer: bool,
    },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SideDone {
    /// Time of the first call by CLOCK_MONOTONIC, which all processes of a host share.
    pub start_ns: u64,
    pub end_ns: u64,
    pub cpu_ns: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    pub system_calls: Option<u64>,
    /// The reason why there is no count of system calls.
    pub no_system_calls: Option<String>,
    pub copied_bytes: u64,
    pub samples: Vec<Sample>,
}

/// Progress of a side at a time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    pub at_ns: u64,
    /// Bytes sent into the wire, or in the target's file.
    pub bytes: u64,
    /// Bytes written by the disk below the target, for any program; `None` where there is no such
    /// count.
    pub disk_bytes: Option<u64>,
}

/// Does what the JSON text of a [`SideSpec`] asks for, of a [`FloorSpec`] or of a [`FabricSpec`],
/// and tells what a side prints.
pub fn run(spec: &str, tell: &mut dyn FnMut(&SideLine)) {
    let floor = serde_json::from_str::<FloorSpec>(spec);
    let fabric = serde_json::from_str::<FabricSpec>(spec);
    let done = match (floor, fabric) {
        (Ok(floor), _) => floor::run(&floor).map(|()| SideLine::Done(SideDone::default())),
        (_, Ok(fabric)) => {
            let mut tell_line = |line| match line {
                FabricLine::Listening(port) => tell(&SideLine::Listening { port }),
                FabricLine::Task(done) => tell(&SideLine::Fabric(done)),
            };
            let done = fabric_side::run(&fabric, &mut tell_line);
            done.map(|()| SideLine::Done(SideDone::default()))
        }
        _ => {
            let read = serde_json::from_str::<SideSpec>(spec).context("no side of a bench");
            read.and_then(|spec| move_bytes(&spec, tell))
        }
    };
    let line = done.unwrap_or_else(|error| {
        let engine_error = error.downcast_ref::<EngineError>();
        let by_peer = engine_error.is_some_and(|error| error.remedy == Remedy::Reconnect);
        SideLine::Refused { why: reason(&error), by_peer }
    });
    tell(&line);
}

/// The reason in an error: for an engine that could not be opened, the source alone says it.
fn reason(error: &anyhow::Error) -> String {
    match error.downcast_ref::<EngineError>() {
        Some(refused) if refused.call == "open" => refused.source.to_string(),
        _ => format!("{error:#}"),
    }
}

fn move_bytes(spec: &SideSpec, tell: &mut dyn FnMut(&SideLine)) -> Result<SideLine> {
    let system_calls = spec.count_calls.then(SystemCallCounter::open);
    let host = Host::read(Path::new("/"));
    let file = Arc::new(open_file(spec)?);
    let mut done = match spec.role {
        Role::Read => {
            let path = spec.file.as_deref().context("there is nothing to read")?;
            workshop::warm(path, spec.len_bytes, || Ok(()))?;
            SideDone::default()
        }
        Role::Send { port } => {
            let (senders, sockets) = open_senders(spec, &host, port)?;
            let counted = Counted::sockets(sockets);
            measured(spec, &system_calls, counted, |_| {
                let send = |sender, number| send_stream(sender, spans(spec, number, &file));
                in_threads(senders, send)
            })?
        }
        Role::Receive => {
            let receivers = open_receivers(spec, &host, tell)?;
            let counted = Counted::file(&file);
            measured(spec, &system_calls, counted, |counted| {
                let receive = |receiver, number| {
                    receive_stream(receiver, spans(spec, number, &file), counted)
                };
                let copied_bytes = in_threads(receivers, receive)?;
                if spec.file.is_some() {
                    rustix::fs::fdatasync(file.file()).context("cannot sync the target")?;
                }
                Ok(copied_bytes)
            })?
        }
    };
    if let Some(Err(error)) = system_calls {
        done.no_system_calls = Some(error.to_string());
    }
    Ok(SideLine::Done(done))
}

/// Runs `work` between two looks at what this process has used.
fn measured(
    spec: &SideSpec,
    system_calls: &Option<std::io::Result<SystemCallCounter>>,
    counted: Counted,
    work: impl FnOnce(&Counted) -> Result<u64>,
) -> Result<SideDone> {
    let calls = || system_calls.as_ref()?.as_ref().ok()?.count().ok();
    let over = AtomicBool::new(false);
    let every = spec.sample_every_ms.map(Duration::from_millis);
    let (calls_before, before, start_ns) = (calls(), usage::of_this_process()?, now_ns());
    let (copied, end_ns, samples) = std::thread::scope(|threads| {
        let (over, counted) = (&over, &counted);
        let sampling = every.map(|every| threads.spawn(move || sample_until(over, every, counted)));
        let copied = work(counted);
        let end_ns = now_ns();
        over.store(true, Ordering::Release);
        let samples = sampling.map(|thread| thread.join().unwrap_or_default());
        (copied, end_ns, samples.unwrap_or_default())
    });
    let (after, calls_after) = (usage::of_this_process()?, calls());
    let Usage { cpu, voluntary_switches, involuntary_switches } = after;
    Ok(SideDone {
        start_ns,
        end_ns,
        cpu_ns: u64::try_from((cpu - before.cpu).as_nanos()).unwrap_or(u64::MAX),
        voluntary_switches: voluntary_switches - before.voluntary_switches,
        involuntary_switches: involuntary_switches - before.involuntary_switches,
        system_calls: calls_after.zip(calls_before).map(|(after, before)| after - before),
        no_system_calls: None,
        copied_bytes: copied?,
        samples,
    })
}

/// Runs each stream on a thread of its own; the sum of what they copied.
fn in_threads<Engine: Send>(
    engines: Vec<Engine>,
    work: impl Fn(Engine, usize) -> Result<u64> + Sync,
) -> Result<u64> {
    std::thread::scope(|threads| {
        let work = &work;
        let running: Vec<_> = engines
            .into_iter()
            .enumerate()
            .map(|(number, engine)| threads.spawn(move || work(engine, number)))
            .collect();
        let mut copied_bytes = 0;
        for thread in running {
            match thread.join() {
                Ok(copied) => copied_bytes += copied?,
                Err(_) => bail!("a stream's thread panicked"),
            }
        }
        Ok(copied_bytes)
    })
}

/// The spans of one stream: all streams take spans in turn.
fn spans(spec: &SideSpec, number: usize, file: &Arc<SpanFile>) -> Vec<FileSpan> {
    let span_bytes = span_bytes(spec.len_bytes, None);
    (0..spec.len_bytes.div_ceil(span_bytes))
        .skip(number)
        .step_by(spec.streams as usize)
        .map(|at| FileSpan {
            id: SpanId(at),
            file: file.clone(),
            offset_bytes: at * span_bytes,
            len_bytes: span_bytes.min(spec.len_bytes - at * span_bytes),
        })
        .collect()
}

fn send_stream(mut sender: Sender, spans: Vec<FileSpan>) -> Result<u64> {
    let mut done = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        if let Some(next) = spans.get(at + 1) {
            sender.prepare(next);
        }
        sender.send_bytes(&[0; HEADER_BYTES], Boundary::MoreFollows)?;
        sender.submit(span, None, &mut done)?;
        let last = at + 1 == spans.len();
        let boundary = if last { Boundary::Flush } else { Boundary::MoreFollows };
        sender.send_bytes(&[0; TRAILER_BYTES], boundary)?;
    }
    sender.reap(Wait::ForAll, &mut done)?;
    Ok(done.iter().map(|done| done.copied_bytes).sum())
}

fn receive_stream(mut receiver: Receiver, spans: Vec<FileSpan>, counted: &Counted) -> Result<u64> {
    let mut done = Vec::new();
    let mut copied_bytes = 0;
    for span in &spans {
        receiver.receive_bytes(&mut [0; HEADER_BYTES])?;
        receiver.submit(span, None, &mut done)?;
        receiver.receive_bytes(&mut [0; TRAILER_BYTES])?;
        let full = receiver.spans_in_flight() >= receiver.info().spans_in_flight_max;
        receiver.reap(if full { Wait::ForOne } else { Wait::DontBlock }, &mut done)?;
        copied_bytes += done.iter().map(|done| done.copied_bytes).sum::<u64>();
        counted.add(done.drain(..).map(|done| done.moved_bytes).sum());
    }
    receiver.reap(Wait::ForAll, &mut done)?;
    counted.add(done.iter().map(|done| done.moved_bytes).sum());
    Ok(copied_bytes + done.iter().map(|done| done.copied_bytes).sum::<u64>())
}

/// Opens the side's file as engines see it. A target is new and has its space, as haul makes it.
fn open_file(spec: &SideSpec) -> Result<SpanFile> {
    let Some(path) = &spec.file else {
        return Ok(match spec.role {
            Role::Send { .. } | Role::Read => SpanFile::zeros()?,
            Role::Receive => SpanFile::sink()?,
        });
    };
    if spec.role != Role::Receive {
        let file = File::open(path).context("cannot open the source")?;
        return Ok(match spec.repeating_bytes {
            Some(window_bytes) => SpanFile::repeating(file, window_bytes),
            None => SpanFile::new(file),
        });
    }
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).open(path);
    let file = file.context("cannot make the target")?;
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(&file, flags, 0, spec.len_bytes) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(SpanFile::new(file)),
        Err(error) => Err(error).context("cannot reserve the target's space"),
    }
}

fn buffers(spec: &SideSpec) -> Buffers {
    let bytes_max = BUFFER_BYTES_MAX / spec.streams.max(1) as usize;
    // What an engine is good for is to be seen where its own way does not pay, too.
    Buffers { bytes_max, block_bytes: spec.block_bytes, if_copied: IfCopied::GoOn }
}

/// Opens engines that send, each on its connection, with the same sockets to look at.
fn open_senders(spec: &SideSpec, host: &Host, port: u16) -> Result<(Vec<Sender>, Vec<TcpStream>)> {
    let info = engines::find(&spec.engine).context("there is no such engine")?;
    let (mut senders, mut sockets) = (Vec::new(), Vec::new());
    for number in 0..spec.streams {
        let mut socket = connect(port, spec.congestion.as_deref()).context("cannot connect")?;
        socket.write_all(&[number as u8])?;
        let wire = Wire::Tcp(socket.try_clone()?.into());
        let sender = Sender::open(vec![info], wire, host, buffers(spec));
        senders.push(sender.map_err(|error| error.cause)?);
        let mut ready = [0];
        // A receiver that is gone says why itself.
        socket.read_exact(&mut ready).map_err(|source| EngineError {
            engine: info.name,
            call: "connect",
            span: None,
            offset_bytes: 0,
            moved_bytes: 0,
            remedy: Remedy::Reconnect,
            source,
        })?;
        sockets.push(socket);
    }
    Ok((senders, sockets))
}

/// Connects with congestion control and send buffer as haul sets them between two ends on one host.
fn connect(port: u16, congestion: Option<&str>) -> Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // Before the connection is made: bbr's pacing would stay.
    if let Some(congestion) = congestion {
        set_congestion(&socket, congestion)?;
    }
    if let Some(bytes) = send_buffer_bytes(true) {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    rustix::net::connect(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let socket = TcpStream::from(socket);
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Listens, says where, and opens an engine on each connection that comes.
fn open_receivers(
    spec: &SideSpec,
    host: &Host,
    tell: &mut dyn FnMut(&SideLine),
) -> Result<Vec<Receiver>> {
    let info = engines::find(&spec.engine).context("there is no such engine")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
    tell(&SideLine::Listening { port: listener.local_addr()?.port() });
    let mut receivers = Vec::new();
    for _ in 0..spec.streams {
        let (mut socket, _) = listener.accept()?;
        let mut number = [0];
        socket.read_exact(&mut number)?;
        let wire = Wire::Tcp(socket.try_clone()?.into());
        let receiver = Receiver::open(vec![info], wire, host, buffers(spec));
        receivers.push((number, receiver.map_err(|error| error.cause)?));
        socket.write_all(&[READY])?;
    }
    receivers.sort_by_key(|(number, _)| *number);
    Ok(receivers.into_iter().map(|(_, receiver)| receiver).collect())
}

pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn spec(engine: &str, role: Role, file: &Path) -> SideSpec {
        SideSpec {
            engine: engine.to_owned(),
            role,
            streams: 1,
            len_bytes: 300_000,
            block_bytes: None,
            file: Some(file.to_owned()),
            repeating_bytes: None,
            congestion: None,
            sample_every_ms: None,
            count_calls: false,
        }
    }

    /// Bytes that arrive when a file of 300,000 bytes is sent by `engine`.
    fn arrived(engine: &str, source: &Path, target: &Path, window_bytes: Option<u64>) -> Vec<u8> {
        let (tell, told) = mpsc::channel();
        let receive = spec("read-write", Role::Receive, target);
        let receiving = std::thread::spawn(move || {
            let spec = serde_json::to_string(&receive).unwrap();
            run(&spec, &mut |line| tell.send(line.clone()).unwrap());
        });
        let Ok(SideLine::Listening { port }) = told.recv() else { panic!("it does not listen") };
        let role = Role::Send { port };
        let send = SideSpec { repeating_bytes: window_bytes, ..spec(engine, role, source) };
        run(&serde_json::to_string(&send).unwrap(), &mut |line| {
            assert!(matches!(line, SideLine::Done(_)), "{line:?}");
        });
        receiving.join().unwrap();
        let Ok(SideLine::Done(_)) = told.recv() else { panic!("it did not receive all") };
        std::fs::read(target).unwrap()
    }

    #[test]
    fn a_fixed_offset_sends_the_first_bytes_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("source");
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 1000) as u8).collect();
        std::fs::write(&source, &bytes).unwrap();
        for engine in ["sendfile", "read-write"] {
            let target = |name: &str| directory.path().join(format!("{name} {engine}"));
            assert_eq!(arrived(engine, &source, &target("whole"), None), bytes, "{engine}");
            let fixed = arrived(engine, &source, &target("fixed"), Some(4096));
            let window: Vec<u8> = bytes[..4096].iter().copied().cycle().take(300_000).collect();
            assert_eq!(fixed, window, "{engine}");
        }
    }
}
