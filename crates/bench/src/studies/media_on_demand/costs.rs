//! Judgement of the study's figures 8 to 10: what one method costs beside another.
//!
//! Each is told warm, out of the page cache, and cold, from the disk, as the two may differ.

use super::super::missing;
use haul_report::{spread::Spread, study_figure::Judgement};

/// A comparison of two methods in a figure.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The method that took less in the study.
    pub less: &'static str,
    pub more: &'static str,
    pub unit: &'static str,
    pub digits: usize,
}

pub const SINGLE_FILE: Comparison =
    Comparison { less: "one-copy", more: "two-copy", unit: "s/GB", digits: 3 };
pub const RESPONSE: Comparison =
    Comparison { less: "one-copy", more: "two-copy", unit: "ms", digits: 2 };
pub const SMALL_REQUESTS: Comparison =
    Comparison { less: "sendfile", more: "read-write", unit: "s", digits: 3 };

/// Figures of a comparison from one source of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The source, as "warm".
    pub source: &'static str,
    pub less: Option<Spread>,
    pub more: Option<Spread>,
}

/// The judgement: in each source the method that took less in the study takes less here.
#[must_use]
pub fn judge(comparison: Comparison, found: &[Compared], because: Option<&str>) -> Judgement {
    let sentences: Vec<(bool, String)> =
        found.iter().filter_map(|one| sentence(comparison, one)).collect();
    if sentences.is_empty() {
        return missing(because);
    }
    let holds = sentences.iter().all(|(holds, _)| *holds);
    let mut words: Vec<String> = sentences.iter().map(|(_, words)| words.clone()).collect();
    if sentences.len() == found.len() {
        return Judgement::of_rule(holds, words.join(" "));
    }
    words.push(format!("The rest: {}.", missing(because).sentence));
    let words = words.join(" ");
    if holds { Judgement::not_measured(words) } else { Judgement::of_rule(false, words) }
}

fn sentence(comparison: Comparison, found: &Compared) -> Option<(bool, String)> {
    let Comparison { less, more, unit, digits } = comparison;
    let (one, other) = (found.less?, found.more?);
    let holds = one.median < other.median;
    let change = (one.median / other.median - 1.0) * 100.0;
    let change = if holds {
        format!("{:.0} % less", -change)
    } else {
        format!("which reverses the study's order: {change:.0} % more")
    };
    let overlap = one.lowest <= other.highest && other.lowest <= one.highest;
    let overlap = if overlap { "; their rounds overlap" } else { "" };
    let words = format!(
        "{}, {less} took {:.digits$} {unit} and {more} {:.digits$}, {change}{overlap}.",
        haul_report::study_figure::capital(found.source),
        one.median,
        other.median,
    );
    Some((holds, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict;

    fn spread(values: [f64; 3]) -> Option<Spread> {
        Spread::of(values)
    }

    fn compared(source: &'static str, less: [f64; 3], more: [f64; 3]) -> Compared {
        Compared { source, less: spread(less), more: spread(more) }
    }

    #[test]
    fn less_in_both_sources_came_out() {
        let found = [
            compared("warm", [1.0, 1.0, 1.5], [2.0, 2.0, 2.0]),
            compared("cold", [3.0, 3.0, 5.0], [4.0, 4.0, 4.0]),
        ];
        let said = judge(SINGLE_FILE, &found, None);
        assert_eq!(said.verdict, Verdict::CameOut);
        assert_eq!(
            said.sentence,
            "Warm, one-copy took 1.000 s/GB and two-copy 2.000, 50 % less. Cold, one-copy took \
             3.000 s/GB and two-copy 4.000, 25 % less; their rounds overlap."
        );
    }

    #[test]
    fn an_order_that_is_reversed_in_one_source_did_not_come_out_and_is_said() {
        for at in 0..2 {
            let mut found = [
                compared("warm", [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
                compared("cold", [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
            ];
            found[at].less = spread([3.0; 3]);
            let said = judge(SMALL_REQUESTS, &found, None);
            assert_eq!(said.verdict, Verdict::DidNotComeOut);
            let words = "sendfile took 3.000 s and read-write 2.000, which reverses the study's \
                         order: 50 % more.";
            assert!(said.sentence.contains(words), "{}", said.sentence);
            // Nor does what is alike.
            found[at].less = spread([2.0; 3]);
            assert_eq!(judge(SMALL_REQUESTS, &found, None).verdict, Verdict::DidNotComeOut);
        }
    }

    #[test]
    fn a_source_that_is_missing_is_no_verdict_unless_the_other_speaks_against_it() {
        let mut found = [
            compared("warm", [1.0; 3], [2.0; 3]),
            Compared { source: "cold", less: None, more: spread([1.0; 3]) },
        ];
        let said = judge(RESPONSE, &found, Some("needs a cold file"));
        assert_eq!(said.verdict, Verdict::NotMeasured);
        assert!(said.sentence.ends_with("The rest: needs a cold file."), "{}", said.sentence);
        found[0].more = spread([0.5; 3]);
        assert_eq!(judge(RESPONSE, &found, None).verdict, Verdict::DidNotComeOut);
        found[0].less = None;
        let said = judge(RESPONSE, &found, Some("needs a cold file"));
        assert_eq!((said.verdict, &said.sentence[..]), (Verdict::NotMeasured, "needs a cold file"));
    }
}
