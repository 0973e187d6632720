//! Archive of a release and the digests of all its files.
//!
//! The same tree gives the same bytes: names are sorted, owners and times fixed, and gzip writes
//! neither name nor time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Release;
use crate::child;

const SUMS: &str = "SHA256SUMS";

/// Packs the tree, whose directory has the release's name, into `out`.
pub fn pack(root: &Path, release: &Release, tree: &Path) -> Result<PathBuf> {
    let above = tree.parent().context("the tree has no directory above it")?;
    let archive = release.out.join(format!("{}.tar.gz", release.name()));
    let words = words_of_tar(release.time_s);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut tar = child::command(above, "tar", &words);
    tar.arg(release.name()).stdout(Stdio::piped());
    let mut packing = tar.spawn().context("cannot start tar")?;
    let text = packing.stdout.take().context("tar has an output")?;
    let zipped = zip(root, text, &archive);
    if !packing.wait()?.success() {
        bail!("tar failed on {}", tree.display());
    }
    zipped?;
    Ok(archive)
}

/// Words of tar(1) that make the same archive of the same files, whoever packs them.
pub fn words_of_tar(time_s: u64) -> Vec<String> {
    let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"];
    let mut words: Vec<String> = fixed.map(String::from).into();
    words.push(format!("--mtime=@{time_s}"));
    words.extend(["--create", "--file=-"].map(String::from));
    words
}

fn zip(root: &Path, text: impl Into<Stdio>, to: &Path) -> Result<()> {
    let file = fs::File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
    let mut gzip: Command = child::command(root, "gzip", &["-9", "--no-name"]);
    child::run(gzip.stdin(text).stdout(file))
}

/// Writes `SHA256SUMS` over all other files of the release's directory.
pub fn write_sums(root: &Path, release: &Release) -> Result<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(&release.out)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != SUMS {
            names.push(name);
        }
    }
    names.sort();
    let mut command = child::command(&release.out, "sha256sum", &["--binary", "--"]);
    let sums = child::output_of(command.args(names))
        .with_context(|| format!("no digests for the project at {}", root.display()))?;
    let place = release.out.join(SUMS);
    fs::write(&place, sums)?;
    Ok(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::Architecture;

    fn release(out: &Path) -> Release {
        Release {
            version: "7.1.17".into(),
            architecture: Architecture::X86_64,
            time_s: 1_700_000_000,
            out: out.to_path_buf(),
        }
    }

    /// Makes a tree with files in an order and of a time of their own, and packs it.
    fn packed(place: &Path, names: [&str; 2]) -> Vec<u8> {
        let release = release(&place.join("out"));
        fs::create_dir_all(&release.out).unwrap();
        let tree = place.join(release.name());
        fs::create_dir_all(&tree).unwrap();
        for name in names {
            fs::write(tree.join(name), name).unwrap();
        }
        fs::read(pack(place, &release, &tree).unwrap()).unwrap()
    }

    #[test]
    fn the_same_files_make_the_same_archive_and_its_digest_is_beside_it() {
        let place = std::env::temp_dir().join(format!("haul-xtask-archive-{}", std::process::id()));
        let one = packed(&place.join("one"), ["a", "b"]);
        let two = packed(&place.join("two"), ["b", "a"]);
        assert!(one == two, "the archives differ");
        let out = place.join("one/out");
        write_sums(&place, &release(&out)).unwrap();
        let text = fs::read_to_string(write_sums(&place, &release(&out)).unwrap()).unwrap();
        assert!(text.ends_with(" *haul-7.1.17-x86_64-linux.tar.gz\n"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        child::output_of(&mut child::command(&out, "sha256sum", &["--check", SUMS])).unwrap();
        fs::remove_dir_all(&place).unwrap();
    }
}
