//! Answer to an HTTP request: its head as text, and a body of texts and ranges of one file.

use std::{collections::VecDeque, fmt::Write, ops::Range, sync::Arc, time::SystemTime};

use super::{
    condition::{Outcome, Validators, judge, range_holds},
    range::{Selection, select},
    request::{Method, Request},
};

const SERVER: &str = concat!("haul/", env!("CARGO_PKG_VERSION"));
/// Fields that a page of another site may see beside the simple ones (Fetch, CORS protocol).
const EXPOSED: &str = "Accept-Ranges, Content-Length, Content-Range, Date, ETag, Retry-After";

/// A piece of an answer; pieces are sent in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(Vec<u8>),
    /// A text that several answers share.
    Page(Arc<[u8]>),
    /// Range of the file that was asked for.
    File(Range<u64>),
}

impl Piece {
    /// Text of a piece; empty where it is of a file.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        match self {
            Self::Text(text) => text,
            Self::Page(text) => text,
            Self::File(_) => &[],
        }
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Page(text) => text.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }
}

/// Fields that all answers of a server have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Time for the `Date` field.
    pub now: SystemTime,
    /// Pages of other sites may read the answer (Access-Control-Allow-Origin: *).
    pub is_open_to_pages: bool,
    /// The connection stays after the answer.
    pub is_kept: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Pieces in the order in which they are sent, the head first.
    pub pieces: VecDeque<Piece>,
    pub head_bytes: u64,
    pub is_kept: bool,
}

impl Response {
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::len_bytes).sum()
    }
}

/// A file as an answer needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity<'a> {
    pub len_bytes: u64,
    pub content_type: &'a str,
    pub validators: Validators,
}

/// Answers a request for a file: all of it, parts, or that the client has it already.
#[must_use]
pub fn of_file(request: &Request, entity: &Entity<'_>, common: &Common, boundary: u64) -> Response {
    let Entity { len_bytes, content_type, validators } = entity;
    match judge(&request.conditions, validators) {
        Outcome::Failed => return of_status(412, Some(request), common, &[]),
        Outcome::NotModified => {
            let head = Head::new(304, common).validators(validators).end();
            return whole(304, head, common, VecDeque::new());
        }
        Outcome::Send => {}
    }
    let range =
        request.range.as_ref().filter(|_| range_holds(&request.conditions, validators, common.now));
    let selection = range.map_or(Selection::Whole, |value| select(value, *len_bytes));
    let (status, head, body) = match &selection {
        Selection::Unsatisfiable => {
            let field = ("Content-Range", format!("bytes */{len_bytes}"));
            return of_status(416, Some(request), common, &[field]);
        }
        Selection::Whole => {
            let head = Head::new(200, common).content(content_type, *len_bytes);
            (200, head.field("Accept-Ranges", "bytes"), vec![Piece::File(0..*len_bytes)])
        }
        Selection::Parts(parts) => match &parts[..] {
            [one] => {
                let head = Head::new(206, common).content(content_type, one.end - one.start);
                let range = content_range(one, *len_bytes);
                (206, head.field("Content-Range", &range), vec![Piece::File(one.clone())])
            }
            many => {
                let body = multipart(many, *len_bytes, content_type, boundary);
                let sum_bytes = body.iter().map(Piece::len_bytes).sum();
                let kind = format!("multipart/byteranges; boundary={boundary:020}");
                (206, Head::new(206, common).content(&kind, sum_bytes), body)
            }
        },
    };
    let head = head.validators(validators).end();
    let is_sent = request.method != Method::Head;
    let body = body.into_iter().filter(|piece| is_sent && piece.len_bytes() > 0).collect();
    whole(status, head, common, body)
}

/// Answers with a page that several answers share.
#[must_use]
pub fn of_page(request: &Request, common: &Common, page: Arc<[u8]>) -> Response {
    let fields = [("Cache-Control", "no-cache")];
    let head = Head::new(200, common).content("text/html; charset=utf-8", page.len() as u64);
    let body = match request.method {
        Method::Head => VecDeque::new(),
        _ => VecDeque::from([Piece::Page(page)]),
    };
    whole(200, head.fields(&fields).end(), common, body)
}

/// Answers with a text of the server itself, with fields of the caller's alone.
#[must_use]
pub fn of_text_with(
    request: &Request,
    common: &Common,
    content_type: &str,
    fields: &[(&str, &str)],
    text: Vec<u8>,
) -> Response {
    let head = Head::new(200, common).content(content_type, text.len() as u64).fields(fields).end();
    let body = match request.method {
        Method::Head => VecDeque::new(),
        _ => VecDeque::from([Piece::Text(text)]),
    };
    whole(200, head, common, body)
}

/// Head of a body that ends with its connection.
#[must_use]
pub fn endless(common: &Common, content_type: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    Head::new(200, common).field("Content-Type", content_type).fields(fields).end()
}

/// Answers by a status that says all; with a line for people, where a body may be.
#[must_use]
pub fn of_status(
    status: u16,
    request: Option<&Request>,
    common: &Common,
    fields: &[(&str, String)],
) -> Response {
    of_status_because(status, request, common, fields, "")
}

/// Answers by a status with a sentence that says why.
#[must_use]
pub fn of_status_because(
    status: u16,
    request: Option<&Request>,
    common: &Common,
    fields: &[(&str, String)],
    why: &str,
) -> Response {
    let text = match (status, why) {
        (204 | 304, _) => String::new(),
        (_, "") => format!("{status} {}\n", reason(status)),
        _ => format!("{status} {}: {why}\n", reason(status)),
    };
    let mut head = Head::new(status, common);
    if status != 204 {
        head = head.content("text/plain; charset=utf-8", text.len() as u64);
    }
    let head = fields.iter().fold(head, |head, (name, value)| head.field(name, value)).end();
    let is_sent = request.is_none_or(|request| request.method != Method::Head);
    let body = if is_sent && !text.is_empty() {
        VecDeque::from([Piece::Text(text.into_bytes())])
    } else {
        VecDeque::new()
    };
    whole(status, head, common, body)
}

fn whole(status: u16, head: Vec<u8>, common: &Common, mut pieces: VecDeque<Piece>) -> Response {
    let head_bytes = head.len() as u64;
    // One send for both where both are short.
    match pieces.front_mut() {
        Some(Piece::Text(text)) => {
            text.splice(0..0, head);
        }
        _ => pieces.push_front(Piece::Text(head)),
    }
    Response { status, pieces, head_bytes, is_kept: common.is_kept }
}

fn content_range(range: &Range<u64>, len_bytes: u64) -> String {
    format!("bytes {}-{}/{len_bytes}", range.start, range.end - 1)
}

/// Body of several ranges (RFC 9110, 14.6); the lines as nginx sets them.
fn multipart(parts: &[Range<u64>], len_bytes: u64, kind: &str, boundary: u64) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    for part in parts {
        let range = content_range(part, len_bytes);
        let text = format!(
            "\r\n--{boundary:020}\r\nContent-Type: {kind}\r\nContent-Range: {range}\r\n\r\n"
        );
        pieces.push(Piece::Text(text.into_bytes()));
        pieces.push(Piece::File(part.clone()));
    }
    pieces.push(Piece::Text(format!("\r\n--{boundary:020}--\r\n").into_bytes()));
    pieces
}

struct Head(String);

impl Head {
    fn new(status: u16, common: &Common) -> Self {
        let mut text = String::with_capacity(400);
        let date = httpdate::fmt_http_date(common.now);
        let _ = write!(text, "HTTP/1.1 {status} {}\r\n", reason(status));
        let _ = write!(text, "Server: {SERVER}\r\nDate: {date}\r\n");
        let connection = if common.is_kept { "keep-alive" } else { "close" };
        let _ = write!(text, "Connection: {connection}\r\n");
        if common.is_open_to_pages {
            text.push_str("Access-Control-Allow-Origin: *\r\n");
            let _ = write!(text, "Access-Control-Expose-Headers: {EXPOSED}\r\n");
        }
        Self(text)
    }

    fn field(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.0, "{name}: {value}\r\n");
        self
    }

    fn fields(self, fields: &[(&str, &str)]) -> Self {
        fields.iter().fold(self, |head, (name, value)| head.field(name, value))
    }

    fn content(self, kind: &str, len_bytes: u64) -> Self {
        self.field("Content-Type", kind).field("Content-Length", &len_bytes.to_string())
    }

    fn validators(self, validators: &Validators) -> Self {
        let modified = httpdate::fmt_http_date(validators.modified);
        self.field("Last-Modified", &modified).field("ETag", &validators.entity_tag)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push_str("\r\n");
        self.0.into_bytes()
    }
}

/// Reason phrase of a status (RFC 9110, 15).
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        414 => "URI Too Long",
        416 => "Range Not Satisfiable",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::request::{Parsed, parse};
    use std::time::{Duration, UNIX_EPOCH};

    fn common() -> Common {
        Common { now: UNIX_EPOCH, is_open_to_pages: false, is_kept: true }
    }

    fn entity() -> Entity<'static> {
        let modified = UNIX_EPOCH + Duration::from_secs(784_111_777);
        let validators = Validators { entity_tag: "\"a-1\"".to_owned(), modified };
        Entity { len_bytes: 10, content_type: "video/mp4", validators }
    }

    fn answer(method: &str, fields: &str) -> (u16, String, Vec<Piece>) {
        let text = format!("{method} /a.mp4 HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let Ok(Parsed::Whole(request, _)) = parse(text.as_bytes()) else { panic!("{text}") };
        let mut response = of_file(&request, &entity(), &common(), 7);
        let Some(Piece::Text(head)) = response.pieces.pop_front() else { panic!("no head") };
        let head = String::from_utf8(head).unwrap();
        (response.status, head, response.pieces.into())
    }

    #[test]
    fn a_whole_file_a_part_and_many() {
        let (status, head, body) = answer("GET", "");
        assert_eq!((status, body), (200, vec![Piece::File(0..10)]));
        assert_eq!(
            head,
            format!(
                "HTTP/1.1 200 OK\r\nServer: {SERVER}\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\
                Connection: keep-alive\r\nContent-Type: video/mp4\r\nContent-Length: 10\r\n\
                Accept-Ranges: bytes\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                ETag: \"a-1\"\r\n\r\n"
            )
        );
        let (status, head, body) = answer("GET", "Range: bytes=2-3\r\n");
        assert_eq!((status, body), (206, vec![Piece::File(2..4)]));
        assert!(head.contains("\r\nContent-Length: 2\r\nContent-Range: bytes 2-3/10\r\n"));
        let (status, head, body) = answer("GET", "Range: bytes=0-1,-1\r\n");
        let (head, first) = head.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            first,
            "\r\n--00000000000000000007\r\nContent-Type: video/mp4\r\n\
            Content-Range: bytes 0-1/10\r\n\r\n"
        );
        assert_eq!((status, &body[2]), (206, &Piece::File(9..10)));
        let sum_bytes = first.len() as u64 + body.iter().map(Piece::len_bytes).sum::<u64>();
        assert!(head.contains(&format!("\r\nContent-Length: {sum_bytes}\r\n")), "{head}");
    }

    #[test]
    fn head_is_what_get_would_be_without_a_body() {
        for fields in
            ["", "Range: bytes=2-3\r\n", "Range: bytes=0-1,-1\r\n", "Range: bytes=99-\r\n"]
        {
            let (get, head) = (answer("GET", fields), answer("HEAD", fields));
            assert!(head.2.is_empty());
            let fields = |text: &str| text.split("\r\n\r\n").next().unwrap_or_default().to_owned();
            assert_eq!((head.0, fields(&head.1)), (get.0, fields(&get.1)));
        }
    }

    #[test]
    fn what_is_not_sent_is_told() {
        let (status, head, body) = answer("GET", "Range: bytes=10-\r\n");
        assert!(head.contains("\r\nContent-Range: bytes */10\r\n") && body.is_empty());
        assert_eq!(status, 416);
        let (status, head, body) = answer("GET", "If-None-Match: \"a-1\"\r\n");
        assert!(!head.contains("Content-") && body.is_empty(), "{head}");
        assert_eq!(status, 304);
        assert_eq!(answer("GET", "If-Match: \"b\"\r\nRange: bytes=1-2\r\n").0, 412);
        assert_eq!(answer("GET", "If-Range: \"b\"\r\nRange: bytes=1-2\r\n").0, 200);
    }
}
