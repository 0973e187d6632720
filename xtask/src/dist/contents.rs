//! Contents of a release: the files that the archive holds, laid out as a person finds them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::build::PROGRAM;
use super::documents::{self, Places};
use super::{Release, target_directory};

/// Files of the project and their places in the archive, as [`lay`] reads them.
const FILES: [(&str, &str); 20] = [
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("ARCHITECTURE.md", "ARCHITECTURE.md"),
    ("CONTRIBUTING.md", "CONTRIBUTING.md"),
    ("crates/protocol/SPEC.md", "SPEC.md"),
    ("LICENSE-MIT", "LICENSE-MIT"),
    ("LICENSE-APACHE", "LICENSE-APACHE"),
    ("docs/install.md", "INSTALL.md"),
    ("docs/", "docs/"),
    ("docs/decisions/", "docs/decisions/"),
    ("docs/man/", "man/"),
    ("docs/completions/", "completions/"),
    ("examples/slurm/", "examples/slurm/"),
    ("examples/kubernetes/", "examples/kubernetes/"),
    ("examples/hyperqueue/", "examples/hyperqueue/"),
    ("examples/parallel/", "examples/parallel/"),
    ("packaging/systemd/haul.service", "systemd/haul.service"),
    ("packaging/systemd/haul-media.service", "systemd/haul-media.service"),
    ("packaging/systemd/haul.default", "systemd/haul.default"),
    ("packaging/systemd/haul.sysusers", "systemd/haul.sysusers"),
];

/// Documents that only a checkout needs: the list of its files.
const LEFT_OUT: [&str; 1] = ["docs/files.md"];

/// Files beside the archive, with their modes.
const BESIDE: [(&str, &str, u32); 2] = [
    ("packaging/install.sh", "install.sh", 0o755),
    ("packaging/container/Containerfile", "Containerfile", 0o644),
];

/// Lays the files of the archive out below `target/`, in a directory with the archive's name.
pub fn lay_out(root: &Path, release: &Release, program: &Path) -> Result<PathBuf> {
    let tree = lay(root, &release.name(), &FILES)?;
    copy(program, &tree.join(PROGRAM), 0o755)?;
    Ok(tree)
}

/// Lays files of the project out in a fresh directory of this name below `target/`.
///
/// Each file has its place beside it; one that ends with `/` takes all files of a directory that
/// have no other place. Links of documents lead to what is in the tree.
pub fn lay(root: &Path, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
    let tree = target_directory(root).join("dist-tree").join(name);
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    let places = places_of(root, files)?;
    for (from, to) in &places {
        let (source, target) = (root.join(from), tree.join(to));
        if source.is_dir() {
            continue;
        }
        copy(&source, &target, 0o644)?;
        if from.ends_with(".md") {
            let text = fs::read_to_string(&source)?;
            fs::write(&target, documents::relinked(&text, from, to, &places))?;
        }
    }
    Ok(tree)
}

/// The places of all files that a table names, and of the directories that it takes whole.
fn places_of(root: &Path, files: &[(&str, &str)]) -> Result<Places> {
    let mut places = Places::new();
    let (directories, single): (Vec<_>, Vec<_>) =
        files.iter().partition(|(from, _)| from.ends_with('/'));
    places.extend(single.into_iter().map(|(from, to)| (from.to_string(), to.to_string())));
    for (from, to) in directories {
        let directory = root.join(from);
        for entry in fs::read_dir(&directory).with_context(|| format!("no {from}"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{from}{name}");
            if entry.file_type()?.is_file() && !LEFT_OUT.contains(&path.as_str()) {
                places.entry(path).or_insert_with(|| format!("{to}{name}"));
            }
        }
        let whole = [from, to].map(|path| path.trim_end_matches('/').to_owned());
        let [from, to] = whole;
        places.insert(from, to);
    }
    Ok(places)
}

/// Copies the installer and the Containerfile beside the archive.
pub fn beside(root: &Path, release: &Release) -> Result<Vec<PathBuf>> {
    let copied = BESIDE.into_iter().map(|(from, name, mode)| {
        let place = release.out.join(name);
        copy(&root.join(from), &place, mode)?;
        Ok(place)
    });
    copied.collect()
}

/// Copies every file of a directory that holds files alone.
pub fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("no {}", from.display()))? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()), 0o644)?;
    }
    Ok(())
}

/// Copies a file, with the directories above its new place.
pub fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::copy(from, to)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dist::Architecture, project_root};

    #[test]
    fn the_archive_holds_program_pages_completions_licences_and_units() {
        let out = std::env::temp_dir().join(format!("haul-xtask-contents-{}", std::process::id()));
        let release = Release {
            version: "7.1.17".into(),
            architecture: Architecture::X86_64,
            time_s: 0,
            out: out.clone(),
        };
        let program = std::env::current_exe().unwrap();
        let tree = lay_out(&project_root(), &release, &program).unwrap();
        assert!(tree.ends_with("haul-7.1.17-x86_64-linux"));
        for file in [
            "haul",
            "README.md",
            "CHANGELOG.md",
            "INSTALL.md",
            "SPEC.md",
            "docs/transfer.md",
            "docs/decisions/README.md",
            "examples/slurm/array.sh",
            "examples/kubernetes/push.yaml",
            "LICENSE-MIT",
            "LICENSE-APACHE",
            "man/haul.1",
            "man/haul-push.1",
            "completions/_haul",
            "completions/haul.bash",
            "completions/haul.fish",
            "systemd/haul.service",
        ] {
            assert!(tree.join(file).metadata().unwrap().len() > 0, "{file}");
        }
        assert_eq!(documents::dead_links(&tree), [""; 0]);
        let mode = tree.join("haul").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        fs::remove_dir_all(&tree).unwrap();
    }
}
