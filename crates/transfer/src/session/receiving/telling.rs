//! What a sender is told of files that are there, by the rights that it has.
//!
//! A sender that may write and not read learns of a name that it offers whether something is there,
//! and whether that has the size and the time of its own file. It learns no size and no BLAKE3 of
//! other files, and gets no other name for one of them.

use super::Receiving;
use crate::{
    locks::lock,
    session::{removing::Removing, telling::Telling},
    storage::{prepare::Prepared, target_place::TargetPlace},
};
use haul_protocol::wire::{Compared, Fault, FaultCode, FileKind, FileOffer, Growth, Plan, Side};

impl Receiving<'_> {
    /// The one source turned out to be a directory.
    pub(super) fn learn_source(&mut self, offer: &FileOffer) {
        if !self.place.learn_source(offer) {
            return;
        }
        self.tally.keeps_source_name = true;
        self.removing = Removing::new(&self.place, self.shared.streams.clone());
        if let Some(manifest) = &mut self.options.manifest {
            manifest.rename = None;
        }
    }

    pub(super) fn prepare_telling(
        &mut self,
        offer: &FileOffer,
        span_bytes: u64,
    ) -> Result<Prepared, Fault> {
        if self.options.dry_run && matches!(self.place, TargetPlace::Null) {
            return Ok(Prepared::Plan(Plan::default()));
        }
        if self.options.telling == Telling::All {
            return self.prepare(offer, span_bytes);
        }
        let is_link = offer.kind() == FileKind::HardLink;
        if is_link && !lock(&self.shared.machine).has_in_place(&offer.link_target) {
            let what = "cannot be made as a hard link";
            let fault = Fault::new(FaultCode::KindUnsupported, Side::Target, what);
            return Err(fault.at(&*offer.name).needs("a file of this session to link to"));
        }
        let asks = offer.growth() == Growth::Grown && offer.compared() == Compared::NotCompared;
        let prepared = if asks && !self.growing.is_of_session(&offer.name) {
            // What an earlier run left may be another's: it comes again and is not compared.
            let compared = Compared::OtherContent as i32;
            self.prepare(&FileOffer { compared, ..offer.clone() }, span_bytes)
        } else {
            self.prepare(offer, span_bytes)
        };
        prepared.map_err(|fault| match fault.code() {
            FaultCode::Exists => fault.found(""),
            _ => fault,
        })
    }
}
