//! Tests of the messages: what a peer may say, and what is refused of it before it is used.

use super::*;
use crate::FileId;
use std::vec;

/// Encodes a field that holds bytes: a message, a text, an item of a list.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    prost::encoding::encode_key(number, prost::encoding::WireType::LengthDelimited, &mut field);
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    [field, bytes.to_vec()].concat()
}

/// Says a message, and hears it.
fn heard(message: Message) -> Message {
    let mut bytes = vec![];
    encode_message(message, &mut bytes);
    let decoded = decode_message(&bytes, limits::MESSAGE_BYTES_MAX).expect("allowed");
    decoded.expect("whole").0
}

#[test]
fn a_message_arrives_byte_by_byte() {
    let mut bytes = Vec::new();
    encode_message(Message::Ping(Ping { number: 300 }), &mut bytes);
    for len in 0..bytes.len() {
        assert_eq!(decode_message(&bytes[..len], 100), Ok(None));
    }
    let expected = (Message::Ping(Ping { number: 300 }), bytes.len());
    assert_eq!(decode_message(&bytes, 100), Ok(Some(expected)));
}

#[test]
fn a_long_message_is_refused_before_it_arrives() {
    assert!(decode_message(&[0xff, 0xff, 0xff, 0x7f], 100).is_err());
    let audit = field(40, &field(1, &[b'x'; 95]));
    assert_eq!(audit.len(), 100);
    let longest = [&[100, 0, 0, 0][..], &audit].concat();
    assert!(matches!(decode_message(&longest, 100), Ok(Some((Message::Audit(_), 104)))));
    assert!(decode_message(&longest[..LENGTH_BYTES], 99).is_err(), "a byte more than allowed");
}

#[test]
fn what_passes_a_limit_is_refused() {
    let offer = |name: &[u8], mode| {
        let offer = FileOffer { name: name.to_vec(), mode, ..Default::default() };
        let mut bytes = vec![];
        encode_message(Message::FileOffer(offer), &mut bytes);
        decode_message(&bytes, limits::MESSAGE_BYTES_MAX)
    };
    assert!(offer(b"a", 0o644).is_ok());
    assert!(offer(b"../a", 0o644).is_err());
    assert!(offer(b"a", 0o100_644).is_err());
}

/// Case of a fault that quotes a long path in its text, which ended the whole session.
#[test]
fn a_long_text_is_cut_and_does_not_end_the_session() {
    // The limit is in the middle of a character.
    let what = ["x", &"ä".repeat(4000)].concat();
    let fault = Fault { what, path: vec![b'x'; 9000], ..Default::default() };
    let settled = FileSettled { file: FileId(1), fault: Some(fault) };
    let Message::FileSettled(settled) = heard(Message::FileSettled(settled)) else { panic!() };
    let fault = settled.fault.expect("sent");
    assert_eq!(fault.what, ["x", &"ä".repeat(2047)].concat());
    assert_eq!(fault.path.len(), limits::NAME_BYTES_MAX);
}

/// A peer of a later version may have more of each.
#[test]
fn a_number_that_an_enum_does_not_have_means_what_0_means() {
    let offer =
        wire::FileOffer { name: b"a".to_vec(), kind: 99, compared: -1, ..Default::default() };
    let fault = wire::Fault { code: 999, side: 4, ..Default::default() };
    let settled = wire::FileSettled { file: 0, fault: Some(fault) };
    let decode = |kind| {
        let mut bytes = vec![];
        let control = wire::Control { kind: Some(kind) };
        bytes.extend_from_slice(&(control.encoded_len() as u32).to_le_bytes());
        control.encode(&mut bytes).expect("a Vec grows as needed");
        let decoded = decode_message(&bytes, limits::MESSAGE_BYTES_MAX).expect("allowed");
        decoded.expect("whole").0
    };
    let Message::FileOffer(offer) = decode(wire::control::Kind::FileOffer(offer)) else { panic!() };
    assert_eq!((offer.kind, offer.compared), (FileKind::Unknown, Compared::NotCompared));
    let Message::FileSettled(settled) = decode(wire::control::Kind::FileSettled(settled)) else {
        panic!()
    };
    let fault = settled.fault.expect("sent");
    assert_eq!((fault.code, fault.side), (FaultCode::FaultUnknown, Side::Unknown));
    let open = wire::Open {
        token_secret: [1; 16].into(),
        transfer: [2; 16].into(),
        protection: 99,
        digest: 99,
        direction: 99,
        ..Default::default()
    };
    let Message::Open(open) = decode(wire::control::Kind::Open(open)) else { panic!() };
    assert_eq!(
        (open.protection, open.digest, open.direction),
        (Protection::default(), Digest::default(), Direction::default())
    );
}

/// A later version may mean by a new number to keep a file that 0 replaces.
#[test]
fn a_number_that_decides_over_files_and_is_not_known_ends_the_session() {
    let file_options = wire::FileOptions { on_conflict: 99, ..Default::default() };
    let open = wire::Open {
        token_secret: [1; 16].into(),
        transfer: [2; 16].into(),
        file_options: Some(file_options),
        ..Default::default()
    };
    let offer = wire::FileOffer { name: b"a".to_vec(), growth: 99, ..Default::default() };
    for (kind, what) in [
        (wire::control::Kind::Open(open), "on_conflict"),
        (wire::control::Kind::FileOffer(offer), "growth"),
    ] {
        let refused = Message::decode(kind).expect_err(what);
        let refused = format!("{refused}");
        assert!(refused.contains(what) && refused.contains("99"), "{refused}");
    }
}

/// A notice of a long path ended the whole session.
#[test]
fn what_a_side_says_with_texts_of_any_length_is_heard() {
    let long = || "x".repeat(limits::TEXT_BYTES_MAX + 1);
    let fault = || Fault { what: long(), path: vec![b'x'; 9000], ..Default::default() };
    let candidate = Candidate { engine: long(), what: long(), ..Default::default() };
    let target = TargetFacts { file_system: long(), ..Default::default() };
    for message in [
        Message::Notice(Notice {
            what: long(),
            why: long(),
            fault: Some(fault()),
            ..Default::default()
        }),
        Message::Refused(fault()),
        Message::FileConfirm(FileConfirm { fault: Some(fault()), ..Default::default() }),
        Message::ProbeResult(ProbeResult { fault: Some(fault()), ..Default::default() }),
        Message::Explained(Explained { candidates: vec![candidate], ..Default::default() }),
        Message::Facts(HostFacts { target: Some(target), ..Default::default() }),
    ] {
        let mut bytes = vec![];
        encode_message(message.clone(), &mut bytes);
        let heard = decode_message(&bytes, limits::MESSAGE_BYTES_MAX);
        assert!(matches!(heard, Ok(Some(_))), "{heard:?} of {message:?}");
    }
}

/// A mirror that removed such a name ended the whole session.
#[test]
fn a_removed_name_that_cannot_be_said_is_told_by_the_directories_above_it() {
    let directory = "d".repeat(255);
    let fifteen = vec![&directory[..]; 15].join("/");
    let deep = vec![&directory[..]; 17].join("/");
    let x = |bytes| "x".repeat(bytes);
    let cases = [
        (String::from("a/b"), String::from("a/b")),
        (deep.clone(), format!("{fifteen}/...")),
        // With 251 it has as many bytes as a name may have.
        (format!("{fifteen}/{}/{deep}", x(251)), format!("{fifteen}/{}/...", x(251))),
        (format!("{fifteen}/{}/{deep}", x(252)), format!("{fifteen}/...")),
        (format!("a/{}/b", x(256)), "a/...".into()),
        (x(9000), "...".into()),
    ];
    let names = cases.iter().map(|(name, _)| name.clone().into_bytes()).collect();
    let mut bytes = vec![];
    encode_message(Message::Removed(Removed { names }), &mut bytes);
    let heard = decode_message(&bytes, limits::MESSAGE_BYTES_MAX).expect("allowed");
    let Some((Message::Removed(removed), _)) = heard else { panic!("{heard:?}") };
    for ((_, told), name) in cases.iter().zip(&removed.names) {
        assert_eq!(String::from_utf8_lossy(name), *told);
    }
    assert_eq!(removed.names.len(), cases.len());
}

/// The last kind counted, and a group hid a list from the count of its items.
#[test]
fn a_message_of_more_than_one_kind_or_with_a_group_is_refused() {
    let decode = |fields: &[&[u8]]| {
        let body = fields.concat();
        let bytes = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        decode_message(&bytes, limits::MESSAGE_BYTES_MAX).map(|_| ())
    };
    let ping = field(18, &[0x08, 7]);
    assert_eq!(decode(&[&ping]), Ok(()));
    // A field of a later version within the kind is ignored.
    assert_eq!(decode(&[&field(18, &[0x08, 7, 0x78, 1])]), Ok(()));
    for (second, what) in [
        (field(19, &[0x08, 7]), "another kind"),
        (ping.clone(), "the same kind"),
        (field(99, b""), "a kind of a later version"),
    ] {
        assert!(decode(&[&ping, &second]).is_err(), "{what}");
        assert!(decode(&[&second, &ping]).is_err(), "{what} first");
    }
    // Field 15 as a group without anything in it, then more findings than there may be.
    let group = [0x7b, 0x7c];
    let findings = field(3, b"").repeat(limits::AUDIT_FINDINGS_MAX + 1);
    assert!(decode(&[&group, &ping]).is_err());
    assert!(decode(&[&ping, &group]).is_err());
    let hidden = field(41, &[&group[..], &findings].concat());
    assert!(decode(&[&hidden]).is_err());
    assert!(check_fields(&hidden).is_err(), "before any is made");
    // A skip and a plan, of which each is an answer.
    let (skip, plan) = (field(3, b""), field(6, b""));
    assert_eq!(decode(&[&field(8, &skip)]), Ok(()));
    assert_eq!(decode(&[&field(8, &plan)]), Ok(()));
    for two in [[&skip[..], &plan], [&plan, &skip], [&skip, &skip]] {
        assert!(decode(&[&field(8, &two.concat())]).is_err(), "{two:?}");
    }
}

#[test]
fn each_list_has_a_number_that_is_counted_apart() {
    let lists = include_str!("../../proto/haul.proto").lines().filter_map(|line| {
        let (_, number) = line.trim().strip_prefix("repeated ")?.split_once("= ")?;
        number.split(';').next()?.parse::<usize>().ok()
    });
    assert_eq!(lists.max(), Some(LIST_FIELDS_MAX));
}

/// A list of empty items takes 2 bytes an item on the wire and 240 in memory.
#[test]
fn a_list_of_too_many_items_is_refused_before_it_is_made() {
    let of_findings = |count| {
        let findings = vec![wire::AuditFinding::default(); count];
        let audited = wire::Audited { findings, ..Default::default() };
        let control = wire::Control { kind: Some(wire::control::Kind::Audited(audited)) };
        check_fields(&control.encode_to_vec())
    };
    assert!(of_findings(limits::AUDIT_FINDINGS_MAX).is_ok());
    assert!(of_findings(limits::AUDIT_FINDINGS_MAX + 1).is_err());
    // Nor where other fields stand between them.
    let audited = [0x1a, 0, 0x10, 1].repeat(limits::AUDIT_FINDINGS_MAX + 1);
    let between = [&[0xca, 0x02, audited.len() as u8][..], &audited].concat();
    assert!(check_fields(&between).is_err());
    let streams = vec![wire::ProbeStream::default(); limits::PROBE_STREAMS_MAX + 1];
    let figures = wire::ProbeFigures { streams, ..Default::default() };
    let control = wire::Control { kind: Some(wire::control::Kind::ProbeFigures(figures)) };
    assert!(check_fields(&control.encode_to_vec()).is_err());
}

#[test]
fn each_list_of_a_message_has_its_limit_and_is_counted_apart() {
    let streams_max = limits::STREAMS_MAX as usize;
    // Each list with the numbers of its message and its own (haul.proto).
    for (list, kind, number, items_max) in [
        ("open.paths", 3, 4, limits::PATHS_MAX),
        ("open.fabrics", 3, 14, limits::PATHS_MAX),
        ("file_offer.holes", 6, 11, limits::HOLES_MAX),
        // Fewer are allowed, once they are made.
        ("file_offer.xattrs", 6, 14, limits::HOLES_MAX),
        ("spans_verified.spans", 9, 2, limits::RANGES_MAX),
        ("progress.streams", 15, 3, streams_max),
        ("selection.rules", 20, 1, limits::SELECTION_ITEMS_MAX),
        ("selection.names", 20, 2, limits::SELECTION_ITEMS_MAX),
        ("removed.names", 21, 1, limits::REMOVED_MAX),
        ("explained.facts", 23, 1, limits::EXPLAINED_MAX),
        ("explained.candidates", 23, 2, limits::EXPLAINED_MAX),
        ("figures.stages", 24, 2, limits::STAGES_MAX),
        ("probe_figures.streams", 28, 3, limits::PROBE_STREAMS_MAX),
        ("probe_result.streams", 29, 3, limits::PROBE_STREAMS_MAX),
        ("spans_lost.spans", 30, 2, limits::RANGES_MAX),
        ("audited.findings", 41, 3, limits::AUDIT_FINDINGS_MAX),
    ] {
        let item = field(number, b"");
        // Another field of the message, and one of a later version.
        let others = [field(13, b""), field(99, b"")].concat();
        let full = [others, item.repeat(items_max)].concat();
        assert_eq!(check_fields(&field(kind, &full)), Ok(()), "{list}");
        let refused = check_fields(&field(kind, &[full, item].concat())).expect_err(list);
        assert!(refused.what.contains("more items in a list"), "{list}: {refused}");
    }
}

/// The memory that SPEC.md counts for an offer in section 5.
#[test]
fn an_offer_takes_memory_for_what_is_kept_of_its_file() {
    let plain = || FileOffer { name: b"a".to_vec(), ..Default::default() };
    let xattr = |name: &[u8], value_bytes| {
        let (name, value) = (name.to_vec(), vec![0; value_bytes]);
        Xattr { name, value }
    };
    let hole = Extent { offset_bytes: 0, len_bytes: 1 };
    for (offer, bytes) in [
        (plain(), 257),
        (FileOffer { name: vec![b'x'; 4095], ..plain() }, 4351),
        (FileOffer { link_target: b"to/b".to_vec(), ..plain() }, 261),
        (FileOffer { holes: vec![hole; 3], ..plain() }, 305),
        (FileOffer { xattrs: vec![xattr(b"user.x", 10)], ..plain() }, 337),
        (FileOffer { xattrs: vec![xattr(b"user.x", 10), xattr(b"y", 0)], ..plain() }, 402),
    ] {
        assert_eq!(offer_bytes(&offer), bytes, "{offer:?}");
    }
}

#[test]
fn a_message_that_is_printed_shows_no_secret() {
    let open = Open { token_secret: Secret([0xab; 16]), ..Default::default() };
    let ready = ProbeReady { datagram_key: Some(Secret([0xab; 16])), ..Default::default() };
    let printed = format!("{open:?} {ready:?}");
    assert!(!printed.contains("171") && !printed.contains("abab"), "{printed}");
}
