//! Whether an offer is a round of a file that grows.

use haul_protocol::message::{FileOffer, Growth};

/// Whether a file is sent while it is written; `None`: it is not.
pub(super) fn growth(offer: &FileOffer) -> Option<Growth> {
    Some(offer.growth).filter(|growth| *growth != Growth::NotGrowing)
}
