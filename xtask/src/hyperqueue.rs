//! HyperQueue, out of its package for Python: tests run the shards of a plan by it.
//!
//! It is in no distribution. The package holds the whole engine, and is put below `target/tools`,
//! where the tests look for it.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::child;

/// The package at PyPI.
const PACKAGE: &str = "hyperqueue==0.27.0";
/// Place of the package below the project, known to the tests, too (engines/hyperqueue.rs).
const PLACE: &str = "target/tools/hyperqueue";

/// Puts the package there where it is missing, or says which tests are skipped without it.
pub fn provide(root: &Path) {
    if fs::read_to_string(root.join(PLACE).join("package")).is_ok_and(|found| found == PACKAGE) {
        return;
    }
    println!("test: putting {PACKAGE} below {PLACE}");
    if let Err(error) = install(root) {
        println!(
            "test: tests of HyperQueue will be skipped: {error:#}. They need python3 with pip \
            (apt-get install python3-pip) and PyPI"
        );
    }
}

fn install(root: &Path) -> Result<()> {
    let place = root.join(PLACE);
    // Half a package of a run that was ended would be in the way for ever.
    let _ = fs::remove_dir_all(&place);
    let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let mut command = child::command(root, "python3", &words);
    command.args(["--root-user-action=ignore", "--target", PLACE, PACKAGE]);
    child::output_of(&mut command)?;
    Ok(fs::write(place.join("package"), PACKAGE)?)
}
