//! Rule that commands name packages that there are, in scripts and in pages alike.
//!
//! No test runs the scripts of `lab/` and `bench/`, so that nothing else sees it when a package
//! gets another name. Reports, decisions and the changelog tell of their own time.

use super::project::is_ours;
use super::{Offence, Project, Rule};

pub const RULE: Rule =
    Rule { name: "named packages", promise: "`-p haul...` names a package of ours", offences };

/// Paths of texts that tell of their own time, and of this file with its examples.
const EXEMPT: [&str; 4] =
    ["bench/reports/", "docs/decisions/", "CHANGELOG.md", "xtask/src/tidy/named_packages.rs"];

/// Ways in which a command names a package: in a shell, and in lists of words.
const BEFORE_A_NAME: [&str; 4] = ["-p ", "-p', '", "-p\", \"", "--package "];

fn offences(project: &Project) -> Vec<Offence> {
    let packages = match project.packages() {
        Ok(packages) => packages,
        Err(why) => return vec![Offence::in_file("Cargo.toml", why)],
    };
    let ours: Vec<&str> = packages
        .iter()
        .filter(|package| is_ours(package))
        .filter_map(|package| package["name"].as_str())
        .collect();
    let mut offences = Vec::new();
    for (file, text) in project.written_files() {
        if EXEMPT.iter().any(|path| file.path.starts_with(path)) {
            continue;
        }
        for (at, line) in text.lines().enumerate() {
            for name in named(line).filter(|name| !ours.contains(name)) {
                let message = format!("names the package `{name}`, which there is not");
                offences.push(Offence::at_line(&file.path, at + 1, message));
            }
        }
    }
    offences
}

/// Packages of ours that commands of a line name.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let behind = BEFORE_A_NAME.iter().flat_map(|before| line.split(before).skip(1));
    let ends = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_');
    let names = behind.map(move |rest| rest.split(ends).next().unwrap_or_default());
    names.filter(|name| *name == "haul" || name.starts_with("haul-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(path: &str, text: &str) -> Vec<Option<usize>> {
        let mut project = Project::of(&[(path, text)]);
        let ours = json!({"name": "haul-cli", "source": null});
        project.metadata = Ok(json!({"packages": [ours]}));
        offences(&project).into_iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn a_package_that_there_is_not_is_an_offence_in_each_way_to_name_it() {
        let text = ["cargo test -p haul", "(['-p', 'haul', '--lib'])", "[\"-p\", \"haul-x\"]"];
        assert_eq!(found("lab/trial", &text.join("\n")), [Some(1), Some(2), Some(3)]);
        assert_eq!(found("docs/page.md", "cargo run --package haul-old."), [Some(1)]);
    }

    #[test]
    fn packages_of_ours_other_words_and_the_past_are_in_order() {
        let text = "cargo test -p haul-cli; mkdir -p haul_files; ssh -p 22 haul";
        assert_eq!(found("lab/trial", text), []);
        assert_eq!(found("bench/reports/old.md", "cargo test -p haul"), []);
    }
}
