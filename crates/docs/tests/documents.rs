//! Tests of the documents that are made from the real command line.

#![allow(clippy::unwrap_used)]

use std::{path::Path, process::Command};

fn docs(home: &Path, directory: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul-docs"));
    command.arg(directory).current_dir(home).env_clear();
    command.env("HOME", home).env("HAUL_STATE", home.join("state"));
    command
}

#[test]
fn documents_are_written_for_every_command_and_twice_the_same() {
    let fresh = tempfile::tempdir().unwrap();
    assert!(docs(fresh.path(), "one").status().unwrap().success());
    let mut command = docs(fresh.path(), "two");
    assert!(command.env("COLUMNS", "40").env("HAUL_TOKEN", "x").status().unwrap().success());
    let pages = [
        "", "-demo", "-serve", "-push", "-pull", "-copy", "-plan", "-report", "-ls", "-verify",
        "-media", "-token", "-probe", "-tune", "-bench",
    ];
    let pages = pages.map(|page| format!("haul{page}"));
    let mut names: Vec<String> = pages.iter().map(|page| format!("man/{page}.1")).collect();
    names.extend(["new", "list", "revoke"].map(|part| format!("man/haul-token-{part}.1")));
    names.extend(
        ["engines", "files", "chooser", "tuning", "media", "fabric", "protection", "studies"]
            .map(|part| format!("man/haul-bench-{part}.1")),
    );
    names.push("man/haul-media-capacity.1".to_owned());
    names.extend(["disk", "net", "path"].map(|part| format!("man/haul-probe-{part}.1")));
    names.extend(["haul.bash", "_haul", "haul.fish"].map(|file| format!("completions/{file}")));
    for name in &names {
        let text = std::fs::read_to_string(fresh.path().join("one").join(name)).unwrap();
        let again = std::fs::read_to_string(fresh.path().join("two").join(name)).unwrap();
        assert!(text == again, "{name} differs from one run to the next");
        assert!(!text.contains("generate-docs") && !text.contains("bench-side"), "{name}");
        let home = fresh.path().to_str().unwrap();
        assert!(!text.contains(home), "{name} holds a path of this machine");
    }
    let written =
        |part: &str| std::fs::read_dir(fresh.path().join("one").join(part)).unwrap().count();
    assert_eq!(written("man") + written("completions"), names.len());
    let page = std::fs::read_to_string(fresh.path().join("one/man/haul-push.1")).unwrap();
    for part in [".SH EXAMPLES", ".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", "bwlimit"] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
}
