//! HTTP/1.1 as a server of files needs it (RFC 9110, 9112).
//!
//! Requests go in, heads and parts of files come out. No sockets, no files, no clock.

pub mod condition;
pub mod content_type;
pub mod host_names;
pub mod range;
pub mod request;
pub mod response;
