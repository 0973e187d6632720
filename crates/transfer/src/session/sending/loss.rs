//! Watch on a long path that loses segments.
//!
//! Its streams change to a congestion control that bears it.

use super::{context::Context, data_streams::DataStreams};
use crate::{problem::Side, session::streams::StreamFigures};
use haul_datapath::{
    Host,
    choose::{self, CongestionChoice, Loss},
};
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
    /// The congestion control that was changed to, for streams that are opened from now on as well.
    control: Option<String>,
}

impl LossWatch {
    pub(super) fn new(now: Instant) -> Self {
        Self { looked_at: now, before: Loss::default(), was_lossy: false, control: None }
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
    /// another where two looks in a row found loss.
    fn look(
        &mut self,
        host: &Host,
        own: &str,
        figures: &[StreamFigures],
    ) -> Option<CongestionChoice> {
        let (total, rtt) = of_path(figures);
        let since = total.since(self.before);
        self.before = total;
        let was_lossy = std::mem::replace(&mut self.was_lossy, since.is_lossy());
        if !was_lossy {
            return None;
        }
        choose::congestion_again(host, own, rtt, since, host.may_administer_network)
    }
}

/// Bytes that all streams have sent, and the shortest round trip of those that know theirs.
fn of_path(figures: &[StreamFigures]) -> (Loss, Duration) {
    let tcp = || figures.iter().map(|stream| stream.tcp);
    let total = Loss {
        sent_bytes: tcp().map(|tcp| tcp.bytes_sent).sum(),
        sent_again_bytes: tcp().map(|tcp| tcp.bytes_retransmitted).sum(),
    };
    let rtt_us = tcp().map(|tcp| tcp.min_rtt_us).filter(|us| *us > 0).min().unwrap_or(0);
    (total, Duration::from_micros(rtt_us.into()))
}

impl DataStreams {
    pub(super) fn watch_loss(&mut self, now: Instant, context: &mut Context<'_>) {
        if !self.loss.is_due(now) {
            return;
        }
        let figures = context.shared.streams.socket_figures();
        self.bear_loss(&figures, context);
    }

    /// Changes the congestion control of the streams, which have these figures, if they lose.
    fn bear_loss(&mut self, figures: &[StreamFigures], context: &mut Context<'_>) {
        let shared = &context.shared;
        if let Some(control) = &self.loss.control {
            return shared.streams.set_congestion(control);
        }
        let host = &shared.setup.host;
        let own = shared.setup.congestion.control.as_ref().unwrap_or(&host.congestion_default);
        let Some(choice) = self.loss.look(host, own, figures) else { return };
        let Some(control) = choice.control else { return };
        shared.streams.set_congestion(&control);
        let from_to = format!("{own} -> {control}");
        self.loss.control = Some(control);
        let change = self.engines.change(Some(Side::Path), StreamId(0), from_to, choice.because);
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

    fn stream(sent_bytes: u64, sent_again_bytes: u64, min_rtt_us: u32) -> StreamFigures {
        let tcp = TcpInfo {
            bytes_sent: sent_bytes,
            bytes_retransmitted: sent_again_bytes,
            min_rtt_us,
            ..TcpInfo::default()
        };
        StreamFigures { tcp, ..StreamFigures::default() }
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
        let total = Loss { sent_bytes: 123, sent_again_bytes: 38 };
        assert_eq!(of_path(&figures), (total, Duration::from_millis(80)));
        assert_eq!(of_path(&[]), (Loss::default(), Duration::ZERO));
    }

    #[test]
    fn loss_that_two_looks_in_a_row_find_changes_the_control_and_a_burst_of_it_does_not() {
        const MIB: u64 = 1 << 20;
        let mut watch = LossWatch::new(Instant::now());
        let mut look = |sent_bytes, sent_again_bytes| {
            let figures = [stream(sent_bytes, sent_again_bytes, 80_000)];
            let choice = watch.look(&host(), "cubic", &figures);
            choice.and_then(|choice| choice.control)
        };
        assert_eq!(look(100 * MIB, MIB), None, "the first");
        assert_eq!(look(200 * MIB, MIB), None, "a burst at the beginning");
        assert_eq!(look(300 * MIB, 2 * MIB), None, "and one later");
        assert_eq!(look(400 * MIB, 3 * MIB).as_deref(), Some("bbr"));
    }

    #[test]
    fn a_change_is_made_and_told_once() {
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let Begun { mut context, mut streams, .. } =
            without_peer::begin(FileOptions::default(), &mut hear);
        let shared = Arc::get_mut(&mut context.shared).expect("no stream has it yet");
        shared.setup.host = Arc::new(host());
        for look in 1..5 {
            let figures = [stream(look << 30, look << 24, 80_000)];
            streams.bear_loss(&figures, &mut context);
        }
        assert_eq!(streams.loss.control.as_deref(), Some("bbr"));
        assert_eq!(without_peer::said(&context).len(), 1);
        drop(context);
        let [Event::Fallback { side: Side::Path, from_to, why }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(from_to, "cubic -> bbr");
        assert!(why.contains("1.56 %") && why.contains("80.00 ms"), "{why}");
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
