//! Rule against unfinished work: no `todo!`, no note to fix it later, no test switched off.

use super::{Offence, Project, Rule};
use crate::rust_text::{RustText, has_word};

pub const RULE: Rule = Rule {
    name: "unfinished",
    promise: "what is in the tree is finished; what is not done yet stands in an issue",
    offences,
};

/// Code that may not stay, written without blanks.
const CODE: [&str; 6] =
    ["todo!(", "todo!{", "unimplemented!(", "#[ignore]", "#[ignore=", ",ignore)]"];
/// Prints of a skip that nobody counts, written without blanks.
const UNCOUNTED: [&str; 2] = ["println!(\"skipped", "eprintln!(\"skipped"];
/// Words that a comment may not hold, as whole words.
const NOTES: [&str; 3] = ["FIXME", "TODO", "XXX"];
/// Files that people write in other languages, in which every line is looked at.
const OTHER_SOURCES: [&str; 9] =
    [".proto", ".sh", ".py", ".toml", ".java", ".js", ".css", ".yml", ".ci/run"];

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, text) in project.written_files() {
        if let Some(rust) = &file.rust {
            offences.extend(in_rust(&file.path, rust));
            offences.extend(uncounted_skips(&file.path, text));
        } else if OTHER_SOURCES.iter().any(|ending| file.path.ends_with(ending)) {
            offences.extend(notes_in(&file.path, text));
        }
    }
    offences
}

fn in_rust(path: &str, rust: &RustText) -> Vec<Offence> {
    let mut offences = notes_in(path, &rust.comments);
    for (index, line) in rust.code.lines().enumerate() {
        let dense: String = line.chars().filter(|character| !character.is_whitespace()).collect();
        for word in CODE.iter().filter(|word| dense.contains(*word)) {
            let message = format!("`{word}` is not kept; finish it, or let the test say skipped");
            offences.push(Offence::at_line(path, index + 1, message));
        }
    }
    offences
}

/// Skips of tests that only print: `cargo xtask test` counts them as passed.
fn uncounted_skips(path: &str, text: &str) -> Vec<Offence> {
    let prints = |line: &str| {
        let dense: String = line.chars().filter(|character| !character.is_whitespace()).collect();
        UNCOUNTED.iter().any(|beginning| dense.contains(beginning))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| prints(line));
    let message = "a test that only prints counts as passed; call haul_testkit::skip::skip";
    lines.map(|(index, _)| Offence::at_line(path, index + 1, message)).collect()
}

fn notes_in(path: &str, text: &str) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for note in NOTES.iter().filter(|note| has_word(line, note)) {
            let message = format!("`{note}` is not kept; do it, or open an issue");
            offences.push(Offence::at_line(path, index + 1, message));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<Option<usize>> {
        offences(&Project::of(&[(path, text)])).into_iter().map(|o| o.line).collect()
    }

    #[test]
    fn unfinished_code_is_an_offence() {
        let path = "crates/host/src/a.rs";
        assert_eq!(lines(path, "fn a() {\n    todo!()\n}\n"), [Some(2)]);
        assert_eq!(lines(path, "fn a() { unimplemented ! (\"b\") }\n"), [Some(1)]);
        assert_eq!(lines(path, "#[test]\n#[ignore]\nfn a() {}\n"), [Some(2)]);
        assert_eq!(lines(path, "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n"), [Some(2)]);
    }

    #[test]
    fn a_note_to_fix_it_later_is_an_offence() {
        assert_eq!(lines("crates/host/src/a.rs", "// FIXME: wrong\nfn a() {}\n"), [Some(1)]);
        assert_eq!(lines(".ci/run", "#!/bin/bash\n# XXX\n"), [Some(2)]);
    }

    #[test]
    fn a_literal_that_holds_such_a_word_is_in_order() {
        let source = "const A: &str = \"todo!( FIXME\";\nfn b() { mkstemp(\"a-XXX\") }\n";
        assert_eq!(lines("crates/host/src/a.rs", source), []);
    }

    #[test]
    fn a_skip_that_only_prints_is_an_offence() {
        let path = "crates/host/src/a.rs";
        let text = format!("fn a() {{\n    return {}!(\"skipped: needs x\");\n}}\n", "println");
        assert_eq!(lines(path, &text), [Some(2)]);
        let counted = "fn a() {\n    skip(\"x\", \"no x\")\n}\n";
        assert_eq!(lines(path, counted), []);
    }
}
