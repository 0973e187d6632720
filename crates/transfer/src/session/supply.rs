//! Connections of a session's data streams: a client opens them, a server is given them.
//!
//! A client also opens others in place of those that broke.

use super::{
    headway::{Cut, Headway, Next},
    streams::{StreamSetup, Streams},
};
use crate::{
    events::Event,
    problem::Side,
    session::role::SessionEnd,
    transport::{
        segments::{self, Narrowed},
        tcp::{Early, Route},
    },
};
use haul_protocol::{StreamId, message};
use haul_sys::tcp_info::TcpInfo;
use std::{
    io::{self, Write},
    net::TcpStream,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Interval at which a stream that waits to be opened checks whether the session is over.
const DELAY_STEP: Duration = Duration::from_millis(20);

/// The origin of data connections.
pub enum Source {
    /// A client opens the connections itself; several may be there early.
    Connect { route: Arc<Route>, count: u32, early: Option<Early>, headway: Arc<Headway> },
    /// A server is given the connections.
    Attach(mpsc::Receiver<(StreamId, TcpStream)>),
}

/// Brings a stream's connection, on the stream's own thread.
pub type Connect = Box<dyn FnOnce() -> io::Result<TcpStream> + Send>;

pub struct Supply {
    source: Source,
    streams: Arc<Streams>,
    setup: StreamSetup,
    opened: bool,
    /// Stage of the last stall that was told, and the bytes verified by then.
    stall_told: Option<(&'static str, u64)>,
}

impl Supply {
    #[must_use]
    pub fn new(source: Source, streams: Arc<Streams>, setup: StreamSetup) -> Self {
        Self { source, streams, setup, opened: false, stall_told: None }
    }

    /// Whether this side opens the connections, and watches over them.
    #[must_use]
    pub fn connects(&self) -> bool {
        matches!(self.source, Source::Connect { .. })
    }

    /// Takes the streams to start now: a client's all at once, as soon as they are `wanted`.
    pub fn next(&mut self, wanted: bool) -> Vec<(StreamId, Connect)> {
        if let Source::Connect { early, .. } = &mut self.source {
            // Those that nobody took are closed.
            early.take_if(|early| early.is_over());
        }
        match &self.source {
            Source::Connect { count, .. } if wanted && !self.opened => {
                let count = *count;
                self.opened = true;
                (0..count).filter_map(|_| self.connection(Duration::ZERO)).collect()
            }
            Source::Connect { .. } => Vec::new(),
            Source::Attach(attached) => {
                let given = |(stream, socket)| (stream, Box::new(move || Ok(socket)) as Connect);
                attached.try_iter().map(given).collect()
            }
        }
    }

    /// Opens a stream in place of one that was cut; a server waits to be given one.
    ///
    /// # Errors
    /// If no span gets through, for as long as there is reason to go on with this session.
    pub fn replace(
        &mut self,
        why: &str,
        cut: &Cut,
    ) -> Result<Option<(StreamId, Connect)>, SessionEnd> {
        let Source::Connect { headway, .. } = &self.source else { return Ok(None) };
        match headway.stream_cut(Instant::now(), cut) {
            Next::Reopen(delay) => Ok(self.connection(delay)),
            Next::EndSession => {
                let why = format!("the data streams break before a span is through: {why}");
                Err(SessionEnd::Lost(why))
            }
        }
    }

    /// Notes the bytes verified so far (`total`) and whether any file is under way (`has_files`).
    pub fn watch_headway(&self, total: u64, has_files: bool) {
        let Some(headway) = self.headway() else { return };
        headway.verified(total);
        if !has_files {
            headway.idle();
        }
    }

    /// Time for which a stream may bring nothing before it counts as stalled.
    #[must_use]
    pub fn stall_after(&self, now: Instant, stall_after: Duration) -> Duration {
        self.headway().map_or(stall_after, |headway| headway.stall_after(now, stall_after))
    }

    /// Makes the event for the user about streams that bring nothing; once for all of them until
    /// the session gets on, which `total` says as [`Self::watch_headway`] does.
    pub fn stall(
        &mut self,
        (stage, what): (&'static str, &str),
        still: Duration,
        total: u64,
    ) -> Option<Event> {
        let is_news = self.stall_told.replace((stage, total)) != Some((stage, total));
        let (stage, what) = (stage.into(), what.into());
        is_news.then_some(Event::Stall { stage, seconds: still.as_secs_f64(), what })
    }

    /// Says whether the first full segments of a sending stream vanish: another is to be opened in
    /// its place, with smaller ones.
    #[must_use]
    pub fn swallows_sent(&self, tcp: &TcpInfo) -> bool {
        segments::first_segments_vanish(tcp) && self.swallows(tcp)
    }

    /// Says whether the path swallows what is sent to this side, by a stream on which nothing
    /// arrives.
    #[must_use]
    pub fn swallows(&self, tcp: &TcpInfo) -> bool {
        match &self.source {
            Source::Connect { route, .. } => route.segments.swallows(tcp),
            Source::Attach(_) => false,
        }
    }

    /// Makes the event for the user, once, when smaller segments got through.
    #[must_use]
    pub fn narrowed(&self, tcp: &TcpInfo) -> Option<Event> {
        match &self.source {
            Source::Connect { route, .. } => route.segments.moves(tcp).map(narrowed_event),
            Source::Attach(_) => None,
        }
    }

    fn headway(&self) -> Option<&Headway> {
        match &self.source {
            Source::Connect { headway, .. } => Some(headway),
            Source::Attach(_) => None,
        }
    }

    fn connection(&self, delay: Duration) -> Option<(StreamId, Connect)> {
        let Source::Connect { route, early, .. } = &self.source else { return None };
        let (route, setup, early) = (route.clone(), self.setup.clone(), early.clone());
        let stream = self.streams.next_id();
        let early = early.filter(|_| delay.is_zero());
        let streams = self.streams.clone();
        let stop = move || streams.stopping();
        let connect = move || connect(&route, stream, &setup, (delay, early), &stop);
        Some((stream, Box::new(connect)))
    }
}

/// Makes the event for the user when a path took smaller segments only.
#[must_use]
pub fn narrowed_event(narrowed: Narrowed) -> Event {
    let Narrowed { from_bytes, to_bytes, .. } = narrowed;
    let from_to = format!("segments of {from_bytes} -> {to_bytes} bytes");
    let why = narrowed.to_string();
    Event::Fallback { side: Side::Path, from_to, why }
}

/// Makes the notice for the other side's user when an engine gave up.
#[must_use]
pub fn fallback_notice(stream: StreamId, from_to: &str, why: &str) -> message::Notice {
    message::Notice { what: from_to.into(), why: why.into(), stream, fault: None }
}

/// Opens a data connection as a client and shows its preface.
fn connect(
    route: &Route,
    stream: StreamId,
    setup: &StreamSetup,
    (delay, early): (Duration, Option<Early>),
    stop: &dyn Fn() -> bool,
) -> io::Result<TcpStream> {
    let open_at = Instant::now() + delay;
    while Instant::now() < open_at && !stop() {
        thread::sleep(DELAY_STEP.min(delay));
    }
    let mut socket = match early.and_then(|early| early.take()) {
        Some(socket) => socket,
        None => route.connect_stream(setup.congestion.control.as_deref(), stop)?,
    };
    let preface = setup.keys.sign_preface(stream, setup.session);
    socket.write_all(&preface.encode())?;
    Ok(socket)
}
