//! Arguments of `haul tune`, and their check.

use super::{usage_problem, values::Period};
use clap::{Args, ValueEnum};
use haul_host::{
    checks::{self, CHECKS, Check},
    tune::{Role, Wanted, ledger},
};
use haul_transfer::Problem;
use std::path::PathBuf;

/// Audits this host as a data transfer node, and tunes it, with a way back
///
/// Every check reads what it is about and says what it found, what it should be for the goal, why,
/// and the command. Nothing is changed without --apply, which remembers each old value on disk
/// before it writes; --undo sets all of them back, also after a crash in the middle.
///
/// The goal is the fastest card's speed unless --rate says another, and a path of any length unless
/// --rtt says how long it is.
///
/// With the URL of a server its host is audited too, by its own checks, and the path is measured:
/// round trip time, MTU, and whether the buffers of both ends hold what is on the way. The goal's
/// RTT is that of this path then.
#[derive(Debug, Args)]
pub struct LowTune {
    #[arg(help = "A server at the other end of the path: haul://[TOKEN@]HOST[:PORT]")]
    #[arg(value_name = "URL", conflicts_with_all = ["undo", "explain", "dry_run", "root"])]
    pub url: Option<String>,
    /// Make the changes, all or those of the checks named, like --apply=rings,mtu (as root)
    ///
    /// The running system is changed, and files are written for the next boot: sysctl.d, udev rules
    /// and a systemd unit. At the first failure all of this run are set back. Without names,
    /// changes that can cut connections, as the MTU, are left out: they need to be named.
    #[arg(long, value_name = "CHECK", num_args = 0.., require_equals = true)]
    #[arg(value_delimiter = ',', default_missing_value = "")]
    pub apply: Option<Vec<String>>,
    /// Measure each change of --apply between this host and URL, and keep it if it helps
    ///
    /// Memory to memory over the path to URL, both ways at once, several rounds each. A change is
    /// kept when it brings more than the rounds differ among themselves; the others are set back.
    #[arg(long, requires = "apply", requires = "url", conflicts_with = "dry_run")]
    pub measure: bool,
    /// Time that each probe of --measure takes
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "measure")]
    pub measure_time: Period,
    /// Take the token of URL from this file
    #[arg(long, value_name = "FILE", requires = "url")]
    pub token_file: Option<PathBuf>,
    /// Set back all that --apply changed, exactly as it was
    #[arg(long, conflicts_with = "apply")]
    pub undo: bool,
    /// Print what --apply or --undo would do as a shell script, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Say all about one check: what it looks at, why, who says so, what it finds here
    #[arg(long, value_name = "CHECK", conflicts_with_all = ["apply", "undo", "dry_run"])]
    pub explain: Option<String>,
    /// Purpose of the host
    #[arg(long, value_enum, value_name = "ROLE", default_value = "dtn")]
    pub role: LowRole,
    /// How far its peers are: the round trip time, like 80ms or 0.2ms
    #[arg(long, value_name = "TIME", value_parser = parse_rtt)]
    pub rtt: Option<f64>,
    /// Rate to reach, in bits a second, like 100G; without it the fastest card's
    #[arg(long, value_name = "RATE", value_parser = parse_speed)]
    pub rate: Option<u64>,
    /// The network card that counts; without it all that are up
    #[arg(long, value_name = "NAME")]
    pub nic: Option<String>,
    /// Show what is good, and what this host does not have, too
    #[arg(long, short)]
    pub all: bool,
    /// Write no files for the next boot, with --apply
    #[arg(long, requires = "apply")]
    pub this_boot: bool,
    /// Write the files for the next boot below DIR, such as an image, with --apply
    #[arg(long, value_name = "DIR", requires = "apply", default_value = "/")]
    #[arg(conflicts_with = "this_boot", hide_default_value = true)]
    pub boot_root: PathBuf,
    /// Directory that remembers what was changed
    #[arg(long, value_name = "DIR", default_value = ledger::DIRECTORY)]
    pub ledger: PathBuf,
    /// Audit a stored host: a tree of /proc, /sys and the answers of programs
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    #[arg(conflicts_with_all = ["apply", "undo"])]
    pub root: PathBuf,
    /// Print one JSON object a line: goal, finding, change, report
    #[arg(long)]
    pub json: bool,
    /// Write the report as a page; one file, nothing is fetched
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowRole {
    /// A data transfer node: several streams share its buffers
    Dtn,
    /// Let one stream fill the path, for measurements
    TestHost,
    /// A server of paced streams: thousands of connections
    Media,
}

/// The task of `haul tune`, once the words were checked.
#[derive(Clone, Debug)]
pub enum TuneTask {
    Audit,
    /// Apply the changes of these checks only, if any are named.
    Apply(Vec<&'static Check>),
    Undo,
    Explain(&'static Check),
}

impl LowTune {
    /// Checks which task the words ask for.
    ///
    /// # Errors
    /// If a check is named that there is none of.
    pub fn task(&self) -> Result<TuneTask, Problem> {
        if let Some(name) = &self.explain {
            return Ok(TuneTask::Explain(check(name)?));
        }
        if self.undo {
            return Ok(TuneTask::Undo);
        }
        match &self.apply {
            Some(names) => {
                let named = names.iter().filter(|name| !name.is_empty());
                Ok(TuneTask::Apply(named.map(|name| check(name)).collect::<Result<_, _>>()?))
            }
            // What would be done, if nothing is said, is to apply.
            None if self.dry_run => Ok(TuneTask::Apply(vec![])),
            None => Ok(TuneTask::Audit),
        }
    }

    #[must_use]
    pub fn wanted(&self) -> Wanted {
        let role = match self.role {
            LowRole::Dtn => Role::Dtn,
            LowRole::TestHost => Role::TestHost,
            LowRole::Media => Role::Media,
        };
        let card = self.nic.clone();
        Wanted { role, rate_bits_per_s: self.rate, rtt_ms: self.rtt, card }
    }

    /// The words that name the goal, for a run at each boot.
    #[must_use]
    pub fn goal_words(&self) -> Vec<String> {
        let role = self.role.to_possible_value().expect("no role is skipped");
        let mut words = vec![format!("--role={}", role.get_name())];
        words.extend(self.rtt.map(|rtt| format!("--rtt={rtt}ms")));
        words.extend(self.rate.map(|rate| format!("--rate={rate}")));
        words.extend(self.nic.as_ref().map(|nic| format!("--nic={nic}")));
        words
    }
}

fn check(name: &str) -> Result<&'static Check, Problem> {
    checks::find(name).ok_or_else(|| {
        let known: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        let what = format!("there is no check {name:?}");
        usage_problem(&what, "", "", &format!("choose among {}", known.join(", ")))
    })
}

/// Reads a time in milliseconds: `80ms`, `0.2ms`, `200us`, `1s`; a bare number is milliseconds.
fn parse_rtt(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is no round trip time; write it like 80ms or 0.2ms");
    let units = [("ms", 1.0), ("us", 1e-3), ("s", 1e3), ("", 1.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .ok_or_else(wrong)?;
    let rtt_ms = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    if !rtt_ms.is_finite() || rtt_ms <= 0.0 || rtt_ms > 60_000.0 {
        return Err(wrong());
    }
    Ok(rtt_ms)
}

/// Reads a rate in bits a second in powers of 1000, as network cards are sold: `100G`, `2.5Gbit`,
/// `100000000000`.
fn parse_speed(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no speed of a network; write bits a second, like 100G");
    let bits = ["bit/s", "bit", "bps", "b/s"].iter().find_map(|unit| text.strip_suffix(unit));
    let bits = bits.unwrap_or(text);
    let units = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("", 1.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((bits.strip_suffix(unit)?, factor)))
        .ok_or_else(wrong)?;
    let rate = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if !(1e6..=1e14).contains(&rate) {
        return Err(wrong());
    }
    Ok(rate.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_bits_in_powers_of_a_thousand() {
        assert_eq!(parse_speed("100G"), Ok(100_000_000_000));
        assert_eq!(parse_speed("2.5Gbit/s"), Ok(2_500_000_000));
        assert_eq!(parse_speed("400000000000"), Ok(400_000_000_000));
        for wrong in ["", "fast", "100", "-1G", "1e300", "NaN", "10GB"] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn round_trip_times_may_be_parts_of_a_millisecond() {
        assert_eq!(parse_rtt("80ms"), Ok(80.0));
        assert_eq!(parse_rtt("0.2ms"), Ok(0.2));
        assert_eq!(parse_rtt("200us"), Ok(0.2));
        assert_eq!(parse_rtt("80"), Ok(80.0));
        for wrong in ["", "far", "0", "-1ms", "NaN", "1h"] {
            assert!(parse_rtt(wrong).is_err(), "{wrong}");
        }
    }
}
