//! Rule that no secret is compared by `==`, which takes the longer the more of it was guessed.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "secret comparisons",
    promise: "secrets and MACs are compared in constant time",
    offences,
};

/// Names of values that nobody is to guess byte by byte, wherever they stand.
const SECRETS: [&str; 4] = ["secret", "secret_hash", "mac", "proof"];

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, _, rust) in project.rust_files() {
        if !file.path.starts_with("crates/") || !file.path.contains("/src/") {
            continue;
        }
        for (index, line) in rust.code.lines().enumerate() {
            if let Some(name) = compared(line) {
                let message = format!("`{name}` is compared by ==; call same_secret, or verify it");
                offences.push(Offence::at_line(&file.path, index + 1, message));
            }
        }
    }
    offences
}

/// The secret in a line that compares one.
fn compared(line: &str) -> Option<&'static str> {
    let mut places = line.match_indices("==").chain(line.match_indices("!="));
    places.find_map(|(at, _)| {
        let is_of_path = |sign: char| sign.is_alphanumeric() || "_.*&: ".contains(sign);
        let behind = &line[at + 2..];
        let end = behind.find(|sign| !is_of_path(sign)).unwrap_or(behind.len());
        [last_word(&line[..at]), last_word(&behind[..end])]
            .into_iter()
            .find_map(|word| SECRETS.into_iter().find(|secret| *secret == word))
    })
}

fn last_word(text: &str) -> &str {
    let is_of_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let text = text.trim_end();
    let begin = text.rfind(|sign| !is_of_word(sign)).map_or(0, |at| at + 1);
    text.get(begin..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_on_either_side_is_found() {
        for line in [
            "if self.secret == other.secret {",
            "if token.secret_hash != hash {",
            "let ok = tag == preface.mac;",
            "tag != &self.proof || is_late",
            "mac==tag",
        ] {
            assert!(compared(line).is_some(), "{line}");
        }
        for line in [
            "same_secret(&one.secret, &other.secret)",
            "secret.len() == 16",
            "let secret = read()?;",
            "count == machine",
            "hmac::verify(&key, &signed, &preface.mac).is_ok() == wanted",
            "a == b, c.secret",
        ] {
            assert!(compared(line).is_none(), "{line}");
        }
    }

    #[test]
    fn only_the_crates_are_looked_at() {
        let code = "fn f() -> bool { a.secret == b }\n";
        let project = Project::of(&[("crates/x/src/a.rs", code), ("xtask/src/a.rs", code)]);
        let found = offences(&project);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/x/src/a.rs", Some(1)));
    }
}
