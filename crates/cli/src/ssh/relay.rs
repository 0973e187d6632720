//! The near end of a copy between two other machines: it starts both, and hears how it goes.
//!
//! The machine that has the files runs an ordinary push to the server that ssh has begun at the
//! other one. Its events come here through ssh, and the bytes of files only where no connection
//! between both can be made (`Bridge`). The machine that sends ends with its ssh: nobody would
//! hear of its failures.

use super::{
    bridge::Bridge,
    direct_host::KnownHost,
    led::{self, Place},
    messages::{Answer, Come, PushEnded},
    near_end::{self, Heard, NearEnd, Wanted},
    ports::Ports,
    problem,
    program::SshProgram,
    send_order::SendOrder,
    troubles,
    ways::Way,
};
use haul_transfer::{Event, Interrupt, Name, Problem, Report, Side, TransferError};
use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

/// Interval at which what is heard is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time for a push that was told to end to say how far it came.
const END_WAIT_MAX: Duration = Duration::from_secs(20);
/// Time that a target may take nothing of what goes through ssh, where a shorter time is named in
/// which to get back to it.
const HELD_MIN: Duration = Duration::from_secs(5);
/// Words on what to do when ssh ended early.
const GOES_ON: &str = "what arrived stays at the target: the same command goes on there";

/// A machine that sends to another.
#[derive(Debug)]
pub struct Relay {
    near: NearEnd,
    heard: mpsc::Receiver<Heard>,
    /// The target's server in the URL of the machine that sends.
    server: String,
    /// The target as the user calls it.
    target: String,
    /// The way of the data by both ssh, where there is no other.
    bridge: Option<Arc<Bridge>>,
}

impl Relay {
    /// Runs ssh and waits until haul there has found a way to the target's server. Where that is no
    /// connection from there, the target comes, or data goes by both ssh. What is known here of the
    /// machine was asked for before, as one that listens waits for seconds only.
    ///
    /// # Errors
    /// If ssh fails, haul is not there or cannot begin, or finds no way to the target.
    pub fn start(
        program: &SshProgram,
        (wanted, known): (Wanted, KnownHost),
        order: SendOrder,
        target: &mut NearEnd,
        interrupt: &Interrupt,
    ) -> Result<Self, TransferError> {
        let ways = order.other_ways;
        let ports = ways.and_then(|ways| ways.ports);
        let may_go = |way| ways.is_some_and(|ways| [Way::Any, way].contains(&ways.way));
        let mut request = near_end::request(&wanted).map_err(TransferError::start)?;
        request.send = Some(order);
        let (mut near, heard, mut answer) = NearEnd::begin(program, wanted, &request, interrupt)?;
        let may_connect = ways.is_none_or(|ways| ways.way == Way::Any);
        let (mut has_listened, mut bridge) = (false, None);
        loop {
            let goes_otherwise = has_listened || bridge.is_some();
            match answer {
                // A way that the user has named is that way and no other.
                Answer::Sending { server } if may_connect || goes_otherwise => {
                    if bridge.is_none() {
                        target.carries_nothing();
                    }
                    let target = target.login().to_string();
                    return Ok(Self { near, heard, server, target, bridge });
                }
                // Each is said once, and in this order.
                Answer::Listens(come) if may_go(Way::Reverse) && !goes_otherwise => {
                    has_listened = true;
                    let sender = Place::new(&come.addresses, known.clone());
                    let found = led::addresses(&sender, target.place(), (come.port, ports));
                    let come = elsewhere(come, found, ports);
                    come.into_iter().for_each(|come| target.have_it_come_to(come));
                }
                Answer::Channels {} if may_go(Way::ThroughSsh) && bridge.is_none() => {
                    bridge = Some(target.carry_for(&mut near)?);
                }
                Answer::Refused(refusal) => {
                    let problem = troubles::refused(near.login(), refusal);
                    return Err(TransferError::start(problem));
                }
                _ => return Err(near.odd("no push", "")),
            }
            answer = near.wait_for_answer(program, &heard, interrupt)?;
        }
    }

    /// The target's server as the machine that sends calls it.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Tells the events of the push there until its end.
    ///
    /// # Errors
    /// Those of the push, and ssh's end before it.
    pub fn run(
        mut self,
        interrupt: &Interrupt,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Report, TransferError> {
        self.near.installed().into_iter().for_each(&mut *tell);
        let mut told_to_end: Option<Instant> = None;
        let mut told_errors = false;
        loop {
            match self.heard.recv_timeout(LOOK_EVERY) {
                Ok(Heard { answer: Ok(Answer::Told(event)), .. }) => {
                    // A newer haul may have events that this one does not know.
                    if let Ok(event) = serde_json::from_value(event) {
                        told_errors |= matches!(event, Event::Error(_));
                        tell(event);
                    }
                }
                Ok(Heard { answer: Ok(Answer::Ended(ended)), .. }) => {
                    return self.ended(*ended, told_errors, interrupt);
                }
                Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(self.lost(interrupt));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let held = self.bridge.as_ref().map_or(Duration::ZERO, |one| one.held_for());
                    if held > self.near.retry_for().max(HELD_MIN) {
                        let what = format!("{} takes nothing any more", self.target);
                        let needs = "haul there, and ssh to it, as data goes through it";
                        let found = format!("no byte in {} s", held.as_secs());
                        return Err(TransferError::broken(problem(&what, needs, &found, GOES_ON)));
                    }
                }
            }
            match told_to_end {
                None if interrupt.load(Ordering::Relaxed) => {
                    self.near.say_through();
                    told_to_end = Some(Instant::now());
                }
                Some(since) if since.elapsed() > END_WAIT_MAX => {
                    return Err(TransferError::interrupted());
                }
                _ => {}
            }
        }
    }

    /// The result of the push. An error that was told before keeps its words. A target whose ssh an
    /// interruption has ended is no news beside it.
    fn ended(
        &self,
        ended: PushEnded,
        told_errors: bool,
        interrupt: &Interrupt,
    ) -> Result<Report, TransferError> {
        let unread = |error: serde_json::Error| self.near.odd(&error.to_string(), "");
        let read = |value| {
            let mut problem = serde_json::from_value::<Problem>(value).map_err(unread)?;
            if !told_errors && problem.side == Side::Session {
                problem.what = format!("{}: {}", self.near.login(), problem.what);
            }
            Ok(problem)
        };
        match ended {
            PushEnded::Done(report) => {
                let mut report: Report = serde_json::from_value(report).map_err(unread)?;
                let costs = self.bridge.as_ref().and_then(|bridge| bridge.costs_in_words());
                report.way.extend(costs.map(|words| format!("; {words}")));
                let from = format!("{}:", self.near.login()).into_bytes();
                report.from = Name([from, report.from.0].concat());
                Ok(report)
            }
            PushEnded::NotStarted(_) | PushEnded::Broken(_)
                if interrupt.load(Ordering::Relaxed) && self.over().is_some() =>
            {
                Err(TransferError::interrupted())
            }
            PushEnded::NotStarted(problem) => Err(match self.over() {
                Some(lost) => TransferError::Unavailable(Box::new(lost)),
                None => TransferError::start(read(problem)?),
            }),
            PushEnded::Broken(problem) => Err(TransferError::broken(match self.over() {
                Some(lost) => lost,
                None => read(problem)?,
            })),
            PushEnded::Interrupted => Err(TransferError::interrupted()),
        }
    }

    /// The problem of a target whose ssh had the data, where it has ended.
    fn over(&self) -> Option<Problem> {
        let found = self.bridge.as_ref()?.over()?;
        Some(self.lost_target(&found))
    }

    /// The problem of a target whose ssh had the data, and ended.
    fn lost_target(&self, found: &str) -> Problem {
        let what = format!("ssh to {} ended in the middle of the copy", self.target);
        let needs = "ssh to both until the end, as data goes through it";
        problem(&what, needs, found, GOES_ON)
    }

    /// The error of a machine that sends which says no more. What interrupts haul may end ssh, too,
    /// as a signal to a group of processes does, and is heard of in either order.
    fn lost(&mut self, interrupt: &Interrupt) -> TransferError {
        let how = self.near.wait(END_WAIT_MAX / 10);
        if interrupt.load(Ordering::Relaxed) {
            return TransferError::interrupted();
        }
        let how = how.map_or_else(|| "it said no more".to_owned(), troubles::ended);
        let what = format!("ssh to {} ended in the middle of the copy", self.near.login());
        let found = format!("{how}; haul there ends with it");
        TransferError::broken(problem(&what, "ssh until the end", &found, GOES_ON))
    }
}

/// The order by which the target comes to a machine that listens, by addresses and a port to which
/// that machine may lead it.
fn elsewhere(come: Come, found: Vec<IpAddr>, ports: Option<Ports>) -> Option<Come> {
    let addresses: Vec<String> = found.iter().map(IpAddr::to_string).collect();
    let is_meant = led::may_have_port(come.port, ports) && !addresses.is_empty();
    is_meant.then_some(Come { addresses, is_elsewhere: true, ..come })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_comes_by_addresses_that_it_may_be_led_to_or_not_at_all() {
        let come = |port| Come {
            port,
            addresses: vec!["10.0.0.5".into()],
            secret: String::new(),
            is_elsewhere: false,
        };
        let found = vec!["192.0.2.7".parse::<IpAddr>().unwrap()];
        let led = elsewhere(come(50_000), found.clone(), None).unwrap();
        assert_eq!((&led.addresses[..], led.is_elsewhere), (&["192.0.2.7".to_owned()][..], true));
        assert!(elsewhere(come(50_000), Vec::new(), None).is_none());
        assert!(elsewhere(come(25), found.clone(), None).is_none());
        let ports = Some(Ports { first: 20, last: 30 });
        assert_eq!(elsewhere(come(25), found, ports).unwrap().port, 25);
    }
}
