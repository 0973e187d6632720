//! Check whether an offer is a round of a file that grows.

use haul_protocol::message::{FileOffer, Growth};

/// Growth of a file that is sent while it is written; `None` for any other file.
pub(super) fn growth(offer: &FileOffer) -> Option<Growth> {
    Some(offer.growth).filter(|growth| *growth != Growth::NotGrowing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_the_end_of_a_file_that_grows_are_growth_and_nothing_else_is() {
        for (of, expected) in [
            (Growth::NotGrowing, None),
            (Growth::Growing, Some(Growth::Growing)),
            (Growth::Grown, Some(Growth::Grown)),
        ] {
            assert_eq!(growth(&FileOffer { growth: of, ..FileOffer::default() }), expected);
        }
    }
}
