//! Data streams of a peer that sends what the test wants.
//!
//! Whole frames are made as an honest sender makes them, to be sent again, swapped or changed.

use super::PATIENCE;
use haul_datapath::SpanTap;
use haul_protocol::{
    FileId, StreamId,
    frame::{FrameHeader, PREFACE_BYTES, PayloadStatus, SpanHeader, SpanTrailer, TRAILER_BYTES},
    message::Digest,
};
use haul_transfer::internals::{SessionKeys, SpanDigest};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
};

/// Bytes of the smallest span.
pub const SPAN_BYTES: u64 = 64 << 10;

/// Connects from an address of the loopback network: the server's log tells peers apart.
pub fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let flags = SocketFlags::CLOEXEC;
    let socket: OwnedFd =
        socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    connect(&socket, &to).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Opens a data stream of a session.
pub fn open_stream(
    server: SocketAddr,
    keys: &SessionKeys,
    session: [u8; 16],
    stream: u32,
) -> TcpStream {
    let mut socket = TcpStream::connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(&keys.sign_preface(StreamId(stream), session).encode()).unwrap();
    socket
}

/// Takes the client's next data stream, and its preface.
pub fn take_stream(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; PREFACE_BYTES]).unwrap();
    stream
}

/// The header of a span in a file that is cut into the smallest.
pub fn header(stream: u32, sequence: u64, file: u32, span: u64, len_bytes: u64) -> SpanHeader {
    SpanHeader {
        file: FileId(file),
        offset_bytes: span * SPAN_BYTES,
        len_bytes,
        sequence,
        stream: StreamId(stream),
    }
}

/// A span as it goes onto the wire, in its three parts.
#[derive(Clone)]
pub struct Frame {
    pub header: SpanHeader,
    pub payload: Vec<u8>,
    pub trailer: [u8; TRAILER_BYTES],
}

impl Frame {
    pub fn new(
        keys: &Arc<SessionKeys>,
        digest: Digest,
        header: SpanHeader,
        payload: &[u8],
        status: PayloadStatus,
    ) -> Self {
        let mut span = SpanDigest::new(digest, keys);
        span.start(&header, &FrameHeader::Span(header).encode());
        if span.wants_bytes() {
            span.see(payload);
        }
        let trailer = SpanTrailer { status, digest: span.finish(status) }.encode();
        Self { header, payload: payload.to_vec(), trailer }
    }

    pub fn encode(&self) -> Vec<u8> {
        let header = FrameHeader::Span(self.header).encode();
        [&header[..], &self.payload, &self.trailer].concat()
    }
}

/// Waits until the other side closes the stream.
#[track_caller]
pub fn hear_close(mut stream: &TcpStream) {
    let mut scrap = [0; 4096];
    loop {
        match stream.read(&mut scrap) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
    }
}
