//! Subjects of commits, which readers of a log see by the hundred.

use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "commit subjects",
    promise: "the subject of a commit has at most 72 columns and no full stop at its end",
    offences,
};

const SUBJECT_COLUMNS_MAX: usize = 72;

fn offences(project: &Project) -> Vec<Offence> {
    project.commits.iter().filter_map(|(hash, subject)| offence(hash, subject)).collect()
}

fn offence(hash: &str, subject: &str) -> Option<Offence> {
    let columns = subject.chars().count();
    let message = if columns > SUBJECT_COLUMNS_MAX {
        format!("a subject of {columns} columns, at most {SUBJECT_COLUMNS_MAX}: {subject}")
    } else if subject.ends_with('.') {
        format!("a subject that ends with a full stop: {subject}")
    } else {
        return None;
    };
    Some(Offence::in_file(hash, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_one_line_of_a_log() {
        let found = |subject: &str| offence("a1b2", subject).map(|offence| offence.to_string());
        assert_eq!(found("Names are leaves"), None);
        assert_eq!(found(&"é".repeat(72)), None);
        assert!(found(&"e".repeat(73)).unwrap().contains("73 columns"));
        assert!(found("Names are leaves.").unwrap().contains("full stop"));
    }
}
