//! The findings of `haul tune` for people: on a terminal, and as a page.

use crate::{
    args::usage_problem,
    failure::{ExitStatus, Failure},
    ui::{self, json, printable},
};
use haul_host::{
    checks::{self, Check, Group},
    tune::{Finding, Goal, Needs, State, Weight, ledger::Standing, score},
};
use haul_report::{
    html_page::{Page, Section},
    table::Table,
};
use haul_transfer::internals::net::NetReport;
use jiff::Timestamp;
use std::{collections::BTreeSet, path::Path};

const GROUPS: [Group; 6] =
    [Group::Tcp, Group::NetworkCard, Group::Rdma, Group::Processor, Group::Storage, Group::System];
/// Longest command that is shown: a longer one, as one for each of 128 processors, is left to
/// --dry-run.
const COMMAND_SIGNS_MAX: usize = 160;

/// The report for a terminal: the verdict, what to change by groups, and what to do next.
pub fn text(goal: &Goal, findings: &[Finding], standing: &Standing, all: bool) -> String {
    let mut parts = vec![verdict(goal, findings)];
    parts.extend(standing_words(standing));
    for group in GROUPS {
        let shown = findings.iter().filter(|finding| {
            let is_news = matches!(finding.state, State::Improve | State::Unknown);
            group_of(finding) == group && (all || is_news)
        });
        let blocks: Vec<String> = shown.map(block).collect();
        if !blocks.is_empty() {
            parts.push(format!("{}\n{}", group.title(), blocks.join("\n")));
        }
    }
    parts.push(ending(findings, all));
    parts.join("\n\n")
}

fn verdict(goal: &Goal, findings: &[Finding]) -> String {
    let improve = || findings.iter().filter(|finding| finding.state == State::Improve);
    let named = |weight| {
        let names = improve().filter(|finding| finding.weight == weight);
        names.map(|finding| finding.check).collect::<BTreeSet<_>>()
    };
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let (high, medium) = (named(Weight::High), named(Weight::Medium));
    let most = match (high.is_empty(), medium.is_empty()) {
        (false, _) => format!(", most of all {}", list(high)),
        (true, false) => format!(", first {}", list(medium)),
        (true, true) => String::new(),
    };
    let what = match improve().count() {
        0 => "nothing to improve".to_owned(),
        1 => format!("one thing to improve{most}"),
        count => format!("{count} things to improve{most}"),
    };
    let score = score(findings);
    let (words, from) = (goal.words(), &goal.rate_from);
    let sentence = format!("{score} of 100 as a {words} ({from}): {what}.");
    match (goal.rtt_ms, goal.bdp_bytes()) {
        (Some(rtt), Some(bytes)) => {
            let bdp = ui::units::bytes(bytes);
            format!("{sentence}\nA full path of {rtt} ms has {bdp} on the way.")
        }
        _ => sentence,
    }
}

fn standing_words(standing: &Standing) -> Option<String> {
    let changes = standing.changes().count();
    if let Some(seconds) = standing.broken_off_seconds {
        let when = Timestamp::from_second(i64::try_from(seconds).unwrap_or(0));
        let when = when.map(|when| format!(" of {when}")).unwrap_or_default();
        return Some(format!(
            "A run{when} was broken off in the middle; {changes} settings may be changed.\n\
             haul tune --undo sets them back, haul tune --apply goes on."
        ));
    }
    (!standing.is_empty()).then(|| {
        format!("{changes} settings are as haul tune set them; haul tune --undo sets them back.")
    })
}

/// A finding in a few lines: a mark, the check, what was found and what should be.
fn block(finding: &Finding) -> String {
    let mark = match (finding.state, finding.weight) {
        (State::Improve, Weight::High) => "!!",
        (State::Improve, Weight::Medium) => "! ",
        (State::Improve, Weight::Low) => ". ",
        (State::Good, _) => "ok",
        (State::Unknown, _) => "? ",
        (State::Absent, _) => "- ",
    };
    let Finding { check, subject, found, wanted, note, .. } = finding;
    let wanted = if wanted.is_empty() { String::new() } else { format!(" -> {wanted}") };
    let subject = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
    let mut lines = vec![format!("  {mark} {check:<19} {subject}{found}{wanted}")];
    if !note.is_empty() {
        lines.push(format!("{:25}{note}", ""));
    }
    if finding.state == State::Improve {
        lines.extend(what_to_do(finding).map(|line| format!("{:25}{line}", "")));
    }
    lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n")
}

fn what_to_do(finding: &Finding) -> Option<String> {
    let who = match finding.needs {
        Needs::Nothing | Needs::Root => String::new(),
        needs => format!("needs {}", needs.words()),
    };
    let command = match finding.command.chars().count() {
        0 => String::new(),
        1..=COMMAND_SIGNS_MAX => format!("$ {}", finding.command),
        _ => format!("{} settings: haul tune --dry-run shows them", finding.changes.len()),
    };
    let separator = if who.is_empty() || command.is_empty() { "" } else { ": " };
    let line = format!("{who}{separator}{command}");
    (!line.is_empty()).then_some(line)
}

fn ending(findings: &[Finding], all: bool) -> String {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let (good, improve) = (count(State::Good), count(State::Improve));
    let (unknown, absent) = (count(State::Unknown), count(State::Absent));
    let mut lines = vec![format!(
        "{good} good, {improve} to improve (!! much, ! some, . little), {unknown} not readable \
         (?), {absent} not on this host."
    )];
    if !all {
        lines.push("--all shows them all; --explain CHECK says why.".to_owned());
    }
    let changes: usize = findings.iter().map(|finding| finding.changes.len()).sum();
    if changes > 0 {
        lines.push(
            "haul tune --dry-run prints the changes as a script, haul tune --apply makes them, \
             --undo sets them back."
                .to_owned(),
        );
    }
    lines.join("\n")
}

/// Explains a check, and what it finds here.
pub fn explain(check: &Check, findings: &[Finding], as_json: bool) {
    if as_json {
        json::print(&serde_json::json!({
            "event": "check", "check": check.name, "group": check.group,
            "summary": check.summary, "why": check.why, "source": check.source,
        }));
        for finding in findings {
            json::print(&super::Line::Finding { group: check.group, finding });
        }
        return;
    }
    let mut parts = vec![
        format!("{}: {}.", check.name, check.summary),
        wrapped(check.why),
        format!("Source: {}.", check.source),
    ];
    let blocks: Vec<String> = findings.iter().map(block).collect();
    if !blocks.is_empty() {
        parts.push(format!("Here:\n{}", blocks.join("\n")));
    }
    ui::print_to_stdout(&parts.join("\n\n"));
}

/// A text in lines of at most 80 signs.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        if !line.is_empty() && line.len() + 1 + word.len() > 80 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

pub fn group_of(finding: &Finding) -> Group {
    checks::find(finding.check).map_or(Group::System, |check| check.group)
}

/// The section of the path and the peer, as they are told on a terminal.
fn other_end(report: &NetReport) -> Section {
    let words = super::peer::text(report, false).lines().map(str::to_owned).collect();
    Section { title: "The path and the peer".to_owned(), words, ..Section::default() }
}

/// The section of what to change, the heaviest first, each with the way to it.
fn to_improve(findings: &[Finding]) -> Section {
    let columns = ["it matters", "check", "what", "found", "should be"];
    let mut table = Table::new("", columns.len(), &columns);
    for (weight, word) in
        [(Weight::High, "much"), (Weight::Medium, "some"), (Weight::Low, "little")]
    {
        let shown = findings
            .iter()
            .filter(|finding| finding.state == State::Improve && finding.weight == weight);
        for finding in shown {
            let Finding { check, subject, found, wanted, note, .. } = finding;
            table.row([word, check, subject, found, wanted].map(str::to_owned).to_vec());
            let ways = what_to_do(finding).into_iter().chain([note.clone()]);
            for line in ways.filter(|line| !line.is_empty()) {
                table.row(vec![String::new(), line]);
            }
        }
    }
    let words = match table.rows.is_empty() {
        true => vec!["Nothing.".to_owned()],
        false => vec!["haul tune --apply makes these changes; --undo sets them back.".to_owned()],
    };
    let tables = if table.rows.is_empty() { vec![] } else { vec![table] };
    Section { title: "To improve".to_owned(), words, tables, charts: vec![] }
}

/// The section of all that was looked at, by groups.
fn everything(findings: &[Finding]) -> Section {
    let of_group = |group: Group| {
        let columns = ["", "check", "what", "found"];
        let mut table = Table::new(group.title(), columns.len(), &columns);
        for finding in findings.iter().filter(|finding| group_of(finding) == group) {
            let state = match finding.state {
                State::Good => "good",
                State::Unknown => "unknown",
                State::Absent => "absent",
                State::Improve => "improve",
            };
            let Finding { check, subject, found, .. } = finding;
            table.row([state, check, subject, found].map(str::to_owned).to_vec());
        }
        table
    };
    let tables = GROUPS.map(of_group).to_vec();
    Section { title: "All that was looked at".to_owned(), words: vec![], tables, charts: vec![] }
}

/// The section of reasons, those of checks with something to improve first.
fn whys(findings: &[Finding]) -> Section {
    let improves = |check: &Check| {
        let of_check = |finding: &&Finding| finding.check == check.name;
        findings.iter().filter(of_check).any(|finding| finding.state == State::Improve)
    };
    let why = |check: &Check| format!("{}: {} ({})", check.name, check.why, check.source);
    let (first, others): (Vec<&Check>, Vec<&Check>) =
        checks::CHECKS.iter().partition(|check| improves(check));
    let words = first.into_iter().chain(others).map(why).collect();
    Section { title: "Why".to_owned(), words, ..Section::default() }
}

/// Writes the report as one file of HTML.
///
/// # Errors
/// If it cannot be written.
pub fn write_page(
    path: &Path,
    goal: &Goal,
    findings: &[Finding],
    of_path: Option<&NetReport>,
) -> Result<(), Failure> {
    let cards = goal.cards.join(", ");
    let facts = [
        ("goal", goal.words()),
        ("rate", goal.rate_from.clone()),
        ("cards", cards),
        ("score", format!("{} of 100", score(findings))),
        ("haul", env!("CARGO_PKG_VERSION").to_owned()),
        ("measured", Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()),
    ];
    let page = Page {
        title: "haul tune".to_owned(),
        words: vec![verdict(goal, findings)],
        facts: facts.map(|(fact, value)| (fact.to_owned(), value)).to_vec(),
        sections: [to_improve(findings)]
            .into_iter()
            .chain(of_path.map(other_end))
            .chain([everything(findings), whys(findings)])
            .collect(),
        ..Page::default()
    };
    std::fs::write(path, page.html()).map_err(|error| {
        let what = format!("cannot write the page {}", path.display());
        let problem = usage_problem(&what, "", &error.to_string(), "name another --html");
        Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
    })
}
