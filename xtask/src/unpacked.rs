//! nginx, taken out of its package and not installed: tests hold `haul media` beside it.
//!
//! Installing it would start a server on port 80 of the machine. The package is downloaded with
//! apt-get, for which nobody needs to be root, and unpacked below `target/tools`, where the tests
//! look for it. Its libraries are those that curl and git need too.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::child;

/// Packages that may hold nginx: Debian's, and that of an Ubuntu whose `nginx` is only a name.
const PACKAGES: [&str; 2] = ["nginx", "nginx-core"];
/// The place of nginx below the project, known to the tests, too (media_beside_nginx.rs).
const TOOLS: &str = "target/tools/nginx";

/// Unpacks nginx where it is missing, or says which tests are skipped without it.
pub fn provide(root: &Path) {
    if is_there(root) {
        return;
    }
    if child::is_installed("apt-get") && child::is_installed("dpkg-deb") {
        println!("test: unpacking nginx below {TOOLS}; it is not installed");
        for package in PACKAGES {
            match unpack(root, package) {
                Ok(()) if is_there(root) => return,
                Ok(()) => {}
                Err(error) => println!("test: {error:#}"),
            }
        }
    }
    println!(
        "test: tests of haul media beside nginx will be skipped: nginx is missing. Install it: \
        apt-get install nginx (which starts it)"
    );
}

/// Whether nginx is there and starts: a program of another distribution may lack a library.
fn is_there(root: &Path) -> bool {
    child::is_installed("nginx")
        || child::output_of(&mut child::command(root, program(root), &["-v"])).is_ok()
}

fn program(root: &Path) -> PathBuf {
    root.join(TOOLS).join("usr/sbin/nginx")
}

fn unpack(root: &Path, package: &str) -> Result<()> {
    let tools = root.join(TOOLS);
    let download = tools.join("download");
    // Half a package of a run that was ended would be in the way for ever.
    let _ = fs::remove_dir_all(&download);
    fs::create_dir_all(&download).with_context(|| format!("cannot make {}", tools.display()))?;
    // As root it would become another user, who may not write here, and warn of that.
    let arguments = ["-q", "-o", "APT::Sandbox::User=root", "download", package];
    let fetched = fetch(&download, &arguments);
    if fetched.is_err() && child::is_root(root) {
        child::output_of(&mut child::command(root, "apt-get", &["-q", "update"]))?;
        fetch(&download, &arguments)?;
    } else {
        fetched?;
    }
    for entry in fs::read_dir(&download)? {
        let file = entry?.path();
        let words = [file.as_os_str(), tools.as_os_str()];
        child::output_of(child::command(root, "dpkg-deb", &["-x"]).args(words))?;
    }
    fs::remove_dir_all(&download).with_context(|| format!("cannot remove {}", download.display()))
}

fn fetch(directory: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    child::output_of(&mut child::command(directory, "apt-get", arguments))
}
