//! A processor for each side: two that poll on one would wait for each other's time slices.

use anyhow::{Context, Result};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// Processors of the side that asks and of the one that answers: the last and the first that this
/// process may use; `None` where that is one only.
#[must_use]
pub fn of_sides() -> Option<(usize, usize)> {
    let may_use = sched_getaffinity(None).ok()?;
    let mut all = (0..CpuSet::MAX_CPU).filter(|at| may_use.is_set(*at));
    let first = all.next()?;
    Some((all.next_back()?, first))
}

/// Keeps a process on a processor, or this very thread and those that it starts.
///
/// # Errors
/// What sched_setaffinity(2) says.
pub fn keep_on(process: Option<Pid>, processor: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(process, &only).context("cannot stay on a processor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_where_it_is_kept() {
        let Some((asks, answers)) = of_sides() else {
            return haul_testkit::skip::skip("two processors", "one");
        };
        assert_ne!(asks, answers);
        for processor in [asks, answers] {
            std::thread::spawn(move || {
                keep_on(None, processor).unwrap();
                let may_use = sched_getaffinity(None).unwrap();
                assert_eq!(may_use.count(), 1);
                assert!(may_use.is_set(processor));
            })
            .join()
            .unwrap();
        }
    }
}
