//! Rules that chose the names of a plan, as its file keeps them.

use crate::{
    name::{Name, exact_path, read_exact_path},
    selection::{Effect, Rule},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A rule that chose names, as the plan keeps it.
#[derive(Serialize, Deserialize)]
struct WrittenRule {
    effect: WrittenEffect,
    /// The pattern.
    #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
    pattern: Name,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenEffect {
    Include,
    Exclude,
}

/// Writes the rules of a plan.
///
/// # Errors
/// If the output cannot be written.
#[expect(clippy::ref_option, reason = "serde asks for this form")]
pub fn serialize<S: Serializer>(
    rules: &Option<Vec<Rule>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let written = rules.iter().flatten().map(|rule| WrittenRule {
        effect: match rule.effect {
            Effect::Include => WrittenEffect::Include,
            Effect::Exclude => WrittenEffect::Exclude,
        },
        pattern: Name(rule.pattern.clone()),
    });
    serializer.collect_seq(written)
}

/// Reads the rules of a plan that tells them.
///
/// # Errors
/// If it is no list of rules.
pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Rule>>, D::Error> {
    let written = Vec::<WrittenRule>::deserialize(deserializer)?;
    let rule = |WrittenRule { effect, pattern }| Rule {
        effect: match effect {
            WrittenEffect::Include => Effect::Include,
            WrittenEffect::Exclude => Effect::Exclude,
        },
        pattern: pattern.0,
    };
    Ok(Some(written.into_iter().map(rule).collect()))
}
