//! Peers whose bytes are no message, or a message without a part of it: the session ends in words.

use crate::harness::{
    PATIENCE, Place,
    peer::{FakeServer, Peer, hello},
    server::Server,
};
use haul_protocol::{
    Message, decode_message, encode_message, limits,
    message::{Direction, Fault, FaultCode, HelloReply, Opened},
};
use rustls::StreamOwned;
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// A peer that says bytes, whatever they are.
struct BytePeer {
    tls: Box<dyn Tls>,
    /// Bytes that make no whole message yet.
    heard: Vec<u8>,
}

trait Tls: Read + Write {}

impl<T: Read + Write> Tls for T {}

impl BytePeer {
    fn over(tls: impl Tls + 'static) -> Self {
        Self { tls: Box::new(tls), heard: Vec::new() }
    }

    fn connect(server: &Server) -> Self {
        let socket = with_patience(TcpStream::connect(server.address()).unwrap());
        Self::over(StreamOwned::new(Peer::tls(server.token().fingerprint), socket))
    }

    fn say(&mut self, messages: impl IntoIterator<Item = Message>) {
        let mut bytes = Vec::new();
        messages.into_iter().for_each(|message| encode_message(message, &mut bytes));
        self.tls.write_all(&bytes).unwrap();
    }

    /// Waits for a message that fits; `None` when the other side closed before.
    fn hear<T>(&mut self, fits: impl Fn(Message) -> Option<T>) -> Option<T> {
        loop {
            let decoded = decode_message(&self.heard, limits::MESSAGE_BYTES_MAX).unwrap();
            if let Some((message, taken)) = decoded {
                self.heard.drain(..taken);
                match fits(message) {
                    Some(found) => return Some(found),
                    None => continue,
                }
            }
            let mut chunk = [0; 4096];
            match self.tls.read(&mut chunk) {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.heard.extend_from_slice(&chunk[..len]),
            }
        }
    }

    /// Says the bytes, and returns the fault by which the other side ends the session for them.
    #[track_caller]
    fn is_refused(&mut self, bytes: &[u8]) -> Fault {
        self.tls.write_all(bytes).unwrap();
        let refused = self.hear(|message| match message {
            Message::Refused(fault) => Some(fault),
            _ => None,
        });
        refused.unwrap_or_else(|| panic!("closed without a word for {bytes:x?}"))
    }
}

fn with_patience(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A message of these bytes of protobuf.
fn framed(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_le_bytes(), body].concat()
}

/// Bytes that are no message, and messages that lack a part or hold one that is none, each with
/// what it is called.
fn bad_bytes() -> Vec<(Vec<u8>, &'static str)> {
    let answers_compare: &[u8] = &[0x42, 5, 0x2a, 3, 0x0a, 1, 7];
    let answers_need: &[u8] = &[0x42, 6, 0x12, 4, 0x32, 2, 7, 7];
    let session_of_a_byte: &[u8] = &[0x22, 3, 0x0a, 1, 7];
    let probe_of_kind_99: &[u8] = &[0xca, 0x01, 4, 0x08, 1, 0x10, 99];
    vec![
        (framed(&[]), "a control message of unknown kind"),
        (framed(&[0xa2, 0x06, 0]), "a control message of unknown kind"),
        (framed(&[0x0a, 5]), "a control message: "),
        (framed(&[0x0f, 0]), "a control message: "),
        (framed(&[0xff; 64]), "a control message: "),
        (u32::MAX.to_le_bytes().to_vec(), "at most 1048576 are allowed"),
        (framed(&[0x42, 0]), "an answer to an offer that says nothing"),
        (framed(answers_compare), "a BLAKE3 that is not 32 bytes"),
        (framed(answers_need), "a digest of durable spans that is not 16 bytes"),
        (framed(session_of_a_byte), "a session id that is not 16 bytes"),
        (framed(probe_of_kind_99), "a probe of unknown kind"),
    ]
}

#[test]
fn bytes_that_are_no_message_end_the_session_in_words() {
    let place = Place::new();
    place.file(&place.root("data"), 1000);
    let server = Server::start(&place);
    for (direction, path) in [(Direction::Push, &b""[..]), (Direction::Pull, b"data")] {
        for (bytes, why) in bad_bytes() {
            let mut peer = BytePeer::connect(&server);
            peer.say([hello(1, 1), Message::Open(Peer::asks(&server, direction, path))]);
            let is_opened = |message| matches!(message, Message::Opened(_)).then_some(());
            peer.hear(is_opened).expect("an honest client is let in");
            let fault = peer.is_refused(&bytes);
            assert_eq!(fault.code, FaultCode::ProtocolViolation, "{bytes:x?}: {fault:?}");
            assert!(fault.what.contains(why), "{bytes:x?}: {fault:?}");
        }
    }
    server.wait_for_sessions(2 * bad_bytes().len());
    server.still_serves(&place);
}

#[test]
fn a_stranger_whose_first_words_lack_a_part_is_told_so() {
    let place = Place::new();
    let server = Server::start(&place);
    let open_of_a_byte: &[u8] = &[0x1a, 3, 0x0a, 1, 7];
    for (body, why) in [
        (&[0x1a, 0][..], "a token secret that is not 16 bytes"),
        (open_of_a_byte, "a token secret that is not 16 bytes"),
        (&[], "a control message of unknown kind"),
    ] {
        let mut peer = BytePeer::connect(&server);
        peer.say([hello(1, 1)]);
        let fault = peer.is_refused(&framed(body));
        assert_eq!(fault.code, FaultCode::ProtocolViolation, "{body:x?}: {fault:?}");
        assert!(fault.what.contains(why), "{body:x?}: {fault:?}");
    }
    server.still_serves(&place);
}

#[test]
fn a_server_whose_bytes_are_no_message_is_left_in_words() {
    let place = Place::new();
    place.file(&place.source("data"), 1000);
    let mut all = bad_bytes().into_iter().map(|(bytes, _)| bytes);
    let fake = FakeServer::start_with_tls(&place.path("fake"), move |socket, tls, _| {
        let mut peer = BytePeer::over(StreamOwned::new(tls, with_patience(socket)));
        let open = peer.hear(|message| match message {
            Message::Open(open) => Some(open),
            _ => None,
        });
        let Some(open) = open else { return };
        let opened = Opened {
            session: [7; 16],
            protection: open.protection,
            digest: open.digest,
            streams: 1,
            offers_max: 16,
            offer_bytes_max: 1 << 20,
            ..Opened::default()
        };
        let reply = HelloReply { version: 1, ..HelloReply::default() };
        peer.say([Message::HelloReply(reply), Message::Opened(opened)]);
        let bytes = all.next().unwrap();
        let fault = peer.is_refused(&bytes);
        assert_eq!(fault.code, FaultCode::ProtocolViolation, "{bytes:x?}: {fault:?}");
    });
    for (bytes, why) in bad_bytes() {
        let ran = place.push(&words![place.source("data"), fake.url(""), "--retry-for", "1s"]);
        assert!(ran.status == 1 || ran.status == 2, "{bytes:x?}: {ran:?}");
        ran.says(&["broke the protocol", why]);
    }
}
