//! `cargo xtask mutants`: breaks the code on purpose, one place at a time, and asks the tests.
//!
//! A mutant that no test notices survives, and is an offence unless `xtask/mutants.txt` gives a
//! reason. All mutants of a package are in one build where that can be (schema.rs), the others are
//! built one by one (tool.rs). A run writes each file that is through into that list. A sample
//! draws from those files only, so every mutant of it was killed before. All work is done on a
//! copy below `target/mutants`; the tree itself is never changed.

mod arguments;
mod draw;
mod record;
mod schema;
mod scope;
mod tool;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::{Outcome, prerequisites};
use arguments::Request;
use record::Record;
use schema::Schema;
use scope::{FABRIC_FILES, SCOPE};
use tool::{Mutant, Verdicts};

/// The file of the reasons and of the files that are through.
const RECORD: &str = "xtask/mutants.txt";
/// Mutants that the sample of `cargo xtask test` draws; time ends it before that on a slow host.
const SAMPLE_OF_TESTS: usize = 60;
/// Minutes of that sample, the build of the copy included: from nothing it takes most of them.
const MINUTES_OF_TESTS: u64 = 4;

/// Runs the mutants that the arguments name.
pub fn run(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    let request = Request::read(arguments)?;
    tool::provide(root)?;
    run_request(root, &request)
}

/// Runs the sample that belongs to all tests. A host that cannot have cargo-mutants has none; what
/// else goes wrong is told, and fails it.
pub fn sample_of_tests(root: &Path) -> Outcome {
    if let Err(error) = tool::provide(root) {
        println!("mutants: no sample on this host: {error:#}");
        return Outcome::InOrder;
    }
    let sample = Request { sample: Some(SAMPLE_OF_TESTS), ..Request::of_minutes(MINUTES_OF_TESTS) };
    run_request(root, &sample).unwrap_or_else(|error| {
        println!("mutants: {error:#}");
        Outcome::NotInOrder
    })
}

fn run_request(root: &Path, request: &Request) -> Result<Outcome> {
    let deadline = Instant::now() + Duration::from_secs(request.minutes * 60);
    tool::copy_tree(root)?;
    let mut mutants = tool::list(root)?;
    let mut record = Record::read(root)?;
    let stale = record.stale(&mutants);
    if !prerequisites::has_libfabric(root) {
        mutants.retain(|one| !FABRIC_FILES.iter().any(|file| one.file.starts_with(file)));
    }
    for line in &stale {
        println!("{RECORD}: {line}");
    }
    let outcome = match request.sample {
        Some(count) => run_sample(root, request, count, &mutants, &record, deadline)?,
        None => run_files(root, request, &mutants, &mut record, deadline)?,
    };
    Ok(if stale.is_empty() { outcome } else { Outcome::NotInOrder })
}

/// Draws mutants of files that are through, and judges them.
fn run_sample(
    root: &Path,
    request: &Request,
    count: usize,
    mutants: &[Mutant],
    record: &Record,
    deadline: Instant,
) -> Result<Outcome> {
    let seed = request.seed.unwrap_or_else(|| draw::seed_of_head(root));
    let through = record.files_through();
    let known: Vec<&Mutant> = mutants
        .iter()
        .filter(|one| through.contains(one.file.as_str()) && request.takes(&one.file))
        .filter(|one| !record.is_accepted(one))
        .collect();
    // One package, as each has a build of its own.
    let Some(package) = draw::draw(&known, 1, seed).first().map(|one| one.package.as_str()) else {
        println!("mutants: none to draw from");
        return Ok(Outcome::InOrder);
    };
    let known: Vec<&Mutant> = known.into_iter().filter(|one| one.package == package).collect();
    let drawn = draw::draw(&known, count, seed);
    println!("mutants: {} of {} of {package} drawn, seed {seed}", drawn.len(), known.len());
    let Some(schema) = Schema::build(root, package, &drawn, deadline)? else {
        println!("mutants: the time was over before they were built");
        return Ok(Outcome::InOrder);
    };
    let files: BTreeSet<&str> = drawn.iter().map(|one| one.file.as_str()).collect();
    let files = Vec::from_iter(files);
    let verdicts = schema.judge(&files, deadline)?;
    let alone = schema.alone(&files).len();
    if alone > 0 {
        println!("mutants: {alone} of them need builds of their own and are left out");
    }
    let unchanged = record.files_unchanged(root)?;
    let (known, new) = by_what_they_say(verdicts.survivors(&drawn), &unchanged);
    print_survivors(&known, &verdicts);
    if !new.is_empty() {
        println!("mutants: survivors in files that changed since they were through, no failure:");
        print_survivors(&new, &verdicts);
    }
    println!("mutants: {}", verdicts.sum(drawn.len()));
    if known.is_empty() {
        return Ok(Outcome::InOrder);
    }
    println!("mutants: a test was weakened: these were killed when their file was last through.");
    println!("mutants: again: cargo xtask mutants {}", request.again(count, seed));
    Ok(Outcome::NotInOrder)
}

/// Parts survivors of a sample: first those that say that a test was weakened, then those of files
/// that changed, whose mutants nobody has seen yet.
fn by_what_they_say<'a>(
    survivors: Vec<&'a Mutant>,
    unchanged: &BTreeSet<String>,
) -> (Vec<&'a Mutant>, Vec<&'a Mutant>) {
    survivors.into_iter().partition(|one| unchanged.contains(&one.file))
}

/// Goes through whole files, package by package, as far as the time reaches.
fn run_files(
    root: &Path,
    request: &Request,
    mutants: &[Mutant],
    record: &mut Record,
    deadline: Instant,
) -> Result<Outcome> {
    let mut outcome = Outcome::InOrder;
    let mut left = 0;
    let files = files_to_do(root, request, mutants, record)?;
    for part in &SCOPE {
        let of_part: Vec<&Mutant> = mutants
            .iter()
            .filter(|one| one.package == part.package && files.contains(&one.file))
            .collect();
        if of_part.is_empty() {
            continue;
        }
        left += run_package(root, part.package, &of_part, record, deadline, &mut outcome)?;
    }
    if left > 0 {
        println!("mutants: {left} files not done in {} minutes; run it again", request.minutes);
    }
    Ok(outcome)
}

/// Goes through files of one package, and tells how many are not done when the time is over.
fn run_package(
    root: &Path,
    package: &str,
    mutants: &[&Mutant],
    record: &mut Record,
    deadline: Instant,
    outcome: &mut Outcome,
) -> Result<usize> {
    let mut files: Vec<&str> = mutants.iter().map(|one| one.file.as_str()).collect();
    files.dedup();
    let Some(schema) = Schema::build(root, package, mutants, deadline)? else {
        return Ok(files.len());
    };
    let mut left = 0;
    let mut end = |file: &str, verdicts: &Verdicts, record: &mut Record| -> Result<()> {
        let of_file: Vec<&Mutant> =
            mutants.iter().copied().filter(|one| one.file == file).collect();
        let verdicts = verdicts.of(&of_file);
        left += usize::from(verdicts.reached() < of_file.len());
        if end_file(root, file, &of_file, &verdicts, record)? == Outcome::NotInOrder {
            *outcome = Outcome::NotInOrder;
        }
        Ok(())
    };
    let mut waiting = Verdicts::default();
    let alone = schema.alone(&files);
    for file in &files {
        let verdicts = schema.judge(&[file], deadline)?;
        print_unexplained(mutants, &verdicts, record);
        if alone.iter().any(|one| one.file == *file) {
            waiting.add(verdicts);
        } else {
            end(file, &verdicts, record)?;
        }
    }
    if !alone.is_empty() && Instant::now() < deadline {
        println!("mutants: {package}: {} more, in builds of their own", alone.len());
        let verdicts = tool::judge(root, &alone, deadline)?;
        print_unexplained(mutants, &verdicts, record);
        waiting.add(verdicts);
    }
    for file in files.iter().filter(|file| alone.iter().any(|one| one.file == **file)) {
        end(file, &waiting, record)?;
    }
    Ok(left)
}

fn print_unexplained(mutants: &[&Mutant], verdicts: &Verdicts, record: &Record) {
    let mut survivors = verdicts.survivors(mutants);
    survivors.retain(|one| !record.is_accepted(one));
    print_survivors(&survivors, verdicts);
}

/// Tells what came of the mutants of one file, and writes it down when it is through.
fn end_file(
    root: &Path,
    file: &str,
    of_file: &[&Mutant],
    verdicts: &Verdicts,
    record: &mut Record,
) -> Result<Outcome> {
    let survivors = verdicts.survivors(of_file);
    let (accepted, unexplained): (Vec<&Mutant>, Vec<&Mutant>) =
        survivors.into_iter().partition(|one| record.is_accepted(one));
    let explained = accepted.len();
    println!("mutants: {file}: {}, {explained} explained", verdicts.sum(of_file.len()));
    let needless = killed_though_accepted(verdicts, of_file, record);
    for one in &needless {
        println!("{RECORD}: `{}` is killed and needs no reason any more", one.key);
    }
    if unexplained.is_empty() && verdicts.reached() == of_file.len() {
        record.put_through(root, file)?;
    }
    let is_in_order = unexplained.is_empty() && needless.is_empty();
    Ok(if is_in_order { Outcome::InOrder } else { Outcome::NotInOrder })
}

/// The files that are to be mutated whole: those named, or all that are not through as they are.
fn files_to_do(
    root: &Path,
    request: &Request,
    mutants: &[Mutant],
    record: &Record,
) -> Result<Vec<String>> {
    let through = record.files_unchanged(root)?;
    let mut seen = BTreeSet::new();
    let mut files = Vec::new();
    for one in mutants.iter().filter(|one| request.takes(&one.file)) {
        let is_due = !request.files.is_empty() || !through.contains(&one.file);
        if is_due && seen.insert(&one.file) {
            files.push(one.file.clone());
        }
    }
    Ok(files)
}

fn killed_though_accepted<'a>(
    verdicts: &Verdicts,
    of_file: &[&'a Mutant],
    record: &Record,
) -> Vec<&'a Mutant> {
    let accepted = of_file.iter().copied().filter(|one| record.is_accepted(one));
    accepted.filter(|one| verdicts.killed.contains(&one.name)).collect()
}

/// Prints each with file, line and column, as cargo-mutants names it.
fn print_survivors(survivors: &[&Mutant], verdicts: &Verdicts) {
    for one in survivors {
        let unmet = if verdicts.unmet.contains(&one.name) { " (no test runs it)" } else { "" };
        println!("mutants: survived: {}{unmet}", one.name);
        println!("mutants:   as `{}` in {RECORD}, if it cannot be killed", one.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case of a random gate: a change of another file must not fail for what it did not touch.
    #[test]
    fn a_survivor_of_a_sample_fails_it_only_where_the_file_is_as_it_was() {
        let names = ["a.rs:1:1: delete ! in f", "b.rs:1:1: delete ! in f"].map(str::to_owned);
        let all = tool::with_keys(names);
        let unchanged = BTreeSet::from(["a.rs".to_owned()]);
        let (weakened, new) = by_what_they_say(all.iter().collect(), &unchanged);
        assert_eq!((weakened, new), (vec![&all[0]], vec![&all[1]]));
    }

    #[test]
    fn a_killed_mutant_needs_no_reason_any_more() {
        let all = tool::with_keys(["a.rs:1:1: delete ! in f".to_owned()]);
        let of_file: Vec<&Mutant> = all.iter().collect();
        let text = "survivor a.rs: delete ! in f\n    Both answers are the same here.\n";
        let record = Record::of(text).unwrap();
        let mut verdicts = Verdicts::default();
        assert!(killed_though_accepted(&verdicts, &of_file, &record).is_empty());
        verdicts.killed.insert(all[0].name.clone());
        assert_eq!(killed_though_accepted(&verdicts, &of_file, &record), of_file);
    }
}
