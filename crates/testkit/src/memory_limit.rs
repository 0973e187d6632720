//! A limit on the memory of the processes of a control group, page cache included. Needs root; gone
//! when dropped.

use std::ffi::OsString;

use crate::Unavailable;
use haul_host::control_group::ControlGroup;

/// A control group whose memory is limited.
#[derive(Debug)]
pub struct MemoryLimit {
    group: ControlGroup,
}

impl MemoryLimit {
    /// Makes a group that may use this much memory.
    ///
    /// # Errors
    /// Without root, or where the memory of control groups cannot be limited.
    pub fn new(bytes: u64) -> Result<Self, Unavailable> {
        let mut group = ControlGroup::new(crate::GROUP_PREFIX);
        group.limit_memory(bytes)?;
        Ok(Self { group })
    }

    /// The words that run a program in this group when they stand before it.
    #[must_use]
    pub fn words(&self) -> Vec<OsString> {
        self.group.words()
    }

    /// Whether this process is in the group.
    #[must_use]
    pub fn holds(&self, pid: u32) -> bool {
        self.group.holds(pid)
    }

    /// The number of processes that the kernel killed for want of memory.
    #[must_use]
    pub fn killed(&self) -> u64 {
        self.group.killed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;
    use std::{
        process::Command,
        thread,
        time::{Duration, Instant},
    };

    #[test]
    fn a_program_behind_its_words_is_in_the_group_and_the_group_goes_away() {
        let limit = match MemoryLimit::new(64 << 20) {
            Ok(limit) => limit,
            Err(why) => return skip("root and control groups that limit memory", &why),
        };
        let words = limit.words();
        let mut command = Command::new(&words[0]);
        let mut child = command.args(&words[1..]).args(["sleep", "30"]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !limit.holds(child.id()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let held = limit.holds(child.id());
        let _ = (child.kill(), child.wait());
        let group = limit.group.directories()[0].clone();
        assert_eq!((held, limit.killed()), (true, 0));
        drop(limit);
        assert!(!group.exists());
    }
}
