//! Limits of what a message may hold: at each limit it is heard, and beyond it is refused.
//!
//! What the limits are of stands in section 9 of `SPEC.md`, what they are of in a message here.

use super::{Schema, examples, kind_of, schema, wire_bytes};
use haul_protocol::{decode_message, limits};
use serde_json::{Value, json};

/// Says why a message is refused; `None` when it is heard.
fn refusal(schema: &Schema, fields: &Value) -> Option<String> {
    let bytes = wire_bytes(schema, fields);
    decode_message(&bytes, limits::MESSAGE_BYTES_MAX).err().map(|error| error.what)
}

/// Makes a message of this kind that is heard, with some fields changed.
fn message(kind: &str, changes: &Value) -> Value {
    let mut fields = match kind {
        "open" => examples::open()[kind].take(),
        "opened" => examples::opened()[kind].take(),
        "file_offer" => json!({"name": "61", "kind": "REGULAR"}),
        "probe" => json!({"round": 1, "kind": "STREAMS", "to_server": true, "streams": 1,
            "block_bytes": 65536, "time_ms": 1000, "interval_ms": 1000}),
        _ => json!({}),
    };
    for (name, value) in changes.as_object().expect("fields") {
        fields[name] = value.clone();
    }
    json!({ kind: fields })
}

/// Checks that a message is heard with the first of each two changes, and refused in these words
/// with the second.
fn check(kind: &str, limits: &[(&str, Value, Value)]) {
    let schema = schema();
    for (words, at_limit, beyond) in limits {
        let refusal = |changes| refusal(&schema, &message(kind, changes));
        assert_eq!(refusal(at_limit), None, "{kind}: {words}");
        assert_eq!(refusal(beyond).as_deref(), Some(*words), "{kind}");
    }
}

fn hex_of(bytes: usize) -> String {
    "61".repeat(bytes)
}

/// Makes copies of a message, each with `text` in another of the places where one may stand.
fn with_each_text(
    schema: &Schema,
    message: &str,
    value: &Value,
    text: &str,
) -> Vec<(String, Value)> {
    let mut copies = Vec::new();
    for field in &schema.messages[message] {
        let changed = match field.kind.as_str() {
            "string" => vec![(String::new(), json!(text))],
            kind if schema.messages.contains_key(kind) => {
                let value = value.get(&field.name).unwrap_or(&Value::Null);
                let first = if field.is_repeated { &value[0] } else { value };
                let first = if first.is_null() { json!({}) } else { first.clone() };
                with_each_text(schema, kind, &first, text)
            }
            _ => vec![],
        };
        for (place, changed) in changed {
            let mut copy = value.clone();
            copy[&field.name] = if field.is_repeated { json!([changed]) } else { changed };
            copies.push((format!("{}.{place}", field.name), copy));
        }
    }
    copies
}

#[test]
fn each_text_of_each_message_is_as_long_as_a_text_may_be_and_no_longer() {
    let schema = schema();
    let mut count = 0;
    for kind in &schema.messages["Control"] {
        let examples = examples::messages();
        let example = examples.into_iter().find(|(_, fields)| kind_of(fields) == kind.name);
        let base = match kind.name.as_str() {
            // An answer is one of several.
            "file_answer" => json!({}),
            name => example.expect("every kind has one").1[name].take(),
        };
        let refusals = |bytes| {
            let copies = with_each_text(&schema, &kind.kind, &base, &"x".repeat(bytes));
            let refusal = |copy: &Value| refusal(&schema, &json!({ &*kind.name: copy }));
            copies.iter().map(|(place, copy)| (place.clone(), refusal(copy))).collect::<Vec<_>>()
        };
        for (place, refusal) in refusals(limits::TEXT_BYTES_MAX) {
            assert_eq!(refusal, None, "{}.{place}", kind.name);
        }
        for (place, refusal) in refusals(limits::TEXT_BYTES_MAX + 1) {
            let words = "a text longer than 4096 bytes";
            assert_eq!(refusal.as_deref(), Some(words), "{}.{place}", kind.name);
            count += 1;
        }
    }
    assert!(count > 50, "{count} texts were found");
}

#[test]
fn a_session_is_opened_within_the_limits() {
    let path = "a path longer than 4095 bytes";
    check("hello", &[many_capabilities()]);
    check("hello_reply", &[many_capabilities()]);
    check(
        "open",
        &[
            (path, json!({"paths": [hex_of(4095)]}), json!({"paths": [hex_of(4096)]})),
            ("more than 64 streams", json!({"streams": 64}), json!({"streams": 65})),
            ("a span size", json!({"span_bytes": 65536}), json!({"span_bytes": 32768})),
            ("a span size", json!({"span_bytes": 1 << 30}), json!({"span_bytes": 1_u64 << 31})),
        ],
    );
    let bytes = |bytes: u64| json!({"offer_bytes_max": bytes});
    let keys = |bytes: usize| json!({"data_keys": "5a".repeat(bytes)});
    let keys_words = "data keys that are not 96 bytes";
    check(
        "opened",
        &[
            ("a number of streams", json!({"streams": 1}), json!({"streams": 0})),
            ("a number of streams", json!({"streams": 64}), json!({"streams": 65})),
            ("an offer limit", json!({"offers_max": 1}), json!({"offers_max": 0})),
            ("an offer limit", json!({"offers_max": 65536}), json!({"offers_max": 65537})),
            ("a limit of the offers' bytes", bytes(16384), bytes(16383)),
            ("a limit of the offers' bytes", bytes(16 << 20), bytes((16 << 20) + 1)),
            (keys_words, keys(96), keys(95)),
            (keys_words, keys(96), keys(97)),
            (keys_words, keys(0), keys(1)),
        ],
    );
    check("refused", &[(path, json!({"path": hex_of(4095)}), json!({"path": hex_of(4096)}))]);
    let rule = |bytes| json!({"rules": [{"pattern": hex_of(bytes)}]});
    check("selection", &[("a pattern longer than 4095 bytes", rule(4095), rule(4096))]);
}

fn many_capabilities() -> (&'static str, Value, Value) {
    let numbers = |count: u32| json!({"capabilities": (0..count).collect::<Vec<_>>()});
    ("more than 256 capabilities", numbers(256), numbers(257))
}

#[test]
fn a_file_is_offered_within_the_limits() {
    let size = |bytes: u64| json!({"size_bytes": bytes});
    let link = |bytes| json!({"kind": "SYMLINK", "link_target": hex_of(bytes)});
    let hole = |bytes| json!({"size_bytes": 4, "holes": [{"len_bytes": bytes}]});
    let owner = |whose: &str, bytes| json!({"owner": {whose: hex_of(bytes)}});
    let xattr = |name, value| json!({"name": hex_of(name), "value": hex_of(value)});
    let xattrs = |all: Vec<Value>| json!({"xattrs": all});
    let time = "a time with more than a second of nanoseconds";
    let hole_words = "a hole out of order or out of its file";
    let owner_words = "a long name of a user or group";
    let xattr_words = "a name of an extended attribute";
    let xattrs_words = "more than 1024 extended attributes";
    let bytes_words = "more than 256 KiB of extended attributes";
    check(
        "file_offer",
        &[
            ("a file larger than 2^50 bytes", size(1 << 50), size((1 << 50) + 1)),
            ("a link longer than 4095 bytes", link(4095), link(4096)),
            (hole_words, hole(4), hole(5)),
            (hole_words, hole(1), hole(0)),
            (owner_words, owner("user", 255), owner("user", 256)),
            (owner_words, owner("group", 255), owner("group", 256)),
            (xattr_words, xattrs(vec![xattr(255, 0)]), xattrs(vec![xattr(256, 0)])),
            (xattrs_words, xattrs(vec![xattr(1, 1); 1024]), xattrs(vec![xattr(1, 1); 1025])),
            (
                bytes_words,
                xattrs(vec![xattr(2, 4), xattr(10, (256 << 10) - 16)]),
                xattrs(vec![xattr(2, 4), xattr(11, (256 << 10) - 16)]),
            ),
            (time, json!({"mtime_ns": 999_999_999}), json!({"mtime_ns": 1_000_000_000})),
            (time, json!({"ctime_ns": 999_999_999}), json!({"ctime_ns": 1_000_000_000})),
            (
                "a mode with more than permission bits",
                json!({"mode": 0o7777}),
                json!({"mode": 0o10000}),
            ),
        ],
    );
}

#[test]
fn an_answer_and_a_goodbye_keep_within_the_limits() {
    let need = |field: &str, value: Value| json!({"need": {"span_bytes": 65536, field: value}});
    let runs = |count| need("durable", json!(vec![json!({"count": 1}); count]));
    let name = "a file name is refused: the name has a `.` or `..` component";
    let plan = |name: &str| json!({"plan": {"stored_as": name}});
    let fault = |bytes| json!({"fault": {"path": hex_of(bytes)}});
    check(
        "file_answer",
        &[
            ("too many ranges of spans", runs(65_536), runs(65_537)),
            (
                "a time with more than a second of nanoseconds",
                need("ctime_ns", json!(999_999_999)),
                need("ctime_ns", json!(1_000_000_000)),
            ),
            (name, need("stored_as", json!("612e31")), need("stored_as", json!("2e2e"))),
            (name, plan("612e31"), plan("2e2e")),
            (name, plan(""), plan("2e")),
            ("a path longer than 4095 bytes", fault(4095), fault(4096)),
        ],
    );
    let stages = |count| json!({"report": {"stages": vec![json!({"stage": "IDLE"}); count]}});
    check("finish", &[("too many stages in a report", stages(64), stages(65))]);
}

#[test]
fn a_probe_asks_for_what_is_within_the_limits() {
    let round = |round: u32| json!({"round": round});
    let block = |bytes: u32| json!({"block_bytes": bytes});
    let datagram = |bytes| json!({"kind": "DATAGRAMS", "block_bytes": bytes});
    let pings = |to_client: bool, streams: u32| {
        let kind = "ENDPOINT_PINGS";
        json!({"kind": kind, "to_client": to_client, "streams": streams})
    };
    let time = |time_ms, omit_ms| json!({"time_ms": time_ms, "omit_ms": omit_ms});
    // Both ways take numbers from the first on: with three streams, six.
    let numbers = |left| {
        let first = u32::MAX - left;
        json!({"to_client": true, "streams": 3, "first_stream": first})
    };
    let block_words = "a block of a probe";
    check(
        "probe",
        &[
            ("a round of a probe", round(1), round(0)),
            ("a round of a probe", round(4096), round(4097)),
            ("a number of streams", json!({"streams": 1}), json!({"streams": 0})),
            ("a number of streams", json!({"streams": 64}), json!({"streams": 65})),
            (block_words, block(64), block(63)),
            (block_words, block(16 << 20), block((16 << 20) + 1)),
            ("a datagram that no packet carries", datagram(65_507), datagram(65_508)),
            ("pings that nobody echoes", pings(true, 1), pings(false, 1)),
            ("pings that nobody echoes", pings(true, 1), pings(true, 2)),
            ("a time of a probe", time(599_000, 1000), time(599_001, 1000)),
            ("a time of a probe", time(1, 0), time(0, 1000)),
            (
                "an interval shorter than 50 ms",
                json!({"interval_ms": 50}),
                json!({"interval_ms": 49}),
            ),
            ("a number of a stream", numbers(6), numbers(5)),
        ],
    );
}

/// The list of what must not come with `discard` stands in section 5 of `SPEC.md`.
#[test]
fn what_is_to_be_discarded_is_a_push_that_asks_for_nothing_else() {
    let schema = schema();
    let refusal = |more: &Value, of_files: &Value, discard: bool| {
        let mut message = message("open", more);
        message["open"]["file_options"] = of_files.clone();
        message["open"]["file_options"]["discard"] = discard.into();
        refusal(&schema, &message)
    };
    let alone = json!({});
    assert_eq!(refusal(&alone, &alone, true), None);
    let of_files = ["remove_extra", "dry_run", "move_sources", "follow", "watch"];
    let mut asked: Vec<_> = of_files.map(|option| (alone.clone(), json!({option: true}))).into();
    asked.push((json!({"direction": "PULL"}), alone.clone()));
    asked.push((json!({"verify_target": true}), alone));
    for (more, of_files) in asked {
        assert_eq!(refusal(&more, &of_files, false), None, "{more} {of_files}");
        let words = "a push to be discarded that asks for more";
        assert_eq!(refusal(&more, &of_files, true).as_deref(), Some(words), "{more} {of_files}");
    }
}
