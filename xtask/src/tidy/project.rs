//! The project as the tidy rules see it: its files as text, and what `cargo metadata` says of it.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::child;
use crate::rust_text::{self, RustText};

/// The platforms haul is built for; a dependency of another platform only is not one of ours.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Files that a program wrote; the rules for what people write do not apply.
const GENERATED_DIRECTORIES: [&str; 4] = [
    "crates/protocol/src/generated/",
    "crates/fabric-sys/src/generated/",
    "docs/man/",
    "docs/completions/",
];

/// The time since which commits are held to rules; older ones were made before their subjects had
/// any.
const COMMITS_SINCE: &str = "2026-11-25T12:00:00Z";

pub struct Project {
    pub files: Vec<ProjectFile>,
    /// Hash and subject of each commit that the rules are for, merges apart.
    pub commits: Vec<(String, String)>,
    /// The answer of `cargo metadata`, or why there is none.
    pub metadata: Result<Value, String>,
}

pub struct ProjectFile {
    /// The path of the file, relative to the project's root, with `/`.
    pub path: String,
    /// The text of the file; `None` when it is not UTF-8.
    pub text: Option<String>,
    /// Whether a user may execute the file.
    pub is_executable: bool,
    /// The layers of a Rust file, `None` for other files.
    pub rust: Option<RustText>,
}

impl Project {
    pub fn read(root: &Path) -> Result<Project> {
        let mut files = Vec::new();
        for path in tracked_paths(root)? {
            let full_path = root.join(&path);
            // A tracked file may be deleted in the working tree, and a link may point nowhere.
            let Ok(facts) = std::fs::symlink_metadata(&full_path) else { continue };
            let bytes = if facts.is_file() {
                std::fs::read(&full_path).with_context(|| format!("cannot read {path}"))?
            } else {
                Vec::new()
            };
            files.push(ProjectFile::new(path, bytes, is_executable(&facts)));
        }
        let metadata = cargo_metadata(root).map_err(|error| format!("{error:#}"));
        Ok(Project { files, commits: commits(root)?, metadata })
    }

    /// The text files that people write, with their text.
    pub fn written_files(&self) -> impl Iterator<Item = (&ProjectFile, &str)> {
        let with_text = self.files.iter().filter_map(|f| Some((f, f.text.as_deref()?)));
        with_text.filter(|(file, _)| !file.is_generated())
    }

    /// The Rust files that people write.
    pub fn rust_files(&self) -> impl Iterator<Item = (&ProjectFile, &str, &RustText)> {
        self.written_files().filter_map(|(file, text)| Some((file, text, file.rust.as_ref()?)))
    }

    /// The packages `cargo metadata` lists, in no promised order.
    pub fn packages(&self) -> Result<&[Value], String> {
        let metadata = self.metadata.as_ref().map_err(Clone::clone)?;
        let packages = metadata["packages"].as_array();
        packages.map(Vec::as_slice).ok_or_else(|| "cargo metadata lists no packages".into())
    }

    /// A project that exists in a test only.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Project {
        let file = |(path, text): &(&str, &str)| {
            ProjectFile::new((*path).into(), text.as_bytes().to_vec(), false)
        };
        let metadata = Err("none in a test".into());
        Project { files: files.iter().map(file).collect(), commits: Vec::new(), metadata }
    }

    /// A project of packages that exists in a test only.
    #[cfg(test)]
    pub fn of_packages(packages: Value) -> Project {
        let metadata = serde_json::json!({ "packages": packages });
        Project { files: Vec::new(), commits: Vec::new(), metadata: Ok(metadata) }
    }
}

impl ProjectFile {
    fn new(path: String, bytes: Vec<u8>, is_executable: bool) -> ProjectFile {
        let text = String::from_utf8(bytes).ok();
        let is_rust = path.ends_with(".rs");
        let rust = text.as_deref().filter(|_| is_rust).map(rust_text::split);
        ProjectFile { path, text, is_executable, rust }
    }

    fn is_generated(&self) -> bool {
        GENERATED_DIRECTORIES.iter().any(|directory| self.path.starts_with(directory))
    }
}

/// Whether a package of `cargo metadata` is a member of this workspace or another local package.
pub fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

/// The files that git tracks and those it would track, ignored ones left out.
fn tracked_paths(root: &Path) -> Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = child::output_of(&mut child::command(root, "git", &arguments))
        .context("tidy needs the git repository, to know which files are the project's")?;
    let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut paths: Vec<String> =
        names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn commits(root: &Path) -> Result<Vec<(String, String)>> {
    let since = format!("--since={COMMITS_SINCE}");
    let arguments = ["log", "--no-merges", "--format=%h %s", &since];
    let output = child::output_of(&mut child::command(root, "git", &arguments))?;
    let text = String::from_utf8_lossy(&output).into_owned();
    let commit =
        |line: &str| line.split_once(' ').map(|(hash, subject)| (hash.into(), subject.into()));
    Ok(text.lines().filter_map(commit).collect())
}

fn cargo_metadata(root: &Path) -> Result<Value> {
    let mut command = child::cargo(root, &["metadata", "--format-version", "1"]);
    for platform in PLATFORMS {
        command.args(["--filter-platform", platform]);
    }
    let output = child::output_of(&mut command)?;
    serde_json::from_slice(&output).context("cannot read what cargo metadata printed")
}

fn is_executable(facts: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    facts.permissions().mode() & 0o100 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_not_written_by_people() {
        let project = Project::of(&[
            ("crates/protocol/src/generated/haul.rs", "x"),
            ("crates/protocol/src/frame.rs", "x"),
        ]);
        let paths: Vec<&str> = project.rust_files().map(|(f, ..)| f.path.as_str()).collect();
        assert_eq!(paths, ["crates/protocol/src/frame.rs"]);
    }

    #[test]
    fn a_file_that_is_not_text_is_listed_without_text() {
        let file = ProjectFile::new("vectors/frame.bin".into(), vec![0xff, 0xfe], false);
        assert!(file.text.is_none() && file.rust.is_none());
    }
}
