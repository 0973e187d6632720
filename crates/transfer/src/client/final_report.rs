//! The report at the end of a run, from its last session and the account of all of them.

use super::{Client, Run, account::Figured};
use crate::{
    events::{RecheckReport, Report},
    name::Name,
    options::digest_name,
    session::{stages, tally::Tally},
    verdict::{self, Rate},
};
use haul_datapath::choose;
use haul_protocol::message::{self, Direction};
use std::time::Instant;

/// Where the time of a side's streams went.
pub(super) fn of_report(report: &message::SideReport) -> message::Figures {
    message::Figures { streams_ns: report.streams_ns, stages: report.stages.clone() }
}

impl Client<'_> {
    /// What held the run back in the seconds in which it could move anything.
    fn verdict(&self, run: &Run, last_bytes: u64, seconds: f64) -> verdict::Judged {
        let side = |report: &message::SideReport, figures: &message::Figures| message::SideReport {
            stages: figures.stages.clone(),
            streams_ns: figures.streams_ns,
            // Those that were opened in the place of others were not there beside them.
            threads: run.streams,
            ..report.clone()
        };
        let Figured { mine, theirs } = &run.account.figures;
        let (mine, theirs) = (side(&run.mine, mine), side(&run.theirs, theirs));
        let push = self.open.direction() == Direction::Push;
        let (source, target) = if push { (&mine, &theirs) } else { (&theirs, &mine) };
        let limit = self.options.rate_bytes_per_s;
        let rate = Rate { bytes: run.account.bytes + last_bytes, seconds, limit };
        verdict::of_reports(source, target, run.path, &rate)
    }

    pub(super) fn report(&self, run: &mut Run, tally: Tally, begun: Instant) -> Report {
        let push = self.open.direction() == Direction::Push;
        let (source, target) =
            if push { (&run.mine, &run.theirs) } else { (&run.theirs, &run.mine) };
        let seconds = begun.elapsed().as_secs_f64();
        let moved_now = tally.done_bytes.saturating_sub(tally.resumed_bytes + tally.hole_bytes);
        let there = run.there(&tally);
        let moved = there.moved_bytes;
        let away = run.account.away.as_secs_f64().min(seconds);
        let (bottleneck, stages) = self.verdict(run, moved_now, seconds - away);
        let because = |report: &message::SideReport| report.because.clone();
        let segments = self.route.segments.narrowed().map(|narrowed| narrowed.to_string());
        Report {
            ok: there.files.failed == 0,
            from: Name::default(),
            to: Name::default(),
            bytes: there.bytes,
            resumed_bytes: there.resumed_bytes,
            skipped_bytes: there.skipped_bytes,
            moved_bytes: moved,
            compared_content: self.wishes.compare_content,
            dry_run: self.wishes.dry_run,
            planned_bytes: tally.planned_bytes,
            preflight: Vec::new(),
            target_room: None,
            sources_removed: self.sources_removed(&there, source),
            seconds: stages::round(seconds, 3),
            gbit_per_s: stages::round_rate(moved as f64 * 8.0 / 1e9 / seconds.max(1e-9)),
            files: there.files,
            updated_attributes: target.updated_attributes,
            protection: self.options.protection.name().into(),
            digest: digest_name(self.options.wire_digest()).into(),
            streams: run.streams,
            span_bytes: choose::span_bytes(0, self.span_bytes()).max(tally.span_bytes),
            send_engine: source.engine.clone(),
            receive_engine: target.engine.clone(),
            chosen_because: [because(source), because(target), segments.unwrap_or_default()]
                .join("; ")
                .trim_matches([';', ' '])
                .into(),
            copied_bytes: source.copied_bytes.saturating_add(target.copied_bytes),
            retransmits: source.retransmits,
            resent_spans: (run.resent + tally.resent_spans).max(target.bad_spans),
            reconnections: self.headway.outages(),
            seconds_without_server: stages::round(away, 3),
            largest_lag: run.largest_lag.take(),
            source: stages::costs(source, moved_now),
            target: stages::costs(target, moved_now),
            bottleneck,
            stages,
            read_back: target.read_back.clone(),
            recheck: rechecked(target),
            manifest: None,
        }
    }
}

fn rechecked(target: &message::SideReport) -> Option<RecheckReport> {
    (target.rechecked_bytes > 0).then(|| RecheckReport {
        bytes: target.rechecked_bytes,
        lost_bytes: target.recheck_lost_bytes,
        seconds: stages::round(target.recheck_ns as f64 / 1e9, 3),
    })
}
