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
