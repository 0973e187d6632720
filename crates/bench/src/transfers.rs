//! Real transfers of this program: a server and pushes, each a process of its own.

use crate::workshop::Workshop;
use anyhow::{Context, Result, bail};
use haul_scratch::child::{Child, Wanted};
use haul_transfer::{HaulUrl, TOKEN_VARIABLE};
use serde::Serialize;
use serde_json::Value;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

/// Longest time that a server may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// Rate below which a push is given up, in bytes a second.
const RATE_BYTES_PER_S_MIN: u64 = 5 << 20;
/// Shortest time limit of a push, whatever its size.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The directory below the workshop that is served.
pub const ROOT: &str = "root";

/// A running `haul serve` of the workshop's root, on loopback; ended when dropped.
#[derive(Debug)]
pub struct LoopbackServer {
    _child: Child,
    pub url: HaulUrl,
}

impl LoopbackServer {
    /// Starts the server behind these words, such as those that limit its memory.
    pub fn start(workshop: &Workshop, behind: &[OsString]) -> Result<Self> {
        std::fs::create_dir_all(workshop.path().join(ROOT)).context("cannot make the root")?;
        let mut child = Child::start_behind(behind, workshop.path(), "serve", |command| {
            command.args(["serve", ROOT, "--listen", "127.0.0.1:0", "--json"]);
        })?;
        let url = child.wait_for(
            START_MAX,
            || workshop.go_on(),
            |line| line["url"].as_str().map_or(Wanted::More, |url| Wanted::This(url.to_owned())),
        )?;
        let Some(url) = url else { bail!("the server did not start: {}", child.errors()) };
        let url = url.parse::<HaulUrl>().context("the server printed an odd URL")?;
        Ok(Self { _child: child, url })
    }
}

/// A push to a loopback server, as a process of its own.
#[derive(Clone, Debug)]
pub struct Push<'a> {
    /// The source: a file of the workshop, or `zero:SIZE`.
    pub source: &'a str,
    pub len_bytes: u64,
    /// The server's URL with its token.
    pub server: &'a HaulUrl,
    /// The target: `null:`, or a file below the server's root.
    pub target: &'a str,
    pub send_engine: Option<&'a str>,
    pub receive_engine: Option<&'a str>,
    pub streams: Option<u32>,
    pub protection: PushedWith,
    /// Time after which the push is ended, as too slow to be of use.
    pub worth_waiting: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushedWith {
    /// The protection that a user gets who asks for nothing.
    Default,
    /// No protection and no digest: the engines alone.
    Nothing,
    /// The protection of this name, with the digest that goes with it.
    Named(&'static str),
}

/// Figures that a push reported.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PushReport {
    pub gb_per_s: f64,
    pub send_engine: String,
    pub receive_engine: String,
    pub streams: u64,
    pub send_cpu_s_per_gb: f64,
    pub receive_cpu_s_per_gb: f64,
    pub copied_bytes: u64,
    pub moved_bytes: u64,
    pub because: String,
    /// Whether haul went over to another engine on the way.
    pub changed: bool,
}

#[derive(Clone, Debug)]
pub enum Pushed {
    Done(Box<PushReport>),
    /// The push took longer than was worth waiting for; the server may have a part of the file.
    TooSlow,
    /// The push did not start with the engines that were asked for, or another one had to help.
    Refused(String),
}

impl Push<'_> {
    /// Runs the push to its end.
    ///
    /// # Errors
    /// If no process can be started, or the user wants to stop.
    pub fn run(&self, workshop: &Workshop, behind: &[OsString]) -> Result<Pushed> {
        let token = self.server.token.as_ref().context("the URL has no token")?.reveal();
        let url = HaulUrl { token: None, path: self.target.into(), ..self.server.clone() };
        let mut child = Child::start_behind(behind, workshop.path(), "push", |command| {
            command.args(["push", self.source, &url.reveal(), "--json", "--quiet"]);
            command.args(["--on-conflict", "replace", "--retry-for", "0s"]);
            for (option, value) in [
                ("--send-engine", self.send_engine.map(str::to_owned)),
                ("--receive-engine", self.receive_engine.map(str::to_owned)),
                ("--streams", self.streams.map(|streams| streams.to_string())),
            ] {
                if let Some(value) = value {
                    command.args([option, &value]);
                }
            }
            match self.protection {
                PushedWith::Default => {}
                PushedWith::Nothing => {
                    command.args(["--protection", "clear", "--digest", "none"]);
                }
                PushedWith::Named(name) => {
                    command.args(["--protection", name]);
                }
            }
            command.env(TOKEN_VARIABLE, &token);
        })?;
        let slowest = TIME_MAX + Duration::from_secs(self.len_bytes / RATE_BYTES_PER_S_MIN);
        let time_max = self.worth_waiting.unwrap_or(slowest);
        let started = Instant::now();
        let mut helped = None;
        let mut wrong = None;
        let report = child.wait_for(
            time_max,
            || workshop.go_on(),
            |line| match line["event"].as_str() {
                Some("report") => Wanted::This(line.clone()),
                Some("fallback") => {
                    helped.get_or_insert_with(|| words(&line["from_to"], &line["why"]));
                    Wanted::More
                }
                Some("error") => {
                    wrong.get_or_insert_with(|| problem(line));
                    Wanted::More
                }
                _ => Wanted::More,
            },
        )?;
        // What haul itself goes over to belongs to its choice.
        let changed = helped.is_some();
        if self.send_engine.is_none() && self.receive_engine.is_none() {
            helped = None;
        }
        Ok(match (report, helped, wrong) {
            (Some(report), None, None) if report["ok"] == true => {
                Pushed::Done(Box::new(PushReport { changed, ..read_report(&report) }))
            }
            (_, _, Some(wrong)) => Pushed::Refused(wrong),
            (_, Some(helped), _) => Pushed::Refused(format!("another engine helped: {helped}")),
            (None, ..) if started.elapsed() >= time_max => match self.worth_waiting {
                Some(_) => Pushed::TooSlow,
                None => Pushed::Refused(format!("not done within {} s", time_max.as_secs())),
            },
            _ => Pushed::Refused(child.errors()),
        })
    }
}

fn words(what: &Value, why: &Value) -> String {
    [what, why].map(|value| value.as_str().unwrap_or_default()).join(": ")
}

/// The error of a push in one sentence: what was tried, needed and found.
fn problem(line: &Value) -> String {
    let part = |name: &str, before: &str| match line[name].as_str() {
        Some("") | None => String::new(),
        Some(text) => format!("{before}{text}"),
    };
    format!("{}{}{}", part("what", ""), part("needs", ", needs "), part("found", ", found "))
}

fn read_report(report: &Value) -> PushReport {
    const BITS_PER_BYTE: f64 = 8.0;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    PushReport {
        gb_per_s: number(&report["gbit_per_s"]) / BITS_PER_BYTE,
        send_engine: text("send_engine"),
        receive_engine: text("receive_engine"),
        streams: report["streams"].as_u64().unwrap_or(0),
        send_cpu_s_per_gb: number(&report["source"]["cpu_s_per_gb"]),
        receive_cpu_s_per_gb: number(&report["target"]["cpu_s_per_gb"]),
        copied_bytes: report["copied_bytes"].as_u64().unwrap_or(0),
        moved_bytes: report["moved_bytes"].as_u64().unwrap_or(0),
        because: text("chosen_because"),
        changed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_gives_bytes_and_both_sides() {
        let report = read_report(&json!({
            "ok": true, "gbit_per_s": 8.0, "send_engine": "sendfile", "receive_engine": "discard",
            "streams": 2, "source": {"cpu_s_per_gb": 0.1}, "target": {"cpu_s_per_gb": 0.2},
            "copied_bytes": 7, "moved_bytes": 9, "chosen_because": "so",
        }));
        assert!((report.gb_per_s - 1.0).abs() < 1e-9);
        assert_eq!((report.send_engine.as_str(), report.streams), ("sendfile", 2));
        assert_eq!((report.copied_bytes, report.moved_bytes), (7, 9));
        assert!(report.receive_cpu_s_per_gb > report.send_cpu_s_per_gb);
    }

    #[test]
    fn a_problem_is_told_without_its_empty_parts() {
        let line = json!({"what": "engine x not started", "needs": "Linux 6.14", "found": ""});
        assert_eq!(problem(&line), "engine x not started, needs Linux 6.14");
    }
}
