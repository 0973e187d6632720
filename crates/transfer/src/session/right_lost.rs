//! Loss of the right by which a session runs, as the thread that sees it tells the session's own.

use haul_protocol::message::Fault;
use std::sync::{Arc, OnceLock};

/// The reason why the token of a session is good no more; nothing while it is good.
#[derive(Clone, Debug, Default)]
pub struct RightLost(Arc<OnceLock<Fault>>);

impl RightLost {
    /// Takes the reason; the first one stays.
    pub fn set(&self, fault: Fault) {
        let _ = self.0.set(fault);
    }

    /// Gives the reason, once there is one.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.0.get()
    }

    /// Fails once the right is lost.
    ///
    /// # Errors
    /// The fault by which the session ends.
    pub fn check(&self) -> Result<(), Fault> {
        self.fault().map_or(Ok(()), |fault| Err(fault.clone()))
    }
}
