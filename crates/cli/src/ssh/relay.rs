//! The near end of a copy between two other machines: it starts both, and hears how it goes.
//!
//! The machine that has the files runs an ordinary push to the server that ssh has begun at the
//! other one. Its events come here through ssh, and the bytes of files only where no connection
//! between both can be made (`Bridge`). The machine that sends ends with its ssh: nobody would
//! hear of its failures.

use super::{
    bridge::Bridge,
    direct_host::KnownHost,
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
/// Ports below this one are for services of the system, to which no machine is led by another.
const PORT_MIN: u16 = 1024;
/// Words on what to do when ssh ended early.
const GOES_ON: &str = "what arrived stays at the target: the same command goes on there";
/// Most addresses of a machine that listens.
const ADDRESSES_MAX: usize = 32;

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
    /// connection from there, the target comes, or data goes by both ssh.
    ///
    /// # Errors
    /// If ssh fails, haul is not there or cannot begin, or finds no way to the target.
    pub fn start(
        program: &SshProgram,
        wanted: Wanted,
        order: SendOrder,
        target: &mut NearEnd,
        interrupt: &Interrupt,
    ) -> Result<Self, TransferError> {
        let ways = order.other_ways;
        let ports = ways.and_then(|ways| ways.ports);
        let may_go = |way| ways.is_some_and(|ways| [Way::Any, way].contains(&ways.way));
        // A machine that listens waits for seconds only.
        let known = KnownHost::of(program, &wanted.login);
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
                    let found = [&known, target.known()].map(KnownHost::addresses);
                    let come = elsewhere(come, &found, ports);
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

/// The order by which the target comes to a machine that listens. Its words are those of another
/// machine, and must not lead the target to a service of its own or of its system. `found` has the
/// addresses by which ssh comes to that machine, and to the target.
fn elsewhere(come: Come, found: &[Vec<IpAddr>; 2], ports: Option<Ports>) -> Option<Come> {
    let is_asked_for = ports.is_some_and(|ports| (ports.first..=ports.last).contains(&come.port));
    let told: Vec<IpAddr> = come.addresses.iter().filter_map(|text| text.parse().ok()).collect();
    let all_are_here = found.iter().all(|found| found.iter().any(IpAddr::is_loopback));
    let may_be = |address: &IpAddr| {
        let address = address.to_canonical();
        let leads_home = address.is_loopback() || address.is_unspecified();
        !address.is_multicast() && (all_are_here || !leads_home)
    };
    let first = told.iter().take(1);
    let mut addresses: Vec<String> = Vec::new();
    for address in first.chain(&found[0]).chain(told.iter().skip(1)).filter(|one| may_be(one)) {
        let address = address.to_string();
        if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    let is_meant = (come.port >= PORT_MIN || is_asked_for) && !addresses.is_empty();
    is_meant.then_some(Come { addresses, is_elsewhere: true, ..come })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine that sends may be of an enemy.
    #[test]
    fn a_machine_that_listens_leads_the_target_to_no_service_of_its_own() {
        let come = |port, addresses: &[&str]| Come {
            port,
            addresses: addresses.iter().map(ToString::to_string).collect(),
            secret: String::new(),
            is_elsewhere: false,
        };
        let of = |text: &str| vec![text.parse::<IpAddr>().unwrap()];
        let ssh = [of("192.0.2.7"), of("127.0.0.1")];
        let told = ["10.0.0.5", "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "x", "10.0.0.6"];
        let led = elsewhere(come(50_000, &told), &ssh, None).unwrap();
        assert_eq!(led.addresses, ["10.0.0.5", "192.0.2.7", "10.0.0.6"]);
        assert!(led.is_elsewhere);
        assert!(elsewhere(come(50_000, &["127.0.0.1", "::"]), &Default::default(), None).is_none());
        assert!(elsewhere(come(25, &told), &ssh, None).is_none());
        let ports = Some(Ports { first: 20, last: 30 });
        assert_eq!(elsewhere(come(25, &told), &ssh, ports).unwrap().port, 25);
        // One that is reached by a tunnel here, and three that are one machine.
        let tunnel = [of("127.0.0.1"), of("192.0.2.8")];
        assert!(elsewhere(come(50_000, &["::1"]), &tunnel, None).is_none());
        let here = [of("127.0.0.1"), of("127.0.0.1")];
        assert_eq!(elsewhere(come(50_000, &["::1"]), &here, None).unwrap().addresses.len(), 2);
    }
}
