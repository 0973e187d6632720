//! Prints what the tuning checks find on this host, or on one stored below a directory.
//!
//!     cargo run -p haul-host --example audit -- [ROOT] [CARD]

use std::path::PathBuf;

use haul_host::{
    checks::{self, audit},
    tune::{Finding, Goal, Machine, State, Wanted, score},
};

fn main() {
    let mut words = std::env::args().skip(1);
    let root = words.next().map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let machine = Machine::below(&root);
    let goal = Goal::of(&machine, &Wanted { card: words.next(), ..Wanted::default() });
    let findings = audit(&machine, &goal);
    println!("{} ({}), score {}", goal.words(), goal.rate_from, score(&findings));
    let mut title = "";
    for finding in &findings {
        let group = checks::find(finding.check).map_or("", |check| check.group.title());
        if group != title {
            println!("\n{group}");
            title = group;
        }
        show(finding);
    }
}

fn show(finding: &Finding) {
    let Finding { check, subject, found, wanted, note, command, .. } = finding;
    let mark = match finding.state {
        State::Good => "good",
        State::Improve => "IMPROVE",
        State::Unknown => "unknown",
        State::Absent => "absent",
    };
    let wanted = if wanted.is_empty() { String::new() } else { format!(", wanted: {wanted}") };
    println!("  {mark:7} {check}: {subject}: {found}{wanted}");
    let needs = finding.needs.words();
    for (word, text) in [("note", &note[..]), ("needs", needs), ("command", &command[..])] {
        if !text.is_empty() {
            println!("            {word}: {text}");
        }
    }
}
