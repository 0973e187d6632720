//! Rule that every dependency may be shipped in a program under MIT or Apache-2.0.
//!
//! Looked at is what each dependency states about itself, for all dependencies on the platforms
//! haul is built for, those of builds and tests included. The texts of the licences are not read.

use serde_json::Value;

use super::licence_expression::is_satisfied;
use super::project::is_ours;
use super::{Offence, Project, Rule};

pub const RULE: Rule = Rule {
    name: "licences",
    promise: "every dependency may be shipped under MIT OR Apache-2.0",
    offences,
};

const OUR_LICENCE: &str = "MIT OR Apache-2.0";

/// Licences that ask for no more than a notice. Names are those of SPDX.
const ALLOWED: [&str; 16] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "OpenSSL",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

fn offences(project: &Project) -> Vec<Offence> {
    let packages = match project.packages() {
        Ok(packages) => packages,
        Err(why) => return vec![Offence::in_file("Cargo.toml", why)],
    };
    packages.iter().filter_map(offence_of).collect()
}

fn offence_of(package: &Value) -> Option<Offence> {
    let name = package["name"].as_str().unwrap_or_default();
    let version = package["version"].as_str().unwrap_or_default();
    let place = format!("package {name} {version}");
    let Some(expression) = package["license"].as_str() else {
        return Some(Offence::in_file(&place, "states no licence"));
    };
    if is_ours(package) {
        let message = format!("is ours, so its licence is {OUR_LICENCE}, not {expression}");
        return (expression != OUR_LICENCE).then(|| Offence::in_file(&place, message));
    }
    match is_satisfied(expression, &|licence| ALLOWED.contains(&licence)) {
        Ok(true) => None,
        Ok(false) => {
            let message = format!("its licence `{expression}` is not on the list; replace it");
            Some(Offence::in_file(&place, message))
        }
        Err(why) => Some(Offence::in_file(&place, format!("cannot read its licence: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(package: Value) -> Vec<String> {
        let project = Project::of_packages(json!([package]));
        offences(&project).into_iter().map(|offence| offence.message).collect()
    }

    fn of_licence(licence: Value) -> Vec<String> {
        let source = "registry+https://example.com";
        let package = json!({"name": "a", "version": "1.0.0", "source": source});
        let mut package = package;
        package["license"] = licence;
        messages(package)
    }

    #[test]
    fn a_dependency_under_a_notice_licence_is_in_order() {
        assert_eq!(of_licence(json!("ISC AND (Apache-2.0 OR GPL-3.0-only)")), [""; 0]);
    }

    #[test]
    fn a_dependency_under_another_licence_is_an_offence() {
        assert_eq!(of_licence(json!("GPL-3.0-only")).len(), 1);
        assert_eq!(of_licence(json!("MIT AND MPL-2.0")).len(), 1);
        assert!(of_licence(json!("MIT AND"))[0].starts_with("cannot read"));
        assert_eq!(of_licence(json!(null)), ["states no licence"]);
    }

    #[test]
    fn a_crate_of_ours_has_our_licence() {
        let ours = |licence: &str| {
            messages(json!({"name": "a", "version": "1", "source": null, "license": licence}))
        };
        assert_eq!(ours("MIT OR Apache-2.0"), [""; 0]);
        assert_eq!(ours("MIT").len(), 1);
    }
}
