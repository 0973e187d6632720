//! Reasons why a connection was not let in, in the words of the server's log.

use std::io;

use haul_protocol::ProtocolError;

use crate::{problem::Problem, transport::control::ControlError};

/// The end of a connection that did not become a session, a data stream or a probe.
#[derive(Debug, thiserror::Error)]
pub enum NotLetIn {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("handshake: {0}")]
    Handshake(ControlError),
    /// The control connection of a probe broke.
    #[error("{0}")]
    Control(ControlError),
    /// The client was refused, and told why.
    #[error("{0}")]
    Refused(Box<Problem>),
    #[error("it speaks HTTP")]
    Http,
    #[error("its first byte is {0:#04x}, neither TLS nor data")]
    FirstByte(u8),
    #[error("{}", .0.what)]
    Preface(ProtocolError),
    #[error("a data stream of no open session, or with a wrong MAC")]
    UnknownStream,
    #[error("a data stream too many, or one that was opened before")]
    StreamTooMany,
    /// The connection was drawn by lot, to make room for another.
    #[error("it had not shown who it is when others needed its place")]
    MadeRoom,
}
