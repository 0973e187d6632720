//! Sizes of a function, a file and a line, so that a reader can hold each in the head.

use super::{Offence, Project, Rule};
use crate::rust_text;

pub const RULE: Rule = Rule {
    name: "sizes",
    promise: "functions hold at most 70 lines, files 900, lines 100 columns",
    offences,
};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 900;
const LINE_COLUMNS_MAX: usize = 100;

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, text, rust) in project.rust_files() {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            let message = format!("{lines} lines, at most {FILE_LINES_MAX}; take it apart");
            offences.push(Offence::in_file(&file.path, message));
        }
        for function in rust_text::functions(&rust.code) {
            if function.lines > FUNCTION_LINES_MAX {
                let message = format!(
                    "fn {} holds {} lines, at most {FUNCTION_LINES_MAX}",
                    function.name, function.lines
                );
                offences.push(Offence::at_line(&file.path, function.line, message));
            }
        }
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX && !holds_address(line) {
                let message = format!("{columns} columns, at most {LINE_COLUMNS_MAX}");
                offences.push(Offence::at_line(&file.path, index + 1, message));
            }
        }
    }
    offences
}

/// Whether a line holds a web address, which cannot be broken over two lines.
fn holds_address(line: &str) -> bool {
    line.contains("https://") || line.contains("http://")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let project = Project::of(&[("crates/host/src/a.rs", text)]);
        offences(&project).into_iter().map(|offence| offence.to_string()).collect()
    }

    fn function_of(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        assert_eq!(found(&function_of(70)), [""; 0]);
        let expected = "crates/host/src/a.rs:1: fn long holds 71 lines, at most 70";
        assert_eq!(found(&function_of(71)), [expected]);
    }

    #[test]
    fn a_file_of_901_lines_is_too_long() {
        assert_eq!(found(&"//\n".repeat(900)), [""; 0]);
        assert_eq!(found(&"//\n".repeat(901)).len(), 1);
    }

    #[test]
    fn a_line_of_101_columns_is_too_long_unless_it_holds_an_address() {
        assert_eq!(found(&"é".repeat(100)), [""; 0]);
        assert_eq!(found(&"é".repeat(101)).len(), 1);
        assert_eq!(found(&format!("// https://example.com/{}", "a".repeat(100))), [""; 0]);
    }

    #[test]
    fn generated_code_may_be_long() {
        let path = "crates/protocol/src/generated/haul.rs";
        assert_eq!(offences(&Project::of(&[(path, &function_of(99))])), []);
    }
}
