//! Options of a transfer that do not go together: refused before anything starts.
//!
//! The command line refuses most of them by its own words, earlier. Here they are refused whoever
//! calls, for some of them would lose files.

use crate::{
    error::{TransferError, problem},
    file_options::OnConflict,
    options::{ClearDigest, Protection, TransferOptions},
    selection::Rule,
};
use haul_protocol::{
    limits,
    message::{Digest, Direction},
};

/// Checks that each option can be done beside the others.
///
/// # Errors
/// Names the option, what it needs, and what was found.
pub(crate) fn check(options: &TransferOptions, direction: Direction) -> Result<(), TransferError> {
    let conflicts = [
        removing(options),
        moving(options),
        recording(options),
        ranges(options),
        numbers(options),
        pulling(options, direction),
    ];
    let Some([what, needs, found]) = conflicts.into_iter().flatten().next() else { return Ok(()) };
    let what = format!("cannot take {what}");
    Err(TransferError::start(problem(&what, needs, found, "change it or leave one of them out")))
}

/// An option that cannot be done, what it needs, and what was found.
type Conflict = Option<[&'static str; 3]>;

fn removing(options: &TransferOptions) -> Conflict {
    let removal = options.file_options.removal?;
    if removal.names_max == Some(0) {
        // On the wire 0 is no limit at all.
        return Some(["a removal of at most 0 names", "a number of names, or no limit", "0"]);
    }
    if options.selection.names.is_some() {
        let needs = "sources that are all meant: what is not in a list would be removed";
        return Some(["a removal", needs, "a list of names"]);
    }
    if options.selection.part.is_some() {
        let needs = "sources that are all meant: what other parts bring would be removed";
        return Some(["a removal", needs, "a part of the names"]);
    }
    None
}

fn pulling(options: &TransferOptions, direction: Direction) -> Conflict {
    let needs = "a push: a server lists all that it is asked for";
    if direction == Direction::Push {
        return None;
    }
    let selection = &options.selection;
    let asked = [
        (selection.part.is_some(), "a part of the names"),
        (selection.names_alone, "names without what is below them"),
        (selection.ranges.is_some(), "ranges of files"),
    ];
    asked.iter().find(|(is_asked, _)| *is_asked).map(|(_, what)| [*what, needs, "a pull"])
}

/// Conflicts of files that come in ranges: no session has all of one.
fn ranges(options: &TransferOptions) -> Conflict {
    let file = options.file_options;
    let recording = file.recording;
    let asked = [
        (options.manifest.is_some(), "a manifest"),
        (file.compare_content, "comparing contents"),
        (file.move_sources, "a move"),
        (file.on_conflict == OnConflict::KeepBoth, "keeping both files"),
        (file.on_conflict == OnConflict::Replace, "replacing even what is the same"),
        (recording.follow || recording.watch, "follow or watch"),
        (options.chosen_digest() == Digest::None, "digest none"),
    ];
    let found = asked.iter().find(|(is_asked, _)| *is_asked).map(|(_, what)| *what)?;
    options.selection.ranges.as_ref()?;
    Some(["ranges of files", "a shard of whole files (haul plan --whole-files)", found])
}

fn moving(options: &TransferOptions) -> Conflict {
    let is_verified = options.chosen_digest() != Digest::None;
    if !options.file_options.move_sources || is_verified {
        return None;
    }
    Some(["a move", "bytes that are verified before their source is removed", "digest none"])
}

fn recording(options: &TransferOptions) -> Conflict {
    let file = options.file_options;
    let recording = file.recording;
    let either = [
        (file.removal.is_some(), "a removal"),
        (file.dry_run, "a dry run"),
        (file.preflight, "a preflight"),
        (file.move_sources, "a move"),
        (options.manifest.is_some(), "a manifest"),
    ];
    let followed =
        [(file.compare_content, "comparing contents"), (options.verify_target, "verify target")];
    let watched = [(options.selection.names.is_some(), "a list of names")];
    let found = |list: &[(bool, &'static str)]| list.iter().find(|one| one.0).map(|one| one.1);
    if recording.follow
        && let Some(found) = found(&either).or_else(|| found(&followed))
    {
        return Some(["follow", "files that are done once they have arrived", found]);
    }
    if recording.watch
        && let Some(found) = found(&either).or_else(|| found(&watched))
    {
        return Some(["watch", "a transfer that has no end", found]);
    }
    if (recording.follow || recording.watch) && recording.idle.as_millis() == 0 {
        return Some(["follow or watch", "an idle time of 1 ms at least", "less"]);
    }
    None
}

fn numbers(options: &TransferOptions) -> Conflict {
    if options.protection == Protection::Private {
        if options.rdma.is_some() {
            return Some(["private data streams", "TCP, which TLS goes over", "RDMA endpoints"]);
        }
        if options.digest == Some(ClearDigest::None) {
            return Some(["private data streams", "a digest of each span", "digest none"]);
        }
    }
    let is_long = |rule: &Rule| rule.pattern.len() > limits::NAME_BYTES_MAX;
    if options.selection.rules.iter().any(is_long) {
        return Some(["a pattern", "at most 4095 bytes", "a longer one"]);
    }
    match (options.streams, options.rate_bytes_per_s) {
        (Some(streams), _) if !(1..=limits::STREAMS_MAX).contains(&streams) => {
            Some(["this number of streams", "1 to 64, or none to let haul choose", "another"])
        }
        (_, Some(0)) => Some(["a rate of 0", "a rate, or none for no limit", "0"]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file_options::Removal, options::Rdma, packed_names::PackedNames, part::Part};
    use std::sync::Arc;

    #[test]
    fn options_that_would_lose_files_or_never_end_are_refused_with_both_names() {
        type Change = fn(&mut TransferOptions);
        let removal = |options: &mut TransferOptions| {
            options.file_options.removal = Some(Removal::new(None));
        };
        check(&TransferOptions::default(), Direction::Push).expect("the default");
        let cases: [(&str, &str, Change); 13] = [
            ("a removal of at most 0", "found 0", |o| {
                o.file_options.removal = Some(Removal::new(Some(0)));
            }),
            ("a removal", "a list of names", |o| {
                o.file_options.removal = Some(Removal::new(None));
                o.selection.names = Some(Arc::new(PackedNames::default()));
            }),
            ("a removal", "a part of the names", |o| {
                o.file_options.removal = Some(Removal::new(None));
                o.selection.part = Part::new(1, 2).ok();
            }),
            ("a move", "digest none", |o| {
                o.file_options.move_sources = true;
                o.protection = Protection::Clear;
                o.digest = Some(ClearDigest::None);
            }),
            ("private data streams", "RDMA endpoints", |o| {
                o.protection = Protection::Private;
                o.rdma = Some(Rdma::Auto);
            }),
            ("private data streams", "digest none", |o| {
                o.protection = Protection::Private;
                o.digest = Some(ClearDigest::None);
            }),
            ("follow", "a move", |o| {
                o.file_options.recording.follow = true;
                o.file_options.move_sources = true;
            }),
            ("follow", "verify target", |o| {
                o.file_options.recording.follow = true;
                o.verify_target = true;
            }),
            ("watch", "a dry run", |o| {
                o.file_options.recording.watch = true;
                o.file_options.dry_run = true;
            }),
            ("watch", "a list of names", |o| {
                o.file_options.recording.watch = true;
                o.selection.names = Some(Arc::new(PackedNames::default()));
            }),
            ("follow or watch", "less", |o| {
                o.file_options.recording.watch = true;
                o.file_options.recording.idle = std::time::Duration::ZERO;
            }),
            ("streams", "another", |o| o.streams = Some(0)),
            ("a rate of 0", "0", |o| o.rate_bytes_per_s = Some(0)),
        ];
        for (what, found, change) in cases {
            let mut options = TransferOptions::default();
            change(&mut options);
            let error = check(&options, Direction::Push).expect_err(what).to_string();
            assert!(error.contains(what) && error.contains(found), "{error}");
        }
        let mut allowed = TransferOptions::default();
        removal(&mut allowed);
        allowed.file_options.move_sources = true;
        check(&allowed, Direction::Push).expect("a verified move that mirrors");
    }

    #[test]
    fn a_part_and_names_alone_are_pushed_and_not_pulled() {
        let mut part = TransferOptions::default();
        part.selection.part = Part::new(1, 2).ok();
        let mut alone = TransferOptions::default();
        alone.selection.names_alone = true;
        for options in [part, alone] {
            check(&options, Direction::Push).expect("a push");
            let error = check(&options, Direction::Pull).expect_err("a pull").to_string();
            assert!(error.contains("needs a push"), "{error}");
        }
    }
}
