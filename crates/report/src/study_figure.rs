//! Figure of a published study, repeated: ours beside theirs, and whether theirs came out.
//!
//! A verdict follows from a rule that was written before anything ran. The rule is about the shape
//! of a result, as the order of rows or the sign of a difference, and never about a number that
//! other hardware gave.

use crate::{
    markup::escaped,
    section::{Section, paragraphs},
};
use serde::Serialize;

/// The outcome of repeating a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The rule holds for what was measured here.
    CameOut,
    /// The figure was measured, and the rule does not hold.
    DidNotComeOut,
    /// The rule cannot be applied, as a measurement that it needs is missing.
    NotMeasured,
}

impl Verdict {
    /// The verdict in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::CameOut => "came out",
            Self::DidNotComeOut => "did not come out",
            Self::NotMeasured => "not measured",
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::CameOut => "came-out",
            Self::DidNotComeOut => "did-not",
            Self::NotMeasured => "missing",
        }
    }
}

/// A verdict with the sentence that says by what figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    pub sentence: String,
}

impl Judgement {
    /// A judgement of what was measured: the rule holds or does not.
    #[must_use]
    pub fn of_rule(holds: bool, sentence: impl Into<String>) -> Self {
        let verdict = if holds { Verdict::CameOut } else { Verdict::DidNotComeOut };
        Self { verdict, sentence: sentence.into() }
    }

    /// The judgement where something is missing, with the reason.
    #[must_use]
    pub fn not_measured(because: impl Into<String>) -> Self {
        Self { verdict: Verdict::NotMeasured, sentence: because.into() }
    }
}

/// The study that a figure is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StudyName {
    /// The name in anchors and JSON, such as `massive-data`.
    pub id: &'static str,
    pub title: &'static str,
}

/// A study in words, for a page about several.
#[derive(Clone, Copy, Debug)]
pub struct StudyWords {
    pub name: StudyName,
    /// Authors, title and year.
    pub source: &'static str,
    /// The paragraph that tells the study to a reader who never saw it.
    pub words: &'static str,
}

/// A figure or table of a study, repeated.
#[derive(Clone, Debug)]
pub struct StudyFigure {
    pub study: StudyName,
    /// The number in the study, such as "table 2".
    pub number: &'static str,
    /// The thing that the figure shows, in one sentence.
    pub shows: &'static str,
    /// The rule that decides the verdict, in one sentence.
    pub rule: &'static str,
    /// Figures of the study in a sentence.
    pub theirs: &'static str,
    /// The command that repeats this figure alone; empty where none can.
    pub command: &'static str,
    pub judgement: Judgement,
    /// Charts and tables, theirs beside ours; its title is not shown.
    pub section: Section,
}

/// A figure as a line of JSON.
#[derive(Debug, Serialize)]
pub struct FigureLine<'figure> {
    event: &'static str,
    study: &'static str,
    figure: &'static str,
    verdict: Verdict,
    sentence: &'figure str,
    rule: &'static str,
    theirs: &'static str,
    command: &'static str,
}

impl StudyFigure {
    /// The name of the figure within a page.
    #[must_use]
    pub fn anchor(&self) -> String {
        let sign = |sign: char| if sign.is_ascii_alphanumeric() { sign } else { '-' };
        let number: String = self.number.chars().map(sign).collect();
        let words = number.split('-').filter(|word| !word.is_empty());
        format!("{}-{}", self.study.id, words.collect::<Vec<_>>().join("-"))
    }

    /// The figure as one JSON object, without its tables: each bench has lines for their cells.
    #[must_use]
    pub fn line(&self) -> FigureLine<'_> {
        FigureLine {
            event: "figure",
            study: self.study.id,
            figure: self.number,
            verdict: self.judgement.verdict,
            sentence: &self.judgement.sentence,
            rule: self.rule,
            theirs: self.theirs,
            command: self.command,
        }
    }

    /// The verdict and its sentence as one.
    #[must_use]
    pub fn verdict_in_words(&self) -> String {
        let Judgement { verdict, sentence } = &self.judgement;
        format!("{}: {}", capital(verdict.words()), closed(sentence))
    }

    /// The figure for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let study = self.study.title;
        let mut parts = vec![
            format!("== {study}, {}: {} ==", self.number, self.shows),
            self.verdict_in_words(),
            format!("Rule: {}\n{}", self.rule, self.theirs),
        ];
        parts.extend(self.section.words.iter().cloned());
        parts.extend(self.section.tables.iter().map(|table| table.text()));
        parts.join("\n\n")
    }

    /// The figure as a row of HTML in a table of all, with a link to its place.
    pub fn overview_html(&self) -> String {
        let Judgement { verdict, sentence } = &self.judgement;
        format!(
            "<tr><td class=\"w\"><a href=\"#{}\">{}</a></td><td class=\"w {}\">{}</td>\
             <td class=\"why\">{}</td></tr>\n",
            escaped(&self.anchor()),
            escaped(&capital(self.number)),
            verdict.class(),
            verdict.words(),
            escaped(&capital(&closed(sentence)))
        )
    }

    /// The figure as a part of a page, below a heading of the level `heading`.
    pub fn html(&self, heading: &str) -> String {
        let Judgement { verdict, sentence } = &self.judgement;
        let title = format!("{}: {}", capital(self.number), self.shows);
        let mut html = format!(
            "<section class=\"study-figure\" id=\"{}\">\n<{heading}>{}</{heading}>\n\
             <p><strong class=\"{}\">{}</strong>: {}</p>\n<p class=\"note\">Rule: {} {}</p>\n",
            escaped(&self.anchor()),
            escaped(&title),
            verdict.class(),
            capital(verdict.words()),
            escaped(&closed(sentence)),
            escaped(self.rule),
            escaped(self.theirs),
        );
        if !self.command.is_empty() {
            let command = escaped(self.command);
            html += &format!("<p class=\"note\">This figure again: <code>{command}</code></p>\n");
        }
        html += &paragraphs(&self.section.words);
        html += &self.section.drawn();
        html + "</section>\n"
    }
}

/// The sentence with a full stop at its end.
fn closed(sentence: &str) -> String {
    format!("{}.", sentence.trim_end_matches('.'))
}

/// The words with a capital letter before all.
pub fn capital(words: &str) -> String {
    let mut rest = words.chars();
    rest.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string())
        + rest.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    fn figure(judgement: Judgement) -> StudyFigure {
        let mut table = Table::new("Times", 1, &["way", "ours, s", "theirs, s"]);
        table.row(["a<b", "2", "3"].map(str::to_owned).into());
        StudyFigure {
            study: StudyName { id: "some-data", title: "Some data" },
            number: "figures 12 to 15",
            shows: "two ways & their times",
            rule: "The first way takes less time.",
            theirs: "Theirs: 1 s and 3 s.",
            command: "haul bench files --quick",
            judgement,
            section: Section { tables: vec![table], ..Section::default() },
        }
    }

    #[test]
    fn a_rule_that_holds_came_out_and_one_that_does_not_did_not() {
        assert_eq!(Judgement::of_rule(true, "so").verdict, Verdict::CameOut);
        assert_eq!(Judgement::of_rule(false, "so").verdict, Verdict::DidNotComeOut);
        assert_eq!(Judgement::not_measured("so").verdict, Verdict::NotMeasured);
    }

    #[test]
    fn the_sentence_is_the_same_in_the_text_the_page_and_the_line() {
        let figure = figure(Judgement::of_rule(false, "2 s are less than 3 s"));
        let text = figure.text();
        assert!(text.contains("Did not come out: 2 s are less than 3 s"), "{text}");
        assert!(text.contains("Some data, figures 12 to 15: two ways & their times"), "{text}");
        let html = figure.html("h3");
        assert!(html.contains("id=\"some-data-figures-12-to-15\""), "{html}");
        assert!(html.contains("Figures 12 to 15: two ways &amp; their times</h3>"), "{html}");
        assert!(html.contains(">Did not come out</strong>: 2 s are less than 3 s.</p>"), "{html}");
        assert!(html.contains("<td class=\"w\">a&lt;b</td>"), "{html}");
        for shown in [&text, &html] {
            assert!(shown.contains("Theirs: 1 s and 3 s."), "{shown}");
        }
        let line = serde_json::to_value(figure.line()).unwrap();
        assert_eq!(line["event"], "figure");
        assert_eq!((&line["study"], &line["figure"]), (&"some-data".into(), &figure.number.into()));
        assert_eq!(line["verdict"], "did_not_come_out");
        assert_eq!(line["sentence"], "2 s are less than 3 s");
        assert_eq!(line["rule"], "The first way takes less time.");
    }

    #[test]
    fn a_figure_that_no_command_repeats_names_none() {
        let figure = StudyFigure { command: "", ..figure(Judgement::not_measured("needs RDMA")) };
        let html = figure.html("h2");
        assert!(!html.contains("<code>"), "{html}");
        assert!(html.contains(">Not measured</strong>: needs RDMA"), "{html}");
    }
}
