//! Keys of a session's data streams: exported from TLS, or told to a client without an exporter.
//!
//! A client that did not list the capability is never told any. Told keys are new for each session,
//! and go nowhere but into `opened`.

use crate::{
    bytes::random_bytes,
    digest::SessionKeys,
    transport::control::{Control, ControlError},
};
use haul_protocol::{CAPABILITY_TOLD_KEYS, message::DataKeys};
use std::sync::Arc;

/// Keys of one session.
pub struct ChosenKeys {
    pub keys: Arc<SessionKeys>,
    /// Bytes of `keys`, where the client is to be told them.
    pub told: Option<DataKeys>,
}

impl ChosenKeys {
    /// Keys of a session on this connection, whose sides have these capabilities.
    ///
    /// # Errors
    /// If there are no random bytes, or the TLS handshake is not over.
    pub fn new(
        control: &Control,
        session: &[u8; 16],
        capabilities: &[u32],
    ) -> Result<Self, ControlError> {
        if !capabilities.contains(&CAPABILITY_TOLD_KEYS) {
            let keys = Arc::new(control.session_keys(session)?);
            return Ok(Self { keys, told: None });
        }
        let told = DataKeys(random_bytes()?);
        Ok(Self { keys: Arc::new(SessionKeys::from_bytes(&told.0)), told: Some(told) })
    }
}
