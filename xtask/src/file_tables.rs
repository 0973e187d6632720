//! Tables of the source files, made from the first sentence of each file's header.
//!
//! The sentence stands where the code is and is read in review, so the table of a hundred files is
//! as true as their headers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

/// The file that the tables are written to, below the root.
pub const FILE: &str = "docs/files.md";

const HEAD: &str = "\
# Files

Every source file, by folder, with the first sentence of its header. Written by `cargo xtask gen`;
edit the header, not this page. How the parts work together stands in
[ARCHITECTURE.md](../ARCHITECTURE.md).
";

/// Files of a folder with their sentences, by the folder's path below the root.
type Folders = BTreeMap<String, BTreeMap<String, String>>;

/// Writes the tables of all crates, and of xtask.
pub fn tables(root: &Path) -> Result<Vec<u8>> {
    let mut folders = Folders::new();
    let mut crates: Vec<_> = std::fs::read_dir(root.join("crates"))
        .context("cannot list crates/")?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<_>>()?;
    crates.sort();
    for name in crates.iter().map(|name| format!("crates/{name}")).chain(["xtask".to_owned()]) {
        for part in ["src", "tests"] {
            let path = format!("{name}/{part}");
            if root.join(&path).is_dir() {
                collect(root, &path, &mut folders)?;
            }
        }
    }
    Ok(page(&folders).into_bytes())
}

fn collect(root: &Path, folder: &str, folders: &mut Folders) -> Result<()> {
    let entries = std::fs::read_dir(root.join(folder));
    for entry in entries.with_context(|| format!("cannot list {folder}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.file_type()?.is_dir() {
            collect(root, &path, folders)?;
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read {path}"))?;
            if let Some(sentence) = first_sentence(&text) {
                folders.entry(folder.to_owned()).or_default().insert(name, sentence);
            }
        }
    }
    Ok(())
}

/// The first sentence of a file's header on one line, without the brackets of its links.
fn first_sentence(text: &str) -> Option<String> {
    let header: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let paragraph = header.join(" ");
    let end = paragraph.find(". ").unwrap_or(paragraph.len());
    let sentence = paragraph[..end].trim_end_matches('.');
    let plain = sentence.replace("[`", "`").replace("`]", "`").replace('|', "\\|");
    (!plain.is_empty()).then_some(plain)
}

fn page(folders: &Folders) -> String {
    let mut text = HEAD.to_owned();
    for (folder, files) in folders {
        let _ = write!(text, "\n## {folder}\n\n| file | what it holds |\n|---|---|\n");
        for (name, sentence) in files {
            let _ = writeln!(text, "| [{name}](../{folder}/{name}) | {sentence} |");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_of_a_header_is_one_line_without_links() {
        let text =
            "//! [`drive`], the loop of a session's\n//! thread: a|b. More.\n//!\n//! Else.\n";
        assert_eq!(first_sentence(text).unwrap(), "`drive`, the loop of a session's thread: a\\|b");
        assert_eq!(first_sentence("//! Version 1.2 of it.\n").unwrap(), "Version 1.2 of it");
        assert_eq!(first_sentence("use x;\n"), None);
    }

    #[test]
    fn folders_and_files_stand_in_order_with_links() {
        let mut folders = Folders::new();
        for (folder, name) in
            [("crates/b/src", "z.rs"), ("crates/a/src", "b.rs"), ("crates/a/src", "a.rs")]
        {
            folders
                .entry(folder.into())
                .or_default()
                .insert(name.into(), format!("What {name} is"));
        }
        let page = page(&folders);
        let at = |text: &str| page.find(text).unwrap();
        assert!(
            at("## crates/a/src") < at("[a.rs](../crates/a/src/a.rs) | What a.rs is"),
            "{page}"
        );
        assert!(at("[a.rs]") < at("[b.rs]") && at("[b.rs]") < at("## crates/b/src"), "{page}");
    }
}
