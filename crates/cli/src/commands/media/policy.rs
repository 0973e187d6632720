//! The policy for streams, out of the command line, the configuration file and what was measured.

use crate::args::{
    media::{AUTO, LowMedia, rate_choice},
    usage_problem,
};
use haul_media::{
    admission::{MARGIN, Priority, Terms},
    pace::{Pacing, Rate},
    policy::{Policy, RateChoice, Rule},
    settings_file,
};
use haul_transfer::Problem;
use serde::Deserialize;
use std::path::Path;

use super::capacity;

/// Most bytes of a configuration file: several thousand rules.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The file of --config as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LowConfig {
    rate: Option<String>,
    max_streams: Option<u64>,
    network: Option<String>,
    /// Margin in percent.
    margin: Option<f64>,
    /// Reserve in percent.
    reserve: Option<f64>,
    client_rates: Option<bool>,
    #[serde(default)]
    elsewhere: Vec<String>,
    #[serde(default)]
    paths: Vec<LowRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LowRule {
    #[serde(rename = "match")]
    pattern: String,
    rate: Option<String>,
    priority: Option<String>,
}

/// Reads the policy; what the command line says comes before the file.
///
/// # Errors
/// If the file cannot be read, or says something that makes no sense.
pub(super) fn read(low: &LowMedia, root: &Path) -> Result<Policy, Problem> {
    let config = match &low.config {
        None => LowConfig::default(),
        Some(path) => {
            let what = format!("cannot read the configuration {}", path.display());
            let problem = |found: &str| usage_problem(&what, "", found, "see man haul-media");
            let bytes = settings_file::read(path, CONFIG_BYTES_MAX)
                .map_err(|error| problem(&error.to_string()))?;
            toml::from_slice(&bytes).map_err(|error| problem(&toml_words(&bytes, &error)))?
        }
    };
    let wrong = |key: &str, needs: &str, found: &str| {
        usage_problem(&format!("cannot take {key} of the configuration"), needs, found, "")
    };
    let choice = |text: &str| rate_choice(text).map_err(|needs| wrong("rate", &needs, text));
    let rate = match (low.rate, &config.rate) {
        (Some(rate), _) => rate,
        (None, Some(text)) => choice(text)?,
        (None, None) => AUTO,
    };
    let network = match (low.network, &config.network) {
        (Some(rate), _) => Some(rate),
        (None, None) => None,
        (None, Some(text)) => Some(
            Rate::parse(text)
                .ok_or_else(|| wrong("network", "bits a second, such as 10G", text))?,
        ),
    };
    let mut measured = capacity::stored(low.method, root, &low.state)?.unwrap_or_default();
    if let Some(network) = network {
        measured.network_bits_per_s = Some(network.bits_per_s as f64);
    }
    let share = |percent: f64, key: &str| {
        let fits = (0.0..=90.0).contains(&percent);
        fits.then_some(percent / 100.0)
            .ok_or_else(|| wrong(key, "0 to 90 percent", &percent.to_string()))
    };
    let margin = low.margin.map(f64::from).or(config.margin);
    let terms = Terms {
        capacity: measured,
        margin: margin.map_or(Ok(MARGIN), |percent| share(percent, "margin"))?,
        reserve: share(config.reserve.unwrap_or(0.0), "reserve")?,
        streams_max: low.max_streams.or(config.max_streams),
        ..Terms::default()
    };
    let elsewhere = if low.elsewhere.is_empty() { &config.elsewhere } else { &low.elsewhere };
    Ok(Policy {
        rate,
        rules: config.paths.iter().map(rule).collect::<Result<_, _>>()?,
        clients_choose: config.client_rates.unwrap_or(true),
        terms,
        elsewhere: elsewhere.iter().map(|url| server(url)).collect::<Result<_, _>>()?,
    })
}

/// An error of the configuration in one line, as it may stand in a log.
fn toml_words(bytes: &[u8], error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', " ");
    let Some(span) = error.span() else { return message };
    let before = &bytes[..span.start.min(bytes.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    format!("in line {line}: {message}")
}

fn rule(low: &LowRule) -> Result<Rule, Problem> {
    let wrong = |key: &str, needs: &str, found: &str| {
        let what = format!("cannot take {key} of {:?} of the configuration", low.pattern);
        usage_problem(&what, needs, found, "")
    };
    let rate = low
        .rate
        .as_ref()
        .map(|text| rate_choice(text).map_err(|needs| wrong("rate", &needs, text)));
    let priority = low.priority.as_ref().map(|name| {
        Priority::named(name).ok_or_else(|| wrong("priority", "low, normal or high", name))
    });
    Rule::new(&low.pattern, rate.transpose()?, priority.transpose()?)
        .map_err(|error| wrong("match", "a pattern such as /films/**", &error.to_string()))
}

/// The URL of another server, which a path is put behind.
fn server(url: &str) -> Result<String, Problem> {
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match host {
        Some(host)
            if !host.trim_matches('/').is_empty() && is_plain && !url.contains(['?', '#']) =>
        {
            Ok(url.trim_end_matches('/').to_owned())
        }
        _ => {
            let needs = "the URL of a server with the same files, such as http://b.example.org";
            Err(usage_problem("cannot take --elsewhere", needs, url, ""))
        }
    }
}

/// The words of the start message about the policy. `others`: methods by which this root was
/// measured, where it was not by its own.
pub(super) fn words(policy: &Policy, pacing: Pacing, others: &[&str]) -> String {
    let measured = match others {
        [] => String::new(),
        others => format!("ROOT was measured for --method {} alone. ", others.join(" and ")),
    };
    let paced = match policy.rate {
        RateChoice::Unpaced => "Streams go as fast as they are taken".to_owned(),
        RateChoice::Fixed(rate) => {
            format!("Streams go at {}", capacity::rate_words(rate))
        }
        RateChoice::Container { .. } => {
            "Films go at the rate of their containers and a quarter more".to_owned()
        }
    };
    let rate = match policy.rate {
        RateChoice::Fixed(rate) => rate,
        _ => Rate { bits_per_s: 4_000_000 },
    };
    let Terms { capacity, margin, reserve, streams_max, .. } = &policy.terms;
    let found = capacity.streams(rate, pacing, margin + reserve);
    let of_max = |max: &u64| (*max as f64 * (1.0 - reserve)) as u64;
    let door = match (found, streams_max.as_ref().map(of_max)) {
        (Some(_), _) | (None, Some(_)) if policy.rate == RateChoice::Unpaced => {
            "They take no place, so all are admitted but those whose path or link names a rate."
                .to_owned()
        }
        (Some((streams, resource)), max) => {
            let streams = max.map_or(streams, |max| max.min(streams));
            format!(
                "About {streams} of {} find a place, limited by the {}.",
                capacity::rate_words(rate),
                if max.is_some_and(|max| max <= streams) {
                    "number that was set"
                } else {
                    resource.name()
                }
            )
        }
        (None, Some(max)) => format!("{max} of them find a place at a time."),
        (None, None) => {
            format!("All are admitted: {measured}--measure finds how many can be kept.")
        }
    };
    let kept = if *reserve > 0.0 {
        format!(" {:.0} % are kept for a higher priority.", 100.0 * reserve)
    } else {
        String::new()
    };
    format!("{paced}.\n{door}{kept}")
}
