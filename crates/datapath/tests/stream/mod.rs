//! Two ends of a connection with an engine on each, and everything checked that goes between.
//!
//! The wire carries, for each span: a header that names it, its bytes, a trailer.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
};

use haul_datapath::{
    Boundary, Buffers, EngineError, EngineInfo, FileSpan, Host, IfCopied, Remedy, SpanDone,
    SpanFile, SpanId, SpanTap, StageTimes, TlsEnd, Wait, Wire, WireKind, engines,
    fallback::{Fallback, Receiver, Sender},
    skeleton,
    tls::{Opener, ReceiveEnd, Sealer, SendEnd},
};
use haul_sys::ktls::Cipher;

/// Memory of the engines, which go on where the kernel copies, so that loopback shows all that they
/// do.
pub const BUFFERS: Buffers =
    Buffers { bytes_max: 16 << 20, block_bytes: None, if_copied: IfCopied::GoOn };
pub const TRAILER: [u8; 5] = *b"over.";

pub fn host() -> Host {
    Host::read(Path::new("/"))
}

/// All engines that have a wire in this build.
fn all() -> impl Iterator<Item = &'static EngineInfo> {
    let all = engines::ENGINES.iter().copied().chain([&skeleton::INFO]);
    all.filter(|info| cfg!(feature = "fabric") || !is_of_fabric(info))
}

/// Whether an engine works on a pair of RDMA endpoints, and on nothing else.
pub fn is_of_fabric(info: &EngineInfo) -> bool {
    info.wires == [WireKind::Fabric]
}

pub fn senders() -> Vec<&'static EngineInfo> {
    all().filter(|info| info.open_send.is_some()).collect()
}

/// Engines that put bytes into files.
pub fn receivers() -> Vec<&'static EngineInfo> {
    all().filter(|info| info.open_receive.is_some() && info.name != "discard").collect()
}

/// Directories where files are tried: the file system of this one, and memory.
pub fn directories() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    if Path::new("/dev/shm").is_dir() {
        directories.push("/dev/shm".into());
    } else {
        haul_testkit::skip::skip("/dev/shm", "none");
    }
    directories
}

pub fn file_in(directory: &Path) -> File {
    tempfile::tempfile_in(directory).unwrap()
}

/// Sizes of the sockets' buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketBuffers {
    Automatic,
    /// The smallest buffers that the kernel grants.
    Tiny,
    /// The smallest send buffer, and an automatic receive buffer. What is sent without a copy
    /// reaches a receiver on this host in whole pages: a receive buffer smaller than a page then
    /// has no window to offer, and some hundred bytes go every 200 ms, when the sender asks again
    /// (tcp_send_probe0).
    TinyToSend,
}

pub fn wires(buffers: SocketBuffers) -> (Wire, Wire) {
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if buffers == SocketBuffers::Tiny {
        set_socket_recv_buffer_size(&listener, 1).unwrap();
    }
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    if buffers != SocketBuffers::Automatic {
        set_socket_send_buffer_size(&near, 1).unwrap();
    }
    near.set_nodelay(true).unwrap();
    haul_sys::congestion::set_congestion(&near, "reno").unwrap();
    let (far, _) = listener.accept().unwrap();
    (Wire::Tcp(near.into()), Wire::Tcp(far.into()))
}

/// Whether an engine works on TLS in this process, and on nothing else.
pub fn is_of_tls(info: &EngineInfo) -> bool {
    info.wires == [WireKind::Tls]
}

/// The two ends of a wire for these engines: of TCP; of RDMA endpoints in shared memory, or of TLS,
/// if one of them works on nothing else. Then it is both ends' engine.
pub fn wires_for(
    send_with: Vec<&'static EngineInfo>,
    receive_with: Vec<&'static EngineInfo>,
    buffers: SocketBuffers,
) -> (Wire, Vec<&'static EngineInfo>, Wire, Vec<&'static EngineInfo>) {
    let mut all = send_with.iter().chain(&receive_with).copied();
    let alone = all.find(|info| is_of_fabric(info) || is_of_tls(info));
    let (near, far) = wires(buffers);
    let Some(engine) = alone else { return (near, send_with, far, receive_with) };
    let (near, far) =
        if is_of_tls(engine) { tls_ends(near, far) } else { fabric::ends(near, far, buffers) };
    (near, vec![engine], far, vec![engine])
}

/// Turns two sockets into the ends of TLS by one key, as if a handshake were behind them.
pub fn tls_ends(near: Wire, far: Wire) -> (Wire, Wire) {
    let (Wire::Tcp(near), Wire::Tcp(far)) = (near, far) else { panic!("two sockets") };
    let (key, iv, sequence) = ([7; 16], [3; 12], 5);
    let sealer = Sealer::new(Cipher::Aes128Gcm, &key, iv, sequence).unwrap();
    let opener = Opener::new(Cipher::Aes128Gcm, &key, iv, sequence).unwrap();
    (
        Wire::Tls(Box::new(TlsEnd::Sends(SendEnd::new(near, sealer)))),
        Wire::Tls(Box::new(TlsEnd::Receives(ReceiveEnd::new(far, opener)))),
    )
}

#[cfg(feature = "fabric")]
mod fabric {
    use std::{
        net::{IpAddr, Ipv4Addr},
        time::Duration,
    };

    use haul_datapath::{FabricEnd, Wire};
    use haul_fabric::{Fabric, Provider};

    use super::SocketBuffers;

    const LONG: Duration = Duration::from_secs(20);

    /// Turns two sockets into a pair of endpoints beside them.
    pub fn ends(near: Wire, far: Wire, buffers: SocketBuffers) -> (Wire, Wire) {
        let (Wire::Tcp(near), Wire::Tcp(far)) = (near, far) else { panic!("two sockets") };
        let memory = if buffers == SocketBuffers::Automatic { 8 << 20 } else { 64 << 10 };
        let fabric = || Fabric::open(Provider::Shm, IpAddr::from(Ipv4Addr::LOCALHOST)).unwrap();
        let listening = fabric().listen([3; 16]).unwrap();
        let contact = listening.contact().clone();
        std::thread::scope(|threads| {
            let receiving = threads.spawn(move || {
                let pair = listening.accept(far, LONG).unwrap();
                pair.into_receiver(memory).unwrap()
            });
            let pair = fabric().connect(&contact, near, LONG).unwrap();
            let sending = pair.into_sender(memory).unwrap();
            let ends = (FabricEnd::Sends(sending), FabricEnd::Receives(receiving.join().unwrap()));
            (Wire::Fabric(Box::new(ends.0)), Wire::Fabric(Box::new(ends.1)))
        })
    }
}

#[cfg(not(feature = "fabric"))]
mod fabric {
    use haul_datapath::Wire;

    use super::SocketBuffers;

    pub fn ends(_: Wire, _: Wire, _: SocketBuffers) -> (Wire, Wire) {
        unreachable!("no engine of this build has such a wire")
    }
}

/// A tap that keeps everything it sees.
#[derive(Default)]
pub struct Seen(pub Vec<u8>);

impl SpanTap for Seen {
    fn see(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tapped {
    Yes,
    No,
}

/// Outcome of one end's spans, in their order.
#[derive(Default)]
pub struct Outcome {
    pub done: Vec<SpanDone>,
    pub failed: Vec<EngineError>,
    pub seen: Vec<Vec<u8>>,
    pub fallbacks: Vec<Fallback>,
    pub times: StageTimes,
}

pub fn span(id: u64, file: &Arc<SpanFile>, offset_bytes: u64, len_bytes: u64) -> FileSpan {
    FileSpan { id: SpanId(id), file: file.clone(), offset_bytes, len_bytes }
}

/// Sends all spans. Where one fails for its file, its place on the wire is filled with `0xEE`.
pub fn send(
    candidates: Vec<&'static EngineInfo>,
    wire: Wire,
    spans: &[FileSpan],
    tapped: Tapped,
    memory: Buffers,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut sender = Sender::open(candidates, wire, &host(), memory).unwrap();
    for (at, span) in spans.iter().enumerate() {
        if let Some(next) = spans.get(at + 1) {
            sender.prepare(next);
        }
        sender.send_bytes(&span.id.0.to_le_bytes(), Boundary::MoreFollows).unwrap();
        let mut seen = Seen::default();
        let tap: Option<&mut dyn SpanTap> =
            if tapped == Tapped::Yes { Some(&mut seen) } else { None };
        if let Err(error) = sender.submit(span, tap, &mut outcome.done) {
            assert_eq!(error.remedy, Remedy::SkipFile, "{error}");
            assert_eq!(error.span, Some(span.id));
            let missing = vec![0xEE; (span.len_bytes - error.moved_bytes) as usize];
            sender.send_bytes(&missing, Boundary::MoreFollows).unwrap();
            outcome.failed.push(error);
        }
        outcome.seen.push(seen.0);
        let last = at + 1 == spans.len();
        let boundary = if last || at % 3 == 0 { Boundary::Flush } else { Boundary::MoreFollows };
        sender.send_bytes(&TRAILER, boundary).unwrap();
    }
    sender.reap(Wait::ForAll, &mut outcome.done).unwrap();
    assert_eq!(sender.spans_in_flight(), 0);
    outcome.times = sender.stage_times();
    outcome.fallbacks = sender.take_fallbacks();
    outcome
}

/// Receives all spans, which must come in this order. What a failed one leaves is drained.
pub fn receive(
    candidates: Vec<&'static EngineInfo>,
    wire: Wire,
    spans: &[FileSpan],
    tapped: Tapped,
    memory: Buffers,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut receiver = Receiver::open(candidates, wire, &host(), memory).unwrap();
    for span in spans {
        let mut header = [0; 8];
        receiver.receive_bytes(&mut header).unwrap();
        assert_eq!(u64::from_le_bytes(header), span.id.0, "the wire is out of step");
        let mut seen = Seen::default();
        let tap: Option<&mut dyn SpanTap> =
            if tapped == Tapped::Yes { Some(&mut seen) } else { None };
        if let Err(error) = receiver.submit(span, tap, &mut outcome.done) {
            assert_eq!(error.remedy, Remedy::SkipFile, "{error}");
            assert_eq!(error.span, Some(span.id));
            let mut rest = vec![0; (span.len_bytes - error.moved_bytes) as usize];
            receiver.receive_bytes(&mut rest).unwrap();
            outcome.failed.push(error);
        }
        outcome.seen.push(seen.0);
        let mut trailer = [0; TRAILER.len()];
        receiver.receive_bytes(&mut trailer).unwrap();
        assert_eq!(trailer, TRAILER, "the wire is out of step after span {:?}", span.id);
        while receiver.spans_in_flight() >= receiver.info().spans_in_flight_max.max(2) {
            if let Err(late) = receiver.reap(Wait::ForOne, &mut outcome.done) {
                outcome.failed.push(late);
            }
        }
    }
    while receiver.spans_in_flight() > 0 {
        if let Err(late) = receiver.reap(Wait::ForAll, &mut outcome.done) {
            outcome.failed.push(late);
        }
    }
    let mut nothing = [0];
    let end = receiver.receive_bytes(&mut nothing).unwrap_err();
    assert_eq!((end.moved_bytes, end.source.kind()), (0, std::io::ErrorKind::UnexpectedEof));
    outcome.times = receiver.stage_times();
    outcome.fallbacks = receiver.take_fallbacks();
    outcome
}

/// Sends `from` and receives into `into`, which are alike in number and lengths.
pub fn run(
    send_with: Vec<&'static EngineInfo>,
    receive_with: Vec<&'static EngineInfo>,
    from: &[FileSpan],
    into: &[FileSpan],
    tapped: Tapped,
    buffers: SocketBuffers,
) -> (Outcome, Outcome) {
    run_with(BUFFERS, send_with, receive_with, from, into, tapped, buffers)
}

/// Runs as [`run`] does, with other memory for the engines.
pub fn run_with(
    memory: Buffers,
    send_with: Vec<&'static EngineInfo>,
    receive_with: Vec<&'static EngineInfo>,
    from: &[FileSpan],
    into: &[FileSpan],
    tapped: Tapped,
    buffers: SocketBuffers,
) -> (Outcome, Outcome) {
    let (near, send_with, far, receive_with) = wires_for(send_with, receive_with, buffers);
    std::thread::scope(|threads| {
        let sending = threads.spawn(move || send(send_with, near, from, tapped, memory));
        let received = receive(receive_with, far, into, tapped, memory);
        (sending.join().unwrap(), received)
    })
}

/// Checks that every span was handed over once, as long as it is.
pub fn check_all_done(spans: &[FileSpan], outcome: &Outcome) {
    let failed = outcome.failed.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(failed.is_empty(), "{failed:?}");
    let mut done = outcome.done.iter().map(|d| (d.id, d.moved_bytes)).collect::<Vec<_>>();
    let mut wanted = spans.iter().map(|s| (s.id, s.len_bytes)).collect::<Vec<_>>();
    done.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(done, wanted);
}
