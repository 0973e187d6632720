//! Bill of materials of a release: every crate in haul, with its licence and digest.
//!
//! The format is CycloneDX 1.5, JSON. It tells what each crate needs, too.
//! It is made of what `cargo metadata` and Cargo.lock say. aws-lc-sys compiles AWS-LC, whose C code
//! is in that crate; glibc is the host's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Release;
use super::build::PACKAGE;

/// Writes the bill beside the archive.
pub fn write(release: &Release, metadata: &Value) -> Result<PathBuf> {
    let path = release.out.join(format!("haul-{}.cdx.json", release.version));
    let lock = metadata["workspace_root"].as_str().context("no workspace root")?;
    let lock = fs::read_to_string(PathBuf::from(lock).join("Cargo.lock"))?;
    let bill = bill(metadata, &digests(&lock), release.time_s)?;
    let text = serde_json::to_string_pretty(&bill)? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The bill of the program's package and of all that it needs when it runs or is built.
fn bill(metadata: &Value, digests: &BTreeMap<String, String>, time_s: u64) -> Result<Value> {
    let needed = needed(metadata)?;
    let packages = list(&metadata["packages"]);
    let mut components = Vec::new();
    let mut own = Value::Null;
    for package in packages.iter().filter(|one| needed.contains_key(text(one, "id"))) {
        let component = component(package, digests);
        if package["name"] == PACKAGE { own = component } else { components.push(component) }
    }
    components.sort_by_key(|one| text(one, "purl").to_owned());
    let purls: BTreeMap<&str, String> =
        packages.iter().map(|package| (text(package, "id"), purl(package))).collect();
    let edges = needed.iter().map(|(id, inner)| {
        let inner: BTreeSet<&String> = inner.iter().filter_map(|id| purls.get(id)).collect();
        json!({"ref": purls.get(id), "dependsOn": inner})
    });
    let edges: Vec<Value> = edges.collect();
    let at = [("haul:time", time_s.to_string())];
    let at = at.map(|(name, value)| json!({"name": name, "value": value}));
    own["type"] = json!("application");
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own, "properties": at},
        "components": components,
        "dependencies": edges,
    }))
}

/// Packages that are compiled for or into the program, with what each needs: those for tests are
/// left out.
fn needed(metadata: &Value) -> Result<BTreeMap<&str, Vec<&str>>> {
    let nodes = list(&metadata["resolve"]["nodes"]);
    let by_id: BTreeMap<&str, &Value> = nodes.iter().map(|node| (text(node, "id"), node)).collect();
    let packages = list(&metadata["packages"]);
    let own = packages.iter().find(|package| package["name"] == PACKAGE);
    let mut waiting = vec![text(own.with_context(|| format!("no package {PACKAGE}"))?, "id")];
    let mut found = BTreeMap::new();
    while let Some(id) = waiting.pop() {
        if found.contains_key(id) {
            continue;
        }
        let node = by_id.get(id).with_context(|| format!("{id} is not resolved"))?;
        let edges = list(&node["deps"]).iter().filter(|edge| !is_for_tests(edge));
        let inner: Vec<&str> = edges.map(|edge| text(edge, "pkg")).collect();
        waiting.extend(&inner);
        found.insert(id, inner);
    }
    Ok(found)
}

fn is_for_tests(edge: &Value) -> bool {
    let kinds = list(&edge["dep_kinds"]);
    kinds.iter().all(|one| one["kind"] == "dev")
}

fn component(package: &Value, digests: &BTreeMap<String, String>) -> Value {
    let key = format!("{} {}", text(package, "name"), text(package, "version"));
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "description": package["description"],
        "purl": purl(package),
    });
    if let Some(licence) = package["license"].as_str() {
        // The old form with `/` is no SPDX expression.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    if let Some(digest) = digests.get(&key) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": digest}]);
    }
    component
}

/// The name that other tools know a crate by (purl specification, type cargo).
fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

/// Digests of crates by `NAME VERSION`, out of the text of a Cargo.lock.
fn digests(lock: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            let line = package.lines().find_map(|line| line.strip_prefix(&start))?;
            Some(line.trim_end_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(digest)) =
            (field("name"), field("version"), field("checksum"))
        {
            found.insert(format!("{name} {version}"), digest);
        }
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_lists_what_is_compiled_in_and_nothing_for_tests() {
        let package = |id: &str, name: &str, licence: &str| {
            let version = "1.0.0";
            json!({"id": id, "name": name, "version": version, "license": licence})
        };
        let edge = |id: &str, kind: Value| json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("h", PACKAGE, "MIT OR Apache-2.0"),
                package("l", "libc", "MIT/Apache-2.0"),
                package("t", "tempfile", "MIT"),
                package("c", "cc", "MIT"),
            ],
            "resolve": {"nodes": [
                {"id": "h", "deps": [edge("l", Value::Null), edge("t", json!("dev"))]},
                {"id": "l", "deps": [edge("c", json!("build"))]},
                {"id": "c", "deps": []},
            ]},
        });
        let lock = "[[package]]\nname = \"libc\"\nversion = \"1.0.0\"\nchecksum = \"ab12\"\n";
        let bill = bill(&metadata, &digests(lock), 7).unwrap();
        assert_eq!(bill["metadata"]["component"]["name"], PACKAGE);
        let names: Vec<&str> =
            list(&bill["components"]).iter().map(|one| text(one, "name")).collect();
        assert_eq!(names, ["cc", "libc"]);
        let libc = &bill["components"][1];
        assert_eq!(libc["hashes"][0]["content"], "ab12");
        assert_eq!(libc["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(list(&bill["dependencies"]).len(), 3);
    }
}
