//! One session over a simulated link: handshake, control messages, data streams, goodbye.

use super::{
    link::{Arrival, Connection, End, Faults, Micros, Pipe},
    model::{Plan, Target},
    random::Random,
    receiving::ReceivingSide,
    sending::SendingSide,
    witness::Witness,
};
use crc::{CRC_32_ISCSI, Crc};
use haul_protocol::{
    ClientHandshake, Message, ServerHandshake, StreamId, decode_message, encode_message,
    frame::{PREFACE_BYTES, Preface},
    handshake::ServerStep,
    limits::MESSAGE_BYTES_MAX,
    message,
};
use std::collections::BTreeMap;

/// Virtual time after which a session is stuck.
const SESSION_MICROS_MAX: Micros = 600_000_000;

/// Ways in which a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Finished,
    /// The control connection broke.
    Cut,
}

pub struct Session<'a> {
    pub sending: SendingSide,
    pub receiving: ReceivingSide,
    plan: &'a mut Plan,
    target: &'a mut Target,
    random: &'a mut Random,
    witness: &'a mut Witness,
    now: Micros,
    id: [u8; 16],
    control: Connection,
    /// Bytes of the control connection that make no message yet: the client's and the server's.
    inboxes: [Vec<u8>; 2],
    client: ClientHandshake,
    server: ServerHandshake,
    client_is_open: bool,
    server_is_open: bool,
    connections: BTreeMap<StreamId, Connection>,
    /// Connections that the server has not taken yet, with what arrived on them.
    arriving: BTreeMap<StreamId, Vec<u8>>,
    next_stream: u32,
    next_connect: Micros,
}

impl<'a> Session<'a> {
    pub fn new(
        plan: &'a mut Plan,
        target: &'a mut Target,
        random: &'a mut Random,
        witness: &'a mut Witness,
        to_offer: Vec<usize>,
        now: Micros,
    ) -> Self {
        witness.new_session();
        let is_push = plan.direction == message::Direction::Push;
        let ends = if is_push { (End::Client, End::Server) } else { (End::Server, End::Client) };
        let open = message::Open {
            token_secret: message::Secret([1; 16]),
            transfer: [2; 16],
            direction: plan.direction,
            ..Default::default()
        };
        let limits = (plan.offers_max, plan.offer_bytes_max);
        let (client, hello) = ClientHandshake::start("simulation", open);
        let to_server = Pipe::new(plan.latency, plan.control_faults(random));
        let to_client = Pipe::new(plan.latency, plan.control_faults(random));
        let mut session = Self {
            sending: SendingSide::new(ends.0, plan, to_offer),
            receiving: ReceivingSide::new(ends.1, limits),
            id: [random.below(256) as u8; 16],
            plan,
            target,
            random,
            witness,
            now,
            control: Connection { to_server, to_client },
            inboxes: [Vec::new(), Vec::new()],
            client,
            server: ServerHandshake::default(),
            client_is_open: false,
            server_is_open: false,
            connections: BTreeMap::new(),
            arriving: BTreeMap::new(),
            next_stream: 0,
            next_connect: 0,
        };
        hello.into_iter().for_each(|message| session.send_control(End::Client, message));
        session
    }

    /// Runs the session to its end, and returns the time then.
    pub fn run(&mut self) -> (Ended, Micros) {
        let stuck_at = self.now + SESSION_MICROS_MAX;
        while self.now < stuck_at {
            self.now += (self.plan.latency / 8).max(20);
            // The sides take turns in any order.
            let first = self.random.below(2) as usize;
            for turn in [first, 1 - first] {
                let end = [End::Client, End::Server][turn];
                if !self.take_control(end) {
                    return (Ended::Cut, self.now);
                }
                self.step(end);
                self.send_outbox(end);
            }
            if self.sending.finished {
                return (Ended::Finished, self.now);
            }
        }
        panic!("stuck after {SESSION_MICROS_MAX} us: {:?} {:?}", self.sending, self.receiving);
    }

    fn sends(&self, end: End) -> bool {
        (end == End::Client) == (self.plan.direction == message::Direction::Push)
    }

    /// Takes the bytes that arrived on the control connection; false when that is cut.
    fn take_control(&mut self, end: End) -> bool {
        match self.control.incoming(end).read(self.now) {
            Arrival::Nothing => {}
            Arrival::End => return false,
            Arrival::Bytes(bytes) => self.inboxes[end as usize].extend(bytes),
        }
        loop {
            let inbox = &mut self.inboxes[end as usize];
            let decoded = decode_message(inbox, MESSAGE_BYTES_MAX).expect("honest messages");
            let Some((message, taken)) = decoded else { return true };
            inbox.drain(..taken);
            self.handle(end, message);
        }
    }

    fn handle(&mut self, end: End, message: Message) {
        let is_open = match end {
            End::Client => self.client_is_open,
            End::Server => self.server_is_open,
        };
        if !is_open {
            self.handshake(end, message);
        } else if self.sends(end) {
            self.sending.handle(message, self.now, self.witness);
        } else {
            self.receiving.handle(message);
        }
    }

    fn handshake(&mut self, end: End, message: Message) {
        if end == End::Client {
            if let Some(granted) = self.client.handle(message).expect("granted") {
                assert_eq!(granted.opened.session, self.id);
                self.client_is_open = true;
            }
            return;
        }
        match self.server.handle(message, "simulation").expect("an honest client") {
            ServerStep::Reply(reply) => self.send_control(End::Server, reply),
            ServerStep::Open { open, .. } => {
                assert_eq!(open.direction, self.plan.direction);
                self.server_is_open = true;
                let opened = message::Opened {
                    session: self.id,
                    streams: self.plan.streams as u32,
                    offers_max: self.plan.offers_max,
                    offer_bytes_max: haul_protocol::limits::OFFER_BYTES_MAX,
                    ..Default::default()
                };
                self.send_control(End::Server, Message::Opened(opened));
            }
        }
    }

    fn send_control(&mut self, end: End, message: Message) {
        let mut bytes = Vec::new();
        encode_message(message, &mut bytes);
        self.control.outgoing(end).write(self.now, &bytes, self.random);
    }

    fn send_outbox(&mut self, end: End) {
        // A busy side leaves its messages for later.
        while self.random.chance(80) {
            let message = if self.sends(end) {
                self.sending.sender.poll_message()
            } else {
                self.receiving.receiver.poll_message()
            };
            let Some(message) = message else { return };
            self.send_control(end, message);
        }
    }

    fn step(&mut self, end: End) {
        match end {
            End::Client if self.client_is_open => self.connect(),
            End::Server if self.server_is_open => self.accept(),
            _ => return,
        }
        let Self { plan, random, witness, connections, now, .. } = self;
        if (end == End::Client) == (plan.direction == message::Direction::Push) {
            self.sending.step(*now, plan, connections, random, witness);
        } else {
            self.receiving.step(*now, plan, self.target, connections, random, witness);
        }
    }

    /// Opens data connections of the client, to keep its number of them.
    fn connect(&mut self) {
        let open = if self.sends(End::Client) {
            self.sending.sender.open_streams().count()
        } else {
            self.receiving.open_streams()
        };
        if open >= self.plan.streams || self.now < self.next_connect {
            return;
        }
        self.next_connect = self.now + self.random.below(4 * self.plan.latency);
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        // Now and then a path is so slow that the stream is given up before its preface is there.
        let slowness = if self.plan.stream_faults > 0 && self.random.chance(10) { 100 } else { 1 };
        let latency = self.plan.latency * slowness + self.random.below(self.plan.latency);
        let [to_server, to_client] = [(); 2].map(|()| self.plan.stream_faults(self.random));
        self.connections.insert(stream, connection(latency, to_server, to_client));
        let opened = if self.sends(End::Client) {
            self.sending.stream_opened(stream, self.now)
        } else {
            self.receiving.stream_opened(stream, Vec::new(), self.now)
        };
        assert!(opened, "the client uses new numbers");
        let preface = Preface { stream, session: self.id, mac: self.mac_of(stream) }.encode();
        let connection = self.connections.get_mut(&stream).expect("inserted");
        connection.to_server.write(self.now, &preface, self.random);
        self.arriving.insert(stream, Vec::new());
    }

    /// Makes the MAC of a preface out of a CRC: nobody lies in this simulation.
    fn mac_of(&self, stream: StreamId) -> [u8; 32] {
        let crc = Crc::<u32>::new(&CRC_32_ISCSI);
        let sum = crc.checksum(&Preface::signed_bytes(stream, &self.id)).to_le_bytes();
        std::array::from_fn(|at| sum[at % 4])
    }

    /// Takes connections of the server whose preface is complete.
    fn accept(&mut self) {
        let streams: Vec<StreamId> = self.arriving.keys().copied().collect();
        for number in streams {
            let connection = self.connections.get_mut(&number).expect("arriving");
            let bytes = self.arriving.get_mut(&number).expect("listed");
            match connection.to_server.read(self.now) {
                Arrival::Bytes(more) => bytes.extend(more),
                Arrival::Nothing => continue,
                Arrival::End => {
                    self.arriving.remove(&number);
                    connection.close(End::Server, self.now);
                    continue;
                }
            }
            let Some(preface) = bytes.first_chunk::<PREFACE_BYTES>() else { continue };
            let preface = Preface::decode(preface);
            let early = bytes.split_off(PREFACE_BYTES);
            self.arriving.remove(&number);
            let valid = preface.is_ok_and(|preface| {
                preface.session == self.id && preface.mac == self.mac_of(preface.stream)
            });
            let opened = if !valid {
                false
            } else if self.sends(End::Server) {
                self.sending.stream_opened(number, self.now)
            } else {
                self.receiving.stream_opened(number, early, self.now)
            };
            if !opened {
                self.witness.counts.refused_streams += 1;
                let connection = self.connections.get_mut(&number).expect("arriving");
                connection.close(End::Server, self.now);
            }
        }
    }
}

fn connection(latency: Micros, to_server: Faults, to_client: Faults) -> Connection {
    Connection {
        to_server: Pipe::new(latency, to_server),
        to_client: Pipe::new(latency, to_client),
    }
}
