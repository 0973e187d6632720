//! The programs that some tests need: found, installed where that is possible, or named.
//!
//! A test that lacks its program is skipped and counted; nothing here makes a test run fail.

use std::path::Path;

use anyhow::Result;

use crate::{child, hyperqueue, unpacked};

/// A program that tests start, or a library that they are built with.
#[derive(Debug, PartialEq, Eq)]
struct Prerequisite {
    /// The program; of a library the file by which pkg-config(1) knows it.
    program: &'static str,
    /// The package of Debian and Ubuntu that holds it.
    package: &'static str,
    /// The tests that are skipped without the program.
    tests: &'static str,
}

const PREREQUISITES: [Prerequisite; 31] = [
    Prerequisite { program: "ip", package: "iproute2", tests: "tests over network namespaces" },
    Prerequisite { program: "tc", package: "iproute2", tests: "tests over a simulated WAN" },
    Prerequisite { program: "unshare", package: "util-linux", tests: "tests in own namespaces" },
    Prerequisite { program: "losetup", package: "util-linux", tests: "tests on own file systems" },
    Prerequisite { program: "mount", package: "mount", tests: "tests on own file systems" },
    Prerequisite { program: "mkfs.ext4", package: "e2fsprogs", tests: "tests on own file systems" },
    Prerequisite { program: "mkfs.xfs", package: "xfsprogs", tests: "tests on own xfs" },
    Prerequisite { program: "bindfs", package: "bindfs", tests: "tests on FUSE" },
    Prerequisite { program: "mkfs.btrfs", package: "btrfs-progs", tests: "tests on own btrfs" },
    Prerequisite { program: "strace", package: "strace", tests: "tests of system calls that fail" },
    Prerequisite { program: "sysctl", package: "procps", tests: "tests of tuning" },
    Prerequisite { program: "ethtool", package: "ethtool", tests: "tests of tuning" },
    Prerequisite { program: "setfattr", package: "attr", tests: "tests of extended attributes" },
    Prerequisite { program: "b3sum", package: "b3sum", tests: "tests of manifests beside b3sum" },
    Prerequisite { program: "ffmpeg", package: "ffmpeg", tests: "tests of films and players" },
    Prerequisite { program: "chromium", package: "chromium", tests: "tests of films in a browser" },
    Prerequisite { program: "ssh", package: "openssh-client", tests: "tests of copies over ssh" },
    Prerequisite { program: "sshd", package: "openssh-server", tests: "tests of copies over ssh" },
    Prerequisite { program: "curl", package: "curl", tests: "a test of the installer" },
    Prerequisite { program: "shellcheck", package: "shellcheck", tests: "a test of scripts" },
    Prerequisite { program: "python3", package: "python3", tests: "trials in a virtual machine" },
    Prerequisite { program: "pip3", package: "python3-pip", tests: "tests of HyperQueue" },
    Prerequisite { program: "parallel", package: "parallel", tests: "tests of GNU parallel" },
    Prerequisite { program: "slurmctld", package: "slurmctld", tests: "tests of Slurm" },
    Prerequisite { program: "slurmd", package: "slurmd", tests: "tests of Slurm" },
    Prerequisite { program: "sbatch", package: "slurm-client", tests: "tests of Slurm" },
    Prerequisite { program: "munged", package: "munge", tests: "tests of Slurm" },
    Prerequisite { program: "pkg-config", package: "pkg-config", tests: "tests of RDMA endpoints" },
    Prerequisite {
        program: "javac",
        package: "default-jdk-headless",
        tests: "the JVM client's tests",
    },
    Prerequisite { program: "mvn", package: "maven", tests: "the JVM client's tests" },
    Prerequisite { program: LIBFABRIC, package: "libfabric-dev", tests: "tests of RDMA endpoints" },
];

/// Programs that do as well as the named ones. Ubuntu has chromium as a snap only, which sees no
/// file of a test; the makers' own package is in no distribution.
const SUBSTITUTES: [(&str, &str); 1] = [("chromium", "google-chrome")];

/// The library of RDMA endpoints.
const LIBFABRIC: &str = "libfabric.pc";

/// Whether the endpoints over libfabric can be built here.
pub fn has_libfabric(root: &Path) -> bool {
    is_there(root, LIBFABRIC)
}

/// Words for cargo that turn on the features for which this host has the libraries.
pub fn features(root: &Path) -> &'static [&'static str] {
    if has_libfabric(root) { &["--features", "haul-cli/fabric"] } else { &[] }
}

/// Whether a program is installed, or a library with what is needed to build with it.
fn is_there(root: &Path, name: &str) -> bool {
    match name.strip_suffix(".pc") {
        Some(library) => {
            let asked = child::command(root, "pkg-config", &["--exists", library]).status();
            asked.is_ok_and(|status| status.success())
        }
        None => child::is_installed(name),
    }
}

/// Installs missing programs when this process may; otherwise says what to install.
pub fn provide(root: &Path) {
    install_missing(root);
    // After it, as the lists of packages are fresh then.
    unpacked::provide(root);
    hyperqueue::provide(root);
}

fn install_missing(root: &Path) {
    let missing = missing(|name| is_there(root, name));
    if missing.is_empty() {
        return;
    }
    let packages = packages_of(&missing);
    if child::is_root(root) && child::is_installed("apt-get") {
        println!("test: installing {}", packages.join(" "));
        install(root, &packages);
    }
    for prerequisite in self::missing(|name| is_there(root, name)) {
        println!(
            "test: {} will be skipped: {} is missing. Install it: apt-get install {}",
            prerequisite.tests, prerequisite.program, prerequisite.package
        );
    }
}

fn missing(is_installed: impl Fn(&str) -> bool) -> Vec<&'static Prerequisite> {
    let is_there = |program: &str| {
        let mut substitutes = SUBSTITUTES.iter().filter(|(known, _)| *known == program);
        is_installed(program) || substitutes.any(|(_, substitute)| is_installed(substitute))
    };
    PREREQUISITES.iter().filter(|prerequisite| !is_there(prerequisite.program)).collect()
}

fn packages_of(prerequisites: &[&Prerequisite]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = prerequisites.iter().map(|one| one.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Installs packages, and says which failed.
fn install(root: &Path, packages: &[&str]) {
    // Without fresh lists a package of last month's list is asked for and not found.
    if let Err(error) = child::run(&mut apt_get(root, &["update"])) {
        return println!("test: {error:#}");
    }
    if install_together(root, packages).is_ok() {
        return;
    }
    // One that this distribution does not have keeps none of the others away.
    for package in packages {
        if let Err(error) = install_together(root, &[package]) {
            println!("test: {error:#}");
        }
    }
}

fn install_together(root: &Path, packages: &[&str]) -> Result<()> {
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    child::run(&mut apt_get(root, &arguments))
}

fn apt_get(root: &Path, arguments: &[&str]) -> std::process::Command {
    let waiting = ["-q", "-o", "DPkg::Lock::Timeout=120"];
    let mut command = child::command(root, "apt-get", &waiting);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_asked_for_once() {
        let missing = missing(|program| program != "ip" && program != "tc" && program != "strace");
        assert_eq!(packages_of(&missing), ["iproute2", "strace"]);
    }

    #[test]
    fn a_substitute_is_enough() {
        assert_eq!(missing(|program| program != "chromium"), [&PREREQUISITES[0]; 0]);
        let both = ["chromium", "google-chrome"];
        assert_eq!(packages_of(&missing(|program| !both.contains(&program))), ["chromium"]);
    }

    #[test]
    fn nothing_is_asked_for_when_all_is_there() {
        assert_eq!(missing(|_| true), [&PREREQUISITES[0]; 0]);
    }
}
