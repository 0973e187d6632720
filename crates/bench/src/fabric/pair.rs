//! A pair of processes that does the tasks of a round with one provider.

use super::{Bench, TASK_TIME_MAX};
use crate::{
    fabric_side::{FabricRole, FabricSpec, Task, TaskDone, processors},
    side::SideLine,
};
use anyhow::{Context, Result};
use haul_fabric::Provider;
use haul_scratch::child::{Child, Wanted};
use std::{net::IpAddr, time::Duration};

/// Longest time that a side may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// Longest wait for a reason from the side that answers after the other one was refused.
const REASON_MAX: Duration = Duration::from_secs(2);
/// Longest time of a task that does as many repeats as there are.
const WHOLE_TASK_MAX: Duration = Duration::from_secs(3600);

impl Bench<'_> {
    /// Does tasks in their order: what each took, and the reason why the next one did not end.
    ///
    /// # Errors
    /// If the user wants to stop, or no process can be started.
    pub fn pair(
        &self,
        provider: Provider,
        address: IpAddr,
        tasks: Vec<Task>,
    ) -> Result<(Vec<TaskDone>, Option<String>)> {
        let sides = processors::of_sides();
        let spec = |role| FabricSpec {
            fabric: provider.name().to_owned(),
            address,
            role,
            processor: sides.map(|(asks, answers)| match role {
                FabricRole::Ask { .. } => asks,
                FabricRole::Answer => answers,
            }),
            tasks: tasks.clone(),
            repeats: self.repeats,
            files: self.files.clone(),
        };
        let start = |name: &str, role| {
            let spec = serde_json::to_string(&spec(role))?;
            Child::start(self.workshop.path(), name, |command| {
                command.args(["bench-side", &spec]);
            })
        };
        let mut answers = start("answer", FabricRole::Answer)?;
        let port = match self.next_line(&mut answers, START_MAX)? {
            Some(SideLine::Listening { port }) => port,
            Some(SideLine::Refused { why, .. }) => return Ok((Vec::new(), Some(why))),
            _ => return Ok((Vec::new(), Some(gone(&[&answers])))),
        };
        let mut asks = start("ask", FabricRole::Ask { port })?;
        let time_max = self
            .repeats
            .time_ms
            .map_or(WHOLE_TASK_MAX, |ms| TASK_TIME_MAX + Duration::from_millis(ms));
        let mut done = Vec::new();
        for task in &tasks {
            self.steps.begin(&format!("{provider}: {}", task.words()));
            match self.next_line(&mut asks, time_max)? {
                Some(SideLine::Fabric(run)) => done.push(run),
                Some(SideLine::Refused { why, .. }) => {
                    let other = self.next_line(&mut answers, REASON_MAX)?;
                    let why = match other {
                        Some(SideLine::Refused { why: other, .. }) if other != why => {
                            format!("{why}; the other side: {other}")
                        }
                        _ => why,
                    };
                    return Ok((done, Some(why)));
                }
                _ => return Ok((done, Some(gone(&[&asks, &answers])))),
            }
        }
        // Both end by themselves: an end waits until the other one has read everything.
        self.next_line(&mut asks, START_MAX)?;
        self.next_line(&mut answers, START_MAX)?;
        Ok((done, None))
    }

    fn next_line(&self, side: &mut Child, wait: Duration) -> Result<Option<SideLine>> {
        let go_on = || self.workshop.go_on();
        let line = side.wait_for(wait, go_on, |line| Wanted::This(line.clone()))?;
        line.map(|line| serde_json::from_value(line).context("a side printed an odd line"))
            .transpose()
    }
}

fn gone(sides: &[&Child]) -> String {
    let said: Vec<String> = sides.iter().map(|side| side.errors()).collect();
    format!("it did not end in time, or died: {}", said.join("; "))
}
