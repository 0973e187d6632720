//! Other side of a push, a pull or a listing, once it can be asked.
//!
//! It is known by URLs with a token, and ssh may be what holds it open.

use super::token_source;
use crate::{
    args::ssh::OtherSide,
    ssh::{
        Purpose,
        near_end::{NearEnd, Wanted},
    },
};
use haul_transfer::{Event, HaulUrl, Interrupt, Report, TransferError};
use std::{path::Path, time::Duration};

/// The purpose of asking the other side.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub purpose: Purpose,
    /// Whether something is removed there.
    pub removes: bool,
    pub retry_for: Duration,
}

/// ssh, where it is what holds the other side open.
#[derive(Debug)]
pub struct Held(Option<NearEnd>);

/// Gives the URLs of the other side: with a token from elsewhere, or of a server that ssh begins.
///
/// # Errors
/// If there is no token, or ssh brings none.
pub fn reach(
    side: OtherSide,
    token_file: Option<&Path>,
    asked: Asked,
    interrupt: &Interrupt,
) -> Result<(Vec<HaulUrl>, Held), TransferError> {
    match side {
        OtherSide::Server(mut urls) => {
            token_source::complete(&mut urls, token_file).map_err(TransferError::start)?;
            Ok((urls, Held(None)))
        }
        OtherSide::BySsh { program, login, paths, ports } => {
            let Asked { purpose, removes, retry_for } = asked;
            let wanted = Wanted { login, paths, purpose, removes, ports, retry_for };
            let (near, urls) = NearEnd::start(&program, wanted, interrupt)?;
            Ok((urls, Held(Some(near))))
        }
    }
}

impl Held {
    /// Runs a transfer, and tells among its events when ssh ends before it.
    ///
    /// # Errors
    /// Those of the transfer.
    pub fn while_held(
        mut self,
        tell: &mut dyn FnMut(Event),
        transfer: impl FnOnce(&mut dyn FnMut(Event)) -> Result<Report, TransferError>,
    ) -> Result<Report, TransferError> {
        self.0.as_mut().and_then(NearEnd::installed).into_iter().for_each(&mut *tell);
        let result = transfer(&mut |event| {
            self.0.as_mut().and_then(NearEnd::end_of_ssh).into_iter().for_each(&mut *tell);
            tell(event);
        });
        match &self.0 {
            Some(near) => result.map(|report| near.named(report)),
            None => result,
        }
    }
}
