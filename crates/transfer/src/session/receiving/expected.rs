//! Check that a server brings the sources that a client asked for: each of them, and no others.

use super::context::Context;
use crate::{events::Event, problem::Problem};
use haul_protocol::message::{Fault, FaultCode, FileOffer, Side};

/// A source that was asked for, by the first component of its name.
#[derive(Debug)]
pub struct Expected {
    pub name: Vec<u8>,
    pub has_come: bool,
}

/// Refuses what nobody asked for, which a server may not bring. `None`: any name may come.
pub(super) fn expect(expected: Option<&mut [Expected]>, offer: &FileOffer) -> Result<(), Fault> {
    let first = offer.name.split(|&byte| byte == b'/').next().unwrap_or_default();
    let Some(expected) = expected else { return Ok(()) };
    let Some(expected) = expected.iter_mut().find(|expected| expected.name == first) else {
        let what = "was offered and never asked for";
        let fault = Fault::new(FaultCode::NameRefused, Side::Source, what);
        return Err(fault.at(offer.name.clone()).hint("do not trust this server"));
    };
    expected.has_come = true;
    Ok(())
}

/// Fails the sources that were asked for and neither offered nor said to be missing.
pub(super) fn find_missing(expected: Option<&[Expected]>, context: &mut Context<'_>) {
    if context.tally.failed_files > 0 {
        return;
    }
    for missing in expected.unwrap_or_default() {
        if missing.has_come || context.moved_earlier.has(&missing.name) {
            continue;
        }
        let what = "was asked for and not offered";
        let fault = Fault::new(FaultCode::IoFailed, Side::Source, what);
        let problem = Problem::of_file(&fault, &missing.name);
        context.tally.failed_files += 1;
        context.tally.first_problem.get_or_insert_with(|| problem.clone());
        context.tell(Event::Error(problem));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        session::{moved_earlier::MovedEarlier, receiving::without_peer::begin},
        storage::target_place::TargetPlace,
    };
    use std::hash::{BuildHasher, RandomState};

    fn asked_for(names: &[&str]) -> Vec<Expected> {
        let expected = |name: &&str| Expected { name: name.as_bytes().to_vec(), has_come: false };
        names.iter().map(expected).collect()
    }

    fn offer(name: &str) -> FileOffer {
        FileOffer { name: name.as_bytes().to_vec(), ..FileOffer::default() }
    }

    #[test]
    fn a_server_brings_what_was_asked_for_and_what_is_below_it_and_nothing_else() {
        let mut asked = asked_for(&["tree", "file"]);
        expect(Some(&mut asked), &offer("tree/leaf/x")).unwrap();
        assert_eq!([&asked[0], &asked[1]].map(|it| it.has_come), [true, false]);
        expect(Some(&mut asked), &offer("file")).unwrap();
        assert!(asked[1].has_come);
        for name in ["treetop", "tre", "other/tree", ""] {
            let fault = expect(Some(&mut asked), &offer(name)).unwrap_err();
            assert_eq!((fault.code, &*fault.path), (FaultCode::NameRefused, name.as_bytes()));
        }
        expect(None, &offer("anything")).unwrap();
    }

    /// Names that fail as missing, of three: one came, one was moved by an earlier session.
    fn missing(expected: Option<&[Expected]>, failed_before: u64) -> Vec<String> {
        let mut told = Vec::new();
        let mut hear = |event| {
            if let Event::Error(problem) = event {
                told.push(problem.to_string());
            }
        };
        let mut context = begin(TargetPlace::Null, &mut hear).context;
        let hashes = RandomState::new();
        let names = [hashes.hash_one(b"moved".as_slice())].into();
        context.moved_earlier = MovedEarlier { hashes, names, sources: Vec::new() };
        context.tally.failed_files = failed_before;
        find_missing(expected, &mut context);
        let failed_files = context.tally.failed_files;
        let first = context.tally.first_problem.take().map(|problem| problem.to_string());
        drop(context);
        assert_eq!(
            (failed_files - failed_before, &first),
            (told.len() as u64, &told.first().cloned())
        );
        told
    }

    #[test]
    fn what_was_asked_for_and_never_came_fails_unless_a_failure_was_told() {
        let mut asked = asked_for(&["came", "lost", "moved"]);
        asked[0].has_come = true;
        let told = missing(Some(&asked), 0);
        assert!(told.len() == 1 && told[0].contains("lost"), "{told:?}");
        assert_eq!(missing(Some(&asked), 1), [""; 0], "the sender has said what is missing");
        assert_eq!(missing(None, 0), [""; 0]);
    }
}
