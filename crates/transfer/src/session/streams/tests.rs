//! Tests of a session's streams: what their sockets tell, and how they end.

use super::*;
use std::{io::Write, net::TcpListener, sync::mpsc};

#[test]
fn what_a_socket_holds_fits_both_windows_or_not() {
    // Reno's and bbr's looks at a buffer of 32 KiB and 40 ms, then a window that is full.
    let seen = |cwnd_segments, unacked_segments, notsent_bytes, peer_window_bytes| TcpInfo {
        mss_bytes: 1448,
        cwnd_segments,
        unacked_segments,
        notsent_bytes,
        peer_window_bytes,
        ..TcpInfo::default()
    };
    assert!(fits_windows(&seen(396, 182, 0, 1_533_952)));
    assert!(fits_windows(&seen(106, 14, 47_784, 461_824)));
    assert!(!fits_windows(&seen(40, 40, 15_928, 80_896)), "the congestion window");
    assert!(!fits_windows(&seen(396, 44, 9_000, 65_536)), "the receiver's");
    assert!(!fits_windows(&seen(396, 0, 9_000, 0)), "a receiver that takes nothing");
    assert!(!fits_windows(&seen(10, 9, 1448, 65_536)), "it is full");
    assert!(fits_windows(&seen(10, 9, 1447, 65_536)));
}

#[test]
fn a_stream_tells_what_its_rdma_endpoints_did() {
    let moved = Arc::new(AtomicU64::new(7));
    assert_eq!(Beside::Sent(moved.clone()).bytes(), 7);
    moved.store(70, Ordering::Relaxed);
    assert_eq!(Beside::Received(moved).bytes(), 70);
    let before = FabricFigures { direct_bytes: 3, ..FabricFigures::default() };
    let port = "rxe0".to_owned();
    let rdma = Some(RdmaEnd { provider: "verbs", port, figures: FabricFigures::default() });
    let mut figures = StreamFigures { rdma, ..StreamFigures::default() };
    figures.takes_rdma(Some(before.clone()));
    figures.takes_rdma(None);
    assert_eq!(figures.rdma.unwrap().figures, before);
}

#[test]
fn packets_stand_in_a_queue_where_they_take_much_longer_than_alone() {
    let stands = |shortest_us, rtt_us| waits_in_queue(rtt_us, shortest_us);
    assert!(stands(20, 6500) && stands(40_000, 90_000));
    assert!(stands(20, 2020) && !stands(20, 2019), "hosts that gather packets");
    assert!(stands(40_000, 80_000) && !stands(40_000, 79_999));
    assert!(!stands(40_000, 60_000), "most of it is the way");
    assert!(!stands(0, 6500) && !stands(u32::MAX, 6500), "not known");
}

#[test]
fn bytes_too_few_to_wake_the_thread_do_not_count_as_unread() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (near, _) = listener.accept().unwrap();
    haul_sys::low_water::set_receive_low_water(&near, 1000).unwrap();
    let streams = Streams::new(Waker::new().unwrap());
    let (end, ends) = mpsc::channel::<()>();
    let work = move |_, _: &SharedFigures| ends.recv().map_err(|_| StreamError::Closed);
    streams.spawn(StreamId(0), move || Ok(near), work);
    let mut unread_after = |bytes: usize, expected: u64| {
        far.write_all(&vec![7; bytes]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let seen = || streams.open().first().map(|(_, figures)| figures.unread_bytes);
        while seen() != Some(expected) {
            assert!(Instant::now() < deadline, "{:?} for {expected}", seen());
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(50));
        assert_eq!(seen(), Some(expected));
    };
    unread_after(999, 0);
    unread_after(1, 1000);
    end.send(()).unwrap();
    streams.stop();
}

#[test]
fn a_preface_that_is_replayed_opens_nothing() {
    let streams = Streams::new(Waker::new().unwrap());
    assert!(streams.claim(StreamId(0), 2));
    assert!(!streams.claim(StreamId(0), 2));
    assert!(streams.claim(StreamId(1), 2));
    assert!(!streams.claim(StreamId(2), 2), "two are alive");
    streams.end(StreamId(0), None);
    assert!(!streams.claim(StreamId(0), 2), "a number is never used twice");
    assert!(streams.claim(StreamId(3), 2));
}
#[test]
fn the_last_look_that_found_more_is_known() {
    let begun = Instant::now();
    let at = |seconds| begun + Duration::from_secs(seconds);
    let tcp =
        |bytes_acked, bytes_received| TcpInfo { bytes_acked, bytes_received, ..TcpInfo::default() };
    let mut figures = StreamFigures::default();
    for (seconds, acked, received, moved_at) in
        [(0, 1, 0, 0), (1, 1, 0, 0), (2, 2, 0, 2), (3, 2, 5, 3), (4, 2, 5, 3), (5, 3, 6, 5)]
    {
        figures.moved(tcp(acked, received), at(seconds));
        assert_eq!(figures.moved_at, Some(at(moved_at)), "after {seconds} s");
        assert_eq!(figures.tcp.bytes_acked, acked);
    }
}

/// Case of a stream over RDMA, whose connection carries nothing and would have seemed to stand.
#[test]
fn what_goes_by_endpoints_counts_with_what_the_connection_carried_before() {
    let tcp = TcpInfo { bytes_sent: 7, bytes_acked: 5, bytes_received: 3, ..TcpInfo::default() };
    let bytes = Arc::new(AtomicU64::new(100));
    for (beside, moved) in [
        (None, [7, 5, 3]),
        (Some(Beside::Sent(bytes.clone())), [107, 105, 3]),
        (Some(Beside::Received(bytes)), [7, 5, 103]),
    ] {
        let mut figures = StreamFigures { beside, ..StreamFigures::default() };
        figures.moved(tcp, Instant::now());
        let TcpInfo { bytes_sent, bytes_acked, bytes_received, .. } = figures.tcp;
        assert_eq!([bytes_sent, bytes_acked, bytes_received], moved);
    }
}

#[test]
fn time_is_added_to_what_holds_a_stream() {
    let fits = TcpInfo {
        mss_bytes: 1000,
        cwnd_segments: 10,
        peer_window_bytes: 65_536,
        ..TcpInfo::default()
    };
    let queue = TcpInfo { min_rtt_us: 20, rtt_us: 6500, ..TcpInfo::default() };
    let waiting = TcpInfo { notsent_bytes: 1001, ..fits };
    let part = TcpInfo { notsent_bytes: 1000, ..fits };
    // At a span, without room, with a full buffer: what is held, by the buffer, by a queue, and
    // what is there without work.
    for (tcp, in_span, wire_holds, is_full, held) in [
        (&fits, true, true, true, [9, 9, 0, 0]),
        (&fits, true, true, false, [9, 0, 0, 0]),
        (&queue, true, true, true, [9, 0, 9, 0]),
        (&queue, true, true, false, [9, 0, 9, 0]),
        (&fits, true, false, true, [0; 4]),
        (&waiting, true, false, true, [0; 4]),
        (&waiting, false, false, true, [0, 0, 0, 9]),
        (&part, false, false, true, [0; 4]),
        (&fits, false, true, true, [0, 0, 0, 9]),
    ] {
        let tcp = *tcp;
        let mut figures = StreamFigures { tcp, in_span, wire_holds, ..Default::default() };
        for _ in 0..2 {
            figures.held(9, || is_full);
        }
        let found =
            [figures.held_ns, figures.buffer_held_ns, figures.queue_held_ns, figures.idle_held_ns];
        assert_eq!(found, held.map(|ns| ns * 2), "{figures:?}");
    }
}

/// Makes both ends of a connection.
fn ends() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().unwrap().0, far)
}

#[test]
fn a_look_at_a_socket_tells_whether_it_has_room_and_what_it_sends_by() {
    let (near, far) = ends();
    near.set_nonblocking(true).unwrap();
    let mut figures = StreamFigures { in_span: true, ..StreamFigures::default() };
    assert!(figures.look(&near).contains(PollFlags::OUT) && !figures.wire_holds);
    let is_paced = haul_sys::congestion::congestion(&near).unwrap().starts_with("bbr");
    assert_eq!(figures.is_paced, is_paced);
    while (&near).write(&[7; 65536]).is_ok() {}
    figures.look(&near);
    assert!(figures.wire_holds);
    let held = figures.held_ns;
    thread::sleep(Duration::from_millis(3));
    assert!(!figures.look(&near).contains(PollFlags::OUT));
    assert!(figures.held_ns >= held + 3_000_000 && figures.idle_held_ns == 0);
    drop(far);
}

#[test]
fn a_thread_is_known_by_what_the_kernel_counts_for_it() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("cold");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let forgotten = haul_testkit::page_cache::forget(&path, 0..1 << 20);
    thread::spawn(move || {
        let bytes = std::fs::read(&path).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(5) {
            std::hint::black_box(blake3::hash(&bytes));
        }
        let thread = Some(gettid());
        let mut figures = StreamFigures { thread, cpu_ns: 2, ..StreamFigures::default() };
        figures.look_at_thread();
        assert!(figures.cpu_ns > 100, "{figures:?}");
        if forgotten.is_ok() {
            assert!(figures.read_bytes >= Some(1 << 20), "{figures:?}");
        }
        let cpu_ns = u64::MAX;
        let mut later = StreamFigures { thread, cpu_ns, ..StreamFigures::default() };
        later.look_at_thread();
        assert_eq!(later.cpu_ns, cpu_ns, "what its own clock says is newer");
    })
    .join()
    .unwrap();
    drop(directory);
}

#[test]
fn no_stream_has_a_number_beyond_those_of_a_session() {
    let streams = Streams::new(Waker::new().unwrap());
    assert_eq!([streams.next_id(), streams.next_id()], [StreamId(0), StreamId(1)]);
    for number in 0..limits::STREAMS_EVER_MAX {
        assert!(streams.claim(StreamId(number), 1));
        streams.release(StreamId(number));
    }
    assert!(!streams.claim(StreamId(limits::STREAMS_EVER_MAX), 1));
}

/// Work that lasts until its socket is shut, and a little longer.
fn until_shut(
    left: &Arc<AtomicU64>,
) -> impl FnOnce(OwnedFd, &SharedFigures) -> Result<(), StreamError> + Send + 'static {
    let left = left.clone();
    move |socket, figures| {
        lock(figures).in_span = true;
        let _ = io::Read::read(&mut TcpStream::from(socket), &mut [0]);
        thread::sleep(Duration::from_millis(80));
        left.fetch_add(1, Ordering::Relaxed);
        Err(StreamError::Closed)
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(8);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn all_streams_are_ended_and_waited_for_whatever_they_do() {
    let streams = Streams::new(Waker::new().unwrap());
    let left = Arc::new(AtomicU64::new(0));
    let mut fars = Vec::new();
    for number in 0..3 {
        let (near, far) = ends();
        fars.push(far);
        assert!(streams.claim(StreamId(number), 3));
        streams.spawn(StreamId(number), move || Ok(near), until_shut(&left));
    }
    wait_for("three are open", || streams.open_count() == 3);
    assert!(!streams.stopping());
    assert_eq!(streams.all_figures().len(), 3);
    // One that ends makes room, and is known still.
    streams.shut(StreamId(0));
    wait_for("it ends", || streams.open_count() == 2);
    wait_for("it is told", || !lock(&streams.events).is_empty());
    let events = streams.take_events();
    let [StreamEvent::Ended { stream, why, in_span, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(stream.0 == 0 && *in_span && matches!(why, Some(StreamError::Closed)));
    let over = || lock(&streams.threads).iter().filter(|thread| thread.is_finished()).count();
    wait_for("its thread is over", || over() == 1);
    let (near, far) = ends();
    fars.push(far);
    assert!(streams.claim(StreamId(3), 3));
    streams.spawn(StreamId(3), move || Ok(near), until_shut(&left));
    wait_for("another", || streams.open_count() == 3);
    // Only those that work have a thread to wait for.
    assert_eq!(over(), 0);
    assert_eq!(lock(&streams.threads).len(), 3);
    assert_eq!(streams.socket_figures().iter().filter(|it| it.is_open).count(), 3);
    assert!(streams.all_figures().iter().all(|it| it.thread.is_some()));
    streams.stop();
    assert_eq!(left.load(Ordering::Relaxed), 4);
    assert!(streams.stopping() && streams.open_count() == 0);
    assert_eq!(streams.socket_figures().len(), 4);
    // None works that is only begun then.
    let (near, _far) = ends();
    streams.spawn(StreamId(4), move || Ok(near), until_shut(&left));
    streams.join();
    assert_eq!(left.load(Ordering::Relaxed), 4);
}

#[test]
fn streams_that_do_not_end_by_themselves_are_ended() {
    for (leaves, least_ms) in [(true, 0), (false, 200)] {
        let streams = Streams::new(Waker::new().unwrap());
        let left = Arc::new(AtomicU64::new(0));
        let (near, far) = ends();
        streams.spawn(StreamId(0), move || Ok(near), until_shut(&left));
        wait_for("it is open", || streams.open_count() == 1);
        let far = (!leaves).then_some(far);
        let begun = Instant::now();
        streams.join_within(Duration::from_millis(if leaves { 60_000 } else { 200 }));
        assert_eq!(left.load(Ordering::Relaxed), 1);
        assert!(begun.elapsed() >= Duration::from_millis(least_ms));
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(streams.stopping(), !leaves);
        drop(far);
    }
}

#[test]
fn a_connection_that_was_reset_is_seen() {
    let streams = Streams::new(Waker::new().unwrap());
    let (near, mut far) = ends();
    let (end, ends) = mpsc::channel::<()>();
    let work = move |_, _: &SharedFigures| ends.recv().map_err(|_| StreamError::Closed);
    streams.spawn(StreamId(0), move || Ok(near), work);
    wait_for("it is open", || streams.open_count() == 1);
    assert!(!streams.open()[0].1.hung_up);
    let before = streams.moved_bytes();
    far.write_all(b"123").unwrap();
    wait_for("three bytes", || streams.moved_bytes() == before + 3);
    sockopt::set_socket_linger(&far, Some(Duration::ZERO)).unwrap();
    drop(far);
    wait_for("a reset", || streams.open()[0].1.hung_up);
    end.send(()).unwrap();
    streams.stop();
}

#[test]
fn open_streams_and_those_that_send_get_the_congestion_control_that_was_chosen() {
    let of = |socket: &TcpStream| haul_sys::congestion::congestion(socket).unwrap();
    let (near, _far) = ends();
    for control in ["reno", "cubic"] {
        haul_sys::congestion::set_congestion(&near, control).ok();
    }
    let (before, other) = (of(&near), if of(&near) == "reno" { "cubic" } else { "reno" });
    if haul_sys::congestion::set_congestion(&near, other).is_err() || of(&near) == before {
        return haul_testkit::skip::skip("two congestion controls", before);
    }
    haul_sys::congestion::set_congestion(&near, &before).unwrap();
    let mut setup = StreamSetup::of_nobody();
    setup.congestion.control = Some(other.to_owned());
    setup.pacing_bytes_per_s = Some(12_345_678);
    set_up_sender(&near, &setup);
    assert!(of(&near) == other && near.nodelay().unwrap());
    assert_eq!(haul_sys::pacing::max_pacing_rate(&near).unwrap(), 12_345_678);
    let streams = Streams::new(Waker::new().unwrap());
    let seen = near.try_clone().unwrap();
    let left = Arc::new(AtomicU64::new(0));
    streams.spawn(StreamId(0), move || Ok(near), until_shut(&left));
    wait_for("it is open", || streams.open_count() == 1);
    assert_eq!(streams.open().len(), 1);
    let looked_at = || lock(&lock(&streams.handles)[&StreamId(0)].figures).looked_at;
    streams.set_congestion(other);
    assert!(looked_at().is_some(), "nothing has changed");
    streams.set_congestion(&before);
    assert!(of(&seen) == before && looked_at().is_none());
    streams.stop();
}

#[test]
fn a_side_looks_at_bytes_for_a_digest_or_for_their_values() {
    let sees =
        |digest, content| StreamSetup { digest, content, ..StreamSetup::of_nobody() }.sees_bytes();
    assert!(!sees(message::Digest::None, false) && sees(message::Digest::None, true));
    assert!(sees(message::Digest::Crc32c, false) && sees(message::Digest::Crc32c, true));
}

#[test]
fn the_session_s_thread_is_woken_and_the_time_of_a_quota_is_told() {
    let streams = Streams::new(Waker::new().unwrap());
    let is_awake = || {
        let mut fds = [PollFd::new(&streams.waker, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    assert!(!is_awake());
    streams.wake();
    assert!(is_awake());
    let before = streams.throttling.ns();
    let told = streams.throttled_ns();
    assert!(before <= told && told <= streams.throttling.ns());
}

#[test]
fn a_stream_that_is_ending_is_in_every_sum_of_figures() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let streams = Streams::new(Waker::new().unwrap());
    let (end, ends) = mpsc::channel::<()>();
    let ends = Arc::new(std::sync::Mutex::new(ends));
    let count = 40;
    for id in 0..count {
        let ends = ends.clone();
        let work = move |_, _: &SharedFigures| {
            let ended = ends.lock().unwrap().recv();
            ended.map_err(|_| StreamError::Closed)
        };
        streams.spawn(StreamId(id), move || TcpStream::connect(address), work);
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while streams.socket_figures().len() < count as usize {
        assert!(Instant::now() < deadline, "not all streams opened");
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..count {
        end.send(()).unwrap();
    }
    while streams.open_count() > 0 {
        assert_eq!(streams.socket_figures().len(), count as usize);
        assert!(Instant::now() < deadline, "not all streams ended");
    }
    assert_eq!(streams.socket_figures().len(), count as usize);
}
