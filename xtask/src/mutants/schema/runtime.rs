//! Choice of the mutant that runs. This file becomes a module of the code that is mutated.
//!
//! `HAUL_MUTANT` holds the number of the mutant; without it none runs. `HAUL_MUTANTS_MET` names a
//! file that gets, at its end, the first number of each place that was met. A number is written
//! when it is met, not at the exit: a test may be killed, and its children write as well.

extern crate std;

use std::env::{var, var_os};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Numbers of mutants are below this.
pub(crate) const NUMBERS_MAX: usize = 1 << 14;
/// Stands in place of a number: the places met are to be written down.
const TELLS: u32 = u32::MAX;
/// Stands in place of a number: the variables were not read yet.
const UNREAD: u32 = u32::MAX - 1;

static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static MET: [AtomicBool; NUMBERS_MAX] = [const { AtomicBool::new(false) }; NUMBERS_MAX];
static FILE: OnceLock<Option<File>> = OnceLock::new();

/// The number of the mutant that runs when it is one of the `count` from `first` on, or 0.
#[inline]
pub(crate) fn at(first: u32, count: u32) -> u32 {
    let mut active = ACTIVE.load(Ordering::Relaxed);
    if active >= UNREAD {
        active = look(first);
    }
    // A number below the first one is, so wrapped, far above the last.
    if active.wrapping_sub(first) < count { active } else { 0 }
}

#[cold]
fn look(first: u32) -> u32 {
    if ACTIVE.load(Ordering::Relaxed) == UNREAD {
        let tells = var_os("HAUL_MUTANTS_MET").is_some();
        let number = var("HAUL_MUTANT").ok().and_then(|text| text.parse().ok());
        ACTIVE.store(if tells { TELLS } else { number.unwrap_or(0) }, Ordering::Relaxed);
    }
    let active = ACTIVE.load(Ordering::Relaxed);
    if active != TELLS {
        return active;
    }
    let is_known = MET.get(first as usize).is_none_or(|met| met.swap(true, Ordering::Relaxed));
    let open = || {
        let path = var_os("HAUL_MUTANTS_MET")?;
        OpenOptions::new().append(true).create(true).open(path).ok()
    };
    if !is_known && let Some(mut file) = FILE.get_or_init(open).as_ref() {
        let _ = file.write_all(std::format!("{first}\n").as_bytes());
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case of all of it at once, as the choice is made once a process.
    #[test]
    fn a_mutant_runs_at_its_own_place_only() {
        ACTIVE.store(17, Ordering::Relaxed);
        assert_eq!([at(15, 2), at(15, 3), at(17, 1), at(18, 4)], [0, 17, 17, 0]);
        ACTIVE.store(0, Ordering::Relaxed);
        assert_eq!([at(1, 1), at(2, 9)], [0, 0]);
    }
}
