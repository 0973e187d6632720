//! Tests of both ends of the engine: what is over when, and what comes of a write that fails.
#![cfg(feature = "fabric")]

use std::{
    fs::File,
    io::Read,
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::FileExt,
    sync::Arc,
    thread,
    time::Duration,
};

use haul_fabric::{Fabric, Provider};
use haul_testkit::skip::skip;

use super::*;
use crate::SpanFile;

const LONG: Duration = Duration::from_secs(20);
const PAGE: usize = 4096;

/// Two ends whose processes are this one.
fn ends() -> (FabricSender, FabricReceiver) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let fabric = || Fabric::open(Provider::Shm, IpAddr::from(Ipv4Addr::LOCALHOST)).unwrap();
    let listening = fabric().listen([5; 16]).unwrap();
    let contact = listening.contact().clone();
    let receiving = thread::spawn(move || {
        let pair = listening.accept(far.into(), LONG).unwrap();
        FabricReceiver::new(pair.into_receiver(8 << 20).unwrap())
    });
    let pair = fabric().connect(&contact, near.into(), LONG).unwrap();
    let sending = FabricSender::new(pair.into_sender(8 << 20).unwrap());
    (sending, receiving.join().unwrap())
}

/// A message of so many bytes that has come.
fn message(sender: &mut FabricSender, receiver: &mut FabricReceiver, bytes: &[u8]) -> Message {
    sender.send_bytes(bytes, Boundary::Flush).unwrap();
    receiver.end.take(bytes.len() as u64).unwrap().expect("it came as one")
}

fn span(id: u64, file: File, offset_bytes: u64) -> FileSpan {
    FileSpan { id: SpanId(id), file: Arc::new(SpanFile::new(file)), offset_bytes, len_bytes: 8192 }
}

/// A file on the disk of this project.
fn file() -> File {
    tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// Notes a span that has come, and starts a write of its bytes into `into`; false where io_uring is
/// forbidden.
fn start(receiver: &mut FabricReceiver, span: &FileSpan, message: Message, into: &File) -> bool {
    if receiver.flights.iter().all(|flight| flight.span.id != span.id) {
        receiver.flights.push(Flight::new(span.clone()));
    }
    let Some(ring) = &mut receiver.ring else {
        skip("io_uring", "none");
        return false;
    };
    let (len, offset_bytes) = (message.bytes().len(), span.offset_bytes);
    let writing = Writing { message, span: span.id, offset_bytes };
    ring.start(writing, 0..len, Arc::new(into.try_clone().unwrap()), offset_bytes).unwrap();
    receiver.flight(span.id).writes += 1;
    true
}

/// A pipe that takes no byte before what fills it is read.
fn full_pipe() -> (File, File) {
    let (read, write) = std::io::pipe().unwrap();
    let (read, write) = (File::from(std::os::fd::OwnedFd::from(read)), write);
    let write = File::from(std::os::fd::OwnedFd::from(write));
    rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::NONBLOCK).unwrap();
    while std::io::Write::write(&mut &write, &[0; PAGE]).is_ok() {}
    rustix::fs::fcntl_setfl(&write, rustix::fs::OFlags::empty()).unwrap();
    (read, write)
}

/// Reads so much out of a pipe that all writes to it go on.
fn drain(mut pipe: &File) {
    pipe.read_exact(&mut vec![0; 64 << 10]).unwrap();
}

#[test]
fn bytes_go_past_the_page_cache_in_whole_blocks_and_from_64_kib_on() {
    let memory = vec![0; DIRECT_BYTES_MIN + 4 * PAGE];
    let page = memory.as_ptr().align_offset(PAGE);
    let at = |from: usize, len: usize| &memory[page + from..][..len];
    let len = DIRECT_BYTES_MIN;
    assert!(fits_direct(at(0, len), 8192) && fits_direct(at(PAGE, len + PAGE), 0));
    assert!(!fits_direct(at(0, len - PAGE), 8192), "too few");
    assert!(!fits_direct(at(512, len), 8192) && !fits_direct(at(0, len), 100));
    assert!(!fits_direct(at(0, len + 1), 8192));
}

#[test]
fn a_card_copies_nothing_and_the_kernel_all() {
    assert_eq!(copied_by(Mover::Card, 3, 10), 3);
    assert_eq!(copied_by(Mover::Kernel, 3, 10), 10);
}

#[test]
fn a_span_is_in_flight_until_its_pages_are_read() {
    let (mut sender, mut receiver) = ends();
    let source = file();
    source.write_all_at(&[7; 1 << 20], 0).unwrap();
    let sent = FileSpan { len_bytes: 1 << 20, ..span(3, source, 0) };
    let mut done = Vec::new();
    sender.submit(&sent, None, &mut done).unwrap();
    assert_eq!((sender.spans_in_flight(), done.len()), (1, 0));
    let receiving = thread::spawn(move || {
        receiver.receive_bytes(&mut vec![0; 1 << 20]).unwrap();
        receiver
    });
    sender.reap(Wait::ForAll, &mut done).unwrap();
    assert_eq!((sender.spans_in_flight(), done.len()), (0, 1));
    drop(receiving.join().unwrap());
}

/// Case of a span that would have counted as durable while its write was under way.
#[test]
fn a_span_is_handed_over_when_its_writes_are_over_and_never_before() {
    let (mut sender, mut receiver) = ends();
    let (read, write) = full_pipe();
    let (whole, slow) = (span(1, file(), 0), span(2, file(), 0));
    for _ in 0..2 {
        let bytes = message(&mut sender, &mut receiver, &[9; PAGE]);
        if !start(&mut receiver, &slow, bytes, &write) {
            return;
        }
    }
    let mut done = Vec::new();
    // Nothing of this is over, and nobody waits for it.
    receiver.reap(Wait::DontBlock, &mut done).unwrap();
    assert_eq!((receiver.spans_in_flight(), done.len()), (1, 0));
    // Another one is: that is enough.
    receiver.flights.push(Flight::new(whole));
    receiver.reap(Wait::ForOne, &mut done).unwrap();
    assert_eq!(done.iter().map(|done| done.id.0).collect::<Vec<_>>(), [1]);
    // Now the first one is waited for, whatever was handed over before, and all of its writes.
    let reading = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drain(&read);
        read
    });
    receiver.reap(Wait::ForOne, &mut done).unwrap();
    assert_eq!(done.iter().map(|done| done.id.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(receiver.spans_in_flight(), 0);
    let _read = reading.join().unwrap();
    drop((receiver, sender));
}

#[test]
fn all_writes_of_a_span_are_waited_for() {
    let (mut sender, mut receiver) = ends();
    let ((read_one, one), (read_two, two)) = (full_pipe(), full_pipe());
    let slow = span(2, file(), 0);
    for pipe in [&one, &two] {
        let bytes = message(&mut sender, &mut receiver, &[9; PAGE]);
        if !start(&mut receiver, &slow, bytes, pipe) {
            return;
        }
    }
    drain(&read_one);
    let reading = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drain(&read_two);
        read_two
    });
    let mut done = Vec::new();
    receiver.reap(Wait::ForAll, &mut done).unwrap();
    assert_eq!((receiver.spans_in_flight(), done.len()), (0, 1));
    assert_eq!((receiver.direct_bytes, receiver.cached_bytes), (2 * PAGE as u64, 0));
    let _read = reading.join().unwrap();
    drop((receiver, sender));
}

#[test]
fn what_cannot_go_past_the_page_cache_goes_through_it_to_its_place() {
    let (mut sender, mut receiver) = ends();
    let target = span(4, file(), 5 * PAGE as u64);
    let bytes = message(&mut sender, &mut receiver, &[6; PAGE]);
    let direct = SpanFile::new(target.file.file().try_clone().unwrap()).direct().cloned();
    let Ok(direct) = direct else { return skip("O_DIRECT", "none") };
    let shifted = FileSpan { offset_bytes: target.offset_bytes + 1, ..target.clone() };
    if !start(&mut receiver, &shifted, bytes, &direct) {
        return;
    }
    assert!(receiver.take_finished(true));
    assert!(receiver.is_refused);
    let flight = &receiver.flights[0];
    assert_eq!((flight.writes, flight.copied_bytes), (0, PAGE as u64));
    assert!(flight.fault.is_none());
    assert_eq!((receiver.direct_bytes, receiver.cached_bytes), (0, PAGE as u64));
    let mut came = [0; PAGE];
    target.file.file().read_exact_at(&mut came, 5 * PAGE as u64 + 1).unwrap();
    assert_eq!(came, [6; PAGE]);
    drop((receiver, sender));
}

#[test]
fn a_write_that_fails_is_told_with_its_place_and_nothing_more_is_written() {
    let (mut sender, mut receiver) = ends();
    let bad = span(5, file(), 3 * PAGE as u64);
    let unwritable = File::open("/dev/null").unwrap();
    let bytes = message(&mut sender, &mut receiver, &[6; PAGE]);
    if !start(&mut receiver, &bad, bytes, &unwritable) {
        return;
    }
    assert!(receiver.take_finished(true));
    assert!(!receiver.is_refused, "a fault is none of the file system");
    receiver.write_buffered(&bad, 0, &[1; PAGE]);
    assert_eq!(bad.file.file().metadata().unwrap().len(), 0);
    let mut done = Vec::new();
    let error = receiver.reap(Wait::ForAll, &mut done).unwrap_err();
    assert_eq!((error.span, error.remedy), (Some(SpanId(5)), Remedy::SkipFile));
    assert_eq!((error.offset_bytes, error.moved_bytes), (3 * PAGE as u64, 8192));
    assert_eq!((receiver.spans_in_flight(), done.len()), (0, 0));
    drop((receiver, sender));
}

#[test]
fn bytes_that_go_through_the_page_cache_are_copied() {
    let (sender, mut receiver) = ends();
    let target = span(6, file(), 0);
    receiver.flights.push(Flight::new(target.clone()));
    receiver.write_buffered(&target, 10, &[1; 100]);
    receiver.write_buffered(&target, 110, &[2; 50]);
    assert_eq!(receiver.flights[0].copied_bytes, 150);
    assert_eq!((receiver.direct_bytes, receiver.cached_bytes), (0, 150));
    assert_eq!(target.file.file().metadata().unwrap().len(), 160);
    drop((receiver, sender));
}

#[test]
fn a_ring_that_is_lost_costs_the_spans_that_it_was_writing_and_no_other() {
    let (sender, mut receiver) = ends();
    receiver.flights = vec![Flight::new(span(1, file(), 0)), Flight::new(span(2, file(), 77))];
    receiver.flights[1].writes = 2;
    receiver.lose_ring(&io::Error::from(io::ErrorKind::OutOfMemory));
    assert!(receiver.ring.is_none());
    let mut done = Vec::new();
    let error = receiver.reap(Wait::ForAll, &mut done).unwrap_err();
    assert_eq!((error.span, error.offset_bytes), (Some(SpanId(2)), 77));
    assert_eq!(done.iter().map(|done| done.id.0).collect::<Vec<_>>(), [1]);
    drop((receiver, sender));
}

/// Case of a pair that breaks within a span: no write may come behind its error.
#[test]
fn a_span_that_breaks_off_leaves_no_write_under_way_and_others_as_they_were() {
    let (mut sender, mut receiver) = ends();
    let (read, write) = full_pipe();
    let (other, broken) = (span(1, file(), 0), span(2, file(), 0));
    receiver.flights.push(Flight::new(other));
    let bytes = message(&mut sender, &mut receiver, &[9; PAGE]);
    if !start(&mut receiver, &broken, bytes, &write) {
        return;
    }
    let reading = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drain(&read);
        read
    });
    receiver.give_up(SpanId(2));
    assert_eq!(receiver.ring.as_ref().map(WriteRing::in_flight), Some(0));
    assert_eq!(receiver.flights.iter().map(|it| it.span.id.0).collect::<Vec<_>>(), [1]);
    let _read = reading.join().unwrap();
    drop((receiver, sender));
}

#[test]
fn whole_pages_go_past_the_page_cache_until_the_file_system_refuses_them() {
    let (mut sender, mut receiver) = ends();
    let target = span(1, file(), 0);
    if receiver.ring.is_none() || target.file.direct().is_err() {
        return skip("io_uring and O_DIRECT", "not both");
    }
    receiver.flights.push(Flight::new(target.clone()));
    let len = DIRECT_BYTES_MIN as u64;
    for (is_refused, counted) in [(false, (len, 0)), (true, (len, len))] {
        receiver.is_refused = is_refused;
        let bytes = message(&mut sender, &mut receiver, &[3; DIRECT_BYTES_MIN]);
        let progress = Progress::new(INFO.name, &target);
        assert_eq!(receiver.write_message(&progress, bytes, &mut None), len);
        while receiver.take_finished(true) {}
        assert_eq!((receiver.direct_bytes, receiver.cached_bytes), counted);
    }
    drop((receiver, sender));
}
