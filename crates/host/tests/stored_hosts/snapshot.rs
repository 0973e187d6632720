//! The findings of a stored host as a text that people read, and where two such texts differ.

use std::fmt::Write;

use haul_host::{
    checks,
    tune::{Caution, Finding, Platform, State, Weight, score},
};

use super::unpacking::UnpackedHost;

/// Equal lines that are shown around a difference.
const CONTEXT_LINES: usize = 2;

pub fn of(host: &UnpackedHost, findings: &[Finding]) -> String {
    let goal = &host.goal;
    let cards = if goal.cards.is_empty() { "none".to_owned() } else { goal.cards.join(", ") };
    let platform = match host.machine.platform() {
        Platform::Hardware => "hardware",
        Platform::Virtual => "virtual machine",
        Platform::Container => "container",
    };
    let mut text = format!(
        "goal: {}, {}\ncards: {cards}\nplatform: {platform}\nscore: {}\n",
        goal.words(),
        goal.rate_from,
        score(findings),
    );
    let mut group = None;
    for finding in findings {
        let of_check = checks::find(finding.check).map(|check| check.group);
        if of_check != group {
            group = of_check;
            let _ = write!(text, "\n== {}\n", group.map_or("no group", |group| group.title()));
        }
        text.push('\n');
        text.push_str(&block(finding));
    }
    text
}

fn block(finding: &Finding) -> String {
    let state = match finding.state {
        State::Good => "good",
        State::Improve => "improve",
        State::Unknown => "unknown",
        State::Absent => "absent",
    };
    let weight = match finding.weight {
        Weight::Low => "low",
        Weight::Medium => "medium",
        Weight::High => "high",
    };
    let mut text = format!("{state} {}: {}\n", finding.check, finding.subject);
    let weight = if finding.state == State::Improve { weight } else { "" };
    let caution = match finding.caution {
        Caution::None => "",
        Caution::OnlyByName => "only by name",
    };
    for (name, words) in [
        ("weight", weight),
        ("found", &finding.found),
        ("wanted", &finding.wanted),
        ("note", &finding.note),
        ("command", &finding.command),
        ("needs", finding.needs.words()),
        ("apply", caution),
    ] {
        if !words.is_empty() {
            let _ = writeln!(text, "    {name:<8}{}", printable(words));
        }
    }
    for change in &finding.changes {
        let _ = writeln!(text, "    sets    {} = {}", change.setting, printable(&change.value));
    }
    text
}

/// Words without control characters: a snapshot is a text, whatever a host holds.
fn printable(words: &str) -> String {
    words
        .chars()
        .flat_map(
            |sign| if sign.is_control() { sign.escape_default().collect() } else { vec![sign] },
        )
        .collect()
}

/// Shows where `found` differs from `expected`, with `-` and `+` before the lines; empty if
/// nowhere.
pub fn difference(expected: &str, found: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let script = script(&old, &new);
    let is_near = |index: usize| {
        let from = index.saturating_sub(CONTEXT_LINES);
        script[from..script.len().min(index + CONTEXT_LINES + 1)].iter().any(|line| line.0 != ' ')
    };
    let mut text = String::new();
    let mut is_after_gap = false;
    for (index, (sign, line)) in script.iter().enumerate() {
        if !is_near(index) {
            is_after_gap = true;
            continue;
        }
        if std::mem::take(&mut is_after_gap) {
            text.push_str("  ...\n");
        }
        let _ = writeln!(text, "{sign} {line}");
    }
    text
}

/// Lines of both texts, each with what becomes of it, by their longest common subsequence.
fn script<'text>(old: &[&'text str], new: &[&'text str]) -> Vec<(char, &'text str)> {
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for row in (0..old.len()).rev() {
        for column in (0..new.len()).rev() {
            common[row * width + column] = if old[row] == new[column] {
                common[(row + 1) * width + column + 1] + 1
            } else {
                common[(row + 1) * width + column].max(common[row * width + column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut script = Vec::new();
    while row < old.len() || column < new.len() {
        if row < old.len() && column < new.len() && old[row] == new[column] {
            script.push((' ', old[row]));
            (row, column) = (row + 1, column + 1);
        } else if column == new.len()
            || row < old.len()
                && common[(row + 1) * width + column] >= common[row * width + column + 1]
        {
            script.push(('-', old[row]));
            row += 1;
        } else {
            script.push(('+', new[column]));
            column += 1;
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_came_what_went_and_a_little_around() {
        let old = "a\nb\nc\nd\ne\nf\n";
        assert_eq!(difference(old, old), "");
        let expected = "  ...\n  b\n  c\n- d\n+ D\n  e\n  f\n";
        assert_eq!(difference(old, "a\nb\nc\nD\ne\nf\n"), expected);
        assert_eq!(difference("", "a\n"), "+ a\n");
        assert_eq!(difference("a\n", ""), "- a\n");
    }
}
