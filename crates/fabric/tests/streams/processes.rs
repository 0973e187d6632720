//! Streams between two processes: this one receives, and the same test in a child of it sends.

use std::{
    env,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use haul_fabric::{Contact, Error, ReceiveEnd, SendEnd};
use haul_testkit::{FabricWay, fabric_ways};

use crate::streams::{HERE, LONG, MIB, bytes_of, file_of, open};

/// The variable by which a child knows where its parent listens.
const PARENT: &str = "HAUL_FABRIC_TEST_PARENT";
const MEMORY_BYTES: usize = 8 * MIB;

/// Starts `test` in a child, and is its peer.
fn receive_from_child(test: &str, way: FabricWay) -> (Child, ReceiveEnd) {
    let listener = TcpListener::bind((HERE, 0)).expect("it works here");
    let address = listener.local_addr().expect("it works here").to_string();
    let mut child = Command::new(env::current_exe().expect("it has a name"))
        .args(["--exact", test, "--nocapture"])
        .env("HAUL_FABRIC_WAYS", format!("{way:?}"))
        .env(PARENT, address)
        // What it says of its one test is no outcome of this process.
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut lifeline = accept_from(&mut child, &listener);
    let listening = open(way, way.far).listen([3; 16]).expect("it listens");
    let contact = listening.contact().encode();
    lifeline.write_all(&(contact.len() as u64).to_le_bytes()).expect("the child hears");
    lifeline.write_all(&contact).expect("the child hears");
    let pair = listening.accept(lifeline.into(), LONG).expect("the child comes");
    (child, pair.into_receiver(MEMORY_BYTES).expect("memory"))
}

/// The connection of a child that lives.
fn accept_from(child: &mut Child, listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("it works here");
    let begun = Instant::now();
    loop {
        if let Ok((lifeline, _)) = listener.accept() {
            lifeline.set_nonblocking(false).expect("it works here");
            return lifeline;
        }
        let ended = child.try_wait().expect("it is a child");
        assert!(ended.is_none() && begun.elapsed() < LONG, "{ended:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The end of a child, whose parent has said where it listens.
fn send_to_parent(address: &str) -> SendEnd {
    let mut lifeline = TcpStream::connect(address).expect("the parent listens");
    let mut len = [0; 8];
    lifeline.read_exact(&mut len).expect("the parent tells");
    let mut contact = vec![0; u64::from_le_bytes(len) as usize];
    lifeline.read_exact(&mut contact).expect("the parent tells");
    let contact = Contact::decode(&contact).expect("a contact");
    let way = fabric_ways()[0];
    let pair = open(way, way.near).connect(&contact, lifeline.into(), LONG).expect("it connects");
    pair.into_sender(MEMORY_BYTES).expect("memory")
}

#[test]
fn a_process_sends_a_file_to_another_one() {
    let content = bytes_of(9 * MIB, 5);
    if let Ok(parent) = env::var(PARENT) {
        let mut near = send_to_parent(&parent);
        near.send(b"head").unwrap();
        near.send_file(&file_of(&content), 100, content.len() as u64 - 100, &mut |_| ()).unwrap();
        assert_eq!(near.figures().refused, None);
        return;
    }
    for way in fabric_ways() {
        let test = "processes::a_process_sends_a_file_to_another_one";
        let (mut child, mut far) = receive_from_child(test, way);
        let mut came = vec![0; content.len() - 96];
        far.receive(&mut came).unwrap();
        assert!(came[..4] == *b"head" && came[4..] == content[100..], "{way:?}");
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone, "{way:?}");
        drop(far);
        assert!(child.wait().unwrap().success(), "{way:?}");
    }
}

#[test]
fn a_process_that_is_killed_is_a_peer_that_has_left() {
    if let Ok(parent) = env::var(PARENT) {
        let mut near = send_to_parent(&parent);
        near.send(b"head").unwrap();
        near.flush().unwrap();
        // Until it is killed.
        return thread::sleep(LONG);
    }
    for way in fabric_ways() {
        let test = "processes::a_process_that_is_killed_is_a_peer_that_has_left";
        let (mut child, mut far) = receive_from_child(test, way);
        let mut head = [0; 4];
        far.receive(&mut head).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let begun = Instant::now();
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone, "{way:?}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{way:?} {:?}", begun.elapsed());
    }
}
