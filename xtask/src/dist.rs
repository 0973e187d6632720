//! Release that is given away (`cargo xtask dist`): archive, Debian package, digests and SBOM.
//!
//! The program is built against glibc 2.17, so that it runs on every Linux with glibc and a kernel
//! of 5.10 or newer (docs/decisions/0060), stripped, with its debug information beside it. `--try`
//! then installs what was made into trees of other distributions, without Rust, and moves a file
//! there.

mod archive;
mod build;
mod contents;
mod crates;
mod debian;
mod documents;
#[cfg(test)]
mod installer;
mod needs;
mod sbom;
mod trial;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{Outcome, child};

/// Request that `cargo xtask dist` read from its words.
struct Asked {
    out: PathBuf,
    architecture: Architecture,
    is_tried: bool,
}

/// An architecture that there are archives for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    /// The architecture of this machine.
    fn own() -> Result<Architecture> {
        Architecture::of(std::env::consts::ARCH)
    }

    /// The architecture of a target such as `aarch64-unknown-linux-gnu`, or of its first word.
    fn of(target: &str) -> Result<Architecture> {
        let known = [Architecture::X86_64, Architecture::Aarch64];
        let is_named = |one: &Architecture| target == one.name() || target == one.target();
        known.into_iter().find(is_named).with_context(|| {
            let targets = known.map(Architecture::target).join(" and ");
            format!("no recipe for `{target}`; there are those for {targets}")
        })
    }

    fn name(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64",
            Architecture::Aarch64 => "aarch64",
        }
    }

    /// The target of rustc; glibc's version is added where it is built.
    fn target(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64-unknown-linux-gnu",
            Architecture::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    fn debian(self) -> &'static str {
        match self {
            Architecture::X86_64 => "amd64",
            Architecture::Aarch64 => "arm64",
        }
    }
}

/// A release that is being made.
pub struct Release {
    pub version: String,
    pub architecture: Architecture,
    /// Seconds since 1970 that every file of the release has as its time.
    pub time_s: u64,
    /// The directory that gets the files to give away.
    pub out: PathBuf,
}

impl Release {
    /// The name of the archive without its ending, and of the directory in it.
    pub fn name(&self) -> String {
        format!("haul-{}-{}-linux", self.version, self.architecture.name())
    }
}

/// Makes the release of the project at `root`; `arguments` are those behind `dist`.
pub fn run(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    let asked = read(root, arguments)?;
    let metadata = metadata(root, asked.architecture)?;
    let release = Release {
        version: version_of(&metadata)?,
        architecture: asked.architecture,
        time_s: time_s(root)?,
        out: asked.out,
    };
    std::fs::create_dir_all(&release.out)
        .with_context(|| format!("cannot make {}", release.out.display()))?;
    if asked.is_tried && release.architecture == Architecture::own()? {
        crates::try_install(root, &metadata)?;
    }
    let built = build::program(root, &release)?;
    needs::check(root, &built.program)?;
    let tree = contents::lay_out(root, &release, &built.program)?;
    let mut made = vec![archive::pack(root, &release, &tree)?];
    made.push(debian::pack(root, &release, &built.program)?);
    made.push(sbom::write(&release, &metadata)?);
    made.extend(contents::beside(root, &release)?);
    archive::write_sums(root, &release)?;
    for path in made.iter().chain([&built.debug]) {
        let len_bytes = path.metadata().with_context(|| format!("no {}", path.display()))?.len();
        println!("{:>8.1} MB  {}", len_bytes as f64 / 1e6, path.display());
    }
    if release.architecture != Architecture::own()? {
        println!("dist: untried, as it is for {}: run --try there", release.architecture.name());
        return Ok(Outcome::InOrder);
    }
    if asked.is_tried { trial::run(root, &release) } else { Ok(Outcome::InOrder) }
}

fn read(root: &Path, arguments: &[&str]) -> Result<Asked> {
    let mut asked = Asked {
        out: target_directory(root).join("dist-out"),
        architecture: Architecture::own()?,
        is_tried: false,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match *word {
            "--out" => asked.out = std::path::absolute(value()?)?,
            "--target" => asked.architecture = Architecture::of(value()?)?,
            "--try" => asked.is_tried = true,
            other => bail!("dist knows --out DIR, --target TRIPLE and --try, not `{other}`"),
        }
    }
    Ok(asked)
}

/// The packages of the workspace and those they need on the architecture.
fn metadata(root: &Path, architecture: Architecture) -> Result<Value> {
    let platform = architecture.target();
    let words = ["metadata", "--format-version", "1", "--locked", "--filter-platform", platform];
    let text = child::output_of(&mut child::cargo(root, &words))?;
    serde_json::from_slice(&text).context("cannot read what cargo metadata printed")
}

fn version_of(metadata: &Value) -> Result<String> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let own = packages.iter().find(|package| package["name"] == build::PACKAGE);
    let version = own.and_then(|package| package["version"].as_str());
    Ok(version.with_context(|| format!("there is no package {}", build::PACKAGE))?.to_owned())
}

/// The time of the release: SOURCE_DATE_EPOCH (reproducible-builds.org), else that of the commit.
fn time_s(root: &Path) -> Result<u64> {
    if let Ok(said) = std::env::var("SOURCE_DATE_EPOCH") {
        return said.parse().with_context(|| format!("SOURCE_DATE_EPOCH is no number: {said}"));
    }
    let words = ["log", "-1", "--format=%ct"];
    let said = child::output_of(&mut child::command(root, "git", &words))?;
    String::from_utf8_lossy(&said).trim().parse().context("git tells no time of the last commit")
}

/// The directory that cargo builds into.
fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |path| root.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_named_by_its_target_or_alone() {
        assert_eq!(Architecture::of("aarch64").unwrap(), Architecture::Aarch64);
        assert_eq!(Architecture::of("x86_64-unknown-linux-gnu").unwrap(), Architecture::X86_64);
        let said = Architecture::of("riscv64").unwrap_err().to_string();
        assert!(said.contains("no recipe for `riscv64`"), "{said}");
    }

    #[test]
    fn options_are_read_and_others_are_refused() {
        let root = Path::new("/p");
        let asked = read(root, &["--out", "/o", "--target", "aarch64", "--try"]).unwrap();
        assert_eq!(asked.out, Path::new("/o"));
        assert!(asked.architecture == Architecture::Aarch64 && asked.is_tried);
        assert!(read(root, &["--out"]).is_err());
        assert!(read(root, &["--static"]).is_err());
    }
}
