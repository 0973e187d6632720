//! TLS of a client's data streams.

use super::{Client, engine_name, set_up_failed};
use crate::{
    error::TransferError,
    options::Protection,
    session::private::{Part, Private},
    transport::tls,
};
use haul_protocol::message::Direction;

impl Client<'_> {
    /// TLS of the data streams, where the user asks for private ones.
    pub(super) fn private(&self) -> Result<Option<Private>, TransferError> {
        if self.options.protection != Protection::Private {
            return Ok(None);
        }
        let token = self.url.token.as_ref().expect("checked in `new`");
        let config = tls::client_data_config(token.fingerprint).map_err(|e| set_up_failed(&e))?;
        let engine = match self.open.direction {
            Direction::Push => self.options.send_engine,
            _ => self.options.receive_engine,
        };
        let engine = engine_name(engine);
        let part = Part::Client(config);
        Ok(Some(Private::new(part, engine.as_deref(), self.options.rekey_after_bytes)))
    }
}
