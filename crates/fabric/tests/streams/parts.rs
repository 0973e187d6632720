//! Parts of files: which are copied, what cannot be read, pages that are lost, and the rate.

use std::{
    fs::File,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use haul_fabric::{Error, FileError, ReceiveEnd, Wait};
use haul_testkit::fabric_ways;

use crate::streams::{LONG, MIB, bytes_of, file_of, pair};

/// Lengths of messages and what they hold, this many.
fn messages(far: &mut ReceiveEnd, count: usize) -> Vec<Vec<u8>> {
    let one = |_| {
        let message = far.take(u64::MAX).expect("the sender is there").expect("it fits");
        let bytes = message.bytes().to_vec();
        far.give_back(message).expect("the sender is there");
        bytes
    };
    (0..count).map(one).collect()
}

/// Takes all that comes, until the sender leaves or the end is cut.
fn drain(mut far: ReceiveEnd) {
    while let Ok(len) = far.peek().map(<[u8]>::len) {
        far.skip(len).expect("it was shown");
    }
}

#[test]
fn a_part_that_the_provider_would_copy_goes_with_what_is_before_it_and_a_longer_one_alone() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let copied = near.provider().copied_bytes_max() as usize;
        let content = bytes_of(copied + 1, 3);
        let file = file_of(&content);
        near.send(b"head").unwrap();
        near.send_file(&file, 0, copied as u64, &mut |_| ()).unwrap();
        near.flush().unwrap();
        let figures = near.figures();
        assert_eq!((figures.windows, figures.copied_bytes), (0, copied as u64), "{way:?}");
        assert!(messages(&mut far, 1) == [[b"head", &content[..copied]].concat()], "{way:?}");
        let sender = thread::spawn(move || {
            near.send(b"tail").unwrap();
            near.send_file(&file, 0, copied as u64 + 1, &mut |_| ()).unwrap();
            near.settle().unwrap();
            near
        });
        assert!(messages(&mut far, 2) == [b"tail".to_vec(), content], "{way:?}");
        let near = sender.join().unwrap();
        assert_eq!((near.figures().windows, near.figures().refused.clone()), (1, None), "{way:?}");
        drop(far);
        drop(near);
    }
}

#[test]
fn a_long_part_begins_a_message_also_where_its_pages_cannot_be_had() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let path = "/sys/devices/system/cpu/online";
        let content = std::fs::read(path).unwrap();
        near.send(b"head").unwrap();
        let outcome = near.send_file(&File::open(path).unwrap(), 0, 1 << 20, &mut |_| ());
        assert!(matches!(outcome, Err((_, FileError::Truncated))), "{way:?}: {outcome:?}");
        near.flush().unwrap();
        assert_eq!(messages(&mut far, 2), [b"head".to_vec(), content], "{way:?}");
        drop(far);
        drop(near);
    }
}

/// Case of a part whose last buffer would have been filled with what lies behind it in the file.
#[test]
fn a_part_that_takes_several_buffers_ends_where_it_was_said() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [0, 0], Wait::Adaptive);
        let content = bytes_of(65_536, 3);
        let file = file_of(&content);
        let sender = thread::spawn(move || {
            near.send_file(&file, 5, 10_000, &mut |_| ()).unwrap();
            near.send_copied(&file, 7, 10_000, &mut |_| ()).unwrap();
            near.settle().unwrap();
        });
        let mut came = vec![0; 20_000];
        far.receive(&mut came).unwrap();
        assert!(came == [&content[5..10_005], &content[7..10_007]].concat(), "{way:?}");
        assert_eq!(far.peek().unwrap_err(), Error::PeerGone, "{way:?}");
        drop(far);
        sender.join().unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_of_the_file_and_the_pair_goes_on() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [MIB, MIB], Wait::Adaptive);
        let (tell, told) = mpsc::channel();
        let sender = thread::spawn(move || {
            let directory = File::open("/").unwrap();
            let outcome = near.send_copied(&directory, 0, 100, &mut |_| ());
            tell.send(outcome).unwrap();
            near.send(b"goes on").unwrap();
        });
        let (moved, error) = told.recv_timeout(LONG).unwrap().unwrap_err();
        assert_eq!(moved, 0, "{way:?}");
        assert!(matches!(error, FileError::Read(_)), "{way:?}: {error:?}");
        assert_eq!(far.peek().unwrap(), b"goes on", "{way:?}");
        drop(far);
        sender.join().unwrap();
    }
}

/// Case of zeros that went in place of pages: nobody but the sender could have known.
#[test]
fn a_page_that_is_lost_while_its_window_is_sent_ends_the_part_and_then_the_pair() {
    for way in fabric_ways() {
        let (mut near, far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let file = file_of(&bytes_of(4 * MIB, 1));
        let cut = file.try_clone().unwrap();
        let mut zeros = 0;
        let mut see = |bytes: &[u8]| {
            cut.set_len(0).unwrap();
            zeros += bytes.iter().step_by(512).filter(|byte| **byte == 0).count();
        };
        let (moved, error) = near.send_file(&file, 0, 4 * MIB as u64, &mut see).unwrap_err();
        assert!(matches!(error, FileError::Truncated), "{way:?}: {error:?}");
        // The first message is gone, and its bytes were seen.
        assert_eq!((moved, zeros), (MIB as u64, MIB / 512), "{way:?}");
        let receiver = thread::spawn(move || drain(far));
        let outcome = near.settle();
        // The peer itself reads the memory by shm. A socket may have taken all before.
        assert!(way.provider != "shm" || outcome == Err(Error::LostPages), "{way:?}: {outcome:?}");
        drop(near);
        receiver.join().unwrap();
    }
}

#[test]
fn no_message_goes_before_the_rate_lets_it_go() {
    for way in fabric_ways() {
        let (mut near, far, lifeline) = pair(way, [MIB, MIB], Wait::Adaptive);
        let receiver = thread::spawn(move || drain(far));
        let (tell, told) = mpsc::channel();
        let sender = thread::spawn(move || {
            near.set_rate(100_000);
            let begun = Instant::now();
            // Five messages, of which the first goes at once.
            near.send(&[1; 5 * 8192])?;
            tell.send((begun.elapsed(), near.figures().messages)).expect("somebody hears");
            Ok::<_, Error>(())
        });
        let outcome = told.recv_timeout(LONG);
        if outcome.is_err() {
            lifeline.shutdown(std::net::Shutdown::Both).unwrap();
        }
        sender.join().unwrap().unwrap();
        receiver.join().unwrap();
        let (took, messages) = outcome.unwrap();
        assert_eq!(messages, 5, "{way:?}");
        assert!(took >= Duration::from_secs_f64(4.0 * 8192.0 / 100_000.0), "{way:?}: {took:?}");
    }
}

/// Case of a rate that makes messages so short that tcp and shm copy each one: windows would be
/// registered for nothing, and the report said that nothing was copied.
#[test]
fn what_the_provider_copies_by_itself_is_counted_as_copied() {
    for way in fabric_ways() {
        let (mut near, far, _) = pair(way, [32 * MIB, 32 * MIB], Wait::Adaptive);
        let copied_max = near.provider().copied_bytes_max();
        let file = file_of(&bytes_of(MIB + 8192, 9));
        let receiver = thread::spawn(move || drain(far));
        // The last message of this window is a short one.
        near.send_file(&file, 0, MIB as u64 + 8192, &mut |_| ()).unwrap();
        let short = if copied_max >= 8192 { 8192 } else { 0 };
        let (copied, windows) = (near.figures().copied_bytes, near.figures().windows);
        assert_eq!((copied, windows), (short, 1), "{way:?}");
        assert_eq!(near.figures().window_bytes + short, MIB as u64 + 8192, "{way:?}");
        // Messages of a tenth of a second.
        near.set_rate(163_840);
        near.send_file(&file, 0, 3 * 16_384, &mut |_| ()).unwrap();
        let (more, windows) = if copied_max >= 16_384 { (3 * 16_384, 1) } else { (0, 2) };
        let figures = near.figures();
        assert_eq!((figures.copied_bytes, figures.windows), (short + more, windows), "{way:?}");
        drop(near);
        receiver.join().unwrap();
    }
}
