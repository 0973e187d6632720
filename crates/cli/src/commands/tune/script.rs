//! Scripts of `--dry-run`: what would be done, in a shell that a person can read and run.

use crate::commands::tune::plan::Plan;
use haul_host::{
    checks,
    tune::{
        Finding, Goal, Machine,
        ledger::{Content, Standing},
    },
};

const HEAD: &str = "#!/bin/sh\nset -eu\n";

/// The script of a plan: each change below why it is made and what is there now.
pub fn to_apply(plan: &Plan, goal: &Goal, machine: &Machine) -> String {
    let mut text = format!("{HEAD}# haul tune --apply, for: {}\n", goal.words());
    if plan.findings.is_empty() {
        text.push_str("# Nothing to change.\n");
    }
    for finding in &plan.findings {
        text.push_str(&format!("\n# {}\n", title(finding)));
        for change in &finding.changes {
            let now = change.setting.read(machine).unwrap_or_else(|unread| unread.words());
            let line = change.setting.shell(&change.value);
            text.push_str(&format!("{line}   # is: {}\n", one_line(&now)));
        }
    }
    let mut not_made = |findings: &[Finding], words: &str| {
        for finding in findings {
            text.push_str(&format!("\n# {words}: {}\n", title(finding)));
            if !finding.command.is_empty() {
                text.push_str(&format!("# {}\n", one_line(&finding.command)));
            }
        }
    };
    not_made(&plan.to_be_named, "only when named (--apply=NAME), as it can cut connections");
    not_made(&plan.by_hand, "by hand");
    text.trim_end().to_owned()
}

fn title(finding: &Finding) -> String {
    let summary = checks::find(finding.check).map_or("", |check| check.summary);
    let Finding { check, subject, found, wanted, .. } = finding;
    one_line(&format!("{check}: {summary}; {subject} is {found}, recommended is {wanted}"))
}

/// The script of setting back, in the order in which `--undo` would.
pub fn to_undo(standing: &Standing) -> String {
    let mut text = format!("{HEAD}# haul tune --undo\n");
    if standing.is_empty() {
        text.push_str("# Nothing was changed.\n");
    }
    for (path, old) in standing.files.iter().rev() {
        let path = path.display();
        text.push_str(&match old {
            Content::Nothing => format!("rm -f '{path}'\n"),
            Content::Link(target) => format!("ln -sfn '{}' '{path}'\n", target.display()),
            Content::Text(_) => format!("# {path} gets back what it held\n"),
        });
    }
    for changed in standing.settings.iter().rev() {
        let line = changed.setting.shell(&changed.old);
        let why = match changed.is_remembered_only() {
            true => "a change above can change it too".to_owned(),
            false => format!("was set to: {}", one_line(&changed.new)),
        };
        text.push_str(&format!("{line}   # {why}\n"));
    }
    text.trim_end().to_owned()
}

/// A text in one line, so that nothing that was read can end a comment.
fn one_line(text: &str) -> String {
    text.replace(|sign: char| sign.is_control(), " ")
}
