//! A section of a page: its words, and charts with the tables that they were drawn from.

use crate::{markup::escaped, table::Table};

/// A section of a page: charts, then the tables that they were drawn from.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub title: String,
    pub words: Vec<String>,
    /// Charts as SVG, as [`crate::chart`] draws them.
    pub charts: Vec<String>,
    pub tables: Vec<Table>,
}

impl Section {
    /// The charts and tables as HTML.
    pub fn drawn(&self) -> String {
        let charts = self.charts.iter().map(|chart| format!("<figure>\n{chart}</figure>\n"));
        charts.chain(self.tables.iter().map(Table::html)).collect()
    }
}

pub fn paragraphs(words: &[String]) -> String {
    words.iter().map(|words| format!("<p>{}</p>\n", escaped(words))).collect()
}
