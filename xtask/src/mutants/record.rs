//! Record of the mutants (`xtask/mutants.txt`): survivors with reasons, files that are through.
//!
//! `survivor KEY` is followed by the reason on the next lines, each set in by four blanks. `through
//! FILE HASH` says that all mutants of a file with this content (Git's hash of it) were tried, and
//! that each that survived has its reason here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::RECORD;
use super::tool::Mutant;
use crate::child;

/// Letters of a hash that are kept.
const HASH_LETTERS: usize = 16;
/// The fewest words that can be a reason.
const REASON_WORDS_MIN: usize = 4;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record {
    head: String,
    /// Reasons by the keys of the mutants.
    survivors: BTreeMap<String, String>,
    /// Hashes by the paths of the files.
    through: BTreeMap<String, String>,
}

impl Record {
    pub fn read(root: &Path) -> Result<Record> {
        let text = std::fs::read_to_string(root.join(RECORD));
        Record::of(&text.with_context(|| format!("cannot read {RECORD}"))?)
    }

    /// Reads the text of a record.
    pub fn of(text: &str) -> Result<Record> {
        let mut record = Record::default();
        let mut open: Option<String> = None;
        for (at, line) in text.lines().enumerate() {
            if let Some(words) = line.strip_prefix("    ") {
                let Some(key) = &open else { bail!("{RECORD}:{}: a reason of nothing", at + 1) };
                let reason = record.survivors.entry(key.clone()).or_default();
                *reason += if reason.is_empty() { "" } else { "\n" };
                *reason += words;
            } else if let Some(key) = line.strip_prefix("survivor ") {
                if record.survivors.insert(key.to_owned(), String::new()).is_some() {
                    bail!("{RECORD}:{}: `{key}` stands here twice", at + 1);
                }
                open = Some(key.to_owned());
            } else if let Some((path, hash)) =
                line.strip_prefix("through ").and_then(|rest| rest.rsplit_once(' '))
            {
                record.through.insert(path.to_owned(), hash.to_owned());
            } else if line.starts_with('#') {
                record.head += line;
                record.head.push('\n');
            } else if !line.is_empty() {
                bail!("{RECORD}:{}: cannot read `{line}`", at + 1);
            }
        }
        Ok(record)
    }

    fn text(&self) -> String {
        let mut text = self.head.clone();
        for (key, reason) in &self.survivors {
            text += &format!("\nsurvivor {key}\n");
            for line in reason.lines() {
                text += &format!("    {line}\n");
            }
        }
        text.push('\n');
        for (path, hash) in &self.through {
            text += &format!("through {path} {hash}\n");
        }
        text
    }

    /// Entries of mutants and files that are no more, and of survivors without a reason.
    pub fn stale(&self, mutants: &[Mutant]) -> Vec<String> {
        let keys: BTreeSet<&str> = mutants.iter().map(|one| one.key.as_str()).collect();
        let files: BTreeSet<&str> = mutants.iter().map(|one| one.file.as_str()).collect();
        let mut lines = Vec::new();
        for (key, reason) in &self.survivors {
            if !keys.contains(key.as_str()) {
                lines.push(format!("there is no mutant `{key}` any more; take its entry out"));
            }
            if reason.split_whitespace().count() < REASON_WORDS_MIN {
                lines.push(format!("`{key}` has no reason; say why no test can kill it"));
            }
        }
        for path in self.through.keys().filter(|path| !files.contains(path.as_str())) {
            lines.push(format!("{path} has no mutants any more; take it out"));
        }
        lines
    }

    pub fn is_accepted(&self, mutant: &Mutant) -> bool {
        self.survivors.contains_key(&mutant.key)
    }

    /// All files whose mutants were tried once, changed since or not.
    pub fn files_through(&self) -> BTreeSet<&str> {
        self.through.keys().map(String::as_str).collect()
    }

    /// The files of which each mutant, of the code as it is now, was tried.
    pub fn files_unchanged(&self, root: &Path) -> Result<BTreeSet<String>> {
        let mut unchanged = BTreeSet::new();
        for (path, hash) in &self.through {
            if root.join(path).exists() && hash_of(root, path)? == *hash {
                unchanged.insert(path.clone());
            }
        }
        Ok(unchanged)
    }

    /// Writes down that the file at `path` is through.
    pub fn put_through(&mut self, root: &Path, path: &str) -> Result<()> {
        // A run takes long: others may have written to the list meanwhile.
        let mut now = Record::read(root)?;
        now.through.insert(path.to_owned(), hash_of(root, path)?);
        std::fs::write(root.join(RECORD), now.text())
            .with_context(|| format!("cannot write {RECORD}"))?;
        self.through = now.through;
        Ok(())
    }
}

fn hash_of(root: &Path, path: &str) -> Result<String> {
    let output = child::output_of(&mut child::command(root, "git", &["hash-object", path]))?;
    Ok(String::from_utf8_lossy(&output).chars().take(HASH_LETTERS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# What this is.

survivor a/b.rs: replace < with <= in up_to
    At the limit both ways
    give the same answer.

through a/b.rs 0011223344556677
";

    fn mutants(names: &[&str]) -> Vec<Mutant> {
        super::super::tool::with_keys(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn a_record_is_written_as_it_was_read() {
        assert_eq!(Record::of(TEXT).unwrap().text(), TEXT);
    }

    /// Case of a run of an hour, during which a pull brought the lines of somebody else.
    #[test]
    fn a_file_that_is_through_is_added_to_the_list_as_it_is_by_then() {
        let root = std::env::temp_dir().join(format!("haul-record-{}", std::process::id()));
        std::fs::create_dir_all(root.join("xtask")).unwrap();
        std::fs::write(root.join("c.rs"), "fn f() {}\n").unwrap();
        std::fs::write(root.join(RECORD), "# What this is.\n").unwrap();
        let mut record = Record::read(&root).unwrap();
        std::fs::write(root.join(RECORD), TEXT).unwrap();
        record.put_through(&root, "c.rs").unwrap();
        let text = std::fs::read_to_string(root.join(RECORD)).unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert!(text.starts_with(TEXT) && text.contains("through c.rs "), "{text}");
        assert_eq!(Vec::from_iter(record.files_through()), ["a/b.rs", "c.rs"]);
    }

    #[test]
    fn the_record_of_the_project_can_be_read_and_gives_every_reason() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let record = Record::read(&root).unwrap();
        let all: Vec<Mutant> = Vec::new();
        assert!(!record.stale(&all).iter().any(|line| line.contains("has no reason")));
        for path in record.files_through() {
            assert!(root.join(path).is_file(), "{path}");
        }
    }

    #[test]
    fn a_survivor_with_a_reason_is_accepted_wherever_its_line_is() {
        let record = Record::of(TEXT).unwrap();
        let all = mutants(&["a/b.rs:7:3: replace < with <= in up_to"]);
        assert!(record.is_accepted(&all[0]));
        assert_eq!(record.stale(&all), Vec::<String>::new());
        let other = mutants(&["a/b.rs:7:3: replace < with > in up_to"]);
        assert!(!record.is_accepted(&other[0]));
    }

    #[test]
    fn an_entry_whose_mutant_or_file_is_gone_is_an_offence() {
        let lines = Record::of(TEXT).unwrap().stale(&mutants(&["c.rs:1:1: delete ! in f"]));
        assert!(lines[0].contains("no mutant `a/b.rs: replace < with <="), "{lines:?}");
        assert!(lines[1].contains("a/b.rs has no mutants any more"), "{lines:?}");
    }

    #[test]
    fn a_survivor_without_words_is_an_offence() {
        let record = Record::of("survivor a.rs: delete ! in f\n    equal\n").unwrap();
        let lines = record.stale(&mutants(&["a.rs:1:1: delete ! in f"]));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("has no reason"), "{lines:?}");
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (text, told) in [
            ("\nsurvive x\n", ":2: cannot read"),
            ("    words\n", ":1: a reason of nothing"),
            ("survivor x\nsurvivor x\n", ":2: `x` stands here twice"),
        ] {
            let error = Record::of(text).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
