//! Bodies of the targets of `haul-transfer`: tokens, URLs, journals, registers and the like.

use haul_transfer::{
    HaulUrl, ShardState, Token,
    internals::{
        datagram::{Arrivals, HEADER_BYTES, Header, KEY_BYTES},
        journal::{Identity, decode},
        manifest::Line,
        parse_size, plan_lines,
        register::{Counting, Register},
    },
};

/// Reads a token, which prints the same again.
pub fn token(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(token) = text.parse::<Token>()
    {
        assert_eq!(token.reveal().parse(), Ok(token));
    }
}

/// Reads a URL, which prints as one that means the same.
pub fn url(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(url) = text.parse::<HaulUrl>()
    {
        assert_eq!(url.reveal().parse(), Ok(url));
    }
}

/// Reads a manifest's line, which is written as one that means the same.
pub fn manifest_line(data: &[u8]) {
    if let Ok(line) = Line::parse(data) {
        let text = line.to_text();
        let text = text.strip_suffix('\n').expect("a line has an end");
        assert_eq!(Line::parse(text.as_bytes()), Ok(line));
    }
}

/// Reads a line of a plan, which is written as one that means the same. A range is in its file.
pub fn plan_line(data: &[u8]) {
    if let Some((text, range)) = plan_lines::line_again(data) {
        assert_eq!(plan_lines::line_again(&text), Some((text, range)));
        if let Some([begin, len, file]) = range {
            assert!(len > 0 && begin.checked_add(len).is_some_and(|end| end <= file));
        }
    }
}

/// Reads a line of a run's report, which is written as one that can be read.
pub fn report_line(data: &[u8]) {
    if let Some(text) = plan_lines::report_line_again(data) {
        assert!(plan_lines::report_line_again(&text).is_some());
    }
}

/// Adds up reports of runs, one behind each byte 255, which no text has. Each is a run or is named
/// in words, no number is none, and a shard is done only by a last line that says so.
pub fn report(data: &[u8]) {
    let reports: Vec<&[u8]> = data.split(|byte| *byte == 255).collect();
    let fleet = plan_lines::add_up(&reports);
    let shard = &fleet.shards[0];
    let runs = u64::from(shard.runs) + u64::from(shard.runs_elsewhere) + fleet.of_another_plan;
    assert_eq!(runs, reports.len() as u64);
    let mut failures = fleet.shards.iter().flat_map(|shard| &shard.failures);
    assert!(failures.by_ref().count() <= 11 && fleet.nodes.len() <= reports.len());
    for fault in &fleet.faults {
        let words = [&fault.what, &fault.needs, &fault.found, &fault.hint];
        assert!(words.iter().all(|words| !words.is_empty()), "{fault:?}");
    }
    let rates = fleet.nodes.iter().map(|node| node.gbit_per_s);
    for number in rates.chain([fleet.gbit_per_s(), fleet.busy_s, shard.seconds]) {
        assert!(number.is_finite() && number >= 0.0, "{number}");
    }
    if let [report] = reports[..]
        && shard.state == ShardState::Done
    {
        let ends: Vec<usize> = (0..report.len()).filter(|at| report[*at] == b'\n').collect();
        let before_last = ends[ends.len() - 2];
        let cut = plan_lines::add_up(&[&report[..=before_last]]);
        assert!(cut.shards[0].state != ShardState::Done, "done without its last line");
    }
}

pub fn size(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = parse_size(text);
    }
}

/// Identity by which `journal` judges; the corpus holds journals of it.
#[must_use]
pub fn identity() -> Identity {
    Identity {
        size_bytes: 10 << 20,
        mtime_s: 1,
        mtime_ns: 2,
        source_inode: 3,
        source_device: 4,
        target_inode: 5,
        target_device: 6,
        digest: 0,
        name_hash: [7; 16],
    }
}

/// Reads a journal, which never tells of spans that its file does not have.
pub fn journal(data: &[u8]) {
    if let Some(told) = decode(data, &identity()) {
        let spans = identity().size_bytes.div_ceil(told.span_bytes);
        assert!(u64::from(told.durable.count()) <= spans && told.whole_bytes <= data.len() as u64);
    }
}

/// Decodes datagrams, which are encoded to the same bytes, and no numbers make a count larger than
/// what came. The first 16 bytes are the round's key, the datagrams behind it have one size.
pub fn datagram(data: &[u8]) {
    let Some((key, rest)) = data.split_first_chunk::<KEY_BYTES>() else { return };
    let mut arrivals = Arrivals::default();
    let mut count = 0;
    for (now_ns, bytes) in rest.chunks(HEADER_BYTES).enumerate() {
        if let Some(header) = Header::decode(bytes, key) {
            assert_eq!(&header.encode(key)[..], bytes);
            arrivals.arrived(&header, bytes.len(), now_ns as u64);
            count += 1;
        }
    }
    assert_eq!(arrivals.datagrams + arrivals.duplicates, count);
    assert!(arrivals.reordered <= arrivals.datagrams);
}

/// Reads a register of ranges, which never covers what its file does not have, and no more of a
/// source of one state than of any.
pub fn register(data: &[u8]) {
    let Some(register) = Register::decode(data) else { return };
    let whole = usize::try_from(register.whole_bytes).expect("it was in memory");
    assert_eq!(Register::decode(&data[..whole]).as_ref(), Some(&register));
    let size_bytes = register.header.whole.size_bytes;
    assert!(size_bytes == u64::MAX || !register.covers(&(0..size_bytes + 1), Counting::default()));
    for ctime in [(0, 0), (9, 8)] {
        assert!(
            !register.is_complete(Counting::of(ctime)) || register.is_complete(Counting::default())
        );
    }
    assert!(size_bytes == 0 || !register.is_complete(Counting::default()) || !register.is_empty());
}
