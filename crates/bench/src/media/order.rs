//! Verdict on the study's order of methods, and on what limited: in a sentence, from figures.

use crate::studies::MISSES_ORDER;

/// The share of all its periods that a method missed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Missed {
    pub name: String,
    pub share: f64,
}

/// The sentence that compares the study's order with the one that was found.
pub(super) fn sentence(found: &[Missed]) -> String {
    let studied: Vec<&Missed> =
        MISSES_ORDER.iter().filter_map(|name| found.iter().find(|one| one.name == *name)).collect();
    let theirs = MISSES_ORDER.join(", ");
    let absent: Vec<&str> = MISSES_ORDER
        .into_iter()
        .filter(|name| !found.iter().any(|one| one.name == *name))
        .collect();
    let study = format!("The study's order, from the fewest deadlines missed ({theirs})");
    if studied.len() < 2 {
        return format!("{study} cannot be told from fewer than two of its methods.");
    }
    if studied.iter().all(|one| one.share == 0.0) {
        return format!(
            "{study} cannot be told: none was missed by anybody. A lower --read-rate or --reads, \
             or more --users, makes the disk the limit."
        );
    }
    let but = match &absent[..] {
        [] => String::new(),
        absent => format!(", as far as measured (without {})", absent.join(", ")),
    };
    // Two that missed as much have no order.
    let is_so = studied.windows(2).all(|two| two[0].share < two[1].share);
    if is_so {
        return format!("{study} came out{but}: {}.", shares(&studied));
    }
    let tied = studied.iter().take_while(|one| one.share == 0.0).count();
    if tied > 1 && studied[tied..].windows(2).all(|two| two[0].share < two[1].share) {
        return format!(
            "{study} came out{but} where one was missed: {}. The {tied} that missed none have no \
             order: a lower --read-rate or --reads, or more --users, makes the disk their limit.",
            shares(&studied)
        );
    }
    let mut ours = studied;
    ours.sort_by(|one, other| one.share.total_cmp(&other.share));
    format!("{study} did not come out{but}: {}.", shares(&ours))
}

fn shares(missed: &[&Missed]) -> String {
    let one = |one: &&Missed| format!("{} {}", one.name, percent(one.share));
    missed.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A share in per cent with the digits that tell methods apart.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shares: &[(&str, f64)]) -> Vec<Missed> {
        let one = |(name, share): &(&str, f64)| Missed { name: (*name).to_owned(), share: *share };
        shares.iter().map(one).collect()
    }

    #[test]
    fn the_order_is_told_from_the_figures() {
        let as_theirs = found(&[
            ("normal", 0.3),
            ("one-copy", 0.1),
            ("direct", 0.2),
            ("normal-no-readahead", 1.0),
        ]);
        let said = sentence(&as_theirs);
        assert!(
            said.ends_with(
                "came out: one-copy 10.00 %, direct 20.00 %, normal 30.00 %, \
                 normal-no-readahead 100.00 %."
            ),
            "{said}"
        );
        let other = sentence(&found(&[("one-copy", 0.2), ("normal", 0.1)]));
        let words = "did not come out, as far as measured (without direct, normal-no-readahead): \
                     normal 10.00 %, one-copy 20.00 %.";
        assert!(other.ends_with(words), "{other}");
        let alike = sentence(&found(&[("one-copy", 0.1), ("normal", 0.1)]));
        assert!(alike.contains("did not come out"), "{alike}");
        let two_of_none = [("one-copy", 0.0), ("direct", 0.0), ("normal", 0.1)];
        let said = sentence(&found(&two_of_none));
        assert!(said.contains("came out, as far") && said.contains("The 2 that missed"), "{said}");
        let last_of_none = sentence(&found(&[("one-copy", 0.1), ("direct", 0.0), ("normal", 0.0)]));
        assert!(last_of_none.contains("did not come out"), "{last_of_none}");
    }

    #[test]
    fn an_order_of_nothing_is_none() {
        for found in [found(&[]), found(&[("normal", 0.1), ("one-copy-no-readahead", 0.2)])] {
            assert!(sentence(&found).contains("cannot be told from fewer"));
        }
        let none = sentence(&found(&[("normal", 0.0), ("one-copy", 0.0)]));
        assert!(none.contains("none was missed"), "{none}");
    }
}
