//! Streams of frames and parts of files between two ends, and what breaks them.

use std::{
    fs::File,
    io::Write,
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    os::unix::fs::FileExt,
    thread,
    time::{Duration, Instant},
};

use haul_fabric::{
    Contact, Error, Exchange, Fabric, FileError, Provider, ReceiveEnd, SendEnd, Wait,
};
use haul_testkit::{FabricWay, fabric_ways};

pub const LONG: Duration = Duration::from_secs(20);
pub const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub const MIB: usize = 1 << 20;

pub fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((HERE, 0)).expect("it works here");
    let near =
        TcpStream::connect(listener.local_addr().expect("it works here")).expect("it works here");
    (near, listener.accept().expect("it works here").0)
}

pub fn open(way: FabricWay, local: IpAddr) -> Fabric {
    let provider = way.provider.parse().expect("haul knows it");
    Fabric::open(provider, local).expect("it works here")
}

/// Two ends with this much memory each, and another handle of the sender's lifeline.
pub fn pair(way: FabricWay, memory: [usize; 2], wait: Wait) -> (SendEnd, ReceiveEnd, TcpStream) {
    let (near, far) = sockets();
    let handle = near.try_clone().expect("it works here");
    let listening = open(way, way.far).waiting(wait).listen([7; 16]).expect("it works here");
    let contact = Contact::decode(&listening.contact().encode()).expect("it works here");
    let accepted = thread::spawn(move || {
        let pair = listening.accept(far.into(), LONG).expect("it works here");
        pair.into_receiver(memory[1]).expect("it works here")
    });
    let fabric = open(way, way.near).waiting(wait);
    let near = fabric.connect(&contact, near.into(), LONG).expect("it works here");
    let near = near.into_sender(memory[0]).expect("it works here");
    (near, accepted.join().expect("it works here"), handle)
}

/// Two ends whose sides take turns.
fn turns(way: FabricWay, message_bytes_max: usize, wait: Wait) -> (Exchange, Exchange) {
    let (near, far) = sockets();
    let listening = open(way, way.far).waiting(wait).listen([7; 16]).expect("it works here");
    let contact = listening.contact().clone();
    let accepted = thread::spawn(move || {
        let pair = listening.accept(far.into(), LONG).expect("it works here");
        pair.into_exchange(message_bytes_max).expect("it works here")
    });
    let fabric = open(way, way.near).waiting(wait);
    let pair = fabric.connect(&contact, near.into(), LONG).expect("it works here");
    let near = pair.into_exchange(message_bytes_max).expect("it works here");
    (near, accepted.join().expect("it works here"))
}

pub fn bytes_of(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at + seed) % 65_521 % 256) as u8).collect()
}

pub fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("it works here");
    file.write_all(bytes).expect("it works here");
    file
}

#[test]
fn frames_and_parts_of_files_arrive_in_order_as_one_stream() {
    for way in fabric_ways() {
        for (memory, wait) in [
            ([32 * MIB, 32 * MIB], Wait::Adaptive),
            ([800_000, 400_000], Wait::Sleep),
            ([400_000, 8 * MIB], Wait::Poll),
        ] {
            let (mut near, mut far, _) = pair(way, memory, wait);
            let content = bytes_of(11 * MIB, 3);
            let file = file_of(&content);
            // Offset and length: nothing, less and more than a window, and neither at a page.
            let parts =
                [(0, 1), (5, 0), (4096, 100_000), (1, 9 * MIB), (77, 20_000), (0, 11 * MIB)];
            let wanted = parts.map(|(from, len)| content[from..from + len].to_vec());
            let sender = thread::spawn(move || {
                let mut seen = Vec::new();
                for (number, (from, len)) in parts.into_iter().enumerate() {
                    near.send(&bytes_of(30 + number * 50_000, number)).unwrap();
                    let mut see = |bytes: &[u8]| seen.extend_from_slice(bytes);
                    near.send_file(&file, from as u64, len as u64, &mut see).unwrap();
                }
                near.settle().unwrap();
                let figures = near.figures().clone();
                drop(near);
                (seen, figures)
            });
            for (number, wanted) in wanted.iter().enumerate() {
                let mut frame = vec![0; 30 + number * 50_000];
                far.receive(&mut frame).unwrap();
                assert!(frame == bytes_of(frame.len(), number), "{way:?} frame {number}");
                let mut came = vec![0; wanted.len()];
                far.receive(&mut came).unwrap();
                assert!(came == *wanted, "{way:?} part {number}");
            }
            assert_eq!(far.peek().unwrap_err(), Error::PeerGone);
            drop(far);
            let (seen, figures) = sender.join().unwrap();
            assert!(seen == wanted.concat());
            assert_eq!(figures.refused, None);
            let all = wanted.iter().map(|part| part.len() as u64).sum::<u64>();
            assert_eq!(figures.window_bytes + figures.copied_bytes, all, "{way:?} {memory:?}");
            // Ends of windows that the provider copies.
            assert!(figures.copied_bytes < all / 50, "{way:?} {memory:?}: {figures:?}");
        }
    }
}

#[test]
fn a_message_is_taken_with_its_memory_and_given_back() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let content = bytes_of(20 * MIB, 9);
        let file = file_of(&content);
        let sender = thread::spawn(move || {
            near.send(b"head").unwrap();
            near.send_file(&file, 0, 20 * MIB as u64, &mut |_| ()).unwrap();
            near.send(b"tail").unwrap();
        });
        let mut head = [0; 4];
        far.receive(&mut head).unwrap();
        let (mut at, mut held) = (0, Vec::new());
        while at < content.len() {
            let left = (content.len() - at) as u64;
            let message = far.take(left).unwrap().unwrap();
            // At a page: fit for O_DIRECT.
            assert_eq!(message.bytes().as_ptr() as usize % 4096, 0);
            assert!(content[at..].starts_with(message.bytes()));
            at += message.bytes().len();
            held.push(message);
            // More than half of all messages are held at a time.
            if held.len() == 5 {
                held.drain(..).for_each(|message| far.give_back(message).unwrap());
            }
        }
        assert!(far.take(3).unwrap().is_none(), "{way:?}: a message that is longer");
        held.drain(..).for_each(|message| far.give_back(message).unwrap());
        assert_eq!(far.peek().unwrap(), b"tail");
        far.skip(4).unwrap();
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone);
        drop(far);
        sender.join().unwrap();
    }
}

#[test]
fn a_receiver_that_is_slow_is_waited_for_and_never_overrun() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [MIB, 64 << 10], Wait::Adaptive);
        let sender = thread::spawn(move || {
            for number in 0..2000_u32 {
                near.send(&number.to_le_bytes()).unwrap();
                near.flush().unwrap();
            }
            near.settle().unwrap();
            near.figures().waits_for_room
        });
        thread::sleep(Duration::from_millis(100));
        for number in 0..2000_u32 {
            let mut came = [0; 4];
            far.receive(&mut came).unwrap();
            assert_eq!(u32::from_le_bytes(came), number);
        }
        // Not before the sender has settled.
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone);
        drop(far);
        assert!(sender.join().unwrap() > 0, "{way:?}");
    }
}

#[test]
fn an_end_whose_lifeline_is_cut_says_at_once_that_the_peer_has_left() {
    for way in fabric_ways() {
        for wait in [Wait::Adaptive, Wait::Sleep, Wait::Poll] {
            let (mut near, mut far, lifeline) = pair(way, [MIB, MIB], wait);
            let cut = thread::spawn(move || {
                thread::sleep(Duration::from_millis(50));
                lifeline.shutdown(std::net::Shutdown::Both).unwrap();
            });
            let begun = Instant::now();
            // The receiver reads nothing, so that this waits for room.
            let error = loop {
                if let Err(error) = near.send(&[1; 100_000]) {
                    break error;
                }
            };
            assert_eq!(error, Error::PeerGone, "{way:?} {wait:?}");
            cut.join().unwrap();
            drop(near);
            let error = loop {
                match far.peek().map(<[u8]>::len) {
                    Ok(len) => far.skip(len).unwrap(),
                    Err(error) => break error,
                }
            };
            assert_eq!(error, Error::PeerGone, "{way:?} {wait:?}");
            assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        }
    }
}

/// Case of a stream that was cut, and went on for as long as its peer sent.
#[test]
fn an_end_whose_lifeline_is_cut_stops_though_messages_still_come() {
    for way in fabric_ways() {
        let (near, far) = sockets();
        let cut = far.try_clone().unwrap();
        let listening = open(way, way.far).listen([7; 16]).unwrap();
        let contact = Contact::decode(&listening.contact().encode()).unwrap();
        let sender = thread::spawn(move || {
            let pair = open(way, way.near).connect(&contact, near.into(), LONG).unwrap();
            let mut near = pair.into_sender(MIB).unwrap();
            while near.send(&[1; 4096]).and_then(|()| near.flush()).is_ok() {}
        });
        let pair = listening.accept(far.into(), LONG).unwrap();
        let mut far = pair.into_receiver(8 * 4096).unwrap();
        let mut came = 0;
        let error = loop {
            if came == 100 {
                cut.shutdown(std::net::Shutdown::Both).unwrap();
            }
            match far.peek().map(<[u8]>::len).and_then(|len| far.skip(len)) {
                Ok(()) => came += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, Error::PeerGone, "{way:?}");
        assert!(came < 100 + 40, "{way:?}: {came} messages, 100 of them before the cut");
        drop(far);
        sender.join().unwrap();
    }
}

#[test]
fn sides_that_take_turns_see_each_message_of_the_other_until_it_leaves() {
    for way in fabric_ways() {
        for wait in [Wait::Poll, Wait::Sleep, Wait::Adaptive] {
            let (mut near, mut far) = turns(way, 5000, wait);
            let answers = thread::spawn(move || {
                for turn in 1..=40 {
                    let came = far.receive().unwrap().to_vec();
                    assert!(came == bytes_of(turn * 100, turn), "{way:?} {turn}");
                    far.send(came.len() + 1, |room| room[..came.len()].copy_from_slice(&came))
                        .unwrap();
                }
                assert!(far.receive().unwrap() == b"bye", "{way:?}");
                far
            });
            for turn in 1..=40 {
                let message = bytes_of(turn * 100, turn);
                near.send(message.len(), |room| room.copy_from_slice(&message)).unwrap();
                let came = near.receive().unwrap();
                assert_eq!(came.len(), message.len() + 1, "{way:?}");
                assert!(came[..message.len()] == message, "{way:?} {turn}");
            }
            near.send(3, |room| room.copy_from_slice(b"bye")).unwrap();
            drop(answers.join().unwrap());
            assert_eq!(near.receive().unwrap_err(), Error::PeerGone, "{way:?} {wait:?}");
        }
    }
}

/// Case of a message that would come before there is a buffer for it.
#[test]
fn a_side_that_takes_turns_waits_until_the_other_has_its_buffers_or_has_left() {
    for way in fabric_ways() {
        let pairs = |way: FabricWay| {
            let (near, far) = sockets();
            let words = far.try_clone().unwrap();
            let listening = open(way, way.far).listen([7; 16]).unwrap();
            let contact = listening.contact().clone();
            let accepted = thread::spawn(move || listening.accept(far.into(), LONG).unwrap());
            let near = open(way, way.near).connect(&contact, near.into(), LONG).unwrap();
            (near, accepted.join().unwrap(), words)
        };
        let (near, far, _) = pairs(way);
        let is_ready = thread::spawn(move || near.into_exchange(100));
        thread::sleep(Duration::from_millis(200));
        assert!(!is_ready.is_finished(), "{way:?}: the other has no buffers yet");
        far.into_exchange(100).unwrap();
        is_ready.join().unwrap().unwrap();
        let (near, _far, mut words) = pairs(way);
        words.write_all(b"X").unwrap();
        let error = near.into_exchange(100).unwrap_err();
        assert!(matches!(error, Error::BadMessage(_)), "{way:?}: {error}");
        let (near, _far, words) = pairs(way);
        words.shutdown(std::net::Shutdown::Write).unwrap();
        let error = near.into_exchange(100).unwrap_err();
        assert_eq!(error, Error::PeerGone, "{way:?}");
    }
}

#[test]
fn a_file_with_one_copy_goes_through_buffers_alone_and_arrives_equal() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let content = bytes_of(3 * MIB + 17, 1);
        let file = file_of(&content);
        let sender = thread::spawn(move || {
            let (len, mut seen) = (3 * MIB as u64, 0);
            let mut see = |bytes: &[u8]| seen += bytes.len() as u64;
            near.send_copied(&file, 3, len, &mut see).unwrap();
            near.settle().unwrap();
            let figures = near.figures();
            assert_eq!((seen, figures.copied_bytes, figures.buffered_bytes), (len, len, len));
            assert_eq!((figures.windows, figures.window_bytes), (0, 0), "{way:?}");
            let (moved, error) = near.send_copied(&file, len, 100, &mut |_| ()).unwrap_err();
            assert_eq!(moved, 17, "{way:?}");
            assert!(matches!(error, FileError::Truncated), "{error:?}");
            near
        });
        let mut came = vec![0; 3 * MIB];
        far.receive(&mut came).unwrap();
        assert!(came == content[3..3 + 3 * MIB], "{way:?}");
        // Not before the sender has settled.
        let near = sender.join().unwrap();
        drop(far);
        drop(near);
    }
}

#[test]
fn a_file_that_is_too_short_ends_the_part_where_the_file_ends() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let content = bytes_of(5 * MIB + 17, 1);
        let file = file_of(&content);
        let sender = thread::spawn(move || {
            let mut seen = 0;
            let mut see = |bytes: &[u8]| seen += bytes.len() as u64;
            let outcome = near.send_file(&file, 3, 9 * MIB as u64, &mut see);
            let (moved, error) = outcome.unwrap_err();
            assert!(matches!(error, FileError::Truncated), "{way:?}: {error:?}");
            assert_eq!((moved, seen), (5 * MIB as u64 + 14, 5 * MIB as u64 + 14), "{way:?}");
            near.send(b"goes on").unwrap();
            // Other files still go without a copy.
            assert_eq!(near.figures().refused, None, "{way:?}");
        });
        let mut came = vec![0; content.len() - 3];
        far.receive(&mut came).unwrap();
        assert!(came == content[3..], "{way:?}");
        assert_eq!(far.peek().unwrap(), b"goes on");
        drop(far);
        sender.join().unwrap();
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_ends_the_part_or_the_pair_and_never_the_process() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let file = file_of(&bytes_of(8 * MIB, 1));
        let receiver = thread::spawn(move || {
            while let Ok(len) = far.peek().map(<[u8]>::len) {
                far.skip(len).unwrap();
            }
        });
        // As soon as the first message is seen, the rest of the window is gone.
        let cut = file.try_clone().unwrap();
        let outcome = near.send_file(&file, 0, 8 * MIB as u64, &mut |_| cut.set_len(0).unwrap());
        let (moved, error) = outcome.unwrap_err();
        assert!(moved > 0 && moved < 8 * MIB as u64, "{way:?}: {moved} {error:?}");
        drop(near);
        receiver.join().unwrap();
    }
}

#[test]
fn a_file_whose_pages_cannot_be_had_goes_through_a_buffer_and_says_why() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        // It can be read, and not mapped, and says that it is longer than it is.
        let file = File::open("/sys/devices/system/cpu/online").unwrap();
        let mut content = vec![0; 1 << 20];
        let len = file.read_at(&mut content, 0).unwrap();
        let sender = thread::spawn(move || {
            let (moved, error) = near.send_file(&file, 0, 1 << 20, &mut |_| ()).unwrap_err();
            assert!(matches!(error, FileError::Truncated), "{error:?}");
            near.settle().unwrap();
            (moved, near.figures().clone())
        });
        let mut came = vec![0; len];
        far.receive(&mut came).unwrap();
        assert!(came == content[..len], "{way:?}");
        // Not before the sender has settled.
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone);
        drop(far);
        let (moved, figures) = sender.join().unwrap();
        assert_eq!((moved, figures.window_bytes), (len as u64, 0), "{way:?}");
        let why = figures.refused.unwrap();
        assert!(why.starts_with("needs a file that can be mapped, found "), "{why}");
    }
}

#[test]
fn a_provider_that_is_not_here_says_what_it_needs() {
    let error = Fabric::open(Provider::Cxi, HERE).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("no cxi endpoint here: needs a Slingshot card"), "{said}");
    assert!(said.contains("fi_getinfo"), "{said}");
}

#[test]
fn nobody_waits_for_a_peer_longer_than_was_said() {
    for way in fabric_ways() {
        let listening = open(way, way.far).listen([1; 16]).unwrap();
        let short = Duration::from_millis(200);
        let (near, far) = sockets();
        let error = listening.accept(near.into(), short).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{way:?}: {error}");
        drop(far);
        // Nor for one that has left.
        let listening = open(way, way.far).listen([1; 16]).unwrap();
        let (near, _) = sockets();
        let begun = Instant::now();
        let error = listening.accept(near.into(), LONG).unwrap_err();
        assert_eq!(error, Error::PeerGone, "{way:?}");
        assert!(begun.elapsed() < LONG / 4);
    }
}

/// Case of a window that was made ready for one file and taken for another at the same place.
#[test]
fn what_is_sent_of_a_file_is_that_files_also_behind_one_that_was_cut_at_the_same_place() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let window_bytes = 4 * MIB as u64;
        let (cut, other) = (file_of(&bytes_of(8 * MIB, 1)), file_of(&bytes_of(8 * MIB, 7)));
        let wanted = bytes_of(8 * MIB, 7)[4 * MIB..].to_vec();
        let sender = thread::spawn(move || {
            let shorter = cut.try_clone().unwrap();
            let mut seen_bytes = 0;
            let mut see = |bytes: &[u8]| {
                seen_bytes += bytes.len() as u64;
                // Before the next window is made ready; it is long enough again for the one behind.
                if seen_bytes == window_bytes {
                    shorter.set_len(window_bytes).unwrap();
                }
            };
            let (moved, error) = near.send_file(&cut, 0, 2 * window_bytes, &mut see).unwrap_err();
            assert!(matches!(error, FileError::Truncated), "{error:?}");
            assert_eq!(moved, window_bytes);
            shorter.set_len(2 * window_bytes).unwrap();
            near.send_file(&other, window_bytes, window_bytes, &mut |_| ()).unwrap();
            near.settle().unwrap();
        });
        let mut came = vec![0; 4 * MIB];
        far.receive(&mut came).unwrap();
        assert!(came == bytes_of(4 * MIB, 1), "{way:?}");
        far.receive(&mut came).unwrap();
        assert!(came == wanted, "{way:?}");
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone);
        drop(far);
        sender.join().unwrap();
    }
}
