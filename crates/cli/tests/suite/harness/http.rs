//! A client of HTTP/1.1 that sends what a test writes, well-formed or not.

use super::PATIENCE;
use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

pub struct Client {
    stream: BufReader<Stream>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Fields of the head, with names in small letters.
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Whether a body follows an answer's head whatever its fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    AsTold,
    /// No body, as in an answer to HEAD.
    None,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self { stream: BufReader::new(Stream::Plain(patient(address))) }
    }

    /// Connects with a receive buffer of this size: the kernel takes no more that nobody reads.
    pub fn connect_with_buffer(address: SocketAddr, receive_bytes: usize) -> Self {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&socket, receive_bytes).unwrap();
        connect(&socket, &address).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(Stream::Plain(socket)) }
    }

    /// Connects as a client of HTTPS; it greets with what it says first.
    pub fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let name = ServerName::from(address.ip());
        let tls = ClientConnection::new(config.clone(), name).unwrap();
        let stream = StreamOwned::new(tls, patient(address));
        Self { stream: BufReader::new(Stream::Tls(Box::new(stream))) }
    }

    pub fn socket(&self) -> &TcpStream {
        match self.stream.get_ref() {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    #[track_caller]
    pub fn tls(&self) -> &ClientConnection {
        match self.stream.get_ref() {
            Stream::Plain(_) => panic!("it speaks no TLS"),
            Stream::Tls(stream) => &stream.conn,
        }
    }

    /// Changes the keys (KeyUpdate); what is said next is encrypted with new ones.
    pub fn change_keys(&mut self) {
        if let Stream::Tls(stream) = self.stream.get_mut() {
            stream.conn.refresh_traffic_keys().unwrap();
        }
    }

    /// Ends TLS's direction to the server, and not that of TCP.
    pub fn say_goodbye(&mut self) {
        if let Stream::Tls(stream) = self.stream.get_mut() {
            stream.conn.send_close_notify();
            stream.flush().unwrap();
        }
    }

    /// Sends bytes; false where the server does not take them any longer.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Reads the next answer; `None` where the server closed instead.
    pub fn answer(&mut self, body: Body) -> Option<Answer> {
        let mut answer = Answer { status: self.status()?, ..Answer::default() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else { break };
            answer.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let len_bytes = match (body, answer.status) {
            (Body::None, _) | (_, 204 | 304) => Some(0),
            _ => answer.field("content-length").map(|value| value.parse().unwrap()),
        };
        match len_bytes {
            Some(len_bytes) => {
                self.stream.by_ref().take(len_bytes).read_to_end(&mut answer.body).ok()?;
                assert_eq!(answer.body.len() as u64, len_bytes, "cut: {:?}", answer.fields);
            }
            None => {
                self.stream.read_to_end(&mut answer.body).ok()?;
            }
        }
        Some(answer)
    }

    fn status(&mut self) -> Option<u16> {
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0].starts_with("HTTP/1."), "{line}");
        words[1].parse().ok()
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    /// Reads what comes next, whatever it is.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }

    /// Whether the server said that it ends, and sent nothing before: over TLS it is no cut.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0))
    }

    /// Whether the server closed, and sent nothing before.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0]), Ok(0) | Err(_))
    }

    /// Asks for a target over this connection and reads the answer.
    pub fn get(&mut self, target: &str, fields: &str) -> Answer {
        assert!(self.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")));
        self.answer(Body::AsTold).expect("an answer")
    }
}

fn patient(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    // As every client of HTTP sets it: a request behind a greeting would wait for the latter's
    // acknowledgement.
    socket.set_nodelay(true).unwrap();
    socket
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| &value[..])
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
