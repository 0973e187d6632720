//! Counts of both ends, and what says that memory or pages are free again.

use std::{sync::atomic::Ordering, thread};

use haul_fabric::{Error, Wait};
use haul_testkit::fabric_ways;

use crate::streams::{MIB, bytes_of, file_of, pair};

#[test]
fn both_ends_count_every_byte_that_went() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        assert_eq!((near.provider().name(), far.provider().name()), (way.provider, way.provider));
        let file = file_of(&bytes_of(5 * MIB, 1));
        let sent = near.moved_bytes();
        let sender = thread::spawn(move || {
            near.send(&[1; 10]).unwrap();
            near.send_file(&file, 0, 5 * MIB as u64, &mut |_| ()).unwrap();
            near.send(&[2; 20]).unwrap();
            near.send_file(&file, 7, 1000, &mut |_| ()).unwrap();
            near.settle().unwrap();
            let figures = near.figures().clone();
            drop(near);
            figures
        });
        let came = far.moved_bytes();
        far.receive(&mut vec![0; 5 * MIB + 1030]).unwrap();
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone, "{way:?}");
        let receiver = far.figures().clone();
        drop(far);
        let sender = sender.join().unwrap();
        let all = 5 * MIB as u64 + 1030;
        assert_eq!((sent.load(Ordering::Relaxed), came.load(Ordering::Relaxed)), (all, all));
        // A window has 4 MiB, and a message 1 MiB: one in front of the windows and one behind them.
        assert_eq!((sender.windows, sender.window_bytes), (2, 5 * MIB as u64), "{way:?}");
        assert_eq!((sender.copied_bytes, sender.buffered_bytes), (1000, 1030), "{way:?}");
        assert_eq!((sender.messages, receiver.messages), (7, 7), "{way:?}");
        // For the first words alone: there is room for eight.
        assert_eq!(sender.waits_for_room, 1, "{way:?}");
        assert_eq!(receiver.buffered_bytes, all, "{way:?}");
        assert!(!sender.registering.is_zero());
    }
}

#[test]
fn what_has_come_is_seen_until_all_of_it_is_taken() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [MIB, MIB], Wait::Adaptive);
        assert_eq!(far.has_come(), Ok(false), "{way:?}");
        near.send(b"two").unwrap();
        near.progress().unwrap();
        assert_eq!(far.has_come(), Ok(false), "{way:?}: it waits for more");
        near.flush().unwrap();
        near.flush().unwrap();
        assert_eq!(far.peek().unwrap(), b"two");
        assert_eq!(far.has_come(), Ok(true));
        far.skip(1).unwrap();
        assert_eq!(far.peek().unwrap(), b"wo");
        assert_eq!(far.has_come(), Ok(true), "{way:?}: it is not all");
        let rest = far.take(2).unwrap().unwrap();
        assert_eq!((rest.bytes(), rest.as_ref()), (&b"wo"[..], &b"wo"[..]));
        far.give_back(rest).unwrap();
        assert_eq!(far.has_come(), Ok(false), "{way:?}");
        drop(far);
        drop(near);
    }
}

/// Case of a file whose pages would have been given up while they were sent. One message is all
/// that shm of libfabric 2.1 takes without its peer, where both ends are in one process.
#[test]
fn windows_are_over_when_the_peer_has_read_them_and_not_before() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let file = file_of(&bytes_of(5 * MIB, 1));
        let first = near.send_file(&file, 0, MIB as u64, &mut |_| ()).unwrap();
        // The memory of two processes: the peer itself reads it. A socket may have taken all.
        assert!(way.provider != "shm" || !first.is_over());
        let receiver = thread::spawn(move || {
            far.receive(&mut vec![0; 5 * MIB]).unwrap();
            far
        });
        let rest = near.send_file(&file, MIB as u64, 4 * MIB as u64, &mut |_| ()).unwrap();
        near.settle().unwrap();
        assert!(first.is_over() && rest.is_over(), "{way:?}");
        drop(receiver.join().unwrap());
    }
}

/// Case of a page of memory for all: a message is not longer than the memory of either end allows,
/// nor than a tenth of a second takes at the rate.
#[test]
fn a_message_is_as_long_as_both_ends_and_the_rate_allow() {
    for way in fabric_ways() {
        for (memory, rate, longest) in [
            ([32 * MIB, 32 * MIB], None, MIB),
            ([16 * 8192 + 100, 32 * MIB], None, 8192),
            ([32 * MIB, 16 * 12_288 + 100], None, 12_288),
            ([32 * MIB, 32 * MIB], Some(200_000_000), MIB),
            ([32 * MIB, 32 * MIB], Some(2_000_000), 196_608),
            ([32 * MIB, 32 * MIB], Some(1000), 4096),
            ([0, 0], None, 4096),
        ] {
            let (mut near, mut far, _) = pair(way, memory, Wait::Adaptive);
            if let Some(rate) = rate {
                near.set_rate(rate);
            }
            near.send(&vec![1; longest]).unwrap();
            near.send(&[2]).unwrap();
            // It went as it was full.
            assert_eq!(far.peek().unwrap().len(), longest, "{way:?} {memory:?} {rate:?}");
            far.skip(longest).unwrap();
            assert_eq!(far.has_come(), Ok(false));
            drop(far);
            drop(near);
        }
    }
}
