//! Judgement of the study's figure 11: which methods missed fewer deadlines, and why.
//!
//! Two methods are compared crowd by crowd. One missed fewer deadlines than the other only where
//! it did so in each crowd; a difference that turns from crowd to crowd is none.

use haul_report::{study_figure::Judgement, units};

/// The pairs of methods that the study's order consists of, the one that missed less first.
const PAIRS: [(&str, &str); 3] =
    [("one-copy", "direct"), ("direct", "two-copy"), ("normal", "normal-no-readahead")];
/// Share of the processors from which they may have decided about deadlines.
const BUSY_SHARE: f64 = 0.9;

/// Figures of a method that met all crowds.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    pub name: String,
    /// Share of the periods of each crowd that was missed.
    pub shares: Vec<f64>,
    pub cpu_us_per_stream_s: Option<f64>,
    pub disk_read_bytes: Option<u64>,
    /// The largest share of the processors that the server had.
    pub processors_share: Option<f64>,
}

/// Two methods beside each other, over the same crowds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Fewer,
    More,
    NotToldApart,
}

fn beside(one: &Missed, other: &Missed) -> Beside {
    let pairs = || one.shares.iter().zip(&other.shares);
    let is_measured = !one.shares.is_empty() && one.shares.len() == other.shares.len();
    if is_measured && pairs().all(|(one, other)| one < other) {
        Beside::Fewer
    } else if is_measured && pairs().all(|(one, other)| one > other) {
        Beside::More
    } else {
        Beside::NotToldApart
    }
}

/// The judgement of what the methods missed.
#[must_use]
pub fn judge(found: &[Missed]) -> Judgement {
    let of = |name: &str| found.iter().find(|one| one.name == name);
    let missing: Vec<&str> = PAIRS
        .iter()
        .flat_map(|(one, other)| [*one, *other])
        .filter(|name| of(name).is_none())
        .collect();
    let mut missing = missing;
    missing.dedup();
    let pairs: Vec<(&Missed, &Missed)> =
        PAIRS.iter().filter_map(|(one, other)| of(one).zip(of(other))).collect();
    if pairs.is_empty() {
        let missing = missing.join(", ");
        return Judgement::not_measured(format!("No two methods were measured: no {missing}."));
    }
    let studied = found.iter().filter(|one| PAIRS.iter().any(|pair| is_of(one, *pair)));
    let studied: Vec<&Missed> = studied.collect();
    let mut sentences = vec![medians(&studied)];
    if studied.iter().all(|one| one.shares.iter().all(|share| *share == 0.0)) {
        sentences.push(
            "Nobody missed a deadline: a lower --disk-share or more --users makes the disk the \
             limit."
                .to_owned(),
        );
        return Judgement::of_rule(false, sentences.join(" "));
    }
    let verdicts: Vec<Beside> = pairs.iter().map(|(one, other)| beside(one, other)).collect();
    for ((one, other), verdict) in pairs.iter().zip(&verdicts) {
        sentences.push(relation(one, other, *verdict));
    }
    let holds = verdicts.iter().all(|one| *one == Beside::Fewer);
    if missing.is_empty() {
        return Judgement::of_rule(holds, sentences.join(" "));
    }
    sentences.push(format!("Not measured: {}.", missing.join(", ")));
    let sentence = sentences.join(" ");
    if holds { Judgement::not_measured(sentence) } else { Judgement::of_rule(false, sentence) }
}

fn is_of(one: &Missed, (first, second): (&str, &str)) -> bool {
    one.name == first || one.name == second
}

/// The share that each method missed: the median of the crowds.
fn medians(found: &[&Missed]) -> String {
    let one = |one: &&Missed| {
        let median = haul_report::spread::Spread::of(one.shares.iter().copied());
        format!("{} {}", one.name, median.map_or("-".to_owned(), |share| percent(share.median)))
    };
    let crowds = found.iter().map(|one| one.shares.len()).max().unwrap_or(0);
    format!(
        "Deadlines missed, the median of {}: {}.",
        units::count(crowds as u64, "crowd"),
        found.iter().map(one).collect::<Vec<_>>().join(", ")
    )
}

/// The outcome of two methods in a sentence, with what was measured beside where it is not theirs.
fn relation(one: &Missed, other: &Missed, verdict: Beside) -> String {
    let (first, second) = (&one.name, &other.name);
    match verdict {
        Beside::Fewer => format!("As in the study {first} missed fewer than {second}."),
        Beside::More => {
            let reads = one.disk_read_bytes.zip(other.disk_read_bytes);
            let why = reads.filter(|(one, other)| one > other).map(|(one, other)| {
                format!(
                    ": it read {} from the disk and the other {}, as the page cache has a film \
                     once for all who watch it",
                    units::bytes(one),
                    units::bytes(other)
                )
            });
            format!(
                "Otherwise than there {first} missed more than {second}{}.",
                why.unwrap_or_default()
            )
        }
        Beside::NotToldApart => {
            let share = [one, other].into_iter().filter_map(|one| one.processors_share);
            let share = share.reduce(f64::max).filter(|share| *share < BUSY_SHARE);
            let cpu = one.cpu_us_per_stream_s.zip(other.cpu_us_per_stream_s);
            let why = share.zip(cpu).map(|(share, (one, other))| {
                format!(
                    ": what they cost a stream and second, {one:.0} and {other:.0} us of processor \
                     time, decides no deadline while at most {} of the processors are used",
                    units::percent(share)
                )
            });
            format!("{first} and {second} cannot be told apart{}.", why.unwrap_or_default())
        }
    }
}

/// A share in per cent with the digits that tell methods apart.
fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict;

    fn missed(name: &str, shares: &[f64]) -> Missed {
        Missed {
            name: name.to_owned(),
            shares: shares.to_vec(),
            cpu_us_per_stream_s: Some(90.0 + name.len() as f64),
            disk_read_bytes: Some(name.len() as u64 * 10_000_000),
            processors_share: Some(0.25),
        }
    }

    fn as_theirs() -> Vec<Missed> {
        vec![
            missed("one-copy", &[0.1, 0.0]),
            missed("direct", &[0.2, 0.1]),
            missed("two-copy", &[0.3, 0.2]),
            missed("normal", &[0.1, 0.3]),
            missed("normal-no-readahead", &[1.0, 0.9]),
        ]
    }

    #[test]
    fn the_study_s_order_came_out_where_each_crowd_has_it() {
        let said = judge(&as_theirs());
        assert_eq!(said.verdict, Verdict::CameOut, "{}", said.sentence);
        for words in [
            "the median of 2 crowds: one-copy 5.00 %, direct 15.00 %, two-copy 25.00 %, normal \
             20.00 %, normal-no-readahead 95.00 %.",
            "one-copy missed fewer than direct.",
            "direct missed fewer than two-copy.",
            "normal missed fewer than normal-no-readahead.",
        ] {
            assert!(said.sentence.contains(words), "{}", said.sentence);
        }
    }

    #[test]
    fn any_pair_that_is_not_theirs_is_told_with_what_was_measured() {
        // Each method in its turn misses all, or nothing, in the last crowd only.
        for (at, share) in [(0, 1.0), (1, 0.0), (2, 0.0), (3, 1.0), (4, 0.0)] {
            let mut found = as_theirs();
            found[at].shares[1] = share;
            let said = judge(&found);
            assert_eq!(said.verdict, Verdict::DidNotComeOut, "{at}: {}", said.sentence);
            assert!(said.sentence.contains("cannot be told apart: what they cost"), "{at}");
        }
        let mut found = as_theirs();
        (found[1].shares, found[2].shares) = (vec![0.4, 0.4], vec![0.3, 0.2]);
        found[1].disk_read_bytes = Some(500_000_000);
        let said = judge(&found);
        assert_eq!(said.verdict, Verdict::DidNotComeOut);
        let words = "direct missed more than two-copy: it read 477 MiB from the disk and the other";
        assert!(said.sentence.contains(words), "{}", said.sentence);
        found[1].disk_read_bytes = Some(1);
        let said = judge(&found).sentence;
        assert!(said.contains("direct missed more than two-copy."), "{said}");
    }

    #[test]
    fn busy_processors_are_no_reason_why_methods_are_alike() {
        let mut found = as_theirs();
        found[0].shares = found[1].shares.clone();
        found[0].processors_share = Some(0.95);
        let said = judge(&found).sentence;
        assert!(said.contains("one-copy and direct cannot be told apart."), "{said}");
    }

    #[test]
    fn what_is_missing_or_missed_by_nobody_is_no_order() {
        let two = [missed("one-copy", &[0.1]), missed("direct", &[0.2])];
        let said = judge(&two);
        assert_eq!(said.verdict, Verdict::NotMeasured);
        assert!(said.sentence.contains("Not measured: two-copy, normal"), "{}", said.sentence);
        let two = [missed("one-copy", &[0.3]), missed("direct", &[0.2])];
        assert_eq!(judge(&two).verdict, Verdict::DidNotComeOut);
        for found in [&[][..], &two[..1], &[missed("one-copy", &[]), missed("normal", &[])]] {
            assert_eq!(judge(found).verdict, Verdict::NotMeasured);
        }
        let none: Vec<Missed> =
            as_theirs().into_iter().map(|one| missed(&one.name, &[0.0, 0.0])).collect();
        let said = judge(&none);
        assert_eq!(said.verdict, Verdict::DidNotComeOut);
        assert!(said.sentence.contains("Nobody missed a deadline"), "{}", said.sentence);
    }
}
