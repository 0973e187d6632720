//! The published studies that the benches repeat, with their figures and the rules of verdicts.
//!
//! Theirs were measured on other hardware, years ago, over a network: they are the shape of a
//! result, to be looked at beside ours and never mixed with them. A rule is about that shape, and
//! stands here before anything is run.

pub mod efficient_transfer;
pub mod massive_data;
pub mod media_on_demand;
pub mod node_tuning;
pub mod user_level_networking;

use haul_report::{
    html_page::Section,
    study_figure::{Judgement, StudyFigure, StudyName},
};

pub use media_on_demand::{
    CROWD_FILM_BYTES, CROWD_FILMS, CROWD_PER_HOUR, CROWD_PERIOD_S, CROWD_PERIODS,
    CROWD_RATE_BITS_PER_S, CROWD_THETA, MEDIA_ON_DEMAND, REQUEST_BYTES,
};
pub use node_tuning::{NODE_TUNING, TUNED_RATES};

/// A study, and each of its tables and figures.
#[derive(Debug)]
pub struct Study {
    pub name: StudyName,
    /// Authors, title and year.
    pub source: &'static str,
    /// The paragraph of docs/studies.md that tells the study.
    pub words: &'static str,
    pub figures: &'static [&'static Figure],
}

/// The studies in the order of docs/studies.md. Each of their tables and figures is in here once,
/// also those that haul cannot measure.
pub const STUDIES: [Study; 5] = [
    massive_data::STUDY,
    user_level_networking::STUDY,
    efficient_transfer::STUDY,
    node_tuning::STUDY,
    media_on_demand::STUDY,
];

/// The bench that measures a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasuredBy {
    Engines,
    Files,
    Tuning,
    Media,
    Fabric,
    Java,
    /// No bench, for this reason.
    Nothing(&'static str),
}

/// A table or figure of a study, as it is known before anything is run.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub study: StudyName,
    /// The number in the study, or its name where there is none.
    pub number: &'static str,
    /// The thing that it shows, in one sentence.
    pub shows: &'static str,
    /// The rule that decides the verdict.
    pub rule: &'static str,
    /// The study's own figures in a sentence.
    pub theirs: &'static str,
    /// The command that repeats it alone; empty where none can.
    pub command: &'static str,
    pub by: MeasuredBy,
}

impl Figure {
    /// The figure with what was measured for it.
    #[must_use]
    pub fn judged(&self, judgement: Judgement, section: Section) -> StudyFigure {
        StudyFigure {
            study: self.study,
            number: self.number,
            shows: self.shows,
            rule: self.rule,
            theirs: self.theirs,
            command: self.command,
            judgement,
            section,
        }
    }

    /// The figure where nothing was measured, with the reason.
    #[must_use]
    pub fn not_measured(&self, because: &str) -> StudyFigure {
        self.judged(Judgement::not_measured(because), Section::default())
    }
}

/// The reason why a value is missing that nothing refused.
const NO_TIME: &str = "no time was left to measure it";

/// A judgement of something that is missing, with the reason where one is known.
fn missing(because: Option<&str>) -> Judgement {
    Judgement::not_measured(because.unwrap_or(NO_TIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = &'static Figure> {
        STUDIES.iter().flat_map(|study| study.figures.iter().copied())
    }

    #[test]
    fn each_figure_is_in_the_list_of_its_study_once_and_has_a_place_of_its_own() {
        for study in &STUDIES {
            assert!(!study.figures.is_empty(), "{}", study.source);
            assert!(study.figures.iter().all(|figure| figure.study == study.name));
        }
        let anchors: BTreeSet<String> =
            all().map(|figure| figure.not_measured("so").anchor()).collect();
        assert_eq!(anchors.len(), all().count(), "{anchors:?}");
    }

    /// The words of a study stand in two places, which say the same.
    #[test]
    fn each_study_is_told_as_in_the_documentation() {
        let plain = |text: &str| {
            let text = text.replace(['*', '`'], "");
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let documented = plain(&std::fs::read_to_string(root.join("docs/studies.md")).unwrap());
        let mut at = 0;
        for study in &STUDIES {
            for words in [study.name.title, study.words] {
                let found = documented[at..].find(&plain(words));
                at += found
                    .unwrap_or_else(|| panic!("not in docs/studies.md, or out of order: {words}"));
            }
        }
    }

    #[test]
    fn each_figure_says_what_it_shows_by_which_rule_and_what_theirs_are() {
        for figure in all() {
            for words in [figure.rule, figure.theirs] {
                assert!(words.ends_with('.'), "{}: {words}", figure.number);
            }
            assert!(!figure.shows.is_empty() && !figure.shows.ends_with('.'), "{}", figure.number);
            match figure.by {
                MeasuredBy::Nothing(why) => assert!(why.contains("needs"), "{why}"),
                _ => assert!(figure.command.starts_with("haul bench "), "{}", figure.number),
            }
        }
    }

    #[test]
    fn a_figure_that_was_not_measured_still_shows_theirs() {
        let figure = massive_data::OFFSETS.not_measured("needs two processes");
        assert_eq!(figure.judgement.verdict, Verdict::NotMeasured);
        assert!(figure.text().contains("73.7"), "{}", figure.text());
    }
}
