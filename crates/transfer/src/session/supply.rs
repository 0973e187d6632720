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

    /// Opens a stream in place of one whose key has protected enough; a server waits to be given
    /// one.
    #[must_use]
    pub fn renew(&self) -> Option<(StreamId, Connect)> {
        self.connection(Duration::ZERO)
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
    wait(delay, stop);
    let mut socket = match early.and_then(|early| early.take()) {
        Some(socket) => socket,
        None => route.connect_stream(setup.congestion.control.as_deref(), stop)?,
    };
    let preface = setup.keys.sign_preface(stream, setup.session);
    socket.write_all(&preface.encode())?;
    Ok(socket)
}

/// Waits before a connection is opened, for as long as the session goes on.
fn wait(delay: Duration, stop: &dyn Fn() -> bool) {
    let open_at = Instant::now() + delay;
    loop {
        let left = open_at.saturating_duration_since(Instant::now());
        if left.is_zero() || stop() {
            return;
        }
        thread::sleep(DELAY_STEP.min(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connecting::ConnectOptions, session::headway::Carried, transport::waker::Waker};
    use haul_protocol::frame::{PREFACE_BYTES, Preface};
    use std::{cell::Cell, io::Read, net::TcpListener};

    const SPAN_BYTES: u64 = 8 << 20;

    fn streams() -> Arc<Streams> {
        Streams::new(Waker::new().expect("a waker"))
    }

    /// Supply of a client whose server listens at `server`, and what watches over its headway.
    fn client_of(server: String, retry_for: Duration) -> (Supply, Arc<Headway>) {
        let headway = Arc::new(Headway::new(retry_for, SPAN_BYTES));
        let route = Arc::new(Route::new(server, ConnectOptions::default()).expect("no collectors"));
        let source = Source::Connect { route, count: 3, early: None, headway: headway.clone() };
        (Supply::new(source, streams(), StreamSetup::of_nobody()), headway)
    }

    fn client() -> (Supply, Arc<Headway>) {
        client_of("nobody:1".into(), Duration::from_secs(20))
    }

    fn server() -> (Supply, mpsc::Sender<(StreamId, TcpStream)>) {
        let (give, given) = mpsc::channel();
        let supply = Supply::new(Source::Attach(given), streams(), StreamSetup::of_nobody());
        (supply, give)
    }

    fn ids(streams: Vec<(StreamId, Connect)>) -> Vec<u32> {
        streams.into_iter().map(|(stream, _)| stream.0).collect()
    }

    #[test]
    fn a_client_opens_all_its_streams_at_once_when_they_are_wanted() {
        let (mut supply, _) = client();
        assert!(supply.connects());
        assert_eq!(ids(supply.next(false)), [0; 0]);
        assert_eq!(ids(supply.next(true)), [0, 1, 2]);
        assert_eq!(ids(supply.next(true)), [0; 0], "once");
    }

    #[test]
    fn a_server_takes_the_streams_that_it_is_given() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut supply, give) = server();
        assert!(!supply.connects());
        assert_eq!(ids(supply.next(true)), [0; 0]);
        for stream in [7, 9] {
            give.send((StreamId(stream), socket())).unwrap();
        }
        assert_eq!(ids(supply.next(false)), [7, 9], "whether it wants them or not");
        let cut = Cut::default();
        assert!(matches!(supply.replace("reset", &cut), Ok(None)), "the client opens another");
    }

    #[test]
    fn a_client_opens_a_stream_in_place_of_one_that_was_cut_until_there_is_no_reason_to() {
        let cut = Cut { at_work: true, ..Cut::default() };
        let (mut supply, _) = client();
        assert_eq!(ids(supply.next(true)), [0, 1, 2]);
        let another = supply.replace("reset", &cut).unwrap();
        assert_eq!(ids(another.into_iter().collect()), [3]);
        let (mut impatient, _) = client_of("nobody:1".into(), Duration::ZERO);
        let Err(SessionEnd::Lost(why)) = impatient.replace("reset", &cut) else {
            panic!("there is no time to come back")
        };
        assert!(why.contains("before a span is through: reset"), "{why}");
    }

    #[test]
    fn what_is_verified_ends_an_outage_and_what_is_not_does_not() {
        let (mut supply, headway) = client();
        let now = Instant::now();
        let carried = Carried { payload_bytes: 1, ..Carried::default() };
        let cut = Cut { carried, at_work: true, ..Cut::default() };
        let mut is_out_after = |total, has_files| {
            supply.replace("reset", &cut).unwrap();
            supply.watch_headway(total, has_files);
            headway.left(Instant::now()).is_some()
        };
        assert!(!is_out_after(5, true), "a span is through");
        assert!(is_out_after(5, true), "no other");
        // The server lives, and there is nothing to get on with.
        headway.begin_session(now);
        headway.heard(now + Duration::from_secs(3600));
        assert!(is_out_after(0, true) && !is_out_after(0, false));
    }

    #[test]
    fn a_client_that_may_not_come_back_for_long_gives_stalled_streams_less_time() {
        let long = Duration::from_secs(60);
        let (mut supply, _) = client();
        let now = Instant::now();
        assert_eq!(supply.stall_after(now, long), long);
        supply.replace("reset", &Cut { at_work: true, ..Cut::default() }).unwrap();
        let less = supply.stall_after(Instant::now(), long);
        assert!(less > Duration::ZERO && less <= Duration::from_secs(20), "{less:?}");
        assert_eq!(server().0.stall_after(now, long), long);
    }

    #[test]
    fn a_stall_is_told_once_until_the_session_gets_on() {
        let (mut supply, _) = server();
        let mut told = |stage, total| {
            let event = supply.stall((stage, "nothing arrives"), Duration::from_secs(9), total);
            event.map(|event| match event {
                Event::Stall { stage, seconds, what } => (stage, seconds, what),
                other => panic!("{other:?}"),
            })
        };
        let network = ("network".into(), 9.0, "nothing arrives".into());
        assert_eq!(told("network", 5), Some(network));
        assert_eq!(told("network", 5), None, "of another stream");
        assert!(told("target_disk", 5).is_some() && told("target_disk", 6).is_some());
        assert_eq!(told("target_disk", 6), None);
    }

    fn tcp(mss_bytes: u32, total_retransmits: u32, bytes_acked: u64) -> TcpInfo {
        TcpInfo {
            mss_bytes,
            total_retransmits,
            bytes_acked,
            path_mtu_bytes: 1500,
            unacked_segments: 10,
            last_ack_received_ms: 1500,
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_client_opens_streams_with_smaller_segments_where_full_ones_vanish() {
        let (vanish, arrive) = (tcp(1448, 4, 65), tcp(1448, 0, 65));
        let (supply, _) = client();
        assert!(!supply.swallows_sent(&arrive));
        assert!(supply.narrowed(&tcp(1188, 0, 1 << 20)).is_none(), "none did");
        assert!(supply.swallows_sent(&vanish));
        let Some(Event::Fallback { side, from_to, why }) = supply.narrowed(&tcp(1188, 0, 1 << 20))
        else {
            panic!("it is told")
        };
        assert_eq!((side, &*from_to), (Side::Path, "segments of 1448 -> 1200 bytes"));
        assert!(why.contains("drops packets of 1500 bytes"), "{why}");
        assert!(supply.swallows(&vanish) && supply.swallows(&tcp(1188, 4, 65)));
        assert!(!supply.swallows(&tcp(536, 4, 65)), "the smallest vanish too");
        assert!(!supply.swallows_sent(&vanish), "no step helped");
        let (server, _give) = server();
        assert!(!server.swallows(&vanish) && !server.swallows_sent(&vanish));
        assert!(server.narrowed(&tcp(1188, 0, 1 << 20)).is_none());
    }

    #[test]
    fn a_notice_of_a_fallback_names_its_stream() {
        let notice = fallback_notice(StreamId(3), "splice -> read-write", "no pipe");
        let (what, why) = ("splice -> read-write".into(), "no pipe".into());
        let expected = message::Notice { what, why, stream: StreamId(3), fault: None };
        assert_eq!(notice, expected);
    }

    #[test]
    fn a_connection_waits_for_its_time_or_for_the_end_of_the_session() {
        let delay = Duration::from_millis(70);
        let begun = Instant::now();
        wait(delay, &|| false);
        assert!(begun.elapsed() >= delay);
        wait(Duration::from_secs(3600), &|| true);
        let looks = Cell::new(0);
        wait(Duration::from_secs(3600), &|| looks.replace(looks.get() + 1) == 2);
        assert_eq!(looks.get(), 3);
    }

    #[test]
    fn a_client_shows_the_preface_of_the_stream_on_a_new_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let (mut supply, _) = client_of(server, Duration::from_secs(20));
        let (_, connect) = supply.next(true).pop().expect("three streams");
        let near = connect().unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut shown = [0; PREFACE_BYTES];
        far.read_exact(&mut shown).unwrap();
        let preface = Preface::decode(&shown).unwrap();
        assert_eq!((preface.stream, preface.session), (StreamId(2), [7; 16]));
        assert!(StreamSetup::of_nobody().keys.verify_preface(&preface));
        drop(near);
    }
}
