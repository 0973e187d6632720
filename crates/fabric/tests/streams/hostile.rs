//! Peers that do not keep to the rules.

use std::{
    thread,
    time::{Duration, Instant},
};

use haul_fabric::{Contact, Error, Wait};
use haul_fabric_sys::{
    Address, Buffer, Channel, Domain, EndpointKind, Info, Listener, Operation, Patience, Queue,
    Reach, Source, connect,
};
use haul_testkit::{FabricWay, fabric_ways};

use crate::streams::{LONG, MIB, open, sockets};

/// Domain of a peer that does as it likes.
fn domain(way: FabricWay) -> std::sync::Arc<Domain> {
    let is_shm = way.provider == "shm";
    let kind = if is_shm { EndpointKind::ReliableDatagrams } else { EndpointKind::Connected };
    let node = (!is_shm).then(|| way.near.to_string());
    Domain::open(Info::find(way.provider, kind, node.as_deref()).expect("it works here"))
        .expect("it works here")
}

/// Connects as the sender that has this contact, encoded, and receives words about room.
pub fn connected(way: FabricWay, contact: &[u8]) -> Channel {
    let format = u32::from_le_bytes(contact[16..20].try_into().expect("it works here"));
    let address = Address { format, bytes: contact[20..].to_vec() };
    let patience = Patience::new(LONG, &|| false);
    let domain = domain(way);
    let mut channel =
        connect(&domain, &address, &[7; 16], Queue::CanSleep, patience).expect("it works here");
    for _ in 0..8 {
        let words = Buffer::new(&domain, 12, Reach::Local).expect("it works here");
        let _ = channel.post(Operation::Receive(words));
    }
    channel
}

/// Sends messages of this length without a look at the receiver's words, until they are over, or
/// for two seconds.
fn send_too_much(channel: &mut Channel, count: u8, len_bytes: usize) {
    let domain = channel.domain().clone();
    let (begun, mut over) = (Instant::now(), 0);
    let mut waiting = (0..count).map(|number| {
        let memory_bytes = len_bytes.max(1);
        let mut buffer = Buffer::new(&domain, memory_bytes, Reach::Local).expect("it works here");
        buffer.bytes_mut()[..len_bytes].fill(number);
        Operation::Send(Source::Buffer(buffer, 0..len_bytes))
    });
    let mut next = waiting.next();
    while over < count && begun.elapsed() < Duration::from_secs(2) {
        if let Some(operation) = next.take() {
            next = match channel.post(operation) {
                Ok(()) => waiting.next(),
                Err((back, _)) => Some(back),
            };
        }
        match channel.poll() {
            Ok(Some(done)) => over += u8::from(matches!(done.operation, Operation::Send(_))),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Lets a sender send too much, and gives the bytes that came before the receiver's error.
fn receive_too_much(way: FabricWay, count: u8, len_bytes: usize) -> (Vec<u8>, Error) {
    let listening = open(way, way.far).listen([7; 16]).expect("it works here");
    let contact = listening.contact().encode();
    let (near, far) = sockets();
    let hostile = thread::spawn(move || {
        let mut channel = connected(way, &contact);
        send_too_much(&mut channel, count, len_bytes);
        // It leaves as a process that ends does: all at once.
        drop((channel, near));
    });
    let pair = listening.accept(far.into(), LONG).expect("it works here");
    let mut end = pair.into_receiver(8 * 4096).expect("it works here");
    // Meanwhile more messages come than there are buffers.
    thread::sleep(Duration::from_millis(200));
    let mut came = Vec::new();
    let error = loop {
        match end.peek().map(<[u8]>::to_vec) {
            Ok(bytes) => {
                came.extend_from_slice(&bytes);
                if let Err(error) = end.skip(bytes.len()) {
                    break error;
                }
            }
            Err(error) => break error,
        }
    };
    hostile.join().expect("it works here");
    (came, error)
}

#[test]
fn a_sender_that_sends_more_messages_than_there_is_room_for_overruns_nothing() {
    for way in fabric_ways() {
        let begun = Instant::now();
        let (came, error) = receive_too_much(way, 60, 4096);
        // Whether the provider holds them back or ends the pair: what comes is what was sent.
        let wanted: Vec<u8> = (0..60).flat_map(|number| [number; 4096]).collect();
        assert!(wanted.starts_with(&came), "{way:?}: {} bytes", came.len());
        assert!(begun.elapsed() < LONG, "{way:?}: {error}");
        println!("{way:?}: {} of {} bytes, then: {error}", came.len(), wanted.len());
    }
}

/// Not by shm: there both processes wait for each other inside of libfabric 1.17 (docs/rdma.md).
#[test]
fn a_message_that_is_longer_than_the_buffers_ends_the_pair() {
    for way in fabric_ways().into_iter().filter(|way| way.provider != "shm") {
        let begun = Instant::now();
        let (came, error) = receive_too_much(way, 1, MIB);
        assert!(came.len() <= 4096 && came.iter().all(|byte| *byte == 0), "{way:?}");
        assert!(begun.elapsed() < LONG, "{way:?}: {error}");
        println!("{way:?}: {} bytes, then: {error}", came.len());
    }
}

#[test]
fn a_message_without_bytes_ends_the_pair() {
    for way in fabric_ways() {
        let (came, error) = receive_too_much(way, 1, 0);
        assert_eq!((came.len(), error), (0, Error::BadMessage("an empty message")), "{way:?}");
    }
}

/// Case of a peer whose words would have had a buffer filled beyond its end.
#[test]
fn a_receiver_whose_buffers_become_shorter_is_refused_and_harms_nobody() {
    for way in fabric_ways() {
        let is_shm = way.provider == "shm";
        let kind = if is_shm { EndpointKind::ReliableDatagrams } else { EndpointKind::Connected };
        let node = (!is_shm).then(|| way.far.to_string());
        let info = Info::find(way.provider, kind, node.as_deref()).unwrap();
        let domain = Domain::open(info).unwrap();
        let mut listener = Listener::new(&domain, [7; 16], Queue::CanSleep).unwrap();
        let address = listener.address().unwrap();
        let contact = [&[7; 16][..], &address.format.to_le_bytes(), &address.bytes].concat();
        let (lifeline, _other) = sockets();
        let hostile = thread::spawn(move || {
            let mut channel = listener.accept(Patience::new(LONG, &|| false)).unwrap();
            for (posted, message_bytes) in [(4_u64, 1_u32 << 20), (5, 4096)] {
                let mut words = Buffer::new(&domain, 12, Reach::Local).unwrap();
                words.bytes_mut()[..8].copy_from_slice(&posted.to_le_bytes());
                words.bytes_mut()[8..12].copy_from_slice(&message_bytes.to_le_bytes());
                let empty = Buffer::new(&domain, 1 << 20, Reach::Local).unwrap();
                channel.post(Operation::Receive(empty)).unwrap();
                channel.post(Operation::Send(Source::Buffer(words, 0..12))).unwrap();
            }
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(1) {
                let _ = channel.poll();
            }
        });
        let contact = Contact::decode(&contact).unwrap();
        let near = open(way, way.near)
            .waiting(Wait::Poll)
            .connect(&contact, lifeline.into(), LONG)
            .unwrap();
        let ended = near.into_sender(8 * MIB).and_then(|mut near| {
            // A buffer is half full when the second words are taken.
            near.send(&[1; 500_000])?;
            thread::sleep(Duration::from_millis(200));
            near.progress()?;
            near.send(&[1; 10])
        });
        assert_eq!(ended.unwrap_err(), Error::BadMessage("a length of buffers that cannot be"));
        hostile.join().unwrap();
    }
}
