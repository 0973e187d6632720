//! First sentences of docs, which stand alone in an index, a hover or a search.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "doc subjects",
    promise: "the first sentence of a doc names its subject",
    offences,
};

/// First words that lean on a sentence which the reader does not see.
const OPENINGS: [&str; 31] = [
    "Of",
    "As",
    "So",
    "Who",
    "Whoever",
    "Whose",
    "It",
    "Its",
    "They",
    "Their",
    "Them",
    "That",
    "Those",
    "These",
    "Such",
    "Also",
    "And",
    "But",
    "Or",
    "Then",
    "Thus",
    "Else",
    "Otherwise",
    "Where",
    "Beside",
    "Without",
    "By",
    "In",
    "From",
    "To",
    "What",
];
/// Beginnings of several words that do so.
const BEGINNINGS: [&str; 3] = ["The same", "When it", "How often is"];

fn offences(project: &Project) -> Vec<Offence> {
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

fn is_held(path: &str) -> bool {
    ["crates/", "xtask/", "fuzz/"].iter().any(|folder| path.starts_with(folder))
        && !path.contains("/generated/")
}

/// Lines, counted from 1, at which a doc begins with such an opening.
fn leaning(text: &str) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(doc) = doc_of(line) else { continue };
        if at > 0 && doc_of(lines[at - 1]).is_some() {
            continue;
        }
        let word = doc.split([' ', ',']).next().unwrap_or_default();
        let opening = OPENINGS.iter().find(|opening| **opening == word);
        let beginning = BEGINNINGS.iter().find(|beginning| doc.starts_with(**beginning));
        found.extend(opening.or(beginning).map(|opening| (at + 1, *opening)));
    }
    found
}

/// The text of a line of a doc comment; an empty one has none.
fn doc_of(line: &str) -> Option<&str> {
    let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    // `////` is no doc.
    (!doc.starts_with('/')).then(|| doc.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doc_that_leans_on_another_is_found_where_it_begins() {
        let text = [
            "/// What it does.",
            "/// Of it.",
            "#[must_use]",
            "pub fn a() {}",
            "/// Itself, and the same.",
            "fn b() {}",
            "//// Of no doc.",
            "struct C {",
            "    /// Of the next one.",
            "    d: u8,",
            "    /// A length, as a",
            "    /// What e is.",
            "    pub e: u8,",
            "    /// The same of e.",
            "    pub f: u8,",
            "}",
        ];
        let text = &text.join("\n");
        assert_eq!(leaning(text), [(1, "What"), (9, "Of"), (14, "The same")]);
        let held = |path| offences(&Project::of(&[(path, text)])).len();
        assert_eq!(
            (held("crates/sys/src/a.rs"), held("crates/protocol/src/generated/a.rs")),
            (3, 0)
        );
    }
}
