//! Check whether an offer is a round of a file that grows.

use haul_protocol::message::{FileOffer, Growth};

/// Growth of a file that is sent while it is written; `None` for any other file.
pub(super) fn growth(offer: &FileOffer) -> Option<Growth> {
    Some(offer.growth).filter(|growth| *growth != Growth::NotGrowing)
}
