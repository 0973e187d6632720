//! Answers to each target of the status listener.

use std::{io, net::TcpStream, time::SystemTime};

use super::{
    Inner,
    events::Next,
    metrics,
    sessions::{limit, sessions},
    talk,
};
use crate::http::{
    host_names::is_same_site,
    request::{Method, Request},
    response::{Common, Piece, Response, endless, of_status, of_status_because, of_text_with},
};

/// Files of the dashboard: target, type, and the file as it was when this was built.
const FILES: [(&[u8], &str, &str); 4] = [
    (b"/", "text/html; charset=utf-8", include_str!("dashboard/index.html")),
    (b"/style.css", "text/css; charset=utf-8", include_str!("dashboard/style.css")),
    (b"/dashboard.js", "text/javascript; charset=utf-8", include_str!("dashboard/dashboard.js")),
    (b"/icon.svg", "image/svg+xml", include_str!("dashboard/icon.svg")),
];
/// Fields of each page: nothing from elsewhere, and nothing that stands in the page itself, runs or
/// is loaded; no other page frames or reads it.
const FIELDS: [(&str, &str); 5] = [
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
];
const ALLOWED: &str = "GET, HEAD";

/// Answer of the status listener.
pub(super) enum Answer {
    Whole(Response),
    /// The head of `/api/events`, and then event by event.
    Events(Vec<u8>),
}

pub(super) fn answer(inner: &Inner, request: &Request) -> Answer {
    let refuse = |status: u16, why: &str| {
        Answer::Whole(of_status_because(status, Some(request), &ends(), &[], why))
    };
    if !inner.names.know(request.host.as_deref()) {
        return refuse(421, "this name is not known here; start with --host-name NAME");
    }
    if !is_same_site(request.origin.as_deref(), request.host.as_deref()) {
        return refuse(403, "pages of other sites may not read this");
    }
    if !matches!(request.method, Method::Get | Method::Head) {
        let allow = [("Allow", ALLOWED.to_owned())];
        return Answer::Whole(of_status(405, Some(request), &ends(), &allow));
    }
    let text = |content_type: &str, text: String| {
        let bytes = text.into_bytes();
        Answer::Whole(of_text_with(request, &ends(), content_type, &FIELDS, bytes))
    };
    match &request.target.path[..] {
        b"/metrics" => text(metrics::CONTENT_TYPE, metrics::text(&inner.watch.figures(0))),
        b"/api/sessions" => match limit(request.target.parameter("limit").as_deref()) {
            Some(limit) => {
                let found = sessions(&inner.watch.figures(limit.max(1)), limit);
                text("application/json", format!("{found}\n"))
            }
            None => refuse(400, "limit= needs a number"),
        },
        b"/api/events" => events(request),
        path => match FILES.iter().find(|(known, ..)| *known == path) {
            Some((_, content_type, file)) => text(content_type, (*file).to_owned()),
            None => refuse(404, ""),
        },
    }
}

fn events(request: &Request) -> Answer {
    let head = endless(&ends(), "text/event-stream", &FIELDS);
    match request.method {
        Method::Head => {
            let head_bytes = head.len() as u64;
            let pieces = [Piece::Text(head)].into();
            Answer::Whole(Response { status: 200, pieces, head_bytes, is_kept: false })
        }
        _ => Answer::Events(head),
    }
}

/// Sends a sample a second, until the client or the server ends.
///
/// # Errors
/// If the client is gone, or takes nothing.
pub(super) fn send_events(inner: &Inner, socket: &TcpStream, head: &[u8]) -> io::Result<()> {
    talk::say(socket, head)?;
    let mut seen = 0;
    loop {
        match inner.feed.next(&mut seen) {
            Next::Event(text) => talk::say(socket, text.as_bytes())?,
            Next::End(text) => return talk::say(socket, text.as_bytes()),
        }
    }
}

/// Fields of an answer with which its connection ends.
pub(super) fn ends() -> Common {
    Common { now: SystemTime::now(), is_open_to_pages: false, is_kept: false }
}
