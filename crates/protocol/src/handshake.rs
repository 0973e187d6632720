//! Handshake of a session: version, capabilities, who asks, and what for.

use crate::{
    CAPABILITIES, CAPABILITY_TOLD_KEYS, CLIENT_CAPABILITIES, Message, ProtocolError, VERSION_MAX,
    VERSION_MIN,
    message::{Fault, FaultCode, Hello, HelloReply, Open, Opened, Side},
};
use alloc::{format, string::String, vec::Vec};

/// The client's part of a handshake: says hello and opens at once, without waiting for the reply.
#[derive(Debug)]
pub struct ClientHandshake {
    lists_told_keys: bool,
    reply: Option<HelloReply>,
}

/// The session that a server granted.
#[derive(Clone, Debug, PartialEq)]
pub struct Granted {
    pub version: u32,
    /// Capabilities that both sides have.
    pub capabilities: Vec<u32>,
    pub software: String,
    pub opened: Opened,
}

impl ClientHandshake {
    /// Starts a handshake, and returns the messages to send.
    #[must_use]
    pub fn start(software: &str, open: Open) -> (Self, [Message; 2]) {
        Self::start_listing(CLIENT_CAPABILITIES, software, open)
    }

    /// Starts the handshake of a client that lists these capabilities, and returns the messages to
    /// send.
    #[must_use]
    pub fn start_listing(capabilities: &[u32], software: &str, open: Open) -> (Self, [Message; 2]) {
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            capabilities: capabilities.to_vec(),
            software: software.into(),
        };
        let lists_told_keys = capabilities.contains(&CAPABILITY_TOLD_KEYS);
        (Self { lists_told_keys, reply: None }, [Message::Hello(hello), Message::Open(open)])
    }

    /// The greeting of the server, before it opened the session.
    #[must_use]
    pub fn reply(&self) -> Option<&HelloReply> {
        self.reply.as_ref()
    }

    /// Takes a message; `Some` once the session is open.
    ///
    /// # Errors
    /// The server's own fault when it refused, ours when it said something else.
    pub fn handle(&mut self, message: Message) -> Result<Option<Granted>, Fault> {
        match (message, self.reply.take()) {
            (Message::Refused(fault), _) => Err(fault),
            (Message::HelloReply(reply), None) => {
                if !(VERSION_MIN..=VERSION_MAX).contains(&reply.version) {
                    return Err(version_fault(reply.version, reply.version, &reply.software));
                }
                self.reply = Some(reply);
                Ok(None)
            }
            (Message::Opened(opened), Some(reply)) => {
                self.check_told_keys(&reply, &opened).map_err(|error| error.to_fault())?;
                let HelloReply { version, capabilities, software } = reply;
                Ok(Some(Granted { version, capabilities, software, opened }))
            }
            _ => Err(ProtocolError::new("a message out of order in the handshake").to_fault()),
        }
    }

    /// Refuses keys that were not asked for or announced, and their absence where they were.
    fn check_told_keys(&self, reply: &HelloReply, opened: &Opened) -> Result<(), ProtocolError> {
        let are_announced = reply.capabilities.contains(&CAPABILITY_TOLD_KEYS);
        let refusal = match (self.lists_told_keys, are_announced, opened.data_keys.is_some()) {
            (false, true, _) => "a reply with capability 4, which the hello does not list",
            (_, false, true) => "data keys without capability 4 in the reply",
            (true, true, false) => "a reply with capability 4, and a session without data keys",
            (true, true, true) | (_, false, false) => return Ok(()),
        };
        Err(ProtocolError::new(refusal))
    }
}

/// The server's part of a handshake.
#[derive(Debug, Default)]
pub struct ServerHandshake {
    hello: Option<Hello>,
}

/// The next action that a server's handshake asks of its owner.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerStep {
    /// Sends this message and goes on.
    Reply(Message),
    /// The client opens the session: check the token, then answer `Opened` or `Refused`.
    Open { software: String, capabilities: Vec<u32>, open: Open },
}

impl ServerHandshake {
    /// Takes a message of the client, and returns what to do.
    ///
    /// # Errors
    /// The fault to send before closing.
    pub fn handle(&mut self, message: Message, software: &str) -> Result<ServerStep, Fault> {
        match (message, self.hello.take()) {
            (Message::Hello(hello), None) => {
                let version = hello.version_max.min(VERSION_MAX);
                if version < hello.version_min.max(VERSION_MIN) {
                    let range = (hello.version_min, hello.version_max);
                    return Err(version_fault(range.0, range.1, &hello.software));
                }
                let capabilities = common(&hello.capabilities);
                self.hello = Some(hello);
                let software = software.into();
                let reply = HelloReply { version, capabilities, software };
                Ok(ServerStep::Reply(Message::HelloReply(reply)))
            }
            (Message::Open(open), Some(hello)) => {
                let capabilities = common(&hello.capabilities);
                Ok(ServerStep::Open { software: hello.software, capabilities, open })
            }
            _ => Err(ProtocolError::new("a message out of order in the handshake").to_fault()),
        }
    }
}

/// Finds the capabilities of this build among these.
fn common(theirs: &[u32]) -> Vec<u32> {
    CAPABILITIES.iter().copied().filter(|ours| theirs.contains(ours)).collect()
}

fn version_fault(min: u32, max: u32, software: &str) -> Fault {
    let theirs = if min == max { format!("{max}") } else { format!("{min} to {max}") };
    Fault::new(FaultCode::Version, Side::Unknown, "the versions do not meet")
        .needs(format!("protocol version {VERSION_MIN} to {VERSION_MAX}"))
        .found(format!("a peer that speaks version {theirs} ({software})"))
        .hint("install the same haul version on both ends")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::DATA_KEYS_BYTES,
        message::{DataKeys, Ping},
    };

    fn open() -> Open {
        Open {
            token_secret: crate::message::Secret([1; 16]),
            transfer: [2; 16],
            ..Default::default()
        }
    }

    #[test]
    fn both_sides_meet() {
        let (mut client, [hello, opening]) = ClientHandshake::start("haul test", open());
        let mut server = ServerHandshake::default();
        let Ok(ServerStep::Reply(reply)) = server.handle(hello, "haul server") else { panic!() };
        let Ok(ServerStep::Open { software, open: asked, .. }) = server.handle(opening, "") else {
            panic!()
        };
        assert_eq!((software.as_str(), asked), ("haul test", open()));
        assert_eq!(client.reply(), None);
        assert_eq!(client.handle(reply), Ok(None));
        let greeted = client.reply().map(|reply| reply.software.as_str());
        assert_eq!(greeted, Some("haul server"));
        let opened = Opened { session: [3; 16], streams: 2, ..Default::default() };
        let granted = client.handle(Message::Opened(opened)).expect("accepted").expect("open");
        assert_eq!((granted.version, granted.software.as_str()), (1, "haul server"));
    }

    /// Opens a session with these capabilities in the hello and the reply, with told keys or not.
    fn granted(hello: &[u32], reply: &[u32], is_told: bool) -> Result<Option<Granted>, Fault> {
        let (mut client, _) = ClientHandshake::start_listing(hello, "x", open());
        let capabilities = reply.to_vec();
        let reply = HelloReply { version: VERSION_MAX, capabilities, ..Default::default() };
        assert_eq!(client.handle(Message::HelloReply(reply)), Ok(None));
        let data_keys = is_told.then_some(DataKeys([4; DATA_KEYS_BYTES]));
        client.handle(Message::Opened(Opened { data_keys, ..Default::default() }))
    }

    #[test]
    fn keys_are_told_to_a_client_that_asked_and_to_no_other() {
        let other = &[1, 2, 3][..];
        let told = &[1, 4][..];
        for (hello, reply, is_told) in [(told, told, true), (told, other, false)] {
            let granted = granted(hello, reply, is_told).expect("accepted").expect("open");
            assert_eq!(granted.opened.data_keys.is_some(), is_told);
        }
        for (hello, reply, is_told, words) in [
            (told, told, false, "a session without data keys"),
            (told, other, true, "data keys without capability 4"),
            (other, other, true, "data keys without capability 4"),
            (other, told, true, "which the hello does not list"),
            (other, told, false, "which the hello does not list"),
        ] {
            let fault = granted(hello, reply, is_told).unwrap_err();
            assert_eq!(fault.code, FaultCode::ProtocolViolation, "{words}");
            assert!(fault.what.contains(words), "{fault:?}");
        }
    }

    #[test]
    fn a_client_lists_no_told_keys_and_a_server_has_them_for_those_that_do() {
        let (_, [hello, _]) = ClientHandshake::start("x", open());
        let Message::Hello(hello) = hello else { panic!() };
        assert!(!hello.capabilities.contains(&CAPABILITY_TOLD_KEYS));
        for capabilities in [hello.capabilities, [9, CAPABILITY_TOLD_KEYS].to_vec()] {
            let lists = capabilities.contains(&CAPABILITY_TOLD_KEYS);
            let hello =
                Hello { version_min: 1, version_max: 1, capabilities, ..Default::default() };
            let mut server = ServerHandshake::default();
            let Ok(ServerStep::Reply(Message::HelloReply(reply))) =
                server.handle(Message::Hello(hello), "x")
            else {
                panic!()
            };
            assert_eq!(reply.capabilities.contains(&CAPABILITY_TOLD_KEYS), lists);
        }
    }

    #[test]
    fn told_keys_are_never_printed() {
        let data_keys = Some(DataKeys([0xab; DATA_KEYS_BYTES]));
        let message = Message::Opened(Opened { data_keys, ..Default::default() });
        let printed = alloc::format!("{message:?} {message:#?}");
        assert!(printed.contains("DataKeys(..)"), "{printed}");
        assert!(
            !printed.contains("171") && !printed.to_lowercase().contains("ab, ab"),
            "{printed}"
        );
    }

    #[test]
    fn a_peer_of_another_version_gets_a_clear_answer() {
        let hello = Hello { version_min: 7, version_max: 9, ..Default::default() };
        let fault = ServerHandshake::default().handle(Message::Hello(hello), "x").unwrap_err();
        assert_eq!(fault.code, FaultCode::Version);
        assert!(fault.found.contains("7 to 9"), "{}", fault.found);
    }

    #[test]
    fn nothing_but_hello_opens_a_session() {
        let mut server = ServerHandshake::default();
        assert!(server.handle(Message::Open(open()), "x").is_err());
        assert!(server.handle(Message::Ping(Ping { number: 1 }), "x").is_err());
    }
}
