//! Other side of a push, a pull or a listing, once it can be asked.
//!
//! It is known by URLs with a token, and ssh may be what holds it open.

use super::token_source;
use crate::{
    args::ssh::OtherSide,
    ssh::{
        Ports, Purpose,
        by_proxy::ProxyRule,
        login::Login,
        near_end::{NearEnd, Wanted},
        ways::Way,
    },
};
use haul_transfer::{ConnectOptions, Event, HaulUrl, Interrupt, Report, TransferError};
use std::{path::Path, time::Duration};

/// The purpose of asking the other side.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub purpose: Purpose,
    /// Whether something is removed there.
    pub removes: bool,
    pub retry_for: Duration,
}

impl Asked {
    /// The paths of another machine that this is asked for.
    #[must_use]
    pub fn wanted(
        self,
        login: Login,
        paths: Vec<Vec<u8>>,
        (ports, way): (Option<Ports>, Way),
    ) -> Wanted {
        let Self { purpose, removes, retry_for } = self;
        Wanted {
            login,
            paths,
            purpose,
            removes,
            of_another: None,
            ports,
            way,
            retry_for,
            proxy: ProxyRule::default(),
            connect: ConnectOptions::default(),
        }
    }
}

/// The other side, once it can be asked.
#[derive(Debug)]
pub struct Reached {
    pub urls: Vec<HaulUrl>,
    pub connect: ConnectOptions,
    pub held: Held,
}

/// ssh, where it is what holds the other side open.
#[derive(Debug)]
pub struct Held(Option<NearEnd>);

/// Gives the URLs of the other side: with a token from elsewhere, or of a server that ssh begins.
/// `connect` has the user's choices for the connections.
///
/// # Errors
/// If there is no token, or ssh brings none.
pub fn reach(
    side: OtherSide,
    token_file: Option<&Path>,
    asked: Asked,
    mut connect: ConnectOptions,
    interrupt: &Interrupt,
) -> Result<Reached, TransferError> {
    match side {
        OtherSide::Server(mut urls) => {
            token_source::complete(&mut urls, token_file)?;
            Ok(Reached { urls, connect, held: Held(None) })
        }
        OtherSide::BySsh { program, login, paths, ports, way, proxy } => {
            let wanted = asked.wanted(login, paths, (ports, way));
            let wanted = Wanted { proxy, connect: connect.clone(), ..wanted };
            let (near, urls) = NearEnd::start(&program, wanted, interrupt)?;
            connect.connector = near.connector();
            Ok(Reached { urls, connect, held: Held(Some(near)) })
        }
    }
}

impl Held {
    /// Holds a server open that another machine sends to.
    #[must_use]
    pub fn by(near: NearEnd) -> Self {
        Self(Some(near))
    }

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
        self.0.as_mut().map(NearEnd::take_notes).into_iter().flatten().for_each(&mut *tell);
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
