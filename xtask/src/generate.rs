//! `cargo xtask gen`: writes the files that are made from others and kept in the repository.
//!
//! The Rust types of the messages are made from `haul.proto`; man pages and shell completions from
//! the command line that `haul` itself describes; the tables of files from their headers. `--check`
//! writes nothing and fails when a file in the repository is not the one that would be made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use prost_build::{Config, Module};

use crate::{Outcome, child, file_tables};

const PROTO_DIRECTORY: &str = "crates/protocol/proto";
const PROTO_FILE: &str = "haul.proto";
const PROTO_PACKAGE: &str = "haul.v1";
const MESSAGES: &str = "crates/protocol/src/generated/haul.rs";

/// Directories that hold nothing but what `haul-docs` writes.
const DOCUMENT_DIRECTORIES: [&str; 2] = ["docs/man", "docs/completions"];

const MESSAGES_HEADER: &str = "\
// Made from crates/protocol/proto/haul.proto by `cargo xtask gen`; edit that file, not this one.
";

/// Generated files, by their path below the root.
type Files = BTreeMap<String, Vec<u8>>;

/// Files to write, with their bytes, and files to remove, with `None`.
type Differences = BTreeMap<String, Option<Vec<u8>>>;

/// Writes all generated files, and removes the ones that are not generated any more.
pub fn write(root: &Path) -> Result<Outcome> {
    // The messages first: what writes the documents does not build with stale ones.
    apply(root, message_differences(root)?)?;
    apply(root, document_differences(root)?)?;
    apply(root, table_differences(root)?)?;
    println!("gen: all generated files are fresh");
    Ok(Outcome::InOrder)
}

fn apply(root: &Path, differences: Differences) -> Result<()> {
    for (path, wanted) in differences {
        let full_path = root.join(&path);
        let Some(bytes) = wanted else {
            std::fs::remove_file(&full_path).with_context(|| format!("cannot remove {path}"))?;
            println!("gen: removed {path}");
            continue;
        };
        if let Some(directory) = full_path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("no directory for {path}"))?;
        }
        std::fs::write(&full_path, bytes).with_context(|| format!("cannot write {path}"))?;
        println!("gen: wrote {path}");
    }
    Ok(())
}

/// Compares the generated files with those in the repository and writes nothing there.
pub fn compare(root: &Path) -> Result<Outcome> {
    let mut differences = message_differences(root)?;
    differences.extend(document_differences(root)?);
    differences.extend(table_differences(root)?);
    for (path, wanted) in &differences {
        let fault = match wanted {
            None => "is not generated any more",
            Some(_) if root.join(path).exists() => "is not what would be generated",
            Some(_) => "is missing",
        };
        println!("gen: {path} {fault}; run `cargo xtask gen`");
    }
    if differences.is_empty() {
        println!("gen: all generated files are fresh");
        return Ok(Outcome::InOrder);
    }
    Ok(Outcome::NotInOrder)
}

fn message_differences(root: &Path) -> Result<Differences> {
    Ok(difference(root, MESSAGES, messages(root)?))
}

fn table_differences(root: &Path) -> Result<Differences> {
    Ok(difference(root, file_tables::FILE, file_tables::tables(root)?))
}

/// Difference of a single generated file from the one in the repository.
fn difference(root: &Path, path: &str, wanted: Vec<u8>) -> Differences {
    let mut present = Files::new();
    if let Ok(bytes) = std::fs::read(root.join(path)) {
        present.insert(path.to_string(), bytes);
    }
    between(Files::from([(path.to_string(), wanted)]), &present)
}

fn document_differences(root: &Path) -> Result<Differences> {
    let mut present = Files::new();
    for directory in DOCUMENT_DIRECTORIES {
        present.extend(files_in(root, directory)?);
    }
    Ok(between(documents(root)?, &present))
}

fn between(wanted: Files, present: &Files) -> Differences {
    let stale = present.keys().filter(|path| !wanted.contains_key(*path));
    let mut differences: Differences = stale.map(|path| (path.clone(), None)).collect();
    for (path, bytes) in wanted {
        if present.get(&path) != Some(&bytes) {
            differences.insert(path, Some(bytes));
        }
    }
    differences
}

/// Generates the Rust types of the messages in `haul.proto`. They are laid out by prost-build,
/// whose version `Cargo.lock` holds, and not by rustfmt, which may differ from one toolchain to the
/// next.
fn messages(root: &Path) -> Result<Vec<u8>> {
    let source = compile(&root.join(PROTO_DIRECTORY), PROTO_FILE)?;
    Ok(format!("{MESSAGES_HEADER}{source}").into_bytes())
}

/// Compiles one file of messages without a system `protoc`. Maps are `BTreeMap` and paths lead
/// through `prost::alloc` and `core`, so that the code compiles without `std`.
fn compile(directory: &Path, file: &str) -> Result<String> {
    let path = directory.join(file);
    if !path.is_file() {
        bail!("cannot generate the messages: {} does not exist", path.display());
    }
    let descriptors = protox::compile([file], [directory])
        .map_err(|error| anyhow::anyhow!("cannot compile {file}: {error:?}"))?;
    let mut requests = Vec::new();
    for descriptor in descriptors.file {
        if descriptor.package() != PROTO_PACKAGE {
            let (name, package) = (descriptor.name(), descriptor.package());
            bail!("{name} has package `{package}`, not `{PROTO_PACKAGE}`");
        }
        requests.push((Module::from_protobuf_package_name(descriptor.package()), descriptor));
    }
    let mut config = Config::new();
    config.btree_map(["."]);
    let modules = config.generate(requests).context("prost-build cannot generate the messages")?;
    let mut sources = modules.into_values();
    match (sources.next(), sources.next()) {
        (Some(source), None) => Ok(source),
        _ => bail!("{file} does not make exactly one Rust module"),
    }
}

/// Generates man pages and completions, as `haul-docs` writes them.
fn documents(root: &Path) -> Result<Files> {
    let scratch = ScratchDirectory::create()?;
    let mut command = child::cargo(root, &["run", "--quiet", "-p", "haul-docs", "--"]);
    child::output_of(command.arg(scratch.path.join("docs")))?;
    let mut documents = Files::new();
    for directory in DOCUMENT_DIRECTORIES {
        let files = files_in(&scratch.path, directory)?;
        if files.is_empty() {
            bail!("haul-docs wrote no file to {directory}");
        }
        documents.extend(files);
    }
    Ok(documents)
}

/// The files right in a directory; none when it does not exist.
fn files_in(root: &Path, directory: &str) -> Result<Files> {
    let mut files = Files::new();
    let full_path = root.join(directory);
    if !full_path.is_dir() {
        return Ok(files);
    }
    for entry in std::fs::read_dir(&full_path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(format!("{directory}/{name}"), std::fs::read(entry.path())?);
    }
    Ok(files)
}

/// A new directory below the system's temporary one, removed when dropped.
struct ScratchDirectory {
    path: PathBuf,
}

impl ScratchDirectory {
    fn create() -> Result<ScratchDirectory> {
        let name = format!("haul-xtask-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name.replace(['(', ')'], ""));
        std::fs::create_dir_all(path.join("docs"))
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(ScratchDirectory { path })
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
        syntax = \"proto3\";\n\
        package haul.v1;\n\
        // Opens a session.\n\
        message Hello { bytes name = 1; map<string, uint64> sizes = 2; \
        oneof kind { Ok ok = 3; } }\n\
        message Ok { repeated string words = 1; }\n";

    fn compiled(proto: &str) -> Result<String> {
        let scratch = ScratchDirectory::create()?;
        std::fs::write(scratch.path.join("sample.proto"), proto)?;
        compile(&scratch.path, "sample.proto")
    }

    #[test]
    fn messages_compile_without_std() {
        let source = compiled(SAMPLE).unwrap();
        assert!(source.contains("pub struct Hello"), "{source}");
        assert!(source.contains("::prost::alloc::collections::BTreeMap"), "{source}");
        assert!(source.contains("pub name: ::prost::alloc::vec::Vec<u8>"), "{source}");
        assert!(source.contains("/// Opens a session."), "{source}");
        assert!(!source.contains("std::"), "{source}");
    }

    #[test]
    fn an_error_in_the_proto_file_is_shown_with_its_place() {
        let error = compiled("syntax = \"proto3\";\nmessage { }\n").unwrap_err();
        assert!(format!("{error:#}").contains("sample.proto"), "{error:#}");
        let error = compiled("syntax = \"proto3\";\npackage other;\n").unwrap_err();
        assert!(error.to_string().contains("haul.v1"), "{error:#}");
    }

    #[test]
    fn a_changed_a_missing_and_a_stale_file_are_differences() {
        let files = |list: &[(&str, &str)]| -> Files {
            list.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect()
        };
        let wanted = files(&[("changed", "b"), ("missing", "c"), ("same", "d")]);
        let present = files(&[("changed", "a"), ("same", "d"), ("stale", "e")]);
        let differences = between(wanted, &present);
        let expected = [
            ("changed".to_string(), Some(b"b".to_vec())),
            ("missing".to_string(), Some(b"c".to_vec())),
            ("stale".to_string(), None),
        ];
        assert_eq!(differences, BTreeMap::from(expected));
    }
}
