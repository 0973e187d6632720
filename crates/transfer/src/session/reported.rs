//! Trait of a role whose progress is told to a user: figures, tally, report.

use crate::{
    events::{Event, Lag},
    name::Name,
    session::{
        receiving::Receiving,
        role::Role,
        sending::{Sending, following::Written},
        tally::Tally,
    },
};
use haul_protocol::message;

/// A role with all that telling a user of its transfer needs.
pub trait Reported: Role {
    const SENDS: bool;
    fn figures(&self) -> message::Figures;
    fn tally(&self) -> &Tally;
    fn tell(&mut self, event: Event);
    /// Takes the figures that the server told.
    fn heard_figures(&mut self, _figures: &message::Figures) {}
    fn stop(&mut self);
    fn report(&self) -> message::SideReport;
    fn take_peer_report(&mut self) -> Option<message::SideReport>;
    fn largest_lag(&self) -> Option<Lag>;
    /// Takes the memory of followed files with which another session goes on.
    fn take_written(&mut self) -> Written {
        Written::default()
    }
    fn current(&self) -> Option<Name>;
}

impl Reported for Sending<'_> {
    const SENDS: bool = true;
    fn figures(&self) -> message::Figures {
        Sending::figures(self)
    }
    fn tally(&self) -> &Tally {
        Sending::tally(self)
    }
    fn tell(&mut self, event: Event) {
        Sending::tell(self, event);
    }
    fn stop(&mut self) {
        Sending::stop(self);
    }
    fn report(&self) -> message::SideReport {
        Sending::report(self)
    }
    fn take_peer_report(&mut self) -> Option<message::SideReport> {
        self.peer_report.take()
    }
    fn largest_lag(&self) -> Option<Lag> {
        Sending::largest_lag(self)
    }
    fn take_written(&mut self) -> Written {
        Sending::take_written(self)
    }
    fn current(&self) -> Option<Name> {
        Sending::current(self)
    }
}

impl Reported for Receiving<'_> {
    const SENDS: bool = false;
    fn figures(&self) -> message::Figures {
        Receiving::figures(self)
    }
    fn tally(&self) -> &Tally {
        Receiving::tally(self)
    }
    fn tell(&mut self, event: Event) {
        Receiving::tell(self, event);
    }
    fn heard_figures(&mut self, figures: &message::Figures) {
        Receiving::heard_figures(self, figures);
    }
    fn stop(&mut self) {
        Receiving::stop(self);
    }
    fn report(&self) -> message::SideReport {
        Receiving::report(self)
    }
    fn take_peer_report(&mut self) -> Option<message::SideReport> {
        self.peer_report.take()
    }
    fn largest_lag(&self) -> Option<Lag> {
        Receiving::largest_lag(self)
    }
    fn current(&self) -> Option<Name> {
        Receiving::current(self)
    }
}
