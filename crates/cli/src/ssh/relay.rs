//! The near end of a copy between two other machines: it starts both, and hears how it goes.
//!
//! The machine that has the files runs an ordinary push to the server that ssh has begun at the
//! other one. Its events come here through ssh, and not a byte of a file does. The machine that
//! sends ends with its ssh: nobody would hear of its failures.

use super::{
    frame::THROUGH,
    messages::{Answer, PushEnded},
    near_end::{self, Heard, NearEnd, Wanted},
    problem,
    program::SshProgram,
    send_order::SendOrder,
    troubles,
};
use haul_transfer::{Event, Interrupt, Name, Problem, Report, Side, TransferError};
use std::{
    net::SocketAddr,
    sync::{atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

/// Interval at which what is heard is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time for a push that was told to end to say how far it came.
const END_WAIT_MAX: Duration = Duration::from_secs(20);

/// A machine that sends to another.
#[derive(Debug)]
pub struct Relay {
    near: NearEnd,
    heard: mpsc::Receiver<Heard>,
    /// Address of the target's server that it has reached.
    server: Option<SocketAddr>,
}

impl Relay {
    /// Runs ssh and waits until haul there has found the target's server.
    ///
    /// # Errors
    /// If ssh fails, haul is not there or cannot begin, or finds no way to the target.
    pub fn start(
        program: &SshProgram,
        wanted: Wanted,
        order: SendOrder,
        interrupt: &Interrupt,
    ) -> Result<Self, TransferError> {
        let mut request = near_end::request(&wanted).map_err(TransferError::start)?;
        request.send = Some(order);
        let (near, heard, answer) = NearEnd::begin(program, wanted, &request, interrupt)?;
        match answer {
            Answer::Sending { server } => Ok(Self { near, heard, server: server.parse().ok() }),
            _ => Err(near.odd("no push", "")),
        }
    }

    /// Address of the target's server that was reached.
    #[must_use]
    pub fn server(&self) -> Option<SocketAddr> {
        self.server
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
                    return self.ended(*ended, told_errors);
                }
                Ok(_) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(self.lost(told_to_end.is_some()));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            match told_to_end {
                None if interrupt.load(Ordering::Relaxed) => {
                    self.near.say(&[THROUGH]);
                    told_to_end = Some(Instant::now());
                }
                Some(since) if since.elapsed() > END_WAIT_MAX => {
                    return Err(TransferError::interrupted());
                }
                _ => {}
            }
        }
    }

    /// The result of the push. An error that was told before keeps its words.
    fn ended(&self, ended: PushEnded, told_errors: bool) -> Result<Report, TransferError> {
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
                let from = format!("{}:", self.near.login()).into_bytes();
                report.from = Name([from, report.from.0].concat());
                Ok(report)
            }
            PushEnded::NotStarted(problem) => Err(TransferError::start(read(problem)?)),
            PushEnded::Broken(problem) => Err(TransferError::broken(read(problem)?)),
            PushEnded::Interrupted => Err(TransferError::interrupted()),
        }
    }

    fn lost(&mut self, told_to_end: bool) -> TransferError {
        if told_to_end {
            return TransferError::interrupted();
        }
        let how = self.near.wait(END_WAIT_MAX / 10);
        let how = how.map_or_else(|| "it said no more".to_owned(), troubles::ended);
        let what = format!("ssh to {} ended in the middle of the copy", self.near.login());
        let found = format!("{how}; haul there ends with it");
        let hint = "what arrived stays at the target: the same command goes on there";
        TransferError::broken(problem(&what, "ssh until the end", &found, hint))
    }
}
