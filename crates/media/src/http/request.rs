//! Head of an HTTP request, read as bytes come in.

use super::condition::Conditions;

/// Most bytes of request line and fields together. Browsers send some 2 KiB with their cookies.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
pub const TARGET_BYTES_MAX: usize = 8 << 10;
const FIELDS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    /// OPTIONS, asked by a browser before it reads from another site (CORS).
    Options,
    /// Any other method: known or not, a server of files has no answer to it.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: Method,
    /// The first line as it came, for the log.
    pub line: String,
    pub target: Target,
    pub is_http_1_0: bool,
    /// The connection stays for another request.
    pub is_kept: bool,
    pub range: Option<Vec<u8>>,
    pub conditions: Conditions,
    pub host: Option<String>,
    /// Origin of another site whose page asks (CORS).
    pub origin: Option<String>,
    pub referer: Option<String>,
    pub user_agent: Option<String>,
    /// Length of the body that follows the head, and is thrown away before the next request begins.
    pub body_bytes: u64,
}

/// The target of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Path, decoded, without dots and doubled slashes; begins with a slash.
    pub path: Vec<u8>,
    /// Query behind the question mark, as it came.
    pub query: String,
}

/// A fault of a request: the connection is closed after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Answer 400: the request cannot be understood.
    Malformed,
    /// Answer 414: the target is too long.
    TargetTooLong,
    /// Answer 431: the head has too many bytes or fields.
    HeadTooLong,
    /// Answer 501: the body comes in an encoding that is not known.
    Encoding,
    /// Answer 505: the version of HTTP is not known.
    Version,
}

impl Refused {
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::TargetTooLong => 414,
            Self::HeadTooLong => 431,
            Self::Encoding => 501,
            Self::Version => 505,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// More bytes of the head are to come.
    Incomplete,
    /// A request, and how many bytes its head has.
    Whole(Box<Request>, usize),
}

/// Reads what has come of a request so far.
///
/// # Errors
/// Why there is no answer to it.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Refused> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let len_bytes = match head.parse(bytes) {
        Ok(httparse::Status::Complete(len_bytes)) if len_bytes <= HEAD_BYTES_MAX => len_bytes,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => {
            let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let is_long = line.len() > TARGET_BYTES_MAX + 32;
            return if is_long { Err(Refused::TargetTooLong) } else { Ok(Parsed::Incomplete) };
        }
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(Refused::HeadTooLong),
        // A later minor version is to be read as the one that is known (RFC 9110, 2.5).
        Err(httparse::Error::Version) => {
            return as_http_1_1(bytes).map_or_else(|| Err(version_refused(bytes)), |b| parse(&b));
        }
        Err(_) => return Err(Refused::Malformed),
    };
    let method = match head.method.unwrap_or_default() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "OPTIONS" => Method::Options,
        name if name.bytes().all(|byte| byte.is_ascii_uppercase() || b"_-".contains(&byte)) => {
            Method::Other
        }
        _ => return Err(Refused::Malformed),
    };
    let raw = head.path.unwrap_or_default();
    if raw.len() > TARGET_BYTES_MAX {
        return Err(Refused::TargetTooLong);
    }
    let is_http_1_0 = head.version == Some(0);
    // The server as a whole, and no file (RFC 9112, 3.2.4).
    if raw == "*" && matches!(method, Method::Get | Method::Head) {
        return Err(Refused::Malformed);
    }
    let target = target(raw).ok_or(Refused::Malformed)?;
    let mut request = Request {
        method,
        line: format!(
            "{} {raw} HTTP/1.{}",
            head.method.unwrap_or_default(),
            u8::from(!is_http_1_0)
        ),
        target,
        is_http_1_0,
        is_kept: !is_http_1_0,
        range: None,
        conditions: Conditions::default(),
        host: None,
        origin: None,
        referer: None,
        user_agent: None,
        body_bytes: 0,
    };
    read_fields(&mut request, head.headers)?;
    // RFC 9112, 3.2: a request of HTTP/1.1 without a host is answered with 400.
    if request.host.is_none() && !is_http_1_0 {
        return Err(Refused::Malformed);
    }
    if let Some(authority) = authority(raw) {
        // It replaces the field (RFC 9112, 3.2.2), so it is held to the same check.
        request.host = Some(host_of(authority).ok_or(Refused::Malformed)?);
    }
    Ok(Parsed::Whole(Box::new(request), len_bytes))
}

/// Bytes of a request with `HTTP/1.1` in the place of `HTTP/1.2` and later.
fn as_http_1_1(bytes: &[u8]) -> Option<Vec<u8>> {
    let line = bytes.split(|&byte| byte == b'\n').next()?.trim_ascii_end();
    let [before @ .., b'2'..=b'9'] = line else { return None };
    before.ends_with(b" HTTP/1.").then(|| {
        let mut bytes = bytes.to_vec();
        bytes[before.len()] = b'1';
        bytes
    })
}

/// Answer to a version that is not read: `HTTP/2.0` is a version, and `HTTQ/1.1` is none.
fn version_refused(bytes: &[u8]) -> Refused {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let last = line.trim_ascii_end().rsplit(|&byte| byte == b' ').next().unwrap_or_default();
    match last.strip_prefix(b"HTTP/") {
        Some([major @ b'2'..=b'9', b'.', minor]) if minor.is_ascii_digit() && *major > b'1' => {
            Refused::Version
        }
        _ => Refused::Malformed,
    }
}

fn read_fields(request: &mut Request, fields: &[httparse::Header<'_>]) -> Result<(), Refused> {
    let (mut length, mut is_chunked, mut is_closed) = (None, false, false);
    for field in fields {
        let value = field.value.trim_ascii();
        let own = || Some(value.to_vec());
        let text = || Some(String::from_utf8_lossy(value).into_owned());
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("host") {
            // Two hosts are two requests to two readers (RFC 9112, 3.2).
            if request.host.is_some() || !is_host(value) {
                return Err(Refused::Malformed);
            }
            request.host = text();
        } else if is("connection") {
            for word in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                // Whatever else is said (RFC 9112, 9.3).
                if word.eq_ignore_ascii_case(b"close") {
                    is_closed = true;
                } else if word.eq_ignore_ascii_case(b"keep-alive") {
                    request.is_kept = true;
                }
            }
        } else if is("range") {
            request.range = request.range.take().or_else(own);
        } else if let Some(condition) = condition(&mut request.conditions, field.name) {
            // Which of two is meant is anybody's guess.
            if condition.replace(value.to_vec()).is_some() {
                return Err(Refused::Malformed);
            }
        } else if is("origin") {
            request.origin = text();
        } else if is("referer") {
            request.referer = text();
        } else if is("user-agent") {
            request.user_agent = text();
        } else if is("content-length") {
            let number = std::str::from_utf8(value)
                .ok()
                .filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
            let number: u64 =
                number.and_then(|text| text.parse().ok()).ok_or(Refused::Malformed)?;
            if length.replace(number).is_some() {
                return Err(Refused::Malformed);
            }
        } else if is("transfer-encoding") {
            if is_chunked {
                return Err(Refused::Malformed);
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Refused::Encoding);
            }
            is_chunked = true;
        }
    }
    // Both are how one request is smuggled within another (RFC 9112, 6.1).
    if is_chunked && length.is_some() {
        return Err(Refused::Malformed);
    }
    request.body_bytes = length.unwrap_or(0);
    // A body of unknown length is not read, so nothing can follow it.
    request.is_kept &= !is_chunked && !is_closed;
    Ok(())
}

/// Place for a field of this name, if it is a condition.
fn condition<'one>(
    conditions: &'one mut Conditions,
    name: &str,
) -> Option<&'one mut Option<Vec<u8>>> {
    let Conditions { if_match, if_none_match, if_modified_since, if_unmodified_since, if_range } =
        conditions;
    [
        ("if-match", if_match),
        ("if-none-match", if_none_match),
        ("if-modified-since", if_modified_since),
        ("if-unmodified-since", if_unmodified_since),
        ("if-range", if_range),
    ]
    .into_iter()
    .find_map(|(known, slot)| known.eq_ignore_ascii_case(name).then_some(slot))
}

fn is_host(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'/')
}

/// Host of a target without a user, which no target of HTTP has (RFC 9110, 4.2.4).
fn host_of(authority: &str) -> Option<String> {
    let is_plain = is_host(authority.as_bytes()) && !authority.contains('@');
    is_plain.then(|| authority.to_owned())
}

/// Reads a target: `/films/a%20b.mp4?rate=2M`, `http://host/films/`, or `*` of OPTIONS. `None`
/// where it leads above the root, or hides a byte that no file name has.
fn target(raw: &str) -> Option<Target> {
    let raw = raw.split('#').next().unwrap_or_default();
    let local = match authority_and_rest(raw) {
        Some((_, "")) => "/",
        Some((_, rest)) => rest,
        None => raw,
    };
    let (path, query) = local.split_once('?').unwrap_or((local, ""));
    let path = match path {
        "*" | "" => b"/".to_vec(),
        path => normal(&decoded(path)?)?,
    };
    Some(Target { path, query: query.to_owned() })
}

/// The host of a target in absolute form, which is for proxies, and to be understood by all (RFC
/// 9112, 3.2.2).
fn authority(raw: &str) -> Option<&str> {
    authority_and_rest(raw.split('#').next()?).map(|(authority, _)| authority)
}

/// Host and port of the absolute form, and what stands behind them.
fn authority_and_rest(raw: &str) -> Option<(&str, &str)> {
    let (_, rest) = raw.split_once("://").filter(|(scheme, _)| is_scheme(scheme))?;
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Decodes the percent signs of a path: `%41` is `A`. No name holds a NUL.
fn decoded(path: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, behind @ ..] = rest else { return None };
        rest = behind;
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let byte = u8::try_from(digit(high)? * 16 + digit(low)?).ok()?;
        bytes.push(byte);
    }
    (!bytes.contains(&0)).then_some(bytes)
}

/// Path in its normal form: slashes once, `.` left out, `..` one up and never above the root.
fn normal(path: &[u8]) -> Option<Vec<u8>> {
    let path = path.strip_prefix(b"/")?;
    let mut names: Vec<&[u8]> = Vec::new();
    let mut ends_with_slash = path.is_empty();
    for name in path.split(|&byte| byte == b'/') {
        ends_with_slash = matches!(name, b"" | b"." | b"..");
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    let mut normal = vec![b'/'];
    normal.extend_from_slice(&names.join(&b'/'));
    if ends_with_slash && !names.is_empty() {
        normal.push(b'/');
    }
    Some(normal)
}

impl Target {
    /// Whether the query has this name, whatever it says of it.
    #[must_use]
    pub fn names(&self, name: &str) -> bool {
        self.query.split('&').any(|pair| pair.split('=').next() == Some(name))
    }

    /// The value of `name` in the query, where it is given.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(known, _)| *known == name)?.1;
        decoded(value).and_then(|bytes| String::from_utf8(bytes).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Ok(Parsed::Whole(request, len_bytes)) => {
                assert_eq!(len_bytes, text.find("\r\n\r\n").unwrap() + 4);
                *request
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn path(raw: &str) -> Option<String> {
        target(raw).map(|target| String::from_utf8(target.path).unwrap())
    }

    /// A page of another site could name itself in the target, and a good host in the field.
    #[test]
    fn the_host_of_an_absolute_target_replaces_the_fields() {
        let host = |target: &str| {
            let text = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            match parse(text.as_bytes()) {
                Ok(Parsed::Whole(request, _)) => request.host,
                _ => None,
            }
        };
        assert_eq!(host("/films/").as_deref(), Some("localhost"));
        assert_eq!(host("/films/?next=http://other.example/").as_deref(), Some("localhost"));
        for target in ["http://evil.example:8080/films/", "HTTP://evil.example:8080?rate=2M"] {
            assert_eq!(host(target).as_deref(), Some("evil.example:8080"), "{target}");
        }
        for malformed in ["http:///films/", "http://localhost@evil.example/"] {
            assert_eq!(host(malformed), None, "{malformed}");
        }
        let without = "GET http://localhost/ HTTP/1.1\r\n\r\n";
        assert!(parse(without.as_bytes()).is_err(), "the field is wanted all the same");
    }

    #[test]
    fn a_request_of_a_player_is_read() {
        let text = "GET /films/a%20b.mp4?rate=2M&x=%31 HTTP/1.1\r\nHost: example.org\r\n\
            User-Agent: VLC\r\nRange: bytes=5-\r\nif-range: \"a\"\r\n\r\nGET /next";
        let Ok(Parsed::Whole(request, _)) = parse(text.as_bytes()) else { panic!() };
        assert_eq!(request.target.path, b"/films/a b.mp4");
        assert_eq!(request.target.parameter("rate").as_deref(), Some("2M"));
        assert_eq!(request.target.parameter("x").as_deref(), Some("1"));
        assert_eq!(request.target.parameter("y"), None);
        assert_eq!(request.range.as_deref(), Some(&b"bytes=5-"[..]));
        assert_eq!(request.conditions.if_range.as_deref(), Some(&b"\"a\""[..]));
        assert!(request.is_kept && request.method == Method::Get);
    }

    #[test]
    fn a_later_minor_version_is_read_as_the_one_that_is_known() {
        assert_eq!(request("GET /a HTTP/1.7\r\nHost: a\r\n\r\n").target.path, b"/a");
        for text in ["", "\n", "GET / HTTP/1.", "GET / HTTP/1.x\r\n\r\n", "GET /HTTP/1.2\r\n\r\n"] {
            assert!(!matches!(parse(text.as_bytes()), Ok(Parsed::Whole(..))), "{text}");
        }
    }

    #[test]
    fn the_connection_stays_as_both_want_it() {
        for (line, fields, is_kept) in [
            ("GET / HTTP/1.1", "Host: a\r\n", true),
            ("GET / HTTP/1.1", "Host: a\r\nConnection: Close\r\n", false),
            ("GET / HTTP/1.1", "Host: a\r\nConnection: close, keep-alive\r\n", false),
            ("GET / HTTP/1.0", "", false),
            ("GET / HTTP/1.0", "Connection: foo, keep-alive\r\n", true),
            ("GET / HTTP/1.1", "Host: a\r\nTransfer-Encoding: chunked\r\n", false),
        ] {
            assert_eq!(request(&format!("{line}\r\n{fields}\r\n")).is_kept, is_kept, "{fields}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_by_its_kind() {
        let long = |bytes: usize| "a".repeat(bytes);
        for (text, refused) in [
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET / HTTP/1.1\r\nHost:\r\n\r\n".to_owned(), Refused::Malformed),
            ("get / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), Refused::Version),
            ("GET / HTTQ/1.1\r\nHost: a\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET /%0 HTTP/1.0\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET /%00 HTTP/1.0\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET /a/../.. HTTP/1.0\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET a HTTP/1.0\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET * HTTP/1.0\r\n\r\n".to_owned(), Refused::Malformed),
            (
                "GET / HTTP/1.0\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
                    .to_owned(),
                Refused::Malformed,
            ),
            ("GET / HTTP/1.0\r\nContent-Length: -1\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET / HTTP/1.0\r\nIf-Match: a\r\nIf-Match: a\r\n\r\n".to_owned(), Refused::Malformed),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(), Refused::Encoding),
            ("\x16\x03\x01\x02".to_owned(), Refused::Malformed),
            (format!("GET /{}", long(9000)), Refused::TargetTooLong),
            (format!("GET / HTTP/1.0\r\nA: {}", long(17000)), Refused::HeadTooLong),
            (format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(101)), Refused::HeadTooLong),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(refused), "{:.60}", text);
        }
    }

    #[test]
    fn a_head_in_pieces_is_waited_for() {
        let text = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..cut]), Ok(Parsed::Incomplete), "{cut}");
        }
        assert!(matches!(parse(text.as_bytes()), Ok(Parsed::Whole(..))));
    }

    #[test]
    fn a_path_stays_below_the_root() {
        for (raw, expected) in [
            ("/", Some("/")),
            ("//a///b", Some("/a/b")),
            ("/a/./b/", Some("/a/b/")),
            ("/a/../b", Some("/b")),
            ("/a/b/..", Some("/a/")),
            ("/a/..", Some("/")),
            ("/..", None),
            ("/%2e%2e/a", None),
            ("/a/%2E%2E/%2e%2E/b", None),
            ("/a?b/../c", Some("/a")),
            ("/a#b", Some("/a")),
            ("http://host:80/a", Some("/a")),
            ("http://host", Some("/")),
            ("http://host?x=/", Some("/")),
            ("://host/a", None),
            ("*", Some("/")),
            ("/%E4", None),
        ] {
            if raw == "/%E4" {
                assert_eq!(target(raw).unwrap().path, b"/\xe4");
            } else {
                assert_eq!(path(raw).as_deref(), expected, "{raw}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_more_than_refused(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_path_has_a_way_up(raw in "/[./a%2eE]{0,24}") {
            if let Some(target) = target(&raw) {
                let mut names = target.path.split(|&byte| byte == b'/');
                proptest::prop_assert!(!names.any(|name| name == b".."));
            }
        }
    }
}
