//! Edges between our crates that are allowed: the shape of the project, held by `cargo metadata`.

use serde_json::Value;

use super::project::is_ours;
use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "crate edges",
    promise: "our crates depend on each other only as ARCHITECTURE.md draws it",
    offences,
};

/// A crate of ours, and those of ours that it may depend on.
struct Allowed {
    package: &'static str,
    dependencies: &'static [&'static str],
}

const ALLOWED: [Allowed; 17] = [
    Allowed {
        package: "haul-cli",
        dependencies: &[
            "haul-transfer",
            "haul-datapath",
            "haul-protocol",
            "haul-bench",
            "haul-emulator",
            "haul-host",
            "haul-media",
            "haul-probe",
            "haul-report",
            "haul-scratch",
            "haul-sys",
        ],
    },
    Allowed {
        package: "haul-bench",
        dependencies: &[
            "haul-transfer",
            "haul-datapath",
            "haul-emulator",
            "haul-fabric",
            "haul-host",
            "haul-media",
            "haul-report",
            "haul-scratch",
            "haul-sys",
        ],
    },
    Allowed { package: "haul-docs", dependencies: &["haul-cli"] },
    Allowed { package: "haul-media", dependencies: &["haul-host", "haul-sys"] },
    Allowed {
        package: "haul-probe",
        dependencies: &["haul-transfer", "haul-datapath", "haul-host", "haul-report", "haul-sys"],
    },
    Allowed {
        package: "haul-transfer",
        dependencies: &[
            "haul-datapath",
            "haul-fabric",
            "haul-protocol",
            "haul-host",
            "haul-report",
            "haul-sys",
        ],
    },
    Allowed { package: "haul-datapath", dependencies: &["haul-fabric", "haul-sys", "haul-host"] },
    Allowed { package: "haul-protocol", dependencies: &[] },
    Allowed { package: "haul-report", dependencies: &[] },
    Allowed { package: "haul-scratch", dependencies: &["haul-sys"] },
    Allowed { package: "haul-sys", dependencies: &[] },
    Allowed { package: "haul-fabric", dependencies: &["haul-fabric-sys"] },
    Allowed { package: "haul-fabric-sys", dependencies: &["haul-sys", "haul-testkit"] },
    Allowed { package: "haul-host", dependencies: &[] },
    Allowed { package: "haul-emulator", dependencies: &["haul-sys"] },
    Allowed { package: "haul-testkit", dependencies: &["haul-sys", "haul-host", "haul-emulator"] },
    Allowed { package: "xtask", dependencies: &[] },
];

/// The crate of tools for tests. Every crate but `xtask` may have it as a dev-dependency.
const TESTKIT: &str = "haul-testkit";

fn offences(project: &Project) -> Vec<Offence> {
    let packages = match project.packages() {
        Ok(packages) => packages,
        Err(why) => return vec![Offence::in_file("Cargo.toml", why)],
    };
    let ours: Vec<&Value> = packages.iter().filter(|package| is_ours(package)).collect();
    let names: Vec<&str> = ours.iter().map(|package| name_of(package)).collect();
    ours.iter().flat_map(|package| offences_of(package, &names)).collect()
}

fn offences_of(package: &Value, ours: &[&str]) -> Vec<Offence> {
    let name = name_of(package);
    let place = format!("package {name}");
    let Some(allowed) = ALLOWED.iter().find(|allowed| allowed.package == name) else {
        let message = "no rule says what it may depend on; add it to xtask/src/tidy/crate_edges.rs";
        return vec![Offence::in_file(&place, message)];
    };
    let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    let inner = dependencies.iter().filter(|dependency| ours.contains(&name_of(dependency)));
    let forbidden = inner.filter(|dependency| !may_have(allowed, dependency));
    let message = |dependency: &Value| {
        let kind = dependency["kind"].as_str().unwrap_or("normal");
        format!("has {} as a {kind} dependency, which it may not", name_of(dependency))
    };
    forbidden.map(|dependency| Offence::in_file(&place, message(dependency))).collect()
}

fn may_have(allowed: &Allowed, dependency: &Value) -> bool {
    let name = name_of(dependency);
    if name == TESTKIT {
        return dependency["kind"].as_str() == Some("dev") && allowed.package != "xtask";
    }
    allowed.dependencies.contains(&name)
}

fn name_of(value: &Value) -> &str {
    value["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(name: &str, dependencies: Value) -> Vec<String> {
        let mut packages: Vec<Value> = ALLOWED
            .iter()
            .filter(|allowed| allowed.package != name)
            .map(|allowed| json!({"name": allowed.package, "source": null, "dependencies": []}))
            .collect();
        packages.push(json!({"name": name, "source": null, "dependencies": dependencies}));
        packages.push(json!({"name": "serde", "source": "registry+x", "dependencies": []}));
        let project = Project::of_packages(Value::Array(packages));
        offences(&project).into_iter().map(|offence| offence.to_string()).collect()
    }

    #[test]
    fn the_drawn_edges_are_allowed() {
        let dependencies = json!([
            {"name": "haul-sys", "kind": null},
            {"name": "haul-testkit", "kind": "dev"},
            {"name": "serde", "kind": null},
        ]);
        assert_eq!(messages("haul-datapath", dependencies), [""; 0]);
    }

    #[test]
    fn an_edge_upwards_is_an_offence() {
        let found = messages("haul-protocol", json!([{"name": "haul-sys", "kind": null}]));
        let expected =
            "package haul-protocol: has haul-sys as a normal dependency, which it may not";
        assert_eq!(found, [expected]);
        assert_eq!(messages("haul-host", json!([{"name": "haul-cli", "kind": "dev"}])).len(), 1);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        for kind in [json!(null), json!("build")] {
            let found = messages("haul-transfer", json!([{"name": "haul-testkit", "kind": kind}]));
            assert_eq!(found.len(), 1);
        }
        assert_eq!(messages("xtask", json!([{"name": "haul-testkit", "kind": "dev"}])).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_rule() {
        assert!(messages("haul-extra", json!([]))[0].contains("no rule says"));
    }

    #[test]
    fn metadata_that_cannot_be_read_is_an_offence() {
        assert_eq!(offences(&Project::of(&[])).len(), 1);
    }
}
