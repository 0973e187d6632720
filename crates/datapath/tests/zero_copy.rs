//! Zero-copy sends and receives: spans are done when the kernel says so, and what is in vain ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{io::ErrorKind, os::unix::fs::FileExt, sync::Arc, time::Duration};

use haul_datapath::{
    Boundary, Buffers, EngineInfo, FileSpan, IfCopied, Remedy, SpanFile, Wait, Wire,
    copy_watch::WINDOW_BYTES,
    engines,
    fallback::{Receiver, Sender},
};
use haul_sys::{PageMemory, SocketPages, TcpInfo, zero_copy};
use haul_testkit::{content, seed::Seed, skip::skip};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendFlags, Shutdown, sockopt},
};

mod stream;

use stream::{
    BUFFERS, Outcome, SocketBuffers, Tapped, check_all_done, directories, file_in, run_with, span,
    wires,
};

const GIVE_UP: Buffers = Buffers { if_copied: IfCopied::GiveUp, ..BUFFERS };
/// Length of the file: several windows of what an engine bears in vain.
const LEN: u64 = 3 * WINDOW_BYTES + 12_345;

fn engine(name: &str) -> &'static EngineInfo {
    engines::find(name).unwrap()
}

/// A file full of bytes; `None` where it cannot be read with O_DIRECT.
fn source(seed: Seed, len_bytes: u64) -> Option<Arc<SpanFile>> {
    let file = file_in(&directories()[0]);
    content::fill(&file, seed, len_bytes).unwrap();
    let file = Arc::new(SpanFile::new(file));
    match file.direct() {
        Ok(_) => Some(file),
        Err(error) => {
            skip("O_DIRECT", error.to_string());
            None
        }
    }
}

fn in_spans(file: &Arc<SpanFile>, len_bytes: u64, span_bytes: u64) -> Vec<FileSpan> {
    let starts = (0..len_bytes).step_by(span_bytes as usize);
    let spans = starts.zip(1..);
    spans.map(|(at, id)| span(id, file, at, span_bytes.min(len_bytes - at))).collect()
}

/// Moves a file of `LEN` bytes, checks that it arrives, and tells what both ends did.
fn moved(memory: Buffers, sender: &str, receiver: &str, span_bytes: u64) -> Option<[Outcome; 2]> {
    let seed = Seed::from_env_or_random();
    let source = source(seed, LEN)?;
    let target = Arc::new(SpanFile::new(file_in(&directories()[0])));
    let (from, into) = (in_spans(&source, LEN, span_bytes), in_spans(&target, LEN, span_bytes));
    let with = |name| vec![engine(name), engine("read-write")];
    let buffers = SocketBuffers::Automatic;
    let (sent, received) =
        run_with(memory, with(sender), with(receiver), &from, &into, Tapped::Yes, buffers);
    check_all_done(&from, &sent);
    check_all_done(&into, &received);
    let content = content::bytes(seed, LEN as usize);
    let mut arrived = vec![0; LEN as usize];
    target.file().read_exact_at(&mut arrived, 0).unwrap();
    assert!(arrived == content, "{sender} -> {receiver}: the target differs");
    for seen in [&sent.seen, &received.seen] {
        assert!(seen.concat() == content, "{sender} -> {receiver}: a tap saw other bytes");
    }
    Some([sent, received])
}

fn copied(outcome: &Outcome) -> u64 {
    outcome.done.iter().map(|done| done.copied_bytes).sum()
}

#[test]
fn a_wire_that_copies_ends_zero_copy_sends_once_and_with_a_reason() {
    for span_bytes in [LEN, 1 << 20, 777_777] {
        let Some([sent, _]) = moved(GIVE_UP, "zerocopy-send", "read-write", span_bytes) else {
            return;
        };
        let [fallback] = &sent.fallbacks[..] else { panic!("{:?}", sent.fallbacks) };
        assert_eq!((fallback.from, fallback.to), ("zerocopy-send", "read-write"));
        let said = "bytes in spite of MSG_ZEROCOPY";
        assert!(fallback.why.contains("the kernel copied"), "{}", fallback.why);
        assert!(fallback.why.ends_with(said), "{}", fallback.why);
        assert_eq!(copied(&sent), LEN, "loopback copies every byte");
    }
}

#[test]
fn a_study_sees_every_byte_that_the_kernel_copied() {
    let Some([sent, _]) = moved(BUFFERS, "zerocopy-send", "read-write", 1 << 20) else { return };
    assert!(sent.fallbacks.is_empty(), "{:?}", sent.fallbacks);
    assert_eq!(copied(&sent), LEN);
}

/// Sends bytes from pages of their own without a copy, in one call.
fn send_pages(wire: &Wire, len_bytes: usize) {
    zero_copy::allow(wire.socket()).unwrap();
    let mut memory = PageMemory::new(len_bytes).unwrap();
    memory.bytes_mut().fill(7);
    let sent = zero_copy::send(wire.socket(), memory.bytes(), SendFlags::NOSIGNAL).unwrap();
    assert_eq!(sent, len_bytes);
}

fn wait_for_bytes(wire: &Wire) {
    poll(&mut [PollFd::new(wire.socket(), PollFlags::IN)], None).unwrap();
}

/// Whether what is sent without a copy comes in whole pages over loopback; says so if not.
fn maps_pages() -> bool {
    let (near, far) = wires(SocketBuffers::Automatic);
    send_pages(&near, 4 * 4096);
    wait_for_bytes(&far);
    let mut pages = SocketPages::new(far.socket(), 1 << 20).unwrap();
    let maps = pages.take(far.socket(), 2 * 4096, &mut []).unwrap().mapped_bytes > 0;
    if !maps {
        skip("a kernel that copies to whole pages", "none was mapped");
    }
    maps
}

/// Over loopback the kernel copies zero-copy sends into whole pages, which the receiver can map as
/// it can those of a network card with header split.
#[test]
fn pages_that_arrive_whole_are_mapped_and_reach_the_file() {
    if !maps_pages() {
        return;
    }
    for memory in [BUFFERS, GIVE_UP] {
        let Some([_, received]) = moved(memory, "zerocopy-send", "zerocopy-receive", 4 << 20)
        else {
            return;
        };
        let mapped = LEN - copied(&received);
        println!("{mapped} of {LEN} bytes were mapped, {:?}", received.fallbacks);
        // When both sides stay with it nearly all is mapped: 15 pages of each segment of 64 KiB.
        let share = if memory.if_copied == IfCopied::GoOn { LEN / 2 } else { 4096 };
        assert!(mapped >= share, "{mapped} of {LEN} bytes");
    }
}

/// A receiver of this engine, and a file for what it receives.
fn receiving(far: Wire) -> (Receiver, Arc<SpanFile>) {
    let candidates = vec![engine("zerocopy-receive")];
    let receiver = Receiver::open(candidates, far, &stream::host(), BUFFERS).unwrap();
    (receiver, Arc::new(SpanFile::new(file_in(&directories()[0]))))
}

#[test]
fn the_last_two_pages_of_a_span_are_worth_mapping_and_less_is_copied() {
    if !maps_pages() {
        return;
    }
    for (len, copied_bytes) in [(8191, 8191), (8192, 4096)] {
        let (near, far) = wires(SocketBuffers::Automatic);
        send_pages(&near, len);
        wait_for_bytes(&far);
        let (mut receiver, target) = receiving(far);
        let mut done = Vec::new();
        receiver.submit(&span(1, &target, 0, len as u64), None, &mut done).unwrap();
        assert_eq!(done[0].copied_bytes, copied_bytes, "of {len}");
        let mut arrived = vec![0; len];
        target.file().read_exact_at(&mut arrived, 0).unwrap();
        assert!(arrived.iter().all(|byte| *byte == 7), "{len}");
    }
}

/// The wait for pages ends where none will come, and the error is the connection's own.
#[test]
fn a_receiver_of_pages_tells_a_shutdown_from_a_reset() {
    for (is_reset, kind) in [(false, ErrorKind::UnexpectedEof), (true, ErrorKind::ConnectionReset)]
    {
        let (near, far) = wires(SocketBuffers::Automatic);
        let near = if is_reset {
            sockopt::set_socket_linger(near.socket(), Some(Duration::ZERO)).unwrap();
            drop(near);
            None
        } else {
            rustix::net::shutdown(far.socket(), Shutdown::Read).unwrap();
            Some(near)
        };
        wait_for_bytes(&far);
        let (mut receiver, target) = receiving(far);
        let span = span(1, &target, 0, 100_000);
        let error = receiver.submit(&span, None, &mut Vec::new()).unwrap_err();
        assert_eq!((error.remedy, error.source.kind()), (Remedy::Reconnect, kind), "{error}");
        drop(near);
    }
}

/// A receiver sleeps until many bytes have come where the window is large, but never for more than
/// its span still has.
#[test]
fn bytes_that_are_copied_beside_pages_count_for_the_end_of_a_span() {
    const SPAN_BYTES: u64 = 1 << 20;
    let (near, far) = wires(SocketBuffers::Automatic);
    // Only root may have more than net.core.rmem_max.
    let _ = sockopt::set_socket_recv_buffer_size_force(far.socket(), 8 << 20);
    let socket = far.socket().try_clone().unwrap();
    let plain = vec![engine("read-write")];
    let mut sender = Sender::open(plain, near, &stream::host(), BUFFERS).unwrap();
    let (mut receiver, target) = receiving(far);
    let bytes = vec![7; SPAN_BYTES as usize];
    // The window grows with the first ones; behind the last the peer waits, as for an answer.
    for (last, spans) in [(false, 16), (true, 1)] {
        let window_bytes = TcpInfo::of(&socket).unwrap().own_window_bytes;
        if last && window_bytes < 1 << 20 {
            return skip("a receive window of 1 MiB", format!("{window_bytes} bytes"));
        }
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..spans {
                    sender.send_bytes(&bytes, Boundary::Flush).unwrap();
                }
            });
            let mut done = Vec::new();
            for id in 0..spans {
                receiver.submit(&span(id, &target, 0, SPAN_BYTES), None, &mut done).unwrap();
            }
            assert_eq!(done.len() as u64, spans);
        });
    }
}

#[test]
fn segments_that_cannot_be_mapped_end_zero_copy_receiving_with_a_reason() {
    let Some([_, received]) = moved(GIVE_UP, "read-write", "zerocopy-receive", 4 << 20) else {
        return;
    };
    let [fallback] = &received.fallbacks[..] else { panic!("{:?}", received.fallbacks) };
    assert_eq!((fallback.from, fallback.to), ("zerocopy-receive", "read-write"));
    assert!(fallback.why.contains("needs a network card with header split"), "{}", fallback.why);
    assert!(fallback.why.ends_with("could not be mapped"), "{}", fallback.why);
    assert_eq!(copied(&received), LEN);
}

#[test]
fn a_span_is_done_when_the_wire_has_let_its_memory_go() {
    let len = 300_000;
    let Some(source) = source(Seed::from_env_or_random(), len) else { return };
    let (near, far) = wires(SocketBuffers::Automatic);
    rustix::net::sockopt::set_socket_recv_buffer_size(far.socket(), 40_000).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(near.socket(), 1 << 20).unwrap();
    let mut sender =
        Sender::open(vec![engine("zerocopy-send")], near, &stream::host(), BUFFERS).unwrap();
    let mut done = Vec::new();
    sender.submit(&span(1, &source, 0, len), None, &mut done).unwrap();
    sender.reap(Wait::DontBlock, &mut done).unwrap();
    // The peer has no room for all of it, so the wire still holds a part.
    assert_eq!((done.len(), sender.spans_in_flight()), (0, 1));
    let receiving = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let candidates = vec![engine("read-write")];
        let mut receiver = Receiver::open(candidates, far, &stream::host(), BUFFERS).unwrap();
        let mut got = vec![0; len as usize];
        receiver.receive_bytes(&mut got).unwrap();
        receiver
    });
    sender.reap(Wait::ForOne, &mut done).unwrap();
    assert_eq!((done[0].id.0, done[0].moved_bytes, done.len()), (1, len, 1));
    assert_eq!(sender.spans_in_flight(), 0);
    let mut receiver = receiving.join().unwrap();
    // Nothing is left on the wire that the next engine would have to take.
    sender.submit(&span(2, &source, 0, 10_000), None, &mut done).unwrap();
    let wire = sender.into_wire();
    let mut fds = [PollFd::new(wire.socket(), PollFlags::empty())];
    assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap(), 0);
    receiver.receive_bytes(&mut [0; 10_000]).unwrap();
    // Its sends have numbers that a second engine cannot know.
    let again = Sender::open(vec![engine("zerocopy-send")], wire, &stream::host(), BUFFERS);
    let Err(refused) = again else { panic!("opened twice") };
    assert!(refused.cause.source.to_string().contains("another engine has sent on"));
    let plain = vec![engine("read-write")];
    let mut plain = Sender::open(plain, refused.wire, &stream::host(), BUFFERS).unwrap();
    plain.send_bytes(b"on", Boundary::Flush).unwrap();
    receiver.receive_bytes(&mut [0; 2]).unwrap();
}

/// A span that failed and comes again has the same id as the one that is still in flight.
#[test]
fn a_span_that_comes_again_is_told_from_the_first_one() {
    let Some(source) = source(Seed::from_env_or_random(), 50_000) else { return };
    let (near, far) = wires(SocketBuffers::Automatic);
    let mut sender =
        Sender::open(vec![engine("zerocopy-send")], near, &stream::host(), BUFFERS).unwrap();
    let mut done = Vec::new();
    // Longer than the file: it fails when 50,000 bytes of it are on the wire.
    let failed = sender.submit(&span(1, &source, 0, 60_000), None, &mut done).unwrap_err();
    assert_eq!((failed.remedy, failed.moved_bytes), (Remedy::SkipFile, 50_000));
    for _ in 0..3 {
        sender.submit(&span(1, &source, 0, 40_000), None, &mut done).unwrap();
    }
    let candidates = vec![engine("read-write")];
    let mut receiver = Receiver::open(candidates, far, &stream::host(), BUFFERS).unwrap();
    receiver.receive_bytes(&mut vec![0; 170_000]).unwrap();
    sender.reap(Wait::ForAll, &mut done).unwrap();
    let moved = done.iter().map(|done| (done.id.0, done.moved_bytes)).collect::<Vec<_>>();
    assert_eq!(moved, [(1, 40_000); 3]);
    assert_eq!(sender.spans_in_flight(), 0);
}

#[test]
fn a_peer_that_leaves_while_spans_are_in_flight_keeps_nobody_waiting() {
    let len = 300_000;
    let Some(source) = source(Seed::from_env_or_random(), len) else { return };
    for reap_first in [true, false] {
        let (near, far) = wires(SocketBuffers::Automatic);
        rustix::net::sockopt::set_socket_recv_buffer_size(far.socket(), 40_000).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(near.socket(), 1 << 20).unwrap();
        let mut sender =
            Sender::open(vec![engine("zerocopy-send")], near, &stream::host(), BUFFERS).unwrap();
        let mut done = Vec::new();
        sender.submit(&span(1, &source, 0, len), None, &mut done).unwrap();
        assert_eq!(sender.spans_in_flight(), 1);
        // Bytes that nobody has read make this a reset.
        drop(far);
        if reap_first && let Err(error) = sender.reap(Wait::ForAll, &mut done) {
            assert_eq!(error.remedy, Remedy::Reconnect, "{error}");
            assert_eq!(sender.spans_in_flight(), 0);
        }
        let error = sender.submit(&span(2, &source, 0, len), None, &mut done).unwrap_err();
        assert_eq!(error.remedy, Remedy::Reconnect, "{error}");
        drop(sender.into_wire());
    }
}

/// A session ends by shutdown(2), whoever waits for what.
#[test]
fn a_shutdown_ends_the_wait_for_notices() {
    let len = 300_000;
    let Some(source) = source(Seed::from_env_or_random(), len) else { return };
    let (near, far) = wires(SocketBuffers::Automatic);
    rustix::net::sockopt::set_socket_recv_buffer_size(far.socket(), 40_000).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(near.socket(), 1 << 20).unwrap();
    let shut = near.socket().try_clone().unwrap();
    let mut sender =
        Sender::open(vec![engine("zerocopy-send")], near, &stream::host(), BUFFERS).unwrap();
    let mut done = Vec::new();
    sender.submit(&span(1, &source, 0, len), None, &mut done).unwrap();
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        rustix::net::shutdown(&shut, rustix::net::Shutdown::Both).unwrap();
    });
    let error = sender.reap(Wait::ForAll, &mut done).unwrap_err();
    assert_eq!((error.remedy, done.len()), (Remedy::Reconnect, 0), "{error}");
    assert_eq!(sender.spans_in_flight(), 0);
    ending.join().unwrap();
    drop((sender, far));
}

#[test]
fn many_small_spans_share_few_slots() {
    let seed = Seed::from_env_or_random();
    let len = 2_000_000;
    let Some(source) = source(seed, len) else { return };
    let target = Arc::new(SpanFile::new(file_in(&directories()[0])));
    let (from, into) = (in_spans(&source, len, 3_001), in_spans(&target, len, 3_001));
    for bytes_max in [0, 20_000, 1 << 20] {
        let memory = Buffers { bytes_max, ..BUFFERS };
        let (sent, received) = run_with(
            memory,
            vec![engine("zerocopy-send")],
            vec![engine("zerocopy-receive")],
            &from,
            &into,
            Tapped::No,
            SocketBuffers::Automatic,
        );
        check_all_done(&from, &sent);
        check_all_done(&into, &received);
        let mut arrived = vec![0; len as usize];
        target.file().read_exact_at(&mut arrived, 0).unwrap();
        assert!(arrived == content::bytes(seed, len as usize), "with {bytes_max} bytes");
    }
}
