//! The page of a bench or a probe: one HTML file with everything in it.
//!
//! It is light or dark as the reader has it.
//!
//! Nothing is fetched from elsewhere and no script runs. All text is escaped.

use crate::{
    markup::escaped,
    section::paragraphs,
    study_figure::{StudyFigure, StudyWords},
};

pub use crate::section::Section;

/// A page, from its top to its end.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub title: String,
    /// Paragraphs about what was measured and how.
    pub words: Vec<String>,
    /// Facts of the host with their values.
    pub facts: Vec<(String, String)>,
    pub sections: Vec<Section>,
    /// Figures of studies, after the sections.
    pub figures: Vec<StudyFigure>,
    /// Studies that the page is about: it begins with a table of all figures, has each study's own
    /// below its words, and ends with the sections and facts. Empty for other pages.
    pub studies: Vec<StudyWords>,
    /// The file with the same results as lines of JSON, beside the page.
    pub lines_file: Option<String>,
}

impl Page {
    #[must_use]
    pub fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n"
        );
        html += &paragraphs(&self.words);
        if let Some(file) = &self.lines_file {
            let file = escaped(file);
            html += &format!(
                "<p>The same as lines of JSON, with each cell: <a href=\"{file}\">{file}</a></p>\n"
            );
        }
        html += &if self.studies.is_empty() {
            let figures = self.figures.iter().map(|figure| figure.html("h2"));
            self.facts_html() + &self.sections_html() + &figures.collect::<String>()
        } else {
            let studies = self.studies.iter().map(|study| self.study_html(study));
            let studies: String = studies.collect();
            let facts = format!("<section>\n<h2>The host</h2>\n{}</section>\n", self.facts_html());
            self.overview_html() + &studies + &facts + &self.sections_html()
        };
        html + "</main>\n</body>\n</html>\n"
    }

    fn facts_html(&self) -> String {
        let mut html = "<dl class=\"facts\">\n".to_owned();
        for (fact, value) in &self.facts {
            html += &format!("<dt>{}</dt><dd>{}</dd>\n", escaped(fact), escaped(value));
        }
        html + "</dl>\n"
    }

    fn sections_html(&self) -> String {
        let section = |section: &Section| {
            let (title, words) = (escaped(&section.title), paragraphs(&section.words));
            format!("<section>\n<h2>{title}</h2>\n{words}{}</section>\n", section.drawn())
        };
        self.sections.iter().map(section).collect()
    }

    fn of_study<'page>(
        &'page self,
        study: &StudyWords,
    ) -> impl Iterator<Item = &'page StudyFigure> + use<'page> {
        let name = study.name;
        self.figures.iter().filter(move |figure| figure.study == name)
    }

    /// A table of all figures, with links to them.
    fn overview_html(&self) -> String {
        let mut html = "<nav>\n<div class=\"scroll\"><table class=\"overview\">\n<thead><tr>\
                        <th class=\"w\">figure</th><th class=\"w\">verdict</th>\
                        <th class=\"w\">in a sentence</th></tr></thead>\n"
            .to_owned();
        for study in &self.studies {
            let (id, title) = (escaped(study.name.id), escaped(study.name.title));
            html += &format!(
                "<tbody>\n<tr><th class=\"w\" colspan=\"3\"><a href=\"#{id}\">{title}</a></th>\
                 </tr>\n"
            );
            html += &self.of_study(study).map(StudyFigure::overview_html).collect::<String>();
            html += "</tbody>\n";
        }
        html + "</table></div>\n</nav>\n"
    }

    fn study_html(&self, study: &StudyWords) -> String {
        let figures = self.of_study(study).map(|figure| figure.html("h3"));
        format!(
            "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"note\">{}</p>\n<p>{}</p>\n{}</section>\n",
            escaped(study.name.id),
            escaped(study.name.title),
            escaped(study.source),
            escaped(study.words),
            figures.collect::<String>()
        )
    }
}

/// The colours of series (`c0` to `c7`) are told apart in both schemes and by most colour-blind
/// eyes (after Okabe and Ito).
const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c1f24; --soft: #5b6470; --line: #d9dde3;
  --paper: #ffffff; --card: #f6f7f9; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7;
  --c4: #b58900; --c5: #56b4e9; --c6: #7a5195; --c7: #6b7280; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa4b1; --line: #363c45;
  --paper: #15181c; --card: #1d2127; --c0: #4ea3dd; --c1: #f08b46; --c2: #35c196; --c3: #e39fc6;
  --c4: #e0b93b; --c5: #8fd0f5; --c6: #b48fd0; --c7: #a3abb5; } }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: 1.25rem;
  border-top: 1px solid var(--line); }
p { max-width: 46rem; margin: .5rem 0; }
.note { color: var(--soft); font-size: .875rem; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem;
  background: var(--card); border-radius: .5rem; padding: .9rem 1.1rem; font-size: .9rem; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
figure { margin: 1rem 0; background: var(--card); border-radius: .5rem; padding: .75rem; }
svg { display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg text.soft { fill: var(--soft); }
svg .title { font-size: 14px; font-weight: 600; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .range { stroke: var(--ink); stroke-width: 1.5; }
svg path { fill: none; stroke-width: 2; stroke-linejoin: round; }
.scroll { overflow-x: auto; margin: 1rem 0 .5rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } .w { text-align: left; } .n { text-align: right; }
.why { color: var(--soft); white-space: normal; overflow-wrap: anywhere; }
.came-out { color: var(--c2); } .did-not { color: var(--c1); } .missing { color: var(--soft); }
code { font-size: .9em; overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; line-height: 1.35; margin: 2rem 0 .5rem; }
a { color: var(--c0); }
.overview td { vertical-align: top; } .overview td.why { color: var(--ink); min-width: 20rem; }
.overview tbody th { padding-top: .8rem; font-weight: 600; }
@media print {
  :root { color-scheme: light; --ink: #000000; --soft: #444b55; --line: #c4c9d0; --paper: #ffffff;
    --card: #ffffff; --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b58900;
    --c5: #56b4e9; --c6: #7a5195; --c7: #6b7280; }
  html { font-size: 9.5pt; } body { font-size: 1rem; } p { max-width: none; }
  main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } table { width: 100%; font-size: 7.5pt; }
  th, td { white-space: normal; padding: .15rem .35rem; } .overview td.why { min-width: 0; }
  thead { display: table-header-group; } figure, tr, caption, .facts, svg { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; } a { color: inherit; text-decoration: none; }
}
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study_figure::{Judgement, StudyName};

    #[test]
    fn a_host_that_calls_itself_a_script_runs_none() {
        let evil = "<script>alert('x')</script> & \"co\"\u{7}".to_owned();
        let page = Page {
            title: evil.clone(),
            words: vec![evil.clone()],
            facts: vec![(evil.clone(), evil.clone())],
            sections: vec![Section {
                title: evil.clone(),
                words: vec![evil],
                ..Section::default()
            }],
            ..Page::default()
        };
        let html = page.html();
        assert!(!html.contains("<script") && !html.contains('\u{7}'), "{html}");
        assert_eq!(html.matches("&lt;script&gt;alert(&#39;x&#39;)").count(), 7);
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    }
    fn figure(study: StudyName, number: &'static str) -> StudyFigure {
        StudyFigure {
            study,
            number,
            shows: "a thing",
            rule: "One is more.",
            theirs: "Theirs: 1.",
            command: "haul bench files",
            judgement: Judgement::of_rule(true, "one & two"),
            section: Section::default(),
        }
    }

    #[test]
    fn a_page_about_studies_begins_with_a_table_that_links_to_each_figure() {
        let names = ["first", "second"].map(|id| StudyName { id, title: id });
        let [first, second] = names;
        let words = |name| StudyWords { name, source: "Somebody (2000)", words: "It is told." };
        let page = Page {
            title: "All".to_owned(),
            facts: vec![("kernel".to_owned(), "Linux".to_owned())],
            sections: vec![Section { title: "Commands".to_owned(), ..Section::default() }],
            figures: [(second, "table 1"), (first, "table 1"), (first, "table 2")]
                .map(|(study, number)| figure(study, number))
                .into(),
            studies: names.map(words).into(),
            lines_file: Some("a&b.json".to_owned()),
            ..Page::default()
        };
        let html = page.html();
        assert!(html.contains("<a href=\"a&amp;b.json\">"), "{html}");
        let at = |what: &str| html.find(what).unwrap_or_else(|| panic!("no {what}: {html}"));
        for anchor in ["first", "first-table-1", "first-table-2", "second", "second-table-1"] {
            let link = at(&format!("<a href=\"#{anchor}\">"));
            assert!(link < at(&format!(" id=\"{anchor}\"")), "{anchor}");
            assert_eq!(html.matches(&format!("\"#{anchor}\"")).count(), 1, "{anchor}");
            assert_eq!(html.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
        }
        assert!(at("id=\"first-table-2\"") < at("id=\"second\""), "studies in their order");
        assert!(at("id=\"second-table-1\"") < at("<h2>The host</h2>"));
        assert!(at("<h2>The host</h2>") < at("<h2>Commands</h2>"));
        assert!(at("@media print") < at("</style>"));
    }
}
