//! Admission of probes: sessions without files, which have places of their own.
//!
//! They leave the other sessions alone.

use super::{
    Server,
    data_keys::ChosenKeys,
    doorman::Stranger,
    open_sessions::{Entry, Place},
    sessions::{HandshakeFailure, no_room},
};
use crate::{
    Interrupt,
    bytes::{hex, random_bytes},
    constants::BUFFER_BYTES_MAX,
    events::FileCounts,
    locks::lock,
    preflight,
    probe::net::{
        serving::{Moved, Serving, connections_max},
        talk::{Ended, Talk},
    },
    problem::Problem,
    rights::{Need, Right},
    server::event::ServerEvent,
    session::{
        rdma::Route,
        right_lost::RightLost,
        streams::{StreamSetup, Streams, choose_congestion},
    },
    state::Grant,
    transport::{control::Control, tcp, waker::Waker},
};
use haul_protocol::{
    Message, StreamId, limits,
    message::{self, Fault, FaultCode, Side},
};
use haul_sys::tcp_info::TcpInfo;
use std::{
    net::{SocketAddr, TcpStream},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// A probe that was let in.
struct Admitted {
    id: [u8; 16],
    grant: Grant,
    setup: StreamSetup,
    streams: Arc<Streams>,
    attached: mpsc::Receiver<(StreamId, TcpStream)>,
    waker: Waker,
    interrupt: Interrupt,
    right_lost: RightLost,
    rtt: Duration,
    begun: Instant,
}

impl Server {
    /// Runs a probe's whole session, on its connection's thread.
    pub(super) fn probe(
        &self,
        control: &mut Control,
        (open, capabilities): (&message::Open, &[u32]),
        (peer, stranger): (SocketAddr, Stranger<'_>),
        on_event: &(dyn Fn(ServerEvent) + Sync),
    ) -> Result<(), HandshakeFailure> {
        let (mut admitted, data_keys) =
            self.admit(control, open, capabilities).map_err(HandshakeFailure::Fault)?;
        let (route, fabric_refused) = self.agree_rdma(open, control.socket());
        let fabric = route.as_ref().map_or(String::new(), Route::name);
        admitted.setup.rdma = route;
        let _place = Place { sessions: &self.sessions, session: admitted.id };
        stranger.let_in();
        control.trust();
        let streams_max = self.options.streams_max.clamp(1, limits::STREAMS_MAX);
        control.queue(Message::Opened(message::Opened {
            session: admitted.id,
            streams: streams_max,
            // It says nothing here, but has to be something.
            offers_max: 1,
            offer_bytes_max: limits::OFFER_BYTES_MIN,
            rtt_us: u64::try_from(admitted.rtt.as_micros()).unwrap_or(u64::MAX),
            fabric,
            fabric_refused,
            data_keys,
            ..message::Opened::default()
        }));
        control.queue(Message::Facts(preflight::facts(&self.host, None)));
        let (session, peer) = (hex(&admitted.id), peer.to_string());
        on_event(ServerEvent::Session {
            session: session.clone(),
            peer: peer.clone(),
            direction: "probe".into(),
            token: admitted.grant.token_id.clone(),
            path: String::new(),
        });
        let begun = admitted.begun;
        let (ended, moved) = self.serve_probe(control, open, admitted, streams_max);
        on_event(session_ended((session, peer), &ended, moved, begun));
        Ok(())
    }

    fn serve_probe(
        &self,
        control: &mut Control,
        open: &message::Open,
        admitted: Admitted,
        streams_max: u32,
    ) -> (Ended, Moved) {
        let local = control.socket().local_addr();
        let local = local.map_or(self.address, |address| address);
        let allows = |probe: &message::Probe| self.allows(open, probe);
        let Admitted { id, setup, streams, attached, waker, interrupt, rtt, .. } = admitted;
        let right_lost = admitted.right_lost;
        let mut serving = Serving {
            talk: Talk::new(control, Some(&waker), &interrupt),
            setup,
            streams,
            attached,
            local: (local.ip().to_canonical(), self.address.port()),
            rtt,
            streams_max,
            allows: &allows,
            right_lost,
        };
        let end = serving.run();
        // A server with `--once` still waits for its session.
        lock(&self.sessions).remove(&id);
        end
    }

    /// Lets a probe in: checks its token, and makes a place. Returns the keys to tell, too.
    fn admit(
        &self,
        control: &Control,
        open: &message::Open,
        capabilities: &[u32],
    ) -> Result<(Admitted, Option<message::DataKeys>), Fault> {
        let secret = &open.token_secret.0;
        // One right is enough to begin; each round asks for its own.
        let grant = self.state.look_at(secret, &self.served, &[Need::new(Right::Write)]).or_else(
            |needs_write| {
                // Most probes send to the server.
                let read = self.state.look_at(secret, &self.served, &[Need::new(Right::Read)]);
                read.map_err(|_| needs_write)
            },
        )?;
        let failed = |error: &dyn std::fmt::Display| no_room("no probe can be set up", error);
        let id: [u8; 16] = random_bytes().map_err(|e| failed(&e))?;
        let ChosenKeys { keys, told } =
            ChosenKeys::new(control, &id, capabilities).map_err(|e| failed(&e))?;
        let waker = Waker::new().map_err(|e| failed(&e))?;
        let streams = Streams::new(waker.clone());
        let (attach, attached) = mpsc::channel();
        let interrupt = Interrupt::default();
        let right_lost = RightLost::default();
        let tcp = TcpInfo::of(control.socket()).unwrap_or_default();
        let rtt = Duration::from_micros(tcp.shortest_rtt_us().into());
        let entry = Entry {
            streams_granted: connections_max(self.options.streams_max),
            transfer: open.transfer,
            token_id: grant.token_id.clone(),
            keys: keys.clone(),
            attach,
            streams: streams.clone(),
            interrupt: interrupt.clone(),
            right_lost: right_lost.clone(),
            is_probe: true,
        };
        let setup = StreamSetup {
            rdma: None,
            private: None,
            keys,
            session: id,
            digest: message::Digest::None,
            content: false,
            host: self.host.clone(),
            congestion: choose_congestion(&self.host, tcp::length_of(control.socket(), rtt)),
            pacing_bytes_per_s: None,
            buffer_bytes_max: BUFFER_BYTES_MAX,
        };
        self.take_place(id, entry)?;
        let begun = Instant::now();
        let admitted = Admitted {
            id,
            grant,
            setup,
            streams,
            attached,
            waker,
            interrupt,
            right_lost,
            rtt,
            begun,
        };
        Ok((admitted, told))
    }

    /// Takes a place for a probe, where there is one.
    fn take_place(&self, id: [u8; 16], entry: Entry) -> Result<(), Fault> {
        let mut sessions = lock(&self.sessions);
        let full = |what: &str, most: u32, hint: &str| {
            let fault = Fault::new(FaultCode::TooManySessions, Side::Unknown, what);
            Err(fault.needs(format!("fewer than {most}")).hint(hint))
        };
        let (sessions_max, probes_max) = (self.options.sessions_max, self.options.probes_max);
        if sessions.probes() >= probes_max as usize {
            let what = "the server has as many probes as it may";
            return full(what, probes_max, "try again later, or raise --max-probes there");
        }
        if sessions.count() >= sessions_max as usize {
            let what = "the server has as many sessions as it may";
            return full(what, sessions_max, "try again later, or raise --max-sessions there");
        }
        sessions.insert(id, entry);
        Ok(())
    }

    /// Checks that the token allows a round: bytes to this side need the right to write, bytes from
    /// it the right to read.
    fn allows(&self, open: &message::Open, probe: &message::Probe) -> Result<(), Fault> {
        if probe.to_server {
            if self.options.read_only {
                let what = "the server is read-only";
                let fault = Fault::new(FaultCode::RightMissing, Side::Unknown, what);
                return Err(fault.hint("measure the other way with --reverse"));
            }
            self.state.look_at(&open.token_secret.0, &self.served, &[Need::new(Right::Write)])?;
        }
        if probe.to_client {
            self.state.look_at(&open.token_secret.0, &self.served, &[Need::new(Right::Read)])?;
        }
        Ok(())
    }
}

fn session_ended(
    (session, peer): (String, String),
    ended: &Ended,
    moved: Moved,
    begun: Instant,
) -> ServerEvent {
    let why = match ended {
        // It was told, and left: nothing but that came of it.
        Ended::Closed if moved.bytes == 0 => {
            moved.fault.as_ref().map(|fault| Problem::of(fault).to_string()).unwrap_or_default()
        }
        Ended::Closed => String::new(),
        Ended::Interrupted => "interrupted".into(),
        Ended::Refused(fault) | Ended::Violated(fault) => Problem::of(fault).to_string(),
        Ended::Lost(why) => format!("connection lost: {why}"),
    };
    ServerEvent::SessionEnded {
        session,
        peer,
        ok: why.is_empty(),
        dry_run: false,
        bytes: moved.bytes,
        seconds: begun.elapsed().as_secs_f64(),
        files: FileCounts::default(),
        why,
    }
}
