//! Rule that `cargo install haul-cli` can work: published crates are whole without the repository.
//!
//! Each says what a registry asks for, holds its licences and all that it takes in, and needs no
//! crate that is not published.

use serde_json::Value;

use super::project::is_ours;
use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "packages",
    promise: "published crates have metadata and licences, and are whole without the repository",
    offences,
};

/// Fields of `cargo metadata` that a registry, or whoever looks there, asks for.
const FIELDS: [&str; 6] =
    ["description", "license", "readme", "rust_version", "keywords", "categories"];

/// Files of a crate's own directory.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Paths of its crate that a package holds, as in `include` of the workspace's manifest.
const INCLUDED: [&str; 3] = ["src/", "proto/", "SPEC.md"];

/// Calls that take in another file.
const INCLUDING: [&str; 3] = ["include!(", "include_str!(", "include_bytes!("];

fn offences(project: &Project) -> Vec<Offence> {
    let packages = match project.packages() {
        Ok(packages) => packages,
        Err(why) => return vec![Offence::in_file("Cargo.toml", why)],
    };
    let ours: Vec<&Value> = packages.iter().filter(|package| is_ours(package)).collect();
    let published = ours.iter().filter(|package| is_published(package));
    let mut offences: Vec<Offence> =
        published.flat_map(|package| offences_of(project, package, &ours)).collect();
    offences.extend(outside(project));
    offences
}

/// Whether a package may go to a registry: `publish` is null then, and a list of no registry else.
pub fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

fn offences_of(project: &Project, package: &Value, ours: &[&Value]) -> Vec<Offence> {
    let place = format!("package {}", text(package, "name"));
    let mut messages: Vec<String> = Vec::new();
    for field in FIELDS {
        let is_said = match &package[field] {
            Value::String(said) => !said.is_empty(),
            Value::Array(said) => !said.is_empty(),
            _ => false,
        };
        if !is_said {
            messages.push(format!("says no `{field}`, which a registry's page shows"));
        }
    }
    let directory = directory_of(package);
    for licence in LICENCES {
        let path = format!("{directory}/{licence}");
        if !project.files.iter().any(|file| file.path == path) {
            messages.push(format!("holds no {licence}; ln -s ../../{licence} there"));
        }
    }
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    for dependency in dependencies {
        let named = |one: &&&Value| one["name"] == dependency["name"];
        if let Some(inner) = ours.iter().find(named) {
            messages.extend(offence_of_edge(dependency, inner));
        }
    }
    messages.into_iter().map(|message| Offence::in_file(&place, message)).collect()
}

/// Offence of a dependency on `inner`, a crate of ours.
fn offence_of_edge(dependency: &Value, inner: &Value) -> Option<String> {
    let name = text(inner, "name");
    let asked = text(dependency, "req");
    let has_version = asked != "*";
    if !is_published(inner) {
        // Cargo leaves a dev-dependency that has a path alone out of the package.
        let is_for_tests = dependency["kind"] == "dev" && !has_version;
        return (!is_for_tests).then(|| format!("needs {name}, which is not published"));
    }
    let own = format!("^{}", text(inner, "version"));
    (asked != own).then(|| format!("asks {name} for version `{asked}`; it needs `{own}`"))
}

/// Files of a package that take in what the package does not hold.
fn outside(project: &Project) -> Vec<Offence> {
    let mut offences = Vec::new();
    for (file, source, _) in project.rust_files() {
        let Some((krate, inner)) = crate_and_path(&file.path) else { continue };
        if !inner.starts_with("src/") {
            continue;
        }
        for (at, line) in source.lines().enumerate() {
            for target in included(line) {
                let place = super::links::resolve(inner, target);
                let is_held = place.is_some_and(|place| {
                    INCLUDED.iter().any(|held| place == *held || place.starts_with(held))
                });
                if !is_held {
                    let message = format!("takes in `{target}`, which is not in {krate}'s package");
                    offences.push(Offence::at_line(&file.path, at + 1, message));
                }
            }
        }
    }
    offences
}

/// Paths that a line takes in by a macro.
fn included(line: &str) -> impl Iterator<Item = &str> {
    let calls = INCLUDING.iter().flat_map(|call| line.split(call).skip(1));
    calls.filter_map(|rest| rest.strip_prefix('"')?.split('"').next())
}

fn crate_and_path(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("crates/")?.split_once('/')
}

/// The directory of a package, as `crates/NAME`.
fn directory_of(package: &Value) -> String {
    let manifest = text(package, "manifest_path").strip_suffix("/Cargo.toml").unwrap_or_default();
    format!("crates/{}", manifest.rsplit('/').next().unwrap_or_default())
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const FILES: [(&str, &str); 4] = [
        ("LICENSE-MIT", "MIT"),
        ("LICENSE-APACHE", "Apache"),
        ("crates/sys/LICENSE-MIT", "MIT"),
        ("crates/sys/LICENSE-APACHE", "Apache"),
    ];

    fn whole() -> Value {
        json!({
            "name": "haul-sys", "version": "0.1.0", "source": null, "publish": null,
            "manifest_path": "/w/crates/sys/Cargo.toml", "description": "d", "license": "MIT",
            "readme": "README.md", "rust_version": "1.90", "keywords": ["k"],
            "categories": ["c"], "dependencies": []
        })
    }

    fn messages(package: Value) -> Vec<String> {
        let of_tests = json!({"name": "haul-testkit", "version": "0.1.0", "source": null,
            "publish": [], "dependencies": []});
        let host = json!({"name": "haul-host", "version": "0.2.0", "source": null,
            "publish": [], "dependencies": []});
        let mut project = Project::of(&FILES);
        project.metadata = Ok(json!({"packages": [package, of_tests, host]}));
        offences(&project).into_iter().map(|offence| offence.message).collect()
    }

    fn with(dependency: Value) -> Value {
        let mut package = whole();
        package["dependencies"] = json!([dependency]);
        package
    }

    #[test]
    fn a_whole_package_is_in_order_with_tools_for_its_tests() {
        assert_eq!(messages(whole()), [""; 0]);
        let tools = json!({"name": "haul-testkit", "kind": "dev", "req": "*"});
        assert_eq!(messages(with(tools)), [""; 0]);
    }

    #[test]
    fn a_missing_field_and_a_missing_licence_are_offences() {
        let mut package = whole();
        package["description"] = Value::Null;
        package["keywords"] = json!([]);
        assert_eq!(messages(package).len(), 2);
        let mut elsewhere = whole();
        elsewhere["manifest_path"] = json!("/w/crates/other/Cargo.toml");
        assert_eq!(messages(elsewhere).len(), 2);
    }

    #[test]
    fn a_dependency_that_no_registry_has_is_an_offence() {
        let unpublished = json!({"name": "haul-host", "kind": null, "req": "^0.2.0"});
        assert_eq!(messages(with(unpublished)), ["needs haul-host, which is not published"]);
        let tools = json!({"name": "haul-testkit", "kind": "dev", "req": "^0.1.0"});
        assert_eq!(messages(with(tools)).len(), 1);
    }

    #[test]
    fn a_path_without_the_version_is_an_offence() {
        let inner = whole();
        for (asked, count) in [("*", 1), ("^0.0.9", 1), ("^0.1.0", 0)] {
            let edge = json!({"kind": null, "req": asked});
            assert_eq!(offence_of_edge(&edge, &inner).iter().count(), count, "{asked}");
        }
    }

    #[test]
    fn a_file_of_another_crate_cannot_be_taken_in() {
        let taking = |path: &str, target: &str| {
            let text = format!("const X: &str = include_str!(\"{target}\");\n");
            outside(&Project::of(&[(path, text.as_str())])).len()
        };
        assert_eq!(taking("crates/media/src/pages.rs", "dashboard/a.css"), 0);
        assert_eq!(taking("crates/protocol/src/a/b.rs", "../../proto/haul.proto"), 0);
        assert_eq!(taking("crates/media/src/pages.rs", "../../sys/src/lib.rs"), 1);
        assert_eq!(taking("crates/media/src/pages.rs", "../../../README.md"), 1);
        assert_eq!(taking("crates/media/src/pages.rs", "../tests/x.rs"), 1);
        assert_eq!(taking("crates/media/tests/x.rs", "../../sys/src/lib.rs"), 0);
    }
}
