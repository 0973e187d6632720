//! Earlier plans of the same source, beside which only what differs is planned again.
//!
//! Each shard has its lines in the order of a walk, so all shards together are merged while the
//! source is walked, in the memory of a line for each. Of a name that several plans have, the last
//! of them counts: an earlier one knows what was at the target before.

use super::{
    line::{Line, LineRange},
    plan_file::{Plan, shard_path},
    shard::{Lines, refused_by},
};
use crate::{packed_names::in_walk_order, problem::Problem};
use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, BinaryHeap},
    path::PathBuf,
};

/// An earlier plan of a source, and how far it was run.
#[derive(Clone, Debug)]
pub struct EarlierPlan {
    /// The plan.
    pub plan: Plan,
    /// Numbers of the shards that a run has moved.
    pub done: BTreeSet<u32>,
}

/// Names of earlier plans, in the order of a walk.
#[derive(Debug)]
pub(super) struct Earlier {
    shards: Vec<Reading>,
    /// The next line of each shard that has one.
    next: BinaryHeap<Reverse<Next>>,
    /// Names that the source has as they were planned, and that a run has moved.
    pub unchanged: u64,
    /// Names that the source does not have any more.
    pub gone: u64,
}

/// Knowledge of earlier plans about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The name is at the target as it is now: all of it was planned so, and moved.
    Moved,
    /// The name is new, has changed, or was not moved. `shard`: the one that has it in the last
    /// plan which has it at all.
    Differs { shard: Option<u32> },
}

#[derive(Debug)]
struct Reading {
    lines: Lines,
    path: PathBuf,
    /// Number of the plan among all.
    plan: usize,
    /// Number of the shard in the plan.
    number: u32,
    /// Whether a run has moved the shard.
    is_done: bool,
}

/// The next line of a shard.
#[derive(Debug)]
struct Next {
    line: Line,
    shard: usize,
}

impl Earlier {
    /// Opens all shards of all plans, the oldest first.
    ///
    /// # Errors
    /// If a shard cannot be read.
    pub fn open(plans: &[EarlierPlan]) -> Result<Self, Problem> {
        let mut shards = Vec::new();
        for (EarlierPlan { plan, done }, index) in plans.iter().zip(0..) {
            for number in 1..=plan.shards {
                let lines = Lines::open(plan, number).map_err(|error| error.problem())?;
                let is_done = done.contains(&number);
                let path = shard_path(plan.place(), number);
                shards.push(Reading { lines, path, plan: index, number, is_done });
            }
        }
        let next = BinaryHeap::with_capacity(shards.len());
        let mut this = Self { shards, next, unchanged: 0, gone: 0 };
        for shard in 0..this.shards.len() {
            this.read_on(shard, None)?;
        }
        Ok(this)
    }

    /// Looks for a name. Names are asked for in the order of a walk.
    ///
    /// # Errors
    /// If a shard is not as `haul plan` has written it.
    pub fn find(&mut self, line: &Line) -> Result<Known, Problem> {
        self.pass(&line.path.0)?;
        let mut shard = None;
        // The plan that counts, whether its lines are as the name is now and moved, and how many
        // bytes they are: of a plan that was given up, ranges of a file may be in no shard.
        let mut last: Option<(usize, bool, u64)> = None;
        while let Some(next) = self.take(|path| path == line.path.0)? {
            let Reading { plan, is_done, number, .. } = self.shards[next.shard];
            shard = Some(number);
            let (is_same, bytes) = (next.is_same(line) && is_done, next.line.bytes);
            // Shards are in the order of their plans, and so are the lines of one name.
            last = match last {
                Some((of, all, sum)) if of == plan => {
                    Some((plan, all && is_same, sum.saturating_add(bytes)))
                }
                _ => Some((plan, is_same, bytes)),
            };
        }
        let has = last.is_some_and(|(_, is_same, bytes)| is_same && bytes == line.bytes);
        self.unchanged += u64::from(has);
        Ok(if has { Known::Moved } else { Known::Differs { shard } })
    }

    /// Takes all that is left as gone.
    ///
    /// # Errors
    /// If a shard is not as `haul plan` has written it.
    pub fn finish(&mut self) -> Result<(), Problem> {
        self.pass_while(|_| true)
    }

    /// Passes the names before this one, which the source does not have.
    fn pass(&mut self, path: &[u8]) -> Result<(), Problem> {
        self.pass_while(|next| in_walk_order(next, path) == Ordering::Less)
    }

    fn pass_while(&mut self, fits: impl Fn(&[u8]) -> bool) -> Result<(), Problem> {
        let mut last: Option<Vec<u8>> = None;
        while let Some(Next { line, .. }) = self.take(&fits)? {
            // The ranges of a file are one name.
            self.gone += u64::from(last.as_ref() != Some(&line.path.0));
            last = Some(line.path.0);
        }
        Ok(())
    }

    /// Takes the next line, if its path fits.
    fn take(&mut self, fits: impl Fn(&[u8]) -> bool) -> Result<Option<Next>, Problem> {
        if !self.next.peek().is_some_and(|Reverse(next)| fits(&next.line.path.0)) {
            return Ok(None);
        }
        let Some(Reverse(next)) = self.next.pop() else { return Ok(None) };
        self.read_on(next.shard, Some(&next.line.path.0))?;
        Ok(Some(next))
    }

    /// Reads the next line of a shard, behind the one of this path.
    fn read_on(&mut self, shard: usize, behind: Option<&[u8]>) -> Result<(), Problem> {
        let reading = &mut self.shards[shard];
        let line = reading.lines.next().map_err(|error| error.problem())?;
        let Some(line) = line else { return Ok(()) };
        if behind.is_some_and(|last| in_walk_order(last, &line.path.0) == Ordering::Greater) {
            let refused = refused_by(&reading.path);
            return Err(refused(&format!("{}, which is not in the order of a walk", line.path)));
        }
        self.next.push(Reverse(Next { line, shard }));
        Ok(())
    }
}

impl Next {
    /// Whether the name was planned as it is now.
    fn is_same(&self, now: &Line) -> bool {
        let then = &self.line;
        let file_bytes = |line: &Line| match line.range() {
            Some(LineRange { file_bytes, .. }) => file_bytes,
            None => line.bytes,
        };
        // One that is not known tells nothing.
        let is_other = |(then, now)| then != now;
        if then.ctime().zip(now.ctime()).is_some_and(is_other) {
            return false;
        }
        (then.kind, then.mtime_s, then.mtime_ns) == (now.kind, now.mtime_s, now.mtime_ns)
            && file_bytes(then) == file_bytes(now)
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        in_walk_order(&self.line.path.0, &other.line.path.0).then(self.shard.cmp(&other.shard))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next {}
