//! Applies changes, all or none of them, and sets back what was applied.

use std::{io, path::PathBuf};

use super::{
    ledger::{self, Changed, Ledger, LedgerError, Record, Standing},
    machine::{Machine, Unread, Why},
    persist::{HEAD, Persisted, files},
    setting::{Setting, same},
};
use crate::tune::Change;

/// Turns of setting back: settings that depend on each other need more than one. Taking fq away
/// gives the card what net.core.default_qdisc says, which may be set back only after it.
const TURNS_MAX: u32 = 4;

/// A change with the name of the check that wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    pub check: &'static str,
    pub change: Change,
}

/// A step that was taken on one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    Changed(&'a Changed),
    /// The setting had the value.
    AlreadySo(&'a Change),
    /// A file for the next boot was written.
    Wrote(&'a str),
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// One change failed, so all changes of this run were set back.
    #[error("{what}. All {undone} changes of this run were set back")]
    SetBack { what: Box<StepError>, undone: usize },
    /// One change failed, and several could not be set back.
    #[error("{what}. And {}", left_words(.left))]
    Left { what: Box<StepError>, left: Vec<String> },
}

/// The step at which a run of changes ended.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("{check}: {}", .unread.words())]
    Setting { check: &'static str, unread: Unread },
    #[error("{check}: {setting} did not become {wanted}: it is {now}")]
    NotTaken { check: &'static str, setting: Setting, wanted: String, now: String },
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    FileNotInLedger { path: PathBuf, source: LedgerError },
    #[error("{path}: it is somebody else's, and not replaced; move it, or take --this-boot")]
    NotOurs { path: PathBuf },
    #[error("a change that did not help is to be set back")]
    DidNotHelp,
}

/// The reason why a setting is not known to have its old value.
#[derive(Debug, thiserror::Error)]
enum NotSetBack {
    #[error("{}", .0.words())]
    Unread(Unread),
    /// The old value was written just now, so another turn looks at the setting again.
    #[error("{setting} does not become {old}")]
    Written { setting: Setting, old: String },
}

fn left_words(left: &[String]) -> String {
    format!("{} could not be set back: {}", left.len(), left.join("; "))
}

/// Makes the changes in their order, with the ledger's word before each, and then writes the files
/// for the next boot, if that is wanted. What has its value already is left alone.
///
/// # Errors
/// At the first change that fails, with all of this run set back.
pub fn apply(
    machine: &Machine,
    ledger: &mut Ledger,
    planned: &[Planned],
    persisted: Option<&Persisted>,
    tell: &mut dyn FnMut(Step<'_>),
) -> Result<(), ApplyError> {
    ledger.begin()?;
    let done = make(machine, ledger, planned, tell).and_then(|()| match persisted {
        Some(persisted) => persist(machine, ledger, persisted, tell),
        None => Ok(()),
    });
    let what = match done {
        Ok(()) => return Ok(ledger.add(Record::End)?),
        Err(what) => Box::new(what),
    };
    let run = ledger.this_run();
    let left = set_back(machine, &run, &mut |_, _| {});
    if !left.is_empty() {
        return Err(ApplyError::Left { what, left });
    }
    ledger.forget_this_run()?;
    Err(ApplyError::SetBack { what, undone: run.changes().count() + run.files.len() })
}

/// Sets back the last run only, as one that did not help.
///
/// # Errors
/// If something could not be set back: then the ledger keeps it.
pub fn take_back_run(machine: &Machine, ledger: &mut Ledger) -> Result<(), ApplyError> {
    let left = set_back(machine, &ledger.this_run(), &mut |_, _| {});
    if !left.is_empty() {
        return Err(ApplyError::Left { what: Box::new(StepError::DidNotHelp), left });
    }
    Ok(ledger.forget_this_run()?)
}

fn make(
    machine: &Machine,
    ledger: &mut Ledger,
    planned: &[Planned],
    tell: &mut dyn FnMut(Step<'_>),
) -> Result<(), StepError> {
    for Planned { check, change } in planned {
        let failed = |unread| StepError::Setting { check, unread };
        let old = change.setting.read(machine).map_err(failed)?;
        if same(&old, &change.value) {
            tell(Step::AlreadySo(change));
            continue;
        }
        let changed = Changed {
            check: (*check).to_owned(),
            setting: change.setting.clone(),
            old,
            new: change.value.clone(),
        };
        // First, so that they are set back after it.
        for disturbed in change.setting.disturbs(machine) {
            if let Ok(value) = disturbed.read(machine) {
                let check = (*check).to_owned();
                remember(
                    ledger,
                    Changed { check, setting: disturbed, new: value.clone(), old: value },
                )?;
            }
        }
        remember(ledger, changed.clone())?;
        change.setting.write(machine, &change.value).map_err(failed)?;
        let now = change.setting.read(machine).map_err(failed)?;
        if !same(&now, &change.value) {
            let (setting, wanted) = (change.setting.clone(), change.value.clone());
            return Err(StepError::NotTaken { check, setting, wanted, now });
        }
        tell(Step::Changed(&changed));
    }
    Ok(())
}

fn is_now(machine: &Machine, changed: &Changed) -> bool {
    changed.setting.read(machine).is_ok_and(|now| same(&now, &changed.new))
}

fn remember(ledger: &mut Ledger, changed: Changed) -> Result<(), LedgerError> {
    let Changed { check, setting, old, new } = changed;
    ledger.add(Record::Before { check, setting, old, new })
}

/// Writes the files that make all standing changes at the next boot too.
fn persist(
    machine: &Machine,
    ledger: &mut Ledger,
    persisted: &Persisted,
    tell: &mut dyn FnMut(Step<'_>),
) -> Result<(), StepError> {
    let mut standing = ledger.standing();
    // What did not take, or is otherwise by now, is not to come back at the next boot.
    standing.settings.retain(|changed| !changed.is_remembered_only() && is_now(machine, changed));
    for (path, content) in files(machine, &standing, persisted) {
        let failed = |source| StepError::File { path: path.clone(), source };
        let old = ledger::content(&path).map_err(failed)?;
        if old == content {
            continue;
        }
        let is_ours = standing.files.iter().any(|(known, _)| *known == path);
        if !is_ours && matches!(&old, ledger::Content::Text(text) if !text.contains(HEAD.trim())) {
            return Err(StepError::NotOurs { path });
        }
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(failed)?;
        }
        ledger
            .add(Record::File { path: path.clone(), old })
            .map_err(|source| StepError::FileNotInLedger { path: path.clone(), source })?;
        ledger::write_whole(&path, &content).map_err(failed)?;
        tell(Step::Wrote(&path.to_string_lossy()));
    }
    Ok(())
}

/// Sets back all that stands in the ledger, and empties it. `tell` gets each setting with the value
/// that it had until then.
///
/// # Errors
/// In words, what could not be set back: then the ledger keeps everything.
pub fn undo(
    machine: &Machine,
    ledger: Ledger,
    tell: &mut dyn FnMut(&Changed, &str),
) -> Result<Result<Standing, Vec<String>>, LedgerError> {
    let standing = ledger.standing();
    let left = set_back(machine, &standing, tell);
    if !left.is_empty() {
        return Ok(Err(left));
    }
    ledger.close()?;
    Ok(Ok(standing))
}

/// Sets back all that stands, in reverse, as often as settings depend on each other; returns what
/// could not be set back, in words.
fn set_back(
    machine: &Machine,
    standing: &Standing,
    tell: &mut dyn FnMut(&Changed, &str),
) -> Vec<String> {
    let mut left = Vec::new();
    for (path, old) in standing.files.iter().rev() {
        if let Err(error) = ledger::write_whole(path, old) {
            left.push(format!("{}: {error}", path.display()));
        }
    }
    for changed in standing.settings.iter().rev() {
        let now = changed.setting.read(machine);
        if let Some(now) =
            now.ok().filter(|now| !changed.is_remembered_only() || !same(now, &changed.old))
        {
            tell(changed, &now);
        }
    }
    let boot = ledger::boot_id();
    let is_here = |changed: &&Changed| {
        let of_boot = standing.boots.get(&changed.setting);
        of_boot.is_none_or(|of_boot| *of_boot == boot || of_boot.is_empty())
    };
    for turn in 1..=TURNS_MAX {
        let wrong: Vec<String> = standing
            .settings
            .iter()
            .rev()
            .filter(is_here)
            .filter_map(|changed| set_one_back(machine, changed).err())
            .map(|why| why.to_string())
            .collect();
        if wrong.is_empty() {
            break;
        }
        if turn == TURNS_MAX {
            left.extend(wrong);
        }
    }
    left
}

/// Sets one setting back; `Ok` where it had its old value already.
fn set_one_back(machine: &Machine, changed: &Changed) -> Result<(), NotSetBack> {
    let Changed { setting, old, .. } = changed;
    match setting.read(machine) {
        Ok(now) if same(&now, old) => return Ok(()),
        Ok(_) => {}
        // A card that was taken out took its settings with it.
        Err(Unread { why: Why::Missing | Why::NoDevice(_), .. }) => return Ok(()),
        Err(unread) => return Err(NotSetBack::Unread(unread)),
    }
    setting.write(machine, old).map_err(NotSetBack::Unread)?;
    Err(NotSetBack::Written { setting: setting.clone(), old: old.clone() })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::tune::Setting;

    /// A host with settings `a` to `c`, each 1.
    fn host() -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("proc/sys/net");
        fs::create_dir_all(&directory).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(directory.join(name), "1\n").unwrap();
        }
        let machine = Machine::below(root.path());
        (root, machine)
    }

    fn planned(names: &[&str]) -> Vec<Planned> {
        let change = |name: &&str| Planned {
            check: "a-check",
            change: Change { setting: Setting::sysctl(&format!("net.{name}")), value: "2".into() },
        };
        names.iter().map(change).collect()
    }

    fn values(root: &Path) -> String {
        let value = |name| fs::read_to_string(root.join("proc/sys/net").join(name)).unwrap();
        ["a", "b", "c"].map(value).map(|text| text.trim().to_owned()).concat()
    }

    fn ledger(root: &Path) -> Ledger {
        Ledger::open(&root.join("ledger")).unwrap()
    }

    #[test]
    fn what_is_applied_is_set_back_exactly() {
        let (root, machine) = host();
        let plan = planned(&["a", "c"]);
        let mut told = 0;
        let tell: &mut dyn FnMut(Step<'_>) = &mut |_| told += 1;
        apply(&machine, &mut ledger(root.path()), &plan, None, tell).unwrap();
        assert_eq!((values(root.path()).as_str(), told), ("212", 2));
        // Once more changes nothing, and forgets nothing.
        apply(&machine, &mut ledger(root.path()), &plan, None, &mut |step| {
            assert!(matches!(step, Step::AlreadySo(_)));
        })
        .unwrap();
        let standing = undo(&machine, ledger(root.path()), &mut |_, _| {}).unwrap().unwrap();
        assert_eq!(standing.settings.len(), 2);
        assert_eq!(values(root.path()), "111");
        assert!(ledger(root.path()).standing().is_empty());
    }

    #[test]
    fn at_the_first_failure_all_of_the_run_is_set_back_and_earlier_runs_stay() {
        let (root, machine) = host();
        apply(&machine, &mut ledger(root.path()), &planned(&["a"]), None, &mut |_| {}).unwrap();
        let plan = planned(&["b", "c", "missing"]);
        let error = apply(&machine, &mut ledger(root.path()), &plan, None, &mut |_| {});
        let Err(ApplyError::SetBack { what, undone: 2 }) = error else { panic!("{error:?}") };
        assert!(what.to_string().contains("/proc/sys/net/missing"), "{what}");
        assert_eq!(values(root.path()), "211");
        assert_eq!(ledger(root.path()).standing().settings.len(), 1);
    }

    /// A kernel that sets the number of requests anew with the scheduler is played by the test.
    #[test]
    fn what_a_change_disturbs_is_set_back_after_it_and_not_kept_over_a_boot() {
        let root = tempfile::tempdir().unwrap();
        let queue = root.path().join("sys/block/sda/queue");
        fs::create_dir_all(&queue).unwrap();
        let set = |name: &str, value: &str| fs::write(queue.join(name), value).unwrap();
        let get = |name: &str| fs::read_to_string(queue.join(name)).unwrap();
        set("scheduler", "mq-deadline");
        set("nr_requests", "64");
        let machine = Machine::below(root.path());
        let plan = [Planned {
            check: "scheduler",
            change: Change {
                setting: Setting::file("/sys/block/sda/queue/scheduler"),
                value: "none".into(),
            },
        }];
        let persisted = Persisted { root: root.path().to_owned(), again: vec![] };
        fs::create_dir_all(root.path().join("etc/udev/rules.d")).unwrap();
        let mut ledger = ledger(root.path());
        apply(&machine, &mut ledger, &plan, Some(&persisted), &mut |_| {}).unwrap();
        assert_eq!((&get("scheduler")[..], &get("nr_requests")[..]), ("none", "64"));
        let rules = root.path().join("etc/udev/rules.d/90-haul-dtn.rules");
        assert!(!fs::read_to_string(rules).unwrap().contains("nr_requests"));
        assert_eq!(ledger.standing().changes().count(), 1);
        set("nr_requests", "256");
        let mut told = Vec::new();
        undo(&machine, ledger, &mut |changed, now| {
            told.push((changed.old.clone(), now.to_owned()))
        })
        .unwrap()
        .unwrap();
        assert_eq!((&get("scheduler")[..], &get("nr_requests")[..]), ("mq-deadline", "64"));
        let told: Vec<_> = told.iter().map(|(old, now)| (&old[..], &now[..])).collect();
        assert_eq!(told, [("mq-deadline", "none"), ("64", "256")]);
    }

    #[test]
    fn one_run_is_taken_back_and_the_one_before_it_stays() {
        let (root, machine) = host();
        let mut ledger = ledger(root.path());
        apply(&machine, &mut ledger, &planned(&["a"]), None, &mut |_| {}).unwrap();
        apply(&machine, &mut ledger, &planned(&["a", "b"]), None, &mut |_| {}).unwrap();
        take_back_run(&machine, &mut ledger).unwrap();
        assert_eq!(values(root.path()), "211");
        assert_eq!(ledger.standing().settings.len(), 1);
    }

    #[test]
    fn a_run_that_was_killed_can_be_undone() {
        let (root, machine) = host();
        let mut killed = ledger(root.path());
        killed.begin().unwrap();
        make(&machine, &mut killed, &planned(&["a", "b"]), &mut |_| {}).unwrap();
        drop(killed);
        assert!(Ledger::peek(&root.path().join("ledger")).unwrap().broken_off_seconds.is_some());
        undo(&machine, ledger(root.path()), &mut |_, _| {}).unwrap().unwrap();
        assert_eq!(values(root.path()), "111");
    }

    #[test]
    fn what_cannot_be_set_back_is_named_and_kept() {
        let (root, machine) = host();
        apply(&machine, &mut ledger(root.path()), &planned(&["a", "b"]), None, &mut |_| {})
            .unwrap();
        let file = root.path().join("proc/sys/net/a");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        let left = undo(&machine, ledger(root.path()), &mut |_, _| {}).unwrap().unwrap_err();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(ledger(root.path()).standing().settings.len(), 2);
        // Once it is mended, undo goes on.
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "2\n").unwrap();
        undo(&machine, ledger(root.path()), &mut |_, _| {}).unwrap().unwrap();
        assert_eq!(values(root.path()), "111");
    }
}
