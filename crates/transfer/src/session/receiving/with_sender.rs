//! Receiving role whose sender is the test: it says the messages and writes the data streams.

use super::{Receiving, ReceivingOptions};
use crate::{
    connecting::ConnectOptions,
    digest::SpanDigest,
    session::{
        headway::Headway,
        role::{EventSink, Pumped, Role, SessionEnd},
        streams::{StreamSetup, Streams},
        supply::Source,
    },
    storage::target_place::TargetPlace,
    transport::{tcp::Route, waker::Waker},
};
use haul_datapath::SpanTap;
use haul_protocol::{
    FileId, Message, StreamId,
    frame::{
        FrameHeader, PREFACE_BYTES, PackHeader, PayloadStatus, Preface, SpanHeader, SpanTrailer,
    },
    message::{Answer, Fault, FileKind, FileOffer, OffersEnd},
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Length of a span.
pub(super) const SPAN: u64 = 64 << 10;
/// Time after which what is waited for does not come any more.
const PATIENCE: Duration = Duration::from_secs(20);

/// A session that receives.
pub(super) struct Session<'a> {
    pub role: Receiving<'a>,
    /// Messages of the role.
    pub said: Vec<Message>,
    pub ended: Option<Result<SessionEnd, Fault>>,
    setup: StreamSetup,
    attached: mpsc::Sender<(StreamId, TcpStream)>,
    streams: u32,
    /// The server's end, where the role is a client's.
    listener: Option<TcpListener>,
}

impl<'a> Session<'a> {
    pub fn begin(
        place: TargetPlace,
        options: ReceivingOptions,
        setup: StreamSetup,
        events: EventSink<'a>,
    ) -> Self {
        let (attached, source) = mpsc::channel();
        Self::of(place, options, (setup, Source::Attach(source)), attached, events)
    }

    /// Begins a session of a client, which opens this many streams once there is a file.
    pub fn begin_client(
        place: TargetPlace,
        options: ReceivingOptions,
        count: u32,
        events: EventSink<'a>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let server = listener.local_addr().expect("bound").to_string();
        let headway = Arc::new(Headway::new(Duration::from_secs(60), 1 << 20));
        let route = Arc::new(Route::new(server, ConnectOptions::default()).expect("no collectors"));
        let source = Source::Connect { route, count, early: None, headway };
        let (attached, _) = mpsc::channel();
        let setup = StreamSetup::of_nobody();
        let this = Self::of(place, options, (setup, source), attached, events);
        Self { listener: Some(listener), ..this }
    }

    fn of(
        place: TargetPlace,
        options: ReceivingOptions,
        (setup, source): (StreamSetup, Source),
        attached: mpsc::Sender<(StreamId, TcpStream)>,
        events: EventSink<'a>,
    ) -> Self {
        let streams = Streams::new(Waker::new().expect("a waker"));
        let role = Receiving::new(place, setup.clone(), streams, source, options, events);
        let role = role.expect("threads");
        let (said, ended, listener) = (Vec::new(), None, None);
        Self { role, said, ended, setup, attached, streams: 0, listener }
    }

    /// Takes a stream that the client has opened, if there is one.
    pub fn accept(&mut self) -> Option<DataStream> {
        let (mut socket, _) = self.listener.as_ref().expect("a client").accept().ok()?;
        socket.set_nonblocking(false).expect("a socket");
        let mut preface = [0; PREFACE_BYTES];
        socket.read_exact(&mut preface).expect("a preface");
        let stream = Preface::decode(&preface).expect("a preface").stream;
        Some(DataStream { socket, stream, digest: self.setup.span_digest(), sequence: 0 })
    }

    /// Lets the role work until it has opened a stream.
    pub fn accepted(&mut self) -> DataStream {
        let mut accepted = None;
        self.until("a stream", |this| {
            accepted = this.accept();
            accepted.is_some()
        });
        accepted.expect("it was waited for")
    }

    /// Lets the role work for a while.
    pub fn for_a_while(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.until("a while", |_| Instant::now() > end);
    }

    /// Says something that the protocol allows.
    pub fn say(&mut self, message: Message) {
        self.role.handle(message).expect("the protocol allows it");
    }

    /// Says that nothing else is offered.
    pub fn offers_end(&mut self) {
        self.say(Message::OffersEnd(OffersEnd::default()));
    }

    /// Opens a data stream.
    pub fn stream(&mut self) -> DataStream {
        let (ours, theirs) = DataStream::open(self.streams, &self.setup);
        self.streams += 1;
        self.attached.send((ours.stream, theirs)).expect("the role is there");
        ours
    }

    /// Lets the role work until something is so.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.turn();
            if is_so(self) {
                return;
            }
            let (said, ended) = (&self.said, &self.ended);
            assert!(Instant::now() < deadline, "{what}: never after {said:?}, {ended:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets the role work once.
    pub fn turn(&mut self) {
        match self.role.pump(Instant::now()) {
            Ok(Pumped::GoOn) => {}
            Ok(Pumped::Ended(end)) => self.ended = Some(Ok(end)),
            Err(fault) => self.ended = Some(Err(fault)),
        }
        self.said.extend(std::iter::from_fn(|| self.role.poll_message()));
    }

    /// Lets the role work until these files are settled, and gives their faults.
    pub fn settled<const N: usize>(&mut self, files: [u32; N]) -> [Option<Fault>; N] {
        let mut faults = Vec::new();
        self.until("settled", |this| {
            let fault = |file: &u32| {
                this.said.iter().find_map(|message| match message {
                    Message::FileSettled(it) if it.file == FileId(*file) => Some(it.fault.clone()),
                    _ => None,
                })
            };
            faults = files.iter().filter_map(fault).collect();
            faults.len() == N
        });
        faults.try_into().expect("as many as files")
    }

    /// The answer to the offer of a file, if it has come.
    pub fn answer_to(&self, file: u32) -> Option<Answer> {
        self.said.iter().find_map(|message| match message {
            Message::FileAnswer(answer) if answer.file == FileId(file) => {
                Some(answer.answer.clone())
            }
            _ => None,
        })
    }
}

/// Makes the offer of a file.
pub(super) fn offer(file: u32, name: &str, size_bytes: u64) -> FileOffer {
    let (file, name, kind) = (FileId(file), name.as_bytes().to_vec(), FileKind::Regular);
    let (mode, mtime_s, inode) = (0o644, 1_000_000_000, 7);
    FileOffer { file, name, kind, size_bytes, mode, mtime_s, inode, ..FileOffer::default() }
}

/// Makes the offer of a directory.
pub(super) fn directory(file: u32, name: &str) -> FileOffer {
    FileOffer { kind: FileKind::Directory, mode: 0o755, ..offer(file, name, 0) }
}

/// The sender's end of a data stream.
pub(super) struct DataStream {
    pub socket: TcpStream,
    pub stream: StreamId,
    digest: SpanDigest,
    sequence: u64,
}

impl DataStream {
    /// Makes both ends of a stream, behind its preface.
    pub fn open(stream: u32, setup: &StreamSetup) -> (Self, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a peer");
        let (theirs, _) = listener.accept().expect("it is connected");
        let digest = setup.span_digest();
        (Self { socket, stream: StreamId(stream), digest, sequence: 0 }, theirs)
    }

    /// Makes a span with its header and trailer.
    pub fn span(
        &mut self,
        file: u32,
        offset_bytes: u64,
        payload: &[u8],
        status: PayloadStatus,
    ) -> Vec<u8> {
        let (len_bytes, sequence) = (payload.len() as u64, self.sequence);
        let (file, stream) = (FileId(file), self.stream);
        let header = SpanHeader { file, offset_bytes, len_bytes, sequence, stream };
        self.sequence += 1;
        let encoded = FrameHeader::Span(header).encode();
        self.digest.start(&header, &encoded);
        self.digest.see(payload);
        let trailer = SpanTrailer { status, digest: self.digest.finish(status) };
        [&encoded, payload, &trailer.encode()].concat()
    }

    /// Makes a pack of spans, each of which [`Self::span`] made.
    pub fn pack(&self, spans: &[Vec<u8>]) -> Vec<u8> {
        let (body, count) = (spans.concat(), spans.len() as u32);
        let (len_bytes, sequence) = (body.len() as u64, self.sequence - u64::from(count));
        let header = PackHeader { spans: count, len_bytes, sequence, stream: self.stream };
        [&FrameHeader::Pack(header).encode(), &*body].concat()
    }

    /// Makes the frame of the end of a stream.
    pub fn end_of(&self, stream: StreamId) -> Vec<u8> {
        FrameHeader::End { stream, sequence: self.sequence }.encode().to_vec()
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("it is read");
    }

    /// Ends the stream in order.
    pub fn end(&mut self) {
        let end = self.end_of(self.stream);
        self.write(&end);
    }
}
