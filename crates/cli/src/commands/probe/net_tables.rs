//! Sentences, tables and charts of what `haul probe net` found out.

use crate::ui::units;
use haul_report::{
    chart::{self, Across, Bar, Line},
    html_page::Section,
    table::Table,
};
use haul_transfer::internals::net::{DatagramFigures, Direction, NetReport, Round, Way};

/// Most rounds whose streams are shown one by one.
const STREAM_ROUNDS_MAX: usize = 8;

/// The verdict as a sentence, the first thing that is read.
pub fn sentence(report: &NetReport) -> String {
    let sentence = &report.verdict.sentence;
    let mut letters = sentence.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

pub fn words(report: &NetReport) -> Vec<String> {
    let mut words = Vec::new();
    if !report.verdict.advice.is_empty() {
        words.push(format!("To do: {}.", report.verdict.advice));
    }
    words.push(format!(
        "Measured with {} ({}), memory to memory; rates are what the receivers took, retransmits \
         and what held the sockets back are the senders' kernels'.",
        report.server, report.software
    ));
    words.extend(
        report
            .refused
            .iter()
            .map(|refused| format!("Not measured: {}: {}", refused.what, refused.why)),
    );
    words
}

pub fn sections(report: &NetReport) -> Vec<Section> {
    let is_udp = report.rounds.iter().any(|round| round.transport == "udp");
    let mut sections = vec![rounds_section(report, is_udp)];
    sections.extend(endpoints_section(report));
    sections.push(over_time(report));
    sections.push(path_section(report));
    if !is_udp {
        sections.push(streams_section(report));
    }
    sections
}

/// Number of a round's streams, and what they go by where that is neither TCP nor UDP.
fn streams(round: &Round) -> String {
    let count = units::count(round.streams.into(), "stream");
    if round.is_by_rdma() { format!("{count}, {}", round.transport) } else { count }
}

/// The section of RDMA endpoints, where they were measured.
fn endpoints_section(report: &NetReport) -> Option<Section> {
    let facts = report.rdma.as_ref()?;
    let mut table = Table::new("RDMA endpoints", 1, &["fact", "value"]);
    let mut fact = |name: &str, value: String| table.row(vec![name.into(), value]);
    fact("provider", facts.provider.clone());
    fact("this host's device", facts.device.clone());
    let link = facts.link_gbit_per_s.map_or_else(|| "not told".into(), units::rate);
    fact("rate of its port", link);
    if let Some(ping) = &facts.ping {
        fact(
            &format!("round trip of {} bytes, least", ping.bytes),
            format!("{:.1} us", ping.min_us),
        );
        fact("median", format!("{:.1} us", ping.median_us));
        fact("99 of 100 within", format!("{:.1} us", ping.p99_us));
    }
    for (round, way) in ways(report).filter(|(round, _)| round.is_by_rdma()) {
        let name = format!("waits for buffers, {}, {}", streams(round), arrow(way.direction));
        fact(
            &name,
            format!(
                "{}, {} of the time",
                way.room_waits,
                units::percent(way.limited.receiver_window)
            ),
        );
    }
    Some(Section { title: "RDMA endpoints".into(), tables: vec![table], ..Section::default() })
}

fn ways(report: &NetReport) -> impl Iterator<Item = (&Round, &Way)> {
    report.rounds.iter().flat_map(|round| round.ways.iter().map(move |way| (round, way)))
}

fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::ToServer => "to server",
        Direction::ToClient => "from server",
    }
}

fn congestion(round: &Round, way: &Way) -> String {
    if way.congestion.is_empty() { round.congestion.clone() } else { Some(way.congestion.clone()) }
        .unwrap_or_default()
}

fn rounds_section(report: &NetReport, is_udp: bool) -> Section {
    let mut section = Section {
        title: "Rounds".into(),
        charts: vec![sweep_chart(report)],
        tables: vec![if is_udp { datagram_table(report) } else { stream_table(report) }],
        ..Section::default()
    };
    section.tables.push(cost_table(report));
    section
}

fn stream_table(report: &NetReport) -> Table {
    let columns = [
        "round",
        "way",
        "control",
        "receive",
        "Gbit/s",
        "retransmits",
        "resent",
        "RTT",
        "least",
        "window full",
        "buffer full",
        "congestion",
        "idle",
        "limited by",
    ];
    let mut table = Table::new("Rate, and what held it back", 4, &columns);
    for (round, way) in ways(report) {
        let limited = &way.limited;
        table.row(vec![
            streams(round),
            arrow(way.direction).into(),
            congestion(round, way),
            round.receive.into(),
            format!("{:.2}", way.gbit_per_s),
            way.retransmits.to_string(),
            format!("{:.3} %", way.resent_share * 100.0),
            micros(way.rtt_us),
            micros(way.min_rtt_us),
            units::percent(limited.receiver_window),
            units::percent(limited.send_buffer),
            units::percent(limited.congestion_window),
            units::percent(limited.application),
            way.verdict.limit.replace('_', " "),
        ]);
    }
    table.note(
        "window full: the receiver's window; buffer full: the sender's; congestion: the congestion \
         window or its pace; idle: the program had nothing in its sockets.",
    );
    table
}

fn datagram_table(report: &NetReport) -> Table {
    let columns = [
        "round",
        "way",
        "Gbit/s",
        "asked",
        "bytes each",
        "sent",
        "lost",
        "share",
        "reordered",
        "twice",
        "jitter",
        "limited by",
    ];
    let mut table = Table::new("Datagrams", 2, &columns);
    for (round, way) in ways(report) {
        let Some(datagrams) = &way.datagrams else { continue };
        let DatagramFigures { sent, lost, reordered, duplicates, .. } = datagrams;
        table.row(vec![
            streams(round),
            arrow(way.direction).into(),
            format!("{:.3}", way.gbit_per_s),
            format!("{:.3}", datagrams.rate_asked_gbit_per_s),
            datagrams.datagram_bytes.to_string(),
            sent.to_string(),
            lost.to_string(),
            format!("{:.3} %", datagrams.lost_share * 100.0),
            reordered.to_string(),
            duplicates.to_string(),
            format!("{:.1} us", datagrams.jitter_us),
            way.verdict.limit.replace('_', " "),
        ]);
    }
    table.note("Rates are of the datagrams' payload. jitter: RFC 3550, of the worst stream.");
    table
}

fn cost_table(report: &NetReport) -> Table {
    let columns = [
        "round",
        "way",
        "sender's cores",
        "busiest thread",
        "waited",
        "CPU s/GB",
        "receiver's cores",
        "busiest thread",
        "waited",
        "CPU s/GB",
    ];
    let mut table = Table::new("What it costs both sides", 2, &columns);
    for (round, way) in ways(report) {
        let side = |side: &haul_transfer::internals::net::SideUse| {
            [
                format!("{:.2} of {}", side.cores, side.cores_max),
                units::percent(side.busiest),
                units::percent(side.waited),
                format!("{:.3}", side.cpu_s_per_gb),
            ]
        };
        let mut cells = vec![streams(round), arrow(way.direction).to_owned()];
        cells.extend(side(&way.sender));
        cells.extend(side(&way.receiver));
        table.row(cells);
    }
    table.note(
        "Of the streams' threads: the kernel's own work in interrupts is not all in there. waited: \
         the most that a thread waited for a processor.",
    );
    table
}

fn path_section(report: &NetReport) -> Section {
    let path = &report.path;
    let bytes = |bytes: u32| if bytes == 0 { "not known".into() } else { format!("{bytes} bytes") };
    let mut facts = Table::new("The path", 1, &["fact", "value"]);
    let mut fact = |name: &str, value: String| facts.row(vec![name.into(), value]);
    fact("least round trip", micros(path.min_rtt_us));
    fact("MTU of this interface", bytes(path.interface_mtu_bytes));
    fact("MTU that the kernel believes", bytes(path.believed_mtu_bytes));
    fact("segment of TCP", bytes(path.tcp_mss_bytes));
    match &path.unmeasured {
        Some(why) => facts.note(format!("What passes was not measured: {why}")),
        None => {
            fact("largest that arrives there", bytes(path.passes_to_server_bytes));
            fact("largest that comes back", bytes(path.passes_to_client_bytes));
        }
    }
    if let Some(hole) = &path.black_hole {
        facts.note(format!(
            "A black hole: {} bytes vanish {}, {} pass.",
            hole.vanishes_bytes,
            hole.direction.words(),
            hole.passes_bytes
        ));
    }
    let mut tables = vec![facts];
    if !report.buffers.is_empty() {
        let columns = [
            "way",
            "rate",
            "RTT",
            "product",
            "streams",
            "needed each",
            "sender may",
            "receiver may",
            "one stream gets",
        ];
        let mut table = Table::new("Rate times round trip, and the sockets' buffers", 1, &columns);
        let known = |bytes: u64| if bytes == 0 { "not known".into() } else { units::bytes(bytes) };
        for buffers in &report.buffers {
            table.row(vec![
                arrow(buffers.direction).into(),
                units::rate(buffers.gbit_per_s),
                micros(buffers.rtt_us),
                units::bytes(buffers.bdp_bytes),
                buffers.streams.to_string(),
                units::bytes(buffers.needed_bytes),
                known(buffers.send_max_bytes),
                known(buffers.receive_max_bytes),
                units::rate(buffers.one_stream_gbit_per_s),
            ]);
            table.note(format!("{}: {}.", arrow(buffers.direction), buffers.advice));
        }
        tables.push(table);
    }
    Section { title: "The path".into(), tables, ..Section::default() }
}

/// The section of rounds with several streams, one by one.
fn streams_section(report: &NetReport) -> Section {
    let columns =
        ["round", "stream", "Gbit/s", "retransmits", "RTT", "least", "window", "delivered"];
    let mut table = Table::new("Each stream", 1, &columns);
    let several = || ways(report).filter(|(round, _)| round.streams > 1);
    for (round, way) in several().take(STREAM_ROUNDS_MAX) {
        for stream in &way.streams {
            table.row(vec![
                format!("{}, {}", round.number, arrow(way.direction)),
                stream.stream.to_string(),
                format!("{:.2}", stream.gbit_per_s),
                stream.retransmits.to_string(),
                micros(stream.rtt_us),
                micros(stream.min_rtt_us),
                units::bytes(stream.cwnd_bytes),
                units::rate(stream.delivery_rate_gbit_per_s),
            ]);
        }
    }
    if several().count() > STREAM_ROUNDS_MAX {
        table.note(format!("Of the first {STREAM_ROUNDS_MAX} rounds; --json has all."));
    }
    Section { title: "Streams".into(), tables: vec![table], ..Section::default() }
}

fn label(round: &Round, way: &Way) -> String {
    let mut label = streams(round);
    let control = congestion(round, way);
    if !control.is_empty() {
        label += &format!(", {control}");
    }
    if round.receive == "discard" {
        label += ", discard";
    }
    if round.ways.len() > 1 {
        label += &format!(", {}", arrow(way.direction));
    }
    label
}

fn sweep_chart(report: &NetReport) -> String {
    let bars: Vec<Bar> = ways(report)
        .map(|(round, way)| Bar {
            label: label(round, way),
            values: vec![Some(way.gbit_per_s.into())],
        })
        .collect();
    chart::bars("Rate of each round", "Gbit/s", &["rate"], &bars)
}

fn over_time(report: &NetReport) -> Section {
    let lines: Vec<Line> = ways(report)
        .map(|(round, way)| Line {
            label: label(round, way),
            points: way.intervals.iter().map(|i| (i.to_s, i.gbit_per_s)).collect(),
        })
        .collect();
    let columns = ["round", "way", "until", "Gbit/s", "retransmits", "lost", "RTT", ""];
    let mut table = Table::new("Rate over time", 2, &columns);
    for (round, way) in ways(report) {
        for interval in &way.intervals {
            table.row(vec![
                format!("{}: {}", round.number, units::count(round.streams.into(), "stream")),
                arrow(way.direction).into(),
                units::time(interval.to_s),
                format!("{:.2}", interval.gbit_per_s),
                interval.retransmits.to_string(),
                interval.lost.to_string(),
                micros(interval.rtt_us),
                if interval.omitted { "omitted".into() } else { String::new() },
            ]);
        }
    }
    let chart = chart::lines("Rate over time", "Gbit/s", Across::Seconds, &lines);
    Section {
        title: "Over time".into(),
        charts: vec![chart],
        tables: vec![table],
        ..Section::default()
    }
}

fn micros(us: u32) -> String {
    match us {
        0 => "-".into(),
        1..1000 => format!("{us} us"),
        _ => format!("{:.1} ms", f64::from(us) / 1e3),
    }
}
