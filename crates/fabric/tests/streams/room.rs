//! Words about room: when a receiver says them, and that none which the sender needs stay unsaid.

use std::{thread, time::Instant};

use haul_fabric::{HELD_MAX, ReceiveEnd, Wait};
use haul_fabric_sys::{Buffer, Channel, Operation, Reach, Source};
use haul_testkit::fabric_ways;

use crate::hostile::connected;
use crate::streams::{LONG, MIB, open, pair, sockets};

/// Counts of buffers that a receiver posts at first, and behind each message that it gives back,
/// as its words have them.
fn counts(channel: &mut Channel, wanted: usize) -> Vec<u64> {
    let (begun, mut counts) = (Instant::now(), Vec::new());
    while counts.len() < wanted {
        assert!(begun.elapsed() < LONG, "{counts:?}");
        if let Some(done) = channel.poll().expect("the receiver is there")
            && let Operation::Receive(words) = done.operation
        {
            counts.push(u64::from_le_bytes(words.bytes()[..8].try_into().expect("8 bytes")));
        }
    }
    counts
}

/// Takes this many messages, which all have their own memory, while it works for the pair.
fn take_all(end: &mut ReceiveEnd, count: usize) -> Vec<haul_fabric::Message> {
    let (begun, mut held) = (Instant::now(), Vec::new());
    while held.len() < count {
        assert!(begun.elapsed() < LONG, "{} of {count} messages came", held.len());
        if end.has_come().expect("the sender is there") {
            held.extend(end.take(u64::MAX).expect("the sender is there"));
        }
    }
    held
}

/// Words for each message would be as many messages again.
#[test]
fn a_receiver_tells_its_room_with_every_second_message_that_it_gives_back() {
    for way in fabric_ways() {
        let listening = open(way, way.far).listen([7; 16]).unwrap();
        let contact = listening.contact().encode();
        let (near, far) = sockets();
        let sender = thread::spawn(move || {
            let mut channel = connected(way, &contact);
            let domain = channel.domain().clone();
            for _ in 0..4 {
                let buffer = Buffer::new(&domain, 100, Reach::Local).unwrap();
                channel.post(Operation::Send(Source::Buffer(buffer, 0..100))).unwrap();
            }
            (counts(&mut channel, 3), channel, near)
        });
        let pair = listening.accept(far.into(), LONG).unwrap();
        let mut far = pair.into_receiver(8 * 4096).unwrap();
        for message in take_all(&mut far, 4) {
            far.give_back(message).unwrap();
            // Words that are said go on their way.
            assert_eq!(far.has_come(), Ok(false), "{way:?}");
        }
        let begun = Instant::now();
        while !sender.is_finished() {
            assert!(begun.elapsed() < LONG, "{way:?}");
            far.has_come().unwrap();
        }
        let (counts, ..) = sender.join().unwrap();
        assert_eq!(counts, [8, 10, 12], "{way:?}");
    }
}

/// Case of a sender that waits for room, which its receiver could not tell at once.
#[test]
fn room_for_which_there_were_no_words_is_told_when_there_are() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [MIB, MIB], Wait::Adaptive);
        let sender = thread::spawn(move || {
            for number in 0..16_u8 {
                near.send(&[number; 100]).unwrap();
                near.flush().unwrap();
            }
            near.settle().unwrap();
        });
        for round in 0..2 {
            let held = take_all(&mut far, 8);
            for (number, message) in held.into_iter().enumerate() {
                assert_eq!(message.bytes(), [round * 8 + number as u8; 100], "{way:?}");
                // More are given back than there are buffers to say so.
                far.give_back(message).unwrap();
            }
        }
        sender.join().unwrap();
    }
}

#[test]
fn messages_come_while_as_many_are_held_as_may_be() {
    for way in fabric_ways() {
        let (mut near, mut far, _) = pair(way, [MIB, MIB], Wait::Adaptive);
        let sender = thread::spawn(move || {
            for number in 0..32_u8 {
                near.send(&[number; 100]).unwrap();
                near.flush().unwrap();
            }
            near.settle().unwrap();
        });
        let held = take_all(&mut far, HELD_MAX);
        assert!(!held.is_empty());
        for number in HELD_MAX..32 {
            let message = take_all(&mut far, 1).remove(0);
            assert_eq!(message.bytes(), [number as u8; 100], "{way:?}");
            far.give_back(message).unwrap();
        }
        held.into_iter().for_each(|message| far.give_back(message).unwrap());
        sender.join().unwrap();
    }
}
