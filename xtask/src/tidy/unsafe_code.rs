//! Rule that unsafe code stays in `crates/sys` and `crates/fabric-sys`. It is held by the
//! compiler's lint, and by a look at every other file.

use super::project::ProjectFile;
use super::{Offence, Project, Rule};
use crate::rust_text::has_word;

pub const RULE: Rule = Rule {
    name: "unsafe code",
    promise: "unsafe compiles in sys and fabric-sys only, one commented operation a block",
    offences,
};

/// Folders of the crates that may hold unsafe code: over the kernel, and over libfabric.
const SYS_DIRECTORIES: [&str; 2] = ["crates/sys/", "crates/fabric-sys/"];

/// Lints that these crates must deny, as they cannot take the workspace's: table, key and value.
const SYS_LINTS: [(&str, &str, &str); 3] = [
    ("lints.rust", "unsafe_op_in_unsafe_fn", "\"deny\""),
    ("lints.clippy", "undocumented_unsafe_blocks", "\"deny\""),
    ("lints.clippy", "multiple_unsafe_ops_per_block", "\"deny\""),
];

fn offences(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in &project.files {
        offences.extend(words_in(file));
        let Some(manifest) = file.text.as_deref() else { continue };
        if file.path == "Cargo.toml" {
            if !has_entry(manifest, "workspace.lints.rust", "unsafe_code", "\"forbid\"") {
                let message = "[workspace.lints.rust] must say unsafe_code = \"forbid\"";
                offences.push(Offence::in_file(&file.path, message));
            }
        } else if is_member_manifest(&file.path) {
            offences.extend(manifest_offences(&file.path, manifest));
        }
    }
    offences
}

/// Offences for the word `unsafe` in the code of a file outside of these folders. Generated code is
/// looked at too, and so are attributes such as `#[unsafe(no_mangle)]`.
fn words_in(file: &ProjectFile) -> Vec<Offence> {
    let Some(rust) = file.rust.as_ref().filter(|_| !is_in_sys(&file.path)) else {
        return Vec::new();
    };
    let lines = rust.code.lines().enumerate();
    let message = "unsafe outside of crates/sys; put a safe function around it there";
    lines
        .filter(|(_, line)| has_word(line, "unsafe"))
        .map(|(index, _)| Offence::at_line(&file.path, index + 1, message))
        .collect()
}

fn is_in_sys(path: &str) -> bool {
    SYS_DIRECTORIES.iter().any(|directory| path.starts_with(directory))
}

fn is_member_manifest(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), ["xtask", "Cargo.toml"] | ["crates", _, "Cargo.toml"])
}

fn manifest_offences(path: &str, manifest: &str) -> Vec<Offence> {
    if !is_in_sys(path) {
        if has_entry(manifest, "lints", "workspace", "true") {
            return Vec::new();
        }
        let message = "needs [lints] workspace = true, which forbids unsafe code";
        return vec![Offence::in_file(path, message)];
    }
    let missing = SYS_LINTS.iter().filter(|(table, key, value)| {
        let is_there = has_entry(manifest, table, key, value);
        !is_there
    });
    missing
        .map(|(table, key, value)| {
            Offence::in_file(path, format!("needs [{table}] {key} = {value}"))
        })
        .collect()
}

/// Whether a manifest has the line `key = value` below the line `[table]`. The project writes its
/// lints in this one way; another spelling of the same is not found, and so is an offence.
fn has_entry(manifest: &str, table: &str, key: &str, value: &str) -> bool {
    let mut current_table = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            current_table = name;
        }
        let Some((line_key, line_value)) = line.split_once('=') else { continue };
        if current_table == table && line_key.trim() == key && line_value.trim() == value {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMBER: &str = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n";

    fn count(path: &str, text: &str) -> usize {
        offences(&Project::of(&[(path, text)])).len()
    }

    #[test]
    fn unsafe_code_is_found_outside_of_sys_only() {
        let source = "//! x\nfn a() {\n    unsafe { b() }\n}\n";
        let found = offences(&Project::of(&[("crates/host/src/kernel.rs", source)]));
        assert_eq!(found[0].line, Some(3));
        assert_eq!(count("crates/sys/src/ring.rs", source), 0);
        assert_eq!(count("crates/fabric-sys/src/object.rs", source), 0);
        assert_eq!(count("crates/fabric/src/object.rs", source), 1);
        assert_eq!(count("crates/host/src/a.rs", "#[unsafe(no_mangle)] fn a() {}"), 1);
    }

    #[test]
    fn the_word_alone_is_no_code() {
        let source = "// unsafe\n#![forbid(unsafe_code)]\nconst A: &str = \"unsafe\";\n";
        assert_eq!(count("crates/host/src/lib.rs", source), 0);
    }

    #[test]
    fn a_member_takes_the_lints_of_the_workspace() {
        assert_eq!(count("crates/host/Cargo.toml", MEMBER), 0);
        assert_eq!(count("crates/host/Cargo.toml", "[package]\nname = \"x\"\n"), 1);
        let elsewhere = "[package]\nworkspace = true\n[lints]\n";
        assert_eq!(count("xtask/Cargo.toml", elsewhere), 1);
    }

    #[test]
    fn the_workspace_forbids_unsafe_code() {
        assert_eq!(count("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"), 0);
        assert_eq!(count("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"deny\"\n"), 1);
    }

    #[test]
    fn sys_denies_what_would_hide_an_unsafe_operation() {
        assert_eq!(count("crates/sys/Cargo.toml", "[lints.rust]\n"), 3);
    }
}
