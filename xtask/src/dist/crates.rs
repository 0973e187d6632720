//! Trial of the packaged crates: `cargo install --locked haul-cli` from the packages alone.
//!
//! The packages, and those of others that Cargo.lock names, are put into a directory that stands in
//! for the registry (cargo's directory sources), and cargo is told to be offline.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::build::{PACKAGE, PROGRAM};
use super::target_directory;
use crate::child;

/// Packages all crates that are published, and installs the program out of the packages. It is
/// built without optimization, as only the time differs.
pub fn try_install(root: &Path, metadata: &Value) -> Result<()> {
    let place = target_directory(root).join("dist-crates");
    let registry = place.join("registry");
    if registry.exists() {
        fs::remove_dir_all(&registry)?;
    }
    println!("dist: packaging the crates and installing {PACKAGE} from the packages");
    pack(root, metadata)?;
    fs::create_dir_all(&place)?;
    let vendor = ["vendor", "--locked", "--quiet", "--versioned-dirs"];
    child::output_of(child::cargo(root, &vendor).arg(&registry))?;
    for (name, version) in published(metadata) {
        unpack(root, &registry, &format!("{name}-{version}"))?;
    }
    install(&place, &registry)
}

/// Names and versions of the packages of ours that are published.
fn published(metadata: &Value) -> Vec<(&str, &str)> {
    of_ours(metadata, |package| package["publish"].is_null())
}

fn of_ours(metadata: &Value, is_meant: impl Fn(&Value) -> bool) -> Vec<(&str, &str)> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours = packages.iter().filter(|one| one["source"].is_null() && is_meant(one));
    ours.filter_map(|one| Some((one["name"].as_str()?, one["version"].as_str()?))).collect()
}

fn pack(root: &Path, metadata: &Value) -> Result<()> {
    let mut command = child::cargo(root, &["package", "--quiet", "--workspace", "--no-verify"]);
    for (name, _) in of_ours(metadata, |package| !package["publish"].is_null()) {
        command.args(["--exclude", name]);
    }
    // A trial is of the tree as it is.
    child::output_of(command.arg("--allow-dirty")).map(drop)
}

/// Unpacks a package into the directory that stands in for the registry, with its digest.
fn unpack(root: &Path, registry: &Path, name: &str) -> Result<()> {
    let package = target_directory(root).join("package").join(format!("{name}.crate"));
    let words = ["--extract", "--gzip", "--file"];
    child::output_of(child::command(registry, "tar", &words).arg(&package))?;
    let said = child::output_of(child::command(root, "sha256sum", &[]).arg(&package))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let digest = said.split_whitespace().next().context("sha256sum prints a digest")?;
    let text = json!({"files": {}, "package": digest}).to_string();
    Ok(fs::write(registry.join(name).join(".cargo-checksum.json"), text)?)
}

fn install(place: &Path, registry: &Path) -> Result<()> {
    let installed = place.join("installed");
    let source = format!("source.packed.directory={:?}", registry.display().to_string());
    let words = ["install", "--locked", "--offline", "--force", "--debug", PACKAGE];
    // Outside of the project, whose own settings a user does not have.
    let mut command = child::cargo(&outside()?, &words);
    command.args(["--config", "source.crates-io.replace-with=\"packed\"", "--config", &source]);
    command.arg("--root").arg(&installed).env("CARGO_TARGET_DIR", place.join("build"));
    child::run(&mut command)?;
    let program = installed.join("bin").join(PROGRAM);
    let said = child::output_of(&mut child::command(place, &program, &["--version"]))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    if !said.starts_with("haul ") {
        bail!("what was installed from the packages says `{}`", said.trim());
    }
    println!("dist: cargo install --locked {PACKAGE}: {}", said.trim());
    Ok(())
}

fn outside() -> Result<PathBuf> {
    let place = std::env::temp_dir();
    place.is_dir().then_some(place).context("there is no directory for temporary files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_ours_that_are_published_are_told_from_others() {
        let metadata = json!({"packages": [
            {"name": "haul-sys", "version": "1.0.0", "source": null, "publish": null},
            {"name": "haul-testkit", "version": "1.0.0", "source": null, "publish": []},
            {"name": "libc", "version": "0.2.0", "source": "registry+x", "publish": null},
        ]});
        assert_eq!(published(&metadata), [("haul-sys", "1.0.0")]);
    }
}
