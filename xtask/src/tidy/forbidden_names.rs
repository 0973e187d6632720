//! Rule that a file is named after the thing in it; names that fit any file are refused.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "file names",
    promise: "no file or directory is called utils, helpers, common or misc, and no module mod.rs",
    offences,
};

const FORBIDDEN: [&str; 7] = ["util", "utils", "utility", "helper", "helpers", "common", "misc"];

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in &project.files {
        let stems = file.path.split('/').map(|part| part.split('.').next().unwrap_or_default());
        for stem in stems.filter(|stem| FORBIDDEN.contains(stem)) {
            let message = format!("`{stem}` says nothing; name it after the thing in it");
            offences.push(Offence::in_file(&file.path, message));
        }
        if file.path.starts_with("crates/")
            && file.path.contains("/src/")
            && file.path.ends_with("/mod.rs")
        {
            let message = "`mod.rs` says nothing; name it as its folder, beside it";
            offences.push(Offence::in_file(&file.path, message.to_owned()));
        }
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_any_file_is_an_offence() {
        for path in ["crates/cli/src/utils.rs", "crates/cli/tests/common/mod.rs", "docs/misc.md"] {
            assert_eq!(offences(&Project::of(&[(path, "")])).len(), 1, "{path}");
        }
    }

    /// The words stand here once more, so that one misspelt in the list is noticed.
    #[test]
    fn each_word_that_says_nothing_is_refused() {
        for word in ["util", "utils", "utility", "helper", "helpers", "common", "misc"] {
            let path = format!("crates/cli/src/{word}.rs");
            assert_eq!(offences(&Project::of(&[(&path, "")])).len(), 1, "{word}");
        }
    }

    #[test]
    fn a_module_of_a_folder_stands_beside_it() {
        for (path, count) in [("crates/cli/src/ui/mod.rs", 1), ("crates/cli/src/ui.rs", 0)] {
            assert_eq!(offences(&Project::of(&[(path, "")])).len(), count, "{path}");
        }
    }

    #[test]
    fn a_name_that_only_holds_such_a_word_is_in_order() {
        for path in ["crates/host/src/common_name.rs", "docs/utilisation.md"] {
            assert_eq!(offences(&Project::of(&[(path, "")])), []);
        }
    }
}
