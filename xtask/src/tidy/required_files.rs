//! Rule that the files which a reader, a packager and CI look for are there and hold something.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "required files",
    promise: "the files that readers, packagers and CI look for exist",
    offences,
};

const REQUIRED: [&str; 8] = [
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/decisions/README.md",
    CI,
];
const CI: &str = ".ci/run";

fn offences(project: &Project) -> Vec<Offence> {
    REQUIRED.iter().filter_map(|path| offence_of(project, path)).collect()
}

fn offence_of(project: &Project, path: &str) -> Option<Offence> {
    let Some(file) = project.files.iter().find(|file| file.path == path) else {
        return Some(Offence::in_file(path, "does not exist, or git ignores it"));
    };
    if file.text.as_deref().is_none_or(|text| text.trim().is_empty()) {
        return Some(Offence::in_file(path, "holds no text"));
    }
    let must_run = path == CI && !file.is_executable;
    must_run.then(|| Offence::in_file(path, "is not executable; chmod +x"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_empty_file_and_a_script_that_cannot_run_are_offences() {
        let mut project = Project::of(&REQUIRED.map(|path| (path, "text")));
        assert_eq!(offences(&project), [Offence::in_file(CI, "is not executable; chmod +x")]);
        for file in &mut project.files {
            file.is_executable = true;
        }
        assert_eq!(offences(&project), []);
        project.files[0].text = Some("\n".into());
        project.files.remove(2);
        assert_eq!(offences(&project).len(), 2);
    }
}
