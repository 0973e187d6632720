//! Trial of a release (`cargo xtask dist --try`): in trees of other distributions, without Rust.
//!
//! The trees are Debian 11, whose kernel is 5.10, Debian 13, and Ubuntu 24.04 where its mirror is
//! reached, made by mmdebstrap(1) and kept below `target/tools/trees`. Each trial runs in
//! namespaces of its own, which end with it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Release, contents, debian};
use crate::{Outcome, child};

/// A tree of a distribution, and what it has beside the least.
struct Tree {
    name: &'static str,
    suite: &'static str,
    packages: &'static str,
    /// The host in the URL of the transfer there.
    host: &'static str,
    trial: Trial,
    mirror: Mirror,
}

/// Trials of a release in a tree.
#[derive(PartialEq, Eq)]
enum Trial {
    /// The archive, by the installer and a transfer.
    Archive,
    /// The archive, the Debian package, and its services, in a tree that has systemd.
    Package,
}

/// Distribution whose mirror has the packages of a tree.
#[derive(PartialEq, Eq)]
enum Mirror {
    Debian,
    /// Ubuntu's, whose keys are in a package of Debian 13.
    Ubuntu,
}

/// Others find names in /etc/hosts alone. In Debian 13 the name is found by a module of the host's
/// resolver (nss-myhostname(8)), which no resolver in a program knows.
const TREES: [Tree; 3] = [
    Tree {
        name: "Debian 11",
        suite: "bullseye",
        packages: "adduser",
        host: "localhost",
        trial: Trial::Archive,
        mirror: Mirror::Debian,
    },
    Tree {
        name: "Debian 13",
        suite: BASE,
        packages: "adduser,systemd,libnss-myhostname,ubuntu-keyring",
        host: "trial.localhost",
        trial: Trial::Package,
        mirror: Mirror::Debian,
    },
    Tree {
        name: "Ubuntu 24.04",
        suite: "noble",
        packages: "adduser,systemd",
        host: "localhost",
        trial: Trial::Package,
        mirror: Mirror::Ubuntu,
    },
];

/// The place of the trees below the project.
const PLACE: &str = "target/tools/trees";
/// The suite that holds Ubuntu's keys, and that the container is made of.
const BASE: &str = "trixie";
/// The keys, in a tree of that suite.
const KEYS: &str = "./usr/share/keyrings/ubuntu-archive-keyring.gpg";

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
    let (mut tried, mut not_tried) = (Vec::new(), Vec::new());
    for tree in &TREES {
        match provide(root, tree) {
            Ok(()) => tried.push(tree.name),
            Err(error) if tree.mirror == Mirror::Ubuntu => {
                println!("\ndist: {} is not tried: {error:#}", tree.name);
                not_tried.push(tree.name);
                continue;
            }
            Err(error) => return Err(error),
        }
        println!("\ndist: {} by the installer, and a transfer", tree.name);
        let directory = lay(root, tree, release)?;
        enter(root, &directory, &["/release/transfer.sh", tree.host])?;
        remove(&directory)?;
        if tree.trial == Trial::Package {
            package(root, tree, release, &later, &upgrade)?;
            services(root, tree, release, &later, &upgrade, &program)?;
        }
    }
    let tries_container = container(root, release, &program)?;
    if !tries_container {
        not_tried.push("the container");
    }
    println!("\ndist: tried in {}", tried.join(", "));
    if !not_tried.is_empty() {
        println!("dist: NOT tried: {}; see above why", not_tried.join(", "));
    }
    Ok(Outcome::InOrder)
}

/// The place of a release's package in a tree.
fn place_of_package(release: &Release) -> String {
    format!("/release/haul_{}_{}.deb", release.version, release.architecture.debian())
}

/// Installs, upgrades, removes and purges the package in a tree.
fn package(
    root: &Path,
    tree: &Tree,
    release: &Release,
    later: &Release,
    upgrade: &Path,
) -> Result<()> {
    println!("\ndist: the Debian package in {}", tree.name);
    let directory = lay(root, tree, release)?;
    let packages = [release, later].map(place_of_package);
    contents::copy(upgrade, &directory.join(&packages[1][1..]), 0o644)?;
    enter(root, &directory, &["/release/debian.sh", &packages[0], &packages[1]])?;
    remove(&directory)
}

/// Boots a tree with the package, and uses its services through an upgrade.
fn services(
    root: &Path,
    tree: &Tree,
    release: &Release,
    later: &Release,
    upgrade: &Path,
    program: &Path,
) -> Result<()> {
    println!("\ndist: the services in {}, under a systemd of its own", tree.name);
    let directory = lay(root, tree, release)?;
    let packages = [release, later].map(place_of_package);
    contents::copy(upgrade, &directory.join(&packages[1][1..]), 0o644)?;
    enter(root, &directory, &["dpkg", "--install", &packages[0]])?;
    let mut command = child::command(root, root.join("packaging/trial/services.sh"), &[]);
    child::run(command.arg(&directory).arg(program).arg(&packages[1]))?;
    remove(&directory)
}

/// Builds the container's image and moves a file into a container; `false` where no builder is
/// installed.
fn container(root: &Path, release: &Release, program: &Path) -> Result<bool> {
    if !child::is_installed("buildah") {
        println!("\ndist: the container is not tried: needs buildah (apt-get install buildah)");
        return Ok(false);
    }
    println!("\ndist: the container, on a tree of {BASE}");
    let mut command = child::command(root, root.join("packaging/trial/container.sh"), &[]);
    command.arg(&release.out).arg(release.out.join("Containerfile"));
    command.arg(archive(root, BASE)).arg(program);
    child::run(&mut command)?;
    Ok(true)
}

fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))
}

/// Makes the archive of a tree, where it is missing or was made of other packages.
fn provide(root: &Path, tree: &Tree) -> Result<()> {
    let place = root.join(PLACE);
    let archive = archive(root, tree.suite);
    let record = place.join(format!("{}.packages", tree.suite));
    let is_made = fs::read_to_string(&record).is_ok_and(|found| found == tree.packages);
    if archive.exists() && is_made {
        return Ok(());
    }
    println!("dist: making a tree of {}, {}", tree.name, tree.suite);
    let half = place.join(format!("{}.half.tar", tree.suite));
    let words = ["--quiet", "--variant=minbase", "--mode=root", "--include", tree.packages];
    let mut command = child::command(root, "mmdebstrap", &words);
    if tree.mirror == Mirror::Ubuntu {
        let words = ["--extract", "--to-stdout", "--file"];
        let mut tar = child::command(root, "tar", &words);
        let keys = child::output_of(tar.arg(self::archive(root, BASE)).arg(KEYS))?;
        let keyring = place.join("ubuntu.gpg");
        fs::write(&keyring, keys)?;
        command.arg("--keyring").arg(keyring);
    }
    child::run(command.arg(tree.suite).arg(&half)).context(
        "needs mmdebstrap (apt-get install mmdebstrap), and the mirror of the distribution",
    )?;
    fs::rename(&half, &archive)?;
    Ok(fs::write(record, tree.packages)?)
}

fn archive(root: &Path, suite: &str) -> PathBuf {
    root.join(PLACE).join(format!("{suite}.tar"))
}

/// Lays a fresh tree of a distribution out, with the release and the trials in it.
fn lay(root: &Path, tree: &Tree, release: &Release) -> Result<PathBuf> {
    let directory = root.join(PLACE).join(format!("{}-{}", tree.suite, std::process::id()));
    if directory.exists() {
        fs::remove_dir_all(&directory)?;
    }
    fs::create_dir_all(&directory)?;
    let words = ["--extract", "--numeric-owner", "--exclude=./dev/*", "--file"];
    child::run(child::command(&directory, "tar", &words).arg(archive(root, tree.suite)))?;
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
