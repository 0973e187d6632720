//! Reception of packs: small files that came in one piece.
//!
//! They are checked and written one by one, and acknowledged together.

use crate::session::{
    receiving::committer::SharedTarget,
    receiving::receive_spans::{Leave, ReceiveStream, Target},
};
use crate::{error::io_fault, locks::lock, storage::open_files::Pass};
use haul_datapath::SpanTap;
use haul_protocol::{
    FileId, SpanIndex,
    frame::{PackHeader, PayloadStatus, SpanTrailer},
    message::{Fault, Side},
    pack::{PackReader, PackedSpan},
    receiver::{Permit, SpanEnd},
};
use std::{os::unix::fs::FileExt, sync::atomic::Ordering};

/// Outcomes of a pack's spans.
#[derive(Default)]
struct Ended {
    spans: Vec<(FileId, SpanIndex, SpanEnd)>,
    /// Whole files that are written.
    written: Vec<(FileId, SharedTarget, u64)>,
}

impl ReceiveStream {
    pub(super) fn receive_pack(&mut self, pack: &PackHeader) -> Result<(), Leave> {
        let stream = self.stream;
        lock(&self.shared.machine).pack_starts(stream, pack)?;
        self.update_figures(true);
        let mut body = std::mem::take(&mut self.pack);
        body.resize(usize::try_from(pack.len_bytes).expect("at most a MiB"), 0);
        self.receiver.receive_bytes(&mut body)?;
        self.consumed_bytes += pack.len_bytes;
        let mut ended = Ended::default();
        lock(&self.figures).writing = true;
        let taken = self.take_spans(pack, &body, &mut ended);
        lock(&self.figures).writing = false;
        // What was written counts, even if the rest of the pack makes no sense.
        self.end_spans(ended);
        self.pack = body;
        self.update_figures(false);
        taken
    }

    fn take_spans(
        &mut self,
        pack: &PackHeader,
        body: &[u8],
        ended: &mut Ended,
    ) -> Result<(), Leave> {
        let mut permitted = Vec::new();
        let read = self.permit_spans(pack, body, &mut permitted);
        for (packed, span, target) in permitted {
            let end = match target {
                Some(target) => self.take_span(&packed, span, &target, ended),
                None => SpanEnd::Abandoned,
            };
            ended.spans.push((packed.header.file, span, end));
        }
        read
    }

    /// Finds the spans of a pack that may be written, and their targets.
    fn permit_spans<'pack>(
        &self,
        pack: &PackHeader,
        body: &'pack [u8],
        permitted: &mut Vec<(PackedSpan<'pack>, SpanIndex, Option<Target>)>,
    ) -> Result<(), Leave> {
        let mut reader = PackReader::new(pack, body);
        let mut machine = lock(&self.shared.machine);
        let targets = lock(&self.shared.targets);
        while let Some(packed) = reader.next_span()? {
            let permit = machine.span_starts(self.stream, &packed.header)?;
            if let Permit::Write(span) = permit {
                let target = targets.get(&packed.header.file).cloned();
                permitted.push((packed, span, target));
            }
        }
        Ok(())
    }

    fn take_span(
        &mut self,
        packed: &PackedSpan<'_>,
        span: SpanIndex,
        target: &Target,
        ended: &mut Ended,
    ) -> SpanEnd {
        let end = self.judge(packed, target.is_journaled);
        if end == SpanEnd::Damaged {
            self.shared.damaged_spans.fetch_add(1, Ordering::Relaxed);
        }
        if !matches!(end, SpanEnd::Verified | SpanEnd::Confirmed) {
            return end;
        }
        let (file, bytes) = (packed.header.file, packed.payload.len() as u64);
        self.keep_content(file, target, span, end);
        let written = match &target.file {
            Some(file) => {
                let place = file.place(packed.header.offset_bytes);
                let written = file.file().write_all_at(packed.payload, place);
                let failed = |e| io_fault(Side::Target, &target.name, "cannot be written", &e);
                written.map_err(failed)
            }
            None => self.write_whole(target, packed.payload, ended),
        };
        if let Err(fault) = written {
            self.fail_file_with(file, fault);
            return SpanEnd::Abandoned;
        }
        self.copied_bytes += bytes;
        self.payload_bytes += bytes;
        self.shared.verified_bytes.fetch_add(bytes, Ordering::Relaxed);
        if target.is_whole {
            ended.written.push((file, target.shared.clone(), bytes));
        } else {
            let span = (span, self.digest.journaled());
            self.shared.committer.verified(file, &target.shared, span, bytes);
        }
        end
    }

    /// Judges a span by its digest: nothing else makes a payload believed.
    fn judge(&mut self, packed: &PackedSpan<'_>, is_journaled: bool) -> SpanEnd {
        let Ok(trailer) = SpanTrailer::decode(packed.trailer) else { return SpanEnd::Damaged };
        self.digest.journals(is_journaled);
        self.digest.start(&packed.header, packed.encoded);
        if self.digest.wants_bytes() {
            self.digest.see(packed.payload);
        }
        let digest = self.digest.finish(trailer.status);
        if !crate::token::same_secret(&digest, &trailer.digest) {
            return SpanEnd::Damaged;
        }
        match trailer.status {
            PayloadStatus::Whole => SpanEnd::Verified,
            PayloadStatus::Abandoned => SpanEnd::Abandoned,
            PayloadStatus::Confirmed => SpanEnd::Confirmed,
        }
    }

    fn write_whole(
        &mut self,
        target: &Target,
        bytes: &[u8],
        ended: &mut Ended,
    ) -> Result<(), Fault> {
        let pass = if target.is_light { None } else { Some(self.pass(ended)?) };
        let mut shared = lock(&target.shared);
        shared.as_mut().map_or_else(|| Err(Fault::default()), |file| file.write_whole(bytes, pass))
    }

    fn pass(&mut self, ended: &mut Ended) -> Result<Pass, Fault> {
        if let Some(pass) = self.shared.small_files.take() {
            return Ok(pass);
        }
        // The files before this one may be what is waited for.
        self.end_spans(std::mem::take(ended));
        self.shared.committer.hurry();
        let streams = &self.shared.streams;
        self.shared.small_files.wait(|| streams.stopping()).ok_or_else(Fault::default)
    }

    /// Tells of all spans of a pack at once.
    fn end_spans(&mut self, ended: Ended) {
        self.shared.committer.verified_whole(ended.written.into_iter());
        let mut machine = lock(&self.shared.machine);
        for (file, span, end) in ended.spans {
            machine.span_ended(self.stream, file, span, end);
        }
        if machine.is_urgent() {
            self.shared.streams.wake();
        }
    }
}
