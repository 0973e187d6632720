//! Results of a bench or a probe: tables, charts and lines for programs, in the order they have.

use crate::{
    aligned::aligned,
    host_facts::HostFacts,
    html_page::{Page, Section},
    study_figure::{StudyFigure, StudyWords},
    table::Table,
};
use serde::Serialize;

/// Findings of a bench or a probe, in the order they are shown in.
#[derive(Debug)]
pub struct Results {
    pub title: String,
    /// The verdict, which stands before all else.
    pub verdict: Vec<String>,
    pub words: Vec<String>,
    pub facts: HostFacts,
    pub sections: Vec<Section>,
    /// Figures of studies that were repeated, or the reasons why not.
    pub figures: Vec<StudyFigure>,
    /// Studies that the results are about, in their order; empty for other results.
    pub studies: Vec<StudyWords>,
    /// Objects for programs, one a line; the host's facts come before.
    pub lines: Vec<serde_json::Value>,
    /// Whether at least one thing was measured.
    pub measured: bool,
}

impl Results {
    /// Adds a line for programs.
    ///
    /// # Panics
    /// If the object cannot be JSON, as plain data always can.
    pub fn line(&mut self, object: &impl Serialize) {
        self.lines.push(serde_json::to_value(object).expect("results are plain data"));
    }

    /// All objects for programs but the host's facts: the lines, then one for each figure.
    ///
    /// # Panics
    /// If the line of a figure cannot be JSON, as plain data always can.
    pub fn objects(&self) -> impl Iterator<Item = serde_json::Value> + '_ {
        let figures = self.figures.iter().map(|figure| {
            serde_json::to_value(figure.line()).expect("a figure's line is plain data")
        });
        self.lines.iter().cloned().chain(figures)
    }

    /// The results for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.verdict.is_empty() {
            parts.push(self.verdict.join("\n"));
        }
        parts.push(self.title.clone());
        let facts = self.facts.rows().into_iter().map(|(fact, value)| [format!("  {fact}"), value]);
        parts.push(aligned(&facts.collect::<Vec<_>>()));
        parts.extend(self.words.iter().cloned());
        parts.extend(self.studies.iter().map(|study| self.overview(study).text()));
        for section in &self.sections {
            parts.push(format!("== {} ==", section.title));
            parts.extend(section.words.iter().cloned());
            parts.extend(section.tables.iter().map(|table| table.text()));
        }
        parts.extend(self.figures.iter().map(StudyFigure::text));
        parts.join("\n\n")
    }

    /// The verdicts of a study's figures, which are told further below.
    fn overview(&self, study: &StudyWords) -> Table {
        let mut table = Table::new(study.name.title, 2, &["figure", "verdict"]);
        for figure in self.figures.iter().filter(|figure| figure.study == study.name) {
            let verdict = figure.judgement.verdict.words();
            table.row(vec![figure.number.to_owned(), verdict.to_owned()]);
        }
        table
    }

    /// The results as a page.
    #[must_use]
    pub fn page(self) -> Page {
        Page {
            title: self.title,
            words: self.verdict.into_iter().chain(self.words).collect(),
            facts: self.facts.rows(),
            sections: self.sections,
            figures: self.figures,
            studies: self.studies,
            lines_file: None,
        }
    }
}
