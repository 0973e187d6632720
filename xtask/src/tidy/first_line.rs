//! Rule that every Rust file says in its first line what it is for.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "first line",
    promise: "the first line of a Rust file says what the file is for, behind //!",
    offences,
};

fn offences(project: &Project) -> Vec<Offence> {
    let files = project.rust_files().filter(|(file, ..)| is_looked_at(&file.path));
    let silent = files.filter(|(_, text, _)| !says_something(text));
    let message =
        "the first line must be `//! ` and a whole sentence that says what the file is for";
    silent.map(|(file, ..)| Offence::at_line(&file.path, 1, message)).collect()
}

fn is_looked_at(path: &str) -> bool {
    path.starts_with("crates/") || path.starts_with("xtask/")
}

fn says_something(text: &str) -> bool {
    let first_line = text.lines().next().unwrap_or_default();
    let mut sentence = first_line.strip_prefix("//! ").unwrap_or_default().trim_end();
    // A sentence that ends in a colon leads to a list or a program.
    sentence = sentence.strip_suffix(':').map_or(sentence, |_| ".");
    sentence.contains(". ") || sentence.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        offences(&Project::of(&[(path, text)])).len()
    }

    #[test]
    fn a_file_that_says_what_it_is_for_is_in_order() {
        assert_eq!(count("crates/host/src/kernel.rs", "//! The kernel's release.\n"), 0);
    }

    #[test]
    fn a_file_that_begins_otherwise_is_not() {
        for text in ["", "\n//! Late.\n", "//!\n", "//!  \n", "use std::fs;\n", "// No doc.\n"] {
            assert_eq!(count("crates/host/tests/kernel.rs", text), 1, "{text:?}");
        }
    }

    #[test]
    fn generated_files_and_other_directories_are_left_alone() {
        assert_eq!(count("crates/protocol/src/generated/haul.rs", "// Made.\n"), 0);
        assert_eq!(count("fuzz/targets/frame.rs", "#![no_main]\n"), 0);
    }
}
