//! Waiting for a shard of a plan that grows.

use super::{
    growing::BEAT,
    plan_file::{Growth, LOCK_FILE, PLAN_FILE, Plan, SHARDS_MAX, open_file},
};
use crate::{
    Interrupt,
    error::{TransferError, problem},
    problem::Problem,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs,
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant, SystemTime},
};

/// Time between two looks at the plan.
const POLL: Duration = Duration::from_secs(1);
/// Time after which a plan that does not change is taken for given up; it beats every
/// [`BEAT`](super::growing::BEAT).
const SILENCE: Duration = Duration::from_secs(60);

impl Plan {
    /// Reads a plan, and waits until a shard is there or is known never to come. `tell` hears once
    /// that it has to wait, and of the plan as it is then.
    ///
    /// # Errors
    /// If there is no plan, or making it was given up, nothing could start. If nobody seems to make
    /// it any more, or its directory is away for now, a later run may find it whole.
    pub fn open_for(
        place: &Path,
        shard: u32,
        interrupt: &Interrupt,
        tell: &mut dyn FnMut(&Self),
    ) -> Result<Self, TransferError> {
        wait(place, shard, (POLL, SILENCE, interrupt), tell)
    }

    /// Notes that the plan was given up where its planner is gone and could not say so, as after a
    /// kill: the plan has not changed for a minute, and nobody is seen to hold its lock.
    pub fn note_lost_planner(&mut self) {
        let Some(growth) = self.growing.filter(|growth| !growth.given_up) else { return };
        if !has_planner(self.place()) {
            self.growing = Some(Growth { given_up: true, ..growth });
        }
    }

    /// Whether somebody makes the plan: it changes within the time of two beats.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_being_made(&self) -> Result<bool, Problem> {
        let begun = Instant::now();
        while self.growing.is_some_and(|growth| !growth.given_up) {
            if Self::open(self.place()).map_err(|error| error.problem())? != *self {
                return Ok(true);
            }
            if begun.elapsed() > 2 * BEAT {
                break;
            }
            thread::sleep(POLL);
        }
        Ok(false)
    }
}

/// Whether a planner holds a directory, or has written its plan a moment ago: the lock of one on
/// another machine may not be seen here.
fn has_planner(place: &Path) -> bool {
    let is_held = open_file(&place.join(LOCK_FILE)).is_ok_and(|file| {
        matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
    });
    let written = fs::metadata(place.join(PLAN_FILE)).and_then(|it| it.modified());
    let ago = |at: SystemTime| at.elapsed().unwrap_or_else(|ahead| ahead.duration());
    // One that cannot be asked now is not known to be gone.
    is_held || written.map_or(true, |at| ago(at) < SILENCE)
}

fn wait(
    place: &Path,
    shard: u32,
    (poll, silence, interrupt): (Duration, Duration, &Interrupt),
    tell: &mut dyn FnMut(&Plan),
) -> Result<Plan, TransferError> {
    let mut last: Option<(Plan, Instant)> = None;
    loop {
        if interrupt.load(Ordering::Relaxed) {
            return Err(TransferError::interrupted());
        }
        let plan = match (Plan::open(place), &last) {
            (Ok(plan), _) => plan,
            // Just when it is replaced, a network's file system may not find it.
            (Err(_), Some((seen, at))) if at.elapsed() < silence => seen.clone(),
            (Err(error), Some(_)) => {
                return Err(TransferError::Unavailable(Box::new(error.problem())));
            }
            (Err(error), None) => return Err(error),
        };
        let Some(Growth { given_up, .. }) = plan.growing else { return Ok(plan) };
        if shard <= plan.shards || shard > SHARDS_MAX {
            return Ok(plan);
        }
        let is_silent = match &last {
            Some((seen, at)) if *seen == plan => at.elapsed() >= silence,
            _ => {
                if last.is_none() && !given_up {
                    tell(&plan);
                }
                last = Some((plan.clone(), Instant::now()));
                false
            }
        };
        if given_up || is_silent {
            let what = format!("shard {shard} is not in the plan {}", place.display());
            let needs = "a plan that is whole, or that `haul plan` still makes";
            let found = match given_up {
                true => format!("{} shards of one that was given up", plan.shards),
                false => format!("{} shards, and no change for {silence:?}", plan.shards),
            };
            let hint = "plan what is missing by `haul plan --again`, and run the new plan";
            let problem = problem(&what, needs, &found, hint);
            return Err(match given_up {
                true => TransferError::start(problem),
                false => TransferError::Unavailable(Box::new(problem)),
            });
        }
        thread::sleep(poll);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{name::Name, plan::plan_file::VERSION_GROWING};

    fn short(interrupt: &Interrupt) -> (Duration, Duration, &Interrupt) {
        (Duration::from_millis(1), Duration::from_millis(30), interrupt)
    }

    fn growing(place: &Path, shards: u32, growing: Option<Growth>) -> Plan {
        let (id, targets) = ("x".to_owned(), vec!["haul://h/".to_owned()]);
        let (source, version) = (Name(b"/data".to_vec()), VERSION_GROWING);
        let (files, bytes, failed, place) = (9, 9, 0, place.to_owned());
        let rules = None;
        let plan = Plan {
            version,
            id,
            source,
            targets,
            shards,
            files,
            bytes,
            rules,
            failed,
            growing,
            place,
        };
        plan.write().unwrap();
        plan
    }

    #[test]
    fn a_shard_is_waited_for_while_somebody_makes_the_plan() {
        let (scratch, none) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let place = scratch.path();
        let beat = |beats| Some(Growth { beats, given_up: false });
        growing(place, 2, beat(0));
        assert_eq!(wait(place, 2, short(&none), &mut |_| panic!("it is there")).unwrap().shards, 2);
        let mut told = 0;
        let silent = wait(place, 3, short(&none), &mut |_| told += 1).unwrap_err();
        assert!(silent.to_string().contains("no change"), "{silent}");
        assert_eq!(told, 1);
        // Each beat makes the wait longer; the plan comes at last.
        let begun = Instant::now();
        let patient = (Duration::from_millis(1), Duration::from_secs(5), &none);
        let plan = thread::scope(|scope| {
            scope.spawn(|| {
                for beats in 1..20 {
                    thread::sleep(Duration::from_millis(5));
                    growing(place, 2, beat(beats));
                }
                growing(place, 3, None);
            });
            wait(place, 3, patient, &mut |_| {}).unwrap()
        });
        assert!(begun.elapsed() >= Duration::from_millis(90) && plan.growing.is_none());
        // A whole plan without the shard is an answer, too.
        assert!(
            wait(place, 4, short(&none), &mut |_| {}).unwrap().shard(4).unwrap().names.is_empty()
        );
        assert!(wait(place, 4, short(&none), &mut |_| {}).unwrap().shard(9999).is_err());
    }

    #[test]
    fn a_plan_that_was_given_up_is_told_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        growing(scratch.path(), 2, Some(Growth { beats: 3, given_up: true }));
        let interrupt = Interrupt::default();
        let patient = (Duration::from_millis(1), Duration::from_secs(600), &interrupt);
        let refused = wait(scratch.path(), 3, patient, &mut |_| panic!("no wait")).unwrap_err();
        assert!(refused.to_string().contains("given up"), "{refused}");
    }

    /// A network's file system may not find the file when it is replaced.
    #[test]
    fn a_plan_that_cannot_be_read_for_a_moment_is_waited_for_and_an_interrupt_ends_it() {
        let (scratch, interrupt) = (tempfile::tempdir().unwrap(), Interrupt::default());
        let place = scratch.path();
        growing(place, 2, Some(Growth::default()));
        let file = place.join("plan.json");
        let patient = (Duration::from_millis(1), Duration::from_secs(60), &interrupt);
        let mut remove = |_: &Plan| std::fs::remove_file(&file).unwrap();
        let plan = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                growing(place, 3, None);
            });
            wait(place, 3, patient, &mut remove)
        });
        assert_eq!(plan.unwrap().shards, 3);
        growing(place, 2, Some(Growth::default()));
        let none = Interrupt::default();
        let gone = wait(place, 3, short(&none), &mut remove).unwrap_err();
        assert!(matches!(gone, TransferError::Unavailable(_)), "{gone}");
        growing(place, 2, Some(Growth::default()));
        let mut stop = |_: &Plan| interrupt.store(true, Ordering::Relaxed);
        let ended = wait(place, 3, patient, &mut stop).unwrap_err();
        assert!(!matches!(ended, TransferError::CouldNotStart(_)), "{ended}");
    }

    /// After a kill, or on a disk without any room, the plan says for ever that it is made.
    #[test]
    fn a_plan_counts_as_given_up_once_no_lock_and_no_beat_tells_of_its_planner() {
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path();
        growing(place, 2, Some(Growth { beats: 3, given_up: false }));
        let is_given_up = || {
            let mut plan = Plan::open(place).unwrap();
            plan.note_lost_planner();
            plan.growing.unwrap() == Growth { beats: 3, given_up: true }
        };
        let write_ago = |ago_s: i64| {
            let now = SystemTime::now();
            let ago = Duration::from_secs(ago_s.unsigned_abs());
            let at = if ago_s < 0 { now + ago } else { now - ago };
            let file = fs::File::options().write(true).open(place.join(PLAN_FILE)).unwrap();
            file.set_modified(at).unwrap();
        };
        for (ago_s, given_up) in [(0, false), (40, false), (-40, false), (80, true), (-3600, true)]
        {
            write_ago(ago_s);
            assert_eq!(is_given_up(), given_up, "written {ago_s} s ago");
        }
        let lock = fs::File::create(place.join(LOCK_FILE)).unwrap();
        assert!(is_given_up(), "nobody holds it");
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        assert!(!is_given_up(), "its beats do not come, as on a full disk");
        drop(lock);
        assert!(is_given_up());
        growing(place, 2, None);
        write_ago(80);
        let mut whole = Plan::open(place).unwrap();
        whole.note_lost_planner();
        assert!(whole.growing.is_none());
    }
}
