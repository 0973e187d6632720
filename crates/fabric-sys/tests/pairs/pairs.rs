//! Every operation of a pair of endpoints, and what goes wrong.

use std::{
    fs::File,
    io::Write,
    net::IpAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use haul_fabric_sys::{
    Buffer, Channel, Completion, Domain, EndpointKind, Error, Info, Listener, NoWindow, Operation,
    Patience, Queue, Reach, Source, Window, connect,
};
use haul_testkit::{FabricWay, fabric_ways};

const LONG: Duration = Duration::from_secs(20);
const TICKET: [u8; 16] = *b"sixteen letters.";
const QUEUE: Queue = Queue::CanSleep;

fn kind(way: FabricWay) -> EndpointKind {
    match way.provider {
        "shm" => EndpointKind::ReliableDatagrams,
        _ => EndpointKind::Connected,
    }
}

fn domain(way: FabricWay, local: IpAddr) -> Arc<Domain> {
    let node = (kind(way) == EndpointKind::Connected).then(|| local.to_string());
    let info = Info::find(way.provider, kind(way), node.as_deref()).expect("it is there");
    Domain::open(info).expect("it opens")
}

/// Two ends; the second one was listened for.
fn pair(way: FabricWay) -> (Channel, Channel) {
    let mut listener = Listener::new(&domain(way, way.far), TICKET, QUEUE).expect("it listens");
    let address = listener.address().expect("it has an address");
    let accepted =
        thread::spawn(move || listener.accept(Patience::new(LONG, &|| false)).expect("it accepts"));
    let near =
        connect(&domain(way, way.near), &address, &TICKET, QUEUE, Patience::new(LONG, &|| false))
            .expect("it connects");
    (near, accepted.join().expect("it ends"))
}

fn buffer(channel: &Channel, bytes: &[u8], reach: Reach) -> Buffer {
    let mut buffer = Buffer::new(channel.domain(), bytes.len(), reach).expect("memory");
    buffer.bytes_mut().copy_from_slice(bytes);
    buffer
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("it is written");
    file
}

/// Drives both ends until each has brought as many completions as are wanted of it.
fn drive(ends: [(&mut Channel, usize); 2]) -> [Vec<Completion>; 2] {
    let begun = Instant::now();
    let mut all = [Vec::new(), Vec::new()];
    let [(near, near_wanted), (far, far_wanted)] = ends;
    while all[0].len() < near_wanted || all[1].len() < far_wanted {
        all[0].extend(near.poll().expect("a queue"));
        all[1].extend(far.poll().expect("a queue"));
        assert!(begun.elapsed() < LONG, "{all:?}");
    }
    all
}

#[test]
fn what_one_end_sends_the_other_receives() {
    for way in fabric_ways() {
        let (mut near, mut far) = pair(way);
        for len_bytes in [1, 4096, 100_000, 1 << 20] {
            let bytes: Vec<u8> = (0..len_bytes).map(|at| (at * 7) as u8).collect();
            let empty = buffer(&far, &vec![0; len_bytes + 5], Reach::Local);
            far.post(Operation::Receive(empty)).unwrap();
            let full = buffer(&near, &bytes, Reach::Local);
            near.post(Operation::Send(Source::Buffer(full, 0..len_bytes))).unwrap();
            let [sent, received] = drive([(&mut near, 1), (&mut far, 1)]);
            assert!(sent[0].outcome.is_ok(), "{way:?}: {sent:?}");
            assert_eq!(received[0].outcome, Ok(len_bytes), "{way:?}");
            let Operation::Receive(buffer) = &received[0].operation else { panic!("{received:?}") };
            assert!(buffer.bytes()[..len_bytes] == bytes && buffer.bytes()[len_bytes..] == [0; 5]);
        }
        assert_eq!((near.under_way(), far.under_way()), (0, 0));
    }
}

#[test]
fn one_end_writes_and_reads_the_memory_of_the_other() {
    for way in fabric_ways() {
        let (mut near, mut far) = pair(way);
        let theirs = buffer(&far, &[1; 8192], Reach::RemoteWrite);
        let full = buffer(&near, &[9; 4096], Reach::Local);
        let to = theirs.remote().from(4096);
        near.post(Operation::Write(Source::Buffer(full, 96..4096), to)).unwrap();
        let [written, _] = drive([(&mut near, 1), (&mut far, 0)]);
        assert!(written[0].outcome.is_ok(), "{way:?}: {written:?}");
        let begun = Instant::now();
        while theirs.bytes()[8095] != 9 {
            assert!(far.poll().unwrap().is_none() && begun.elapsed() < LONG);
        }
        assert!(theirs.bytes()[..4096] == [1; 4096] && theirs.bytes()[4096..8096] == [9; 4000]);
        assert!(theirs.bytes()[8096..] == [1; 96]);

        let theirs = buffer(&far, &[5; 8192], Reach::RemoteRead);
        let empty = buffer(&near, &[0; 4096], Reach::Local);
        near.post(Operation::Read(empty, 10..20, theirs.remote())).unwrap();
        let [read, _] = drive([(&mut near, 1), (&mut far, 0)]);
        let Operation::Read(buffer, ..) = &read[0].operation else { panic!("{read:?}") };
        assert!(buffer.bytes()[..10] == [0; 10] && buffer.bytes()[10..20] == [5; 10], "{way:?}");
        assert!(buffer.bytes()[20..] == [0; 4076]);
    }
}

#[test]
fn pages_of_a_file_are_sent_without_a_buffer() {
    for way in fabric_ways() {
        let (mut near, mut far) = pair(way);
        let bytes: Vec<u8> = (0..300_000).map(|at| (at / 3) as u8).collect();
        let file = file_of(&bytes);
        let window = Arc::new(Window::new(near.domain(), &file, 8192, 200_000).unwrap());
        assert_eq!(window.len_bytes(), 200_000);
        let empty = buffer(&far, &vec![0; 200_000], Reach::Local);
        far.post(Operation::Receive(empty)).unwrap();
        near.post(Operation::Send(Source::Window(window, 100..150_100))).unwrap();
        let [sent, received] = drive([(&mut near, 1), (&mut far, 1)]);
        assert!(sent[0].outcome.is_ok(), "{way:?}");
        let Operation::Receive(buffer) = &received[0].operation else { panic!("{received:?}") };
        assert_eq!(received[0].outcome, Ok(150_000));
        assert!(buffer.bytes()[..150_000] == bytes[8292..158_292], "{way:?}");
    }
}

#[test]
fn a_wait_ends_without_a_completion_and_with_one() {
    for way in fabric_ways() {
        let (mut near, mut far) = pair(way);
        let begun = Instant::now();
        assert!(far.wait(Duration::from_millis(60)).unwrap().is_none());
        assert!(begun.elapsed() >= Duration::from_millis(60), "{way:?}");
        let empty = buffer(&far, &[0; 8], Reach::Local);
        far.post(Operation::Receive(empty)).unwrap();
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(40));
            let full = buffer(&near, b"eight by", Reach::Local);
            near.post(Operation::Send(Source::Buffer(full, 0..8))).unwrap();
            assert!(near.wait(LONG).unwrap().unwrap().outcome.is_ok());
            near
        });
        assert_eq!(far.wait(LONG).unwrap().unwrap().outcome, Ok(8), "{way:?}");
        sender.join().unwrap();
    }
}

#[test]
fn who_has_another_ticket_is_turned_away_and_the_right_one_still_comes_in() {
    for way in fabric_ways() {
        let mut listener = Listener::new(&domain(way, way.far), TICKET, QUEUE).unwrap();
        let address = listener.address().unwrap();
        let accepted =
            thread::spawn(move || listener.accept(Patience::new(LONG, &|| false)).unwrap());
        let short = Duration::from_millis(500);
        let refused = connect(
            &domain(way, way.near),
            &address,
            &[7; 16],
            QUEUE,
            Patience::new(short, &|| false),
        )
        .unwrap_err();
        let codes = [libc::ECONNREFUSED, libc::ETIMEDOUT];
        assert!(codes.contains(&refused.code), "{way:?}: {refused}");
        let near = connect(
            &domain(way, way.near),
            &address,
            &TICKET,
            QUEUE,
            Patience::new(LONG, &|| false),
        )
        .unwrap();
        drop((near, accepted.join().unwrap()));
    }
}

#[test]
fn nobody_is_waited_for_longer_than_was_said() {
    for way in fabric_ways() {
        let listener = Listener::new(&domain(way, way.far), TICKET, QUEUE).unwrap();
        let begun = Instant::now();
        let error =
            listener.accept(Patience::new(Duration::from_millis(200), &|| false)).unwrap_err();
        assert_eq!(error.code, libc::ETIMEDOUT, "{way:?}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn an_end_that_goes_is_told_and_what_it_had_posted_is_freed() {
    for way in fabric_ways() {
        let (mut near, mut far) = pair(way);
        for _ in 0..4 {
            let empty = buffer(&far, &[0; 4096], Reach::Local);
            far.post(Operation::Receive(empty)).unwrap();
        }
        assert_eq!(far.under_way(), 4);
        drop(far);
        if kind(way) == EndpointKind::Connected {
            let full = buffer(&near, &[1; 1 << 20], Reach::Local);
            let posted = near.post(Operation::Send(Source::Buffer(full, 0..1 << 20)));
            let begun = Instant::now();
            let told = posted.is_err()
                || match near.wait(LONG) {
                    Ok(completion) => completion.is_some_and(|one| one.outcome.is_err()),
                    Err(error) => error.code == libc::ESHUTDOWN,
                };
            assert!(told && begun.elapsed() < LONG / 4, "{way:?} {:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_provider_that_is_not_there_is_an_error() {
    let error = Info::find("nothing", EndpointKind::Connected, None).unwrap_err();
    assert_eq!(error.call, "fi_getinfo");
    assert!(error.to_string().starts_with("fi_getinfo: "), "{error}");
}

#[test]
fn a_file_that_cannot_be_mapped_gives_no_window() {
    let way = fabric_ways()[0];
    let domain = domain(way, way.near);
    let directory = File::open("/").unwrap();
    assert!(Window::new(&domain, directory, 0, 4096).is_err());
}

#[test]
fn a_file_that_is_cut_short_is_an_error_or_told_and_never_a_signal() {
    let ways = fabric_ways().into_iter().filter(|way| way.provider != "verbs");
    for (way, len_bytes) in ways.flat_map(|way| [(way, 1000), (way, 400_000)]) {
        let (mut near, mut far) = pair(way);
        let file = file_of(&vec![0; len_bytes]);
        let (window, posted) = send_what_is_cut(&mut near, &mut far, &file, len_bytes);
        let (begun, mut is_told) = (Instant::now(), posted.is_err());
        while !is_told {
            let over = [near.poll(), far.poll()];
            is_told = window.has_lost_a_page()
                || over.iter().any(|end| {
                    matches!(end, Err(_) | Ok(Some(Completion { outcome: Err(_), .. })))
                });
            assert!(begun.elapsed() < LONG, "{way:?} {len_bytes}");
        }
    }
}

#[test]
fn a_card_has_no_window_on_pages_behind_the_end_of_a_file() {
    for way in fabric_ways().into_iter().filter(|way| way.provider == "verbs") {
        let domain = domain(way, way.near);
        let refused = Window::new(&domain, file_of(&[1; 10_000]), 0, 400_000).unwrap_err();
        let NoWindow::Register(error) = refused else { panic!("{way:?} {refused:?}") };
        assert_eq!(error.code, libc::EFAULT, "{way:?} {error}");
        assert!(Window::new(&domain, file_of(&[1; 10_000]), 0, 10_000).is_ok(), "{way:?}");
    }
}

#[test]
fn a_card_sends_the_pages_of_a_file_as_they_were_when_it_was_cut_short() {
    let ways = fabric_ways().into_iter().filter(|way| way.provider == "verbs");
    for (way, len_bytes) in ways.flat_map(|way| [(way, 1000), (way, 400_000)]) {
        let (mut near, mut far) = pair(way);
        let file = file_of(&vec![7; len_bytes]);
        let (window, posted) = send_what_is_cut(&mut near, &mut far, &file, len_bytes);
        posted.unwrap();
        let [sent, received] = drive([(&mut near, 1), (&mut far, 1)]);
        assert!(sent[0].outcome.is_ok(), "{way:?} {sent:?}");
        assert_eq!(received[0].outcome, Ok(len_bytes), "{way:?}");
        let Operation::Receive(buffer) = &received[0].operation else { panic!("{received:?}") };
        assert!(buffer.bytes()[..len_bytes] == vec![7; len_bytes], "{way:?} {len_bytes}");
        // The processor finds nothing there any more.
        let mut seen = Vec::new();
        assert!(window.see(0..len_bytes, |bytes| seen.extend_from_slice(bytes)).is_err());
        assert!(window.has_lost_a_page());
    }
}

/// Posts a window on all of a file that is cut short then, and a buffer that it comes into.
fn send_what_is_cut(
    near: &mut Channel,
    far: &mut Channel,
    file: &File,
    len_bytes: usize,
) -> (Arc<Window>, Result<(), (Operation, Error)>) {
    let window = Arc::new(Window::new(near.domain(), file, 0, len_bytes).expect("a window"));
    assert!(!window.has_lost_a_page());
    file.set_len(0).expect("it is cut");
    let empty = buffer(far, &vec![0; len_bytes], Reach::Local);
    far.post(Operation::Receive(empty)).expect("room");
    let posted = near.post(Operation::Send(Source::Window(window.clone(), 0..len_bytes)));
    (window, posted)
}

#[test]
fn an_end_whose_peer_in_the_same_process_has_gone_can_still_be_polled() {
    for way in fabric_ways() {
        for _ in 0..20 {
            let (mut near, far) = pair(way);
            drop(far);
            for _ in 0..100 {
                let _ = near.poll();
                let full = buffer(&near, &[3; 5000], Reach::Local);
                let _ = near.post(Operation::Send(Source::Buffer(full, 0..5000)));
            }
        }
    }
}

#[test]
fn a_wait_for_a_peer_ends_when_it_is_stopped() {
    for way in fabric_ways() {
        let listener = Listener::new(&domain(way, way.far), TICKET, QUEUE).unwrap();
        let begun = Instant::now();
        let stop = || begun.elapsed() > Duration::from_millis(100);
        let error = listener.accept(Patience::new(LONG, &stop)).unwrap_err();
        assert_eq!(error.code, libc::ECANCELED, "{way:?}: {error}");
        assert!(begun.elapsed() < LONG / 4);
    }
}
