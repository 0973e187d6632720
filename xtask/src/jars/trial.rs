//! Trial of the JVM client's jars: each is the module that its users write down, haul.jar starts.

use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result};

use super::{fits, version_in};
use crate::child;
use crate::maven::{self, JDKS, Jdks};

/// Jars with the names of their modules. What a user's module-info requires stays the same when
/// the file gets another name.
const MODULES: [(&str, &str); 5] = [
    ("clients/java/client/target/haul-client-*.jar", "io.github.haul.client"),
    ("clients/java/command/target/haul.jar", "io.github.haul.command"),
    ("clients/java/command/target/haul-command-*.jar", "io.github.haul.command"),
    ("clients/java/hadoop/target/haul-hadoop.jar", "io.github.haul.hadoop"),
    ("clients/java/hadoop/target/haul-hadoop-*.jar", "io.github.haul.hadoop"),
];
/// The program, as one jar.
const PROGRAM: &str = MODULES[1].0;
/// A file that no host has, and a server that nobody asks, as the file comes first.
const NO_FILE: &str = "/nonexistent/haul-trial";
const NO_SERVER: &str = "haul://aeaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@127.0.0.1:1/";
/// The exit status of a program that could start nothing.
const NOTHING_STARTED: i32 = 2;
/// The time after which a program is ended; it takes a second.
const TIME_MAX: &str = "1m";

/// Tries the jars of these names below a directory. Returns a sentence for each fault.
pub fn faults(directory: &Path, names: &[&str]) -> Result<Vec<String>> {
    let jdks = Jdks::below(Path::new(JDKS));
    let jar = jdks.program("jar");
    let mut sentences = Vec::new();
    for (pattern, module) in MODULES {
        let Some(name) = names.iter().find(|name| fits(pattern, name)) else {
            sentences.push(format!("no build made {pattern}"));
            continue;
        };
        let mut describe = maven::bounded(directory, TIME_MAX);
        let said =
            child::output_of(describe.arg(&jar).args(["--describe-module", "--file", name]))?;
        let said = String::from_utf8_lossy(&said);
        sentences.extend(fault_of_module(name, module, &said));
    }
    if sentences.is_empty() {
        let version = names.iter().find_map(|name| version_in(MODULES[0].0, name));
        sentences.extend(faults_of_program(directory, version.unwrap_or_default(), &jdks)?);
    }
    Ok(sentences)
}

/// Starts the program as its users do: it says its version, and what it lacks.
fn faults_of_program(directory: &Path, version: &str, jdks: &Jdks) -> Result<Vec<String>> {
    let run = |words: &[&str]| {
        let mut java = maven::bounded(directory, TIME_MAX);
        java.arg(jdks.program("java")).args(["-jar", PROGRAM]).args(words);
        java.output().context("cannot start java")
    };
    let asked = run(&["--version"])?;
    let refused = run(&["push", NO_FILE, NO_SERVER])?;
    let faults = [fault_of_version(&asked, version), fault_of_refusal(&refused)];
    Ok(faults.into_iter().flatten().collect())
}

fn fault_of_version(asked: &Output, version: &str) -> Option<String> {
    let wanted = format!("haul-java {version}\n");
    let is_right = asked.status.success() && asked.stdout == wanted.as_bytes();
    (!is_right).then(|| format!("{PROGRAM} --version: no {}: {}", wanted.trim(), told(asked)))
}

fn fault_of_refusal(refused: &Output) -> Option<String> {
    let is_right = refused.status.code() == Some(NOTHING_STARTED)
        && String::from_utf8_lossy(&refused.stderr).contains(NO_FILE);
    (!is_right).then(|| {
        let wanted = format!("does not name the file and end with {NOTHING_STARTED}");
        format!("{PROGRAM} push {NO_FILE} {wanted}: {}", told(refused))
    })
}

fn told(output: &Output) -> String {
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}: {said}{errors}", output.status).trim_end().to_owned()
}

/// A sentence where `jar --describe-module` does not say that a jar is a module.
fn fault_of_module(name: &str, module: &str, said: &str) -> Option<String> {
    // One line names the module: `NAME[@VERSION] jar:file:...` or `NAME[@VERSION] automatic`.
    let line = said.lines().find(|line| line.contains(" jar:") || line.ends_with(" automatic"));
    let found = line.and_then(|line| line.split([' ', '@']).next()).unwrap_or("none");
    (found != module).then(|| format!("{name} is the module {found}, not {module}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_known_by_its_descriptor_or_its_manifest() {
        let fault = |said: &str| fault_of_module("haul.jar", "io.github.haul", said);
        let jar = "jar:file:///a/haul.jar!/module-info.class";
        let descriptor = |name| format!("{name} {jar}\nexports io.github.haul\n");
        assert_eq!(fault(&descriptor("io.github.haul")), None);
        assert_eq!(fault(&descriptor("io.github.haul@0.1.0")), None);
        let derived = "No module descriptor found. Derived automatic module.\n\n";
        let manifest = |name| format!("{derived}{name} automatic\nrequires java.base mandated\n");
        assert_eq!(fault(&manifest("io.github.haul")), None);
        let other = "haul.jar is the module haul, not io.github.haul";
        assert_eq!(fault(&manifest("haul")).unwrap(), other);
        assert_eq!(fault(&descriptor("haul")).unwrap(), other);
        assert!(fault("").unwrap().contains("the module none"));
    }

    #[test]
    fn a_jar_that_is_missing_is_named() {
        let sentences = faults(Path::new("/"), &[]).unwrap();
        assert_eq!(sentences.len(), MODULES.len());
        assert!(sentences[1].ends_with("haul.jar"), "{sentences:?}");
    }
}
