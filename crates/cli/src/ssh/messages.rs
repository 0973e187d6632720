//! Messages between both ends of ssh: one request, and answers.
//!
//! Fields that a reader does not know are skipped, so that newer ends can say more.

use super::{ports::Ports, send_order::SendOrder};
use haul_transfer::{HaulUrl, Problem, Rights, SOFTWARE};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Version of these messages; an end that needs more than the other can refuses it.
pub const VERSION: u32 = 1;

/// The kind of a copy, which decides the rights of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    Push,
    Pull,
    List,
    /// A push from there to another machine.
    Send,
}

/// Request of the near end, on the standard input of the far end.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub version: u32,
    pub software: String,
    pub purpose: Purpose,
    /// Whether something is removed: extra files of a target, or sources that were moved.
    #[serde(default)]
    pub removes: bool,
    /// Rights that a push to it needs, where another machine than the near end has the token: it
    /// gets no others. `None` where the near end sends itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_another: Option<NeededRights>,
    /// Paths as the user wrote them, percent-encoded; a push has one.
    pub paths: Vec<EncodedPath>,
    /// Ports that the server may take; any free one where there are none.
    #[serde(default)]
    pub ports: Option<Ports>,
    /// Time that a server waits, once ssh is gone, for a client that comes back.
    #[serde(default)]
    pub grace_ms: u64,
    /// The place to send to, where that is the purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<SendOrder>,
}

/// Rights that a push needs beside the right to write, by its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeededRights {
    /// Names of the target are told.
    pub list: bool,
    /// Content of the target is told, as by its digest.
    pub read: bool,
}

impl Request {
    /// Rights that the token of this copy has. A push is told what is there, as with the URL that
    /// `haul serve` prints; one by another machine is told no more than it needs.
    #[must_use]
    pub fn rights(&self) -> Rights {
        let delete = self.removes;
        match self.purpose {
            Purpose::Push if self.of_another.is_some() => {
                let NeededRights { list, read } = self.of_another.unwrap_or_default();
                Rights { write: true, list, read, delete }
            }
            Purpose::Push => Rights { delete, ..Rights::ALL },
            Purpose::Pull => Rights { delete, ..Rights::READ_ONLY },
            Purpose::List => Rights { list: true, ..Rights::NONE },
            Purpose::Send => Rights::NONE,
        }
    }

    /// The paths, once it is clear that this haul knows all that is asked for.
    ///
    /// # Errors
    /// If the near end needs more, or names no path.
    pub fn checked_paths(&self) -> Result<Vec<Vec<u8>>, Problem> {
        if self.version > VERSION {
            let needs = format!("version {VERSION} of the start over ssh, which {SOFTWARE} has");
            let found = format!("version {} of {}", self.version, self.software);
            let hint = "install the newer haul there, too";
            return Err(Problem::in_general("cannot begin over ssh", &needs, &found, hint));
        }
        let paths: Option<Vec<Vec<u8>>> = self.paths.iter().map(EncodedPath::bytes).collect();
        paths.filter(|paths| !paths.is_empty()).ok_or_else(|| {
            let found = "a request without one";
            Problem::in_general("cannot begin over ssh", "a path to serve", found, "")
        })
    }
}

/// Answer of the far end, on its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Started(Start),
    Refused(Refusal),
    Lacks(Lacks),
    Installed {},
    /// The machine that sends waits for the target's connections.
    Listens(Come),
    /// The machine that sends makes frames of channels from here on, for the target.
    Channels {},
    /// A push to another machine begins, to this address.
    Sending {
        server: String,
    },
    /// An event of that push, as `--json` has it.
    Told(Value),
    Ended(Box<PushEnded>),
}

/// The end of a push to another machine, with its report or its problem as `--json` has them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PushEnded {
    Done(Value),
    NotStarted(Value),
    Broken(Value),
    Interrupted,
}

/// Words of a machine that has no haul and waits for one on standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct Lacks {
    /// The directory that the copy will be in, to be shown.
    pub directory: String,
}

/// A server that has begun, and the way into it.
#[derive(Serialize, Deserialize)]
pub struct Start {
    pub version: u32,
    pub software: String,
    pub token: String,
    pub port: u16,
    /// Addresses to try, the best first.
    pub addresses: Vec<String>,
    /// Paths of the request as the server's URLs have them, in the same order.
    pub paths: Vec<EncodedPath>,
    /// The directory that is served, to be shown.
    pub root: EncodedPath,
    /// Time that the server waits, once ssh is gone, for a client that comes back.
    pub grace_ms: u64,
    /// Whether this end takes orders of another way for the data; an older one does not.
    #[serde(default)]
    pub takes_orders: bool,
}

/// An order of the near end, behind its request: another way for the data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Come to the near end, which listens, or to the machine that sends.
    Come(Come),
    /// Make the frames of channels of both directions, from here on.
    Channels,
}

/// A listener, and how it knows that nobody else comes.
#[derive(Serialize, Deserialize)]
pub struct Come {
    pub port: u16,
    /// Addresses to try, behind the one that ssh has come from unless the listener is elsewhere.
    pub addresses: Vec<String>,
    /// 32 bytes as hexadecimal digits.
    pub secret: String,
    /// Whether the listener is not at the address that ssh has come from: another machine than the
    /// near end listens, or ssh comes by a jump host or a tunnel.
    #[serde(default)]
    pub is_elsewhere: bool,
}

impl Come {
    /// The secret; `None` where the text is none.
    #[must_use]
    pub fn secret_bytes(&self) -> Option<[u8; 32]> {
        let digits = self.secret.as_bytes();
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        if digits.len() != 64 {
            return None;
        }
        let mut secret = [0; 32];
        for (at, byte) in secret.iter_mut().enumerate() {
            *byte = u8::try_from(digit(2 * at)? * 16 + digit(2 * at + 1)?).ok()?;
        }
        Some(secret)
    }
}

/// Shows no secret.
impl fmt::Debug for Come {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Come({:?}, port {})", self.addresses, self.port)
    }
}

/// Shows no token.
impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { software, port, addresses, paths, .. } = self;
        write!(f, "Start({software}, {addresses:?}, port {port}, {paths:?})")
    }
}

/// Words of a far end that could not begin.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    pub software: String,
    pub what: String,
    pub needs: String,
    pub found: String,
    pub hint: String,
}

impl Refusal {
    #[must_use]
    pub fn of(problem: Problem) -> Self {
        let Problem { what, needs, found, hint, .. } = problem;
        Self { software: SOFTWARE.to_owned(), what, needs, found, hint }
    }
}

/// A path as text: what is no printable ASCII is percent-encoded, as in a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodedPath(String);

impl EncodedPath {
    #[must_use]
    pub fn of(path: &[u8]) -> Self {
        let (host, path) = ("h".into(), path.to_vec());
        let url = HaulUrl { token: None, host, port: 1, path, proxy: None };
        Self(url.to_string().split_off("haul://h:1/".len()))
    }

    /// The bytes of the path; `None` where the text is none.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        format!("haul://h:1/{}", self.0).parse::<HaulUrl>().ok().map(|url| url.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token of a copy between two others is in the hands of a third machine.
    #[test]
    fn a_machine_that_sends_for_another_may_write_and_what_its_options_need() {
        let asked = |of_another, removes| {
            let mut request: Request = serde_json::from_str(
                r#"{"version":1,"software":"x","purpose":"push","paths":["a"]}"#,
            )
            .unwrap();
            (request.of_another, request.removes) = (of_another, removes);
            request.rights()
        };
        let write = Rights { write: true, ..Rights::NONE };
        assert_eq!(asked(Some(NeededRights::default()), false), write);
        let list = Some(NeededRights { list: true, read: false });
        assert_eq!(asked(list, true), Rights { list: true, delete: true, ..write });
        let read = Some(NeededRights { list: false, read: true });
        assert_eq!(asked(read, false), Rights { read: true, ..write });
        assert_eq!(asked(None, false), Rights { delete: false, ..Rights::ALL });
    }

    #[test]
    fn every_path_comes_through_as_it_is() {
        for path in [&b""[..], b"/a b%20/\xff\n", b"//x", b"?*[", b"a@b:1/c", "\u{e4}".as_bytes()] {
            assert_eq!(EncodedPath::of(path).bytes().as_deref(), Some(path));
        }
        assert_eq!(EncodedPath("%4".into()).bytes(), None);
    }

    #[test]
    fn a_token_has_the_rights_of_its_copy_and_no_others() {
        let request = |purpose, removes| {
            let software = SOFTWARE.to_owned();
            let (paths, ports) = (Vec::new(), None);
            let send = None;
            Request {
                version: 1,
                software,
                purpose,
                removes,
                of_another: None,
                paths,
                ports,
                grace_ms: 0,
                send,
            }
        };
        let names =
            |purpose, removes| request(purpose, removes).rights().names().collect::<Vec<_>>();
        assert_eq!(names(Purpose::List, true), ["list"]);
        assert_eq!(names(Purpose::Pull, false), ["read"]);
        assert_eq!(names(Purpose::Pull, true), ["read", "delete"]);
        assert_eq!(names(Purpose::Push, false), ["read", "write"]);
        assert_eq!(names(Purpose::Push, true), ["read", "write", "delete"]);
    }

    #[test]
    fn a_field_of_a_newer_end_is_skipped() {
        let text = r#"{"started":{"version":1,"software":"haul 9","token":"t","port":5,
            "addresses":[],"paths":["a"],"root":"/","grace_ms":1,"more":{"x":[1]}}}"#;
        let Answer::Started(start) = serde_json::from_str(text).unwrap() else { panic!() };
        assert_eq!((start.port, start.paths), (5, vec![EncodedPath("a".into())]));
        assert!(!start.takes_orders, "an end that does not say so");
    }

    #[test]
    fn a_secret_is_64_digits_and_is_not_shown() {
        let come = |secret: &str| Come {
            port: 1,
            addresses: vec![],
            secret: secret.to_owned(),
            is_elsewhere: false,
        };
        let digits = "0f".repeat(32);
        assert_eq!(come(&digits).secret_bytes(), Some([15; 32]));
        assert!(!format!("{:?}", come(&digits)).contains("0f"));
        for bad in ["", "0", &digits[1..], &format!("{}0g", &digits[2..]), &"\u{e4}".repeat(32)] {
            assert_eq!(come(bad).secret_bytes(), None, "{bad}");
        }
    }
}
