//! Runs of both machines with offers of ranges, each of which is a file to them.
//!
//! The operations are those of `sender` and `receiver` and one more, so that what these two say
//! stays as `bad_peers.json` has it. Each offer goes over the wire, where one that is no range of a
//! file is refused.

use super::{
    numbers,
    receiver_machine::{self, ReceiverOperation},
    sender_machine::{self, SenderOperation},
};
use arbitrary::Arbitrary;
use haul_protocol::{
    FileId, Message, ProtocolError, Receiver, Sender, decode_message, encode_message, limits,
    message::{Compared, FileKind, FileOffer, FileRange, Growth},
};

/// Bytes of an offer of a range, in the order of the fields.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct RangeBytes {
    pub name: u8,
    pub begin: u8,
    pub size: u8,
    /// Room of the file behind the range.
    pub behind: u8,
    /// Fault of the offer; most bytes are none.
    pub fault: u8,
}

/// Operations of a receiver and its owner, with ranges.
#[derive(Arbitrary, Clone, Debug)]
pub enum RangeReceiverOperation {
    Range(RangeBytes),
    Other(ReceiverOperation),
}

/// Operations of a sender and its owner, with ranges.
#[derive(Arbitrary, Clone, Debug)]
pub enum RangeSenderOperation {
    Range(RangeBytes),
    Other(SenderOperation),
}

/// Runs the operations until the machine calls the sender a liar.
pub fn run_receiver(operations: &[RangeReceiverOperation]) {
    let mut receiver = Receiver::new(receiver_machine::OFFERS_MAX, limits::OFFER_BYTES_MAX);
    let mut model = receiver_machine::Model::default();
    for operation in operations {
        super::count_step();
        let result = match operation {
            RangeReceiverOperation::Range(bytes) => {
                let offer = bytes.offer(model.next_file());
                over_the_wire(offer).and_then(|message| model.hear(&mut receiver, message))
            }
            RangeReceiverOperation::Other(operation) => {
                receiver_machine::apply(&mut receiver, &mut model, operation)
            }
        };
        model.look_at_output(&mut receiver);
        if result.is_err() {
            break;
        }
    }
}

/// Runs the operations until the machine calls the receiver a liar.
pub fn run_sender(operations: &[RangeSenderOperation]) {
    let mut sender = Sender::new(sender_machine::OFFERS_MAX, limits::OFFER_BYTES_MAX);
    let mut model = sender_machine::Model::default();
    for operation in operations {
        super::count_step();
        let result = match operation {
            RangeSenderOperation::Range(bytes) => {
                let offer = bytes.offer(FileId(0));
                if is_range(&offer) && sender.may_offer() {
                    model.offer_range(&mut sender, offer);
                }
                Ok(())
            }
            RangeSenderOperation::Other(operation) => {
                sender_machine::apply(&mut sender, &mut model, operation)
            }
        };
        model.look_at_output(&mut sender);
        if result.is_err() {
            break;
        }
    }
}

impl RangeBytes {
    fn offer(self, file: FileId) -> FileOffer {
        let Self { name, begin, size, behind, fault } = self;
        let size_bytes = numbers::size_bytes(size);
        let offset_bytes = match begin {
            255 => u64::MAX,
            254 => limits::FILE_BYTES_MAX,
            253 => limits::SPAN_BYTES_MIN / 2,
            small => u64::from(small % 4) * limits::SPAN_BYTES_MIN,
        };
        let behind_bytes = u64::from(behind % 3) * limits::SPAN_BYTES_MIN;
        let file_bytes = match behind {
            255 => size_bytes,
            254 => 0,
            _ => offset_bytes.saturating_add(size_bytes).saturating_add(behind_bytes),
        };
        let offer = FileOffer {
            file,
            name: vec![b'a' + name % 3],
            kind: FileKind::Regular,
            size_bytes,
            range: Some(FileRange { offset_bytes, file_bytes }),
            ..FileOffer::default()
        };
        match fault {
            250 => FileOffer { kind: FileKind::Directory, size_bytes: 0, ..offer },
            251 => FileOffer { compared: Compared::SameContent, ..offer },
            252 => FileOffer { growth: Growth::Growing, ..offer },
            253 => FileOffer { kind: FileKind::Unknown, ..offer },
            _ => offer,
        }
    }
}

/// Whether an offer is a range of a file, as SPEC 7.7 says.
fn is_range(offer: &FileOffer) -> bool {
    let Some(FileRange { offset_bytes, file_bytes }) = offer.range else { return false };
    let end = u128::from(offset_bytes) + u128::from(offer.size_bytes);
    let is_whole_file = offer.kind == FileKind::Regular
        && offer.growth == Growth::NotGrowing
        && offer.compared == Compared::NotCompared;
    is_whole_file
        && offer.size_bytes > 0
        && offset_bytes % limits::SPAN_BYTES_MIN == 0
        && end <= u128::from(file_bytes)
        && file_bytes <= limits::FILE_BYTES_MAX
}

/// Gives the message of an offer as the other side reads it.
fn over_the_wire(offer: FileOffer) -> Result<Message, ProtocolError> {
    let is_range = is_range(&offer);
    let mut bytes = Vec::new();
    encode_message(Message::FileOffer(offer.clone()), &mut bytes);
    let read = decode_message(&bytes, limits::MESSAGE_BYTES_MAX);
    assert_eq!(read.is_ok(), is_range, "{offer:?}: {read:?}");
    let (message, taken) = read?.expect("a whole message");
    assert_eq!((&message, taken), (&Message::FileOffer(offer), bytes.len()));
    Ok(message)
}
