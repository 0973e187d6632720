//! Watch on a long path that loses segments.
//!
//! Its streams change to a congestion control that bears it.

use super::{context::Context, data_streams::DataStreams};
use crate::problem::Side;
use haul_datapath::choose::{self, Loss};
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
    /// Count of looks in a row that found loss: beginnings and full queues lose many segments at
    /// once, and then none.
    lossy_looks: u32,
    /// The congestion control that was changed to, for streams that are opened from now on as well.
    control: Option<String>,
}

impl LossWatch {
    pub(super) fn new(now: Instant) -> Self {
        Self { looked_at: now, before: Loss::default(), lossy_looks: 0, control: None }
    }
}

impl DataStreams {
    pub(super) fn watch_loss(&mut self, now: Instant, context: &mut Context<'_>) {
        let streams = &context.shared.streams;
        if now.saturating_duration_since(self.loss.looked_at) < LOOK_EVERY {
            return;
        }
        self.loss.looked_at = now;
        if let Some(control) = &self.loss.control {
            return streams.set_congestion(control);
        }
        let figures = streams.socket_figures();
        let tcp = || figures.iter().map(|stream| stream.tcp);
        let total = Loss {
            sent_bytes: tcp().map(|tcp| tcp.bytes_sent).sum(),
            sent_again_bytes: tcp().map(|tcp| tcp.bytes_retransmitted).sum(),
        };
        let since = total.since(self.loss.before);
        self.loss.before = total;
        self.loss.lossy_looks = if since.is_lossy() { self.loss.lossy_looks + 1 } else { 0 };
        if self.loss.lossy_looks < 2 {
            return;
        }
        let host = &context.shared.setup.host;
        let own =
            context.shared.setup.congestion.control.as_ref().unwrap_or(&host.congestion_default);
        let rtt_us = tcp().map(|tcp| tcp.min_rtt_us).filter(|us| *us > 0).min().unwrap_or(0);
        let rtt = Duration::from_micros(rtt_us.into());
        let may_choose_any = host.may_administer_network;
        let Some(choice) = choose::congestion_again(host, own, rtt, since, may_choose_any) else {
            return;
        };
        let Some(control) = choice.control else { return };
        streams.set_congestion(&control);
        let from_to = format!("{own} -> {control}");
        self.loss.control = Some(control);
        let change = self.engines.change(Some(Side::Path), StreamId(0), from_to, choice.because);
        context.tell_change(change);
    }
}
