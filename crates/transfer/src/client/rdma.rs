//! RDMA endpoints for a client's streams: what it offers, and what the server made of that.

use super::{Client, Opened, connect_failure::ConnectFailure};
use crate::{
    name::printable,
    options::Rdma,
    session::rdma::{Offers, Part, Route},
};
use haul_protocol::{
    CAPABILITY_FABRIC,
    handshake::Granted,
    message::{Fault, FaultCode, Side},
};
use std::{net::TcpStream, sync::Arc};

impl Client<'_> {
    /// Opens the providers that the user wants, beside the control connection, or begins to.
    ///
    /// # Errors
    /// If the user named one that this host does not have there.
    pub(super) fn offer_rdma(&self, control: &TcpStream) -> Result<Offers, ConnectFailure> {
        let Some(wanted) = self.options.rdma else { return Ok(Offers::default()) };
        if let Some(connector) = &self.options.connect.connector {
            let why = format!("{}, and RDMA needs a path of its own", connector.in_words());
            if matches!(wanted, Rdma::Only(_)) {
                return Err(ConnectFailure::Refused(no_rdma(why)));
            }
            return Ok(Offers { refused: vec![why], ..Offers::default() });
        }
        let offers = Offers::begin(wanted, control);
        if matches!(wanted, Rdma::Only(_)) && offers.fabrics.is_empty() {
            return Err(ConnectFailure::Refused(no_rdma(offers.refused.join("; "))));
        }
        Ok(offers)
    }

    /// Finds the endpoints that were agreed on; `None` for TCP.
    ///
    /// # Errors
    /// If the user wants nothing but RDMA and the server does not do it, or the server chose what
    /// was not offered.
    pub(super) fn agreed_rdma(
        &self,
        offers: &Offers,
        granted: &Granted,
    ) -> Result<Option<Route>, Fault> {
        let name = &*granted.opened.fabric;
        if !name.is_empty() {
            let Some(fabric) = offers.find(name) else {
                let what = "the server chose an RDMA provider that was not offered";
                let fault = Fault::new(FaultCode::ProtocolViolation, Side::Unknown, what);
                return Err(fault.needs(offers.names().join(" or ")).found(name));
            };
            if let (Some(Rdma::Only(_)), Some(error)) = (self.options.rdma, fabric.failed()) {
                return Err(no_rdma(error.to_string()));
            }
            let (fabric, part) = (fabric.clone(), Part::Connects);
            let tcp_instead = (self.options.rdma == Some(Rdma::Auto)).then(Arc::default);
            return Ok(Some(Route { fabric, part, tcp_instead }));
        }
        match self.options.rdma {
            Some(Rdma::Only(_)) => Err(no_rdma(why_tcp(offers, granted))),
            Some(Rdma::Auto) | None => Ok(None),
        }
    }

    /// The reason why data goes by TCP though the user asked for RDMA.
    pub(super) fn tcp_because(&self, opened: &Opened) -> Option<String> {
        let is_tcp = self.options.rdma.is_some() && opened.rdma.is_none();
        is_tcp.then(|| why_tcp(&opened.offers, &opened.granted))
    }

    /// The sentence of an explanation that says what the streams' wires are; `None` where nobody
    /// asked for RDMA.
    pub(super) fn wire_in_words(&self, opened: &Opened) -> Option<String> {
        if let Some(Route { fabric, .. }) = &opened.rdma {
            let (provider, port) = (fabric.provider(), fabric.port());
            return Some(format!("data goes by RDMA endpoints, {provider} at {port}"));
        }
        let because = self.tcp_because(opened)?;
        Some(format!("data goes by TCP, not RDMA: {because}"))
    }
}

/// The reason why data goes by TCP.
fn why_tcp(offers: &Offers, granted: &Granted) -> String {
    if offers.fabrics.is_empty() {
        offers.refused.join("; ")
    } else if !granted.capabilities.contains(&CAPABILITY_FABRIC) {
        "the server needs a haul that knows --fabric, found one that does not".into()
    } else {
        printable(&granted.opened.fabric_refused)
    }
}

fn no_rdma(found: String) -> Fault {
    Fault::new(FaultCode::EngineRefused, Side::Unknown, "data cannot go by RDMA")
        .needs("the RDMA provider that --fabric names, on both hosts, and a server with --fabric")
        .found(found)
        .hint("leave --fabric out, or take --fabric auto, which goes on by TCP")
}
