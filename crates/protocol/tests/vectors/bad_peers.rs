//! Sessions with peers that say anything, each drawn by a seed: `vectors/bad_peers.json`.
//!
//! The operations are those of the fuzz targets `sender` and `receiver`, with the model that judges
//! them. The file holds one number for each seed, a CRC of all that the machine said, so thousands
//! of sessions take little room; a client in another language draws the same operations and has to
//! find the same number. `HAUL_TEST_SEED=SEED` prints what both machines say in one session.

use super::{bodies, machines::seeded::Seeded, vectors_of_depth};
use bodies::{
    receiver_machine::{self, ReceiverOperation},
    sender_machine::{self, SenderOperation},
};
use crc::{CRC_32_ISCSI, Crc};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Count of the seeds of each machine.
const SEEDS: u64 = 4000;
/// The most operations of one session.
const OPERATIONS_MAX: u32 = 120;
/// Count of the seeds whose numbers share a line of the file.
const SEEDS_OF_LINE: usize = 10;

const ABOUT: &str = "Sessions of both state machines with peers that say anything. A line has the \
    CRC-32C of what was said for ten seeds in a row, the first line those of the seeds 0 to 9. \
    Operations are drawn as tests/vectors/bad_peers.rs says and played as those of \
    fuzz/src/bodies, whose transcript.rs has the lines.";

/// Share of all operations that are of a kind, and what draws one.
type Kind<T> = (u32, fn(&mut Seeded) -> T);

fn drawn<T>(seed: u64, kinds: &[Kind<T>]) -> Vec<T> {
    let mut random = Seeded::new(seed);
    let total = kinds.iter().map(|kind| kind.0).sum();
    let count = random.below(OPERATIONS_MAX + 1);
    let one = |_| {
        let mut at = random.below(total);
        let kind = kinds.iter().find(|kind| {
            let is_it = at < kind.0;
            at = at.saturating_sub(kind.0);
            is_it
        });
        kind.expect("below the total").1(&mut random)
    };
    (0..count).map(one).collect()
}

fn byte(random: &mut Seeded) -> u8 {
    random.below(256) as u8
}

fn flag(random: &mut Seeded) -> bool {
    random.below(2) == 1
}

fn ranges(random: &mut Seeded) -> Vec<(u8, u8)> {
    (0..random.below(3)).map(|_| (byte(random), byte(random))).collect()
}

fn sender_operations(seed: u64) -> Vec<SenderOperation> {
    use SenderOperation as Op;
    let kinds: [Kind<Op>; 30] = [
        (40, |random| Op::Offer { size: byte(random) }),
        (30, |random| Op::OpenStream(byte(random))),
        (90, |random| Op::NextSpan(byte(random))),
        (60, |random| Op::AcknowledgeSent(byte(random))),
        (10, |random| Op::DamageSent(byte(random))),
        (10, |random| Op::LoseDurable(byte(random))),
        (40, |random| Op::AnswerOffered { nth: byte(random), durable: byte(random) }),
        (10, |random| Op::CloseOpened(byte(random))),
        (20, |random| Op::SettleConfirmed(byte(random))),
        (20, |random| Op::ConfirmWithSpan(byte(random))),
        (10, |random| Op::DropStream(byte(random))),
        (40, |random| Op::SourceChecked { file: byte(random), is_same: flag(random) }),
        (1, |random| Op::Lost { file: byte(random), spans: ranges(random) }),
        (1, |random| Op::Need {
            file: byte(random),
            span_bytes: byte(random),
            durable: ranges(random),
        }),
        (1, |random| Op::Settled { file: byte(random), is_durable: flag(random) }),
        (1, |random| Op::Verified { file: byte(random), spans: ranges(random) }),
        (1, |random| Op::Bad { file: byte(random), span: byte(random), stream: byte(random) }),
        (1, |random| Op::Closed(byte(random))),
        (1, |random| Op::SourceFailed(byte(random))),
        (1, |random| Op::Skip(byte(random))),
        (1, |random| Op::AnswerFault(byte(random))),
        (1, |random| Op::AnswerNothing(byte(random))),
        (1, |random| Op::Stray(byte(random))),
        (2, |_| Op::EndOffers),
        (1, |_| Op::Finish),
        (1, |_| Op::Progress),
        (1, |_| Op::Notice),
        (1, |_| Op::PeerFinish),
        (1, |_| Op::Refused),
        (2, |random| Op::SourceFailed(random.below(6) as u8)),
    ];
    drawn(seed, &kinds)
}

fn receiver_operations(seed: u64) -> Vec<ReceiverOperation> {
    use ReceiverOperation as Op;
    let kinds: [Kind<Op>; 24] = [
        (60, |random| Op::Offer { skew: 0, size: byte(random) }),
        (60, |random| {
            let file = random.below(8) as u8;
            Op::Need { file, span_bytes: 0, durable: byte(random) }
        }),
        (40, |random| Op::OpenStream(byte(random))),
        (30, |random| Op::ConfirmTold(byte(random))),
        (30, |random| Op::ReadBack { nth: byte(random), lost: byte(random) }),
        (90, |random| Op::HonestHeader { stream: byte(random), nth: byte(random) }),
        (80, |random| Op::SpanEnded { nth: byte(random), end: random.below(120) as u8 }),
        (2, |random| Op::Confirm { file: byte(random), is_whole: flag(random) }),
        (20, |random| Op::Header {
            stream: byte(random),
            named: byte(random),
            file: byte(random),
            span: byte(random),
            len: byte(random),
            skew: byte(random),
        }),
        (20, |random| Op::Committed { file: byte(random), is_durable: flag(random) }),
        (1, |random| Op::Need {
            file: byte(random),
            span_bytes: byte(random),
            durable: byte(random),
        }),
        (1, |random| Op::Offer { skew: byte(random), size: byte(random) }),
        (10, |random| Op::CloseStream(byte(random))),
        (5, |random| Op::Drop(byte(random))),
        (1, |random| Op::FileFailed(byte(random))),
        (1, |random| Op::Skip(byte(random))),
        (1, |random| Op::AnswerFault(byte(random))),
        (1, |random| Op::Stray(byte(random))),
        (2, |_| Op::OffersEnd),
        (1, |_| Op::Finish),
        (1, |_| Op::Progress),
        (1, |_| Op::Notice),
        (1, |_| Op::PeerFinish),
        (1, |_| Op::Refused),
    ];
    drawn(seed, &kinds)
}

fn of_sender(seed: u64) -> String {
    sender_machine::transcript(&sender_operations(seed))
}

fn of_receiver(seed: u64) -> String {
    receiver_machine::transcript(&receiver_operations(seed))
}

/// Numbers of all seeds, where the transcripts together have lines of all these kinds.
fn numbers(transcript: impl Fn(u64) -> String, kinds: &[&str]) -> Value {
    let crc = Crc::<u32>::new(&CRC_32_ISCSI);
    let mut found = BTreeSet::new();
    let numbers: Vec<String> = (0..SEEDS)
        .map(|seed| {
            let text = transcript(seed);
            let first_word = |line: &str| line.split(' ').next().expect("a word").to_owned();
            found.extend(text.lines().map(first_word));
            format!("{:08x}", crc.checksum(text.as_bytes()))
        })
        .collect();
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, kinds, "kinds of lines");
    numbers.chunks(SEEDS_OF_LINE).map(|line| line.join(" ")).collect()
}

#[test]
fn the_machines_answer_bad_peers_as_the_vectors_say() {
    if let Ok(seed) = std::env::var("HAUL_TEST_SEED") {
        let seed = seed.parse().expect("a number");
        println!("sender\n{}\nreceiver\n{}", of_sender(seed), of_receiver(seed));
        return;
    }
    let sender = numbers(
        of_sender,
        &[
            "checks", "closed", "confirms", "damaged", "does", "finished", "is", "lost", "next",
            "opens", "refused", "resumed", "says", "settled", "told",
        ],
    );
    let receiver = numbers(
        of_receiver,
        &[
            "all", "answers", "close", "commit", "discards", "does", "finished", "given", "is",
            "offered", "offers", "opens", "refused", "says", "starts", "taken", "told", "writes",
        ],
    );
    let expected = json!({
        "about": ABOUT, "operations_max": OPERATIONS_MAX, "sender": sender, "receiver": receiver,
    });
    vectors_of_depth("bad_peers.json", &expected, super::Depth(usize::MAX));
}
