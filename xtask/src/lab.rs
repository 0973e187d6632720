//! `cargo xtask lab NAME`: builds haul and the lab's tools, and runs the trial `lab/NAME`.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{Outcome, child};

/// Trials of tests, which they build themselves: neither haul's release nor the tools take part.
const OF_TESTS: [&str; 3] = ["kernel-tls", "oldest-kernel", "rdma"];

/// Runs a trial of `lab/`; `arguments` go to it. It needs root and Python.
pub fn run(root: &Path, name: &str, arguments: &[&str]) -> Result<Outcome> {
    let script = root.join("lab").join(name);
    let is_trial = name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    if !is_trial || !script.is_file() {
        bail!("there is no trial `{name}`; lab/README.md lists them");
    }
    if !OF_TESTS.contains(&name) {
        build(root)?;
    }
    let status = child::command(root, &script, arguments).status()?;
    Ok(if status.success() { Outcome::InOrder } else { Outcome::NotInOrder })
}

fn build(root: &Path) -> Result<()> {
    child::run(&mut child::cargo(root, &["build", "--release", "--package", "haul-cli"]))?;
    let tools = ["build", "--release", "--package", "haul-testkit", "--examples"];
    child::run(&mut child::cargo(root, &tools))
}
