//! `haul tune --apply` and `--undo`, told step by step.

use crate::{
    args::{tune::LowTune, usage_problem},
    commands::tune::plan::{Plan, ledger_failure},
    failure::{ExitStatus, Failure},
    ui::{self, json},
};
use haul_host::tune::{
    Machine,
    change::{self, ApplyError, Step},
    ledger::{Changed, Ledger},
    persist::Persisted,
    setting::same,
};
use serde_json::json;
use std::{os::unix::fs::MetadataExt, path::Path};

/// Applies the changes of a plan.
///
/// # Errors
/// If nothing could start, or a change failed and all were set back.
pub fn apply(low: &LowTune, machine: &Machine, plan: &Plan) -> Result<ExitStatus, Failure> {
    let planned = plan.planned();
    if planned.is_empty() {
        tell_rest(low, plan, 0);
        return Ok(ExitStatus::AllDone);
    }
    needs_root("change settings")?;
    let mut ledger = Ledger::open(&low.ledger).map_err(ledger_failure)?;
    let mut made = 0;
    let mut tell = |step: Step<'_>| {
        made += usize::from(matches!(step, Step::Changed(_)));
        tell_step(low.json, &step);
    };
    let persisted = persisted(low);
    change::apply(machine, &mut ledger, &planned, persisted.as_ref(), &mut tell)
        .map_err(failure)?;
    let is_lost = planned.iter().any(|planned| planned.change.setting.is_interrupt())
        && persisted.is_some_and(|persisted| persisted.again.is_empty());
    if is_lost {
        ui::print_to_stderr(
            "Interrupts have other numbers after a boot, so that haul has to find them again then, \
             but others than root could replace this program: they are set for this boot only. \
             Put haul where root alone writes, such as /usr/local/bin, and apply again.",
        );
    }
    tell_rest(low, plan, made);
    Ok(ExitStatus::AllDone)
}

/// The directory for the next boot's files, unless none are wanted.
pub fn persisted(low: &LowTune) -> Option<Persisted> {
    // --undo may run in another directory.
    let root = std::path::absolute(&low.boot_root).unwrap_or_else(|_| low.boot_root.clone());
    (!low.this_boot).then(|| Persisted { root, again: again(low) })
}

/// A change that failed, with what can be done about it.
pub fn failure(error: ApplyError) -> Failure {
    let (words, hint) = match error {
        ApplyError::Ledger(error) => return ledger_failure(error),
        error @ ApplyError::Left { .. } => {
            (error.to_string(), "look at what it names, then haul tune --undo")
        }
        error @ ApplyError::SetBack { .. } => {
            let hint = "name the other checks with --apply=CHECK,CHECK to go without this one";
            (error.to_string(), hint)
        }
    };
    let problem = usage_problem("haul tune --apply failed", "", &words, hint);
    Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
}

pub fn tell_step(as_json: bool, step: &Step<'_>) {
    match step {
        Step::Changed(changed) => tell_changed(as_json, changed),
        Step::AlreadySo(_) => {}
        Step::Wrote(path) if as_json => json::print(&json!({ "event": "wrote", "path": path })),
        Step::Wrote(path) => ui::print_to_stdout(&format!("  wrote    {path}")),
    }
}

/// The words by which this program is called at each boot, for what must be found anew then. Not at
/// all where others than root could put another in its place.
fn again(low: &LowTune) -> Vec<String> {
    let Some(program) = std::env::current_exe().ok().filter(|path| is_roots_alone(path)) else {
        return vec![];
    };
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(low.goal_words());
    words
}

/// Whether root alone can replace a program: the file and each directory above it count, and in one
/// with the sticky bit only the owner replaces a file (inode(7)).
fn is_roots_alone(program: &Path) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    program.ancestors().all(|path| {
        std::fs::metadata(path).is_ok_and(|found| {
            let mode = found.mode();
            let is_sticky = found.is_dir() && mode & STICKY != 0;
            found.uid() == 0 && (mode & OTHERS_WRITE == 0 || is_sticky)
        })
    })
}

fn tell_changed(as_json: bool, changed: &Changed) {
    let Changed { check, setting, old, new } = changed;
    if as_json {
        json::print(&json!({
            "event": "change", "check": check, "setting": setting, "old": old, "new": new,
        }));
    } else {
        let line = format!("  changed  {setting}: {old} -> {new}");
        ui::print_to_stdout(&ui::printable(&line));
    }
}

/// Tells in one sentence what was done, and what was not.
fn tell_rest(low: &LowTune, plan: &Plan, made: usize) {
    if low.json {
        let names = |findings: &[haul_host::tune::Finding]| {
            findings.iter().map(|finding| finding.check).collect::<Vec<_>>()
        };
        json::print(&json!({
            "event": "applied", "changes": made, "to_be_named": names(&plan.to_be_named),
            "by_hand": names(&plan.by_hand),
        }));
        return;
    }
    let mut lines = vec![match made {
        0 => "Nothing had to be changed.".to_owned(),
        1 => "1 setting changed; haul tune --undo sets it back.".to_owned(),
        made => format!("{made} settings changed; haul tune --undo sets them back."),
    }];
    for finding in &plan.to_be_named {
        lines.push(format!(
            "Left out, as it can cut connections: {} {}. --apply={} makes it so.",
            finding.subject, finding.wanted, finding.check
        ));
    }
    if !plan.by_hand.is_empty() {
        let names: Vec<&str> = plan.by_hand.iter().map(|finding| finding.check).collect();
        lines.push(format!("Left to you: {}. haul tune says how.", names.join(", ")));
    }
    ui::print_to_stdout(&lines.join("\n"));
}

/// Sets all changes back.
///
/// # Errors
/// If nothing could start, or something could not be set back.
pub fn undo(low: &LowTune, machine: &Machine) -> Result<ExitStatus, Failure> {
    let standing = Ledger::peek(&low.ledger).map_err(ledger_failure)?;
    if standing.is_empty() {
        if low.json {
            json::print(&json!({ "event": "undone", "changes": 0 }));
        } else {
            ui::print_to_stdout("Nothing to set back: haul tune has changed nothing here.");
        }
        return Ok(ExitStatus::AllDone);
    }
    needs_root("set settings back")?;
    let ledger = Ledger::open(&low.ledger).map_err(ledger_failure)?;
    let mut tell = |changed: &Changed, now: &str| {
        let Changed { setting, old, new, .. } = changed;
        if low.json {
            json::print(&json!({
                "event": "set_back", "setting": setting, "from": now, "to": old,
            }));
            return;
        }
        // Somebody else may have changed it after us; it was theirs to keep in mind.
        let since = match () {
            () if changed.is_remembered_only() => " (by another change)",
            () if same(now, new) || same(now, old) => "",
            () => " (changed since)",
        };
        let line = format!("  set back {setting}: {now}{since} -> {old}");
        ui::print_to_stdout(&ui::printable(&line));
    };
    match change::undo(machine, ledger, &mut tell).map_err(ledger_failure)? {
        Ok(standing) => {
            let (settings, files) = (standing.changes().count(), standing.files.len());
            if low.json {
                json::print(&json!({ "event": "undone", "changes": settings, "files": files }));
            } else {
                let settings = ui::units::count(settings as u64, "setting");
                let files = ui::units::count(files as u64, "file");
                ui::print_to_stdout(&format!("As they were: {settings}, {files}."));
            }
            Ok(ExitStatus::AllDone)
        }
        Err(left) => {
            let found = left.join("; ");
            let hint = "mend what it names and run haul tune --undo again: nothing is forgotten";
            let problem = usage_problem("not all could be set back", "", &found, hint);
            Err(Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) })
        }
    }
}

pub fn needs_root(what: &str) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let user = rustix::process::geteuid().as_raw();
    let what = format!("cannot {what}");
    let hint = "run it by sudo, or give --dry-run's script to who may";
    Err(usage_problem(&what, "root", &format!("user {user}"), hint).into())
}
