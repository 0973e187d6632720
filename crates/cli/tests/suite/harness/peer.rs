//! Peers that speak haul's protocol but say what the test wants: clients, and servers of a thread.

use super::{PATIENCE, server::Server};
use haul_protocol::{
    FileId, Message, decode_message, encode_message, limits,
    message::{self, Answer, Fault, FileKind, FileOffer},
};
use haul_transfer::{
    StateDirectory, Token,
    internals::{Control, ControlError, client_config, server_config},
};
use rustls::{ClientConnection, ServerConnection, StreamOwned, pki_types::ServerName};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const TURN: Duration = Duration::from_millis(50);

/// A peer at one end of a control connection.
pub struct Peer {
    pub control: Control,
    heard: Vec<Message>,
}

impl Peer {
    /// A client that has said nothing yet.
    pub fn connect(server: &Server) -> Self {
        Self::over(TcpStream::connect(server.address()).unwrap(), server)
    }

    /// Connects from another address of the loopback network.
    pub fn connect_from(from: [u8; 4], server: &Server) -> Self {
        Self::over(super::frames::connect_from(from, server.address()), server)
    }

    fn over(socket: TcpStream, server: &Server) -> Self {
        Self::over_tls(socket, server.token().fingerprint)
    }

    /// Connects to any server with this key.
    pub fn over_tls(socket: TcpStream, fingerprint: [u8; 16]) -> Self {
        Self::new(Control::new(socket, Self::tls(fingerprint).into()).unwrap())
    }

    /// The TLS of a client that knows a server by this key.
    pub fn tls(fingerprint: [u8; 16]) -> ClientConnection {
        let config = client_config(fingerprint).unwrap();
        let name = ServerName::try_from("haul").unwrap();
        ClientConnection::new(config, name).unwrap()
    }

    /// A client whose session is open, and from here on only bytes: it may write and never read.
    pub fn tls_with_session(
        server: &Server,
        open: message::Open,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut tls = StreamOwned::new(Self::tls(server.token().fingerprint), socket);
        let mut bytes = Vec::new();
        encode_message(hello(1, 1), &mut bytes);
        encode_message(Message::Open(open), &mut bytes);
        tls.write_all(&bytes).unwrap();
        let (mut heard, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let len = tls.read(&mut chunk).unwrap();
            heard.extend_from_slice(&chunk[..len]);
            let next = |heard: &[u8]| decode_message(heard, limits::MESSAGE_BYTES_MAX).unwrap();
            while let Some((message, taken)) = next(&heard) {
                heard.drain(..taken);
                if matches!(message, Message::Opened(_)) {
                    return tls;
                }
            }
        }
    }

    fn new(control: Control) -> Self {
        Self { control, heard: Vec::new() }
    }

    /// The request of a client of this server, with its token.
    pub fn asks(server: &Server, direction: message::Direction, path: &[u8]) -> message::Open {
        message::Open {
            token_secret: message::Secret(server.token().secret),
            transfer: haul_transfer::internals::random_bytes().unwrap(),
            direction,
            paths: vec![path.to_vec()],
            into_directory: true,
            protection: message::Protection::Clear,
            digest: message::Digest::Crc32c,
            streams: 1,
            ..message::Open::default()
        }
    }

    /// A client whose session is open, and the session's number.
    pub fn with_session(server: &Server, direction: message::Direction) -> (Self, [u8; 16]) {
        Self::with_session_of(server, Self::asks(server, direction, b""))
    }

    /// A client whose session is what `open` asks for, and the session's number.
    pub fn with_session_of(server: &Server, open: message::Open) -> (Self, [u8; 16]) {
        Self::connect(server).open_session(open)
    }

    /// Says hello, and opens the session that `open` asks for.
    pub fn open_session(self, open: message::Open) -> (Self, [u8; 16]) {
        let mut peer = self;
        peer.say(hello(1, 1));
        peer.say(Message::Open(open));
        let opened = peer.hear(|message| match message {
            Message::Opened(opened) => Some(opened.clone()),
            _ => None,
        });
        peer.control.trust();
        (peer, opened.unwrap().session)
    }

    pub fn say(&mut self, message: Message) {
        self.control.queue(message);
    }

    /// Waits for a message that fits.
    ///
    /// # Errors
    /// How the connection ended before.
    pub fn hear<T>(&mut self, fits: impl Fn(&Message) -> Option<T>) -> Result<T, ControlError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for message in self.control.turn(TURN, None)? {
                if let Message::Ping(ping) = message {
                    self.control.queue(Message::Pong(ping));
                } else {
                    self.heard.push(message);
                }
            }
            let found = self.heard.iter().enumerate().find_map(|(at, m)| Some((at, fits(m)?)));
            if let Some((at, found)) = found {
                self.heard.drain(..=at);
                return Ok(found);
            }
            assert!(Instant::now() < deadline, "not said in time; heard: {}", self.last_heard());
        }
    }

    /// Waits until the other side refuses, and returns in what words.
    #[track_caller]
    pub fn hear_refusal(&mut self) -> Fault {
        let heard = self.hear(|message| match message {
            Message::Refused(fault) => Some(fault.clone()),
            _ => None,
        });
        heard.unwrap_or_else(|error| panic!("no refusal, but {error}: {}", self.last_heard()))
    }

    /// Waits for the fault by which the other side answers the offer of `file`.
    #[track_caller]
    pub fn hear_answer_fault(&mut self, file: u32) -> Fault {
        let heard = self.hear(|message| match message {
            Message::FileAnswer(answer) if answer.file == FileId(file) => {
                Some(answer.answer.clone())
            }
            _ => None,
        });
        match heard {
            Ok(Answer::Fault(fault)) => fault,
            other => panic!("file {file} was not refused: {other:?}"),
        }
    }

    /// The last messages that were heard and not waited for, cut to what a person reads.
    fn last_heard(&self) -> String {
        let last = self.heard.iter().rev().take(5);
        last.map(|message| format!("\n  {message:?}").chars().take(300).collect::<String>())
            .collect()
    }

    /// Waits until the other side closes the connection.
    pub fn hear_close(&mut self) {
        while self.hear(|_| Some(())).is_ok() {}
    }

    /// Returns when the other side has handled all that was said so far.
    pub fn sync(&mut self) -> Result<(), ControlError> {
        let number = u64::MAX;
        self.say(Message::Ping(message::Ping { number }));
        self.hear(|message| matches!(message, Message::Pong(p) if p.number == number).then_some(()))
    }

    /// Offers a file without bytes and goes through with it; returns the fault that the receiver
    /// has with it.
    pub fn offer(&mut self, offer: FileOffer) -> Result<Option<Fault>, ControlError> {
        let file = offer.file;
        self.say(Message::FileOffer(offer));
        let answer = self.hear(|message| match message {
            Message::FileAnswer(answer) if answer.file == file => Some(answer.answer.clone()),
            _ => None,
        })?;
        match answer {
            Answer::Skip | Answer::Compare(_) | Answer::Plan(_) => return Ok(None),
            Answer::Fault(fault) => return Ok(Some(fault)),
            Answer::Need(_) => {}
        }
        self.say(Message::FileConfirm(message::FileConfirm { file, fault: None }));
        self.hear(|message| match message {
            Message::FileSettled(settled) if settled.file == file => Some(settled.fault.clone()),
            _ => None,
        })
    }
}

pub fn hello(version_min: u32, version_max: u32) -> Message {
    let software = "a test".to_owned();
    Message::Hello(message::Hello {
        version_min,
        version_max,
        software,
        ..message::Hello::default()
    })
}

/// An offer of a file, directory or link by its name.
pub fn offer(file: u32, name: &[u8], kind: FileKind) -> FileOffer {
    FileOffer {
        file: FileId(file),
        name: name.to_vec(),
        kind,
        mode: 0o644,
        mtime_s: 1,
        ..FileOffer::default()
    }
}

/// A server that does what the test says with each client.
pub struct FakeServer {
    pub address: SocketAddr,
    token: Token,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// Takes clients one after the other; `serve` gets each, after TLS.
    pub fn start(state: &Path, mut serve: impl FnMut(Peer) + Send + 'static) -> Self {
        Self::start_with_streams(state, move |peer, _| serve(peer))
    }

    /// Takes clients one after the other; `serve` also gets the listener, where the client's data
    /// streams come in.
    pub fn start_with_streams(
        state: &Path,
        mut serve: impl FnMut(Peer, &TcpListener) + Send + 'static,
    ) -> Self {
        Self::start_with_tls(state, move |socket, tls, listener| {
            serve(Peer::new(Control::new(socket, tls.into()).unwrap()), listener);
        })
    }

    /// Takes clients one after the other; `serve` gets each before TLS has begun.
    pub fn start_with_tls(
        state: &Path,
        mut serve: impl FnMut(TcpStream, ServerConnection, &TcpListener) + Send + 'static,
    ) -> Self {
        let identity = StateDirectory::open(state).unwrap().identity().unwrap();
        let config = server_config(&identity).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let thread = thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let tls = ServerConnection::new(config.clone()).unwrap();
                serve(socket, tls, &listener);
                // What was to wake it may have been taken for a data stream.
                if stop.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let token = Token::generate(identity.fingerprint()).unwrap();
        Self { address, token, stopping, thread: Some(thread) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("haul://{}@{}/{path}", self.token.reveal(), self.address)
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // Wakes it out of its wait.
        drop(TcpStream::connect(self.address));
        let panicked = self.thread.take().is_some_and(|thread| thread.join().is_err());
        assert!(!panicked || thread::panicking(), "the fake server panicked");
    }
}

impl Peer {
    /// Takes a client's first messages as a server, and opens a session for it.
    ///
    /// # Errors
    /// How the connection ended before.
    pub fn let_in(&mut self) -> Result<message::Open, ControlError> {
        self.let_in_granting(|_| {})
    }

    /// Lets a client in as [`Self::let_in`] does, and changes what it is granted.
    ///
    /// # Errors
    /// As [`Self::let_in`].
    pub fn let_in_granting(
        &mut self,
        change: impl FnOnce(&mut message::Opened),
    ) -> Result<message::Open, ControlError> {
        self.let_in_with(&[], change)
    }

    /// Lets a client in as [`Self::let_in_granting`] does, as a server with these capabilities.
    ///
    /// # Errors
    /// As [`Self::let_in`].
    pub fn let_in_with(
        &mut self,
        capabilities: &[u32],
        change: impl FnOnce(&mut message::Opened),
    ) -> Result<message::Open, ControlError> {
        let open = self.hear(|message| match message {
            Message::Open(open) => Some(open.clone()),
            _ => None,
        })?;
        let software = "a fake server".to_owned();
        self.say(Message::HelloReply(message::HelloReply {
            version: 1,
            software,
            capabilities: capabilities.to_vec(),
        }));
        let mut opened = message::Opened {
            session: [7; 16],
            protection: open.protection,
            digest: open.digest,
            streams: 1,
            offers_max: 16,
            offer_bytes_max: 1 << 20,
            rtt_us: 10,
            ..message::Opened::default()
        };
        change(&mut opened);
        self.say(Message::Opened(opened));
        self.control.trust();
        Ok(open)
    }
}
