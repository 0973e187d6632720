//! Trial of a release (`cargo xtask dist --try`): in trees of other distributions, without Rust.
//!
//! The trees are Debian 11, whose kernel is 5.10, and Debian 13, made by mmdebstrap(1) and kept
//! below `target/tools/trees`. Each trial runs in namespaces of its own, which end with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Release, contents, debian};
use crate::{Outcome, child};

/// A tree of a distribution, and what it has beside the least.
struct Tree {
    suite: &'static str,
    packages: &'static str,
    /// The host in the URL of the transfer there.
    host: &'static str,
}

/// Debian 11 finds names in /etc/hosts alone. In Debian 13 the name is found by a module of the
/// host's resolver (nss-myhostname(8)), which no resolver in a program knows.
const TREES: [Tree; 2] = [
    Tree { suite: "bullseye", packages: "adduser", host: "localhost" },
    Tree {
        suite: "trixie",
        packages: "adduser,systemd,libnss-myhostname",
        host: "trial.localhost",
    },
];

/// The place of the trees below the project.
const PLACE: &str = "target/tools/trees";
/// The package is tried here, where systemd can check the units.
const OF_PACKAGE: &str = "trixie";

/// Tries the release of the project at `root`; needs to be root.
pub fn run(root: &Path, release: &Release) -> Result<Outcome> {
    if !child::is_root(root) {
        bail!("not tried: the trees of distributions are entered by chroot, which needs root");
    }
    let later = Release {
        version: format!("{}+later", release.version),
        architecture: release.architecture,
        time_s: release.time_s,
        out: root.join(PLACE).join("later"),
    };
    fs::create_dir_all(&later.out)?;
    let program = super::target_directory(root).join("dist-tree").join(release.name()).join("haul");
    let upgrade = debian::pack(root, &later, &program)?;
    for tree in &TREES {
        let directory = lay(root, tree, release)?;
        println!("\ndist: {} by the installer, and a transfer", tree.suite);
        enter(root, &directory, &["/release/transfer.sh", tree.host])?;
        remove(&directory)?;
        if tree.suite == OF_PACKAGE {
            let package = |version: &str| {
                format!("/release/haul_{version}_{}.deb", release.architecture.debian())
            };
            let packages = [package(&release.version), package(&later.version)];
            println!("\ndist: the Debian package in {}", tree.suite);
            let directory = lay(root, tree, release)?;
            let inside = |directory: &Path| directory.join(packages[1].trim_start_matches('/'));
            contents::copy(&upgrade, &inside(&directory), 0o644)?;
            enter(root, &directory, &["/release/debian.sh", &packages[0], &packages[1]])?;
            remove(&directory)?;
            println!("\ndist: the services in {}, under a systemd of its own", tree.suite);
            let directory = lay(root, tree, release)?;
            contents::copy(&upgrade, &inside(&directory), 0o644)?;
            enter(root, &directory, &["dpkg", "--install", &packages[0]])?;
            let script = root.join("packaging/trial/services.sh");
            let mut command = child::command(root, script, &[]);
            child::run(command.arg(&directory).arg(&program).arg(&packages[1]))?;
            remove(&directory)?;
        }
    }
    container(root, release, &program)?;
    println!("\ndist: tried in {}", TREES.map(|tree| tree.suite).join(" and "));
    Ok(Outcome::InOrder)
}

/// Builds the container's image and moves a file into a container, where a builder is installed.
fn container(root: &Path, release: &Release, program: &Path) -> Result<()> {
    if !child::is_installed("buildah") {
        println!("\ndist: the container is not tried: needs buildah (apt-get install buildah)");
        return Ok(());
    }
    println!("\ndist: the container, on a tree of {OF_PACKAGE}");
    let mut command = child::command(root, root.join("packaging/trial/container.sh"), &[]);
    command.arg(&release.out).arg(release.out.join("Containerfile"));
    command.arg(root.join(PLACE).join(format!("{OF_PACKAGE}.tar"))).arg(program);
    child::run(&mut command)
}

fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))
}

/// Lays a fresh tree of a distribution out, with the release and the trials in it.
fn lay(root: &Path, tree: &Tree, release: &Release) -> Result<PathBuf> {
    let place = root.join(PLACE);
    let archive = place.join(format!("{}.tar", tree.suite));
    if !archive.exists() {
        println!("dist: making a tree of Debian, {}", tree.suite);
        let half = place.join(format!("{}.half.tar", tree.suite));
        let words = ["--quiet", "--variant=minbase", "--mode=root", "--include", tree.packages];
        let mut command = child::command(root, "mmdebstrap", &words);
        child::run(command.arg(tree.suite).arg(&half))
            .context("needs mmdebstrap and Debian's mirror (apt-get install mmdebstrap)")?;
        fs::rename(&half, &archive)?;
    }
    let directory = place.join(format!("{}-{}", tree.suite, std::process::id()));
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    let words = ["--extract", "--numeric-owner", "--exclude=./dev/*", "--file"];
    child::run(child::command(&directory, "tar", &words).arg(&archive))?;
    let inside = directory.join("release");
    contents::copy_all(&release.out, &inside)?;
    for script in ["transfer.sh", "debian.sh", "listening.sh"] {
        let from = root.join("packaging/trial").join(script);
        contents::copy(&from, &inside.join(script), 0o755)?;
    }
    Ok(directory)
}

/// Runs words in a tree, in namespaces of its own: its processes end with it, and it has no network
/// but a loopback.
fn enter(root: &Path, tree: &Path, words: &[&str]) -> Result<()> {
    let apart = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--"];
    let mut command = child::command(root, "unshare", &apart);
    command.arg(root.join("packaging/trial/enter.sh")).arg(tree).args(words);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    child::run(command.env("HOME", "/root"))
}
