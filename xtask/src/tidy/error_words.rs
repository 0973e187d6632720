//! Rule that errors of a library are types, not words. A caller tells one from another by variants.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "error words",
    promise: "no function of a library crate fails with a String",
    offences,
};

/// The programs' own crate: its errors are words for a user already.
const PROGRAM: &str = "crates/cli/";

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, _, rust) in project.rust_files() {
        let of_library = file.path.starts_with("crates/") && file.path.contains("/src/");
        if !of_library || file.path.starts_with(PROGRAM) {
            continue;
        }
        let message = "fails with a String; make the error an enum, or a struct of its own";
        let found = string_results(&rust.code).into_iter();
        offences.extend(found.map(|line| Offence::at_line(&file.path, line, message)));
    }
    offences
}

/// Lines of the code with `Result<_, String>` or `type Err = String`.
fn string_results(code: &str) -> Vec<usize> {
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let fails_with_words =
        |(at, word): &(usize, &str)| second_argument(&code[at + word.len()..]) == Some("String");
    let results = code.match_indices("Result<").filter(fails_with_words);
    let results = results.map(|(at, _)| line_of(at));
    let types = code.match_indices("type Err = String;").map(|(at, _)| line_of(at));
    let mut lines: Vec<usize> = results.chain(types).collect();
    lines.sort_unstable();
    lines
}

/// The second argument between `<`, which stands before `text`, and its `>`.
fn second_argument(text: &str) -> Option<&str> {
    let (mut depth, mut begun, mut before) = (0, None, ' ');
    for (at, sign) in text.char_indices() {
        match sign {
            '<' | '(' | '[' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' if depth == 0 => return begun.map(|begun| text[begun..at].trim()),
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 && begun.is_none() => begun = Some(at + 1),
            ',' if depth == 0 => return begun.map(|begun: usize| text[begun..at].trim()),
            '{' | ';' if depth == 0 => return None,
            _ => {}
        }
        before = sign;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_wherever_the_first_type_ends() {
        let code = "fn a() -> Result<(u8, String), String> {\n}\nfn b(\n) -> Result<\n    \
                    Vec<u8>,\n    String,\n> {}\nlet c: Result<fn(u8) -> u8, String>;\n\
                    type Err = String;\n";
        assert_eq!(string_results(code), [1, 4, 8, 9]);
    }

    #[test]
    fn errors_that_are_types_and_maps_of_words_are_fine() {
        for code in [
            "fn a() -> Result<String, Error> {}",
            "fn a() -> io::Result<String> {}",
            "fn a() -> Result<BTreeMap<String, String>, Unread> {}",
            "fn a() -> Result<u8> {}",
            "fn a() -> Result<u8, Vec<String>> {}",
            "BTreeMap<u8, String>",
        ] {
            assert_eq!(string_results(code), [0; 0], "{code}");
        }
    }

    #[test]
    fn libraries_are_looked_at_and_the_program_is_not() {
        let text = "//! A.\nfn a() -> Result<u8, String> {}\n";
        let offends = |path: &str| !offences(&Project::of(&[(path, text)])).is_empty();
        assert!(offends("crates/media/src/a.rs") && offends("crates/transfer/src/server/a.rs"));
        assert!(offends("crates/transfer/src/session/a.rs") && offends("crates/bench/src/a.rs"));
        for path in ["crates/cli/src/a.rs", "crates/media/tests/a.rs", "xtask/src/a.rs"] {
            assert!(!offends(path), "{path}");
        }
    }
}
