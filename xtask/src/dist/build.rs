//! Program of a release: built against an old glibc by zig's linker, and stripped.
//!
//! zig holds glibc's symbols of every version, so that a program built here asks for none newer
//! than [`GLIBC`]. It comes as a package of PyPI and is put below `target/tools`, not installed.
//!
//! Debug information is four fifths of the binary. In a file of its own it is there for whoever
//! reads a core dump or a profile (`perf`, `gdb` find it by the link in the binary), and nobody
//! else downloads it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Architecture, Release, target_directory};
use crate::child;

/// The package of the program.
pub const PACKAGE: &str = "haul-cli";
pub const PROGRAM: &str = "haul";
const DEBUG: &str = "haul.debug";

/// The oldest glibc that a program runs on: that of Rust's own targets (doc.rust-lang.org, platform
/// support).
pub const GLIBC: (u32, u32) = (2, 17);

/// The place of zig below the project.
const TOOLS: &str = "target/tools/zig";
const PACKAGES: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

/// Files that a build left.
pub struct Built {
    pub program: PathBuf,
    pub debug: PathBuf,
}

/// Builds the program for a release and parts it.
pub fn program(root: &Path, release: &Release) -> Result<Built> {
    needs_target(root, release.architecture)?;
    let tools = provide_zig(root)?;
    let target = format!("{}.{}.{}", release.architecture.target(), GLIBC.0, GLIBC.1);
    let words =
        ["zigbuild", "--profile", "dist", "--locked", "--package", PACKAGE, "--target", &target];
    let mut command = child::command(root, tools.join("cargo-zigbuild"), &words);
    command.env("PATH", path_with(&tools)?).env("RUSTFLAGS", remaps(root)?);
    child::run(&mut command)?;
    let directory = target_directory(root).join(release.architecture.target()).join("dist");
    let parted = directory.join("parted");
    fs::create_dir_all(&parted)?;
    fs::copy(directory.join(PROGRAM), parted.join(PROGRAM))?;
    part(&parted, &objcopy(root, release.architecture)?)?;
    Ok(Built { program: parted.join(PROGRAM), debug: parted.join(DEBUG) })
}

/// Errors where rustc has no library for the architecture.
fn needs_target(root: &Path, architecture: Architecture) -> Result<()> {
    let target = architecture.target();
    let words = ["--print", "target-libdir", "--target", target];
    let printed = child::output_of(&mut child::command(root, "rustc", &words))?;
    let library = PathBuf::from(String::from_utf8_lossy(&printed).trim());
    if !library.is_dir() {
        bail!(
            "not built: needs Rust's library for {target}, which this toolchain lacks.\n\
             Install it: rustup target add {target}. Without it the archive for {} is untried.",
            architecture.name()
        );
    }
    Ok(())
}

/// Puts zig and cargo-zigbuild below `target/tools`, where they are missing; gives their directory.
fn provide_zig(root: &Path) -> Result<PathBuf> {
    let place = root.join(TOOLS);
    let programs = place.join("bin");
    let wanted = PACKAGES.join("\n");
    let record = place.join("packages");
    if fs::read_to_string(&record).is_ok_and(|found| found == wanted) {
        return Ok(programs);
    }
    println!("dist: putting zig and cargo-zigbuild below {TOOLS}");
    let words = ["-m", "venv", "--clear", TOOLS];
    child::run(&mut child::command(root, "python3", &words))
        .context("zig comes from PyPI: needs python3 with venv (apt-get install python3-venv)")?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    child::run(child::command(root, programs.join("python3"), &pip).args(PACKAGES))?;
    fs::write(record, wanted)?;
    Ok(programs)
}

fn path_with(tools: &Path) -> Result<OsString> {
    let path = child::search_path();
    Ok(std::env::join_paths([tools.to_path_buf()].into_iter().chain(path))?)
}

/// Flags that keep the paths of the building machine out of the program.
fn remaps(root: &Path) -> Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::home_dir()?;
        Some(home.join(".cargo"))
    });
    let home = home.context("no home directory, so no place of cargo's registry")?;
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    Ok(format!("{} {}", remap(&home, "cargo"), remap(root, "haul")))
}

/// The program that takes an object file of the architecture apart.
fn objcopy(root: &Path, architecture: Architecture) -> Result<String> {
    if architecture == Architecture::own()? {
        return Ok("objcopy".into());
    }
    let name = format!("{}-linux-gnu-objcopy", architecture.name());
    let package = format!("binutils-{}-linux-gnu", architecture.name());
    child::output_of(&mut child::command(root, &name, &["--version"]))
        .with_context(|| format!("needs {name} (apt-get install {package})"))?;
    Ok(name)
}

/// Takes the debug information out of the program in `directory`, into a file beside it that the
/// program names.
fn part(directory: &Path, objcopy: &str) -> Result<()> {
    let stripped = format!("{PROGRAM}.stripped");
    let link = format!("--add-gnu-debuglink={DEBUG}");
    child::run(&mut child::command(directory, objcopy, &["--only-keep-debug", PROGRAM, DEBUG]))
        .context("needs objcopy, which comes with the C compiler (apt-get install binutils)")?;
    let words = ["--strip-all", &link, PROGRAM, &stripped];
    child::run(&mut child::command(directory, objcopy, &words))?;
    fs::rename(directory.join(&stripped), directory.join(PROGRAM))
        .context("cannot put the stripped program in its place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parted_program_still_runs_and_names_its_debug_information() {
        let name = format!("haul-xtask-dist-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let program = directory.join(PROGRAM);
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let whole_bytes = program.metadata().unwrap().len();
        part(&directory, "objcopy").unwrap();
        assert!(program.metadata().unwrap().len() < whole_bytes);
        assert!(directory.join(DEBUG).exists());
        let bytes = fs::read(&program).unwrap();
        assert!(bytes.windows(DEBUG.len()).any(|text| text == DEBUG.as_bytes()));
        child::output_of(&mut child::command(&directory, &program, &["--list"])).unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
