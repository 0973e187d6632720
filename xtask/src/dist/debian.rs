//! Debian package of a release, by dpkg-deb(1).
//!
//! It holds what the archive holds, at Debian's places, with the services' units. Its scripts are
//! in packaging/debian: they make the user of haul.service and start nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Release;
use super::contents::{copy, lay};
use crate::child;

/// Files of the project and their places on a Debian host, as [`lay`] reads them.
const FILES: [(&str, &str); 19] = [
    ("docs/man/", "usr/share/man/man1/"),
    ("docs/completions/haul.bash", "usr/share/bash-completion/completions/haul"),
    ("docs/completions/_haul", "usr/share/zsh/vendor-completions/_haul"),
    ("docs/completions/haul.fish", "usr/share/fish/vendor_completions.d/haul.fish"),
    ("README.md", "usr/share/doc/haul/README.md"),
    ("docs/install.md", "usr/share/doc/haul/INSTALL.md"),
    ("CHANGELOG.md", "usr/share/doc/haul/CHANGELOG.md"),
    ("ARCHITECTURE.md", "usr/share/doc/haul/ARCHITECTURE.md"),
    ("CONTRIBUTING.md", "usr/share/doc/haul/CONTRIBUTING.md"),
    ("crates/protocol/SPEC.md", "usr/share/doc/haul/SPEC.md"),
    ("docs/", "usr/share/doc/haul/docs/"),
    ("docs/decisions/", "usr/share/doc/haul/docs/decisions/"),
    ("examples/slurm/", "usr/share/doc/haul/examples/slurm/"),
    ("examples/kubernetes/", "usr/share/doc/haul/examples/kubernetes/"),
    ("examples/hyperqueue/", "usr/share/doc/haul/examples/hyperqueue/"),
    ("examples/parallel/", "usr/share/doc/haul/examples/parallel/"),
    ("packaging/systemd/haul.service", "usr/lib/systemd/system/haul.service"),
    ("packaging/systemd/haul-media.service", "usr/lib/systemd/system/haul-media.service"),
    ("packaging/systemd/haul.default", "etc/default/haul"),
];

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Builds the package into the directory of the release.
pub fn pack(root: &Path, release: &Release, program: &Path) -> Result<PathBuf> {
    let tree = lay_out(root, release)?;
    copy(program, &tree.join("usr/bin/haul"), 0o755)?;
    let documents = tree.join("usr/share/doc/haul");
    fs::write(documents.join("changelog"), changelog(root, release)?)?;
    fs::write(documents.join("copyright"), copyright(root)?)?;
    compress(&tree.join("usr/share/man/man1"), "*.1")?;
    compress(&documents, "change*")?;
    let control = tree.join("DEBIAN");
    for script in SCRIPTS {
        copy(&root.join("packaging/debian").join(script), &control.join(script), 0o755)?;
    }
    fs::write(control.join("conffiles"), "/etc/default/haul\n")?;
    fs::write(control.join("control"), about(root, release, len_bytes(&tree)?)?)?;
    build(root, release, &tree)
}

fn lay_out(root: &Path, release: &Release) -> Result<PathBuf> {
    lay(root, &format!("{}-deb", release.name()), &FILES)
}

fn build(root: &Path, release: &Release, tree: &Path) -> Result<PathBuf> {
    let name = format!("haul_{}_{}.deb", release.version, release.architecture.debian());
    let package = release.out.join(name);
    let mut command = child::command(root, "dpkg-deb", &["--root-owner-group", "-Zxz", "--build"]);
    command.args([tree, &package]).env("SOURCE_DATE_EPOCH", release.time_s.to_string());
    child::output_of(&mut command).context("needs dpkg-deb (apt-get install dpkg)")?;
    Ok(package)
}

/// The control file: what dpkg knows of the package.
fn about(root: &Path, release: &Release, len_bytes: u64) -> Result<String> {
    let text = fs::read_to_string(root.join("packaging/debian/control"))?;
    let size_kib = len_bytes.div_ceil(1024).to_string();
    Ok(text
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", release.architecture.debian())
        .replace("@SIZE_KIB@", &size_kib))
}

/// The copyright file: its head and the text of the MIT licence; Debian has the other's.
fn copyright(root: &Path) -> Result<String> {
    let head = fs::read_to_string(root.join("packaging/debian/copyright"))?;
    let licence = fs::read_to_string(root.join("LICENSE-MIT"))?;
    let indented = |line: &str| if line.is_empty() { " .\n".into() } else { format!(" {line}\n") };
    let licence: String = licence.trim_end().lines().map(indented).collect();
    let other = " On Debian the text is in /usr/share/common-licenses/Apache-2.0.\n";
    Ok(format!("{head}{licence}\nLicense: Apache-2.0\n{other}"))
}

/// Debian's own changelog, which leads to the project's.
fn changelog(root: &Path, release: &Release) -> Result<String> {
    let control = fs::read_to_string(root.join("packaging/debian/control"))?;
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    let maintainer = maintainer.context("packaging/debian/control names no maintainer")?;
    let at = format!("--date=@{}", release.time_s);
    let mut date = child::command(root, "date", &["--utc", "--rfc-email", &at]);
    let date = child::output_of(date.env("LC_ALL", "C"))?;
    Ok(format!(
        "haul ({}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {}  {}",
        release.version,
        maintainer,
        String::from_utf8_lossy(&date)
    ))
}

/// Compresses the files of a directory that a pattern of the shell matches, without name and time.
fn compress(directory: &Path, pattern: &str) -> Result<()> {
    let script = format!("exec gzip -9 --no-name {pattern}");
    child::run(&mut child::command(directory, "sh", &["-c", &script]))
}

fn len_bytes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        sum += if facts.is_dir() { len_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::{Architecture, documents};
    use crate::project_root;

    #[test]
    fn links_in_documents_of_the_package_lead_to_files_in_it() {
        let release = Release {
            version: "7.1.19".into(),
            architecture: Architecture::X86_64,
            time_s: 0,
            out: PathBuf::from("/nowhere"),
        };
        let tree = lay_out(&project_root(), &release).unwrap();
        assert_eq!(documents::dead_links(&tree), [""; 0]);
        fs::remove_dir_all(&tree).unwrap();
    }

    #[test]
    fn the_control_file_and_the_copyright_are_filled_in() {
        let release = Release {
            version: "7.1.17".into(),
            architecture: Architecture::Aarch64,
            time_s: 0,
            out: PathBuf::from("/nowhere"),
        };
        let text = about(&project_root(), &release, 2049).unwrap();
        assert!(text.contains("\nVersion: 7.1.17\nArchitecture: arm64\n"), "{text}");
        assert!(text.contains("\nInstalled-Size: 3\n") && !text.contains("@VER"), "{text}");
        let text = changelog(&project_root(), &release).unwrap();
        assert!(text.starts_with("haul (7.1.17) unstable;"), "{text}");
        assert!(text.ends_with(">  Thu, 01 Jan 1970 00:00:00 +0000\n"), "{text}");
        let text = copyright(&project_root()).unwrap();
        assert!(text.contains("Permission is hereby granted"), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
    }
}
