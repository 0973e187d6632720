//! Private data streams: TLS 1.3 behind the preface, and who encrypts what comes then.
//!
//! Each stream has a handshake, and so a key, of its own; the client proves on it that it is the
//! one that the session is with (SPEC 6.5). Then the kernel gets the key, so that engines work on
//! the socket as they do without TLS; where it has no TLS, this process encrypts.

use super::way::Way;
use crate::{
    digest::{PRIVATE_LABEL, PROOF_BYTES, SessionKeys},
    options::REKEY_AFTER_BYTES_MAX,
    transport::tls,
};
use haul_datapath::{
    TlsEnd, Wire, WireKind,
    tls::{ContentType, Opener, ReceiveEnd, Sealer, SendEnd},
};
use haul_protocol::{StreamId, frame::Preface};
use haul_sys::ktls::{self, Cipher, Direction, IV_BYTES, Key, Version};
use rustls::{
    ClientConfig, ClientConnection, CommonState, ConnectionTrafficSecrets, ExtractedSecrets,
    ServerConfig, ServerConnection, pki_types::ServerName,
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Time in which the peer has to say each part of the handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval of the look whether the session is over meanwhile: a receiver that lacks nothing never
/// begins a handshake.
const STOP_POLL: Duration = Duration::from_millis(50);
/// Bytes of the header of a record.
const HEADER_BYTES: usize = 5;
/// Most bytes of a record behind its header (RFC 8446, 5.2).
const BODY_BYTES_MAX: usize = (1 << 14) + 256;
/// Most records of a handshake: a chain of one certificate takes six.
const HANDSHAKE_RECORDS_MAX: usize = 32;
/// Name that the client's handshake gives the server: the key is what counts.
const SERVER_NAME: &str = "haul";

/// The side that encrypts and decrypts what a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Kernel TLS: a file goes into the socket by sendfile(2) as without TLS.
    Kernel,
    /// This process, above a wire that takes memory: in the engine `tls`, or in one past the page
    /// cache.
    Process,
}

impl By {
    /// Chooses who encrypts: the kernel where it can, unless the user asked for the engine `tls`.
    #[must_use]
    pub fn choose(forced_engine: Option<&str>) -> Self {
        let is_forced = forced_engine == Some(haul_datapath::engines::tls::INFO.name);
        let is_kernels = !is_forced && kernel_encrypts(Cipher::Aes128Gcm).is_ok();
        if is_kernels { Self::Kernel } else { Self::Process }
    }

    /// The kind of a stream's wire.
    #[must_use]
    pub fn wire(self) -> WireKind {
        match self {
            Self::Kernel => WireKind::KernelTls,
            Self::Process => WireKind::Tls,
        }
    }
}

/// Whether this host's kernel encrypts with the cipher, and why not; it is tried once.
fn kernel_encrypts(cipher: Cipher) -> Result<(), &'static io::Error> {
    static AES: OnceLock<io::Result<()>> = OnceLock::new();
    static CHACHA: OnceLock<io::Result<()>> = OnceLock::new();
    static NO_STREAM_S: OnceLock<io::Result<()>> = OnceLock::new();
    let tried = match cipher {
        Cipher::Aes128Gcm => AES.get_or_init(|| ktls::check(Version::Tls13, cipher)),
        Cipher::ChaCha20Poly1305 => CHACHA.get_or_init(|| ktls::check(Version::Tls13, cipher)),
        Cipher::Aes256Gcm => NO_STREAM_S.get_or_init(|| Err(io::ErrorKind::Unsupported.into())),
    };
    tried.as_ref().copied()
}

/// The part of this side in the handshake.
#[derive(Clone, Debug)]
pub enum Part {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

/// TLS for the data streams of a session.
#[derive(Clone, Debug)]
pub struct Private {
    pub part: Part,
    pub by: By,
    /// Bytes after which a stream is replaced by another, with another key.
    pub rekey_after_bytes: u64,
    /// Why the kernel got no key of the first stream that went on without it.
    refused: Arc<OnceLock<String>>,
}

impl Private {
    /// Takes a part, and who encrypts by the engine that the user asked for. A stream is replaced
    /// after `rekey_after_bytes`, or before its key has protected more than it may; each carries a
    /// byte at least, so that a session gets on.
    #[must_use]
    pub fn new(part: Part, forced_engine: Option<&str>, rekey_after_bytes: u64) -> Self {
        let rekey_after_bytes = rekey_after_bytes.clamp(1, REKEY_AFTER_BYTES_MAX);
        Self { part, by: By::choose(forced_engine), rekey_after_bytes, refused: Arc::default() }
    }

    /// Why the kernel does not encrypt a stream of this session; `None` where it does, or could
    /// where the user had not asked for another way.
    #[must_use]
    pub fn why_not_kernel(&self) -> Option<String> {
        match self.by {
            By::Kernel => self.refused.get().cloned(),
            By::Process => {
                let why = kernel_encrypts(Cipher::Aes128Gcm).err()?;
                Some(why_not(Cipher::Aes128Gcm, why))
            }
        }
    }
}

/// Why the kernel encrypts nothing with a cipher, in words.
fn why_not(cipher: Cipher, why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::NotFound => "the kernel has no TLS (modprobe tls)".to_owned(),
        _ => format!("the kernel does not encrypt with {}: {why}", cipher.name()),
    }
}

/// Makes the wire of a private stream out of its connection, which is behind the preface.
///
/// # Errors
/// If the handshake fails, or the peer is not who the session is with.
pub fn wire(
    private: &Private,
    keys: &SessionKeys,
    (session, stream): (&[u8; 16], StreamId),
    socket: OwnedFd,
    way: Way,
    stop: &dyn Fn() -> bool,
) -> io::Result<Wire> {
    let mut socket = Patient { socket: socket.into(), stop };
    socket.socket.set_read_timeout(Some(STOP_POLL))?;
    let preface = Preface::signed_bytes(stream, session);
    let (secrets, before) = match &private.part {
        Part::Client(config) => {
            let name = ServerName::try_from(SERVER_NAME).expect("a valid name");
            let mut tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
            let last = shake_hands(&mut tls, &mut socket)?;
            check_protocol(&tls)?;
            let exported =
                exported(|out| tls.export_keying_material(out, PRIVATE_LABEL, Some(&preface)))?;
            let secrets = tls.dangerous_extract_secrets().map_err(io::Error::other)?;
            (secrets, Before::Say { last, proof: keys.prove_private(&exported) })
        }
        Part::Server(config) => {
            let mut tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            let last = shake_hands(&mut tls, &mut socket)?;
            socket.write_all(&last)?;
            check_protocol(&tls)?;
            let exported =
                exported(|out| tls.export_keying_material(out, PRIVATE_LABEL, Some(&preface)))?;
            let secrets = tls.dangerous_extract_secrets().map_err(io::Error::other)?;
            (secrets, Before::Hear { exported })
        }
    };
    let secrets = Secrets::new(&secrets)?;
    let numbers = before.exchange(keys, &secrets, &mut socket)?;
    socket.socket.set_read_timeout(None)?;
    let encrypts = match private.by {
        By::Kernel => Some(kernel_encrypts(secrets.cipher)),
        By::Process => None,
    };
    secrets.wire(socket.socket, way, numbers, encrypts, &private.refused)
}

/// A connection in its handshake: it waits for the peer until the session is over.
struct Patient<'a> {
    socket: TcpStream,
    stop: &'a dyn Fn() -> bool,
}

impl Patient<'_> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut filled = 0;
        while filled < bytes.len() {
            match self.socket.read(&mut bytes[filled..]) {
                Ok(0) => {
                    let why = "the peer closed the connection in the TLS handshake";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if (self.stop)() || Instant::now() >= deadline {
                        let why = "the peer said nothing more in the TLS handshake";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Words on a new connection before the frames.
enum Before {
    /// The client's last words of the handshake, and its proof.
    Say { last: Vec<u8>, proof: [u8; PROOF_BYTES] },
    /// The server waits for the proof.
    Hear { exported: [u8; PROOF_BYTES] },
}

/// Records that this side has sent and received under its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    sent: u64,
    received: u64,
}

impl Before {
    fn exchange(
        self,
        keys: &SessionKeys,
        secrets: &Secrets<'_>,
        socket: &mut Patient<'_>,
    ) -> io::Result<Numbers> {
        match self {
            Self::Say { mut last, proof } => {
                let record = secrets.sealer(0)?.record(ContentType::ApplicationData, &proof)?;
                last.extend_from_slice(&record);
                socket.write_all(&last)?;
                Ok(Numbers { sent: 1, received: 0 })
            }
            Self::Hear { exported } => {
                let mut record = read_record(socket)?;
                let (content, len) = secrets.opener(0)?.open(&mut record)?;
                let proof = &record[HEADER_BYTES..HEADER_BYTES + len];
                if content != ContentType::ApplicationData || !keys.verify_private(&exported, proof)
                {
                    let why = "the stream was not opened by the session's client";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                Ok(Numbers { sent: 0, received: 1 })
            }
        }
    }
}

fn exported(
    export: impl FnOnce([u8; PROOF_BYTES]) -> Result<[u8; PROOF_BYTES], rustls::Error>,
) -> io::Result<[u8; PROOF_BYTES]> {
    export([0; PROOF_BYTES]).map_err(io::Error::other)
}

fn check_protocol(tls: &CommonState) -> io::Result<()> {
    if tls::is_data_protocol(tls.alpn_protocol()) {
        return Ok(());
    }
    let why = "the peer's TLS handshake is not that of a data stream";
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Goes through the handshake, a record at a time, so that nothing behind it is read. Gives this
/// side's last words, which are not sent yet.
fn shake_hands<Data>(
    tls: &mut impl std::ops::DerefMut<Target = rustls::ConnectionCommon<Data>>,
    socket: &mut Patient<'_>,
) -> io::Result<Vec<u8>> {
    let mut words = Vec::new();
    for _ in 0..HANDSHAKE_RECORDS_MAX {
        while tls.wants_write() {
            tls.write_tls(&mut words)?;
        }
        if !tls.is_handshaking() {
            return Ok(words);
        }
        socket.write_all(&std::mem::take(&mut words))?;
        let record = read_record(socket)?;
        tls.read_tls(&mut &record[..])?;
        if let Err(error) = tls.process_new_packets() {
            // The peer is told why.
            while tls.wants_write() && tls.write_tls(&mut words).is_ok() {}
            let _ = socket.write_all(&words);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a TLS handshake without end"))
}

fn read_record(socket: &mut Patient<'_>) -> io::Result<Vec<u8>> {
    let mut record = vec![0; HEADER_BYTES];
    socket.read_exact(&mut record)?;
    let body_bytes = usize::from(u16::from_be_bytes([record[3], record[4]]));
    if body_bytes > BODY_BYTES_MAX {
        let why = "what came behind the preface is no TLS";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    record.resize(HEADER_BYTES + body_bytes, 0);
    socket.read_exact(&mut record[HEADER_BYTES..])?;
    Ok(record)
}

/// The keys of both directions, as the handshake made them.
struct Secrets<'a> {
    cipher: Cipher,
    send: (&'a [u8], [u8; IV_BYTES], u64),
    receive: (&'a [u8], [u8; IV_BYTES], u64),
}

impl<'a> Secrets<'a> {
    fn new(secrets: &'a ExtractedSecrets) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "a cipher that is not haul's");
        let (cipher, key, iv) = parts(&secrets.tx.1).ok_or_else(unknown)?;
        let (_, their_key, their_iv) = parts(&secrets.rx.1).ok_or_else(unknown)?;
        let (send, receive) = ((key, iv, secrets.tx.0), (their_key, their_iv, secrets.rx.0));
        Ok(Self { cipher, send, receive })
    }

    fn sealer(&self, sent: u64) -> io::Result<Sealer> {
        let (key, iv, sequence) = self.send;
        Sealer::new(self.cipher, key, iv, sequence + sent)
    }

    fn opener(&self, received: u64) -> io::Result<Opener> {
        let (key, iv, sequence) = self.receive;
        Opener::new(self.cipher, key, iv, sequence + received)
    }

    /// Makes the wire: of the kernel where it `encrypts` with this cipher and takes the key, else
    /// of this process, which notes why; `None` where the kernel is not to be asked.
    fn wire(
        self,
        socket: TcpStream,
        way: Way,
        numbers: Numbers,
        encrypts: Option<Result<(), &io::Error>>,
        refused: &OnceLock<String>,
    ) -> io::Result<Wire> {
        let given = encrypts.map(|encrypts| {
            encrypts.map_err(|why| why_not(self.cipher, why))?;
            let given = self.give_to_kernel(&socket, way, numbers);
            given.map_err(|why| format!("the kernel did not take the key of a stream: {why}"))
        });
        match given {
            Some(Ok(())) => return Ok(Wire::KernelTls(socket.into())),
            // The first reason is told; that of later streams is mostly the same.
            Some(Err(why)) => drop(refused.set(why)),
            None => {}
        }
        let end = match way {
            Way::Sends => TlsEnd::Sends(SendEnd::new(socket.into(), self.sealer(numbers.sent)?)),
            Way::Receives => {
                TlsEnd::Receives(ReceiveEnd::new(socket.into(), self.opener(numbers.received)?))
            }
        };
        Ok(Wire::Tls(Box::new(end)))
    }

    /// Gives the kernel the key of the one direction in which data goes. A socket that it is
    /// refused for goes on without the kernel.
    fn give_to_kernel(&self, socket: &impl AsFd, way: Way, numbers: Numbers) -> io::Result<()> {
        ktls::attach(socket)?;
        let (direction, (key, iv, sequence), moved) = match way {
            Way::Sends => (Direction::Send, &self.send, numbers.sent),
            Way::Receives => (Direction::Receive, &self.receive, numbers.received),
        };
        let sequence = sequence + moved;
        let version = Version::Tls13;
        ktls::set_key(socket, direction, &Key { version, cipher: self.cipher, key, iv, sequence })
    }
}

fn parts(secrets: &ConnectionTrafficSecrets) -> Option<(Cipher, &[u8], [u8; IV_BYTES])> {
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Cipher::ChaCha20Poly1305, key, iv)
        }
        _ => return None,
    };
    Some((cipher, key.as_ref(), iv.as_ref().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Identity, StateDirectory};
    use haul_datapath::{
        Boundary, engines,
        fallback::{Receiver, Sender},
    };
    use std::{net::TcpListener, thread};

    const SESSION: [u8; 16] = [7; 16];
    const STREAM: StreamId = StreamId(3);

    fn identity() -> Identity {
        let directory = tempfile::tempdir().unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(directory.path(), private).unwrap();
        StateDirectory::open(directory.path()).unwrap().identity().unwrap()
    }

    fn sockets() -> (OwnedFd, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near.into(), listener.accept().unwrap().0.into())
    }

    fn keys(byte: u8) -> SessionKeys {
        SessionKeys::from_bytes(&[byte; haul_protocol::limits::DATA_KEYS_BYTES])
    }

    fn parts(identity: &Identity) -> (Part, Part) {
        parts_with(identity, true)
    }

    /// Both sides, with AES first or with ChaCha20.
    fn parts_with(identity: &Identity, has_aes: bool) -> (Part, Part) {
        let client = tls::client_data_config_with(identity.fingerprint(), has_aes).unwrap();
        let server = tls::server_data_config_with(identity, has_aes).unwrap();
        (Part::Client(client), Part::Server(server))
    }

    /// Makes both ends of a stream; the client's has `of_client` as keys of its session.
    fn ends(
        (client, server): (Part, Part),
        of_client: SessionKeys,
        (client_way, server_way): (Way, Way),
    ) -> (io::Result<Wire>, io::Result<Wire>) {
        let (near, far) = sockets();
        let private = |part| Private::new(part, Some("tls"), u64::MAX);
        let server = private(server);
        let serving = thread::spawn(move || {
            wire(&server, &keys(1), (&SESSION, STREAM), far, server_way, &|| false)
        });
        let near =
            wire(&private(client), &of_client, (&SESSION, STREAM), near, client_way, &|| false);
        (near, serving.join().unwrap())
    }

    fn carries(sender: Wire, receiver: Wire) {
        let host = haul_datapath::Host::default();
        let engine = || vec![&engines::tls::INFO];
        let mut sender = Sender::open(engine(), sender, &host, 1 << 20).unwrap();
        let mut receiver = Receiver::open(engine(), receiver, &host, 1 << 20).unwrap();
        sender.send_bytes(b"through both", Boundary::Flush).unwrap();
        let mut heard = [0; 12];
        receiver.receive_bytes(&mut heard).unwrap();
        assert_eq!(&heard, b"through both");
    }

    #[test]
    fn a_stream_carries_bytes_either_way_behind_its_handshake() {
        let own = identity();
        for has_aes in [true, false] {
            let parts = || parts_with(&own, has_aes);
            let (near, far) = ends(parts(), keys(1), (Way::Sends, Way::Receives));
            carries(near.unwrap(), far.unwrap());
            let (near, far) = ends(parts(), keys(1), (Way::Receives, Way::Sends));
            carries(far.unwrap(), near.unwrap());
        }
    }

    /// Linux 5.10 has TLS with AES and without ChaCha20.
    #[test]
    fn a_cipher_that_the_kernel_lacks_is_told_and_so_is_a_key_that_it_does_not_take() {
        let own = identity();
        let (client, server) = parts_with(&own, false);
        let by_kernel = |part| Private { by: By::Kernel, ..Private::new(part, None, u64::MAX) };
        let (client, server) = (by_kernel(client), by_kernel(server));
        assert_eq!(server.why_not_kernel(), None, "there was no stream yet");
        let (near, far) = sockets();
        let of_thread = server.clone();
        let serving = thread::spawn(move || {
            let of_stream = (&SESSION, STREAM);
            wire(&of_thread, &keys(1), of_stream, far, Way::Receives, &|| false).unwrap()
        });
        let of_stream = (&SESSION, STREAM);
        let near = wire(&client, &keys(1), of_stream, near, Way::Sends, &|| false).unwrap();
        let far = serving.join().unwrap();
        let checked = ktls::check(Version::Tls13, Cipher::ChaCha20Poly1305);
        for (private, wire) in [(&client, &near), (&server, &far)] {
            let why = private.why_not_kernel();
            match &checked {
                Ok(()) => assert_eq!((why, wire.kind()), (None, WireKind::KernelTls)),
                Err(error) => {
                    let told = why_not(Cipher::ChaCha20Poly1305, error);
                    assert_eq!((why, wire.kind()), (Some(told), WireKind::Tls));
                }
            }
        }
        if checked.is_err() {
            carries(near, far);
        }
        // A kernel that encrypts, and a connection whose key it takes no more: the peer is gone.
        let secrets = Secrets {
            cipher: Cipher::Aes128Gcm,
            send: (&[7; 16], [3; IV_BYTES], 0),
            receive: (&[7; 16], [3; IV_BYTES], 0),
        };
        let (near, far) = sockets();
        drop(far);
        let mut near = TcpStream::from(near);
        assert_eq!(near.read(&mut [0]).unwrap(), 0);
        near.shutdown(std::net::Shutdown::Both).unwrap();
        let (numbers, refused) = (Numbers { sent: 0, received: 0 }, OnceLock::new());
        let wire = secrets.wire(near, Way::Sends, numbers, Some(Ok(())), &refused).unwrap();
        assert_eq!(wire.kind(), WireKind::Tls);
        let why = refused.get().unwrap();
        assert!(why.starts_with("the kernel did not take the key of a stream: "), "{why}");
    }

    #[test]
    fn a_client_without_the_session_s_keys_is_turned_away_and_so_is_a_server_with_another_key() {
        let own = identity();
        let (_, far) = ends(parts(&own), keys(2), (Way::Receives, Way::Sends));
        let why = far.unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(why.to_string(), "the stream was not opened by the session's client");
        let other = identity();
        let (client, _) = parts(&other);
        let (_, server) = parts(&own);
        let (near, far) = ends((client, server), keys(1), (Way::Sends, Way::Receives));
        let why = near.unwrap_err().to_string();
        assert!(why.contains("the server's key is not the one in the token"), "{why}");
        assert!(far.is_err());
    }

    #[test]
    fn a_handshake_of_a_control_connection_is_none_of_a_stream() {
        let own = identity();
        let (of_data, server) = parts(&own);
        let control = tls::client_config(own.fingerprint()).unwrap();
        let ways = (Way::Receives, Way::Sends);
        let (near, far) = ends((Part::Client(control), server), keys(1), ways);
        assert!(near.is_err() && far.is_err());
        let control = tls::server_config(&own).unwrap();
        let (near, _) = ends((of_data, Part::Server(control)), keys(1), ways);
        let why = near.unwrap_err().to_string();
        assert_eq!(why, "the peer's TLS handshake is not that of a data stream");
    }

    #[test]
    fn what_is_no_tls_ends_the_handshake() {
        let own = identity();
        let (_, server) = parts(&own);
        let (near, far) = sockets();
        let mut near = TcpStream::from(near);
        near.write_all(&[0xff; 64]).unwrap();
        let private = Private::new(server, None, u64::MAX);
        let of_stream = (&SESSION, STREAM);
        let why = wire(&private, &keys(1), of_stream, far, Way::Sends, &|| false).unwrap_err();
        assert_eq!(why.to_string(), "what came behind the preface is no TLS");
    }

    #[test]
    fn a_handshake_that_the_peer_does_not_begin_ends_with_the_session() {
        let own = identity();
        let (client, _) = parts(&own);
        let (near, _far) = sockets();
        let private = Private::new(client, None, u64::MAX);
        let of_stream = (&SESSION, STREAM);
        let why = wire(&private, &keys(1), of_stream, near, Way::Sends, &|| true).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_stream_is_replaced_while_its_key_is_good_for_two_more_spans() {
        let own = identity();
        let (client, _) = parts(&own);
        let after = |bytes| Private::new(client.clone(), None, bytes).rekey_after_bytes;
        assert_eq!(after(1 << 20), 1 << 20);
        assert_eq!(after(u64::MAX), 126 << 30);
        assert_eq!(after(0), 1, "a stream that may carry nothing would be replaced without end");
    }
}
