//! `--explain`, for people: facts, candidates and the choice of each side, and of the path.

use haul_report::printable::printable;
use haul_transfer::{Candidate, Event, Explained, Side};

/// Lines of an explanation, if the event is one.
///
/// ```text
/// source  1.2 GiB on ext4, 100 % of it in the page cache, a digest of each byte
///         Linux 6.18, 2 cores, ...
///       * sendfile    page cache to socket inside the kernel
///         splice      file to socket and socket to file through a pipe inside the kernel
///         chosen: 100 % of the source is in the page cache, so ...
/// ```
#[must_use]
pub fn block(event: &Event) -> Option<String> {
    let Event::Explained(explained) = event else { return None };
    let name = match explained.side {
        Side::Source => "source",
        Side::Target => "target",
        Side::Path | Side::Session => "path",
    };
    let mut lines: Vec<String> = explained.facts.iter().map(|fact| indented(fact)).collect();
    lines.extend(candidates(explained));
    lines.extend(explained.because.iter().map(|why| indented(&format!("chosen: {why}"))));
    if let Some(first) = lines.first_mut() {
        first.replace_range(..name.len(), name);
    }
    Some(lines.join("\n"))
}

fn indented(text: &str) -> String {
    format!("        {}", printable(text))
}

fn candidates(explained: &Explained) -> impl Iterator<Item = String> + '_ {
    let width = explained.candidates.iter().map(|c| c.engine.chars().count()).max().unwrap_or(0);
    let chosen = explained.candidates.iter().position(|candidate| candidate.usable);
    let line = move |(at, candidate): (usize, &Candidate)| {
        let mark = if Some(at) == chosen { '*' } else { ' ' };
        let Candidate { engine, usable, what, .. } = candidate;
        let cannot = if *usable { "" } else { "cannot be used: " };
        format!("      {mark} {:<width$}  {cannot}{}", printable(engine), printable(what))
    };
    explained.candidates.iter().enumerate().map(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::filled;

    #[test]
    fn the_first_usable_candidate_is_marked() {
        let candidate = |engine: &str, usable, what: &str| {
            filled!(Candidate {
                engine: engine.into(),
                usable,
                what: what.into(),
                ..Candidate::default()
            })
        };
        let event = Event::Explained(filled!(Explained {
            side: Side::Target,
            facts: vec!["1 GiB to ext4".into(), "Linux 5.10".into()],
            candidates: vec![
                candidate("dontcache", false, "needs Linux 6.14, found 5.10"),
                candidate("direct", true, "O_DIRECT"),
                candidate("read-write", true, "works everywhere"),
            ],
            because: vec!["1 GiB go to ext4".into()],
            ..Explained::default()
        }));
        assert_eq!(
            block(&event).unwrap(),
            "target  1 GiB to ext4\n        Linux 5.10\n        \
             dontcache   cannot be used: needs Linux 6.14, found 5.10\n      \
             * direct      O_DIRECT\n        \
             read-write  works everywhere\n        chosen: 1 GiB go to ext4"
        );
    }
}
