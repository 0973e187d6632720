//! Watch on a path that is another than it was taken for: it loses segments, or is short.
//!
//! Its streams change to a congestion control that suits it.

use super::{context::Context, data_streams::DataStreams};
use crate::{
    problem::Side,
    session::streams::{StreamFigures, StreamSetup, waits_in_queue},
};
use haul_datapath::choose::{self, CongestionChoice, Loss, PathLength, PathSeen};
use haul_protocol::StreamId;
use std::time::{Duration, Instant};

/// Interval between two looks at the loss: it holds several round trips, as those beyond half a
/// second are rare.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Bytes that were sent, and sent again, when the path was last looked at.
#[derive(Debug)]
pub(super) struct LossWatch {
    looked_at: Instant,
    before: Loss,
    /// The last look found loss: beginnings and full queues lose many segments at once, and then
    /// none.
    was_lossy: bool,
    /// The shortest round trip of the session, as the kernel forgets that of a stream.
    shortest: Option<Duration>,
    /// The congestion control that was changed to, for streams that are opened from now on as well.
    pub(super) control: Option<String>,
}

impl LossWatch {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            looked_at: now,
            before: Loss::default(),
            was_lossy: false,
            shortest: None,
            control: None,
        }
    }

    /// Whether another look is due, which is then noted.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.looked_at) >= LOOK_EVERY;
        if is_due {
            self.looked_at = now;
        }
        is_due
    }

    /// Takes a look at the figures of all streams, of which `own` is the congestion control. Gives
    /// another where two looks in a row found loss on a path that is not full, or where the path
    /// is shorter than it was taken for.
    fn look(
        &mut self,
        setup: &StreamSetup,
        own: &str,
        figures: &[StreamFigures],
    ) -> Option<CongestionChoice> {
        let begun = setup.congestion.length;
        let known = [self.shortest, Some(begun.rtt), shortest_of(figures)];
        self.shortest = known.into_iter().flatten().filter(|rtt| !rtt.is_zero()).min();
        let rtt = self.shortest.unwrap_or_default();
        let mut seen = of_path(figures, PathLength { rtt, ..begun });
        let since = seen.loss.since(self.before);
        self.before = seen.loss;
        let is_lossy = since.is_lossy() && !seen.is_full;
        let was_lossy = std::mem::replace(&mut self.was_lossy, is_lossy);
        seen.loss = if was_lossy { since } else { Loss::default() };
        choose::congestion_again(&setup.host, own, seen, setup.host.may_administer_network)
    }
}

/// The shortest round trip of the streams that know theirs.
fn shortest_of(figures: &[StreamFigures]) -> Option<Duration> {
    let rtts_us = figures.iter().map(|stream| stream.tcp.min_rtt_us);
    let shortest_us = rtts_us.filter(|us| !matches!(*us, 0 | u32::MAX)).min()?;
    Some(Duration::from_micros(shortest_us.into()))
}

/// The path of a length as all streams have seen it: bytes that they have sent, and whether all
/// that have something in flight wait in a queue now.
fn of_path(figures: &[StreamFigures], length: PathLength) -> PathSeen {
    let tcp = || figures.iter().map(|stream| stream.tcp);
    let loss = Loss {
        sent_bytes: tcp().map(|tcp| tcp.bytes_sent).sum(),
        sent_again_bytes: tcp().map(|tcp| tcp.bytes_retransmitted).sum(),
    };
    let shortest_us = u32::try_from(length.rtt.as_micros()).unwrap_or(u32::MAX);
    let mut at_work =
        figures.iter().filter(|it| it.is_open && it.tcp.unacked_segments > 0).peekable();
    let is_full = at_work.peek().is_some()
        && at_work.all(|stream| waits_in_queue(stream.tcp.rtt_us, shortest_us));
    PathSeen { length, loss, is_full }
}

impl DataStreams {
    pub(super) fn watch_loss(&mut self, now: Instant, context: &mut Context<'_>) {
        if !self.loss.is_due(now) {
            return;
        }
        let figures = context.shared.streams.socket_figures();
        self.bear_loss(&figures, context);
    }

    /// Changes the congestion control of the streams, which have these figures, if the path is
    /// another than it was taken for. A change that no stream takes is none.
    fn bear_loss(&mut self, figures: &[StreamFigures], context: &mut Context<'_>) {
        let shared = &context.shared;
        let setup = &shared.setup;
        let first = setup.congestion.control.as_ref().unwrap_or(&setup.host.congestion_default);
        let own = self.loss.control.as_ref().unwrap_or(first).clone();
        let choice = self.loss.look(setup, &own, figures);
        let Some((control, because)) = choice.and_then(|it| Some((it.control?, it.because))) else {
            if self.loss.control.is_some() {
                shared.streams.set_congestion(&own);
            }
            return;
        };
        if !shared.streams.set_congestion(&control) {
            return;
        }
        let from_to = format!("{own} -> {control}");
        self.loss.control = Some(control);
        let change = self.engines.change(Some(Side::Path), StreamId(0), from_to, because);
        context.tell_change(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        session::sending::{start::Begun, without_peer},
    };
    use haul_datapath::Host;
    use haul_sys::{TcpInfo, congestion::congestion};
    use haul_testkit::skip::skip;
    use std::{net::TcpStream, sync::Arc};

    /// Host on which anybody may choose BBR.
    fn host() -> Host {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Host {
            congestion_allowed: names(&["reno", "bbr"]),
            congestion_default: "cubic".into(),
            ..Host::default()
        }
    }

    fn setup() -> StreamSetup {
        StreamSetup { host: Arc::new(host()), ..StreamSetup::of_nobody() }
    }

    fn stream(sent_bytes: u64, sent_again_bytes: u64, min_rtt_us: u32) -> StreamFigures {
        let tcp = TcpInfo {
            bytes_sent: sent_bytes,
            bytes_retransmitted: sent_again_bytes,
            min_rtt_us,
            ..TcpInfo::default()
        };
        StreamFigures { tcp, is_open: true, ..StreamFigures::default() }
    }

    /// A stream that has something in flight, with its round trips, the shortest and those of now.
    fn at_work(min_rtt_us: u32, rtt_us: u32) -> StreamFigures {
        let mut figures = stream(1, 0, min_rtt_us);
        (figures.tcp.rtt_us, figures.tcp.unacked_segments) = (rtt_us, 10);
        figures
    }

    fn length_of_ms(ms: u64) -> PathLength {
        PathLength { rtt: Duration::from_millis(ms), one_subnet: false }
    }

    #[test]
    fn a_look_is_due_every_two_seconds() {
        let begun = Instant::now();
        let mut watch = LossWatch::new(begun);
        let moment = Duration::from_nanos(1);
        let due = [LOOK_EVERY - moment, LOOK_EVERY, LOOK_EVERY, LOOK_EVERY * 2 - moment]
            .map(|after| watch.is_due(begun + after));
        assert_eq!(due, [false, true, false, false]);
        assert!(watch.is_due(begun + LOOK_EVERY * 2));
    }

    #[test]
    fn a_path_is_as_long_as_its_shortest_round_trip_and_sends_what_its_streams_send() {
        let figures = [stream(100, 7, 0), stream(20, 30, 80_000), stream(3, 1, 90_000)];
        assert_eq!(shortest_of(&figures), Some(Duration::from_millis(80)));
        assert_eq!(shortest_of(&[stream(0, 0, u32::MAX)]), None, "not known yet");
        let (length, loss) = (length_of_ms(80), Loss { sent_bytes: 123, sent_again_bytes: 38 });
        assert_eq!(of_path(&figures, length), PathSeen { length, loss, is_full: false });
        assert_eq!(of_path(&[], PathLength::default()), PathSeen::default());
    }

    #[test]
    fn a_path_is_full_when_all_streams_at_work_wait_in_its_queue() {
        let is_full = |figures: &[StreamFigures]| of_path(figures, length_of_ms(4)).is_full;
        assert!(is_full(&[at_work(4000, 9000), at_work(8000, 9000)]), "by the path's shortest");
        assert!(!is_full(&[at_work(4000, 9000), at_work(4000, 5000)]));
        let ended = StreamFigures { is_open: false, ..at_work(4000, 5000) };
        let mut idle = at_work(4000, 5000);
        idle.tcp.unacked_segments = 0;
        assert!(is_full(&[at_work(4000, 9000), ended, idle]), "they know nothing of now");
        assert!(!of_path(&[at_work(80_000, 90_000)], length_of_ms(80)).is_full);
    }

    #[test]
    fn the_shortest_round_trip_is_kept_where_the_kernel_forgets_it() {
        let mut watch = LossWatch::new(Instant::now());
        let mut setup = setup();
        let mut shortest = |setup: &StreamSetup, min_rtt_us| {
            watch.look(setup, "cubic", &[stream(1, 0, min_rtt_us)]);
            watch.shortest.unwrap().as_micros()
        };
        setup.congestion.length = length_of_ms(5);
        let seen = [9000, 300, 20_000].map(|min_rtt_us| shortest(&setup, min_rtt_us));
        assert_eq!(seen, [5000, 300, 300]);
    }

    #[test]
    fn loss_that_two_looks_in_a_row_find_changes_the_control_and_a_burst_of_it_does_not() {
        const MIB: u64 = 1 << 20;
        let mut watch = LossWatch::new(Instant::now());
        let mut look = |sent_bytes, sent_again_bytes| {
            let figures = [stream(sent_bytes, sent_again_bytes, 80_000)];
            let choice = watch.look(&setup(), "cubic", &figures);
            choice.and_then(|choice| choice.control)
        };
        assert_eq!(look(100 * MIB, MIB), None, "the first");
        assert_eq!(look(200 * MIB, MIB), None, "a burst at the beginning");
        assert_eq!(look(300 * MIB, 2 * MIB), None, "and one later");
        assert_eq!(look(400 * MIB, 3 * MIB).as_deref(), Some("bbr"));
    }

    #[test]
    fn loss_on_a_full_path_or_within_a_subnet_changes_nothing() {
        let lossy = |look: u64, rtt_us| {
            let mut figures = at_work(8000, rtt_us);
            (figures.tcp.bytes_sent, figures.tcp.bytes_retransmitted) = (look << 30, look << 24);
            [figures]
        };
        let changes = |setup: &StreamSetup, rtt_us| {
            let mut watch = LossWatch::new(Instant::now());
            (1..5).any(|look| watch.look(setup, "cubic", &lossy(look, rtt_us)).is_some())
        };
        assert!(changes(&setup(), 9000));
        assert!(!changes(&setup(), 16_000), "a full queue loses");
        let mut neighbours = setup();
        neighbours.congestion.length.one_subnet = true;
        assert!(!changes(&neighbours, 9000));
    }

    #[test]
    fn a_path_that_was_full_at_first_and_is_short_gets_what_a_short_one_takes() {
        let host = Host { congestion_default: "bbr".into(), ..host() };
        let setup = StreamSetup { host: Arc::new(host), ..StreamSetup::of_nobody() };
        let mut watch = LossWatch::new(Instant::now());
        let mut look = |min_rtt_us| {
            let choice = watch.look(&setup, "bbr", &[stream(1 << 30, 0, min_rtt_us)]);
            choice.and_then(|choice| choice.control)
        };
        assert_eq!(look(9000), None);
        assert_eq!(look(90).as_deref(), Some("reno"), "cubic is not permitted");
    }

    #[test]
    fn a_change_is_made_and_told_once_as_soon_as_a_stream_takes_it() {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let Begun { mut context, mut streams, .. } =
            without_peer::begin(FileOptions::default(), &mut hear);
        let shared = Arc::get_mut(&mut context.shared).expect("no stream has it yet");
        shared.setup.host = Arc::new(host());
        let look = |streams: &mut DataStreams, context: &mut Context<'_>, look: u64| {
            streams.bear_loss(&[stream(look << 30, look << 24, 80_000)], context);
        };
        (1..4).for_each(|number| look(&mut streams, &mut context, number));
        assert_eq!((&streams.loss.control, without_peer::said(&context).len()), (&None, 0));
        let (near, _far) = without_peer::open_stream(&context, StreamId(0));
        if haul_sys::congestion::set_congestion(&near, "bbr").is_err() {
            return skip("bbr", "none, or none that is permitted");
        }
        haul_sys::congestion::set_congestion(&near, "reno").unwrap();
        (4..7).for_each(|number| look(&mut streams, &mut context, number));
        assert_eq!(congestion(&near).unwrap(), "bbr");
        assert_eq!(without_peer::said(&context).len(), 1);
        context.shared.streams.stop();
        drop(context);
        let [Event::Fallback { side: Side::Path, from_to, why }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(from_to, "cubic -> bbr");
        assert!(why.contains("1.56 %") && why.contains("80.00 ms"), "{why}");
    }

    #[test]
    fn bbr_that_was_taken_for_a_loss_gives_way_where_the_path_turns_out_to_be_short() {
        let setup = setup();
        let mut watch = LossWatch::new(Instant::now());
        let again = |watch: &mut LossWatch, own, min_rtt_us| {
            let choice = watch.look(&setup, own, &[stream(1 << 30, 0, min_rtt_us)]);
            choice.and_then(|choice| choice.control)
        };
        assert_eq!(again(&mut watch, "bbr", 9000), None);
        assert_eq!(again(&mut watch, "bbr", 90).as_deref(), Some("cubic"), "the system's");
        assert_eq!(again(&mut watch, "cubic", 20_000), None, "and stays");
    }

    /// A congestion control that this process may choose, and that no connection has by itself.
    fn another(socket: &TcpStream) -> Option<String> {
        let now = congestion(socket).ok()?;
        let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
        allowed.ok()?.split_whitespace().find(|name| **name != *now).map(str::to_owned)
    }

    #[test]
    fn streams_that_are_opened_later_get_what_was_changed_to_at_the_next_look() {
        let mut hear = |_| {};
        let Begun { mut context, mut streams, .. } =
            without_peer::begin(FileOptions::default(), &mut hear);
        let (near, _far) = without_peer::open_stream(&context, StreamId(0));
        let Some(other) = another(&near) else {
            return skip("two congestion controls to choose from", "one");
        };
        streams.loss.control = Some(other.clone());
        let begun = streams.loss.looked_at;
        let moment = Duration::from_nanos(1);
        let set = [LOOK_EVERY - moment, LOOK_EVERY].map(|after| {
            streams.watch_loss(begun + after, &mut context);
            congestion(&near).unwrap() == other
        });
        assert_eq!(set, [false, true]);
        context.shared.streams.stop();
    }
}
