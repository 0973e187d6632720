//! Check that `SPEC.md` says what the code says.
//!
//! Its tables hold every limit and every fault.

use haul_protocol::limits;

const SPECIFICATION: &str = include_str!("../SPEC.md");
const LIMITS: &str = include_str!("../src/limits.rs");
const PROTO: &str = include_str!("../proto/haul.proto");

macro_rules! limits {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), u64::try_from(limits::$name).expect("a limit fits 64 bits"))),*]
    };
}

#[test]
fn the_table_of_limits_holds_every_constant_and_its_value() {
    let known = limits![
        MESSAGE_BYTES_MAX_UNKNOWN,
        MESSAGE_BYTES_MAX,
        OFFERS_MAX,
        OFFER_BYTES_MAX,
        OFFER_BYTES_MIN,
        FILES_MAX,
        TAKEN_NAMES_MAX,
        NAME_BYTES_MAX,
        COMPONENT_BYTES_MAX,
        PATHS_MAX,
        TEXT_BYTES_MAX,
        CAPABILITIES_MAX,
        RANGES_MAX,
        SPANS_MAX,
        SPANS_OPEN_MAX,
        SPAN_BYTES_MIN,
        SPAN_BYTES_MAX,
        FILE_BYTES_MAX,
        PRIVATE_KEY_BYTES_MAX,
        PACK_BYTES_MAX,
        HOLES_MAX,
        XATTRS_MAX,
        XATTR_BYTES_MAX,
        SHORT_NAME_BYTES_MAX,
        RULES_MAX,
        RULES_BYTES_MAX,
        SELECTION_ITEMS_MAX,
        SELECTION_BYTES_MAX,
        REMOVED_MAX,
        EXPLAINED_MAX,
        CONTENT_BYTES,
        DURABLE_DIGEST_BYTES,
        DATA_KEYS_BYTES,
        STREAMS_MAX,
        STREAMS_EVER_MAX,
        SPAN_RETRIES_MAX,
        STAGES_MAX,
        FRAMES_MAX,
        PROBE_ROUNDS_MAX,
        PROBE_MS_MAX,
        PROBE_INTERVAL_MS_MIN,
        PROBE_BLOCK_BYTES_MIN,
        PROBE_BLOCK_BYTES_MAX,
        PROBE_DATAGRAM_BYTES_MAX,
        PROBE_STREAMS_MAX,
        AUDIT_FINDINGS_MAX,
    ];
    for (name, value) in known {
        let row = format!("\n| `{name}` | {value} | ");
        assert!(SPECIFICATION.contains(&row), "SPEC.md has no row {row}");
    }
    let constants = LIMITS.lines().filter_map(|line| line.strip_prefix("pub const "));
    let names: Vec<&str> = constants.filter_map(|line| line.split(':').next()).collect();
    let listed: Vec<&str> = known.iter().map(|limit| limit.0).collect();
    assert_eq!(names, listed, "limits.rs and this test hold the same constants");
}

#[test]
fn the_table_of_faults_holds_every_code() {
    let faults = PROTO.split("enum FaultCode {").nth(1).and_then(|rest| rest.split('}').next());
    let lines = faults.expect("the faults").lines().filter_map(|line| line.split(';').next());
    let codes: Vec<(&str, &str)> = lines.filter_map(|line| line.trim().split_once(" = ")).collect();
    assert!(codes.len() > 20);
    for (name, number) in codes {
        let row = format!("\n| `{name}` | {number} | ");
        assert!(SPECIFICATION.contains(&row), "SPEC.md has no row {row}");
    }
}

#[test]
fn every_kind_of_message_is_specified() {
    let control = PROTO.split("oneof kind {").nth(1).and_then(|rest| rest.split('}').next());
    let lines = control.expect("the kinds of messages").lines();
    let names = lines.filter_map(|line| line.split_whitespace().nth(1));
    let names: Vec<&str> = names.collect();
    assert_eq!(names.len(), 32);
    for name in names {
        assert!(SPECIFICATION.contains(&format!("`{name}`")), "SPEC.md does not speak of {name}");
    }
}
