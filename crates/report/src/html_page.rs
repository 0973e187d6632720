//! The page of a bench or a probe: one HTML file with everything in it.
//!
//! It is light or dark as the reader has it.
//!
//! Nothing is fetched from elsewhere and no script runs. All text is escaped.

use crate::{markup::escaped, section::paragraphs, study_figure::StudyFigure};

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
        html += "<dl class=\"facts\">\n";
        for (fact, value) in &self.facts {
            html += &format!("<dt>{}</dt><dd>{}</dd>\n", escaped(fact), escaped(value));
        }
        html += "</dl>\n";
        for section in &self.sections {
            html += &format!("<section>\n<h2>{}</h2>\n", escaped(&section.title));
            html += &paragraphs(&section.words);
            html += &section.drawn();
            html += "</section>\n";
        }
        for figure in &self.figures {
            html += &figure.html("h2");
        }
        html += "</main>\n</body>\n</html>\n";
        html
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
";

#[cfg(test)]
mod tests {
    use super::*;

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
            figures: Vec::new(),
        };
        let html = page.html();
        assert!(!html.contains("<script") && !html.contains('\u{7}'), "{html}");
        assert_eq!(html.matches("&lt;script&gt;alert(&#39;x&#39;)").count(), 7);
        assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    }
}
