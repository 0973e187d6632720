//! Rule that no file names a place on the machine of one developer.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "machine paths",
    promise: "no file names a directory of one developer's machine",
    offences,
};

/// Directories where developers keep things, taken apart so that this file is not an offence
/// itself.
const DIRECTORIES: [&str; 3] =
    [concat!("/", "root", "/"), concat!("/", "home", "/"), concat!("/", "work", "/")];

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in &project.files {
        let Some(text) = file.text.as_deref() else { continue };
        for (index, line) in text.lines().enumerate() {
            for directory in DIRECTORIES.iter().filter(|directory| names(line, directory)) {
                let message = format!("names a place below {directory}, which others do not have");
                offences.push(Offence::at_line(&file.path, index + 1, message));
            }
        }
    }
    offences
}

/// Whether a path in `line` begins with `directory`. A part of a longer path, as in `docs/work/` or
/// `$HOME/work/`, does not count; nor does a pattern such as `/home/*` or `/home/<name>`.
fn names(line: &str, directory: &str) -> bool {
    line.match_indices(directory).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + directory.len()..].chars().next();
        let goes_on = |c: char| c.is_alphanumeric() || "._-~})>*]".contains(c);
        let begins_name = |c: char| c.is_alphanumeric() || "._-".contains(c);
        let is_home = directory == DIRECTORIES[1];
        !before.is_some_and(goes_on) && (!is_home || after.is_some_and(begins_name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        offences(&Project::of(&[("docs/start.md", line)])).len()
    }

    #[test]
    fn a_place_on_one_machine_is_an_offence() {
        for (first, rest) in [("root", "/.cargo"), ("home", "/ann/data"), ("work", "/main")] {
            assert_eq!(count(&format!("see /{first}{rest} there")), 1);
            assert_eq!(count(&format!("file:///{first}{rest}")), 1);
            assert_eq!(count(&format!("A=\"/{first}{rest}\"")), 1);
            assert_eq!(count(&format!("PATH=/bin:/{first}{rest}")), 1);
            assert_eq!(count(&format!("at:/{first}{rest}:12")), 1);
            assert_eq!(count(&format!("/{first}{rest}")), 1);
        }
    }

    #[test]
    fn a_part_of_a_longer_path_is_in_order() {
        for line in ["docs/work/a", "$HOME/work/a", "~/work/a", "${A}/home/b", "/homes/a", "/root"]
        {
            assert_eq!(count(line), 0, "{line}");
        }
        assert_eq!(count(concat!("/", "home/<name>/")), 0);
    }
}
