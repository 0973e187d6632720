//! Messages about files: what is offered, what is needed of it, and how it ended.

use super::{
    edge::{Edge, enumeration, message},
    fault::Fault,
};
use crate::{
    FileId, ProtocolError, SpanIndex, SpanRange, StreamId,
    limits::{CONTENT_BYTES, DURABLE_DIGEST_BYTES},
    wire,
};
use alloc::{string::String, vec::Vec};

enumeration! {
    /// A kind of file.
    pub enum FileKind, else Unknown {
        Unknown,
        Regular,
        Directory,
        /// A link that arrives as a link and is never followed.
        Symlink,
        /// A further name of a file that is in place: [`FileOffer::link_target`].
        HardLink,
    }
}

message! {
    /// A run of bytes.
    #[derive(Copy)]
    pub struct Extent {
        pub offset_bytes: u64,
        pub len_bytes: u64,
    }
}

enumeration! {
    /// The sender's finding when it compared a file's content with the receiver's.
    pub enum Compared, else NotCompared {
        NotCompared,
        /// The content is the receiver's, which gives its file the offer's mode, time and the like.
        SameContent,
        /// The content differs: the receiver is to take it.
        OtherContent,
    }
}

enumeration! {
    /// State of a file that may still be written. One that is followed is offered again and again
    /// under its name, each time with its size then.
    pub enum Growth, first NotGrowing, refused as "growth" {
        NotGrowing,
        /// The file grows, and this is a round: what came is made durable, and gets no name yet.
        Growing,
        /// The file is not written to any more: this is its last size.
        Grown,
    }
}

message! {
    /// The owner of a file, by number and by name: a receiver that knows the name takes its number.
    pub struct Owner {
        pub uid: u32,
        pub gid: u32,
        pub user: Vec<u8>,
        pub group: Vec<u8>,
    }
}

message! {
    /// An extended attribute.
    pub struct Xattr {
        pub name: Vec<u8>,
        pub value: Vec<u8>,
    }
}

message! {
    /// The place of an offer's bytes in their file, where other sessions bring the rest of it.
    #[derive(Copy)]
    pub struct FileRange {
        pub offset_bytes: u64,
        /// Size of the whole file.
        pub file_bytes: u64,
    }
}

message! {
    /// An offer of a file, from sender to receiver.
    pub struct FileOffer {
        pub file: FileId,
        /// Name below the target, its components separated by `/`.
        pub name: Vec<u8>,
        pub kind: FileKind,
        pub size_bytes: u64,
        pub mtime_s: i64,
        pub mtime_ns: u32,
        /// Permission bits.
        pub mode: u32,
        /// Inode of the source: a restart marker holds only for the same one.
        pub inode: u64,
        pub device: u64,
        /// Target of a symlink; of a hard link the name of what it is a link to.
        pub link_target: Vec<u8>,
        /// Runs that read as zeros and take no space, in order, not touching.
        pub holes: Vec<Extent>,
        /// The finding that answers [`Answer::Compare`], in a new offer.
        pub compared: Compared,
        pub owner: Option<Owner>,
        /// Extended attributes, ACLs too, as the kernel writes them.
        pub xattrs: Vec<Xattr>,
        pub growth: Growth,
        /// Change time of the source's inode; 0 with `ctime_ns`: not known.
        pub ctime_s: i64,
        pub ctime_ns: u32,
        /// Place of the `size_bytes` in a larger file, of which only they are offered, where both
        /// have [`CAPABILITY_RANGES`](crate::CAPABILITY_RANGES).
        pub range: Option<FileRange>,
    }
}

message! {
    /// The end of the offers, from sender to receiver.
    #[derive(Copy)]
    pub struct OffersEnd {
        pub files: u64,
        pub bytes: u64,
    }
}

/// The answer to an offer, from receiver to sender, once for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAnswer {
    pub file: FileId,
    pub answer: Answer,
}

/// A receiver's answer to an offer, as it is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Need(Need),
    /// The file that is there is the same: it is settled.
    Skip,
    /// The fault for which the file is not taken: it is settled.
    Fault(Fault),
    /// The content to compare with: the file is settled, and the sender offers it again and says
    /// what it found.
    Compare(Compare),
    /// The plan of what would be done, in a dry run: the file is settled.
    Plan(Plan),
}

impl Edge for FileAnswer {
    type Wire = wire::FileAnswer;

    fn decode(wire: wire::FileAnswer) -> Result<Self, ProtocolError> {
        use wire::file_answer::Answer as Wire;
        let wire::FileAnswer { file, answer } = wire;
        let answer = match answer {
            Some(Wire::Need(need)) => Answer::Need(Edge::decode(need)?),
            Some(Wire::Skip(wire::Skip {})) => Answer::Skip,
            Some(Wire::Fault(fault)) => Answer::Fault(Edge::decode(fault)?),
            Some(Wire::Compare(compare)) => Answer::Compare(Edge::decode(compare)?),
            Some(Wire::Plan(plan)) => Answer::Plan(Edge::decode(plan)?),
            None => return Err(ProtocolError::new("an answer to an offer that says nothing")),
        };
        Ok(Self { file: FileId(file), answer })
    }

    fn encode(self) -> wire::FileAnswer {
        use wire::file_answer::Answer as Wire;
        let answer = match self.answer {
            Answer::Need(need) => Wire::Need(need.encode()),
            Answer::Skip => Wire::Skip(wire::Skip {}),
            Answer::Fault(fault) => Wire::Fault(fault.encode()),
            Answer::Compare(compare) => Wire::Compare(compare.encode()),
            Answer::Plan(plan) => Wire::Plan(plan.encode()),
        };
        wire::FileAnswer { file: self.file.0, answer: Some(answer) }
    }
}

impl Edge for SpanRange {
    type Wire = wire::SpanRange;

    fn decode(wire: wire::SpanRange) -> Result<Self, ProtocolError> {
        let wire::SpanRange { first, count } = wire;
        Ok(Self { first: SpanIndex(first), count })
    }

    fn encode(self) -> wire::SpanRange {
        wire::SpanRange { first: self.first.0, count: self.count }
    }
}

message! {
    /// The receiver wants the file, but for what is durable.
    pub struct Need {
        pub span_bytes: u64,
        /// Spans that an earlier session left verified and durable, or that are a hole.
        pub durable: Vec<SpanRange>,
        /// The target's name, where it is not the one offered; else empty.
        pub stored_as: Vec<u8>,
        /// Change time of the source's inode when the first of `durable` came.
        pub ctime_s: i64,
        pub ctime_ns: u32,
        /// Digest of what `durable` holds; `None`: not known.
        pub durable_digest: Option<[u8; DURABLE_DIGEST_BYTES]>
            => "a digest of durable spans that is not 16 bytes",
    }
}

message! {
    /// The content of the receiver's file of the same size.
    #[derive(Copy)]
    pub struct Compare {
        pub blake3: [u8; CONTENT_BYTES] => "a BLAKE3 that is not 32 bytes",
    }
}

message! {
    /// A receiver's plan for an offer, in a dry run.
    pub struct Plan {
        /// The file would replace one that is there.
        pub replaces: bool,
        /// Bytes that an earlier session left: these would not be sent.
        pub durable_bytes: u64,
        /// The target's name, where it is not the one offered; else empty.
        pub stored_as: Vec<u8>,
    }
}

message! {
    /// Spans that arrived and whose digests agree, from receiver to sender.
    pub struct SpansVerified {
        pub file: FileId,
        pub spans: Vec<SpanRange>,
    }
}

message! {
    /// A span that arrived damaged and is to be sent again, from receiver to sender.
    #[derive(Copy)]
    pub struct SpanBad {
        pub file: FileId,
        pub span: SpanIndex,
        pub stream: StreamId,
    }
}

message! {
    /// Spans that [`Need`] called durable and that are not what was journaled, from receiver to
    /// sender, where both have [`CAPABILITY_RECHECK`](crate::CAPABILITY_RECHECK). They are to be
    /// sent again, and a confirmation of the file is void.
    pub struct SpansLost {
        pub file: FileId,
        pub spans: Vec<SpanRange>,
    }
}

message! {
    /// A data stream that is lost or stalled, from sender to receiver. The receiver closes it and
    /// says so.
    pub struct StreamDrop {
        pub stream: StreamId,
        pub why: String,
    }
}

message! {
    /// The end of a data stream, from receiver to sender: nothing of it is being written any more,
    /// and every span that it brought has been acknowledged by an earlier message.
    #[derive(Copy)]
    pub struct StreamClosed {
        pub stream: StreamId,
    }
}

message! {
    /// The sender's last word on a file: all spans are verified and the source is still what was
    /// offered; or a fault.
    pub struct FileConfirm {
        pub file: FileId,
        pub fault: Option<Fault>,
    }
}

message! {
    /// The receiver's last word on a file: durable under its name, or a fault.
    pub struct FileSettled {
        pub file: FileId,
        pub fault: Option<Fault>,
    }
}

message! {
    /// Names that were removed at the receiver, or in a dry run would be, with
    /// [`FileOptions::remove_extra`](super::FileOptions::remove_extra), when every file is settled.
    /// Directories behind what is in them.
    pub struct Removed {
        pub names: Vec<Vec<u8>>,
    }
}
