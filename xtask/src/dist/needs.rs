//! Needs of the program of a release: which libraries of the host it loads, and of what age.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::build::GLIBC;
use crate::child;

/// Libraries that every Linux with glibc has; all belong to glibc.
const LIBRARIES: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// Prints what the program needs; an error where a host could lack it.
pub fn check(root: &Path, program: &Path) -> Result<()> {
    let words = ["--wide", "--dynamic", "--version-info"];
    let printed = child::output_of(child::command(root, "readelf", &words).arg(program))
        .context("needs readelf (apt-get install binutils)")?;
    let text = String::from_utf8_lossy(&printed);
    let versions = glibc_versions(&text);
    let newest = versions.last().context("the program names no version of glibc")?;
    let libraries = libraries(&text);
    println!(
        "dist: needs glibc {}.{} or newer, and loads {}",
        newest.0,
        newest.1,
        libraries.iter().copied().collect::<Vec<_>>().join(", ")
    );
    if *newest > GLIBC {
        bail!(
            "the program needs glibc {}.{}; it may need {}.{}",
            newest.0,
            newest.1,
            GLIBC.0,
            GLIBC.1
        );
    }
    match libraries.iter().find(|library| !LIBRARIES.contains(library)) {
        Some(library) => bail!("the program loads {library}, which a host may lack"),
        None => Ok(()),
    }
}

/// Versions of glibc that `readelf --version-info` names, the newest last.
fn glibc_versions(text: &str) -> BTreeSet<(u32, u32)> {
    let words = text.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    let version = |word: &str| {
        let mut numbers = word.trim_end_matches(')').split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    words.filter_map(version).collect()
}

/// Names that `readelf --dynamic` lists as NEEDED.
fn libraries(text: &str) -> BTreeSet<&str> {
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    needed.filter_map(|line| line.split('[').nth(1)?.split(']').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n\
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n\
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 5\n\
  0x0020:   Name: GLIBC_2.17  Flags: none  Version: 4\n\
  0x0030:   Name: GLIBC_2.2.5  Flags: none  Version: 3\n";

    #[test]
    fn the_newest_version_is_found_by_number() {
        assert_eq!(glibc_versions(PRINTED).last(), Some(&(2, 17)));
        assert_eq!(glibc_versions("GLIBC_2.34) GLIBC_PRIVATE").last(), Some(&(2, 34)));
    }

    #[test]
    fn every_library_is_listed() {
        assert_eq!(
            libraries(PRINTED).into_iter().collect::<Vec<_>>(),
            ["libc.so.6", "libgcc_s.so.1"]
        );
    }

    #[test]
    fn a_program_of_this_host_asks_for_a_library_or_is_refused() {
        let own = std::env::current_exe().unwrap();
        let printed = child::output_of(
            child::command(Path::new("/"), "readelf", &["--wide", "--dynamic"]).arg(own),
        );
        assert!(libraries(&String::from_utf8_lossy(&printed.unwrap())).contains("libc.so.6"));
    }
}
