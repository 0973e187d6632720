//! All mutants of a package in one build, each chosen by a number while the tests run.
//!
//! A build of its own takes 15 seconds for each mutant, a run of the tests that meet it a fraction
//! of one. First each test runs alone and tells which places it meets; then each mutant is tried
//! by the tests that meet its place, until one fails. A mutant that no test meets has survived.
//! What cannot be chosen while the program runs is left to builds of its own.

mod cases;
mod compile;
mod rewrite;
#[cfg(test)]
mod runtime;
mod sites;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::tool::{Mutant, Verdicts};
use cases::{Case, Scratch};
use compile::{Built, Program};

/// Mutants of one build are fewer than this.
const NUMBERS_MAX: usize = 1 << 14;
/// How often a run tells how far it is.
const PROGRESS: Duration = Duration::from_secs(60);

/// Mutants of one package that are built, and the tests that passed without any of them.
pub struct Schema<'a> {
    package: &'a str,
    mutants: Vec<&'a Mutant>,
    built: Built,
    cases: Vec<Case>,
}

impl<'a> Schema<'a> {
    /// Builds mutants of one package, and runs its tests without any; `None` when `deadline` came
    /// before.
    pub fn build(
        root: &Path,
        package: &'a str,
        mutants: &[&'a Mutant],
        deadline: Instant,
    ) -> Result<Option<Schema<'a>>> {
        let started = Instant::now();
        let Some(built) = compile::build(root, package, mutants, deadline)? else {
            return Ok(None);
        };
        let seconds = started.elapsed().as_secs();
        let (all, chosen) = (mutants.len(), built.places.values().map(Vec::len).sum::<usize>());
        let (refused, alone) = (built.refused.len(), built.alone.len());
        println!(
            "mutants: {package}: {chosen} of {all} are in one build, {refused} do not compile, \
             {alone} need builds of their own; {seconds} s"
        );
        let started = Instant::now();
        let cases = baseline(&built, deadline)?;
        let (count, seconds) = (cases.len(), started.elapsed().as_secs());
        println!("mutants: {package}: {count} tests pass without a mutant, in {seconds} s");
        Ok(Some(Schema { package, mutants: mutants.to_vec(), built, cases }))
    }

    /// Mutants of these files that only a build of their own can try.
    pub fn alone(&self, files: &[&str]) -> Vec<&'a Mutant> {
        let alone = self.built.alone.iter().map(|index| self.mutants[*index]);
        alone.filter(|one| files.contains(&one.file.as_str())).collect()
    }

    /// Tries the mutants of these files until `deadline`, but for those that stand alone.
    pub fn judge(&self, files: &[&str], deadline: Instant) -> Result<Verdicts> {
        let is_asked = |index: &usize| files.contains(&self.mutants[*index].file.as_str());
        let named = |index: &usize| self.mutants[*index].name.clone();
        let refused = self.built.refused.iter().filter(|index| is_asked(index));
        let refused = refused.map(named).collect();
        let verdicts = Mutex::new(Verdicts { refused, ..Verdicts::default() });
        let mut all = numbered(&self.built);
        all.retain(|(_, _, index)| is_asked(index));
        let told = Mutex::new(Instant::now());
        in_parallel(&all, deadline, |at, (number, place, index), scratch| {
            let meeting: Vec<&Case> =
                self.cases.iter().filter(|case| case.met.contains(place)).collect();
            let is_noticed = cases::is_noticed(*number, &meeting, scratch)?;
            let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
            let name = named(index);
            if is_noticed {
                verdicts.killed.insert(name);
            } else {
                if meeting.is_empty() {
                    verdicts.unmet.insert(name.clone());
                }
                verdicts.survived.insert(name);
            }
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.elapsed() > PROGRESS {
                *told = Instant::now();
                let (package, count) = (self.package, all.len());
                println!("mutants: {package}: {at} of {count} tried");
            }
            Ok(())
        })?;
        Ok(verdicts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Each mutant's number, the first number of its place, and where it stands in the list.
fn numbered(built: &Built) -> Vec<(usize, usize, usize)> {
    let of_place = |(first, mutants): (&usize, &Vec<usize>)| {
        let first = *first;
        let with_number = move |(offset, index): (usize, &usize)| (first + offset, first, *index);
        mutants.iter().enumerate().map(with_number).collect::<Vec<_>>()
    };
    built.places.iter().flat_map(of_place).collect()
}

/// Runs each test alone, without a mutant. At the deadline those not run yet are left out, when no
/// mutant will be tried either.
fn baseline(built: &Built, deadline: Instant) -> Result<Vec<Case>> {
    let mut all: Vec<(&Program, String)> = Vec::new();
    for program in &built.programs {
        all.extend(cases::names_of(program)?.into_iter().map(|name| (program, name)));
    }
    let found = Mutex::new(Vec::new());
    in_parallel(&all, deadline, |_, (program, name), scratch| {
        let case = cases::baseline(program, name, scratch)?;
        found.lock().unwrap_or_else(PoisonError::into_inner).push(case);
        Ok(())
    })?;
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Does something for each of `all`, as many at a time as there are processors, none after
/// `deadline` or an error.
fn in_parallel<T: Sync>(
    all: &[T],
    deadline: Instant,
    work: impl Fn(usize, &T, &Scratch) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let worker = |number: usize| -> Result<()> {
        let scratch = Scratch::new(number)?;
        while Instant::now() < deadline {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = all.get(at) else { break };
            let done = work(at, one, &scratch);
            if done.is_err() {
                next.store(all.len(), Ordering::Relaxed);
                return done;
            }
        }
        Ok(())
    };
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..count).map(|number| scope.spawn(move || worker(number))).collect();
        for handle in workers {
            handle.join().map_err(|_| anyhow::anyhow!("a thread of the mutants panicked"))??;
        }
        Ok(())
    })
}

/// The module that chooses the mutant, to be put at the end of a crate.
fn runtime_text() -> String {
    let text = include_str!("schema/runtime.rs");
    let text = text.split("#[cfg(test)]").next().unwrap_or(text);
    format!("\nmod haul_mutants {{\n{text}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn mutants_of_a_place_have_numbers_in_a_row() {
        let places = BTreeMap::from([(1, vec![5, 3]), (3, vec![4])]);
        let built = Built { places, ..Built::default() };
        assert_eq!(numbered(&built), [(1, 1, 5), (2, 1, 3), (3, 3, 4)]);
    }

    #[test]
    fn the_module_of_the_choice_stands_by_itself_and_has_room_for_all_numbers() {
        let text = runtime_text();
        syn::parse_file(&text).unwrap();
        assert!(!text.contains("mod tests"));
        assert_eq!(runtime::NUMBERS_MAX, NUMBERS_MAX);
    }

    #[test]
    fn all_are_worked_on_once_and_none_after_the_deadline() {
        let done = Mutex::new(Vec::new());
        let all: Vec<usize> = (0..50).collect();
        let work = |at: usize, one: &usize, _: &Scratch| {
            done.lock().unwrap().push((at, *one));
            Ok(())
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        in_parallel(&all, deadline, work).unwrap();
        let mut found = std::mem::take(&mut *done.lock().unwrap());
        found.sort_unstable();
        assert_eq!(found, all.iter().map(|one| (*one, *one)).collect::<Vec<_>>());
        in_parallel(&all, Instant::now(), work).unwrap();
        assert!(done.lock().unwrap().is_empty());
    }

    #[test]
    fn an_error_ends_the_work() {
        let all: Vec<usize> = (0..50).collect();
        let work = |_: usize, one: &usize, _: &Scratch| {
            if *one == 3 { Err(anyhow::anyhow!("three")) } else { Ok(()) }
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let error = in_parallel(&all, deadline, work).unwrap_err();
        assert_eq!(error.to_string(), "three");
    }
}
