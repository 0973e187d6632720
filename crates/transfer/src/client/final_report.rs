//! The report at the end of a run, from its last session and the account of all of them.

use super::{Client, Run, Work, account::Figured, new_name, rdma_report::rdma_report};
use crate::{
    error::TransferError,
    events::{CheckVerdict, Event, LocalEndReport, RecheckReport, Report, SshReport},
    name::Name,
    options::digest_name,
    problem::Problem,
    session::{stages, tally::Tally},
    verdict::{self, Rate},
};
use haul_datapath::choose;
use haul_protocol::message::{self, Direction};
use std::time::Instant;

/// Figures of a side's streams, out of its report: where their time went.
pub(super) fn of_report(report: &message::SideReport) -> message::Figures {
    message::Figures { streams_ns: report.streams_ns, stages: report.stages.clone() }
}

impl Client<'_> {
    /// Makes the report of a run when everything is settled.
    ///
    /// # Errors
    /// If none of the sources could be offered, or the user ends it while the manifest is written.
    pub(super) fn finished(
        &self,
        (run, tally): (&mut Run, Tally),
        work: &Work<'_>,
        begun: Instant,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Report, TransferError> {
        if let Some(problem) = nothing_started(&tally) {
            // Files that are gone or cannot be read may be there on another host, or later.
            return Err(TransferError::Unavailable(Box::new(problem)));
        }
        run.keeps_source_name = tally.keeps_source_name;
        let checks = self.checks(run, work, &tally);
        let room = self.target_room(run, work);
        let mut report = self.report(run, &tally, begun);
        report.ok &= checks.iter().all(|check| check.verdict != CheckVerdict::Failed);
        (report.preflight, report.target_room) = (checks, room);
        self.with_manifest(report, on_event)
    }

    /// Finds out, after the last session of a pull, whether its target's path is the new name of
    /// the source.
    pub(super) fn find_out_name(&self, work: &Work<'_>, keeps_source_name: bool) {
        if let Work::Pull(place) = work {
            self.target_is_name.set(new_name(place).is_some() && !keeps_source_name);
        }
    }

    /// Adds the manifest to the report, as the last step: everything is settled.
    fn with_manifest(
        &self,
        mut report: Report,
        on_event: &mut dyn FnMut(Event),
    ) -> Result<Report, TransferError> {
        let Some(manifest) = &self.manifest else { return Ok(report) };
        let mut left_out = |problem| on_event(Event::Error(problem));
        match manifest.finish(self.interrupt, &mut left_out) {
            Ok(written) => {
                report.ok &= written.left_out == 0;
                report.manifest = Some(written);
            }
            Err(None) => {
                let report = Some(Box::new(Report { ok: false, ..report }));
                return Err(TransferError::Interrupted { report });
            }
            Err(Some(problem)) => {
                report.ok = false;
                on_event(Event::Error(problem));
            }
        }
        Ok(report)
    }

    /// The verdict on the run: what held it back in the seconds in which it could move anything.
    /// Where ssh carried the data, what that cost stands beside it.
    fn verdict(
        &self,
        run: &Run,
        last_bytes: u64,
        seconds: f64,
    ) -> (verdict::Judged, Option<SshReport>) {
        let side = |report: &message::SideReport, figures: &message::Figures| message::SideReport {
            stages: figures.stages.clone(),
            streams_ns: figures.streams_ns,
            // Those that were opened in the place of others were not there beside them.
            threads: run.streams,
            ..report.clone()
        };
        let Figured { mine, theirs } = &run.account.figures;
        let (mine, theirs) = (side(&run.mine, mine), side(&run.theirs, theirs));
        let push = self.open.direction == Direction::Push;
        let (source, target) = if push { (&mine, &theirs) } else { (&theirs, &mine) };
        let limit = self.options.rate_bytes_per_s;
        let rate = Rate { bytes: run.account.bytes + last_bytes, seconds, limit };
        let ssh = verdict::of_ssh(source, target, run.path, &rate);
        (verdict::of_reports(source, target, run.path, &rate), ssh)
    }

    /// The report of how far the run came, with a session that is its last, or was lost, and had
    /// this tally.
    pub(super) fn partial_report(&self, run: &Run, tally: &Tally, begun: Instant) -> Report {
        let report = self.report(run, tally, begun);
        let kept = tally.durable_bytes.max(tally.there_before());
        let unfinished_bytes = kept.saturating_sub(tally.done_bytes + tally.skipped_bytes);
        let there_before = run.there_before(tally);
        let moved_bytes = (report.bytes + unfinished_bytes).saturating_sub(there_before);
        let report = Report { ok: false, unfinished_bytes, moved_bytes, ..report };
        until_now(report, begun)
    }

    pub(super) fn report(&self, run: &Run, tally: &Tally, begun: Instant) -> Report {
        let push = self.open.direction == Direction::Push;
        let (source, target) =
            if push { (&run.mine, &run.theirs) } else { (&run.theirs, &run.mine) };
        let seconds = begun.elapsed().as_secs_f64();
        let moved_now = tally.done_bytes.saturating_sub(tally.resumed_bytes + tally.hole_bytes);
        let there = run.there(tally);
        let moved = there.moved_bytes;
        let away = run.account.away.as_secs_f64().min(seconds);
        let ((bottleneck, stages), ssh) = self.verdict(run, moved_now, seconds - away);
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
            unfinished_bytes: 0,
            compared_content: self.file_options.compare_content,
            dry_run: self.file_options.dry_run,
            planned_bytes: tally.planned_bytes,
            preflight: Vec::new(),
            target_room: None,
            sources_removed: self.sources_removed(&there, source),
            seconds: stages::round(seconds, 3),
            gbit_per_s: stages::rate_of(moved, seconds),
            files: there.files,
            updated_attributes: target.updated_attributes,
            protection: self.options.protection.name().into(),
            digest: digest_name(self.options.chosen_digest()).into(),
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
            largest_lag: run.largest_lag.clone(),
            source: stages::costs(source, moved_now),
            target: stages::costs(target, moved_now),
            rdma: rdma_report(source, target),
            tcp_because: run.why_tcp(),
            proxy: String::new(),
            way: self.way_in_words().unwrap_or_default(),
            ssh,
            local_ends: self.local_ends(run, seconds),
            bottleneck,
            stages,
            read_back: target.read_back.clone(),
            recheck: rechecked(target),
            manifest: None,
        }
    }
}

impl Client<'_> {
    /// Report of the local ends, where the user has named some.
    fn local_ends(&self, run: &Run, seconds: f64) -> Vec<LocalEndReport> {
        let is_named = !self.options.connect.local_ends.is_empty();
        if is_named { run.flows.report(seconds) } else { Vec::new() }
    }
}

/// Adds the places of the files to the report, also to that of a transfer that ended early.
pub(super) fn named(
    ended: Result<Report, TransferError>,
    name: impl Fn(Report) -> Report,
) -> Result<Report, TransferError> {
    ended.map(&name).map_err(|error| error.map_report(|report| report.map(&name)))
}

/// Report of a run that two of its sessions were lost in: of the session in which more was kept, as
/// the later one may have been lost before it had met what the earlier one brought.
pub(super) fn of_more(earlier: Option<Report>, later: Report) -> Report {
    let kept = |report: &Report| report.bytes + report.unfinished_bytes;
    let Some(earlier) = earlier.filter(|earlier| kept(earlier) > kept(&later)) else {
        return later;
    };
    Report {
        resent_spans: later.resent_spans,
        reconnections: later.reconnections,
        seconds_without_server: later.seconds_without_server,
        ..earlier
    }
}

/// The problem of a run none of whose sources could even be offered.
fn nothing_started(tally: &Tally) -> Option<Problem> {
    tally.first_problem.clone().filter(|_| tally.offered_files == 0)
}

/// Brings the time and rate of a report up to now.
pub(super) fn until_now(report: Report, begun: Instant) -> Report {
    let seconds = begun.elapsed().as_secs_f64();
    let gbit_per_s = stages::rate_of(report.moved_bytes, seconds);
    Report { seconds: stages::round(seconds, 3), gbit_per_s, ..report }
}

fn rechecked(target: &message::SideReport) -> Option<RecheckReport> {
    (target.rechecked_bytes > 0).then(|| RecheckReport {
        bytes: target.rechecked_bytes,
        lost_bytes: target.recheck_lost_bytes,
        seconds: stages::round(target.recheck_ns as f64 / 1e9, 3),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_lost_early_hides_nothing_that_an_earlier_one_kept() {
        let kept = |unfinished_bytes, reconnections| Report {
            bytes: 10,
            unfinished_bytes,
            reconnections,
            ..Report::default()
        };
        assert_eq!(of_more(None, kept(0, 0)), kept(0, 0));
        assert_eq!(of_more(Some(kept(500, 0)), kept(0, 1)), kept(500, 1));
        assert_eq!(of_more(Some(kept(500, 1)), kept(700, 2)), kept(700, 2));
    }
}
