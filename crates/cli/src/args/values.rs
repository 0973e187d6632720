//! Forms of sizes, rates, durations and signals on the command line.
//!
//! Sizes are powers of 1024 (`10G`, `64KiB`), as dd and iperf take them. A rate in bytes is written
//! like a size (`500M`); a rate in bits is a power of 1000 (`10Gbit`), as networks count.

use clap::ValueEnum;
use haul_transfer::{Preserve, internals::parse_size};
use jiff::{Timestamp, Zoned, civil::DateTime};
use signal_hook::consts;
use std::{fmt, str::FromStr, time::Duration};

/// A duration as the user writes it: `500ms`, `10s`, `15m`, `12h`, `7d`, `2w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

/// A signal that ends a run so that it can be resumed, beside SIGINT and SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum StopSignal {
    #[value(alias = "SIGUSR1")]
    Usr1,
    #[value(alias = "SIGUSR2")]
    Usr2,
    #[value(alias = "SIGHUP")]
    Hup,
    #[value(alias = "SIGQUIT")]
    Quit,
    #[value(alias = "SIGALRM")]
    Alrm,
    #[value(alias = "SIGXCPU")]
    Xcpu,
}

impl StopSignal {
    /// Number of the signal.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Self::Usr1 => consts::SIGUSR1,
            Self::Usr2 => consts::SIGUSR2,
            Self::Hup => consts::SIGHUP,
            Self::Quit => consts::SIGQUIT,
            Self::Alrm => consts::SIGALRM,
            Self::Xcpu => consts::SIGXCPU,
        }
    }
}

/// The units of a duration, the largest first, in milliseconds.
const DURATION_UNITS: [(&str, u64); 6] = [
    ("w", 7 * 24 * 3_600_000),
    ("d", 24 * 3_600_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Longest duration that is taken, in milliseconds: a hundred years.
const DURATION_MS_MAX: f64 = 100.0 * 365.0 * 24.0 * 3_600_000.0;

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a duration; write it like 500ms, 10s, 15m or 7d");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = if unit.trim().is_empty() { "s" } else { unit.trim() };
        let (_, unit_ms) =
            DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let duration_ms = number.parse::<f64>().map_err(|_| wrong())? * *unit_ms as f64;
        if duration_ms > DURATION_MS_MAX {
            return Err(format!("{text:?} is more than a hundred years"));
        }
        Ok(Self(Duration::from_millis(duration_ms as u64)))
    }
}

/// Writes the duration in the largest unit that says it exactly.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let duration_ms = self.0.as_millis() as u64;
        let exact = |unit_ms: u64| duration_ms >= unit_ms && duration_ms.is_multiple_of(unit_ms);
        match DURATION_UNITS.iter().find(|(_, unit_ms)| exact(*unit_ms)) {
            Some((name, unit_ms)) => write!(f, "{}{name}", duration_ms / unit_ms),
            None => f.write_str("0s"),
        }
    }
}

/// Reads a moment, in seconds since 1970: how long ago (`7d`), a date or a time of this place
/// (`2026-01-31`, `2026-01-31T12:00`), or an instant (`2026-01-31T12:00:00Z`).
///
/// # Errors
/// Says what a moment looks like.
pub fn parse_moment(text: &str) -> Result<i64, String> {
    if let Ok(Period(ago)) = text.parse() {
        let ago = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
        return Ok(Timestamp::now().as_second().saturating_sub(ago));
    }
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant.as_second());
    }
    let here = text.parse::<DateTime>().ok().and_then(|time| {
        let zone = Zoned::now().time_zone().clone();
        time.to_zoned(zone).ok()
    });
    here.map(|time| time.timestamp().as_second())
        .ok_or_else(|| format!("{text:?} is no age like 2h or 7d, and no date like 2026-01-31"))
}

/// Reads a list of attributes: `mode,mtime,owner`, `all` or `none`.
///
/// # Errors
/// Names the word that is none of them.
pub fn parse_preserve(text: &str) -> Result<Preserve, String> {
    let mut preserve = Preserve::NOTHING;
    for word in text.split(',') {
        match word.trim() {
            "mode" => preserve.mode = true,
            "mtime" => preserve.mtime = true,
            "owner" => preserve.owner = true,
            "group" => preserve.group = true,
            "xattrs" => preserve.xattrs = true,
            "acls" => preserve.acls = true,
            "all" => preserve = Preserve::ALL,
            "none" => preserve = Preserve::NOTHING,
            other => {
                let known = "mode, mtime, owner, group, xattrs, acls, all or none";
                return Err(format!("{other:?} is none of {known}"));
            }
        }
    }
    Ok(preserve)
}

/// Units of a rate in bits.
const BIT_RATES: [&str; 5] = ["bits/s", "bit/s", "bits", "bit", "bps"];

/// Reads a rate and returns bytes a second: `500M`, `1.5GiB/s`, `10Gbit`, `800Mbit/s`.
///
/// # Errors
/// Says what a rate looks like.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is not a rate; write bytes a second like 500M, or bits like 10Gbit");
    let bits = BIT_RATES.iter().find_map(|suffix| text.strip_suffix(suffix));
    let rate_bytes_per_s = match bits {
        Some(bits) => parse_decimal(bits).ok_or_else(wrong)? / 8,
        // Whether 1Gb is bits or bytes is anybody's guess, so it is neither.
        None if text.ends_with('b') => {
            let amount = text.trim_end_matches('b').to_ascii_uppercase();
            parse_decimal(&amount).ok_or_else(wrong)?;
            return Err(format!(
                "{text:?} may mean bits or bytes; write {amount}bit for bits, {amount} for bytes"
            ));
        }
        None => {
            let amount = text.strip_suffix("/s").or_else(|| text.strip_suffix("ps"));
            parse_size(amount.unwrap_or(text)).map_err(|_| wrong())?
        }
    };
    if rate_bytes_per_s == 0 {
        return Err(format!("{text:?} is no rate: nothing would ever arrive"));
    }
    Ok(rate_bytes_per_s)
}

/// Least rate of a limit, in bytes a second: with less, the waits of the limit itself would pass
/// for a broken network.
const LIMIT_BYTES_PER_S_MIN: u64 = 8 << 10;

/// Reads the rate that a transfer is held to.
///
/// # Errors
/// As [`parse_rate`]; and where it is less than any transfer needs, as a number of rsync's KiB is.
pub fn parse_limit(text: &str) -> Result<u64, String> {
    let rate = parse_rate(text)?;
    if rate >= LIMIT_BYTES_PER_S_MIN {
        return Ok(rate);
    }
    let mut said = format!("{text:?} is {rate} bytes a second, and 8K is the least");
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        said.push_str(&format!("; write {text}K for KiB a second"));
    }
    Err(said)
}

/// Reads a number with a power of 1000 behind it: `10G` is 10^10.
fn parse_decimal(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" => 1.0,
        "k" | "K" => 1e3,
        "m" | "M" => 1e6,
        "g" | "G" => 1e9,
        "t" | "T" => 1e12,
        _ => return None,
    };
    let value = number.parse::<f64>().ok()? * factor;
    (value < 9e18).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_shown_in_their_largest_exact_unit() {
        for (text, seconds, shown) in [
            ("10", 10.0, "10s"),
            ("500ms", 0.5, "500ms"),
            ("1.5m", 90.0, "90s"),
            ("12h", 43_200.0, "12h"),
            ("7d", 604_800.0, "1w"),
            ("0", 0.0, "0s"),
        ] {
            let period: Period = text.parse().unwrap();
            assert_eq!(period.0, Duration::from_secs_f64(seconds), "{text}");
            assert_eq!(period.to_string(), shown);
        }
        for bad in ["", "s", "-1s", "1 fortnight", "1e99d", "99999999w"] {
            assert!(bad.parse::<Period>().is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_ages_dates_or_instants() {
        let now = Timestamp::now().as_second();
        let hour_ago = parse_moment("1h").unwrap();
        assert!((now - 3610..=now - 3590).contains(&hour_ago));
        assert_eq!(parse_moment("2026-01-31T12:00:00Z"), Ok(1_769_860_800));
        let day = parse_moment("2026-01-31").unwrap();
        assert!((1_769_860_800 - day).abs() <= 36 * 3600);
        assert_eq!(parse_moment("2026-01-31T00:00"), Ok(day));
        for bad in ["", "yesterday", "2026-13-01", "1 fortnight"] {
            assert!(parse_moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_of_attributes_is_what_it_says() {
        assert_eq!(parse_preserve("mode,mtime"), Ok(Preserve::default()));
        assert_eq!(parse_preserve("all"), Ok(Preserve::ALL));
        let owner = Preserve { owner: true, ..Preserve::NOTHING };
        assert_eq!(parse_preserve("none, owner"), Ok(owner));
        assert!(parse_preserve("mode,colour").unwrap_err().contains("colour"));
    }

    #[test]
    fn rates_in_bytes_are_binary_and_rates_in_bits_are_decimal() {
        for (text, rate) in [
            ("500M", 500 << 20),
            ("1.5GiB/s", 3 << 29),
            ("10Gbit", 1_250_000_000),
            ("800Mbit/s", 100_000_000),
            ("1Gbps", 125_000_000),
            ("1gbit", 125_000_000),
            ("1g", 1 << 30),
            ("1GBps", 1 << 30),
            ("64", 64),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for bad in ["", "0", "fast", "4bit", "b", "10Xbit", "-1M", "fastb"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_limit("8K"), Ok(8 << 10));
        let said = parse_limit("1000").unwrap_err();
        assert!(said.contains("1000 bytes a second") && said.contains("1000K for KiB"), "{said}");
        assert!(!parse_limit("10kbit").unwrap_err().contains("for KiB"));
        // What it says works, and is one of the two.
        for unclear in ["1gb", "1Gb"] {
            let said = parse_rate(unclear).unwrap_err();
            assert!(said.contains("1Gbit for bits") && said.contains("1G for bytes"), "{said}");
        }
    }
}
