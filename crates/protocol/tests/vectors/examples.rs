//! Examples of every message for the vectors, as the specification describes them.

use serde_json::{Value, json};

/// Good messages: a name and the fields of a `Control`.
pub fn messages() -> Vec<(&'static str, Value)> {
    let mut all = session_messages();
    all.extend(rdma_messages());
    all.extend(told_keys_messages());
    all.extend(contents_messages());
    all.extend(option_messages());
    all.extend(offer_messages());
    all.extend(file_messages());
    all.extend(report_messages());
    all.extend(probe_messages());
    all
}

pub fn hello() -> Value {
    json!({"hello": {"version_min": 1, "version_max": 1, "software": "haul 0.1.0"}})
}

pub fn open() -> Value {
    json!({"open": {
        "token_secret": "000102030405060708090a0b0c0d0e0f",
        "transfer": "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        "direction": "PUSH", "paths": ["646972"], "into_directory": true,
        "protection": "SAFE", "digest": "AES_GMAC",
    }})
}

pub fn opened() -> Value {
    json!({"opened": {
        "session": "101112131415161718191a1b1c1d1e1f", "protection": "SAFE",
        "digest": "AES_GMAC", "streams": 4, "offers_max": 256, "rtt_us": 180,
        "offer_bytes_max": 4_194_304,
    }})
}

pub fn hello_reply() -> Value {
    json!({"hello_reply": {"version": 1, "software": "haul 0.1.0"}})
}

fn session_messages() -> Vec<(&'static str, Value)> {
    vec![
        ("a hello", hello()),
        (
            "a hello with capabilities of a later build",
            json!({"hello": {
            "version_min": 1, "version_max": 3, "capabilities": [1, 2, 300],
            "software": "haul 9.0.0"}}),
        ),
        ("a reply to it", hello_reply()),
        ("a push", open()),
        (
            "a pull of two sources with all options",
            json!({"open": {
            "token_secret": "ffffffffffffffffffffffffffffffff",
            "transfer": "00000000000000000000000000000000",
            "direction": "PULL", "paths": ["612f62", "fffe"],
            "protection": "CLEAR", "digest": "XXH3_128", "streams": 64,
            "span_bytes": 1_073_741_824, "rate_bytes_per_s": 125_000_000_000_u64,
            "peer_engine": "sendfile"}}),
        ),
        ("a session", opened()),
        (
            "a push under another name, to be read back",
            json!({"open": {
            "token_secret": "000102030405060708090a0b0c0d0e0f",
            "transfer": "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            "direction": "PUSH", "paths": ["6e6577"], "protection": "SAFE", "digest": "AES_GMAC",
            "verify_target": true, "target_is_name": true, "wants_figures": true}}),
        ),
        (
            "its session",
            json!({"opened": {
            "session": "101112131415161718191a1b1c1d1e1f", "protection": "SAFE",
            "digest": "AES_GMAC", "streams": 1, "offers_max": 16, "offer_bytes_max": 65536,
            "verify_target": true, "target_is_name": true}}),
        ),
        (
            "a push that measures",
            json!({"open": {
            "token_secret": "000102030405060708090a0b0c0d0e0f",
            "transfer": "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            "direction": "PUSH", "paths": ["642f"], "into_directory": true, "protection": "SAFE",
            "digest": "AES_GMAC", "file_options": {"preserve": 3, "discard": true}}}),
        ),
        (
            "its session, whose files go",
            json!({"opened": {
            "session": "101112131415161718191a1b1c1d1e1f", "protection": "SAFE",
            "digest": "AES_GMAC", "streams": 1, "offers_max": 16, "offer_bytes_max": 65536,
            "discard": true}}),
        ),
        (
            "a refusal",
            json!({"refused": {
            "code": "TOKEN_EXPIRED", "what": "the token has expired",
            "found": "a token valid until 2026-01-01", "hint": "ask for a new one"}}),
        ),
        ("a ping", json!({"ping": {"number": 300}})),
        ("a pong", json!({"pong": {"number": 300}})),
    ]
}

/// Messages of capability 3.
fn rdma_messages() -> Vec<(&'static str, Value)> {
    vec![
        (
            "a push by RDMA, where that can be",
            json!({"open": {
            "token_secret": "000102030405060708090a0b0c0d0e0f",
            "transfer": "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            "direction": "PUSH", "paths": ["642f"], "protection": "SAFE", "digest": "AES_GMAC",
            "fabrics": ["verbs", "shm"]}}),
        ),
        (
            "its session, by shared memory",
            json!({"opened": {
            "session": "101112131415161718191a1b1c1d1e1f", "protection": "SAFE",
            "digest": "AES_GMAC", "streams": 1, "offers_max": 16, "offer_bytes_max": 65536,
            "fabric": "shm"}}),
        ),
        (
            "its session by TCP",
            json!({"opened": {
            "session": "101112131415161718191a1b1c1d1e1f", "protection": "SAFE",
            "digest": "AES_GMAC", "streams": 1, "offers_max": 16, "offer_bytes_max": 65536,
            "fabric_refused": "the server was started without --fabric"}}),
        ),
    ]
}

/// Byte i is i: the keys that `digests.json` takes as exported.
fn data_keys(len: u8) -> String {
    (0..len).map(|byte| format!("{byte:02x}")).collect()
}

/// A hello and its reply, with told keys.
pub fn hello_for_told_keys() -> (Value, Value) {
    let hello = json!({"hello": {
        "version_min": 1, "version_max": 1, "capabilities": [4], "software": "haul-jvm 0.1.0"}});
    let reply = json!({"hello_reply": {
        "version": 1, "capabilities": [4], "software": "haul 0.1.0"}});
    (hello, reply)
}

/// A session whose keys have this many bytes.
pub fn opened_telling(len: u8) -> Value {
    let mut opened = opened();
    opened["opened"]["data_keys"] = data_keys(len).into();
    opened
}

/// Messages of capability 4.
fn told_keys_messages() -> Vec<(&'static str, Value)> {
    let (hello, reply) = hello_for_told_keys();
    vec![
        ("a hello of a client that exports no keys", hello),
        ("a reply that announces keys", reply),
        ("its session, with the keys of its data streams", opened_telling(96)),
    ]
}

fn contents_messages() -> Vec<(&'static str, Value)> {
    vec![
        (
            "a push of the contents of a directory of mode 0700",
            json!({"open": {
            "token_secret": "000102030405060708090a0b0c0d0e0f",
            "transfer": "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
            "direction": "PUSH", "paths": ["6e6577"], "into_directory": true,
            "protection": "SAFE", "digest": "AES_GMAC", "contents_mode": 0o40700}}),
        ),
        (
            "the session of a pull of contents",
            json!({"opened": {
            "session": "101112131415161718191a1b1c1d1e1f", "protection": "SAFE",
            "digest": "AES_GMAC", "streams": 1, "offers_max": 16, "offer_bytes_max": 65536,
            "contents_mode": 0o40750}}),
        ),
    ]
}

fn option_messages() -> Vec<(&'static str, Value)> {
    vec![
        (
            "a pull that mirrors a part of a tree",
            json!({"open": {
            "token_secret": "ffffffffffffffffffffffffffffffff",
            "transfer": "00000000000000000000000000000000",
            "direction": "PULL", "paths": ["612f"], "protection": "SAFE", "digest": "AES_GMAC",
            "file_options": {"on_conflict": "KEEP_BOTH", "compare_content": true,
                "remove_extra": true, "removals_max": 1000, "dry_run": true,
                "move_sources": true, "preserve": 63,
                "selection_follows": true, "mirrors_base": true, "preflight": true,
                "follow": true, "idle_ms": 10000, "append_only": true, "watch": true,
                "watch_for_ms": 60000, "explain": true, "recheck": true,
                "ranges": true}}}),
        ),
        (
            "which files are meant",
            json!({"selection": {
            "rules": [{"include": true, "pattern": "2a2e66697473"}, {"pattern": "2a"}],
            "names": ["61", "622f63"], "names_given": true, "size_min": {"bytes": 1},
            "size_max": {}, "modified_from": {"seconds": -1},
            "modified_until": {"seconds": 1_700_000_000}, "more_follows": true}}),
        ),
        (
            "how a server chose its engine",
            json!({"explained": {
            "facts": ["4 GiB to ext4, durable at the end, a digest of each byte"],
            "candidates": [
                {"engine": "io-uring", "what": "needs io_uring, found none"},
                {"engine": "direct", "usable": true, "what": "past the page cache"}],
            "because": "4 GiB go to ext4, so direct writes it past the page cache"}}),
        ),
        (
            "what a server knows about its host",
            json!({"facts": {
            "clock_ms": 1_700_000_000_000_u64, "kernel": "6.18", "cores": 2,
            "memory_bytes": 25_769_803_776_u64, "open_files_max": 1_048_576,
            "locked_bytes_max": 65536, "receive_buffer_bytes_max": 33_554_432,
            "send_buffer_bytes_max": 4_194_304, "congestion": "bbr",
            "target": {"file_system": "ext4", "free_bytes": 1_099_511_627_776_u64,
                "free_inodes": 16_000_000, "read_only": true, "may_write": true}}}),
        ),
    ]
}

fn offer_messages() -> Vec<(&'static str, Value)> {
    vec![
        (
            "the first file, from before 1970",
            json!({"file_offer": {
            "name": "6469722f6e616d65", "kind": "REGULAR", "size_bytes": 1_099_511_627_777_u64,
            "mtime_s": -1, "mtime_ns": 999_999_999, "mode": 420, "inode": 12, "device": 2049,
            "ctime_s": 1_700_000_000, "ctime_ns": 1}}),
        ),
        (
            "a directory with a name that is not text",
            json!({"file_offer": {
            "file": 7, "name": "ff0a", "kind": "DIRECTORY", "mtime_s": 1_700_000_000,
            "mode": 1005}}),
        ),
        (
            "a symbolic link",
            json!({"file_offer": {
            "file": 8, "name": "6c", "kind": "SYMLINK", "link_target": "2e2e2f61", "mode": 511}}),
        ),
        (
            "a file with holes, an owner and attributes, which was compared",
            json!({"file_offer": {
            "file": 9, "name": "73", "kind": "REGULAR", "size_bytes": 1_048_576, "mode": 384,
            "holes": [{"len_bytes": 65536}, {"offset_bytes": 131_072, "len_bytes": 917_504}],
            "compared": "OTHER_CONTENT",
            "owner": {"uid": 1000, "gid": 100, "user": "726f6f74", "group": "7573657273"},
            "xattrs": [{"name": "757365722e61", "value": "00ff"}]}}),
        ),
        (
            "a round of a file that grows",
            json!({"file_offer": {
            "file": 11, "name": "67", "kind": "REGULAR", "size_bytes": 4_194_304, "inode": 5,
            "growth": "GROWING"}}),
        ),
        (
            "a file that has grown, of which the receiver has the same",
            json!({"file_offer": {
            "file": 12, "name": "67", "kind": "REGULAR", "size_bytes": 4_194_305, "inode": 5,
            "compared": "SAME_CONTENT", "growth": "GROWN"}}),
        ),
        (
            "a range of a larger file",
            json!({"file_offer": {
            "file": 13, "name": "67", "kind": "REGULAR", "size_bytes": 4_194_305, "inode": 5,
            "range": {"offset_bytes": 8_388_608, "file_bytes": 12_582_913}}}),
        ),
        (
            "a hard link",
            json!({"file_offer": {
            "file": 10, "name": "68", "kind": "HARD_LINK", "link_target": "73", "mode": 384}}),
        ),
        (
            "the end of the offers",
            json!({"offers_end": {"files": 8, "bytes": 1_099_511_627_777_u64}}),
        ),
    ]
}

fn file_messages() -> Vec<(&'static str, Value)> {
    vec![
        (
            "a file is needed",
            json!({"file_answer": {
            "file": 3, "need": {"span_bytes": 8_388_608}}}),
        ),
        (
            "a file is needed, but for what an earlier session brought",
            json!({"file_answer": {
            "file": 3, "need": {"span_bytes": 65536,
                "durable": [{"count": 5}, {"first": 9, "count": 1}]}}}),
        ),
        (
            "a file is needed, and it is known what an earlier session brought",
            json!({"file_answer": {
            "file": 3, "need": {"span_bytes": 65536, "durable": [{"count": 5}],
                "ctime_s": 1_700_000_001, "ctime_ns": 2,
                "durable_digest": "000102030405060708090a0b0c0d0e0f"}}}),
        ),
        (
            "a file is needed, under another name",
            json!({"file_answer": {
            "file": 3, "need": {"span_bytes": 65536, "stored_as": "612e31"}}}),
        ),
        ("a file is there", json!({"file_answer": {"file": 4, "skip": {}}})),
        (
            "a file of that size is there",
            json!({"file_answer": {"file": 4, "compare": {"blake3": "af".repeat(32)}}}),
        ),
        (
            "what a dry run would do",
            json!({"file_answer": {"file": 4, "plan": {
            "replaces": true, "durable_bytes": 65536, "stored_as": "612e31"}}}),
        ),
        (
            "a file cannot be taken",
            json!({"file_answer": {"file": 5, "fault": {
            "code": "NO_SPACE", "side": "TARGET", "path": "6469722f6e616d65",
            "what": "preallocating failed", "needs": "1 TiB", "found": "3 GiB free",
            "hint": "free some"}}}),
        ),
        (
            "spans arrived",
            json!({"spans_verified": {
            "file": 3, "spans": [{"first": 5, "count": 4}, {"first": 200, "count": 1}]}}),
        ),
        ("a span arrived damaged", json!({"span_bad": {"file": 3, "span": 6, "stream": 2}})),
        (
            "durable spans are lost",
            json!({"spans_lost": {"file": 3, "spans": [{"first": 1, "count": 2}]}}),
        ),
        ("a stream is given up", json!({"stream_drop": {"stream": 2, "why": "nothing moved"}})),
        ("a stream is closed", json!({"stream_closed": {"stream": 2}})),
        ("the source is whole", json!({"file_confirm": {"file": 3}})),
        (
            "the source changed",
            json!({"file_confirm": {
            "file": 3, "fault": {"code": "SOURCE_CHANGED", "side": "SOURCE"}}}),
        ),
        ("a file is durable", json!({"file_settled": {"file": 3}})),
        (
            "a file failed",
            json!({"file_settled": {
            "file": 3, "fault": {"code": "IO_FAILED", "side": "TARGET", "what": "rename"}}}),
        ),
    ]
}

fn report_messages() -> Vec<(&'static str, Value)> {
    vec![
        (
            "progress",
            json!({"progress": {
            "received_bytes": 4_294_967_296_u64, "durable_bytes": 4_000_000_000_u64,
            "streams": [{"received_bytes": 1}, {"stream": 1, "on_storage": true}]}}),
        ),
        (
            "a goodbye",
            json!({"finish": {"report": {
            "cpu_ns": 1_000_000_000, "max_rss_bytes": 8_388_608, "copied_bytes": 1,
            "retransmits": 2, "engine": "sendfile", "because": "the page cache holds it",
            "stages": [{"stage": "SOURCE_DISK", "ns": 5}, {"stage": "IDLE", "ns": 6}],
            "threads": 4, "bad_spans": 1, "read_back": "O_DIRECT", "streams_ns": 12,
            "sent_bytes": 9, "resent_bytes": 3, "rtt_us": 50_000,
            "rechecked_bytes": 131_072, "recheck_lost_bytes": 65536, "recheck_ns": 7,
            "sources_removed": 9, "throttled_ns": 8, "updated_attributes": 2,
            "rdma": {"provider": "verbs", "port": "mlx5_0", "streams": 2, "registrations": 40,
            "registering_ns": 9, "windows": 18, "window_bytes": 75_497_472,
            "buffered_bytes": 900, "waits_for_room": 3, "refused": "ENOMEM",
            "direct_bytes": 75_000_000, "cached_bytes": 497_472}}}}),
        ),
        (
            "where a server's time went so far",
            json!({"figures": {"streams_ns": 8_000_000_000_u64, "stages": [
            {"stage": "PROCESSOR", "ns": 1_000_000_000},
            {"stage": "RUN_QUEUE", "ns": 2}]}}),
        ),
        ("what was not offered is gone", json!({"removed": {"names": ["612f62", "61"]}})),
        (
            "a notice",
            json!({"notice": {
            "what": "zerocopy-send fell back to sendfile", "why": "ENOBUFS", "stream": 1}}),
        ),
    ]
}

fn probe_messages() -> Vec<(&'static str, Value)> {
    let stream = json!({
        "stream": 7, "sends": true, "bytes": 5_000_000_000_u64, "cpu_ns": 900_000_000,
        "run_queue_ns": 5, "rtt_us": 101, "min_rtt_us": 99, "cwnd_bytes": 1_000_000,
        "delivery_rate_bytes_per_s": 1_250_000_000, "retransmits": 3,
        "sent_bytes": 5_000_004_344_u64, "resent_bytes": 4344, "busy_us": 4_000_000,
        "receiver_window_us": 2, "send_buffer_us": 1, "congestion": "cubic", "room_waits": 6});
    let datagrams = json!({
        "stream": 8, "bytes": 147_200, "datagrams": 100, "sequence_next": 103, "reordered": 2,
        "duplicates": 1, "jitter_ns": 20_000});
    let figures = json!({"round": 2, "at_us": 1_000_017, "streams": [stream], "throttled_ns": 9});
    let endpoints = json!({
        "round": 3, "kind": "ENDPOINTS", "to_server": true, "streams": 2, "first_stream": 16,
        "block_bytes": 131_072, "time_ms": 5000, "interval_ms": 500});
    vec![
        (
            "a probe of the path",
            json!({"probe": {
            "round": 2, "kind": "STREAMS", "to_server": true, "to_client": true, "streams": 4,
            "first_stream": 8, "block_bytes": 131_072, "time_ms": 5000, "omit_ms": 1000,
            "interval_ms": 500, "congestion": "bbr", "rate_bytes_per_s": 125_000_000,
            "discard": true}}),
        ),
        ("a probe of RDMA endpoints", json!({"probe": endpoints})),
        (
            "a probe of messages there and back",
            json!({"probe": {
            "round": 4, "kind": "ENDPOINT_PINGS", "to_server": true, "to_client": true,
            "streams": 1, "first_stream": 20, "block_bytes": 64, "time_ms": 500,
            "interval_ms": 500}}),
        ),
        (
            "a server that waits for datagrams",
            json!({"probe_ready": {
            "round": 3, "udp_port": 7117, "datagram_key": "000102030405060708090a0b0c0d0e0f"}}),
        ),
        ("a round is over", json!({"probe_step": {"round": 3, "over": true}})),
        ("what a server's streams did so far", json!({"probe_figures": figures})),
        (
            "what a server's streams did",
            json!({"probe_result": {"round": 2, "streams": [datagrams]}}),
        ),
        (
            "how is the server tuned?",
            json!({"audit": {
            "role": "dtn", "rate_bits_per_s": 100_000_000_000_u64, "rtt_us": 80_000}}),
        ),
        (
            "how the server is tuned",
            json!({"audited": {
            "goal": "data transfer node, 100 Gbit/s, 80 ms", "score": 61, "more_follows": true,
            "findings": [{
                "group": "TCP and sockets", "check": "tcp-buffers",
                "subject": "net.ipv4.tcp_rmem", "state": "improve", "weight": "high",
                "found": "4096 131072 6291456", "wanted": "4096 131072 1073741824",
                "note": "at 80 ms a stream makes about 315 Mbit/s with it",
                "command": "sysctl -w net.ipv4.tcp_rmem='4096 131072 1073741824'",
                "needs": "root"}]}}),
        ),
        (
            "a round that cannot be",
            json!({"probe_result": {"round": 4, "fault": {
            "code": "NOT_PERMITTED", "what": "the server may not use bbr"}}}),
        ),
    ]
}

/// Bad messages: a name and the fields of a `Control` that a receiver refuses.
pub fn bad_messages() -> Vec<(&'static str, Value)> {
    let mut all = bad_session_messages();
    all.extend(bad_file_messages());
    all.extend(bad_ranges());
    all.extend(bad_probes());
    all
}

fn bad_probes() -> Vec<(&'static str, Value)> {
    let probe = |field: &str, value: Value| {
        let mut probe = json!({"round": 1, "kind": "STREAMS", "to_server": true, "streams": 1,
            "block_bytes": 65536, "time_ms": 1000, "interval_ms": 1000});
        probe[field] = value;
        json!({"probe": probe})
    };
    vec![
        ("a probe without a round", probe("round", json!(0))),
        ("a probe of no direction", probe("to_server", json!(false))),
        ("a probe of no streams", probe("streams", json!(0))),
        ("a probe of 65 streams", probe("streams", json!(65))),
        ("a probe of blocks of 63 bytes", probe("block_bytes", json!(63))),
        (
            "a probe of datagrams that no packet carries",
            json!({"probe": {"round": 1, "kind": "DATAGRAMS", "to_server": true, "streams": 1,
                "block_bytes": 65508, "time_ms": 1000, "interval_ms": 1000}}),
        ),
        (
            "pings over RDMA that nobody echoes",
            json!({"probe": {"round": 1, "kind": "ENDPOINT_PINGS", "to_server": true, "streams": 1,
                "block_bytes": 64, "time_ms": 500, "interval_ms": 500}}),
        ),
        ("a probe of more than ten minutes", probe("omit_ms", json!(600_000))),
        ("a probe of an endless time", probe("omit_ms", json!(u32::MAX))),
        ("a probe with figures every 49 ms", probe("interval_ms", json!(49))),
        ("a probe of streams beyond 2^32", probe("first_stream", json!(u32::MAX))),
        ("a datagram key of 15 bytes", json!({"probe_ready": {"datagram_key": "00".repeat(15)}})),
        ("a port beyond 65535", json!({"probe_ready": {"udp_port": 65536}})),
        ("a part of 17 findings", json!({"audited": {"findings": vec![json!({}); 17]}})),
        ("a role of 4097 bytes", json!({"audit": {"role": "r".repeat(4097)}})),
    ]
}

fn bad_ranges() -> Vec<(&'static str, Value)> {
    vec![
        (
            "a range that ends behind its file",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 4,
            "range": {"offset_bytes": 65536, "file_bytes": 65539}}}),
        ),
        (
            "a range whose end is beyond 2^64",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 65536,
            "range": {"offset_bytes": 18_446_744_073_709_486_080_u64, "file_bytes": 65536}}}),
        ),
        (
            "a range that begins at no multiple of 65536",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 4,
            "range": {"offset_bytes": 4096, "file_bytes": 65536}}}),
        ),
        (
            "an empty range",
            json!({"file_offer": {"name": "61", "kind": "REGULAR",
            "range": {"offset_bytes": 65536, "file_bytes": 65536}}}),
        ),
        (
            "a range of a file that grows",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 4,
            "growth": "GROWING", "range": {"file_bytes": 65536}}}),
        ),
    ]
}

fn bad_file_messages() -> Vec<(&'static str, Value)> {
    let offer = |name: &str| json!({"file_offer": {"name": name, "kind": "REGULAR"}});
    vec![
        ("a name that leaves the target", offer("2e2e2f61")),
        ("an absolute name", offer("2f61")),
        (
            "a file larger than 2^50 bytes",
            json!({"file_offer": {
            "name": "61", "size_bytes": (1_u64 << 50) + 1}}),
        ),
        (
            "a directory with bytes",
            json!({"file_offer": {
            "name": "61", "kind": "DIRECTORY", "size_bytes": 1}}),
        ),
        (
            "a second with 10^9 nanoseconds",
            json!({"file_offer": {
            "name": "61", "mtime_ns": 1_000_000_000}}),
        ),
        ("a mode with the file's kind", json!({"file_offer": {"name": "61", "mode": 33188}})),
        (
            "a hole behind the end",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 4,
            "holes": [{"len_bytes": 5}]}}),
        ),
        (
            "holes that touch",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 4,
            "holes": [{"len_bytes": 2}, {"offset_bytes": 2, "len_bytes": 2}]}}),
        ),
        (
            "a hole whose end is beyond 2^64",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "size_bytes": 4,
            "holes": [{"offset_bytes": 1, "len_bytes": u64::MAX}]}}),
        ),
        (
            "a directory that grows",
            json!({"file_offer": {"name": "61", "kind": "DIRECTORY", "growth": "GROWING"}}),
        ),
        (
            "a hard link to a name that leaves the target",
            json!({"file_offer": {"name": "61", "kind": "HARD_LINK", "link_target": "2e2e2f61"}}),
        ),
        (
            "an extended attribute without a name",
            json!({"file_offer": {"name": "61", "kind": "REGULAR", "xattrs": [{"value": "00"}]}}),
        ),
        ("a removed name that leaves the target", json!({"removed": {"names": ["2e2e2f61"]}})),
        (
            "a selected name that leaves the source",
            json!({"selection": {"names": ["2f61"], "names_given": true}}),
        ),
        (
            "a BLAKE3 of 31 bytes",
            json!({"file_answer": {"file": 4, "compare": {"blake3": "af".repeat(31)}}}),
        ),
        ("an answer that says nothing", json!({"file_answer": {"file": 1}})),
        ("a text of 4097 bytes", json!({"notice": {"what": "x".repeat(4097)}})),
    ]
}

fn bad_session_messages() -> Vec<(&'static str, Value)> {
    vec![
        ("data keys of 95 bytes", opened_telling(95)),
        ("data keys of 97 bytes", opened_telling(97)),
        (
            "a short token",
            json!({"open": {
            "token_secret": "00", "transfer": "00000000000000000000000000000000"}}),
        ),
        (
            "a span size that is no power of two",
            json!({"open": {
            "token_secret": "00000000000000000000000000000000",
            "transfer": "00000000000000000000000000000000", "span_bytes": 65537}}),
        ),
        (
            "a session of no streams",
            json!({"opened": {
            "session": "00000000000000000000000000000000", "offers_max": 1,
            "offer_bytes_max": 16384}}),
        ),
        (
            "a session of too many streams",
            json!({"opened": {
            "session": "00000000000000000000000000000000", "streams": 65, "offers_max": 1,
            "offer_bytes_max": 16384}}),
        ),
        (
            "a session of too few bytes of offers",
            json!({"opened": {
            "session": "00000000000000000000000000000000", "streams": 1, "offers_max": 1,
            "offer_bytes_max": 16383}}),
        ),
    ]
}

/// Names that may be opened below a root, and names that may not.
pub fn names() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let bytes = |name: &[u8]| name.to_vec();
    let long = |component: usize| [vec![b'x'; component], vec![b'/'], vec![b'y'; 3]].concat();
    let mut longest = vec![b'x'; 255];
    while longest.len() < 4095 {
        longest.push(b'/');
        longest.extend(vec![b'x'; 255]);
    }
    let mut too_long = longest.clone();
    too_long.extend(b"/x");
    let good =
        [&b"a"[..], b"a/b", b"...", b"..a", b".a", b"a..", b"a\nb", b" ", b"\xff\xfe", b"C:\\"];
    let bad = [
        &b""[..],
        b"/",
        b"/a",
        b".",
        b"..",
        b"a/..",
        b"../a",
        b"a/../b",
        b"a/./b",
        b"a//b",
        b"a/",
        b"a\0b",
    ];
    let mut good: Vec<_> = good.map(bytes).into();
    good.extend([long(255), longest]);
    let mut bad: Vec<_> = bad.map(bytes).into();
    bad.extend([long(256), too_long]);
    (good, bad)
}
