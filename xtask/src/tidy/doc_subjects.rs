//! First sentences of public docs, which stand alone in an index, a hover or a search.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "doc subjects",
    promise: "the first sentence of a public item's doc names its subject",
    offences,
};

/// Crates whose docs are held to it; the others have older ones, and join when theirs are mended.
const CRATES: [&str; 13] = [
    "bench", "datapath", "docs", "emulator", "host", "media", "probe", "protocol", "report",
    "scratch", "sys", "testkit", "transfer",
];

/// Openings that lean on a sentence which the reader does not see.
const OPENINGS: [&str; 14] = [
    "Of ",
    "The same",
    "As ",
    "So many",
    "So long",
    "Who ",
    "What ",
    "Whoever ",
    "Where ",
    "When it",
    "How often is",
    "It ",
    "They ",
    "That ",
];

fn offences(project: &Project) -> Vec<Offence> {
    let is_held =
        |path: &str| CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let files = project.rust_files().filter(|(file, ..)| is_held(&file.path));
    files
        .flat_map(|(file, text, _)| {
            let at = |(line, opening)| {
                let message = format!("a doc that begins with {opening:?}; name its subject");
                Offence::at_line(&file.path, line, message)
            };
            leaning(text).into_iter().map(at).collect::<Vec<_>>()
        })
        .collect()
}

/// Lines, counted from 1, at which the doc of a public item begins with such an opening.
fn leaning(text: &str) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_first = at == 0 || !lines[at - 1].starts_with("///");
        let Some(doc) = line.strip_prefix("/// ").filter(|_| is_first) else { continue };
        let item =
            lines[at..].iter().find(|line| !line.starts_with("///") && !line.starts_with("#["));
        let opening = OPENINGS.iter().find(|opening| doc.starts_with(**opening));
        if let Some(opening) = opening.filter(|_| item.is_some_and(|item| item.starts_with("pub ")))
        {
            found.push((at + 1, *opening));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_doc_that_leans_on_another_is_found_where_it_begins() {
        let text = [
            "/// What it does.",
            "/// Of it.",
            "#[must_use]",
            "pub fn a() {}",
            "/// What b does.",
            "fn b() {}",
            "struct C {",
            "    /// Of the next one.",
            "    pub d: u8,",
            "    /// A length, as a",
            "    /// What e is.",
            "    pub e: u8,",
            "}",
        ];
        let text = &text.join("\n");
        assert_eq!(leaning(text), [(1, "What "), (8, "Of ")]);
        let held = |path| offences(&Project::of(&[(path, text)])).len();
        assert_eq!((held("crates/sys/src/a.rs"), held("crates/cli/src/a.rs")), (2, 0));
    }
}
