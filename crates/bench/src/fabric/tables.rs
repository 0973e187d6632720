//! Results of `haul bench fabric`: tables and charts by provider, the study's figures, JSON lines.

use super::{Cell, Found, Missing, Ping, ProviderFound};
use crate::{
    fabric_side::{FileWay, MessageWay, Task, TaskDone},
    studies::user_level_networking as study,
};
use haul_fabric::{Mover, Provider};
use haul_report::{
    chart::{Across, Line, lines},
    host_facts::HostFacts,
    html_page::Section,
    results::Results,
    spread::Spread,
    study_figure::StudyFigure,
    table::Table,
    units::{self, three_digits},
};
use serde::Serialize;
use study::Beside;

/// A cell as a line of JSON; what it does not have is null.
#[derive(Debug, Serialize)]
struct CellLine<'found> {
    event: &'static str,
    table: &'static str,
    provider: &'static str,
    way: Way,
    bytes: u64,
    /// Time of one at the sender; for a message to and fro half of that.
    latency_us: Option<Spread>,
    /// Processor time of one at the sender.
    cpu_us: Option<Spread>,
    /// Processors that the sender's process kept busy.
    cpu_share: Option<Spread>,
    /// Until the receiver had all.
    mb_per_s: Option<Spread>,
    /// Counts for each byte that was sent, of all rounds.
    copied_per_byte: Option<f64>,
    buffered_per_byte: Option<f64>,
    window_per_byte: Option<f64>,
    registering_us: Option<Spread>,
    /// Medians: the time as a part of TCP's sendfile, and the processor time as a part of that with
    /// one copy.
    time_of_tcp: Option<f64>,
    cpu_of_one_copy: Option<f64>,
    runs: &'found [TaskDone],
    refused: Option<&'found str>,
}

/// The way of a cell.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
enum Way {
    Message(MessageWay),
    File(FileWay),
}

/// Messages beside fi_pingpong as a line of JSON.
#[derive(Debug, Serialize)]
struct PingLine<'found> {
    event: &'static str,
    table: &'static str,
    provider: &'static str,
    bytes: u64,
    latency_us: Option<Spread>,
    fi_pingpong_us: Option<Spread>,
    /// Medians: how many times as long ours take.
    ratio: Option<f64>,
    rounds_us: Vec<f64>,
    rounds_fi_pingpong_us: &'found [f64],
    refused: Option<&'found str>,
}

impl Cell {
    fn spread(&self, figure: impl Fn(&TaskDone) -> f64) -> Option<Spread> {
        Spread::of(self.runs.iter().map(figure))
    }

    fn latency_us(&self) -> Option<Spread> {
        let halves = if matches!(self.task, Task::Latency { .. }) { 2.0 } else { 1.0 };
        self.spread(|run| us(run.sender_ns, run.repeats) / halves)
    }

    fn cpu_us(&self) -> Option<Spread> {
        self.spread(|run| us(run.cpu_ns, run.repeats))
    }

    fn cpu_share(&self) -> Option<Spread> {
        self.spread(|run| run.cpu_ns as f64 / run.sender_ns.max(1) as f64)
    }

    fn mb_per_s(&self) -> Option<Spread> {
        let bytes = self.task.len_bytes() as f64;
        self.spread(|run| bytes * run.repeats as f64 * 1e3 / run.all_ns.max(1) as f64)
    }

    /// A count of all rounds for each byte that was sent.
    fn per_byte(&self, count: impl Fn(&TaskDone) -> u64) -> Option<f64> {
        let sent: u64 = self.runs.iter().map(|run| run.repeats * self.task.len_bytes()).sum();
        let counted: u64 = self.runs.iter().map(count).sum();
        (sent > 0).then(|| counted as f64 / sent as f64)
    }
}

fn us(ns: u64, repeats: u64) -> f64 {
    ns as f64 / 1e3 / repeats.max(1) as f64
}

impl ProviderFound {
    fn cell(&self, task: Task) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.task == task)
    }

    /// Lengths of the tasks that `of` picks, each once, in their order.
    fn lengths(&self, of: impl Fn(Task) -> bool) -> Vec<u64> {
        let tasks = self.cells.iter().map(|cell| cell.task).filter(|task| of(*task));
        let mut lengths: Vec<u64> = tasks.map(Task::len_bytes).collect();
        lengths.dedup();
        lengths
    }

    fn message_lengths(&self) -> Vec<u64> {
        self.lengths(|task| matches!(task, Task::Latency { .. }))
    }

    fn file_lengths(&self) -> Vec<u64> {
        self.lengths(|task| matches!(task, Task::File { .. }))
    }

    /// Medians of two tasks at each length where both were measured.
    fn beside(
        &self,
        lengths: &[u64],
        tasks: impl Fn(u64) -> (Task, Task),
        value: impl Fn(&Cell) -> Option<Spread>,
    ) -> Vec<Beside> {
        let median = |task| Some(value(self.cell(task)?)?.median);
        let at = |len_bytes: &u64| {
            let (ours, other) = tasks(*len_bytes);
            Some(Beside { len_bytes: *len_bytes, ours: median(ours)?, other: median(other)? })
        };
        lengths.iter().filter_map(at).collect()
    }

    fn refused(&self) -> Option<&str> {
        self.cells.iter().find_map(|cell| cell.refused.as_deref())
    }
}

pub fn results(found: &Found, facts: HostFacts) -> Results {
    let mut sections = Vec::new();
    if found.providers.iter().any(|one| !one.message_lengths().is_empty()) {
        sections.push(waits_section(found));
    }
    if found.providers.iter().any(|one| !one.pings.is_empty()) {
        sections.push(ping_section(found));
    }
    let measured = found.providers.iter().any(|one| {
        one.cells.iter().any(|cell| !cell.runs.is_empty())
            || one.pings.iter().any(|ping| !ping.runs.is_empty())
    });
    let mut results = Results {
        title: "haul bench fabric".to_owned(),
        verdict: Vec::new(),
        words: words(found),
        facts,
        sections,
        figures: figures(found),
        studies: Vec::new(),
        lines: Vec::new(),
        measured,
    };
    for one in &found.providers {
        results.line(&serde_json::json!({
            "event": "provider",
            "provider": one.provider.name(),
            "address": one.address,
            "port": one.port,
            "copies": copies(one.provider),
            "refused": null,
        }));
        one.cells.iter().for_each(|cell| results.line(&cell_line(one, cell)));
        one.pings.iter().for_each(|ping| results.line(&ping_line(one.provider, ping)));
    }
    for Missing { provider, why } in &found.missing {
        results.line(&serde_json::json!({
            "event": "provider",
            "provider": provider.name(),
            "refused": why,
        }));
    }
    results
}

fn words(found: &Found) -> Vec<String> {
    let time = found.repeats.time_ms.map_or_else(
        || "as often as was asked for".to_owned(),
        |ms| format!("as often as fits into {ms} ms"),
    );
    let mut words = vec![
        format!(
            "Two processes of this host, {} interleaved; each message and file {time}, at most {} \
             times. Times and processor time are those of the process that sends. Each process \
             stays on a processor of its own, where there are two.",
            units::count(found.rounds.into(), "round"),
            found.repeats.most,
        ),
        "A message's latency is half of the time to and fro; endpoints take turns then, from and \
         to registered buffers, and nothing is copied beside. Their bandwidth is that of a stream \
         with credits, into whose buffers messages are copied. Messages by TCP are written and \
         read by calls that sleep. A file is sent again once the one before is gone: all of it \
         taken by the socket, or completed by the endpoint, whose ends sleep meanwhile. The file \
         is in the page cache."
            .to_owned(),
        "One copy: read into the registered buffer that is sent. send_file: windows on the page \
         cache are registered and sent; a file that a provider copies by itself, as it is short, \
         goes through the buffer there too."
            .to_owned(),
    ];
    for one in &found.providers {
        let (name, port) = (one.provider.name(), &one.port);
        words.push(format!("{name}, {port} at {}: {}.", one.address, copies(one.provider)));
    }
    for Missing { why, .. } in &found.missing {
        words.push(format!("Not measured: {why}."));
    }
    words
}

/// The part that copies with a provider, and what the sender's processor time says then.
fn copies(provider: Provider) -> &'static str {
    match (provider, provider.mover()) {
        (Provider::Verbs, _) => {
            "a card reads the pages itself; soft-RoCE is no card: the kernel copies there, in the \
             sender's time or in a thread of its own"
        }
        (Provider::Tcp, _) => {
            "the kernel copies into the socket in the sender's processor time, so that send_file \
             saves one of two copies there"
        }
        (Provider::Shm, _) => {
            "the receiver has the kernel copy what is longer than some KiB straight out of the \
             sender's memory, in the receiver's processor time"
        }
        (_, Mover::Card) => "a card reads the pages itself",
        (_, Mover::Kernel) => "the kernel copies",
    }
}

fn cell_line<'found>(one: &ProviderFound, cell: &'found Cell) -> CellLine<'found> {
    let (table, way) = match cell.task {
        Task::Latency { way, .. } => ("latency", Way::Message(way)),
        Task::Bandwidth { way, .. } => ("bandwidth", Way::Message(way)),
        Task::File { way, .. } => ("files", Way::File(way)),
    };
    let is_file = matches!(cell.task, Task::File { .. });
    let has_end = cell.task.wait().is_some();
    let counted = |count: fn(&TaskDone) -> u64| cell.per_byte(count).filter(|_| has_end);
    let of_file = |part: fn(&ProviderFound, &Cell) -> Option<f64>| {
        if is_file { part(one, cell) } else { None }
    };
    CellLine {
        event: "cell",
        table,
        provider: one.provider.name(),
        way,
        bytes: cell.task.len_bytes(),
        latency_us: cell.latency_us(),
        cpu_us: cell.cpu_us(),
        cpu_share: cell.cpu_share(),
        mb_per_s: cell.mb_per_s(),
        copied_per_byte: counted(|run| run.copied_bytes),
        buffered_per_byte: counted(|run| run.buffered_bytes),
        window_per_byte: counted(|run| run.window_bytes),
        registering_us: cell.spread(|run| us(run.registering_ns, run.repeats)),
        time_of_tcp: of_file(time_of_tcp),
        cpu_of_one_copy: of_file(cpu_of_one_copy),
        runs: &cell.runs,
        refused: cell.refused.as_deref(),
    }
}

/// The median time of a file as a part of that by TCP's sendfile.
fn time_of_tcp(one: &ProviderFound, cell: &Cell) -> Option<f64> {
    let way = FileWay::TcpSendfile;
    let other = one.cell(Task::File { way, file_bytes: cell.task.len_bytes() })?;
    Some(cell.latency_us()?.median / other.latency_us()?.median)
}

/// The median processor time of a file as a part of that with one copy.
fn cpu_of_one_copy(one: &ProviderFound, cell: &Cell) -> Option<f64> {
    let way = FileWay::OneCopy;
    let other = one.cell(Task::File { way, file_bytes: cell.task.len_bytes() })?;
    Some(cell.cpu_us()?.median / other.cpu_us()?.median)
}

fn ping_line(provider: Provider, ping: &Ping) -> PingLine<'_> {
    let latencies = || ping.runs.iter().map(|run| us(run.sender_ns, run.repeats) / 2.0);
    let (ours, other) = (Spread::of(latencies()), Spread::of(ping.others_us.iter().copied()));
    PingLine {
        event: "cell",
        table: "fi_pingpong",
        provider: provider.name(),
        bytes: ping.message_bytes,
        latency_us: ours,
        fi_pingpong_us: other,
        ratio: ours.zip(other).map(|(ours, other)| ours.median / other.median),
        rounds_us: latencies().collect(),
        rounds_fi_pingpong_us: &ping.others_us,
        refused: ping.refused.as_deref(),
    }
}

/// A number of a table; a gap where there is none.
fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), three_digits)
}

fn median(spread: Option<Spread>) -> String {
    shown(spread.map(|spread| spread.median))
}

/// A table with a row for each length, and a column for each way of messages.
fn by_way(
    one: &ProviderFound,
    title: &str,
    task: impl Fn(MessageWay, u64) -> Task,
    value: impl Fn(&Cell) -> Option<Spread>,
) -> Table {
    let mut columns = vec!["message"];
    columns.extend(MessageWay::ALL.map(MessageWay::name));
    let mut table = Table::new(format!("{}: {title}", one.provider), 1, &columns);
    for len_bytes in one.message_lengths() {
        let cells =
            MessageWay::ALL.map(|way| median(one.cell(task(way, len_bytes)).and_then(&value)));
        let row = [vec![units::bytes(len_bytes)], cells.to_vec()].concat();
        table.row(row);
    }
    if let Some(why) = one.refused() {
        table.note(format!("Not measured as a whole: {why}."));
    }
    table
}

/// A chart of medians over lengths, a line for each way.
fn by_length<W: Copy>(
    one: &ProviderFound,
    (title, unit): (&str, &str),
    ways: &[(W, &str)],
    lengths: &[u64],
    value: impl Fn(W, u64) -> Option<f64>,
) -> String {
    let drawn: Vec<Line> = ways
        .iter()
        .map(|(way, name)| Line {
            label: (*name).to_owned(),
            points: lengths
                .iter()
                .filter_map(|len| Some((*len as f64, value(*way, *len)?)))
                .collect(),
        })
        .collect();
    lines(&format!("{}: {title}", one.provider), unit, Across::Bytes, &drawn)
}

const MESSAGE_WAYS: [(MessageWay, &str); 4] = [
    (MessageWay::Tcp, "TCP"),
    (MessageWay::Poll, "poll"),
    (MessageWay::Sleep, "sleep"),
    (MessageWay::Adaptive, "adaptive"),
];

const FILE_WAYS: [(FileWay, &str); 3] = [
    (FileWay::TcpSendfile, "TCP sendfile"),
    (FileWay::OneCopy, "one copy"),
    (FileWay::SendFile, "send_file"),
];

/// The latency beside the processor time by each wait.
fn waits_section(found: &Found) -> Section {
    let mut section = Section {
        title: "Poll against wait".to_owned(),
        words: vec![
            "Processors that the sender kept busy while messages went to and fro: 1.00 is one \
             whole processor."
                .to_owned(),
        ],
        ..Section::default()
    };
    let task = |way, message_bytes| Task::Latency { way, message_bytes };
    for one in &found.providers {
        section.tables.push(by_way(one, "processors busy", task, Cell::cpu_share));
    }
    section
}

fn ping_section(found: &Found) -> Section {
    let mut words = vec![
        "Latency of a message to and fro, by endpoints of haul that poll and by libfabric's own \
         fi_pingpong, in turns with as many messages each. Ours are to take at most 1.10 times as \
         long."
            .to_owned(),
    ];
    if let Some(why) = &found.no_fi_pingpong {
        words.push(format!("Not measured: {why}; it is in the package libfabric-bin."));
    }
    let columns = ["provider", "message", "ours, us", "fi_pingpong, us", "ratio"];
    let mut table = Table::new("Medians", 1, &columns);
    for one in &found.providers {
        for ping in &one.pings {
            let line = ping_line(one.provider, ping);
            let begin = vec![one.provider.name().to_owned(), units::bytes(ping.message_bytes)];
            let rest = match &ping.refused {
                Some(why) => vec![why.clone()],
                None => {
                    vec![median(line.latency_us), median(line.fi_pingpong_us), shown(line.ratio)]
                }
            };
            table.row([begin, rest].concat());
        }
    }
    Section {
        title: "Beside fi_pingpong".to_owned(),
        words,
        tables: vec![table],
        ..Section::default()
    }
}

/// The study's figures: those of parts that were measured, judged by the provider that comes
/// nearest to a card.
fn figures(found: &Found) -> Vec<StudyFigure> {
    let Some(judged) = found.providers.first() else { return Vec::new() };
    let mut figures = Vec::new();
    if !judged.message_lengths().is_empty() {
        figures.extend(message_figures(found, judged));
    }
    if !judged.file_lengths().is_empty() {
        figures.extend(file_figures(found, judged));
    }
    figures
}

fn message_figures(found: &Found, judged: &ProviderFound) -> [StudyFigure; 3] {
    let (name, because) = (judged.provider.name(), judged.refused());
    let lengths = judged.message_lengths();
    let latency = |way, message_bytes| Task::Latency { way, message_bytes };
    let bandwidth = |way, message_bytes| Task::Bandwidth { way, message_bytes };
    let (poll, sleep, tcp) = (MessageWay::Poll, MessageWay::Sleep, MessageWay::Tcp);
    let of_latency =
        judged.beside(&lengths, |len| (latency(poll, len), latency(tcp, len)), Cell::latency_us);
    let of_bandwidth =
        judged.beside(&lengths, |len| (bandwidth(poll, len), bandwidth(tcp, len)), Cell::mb_per_s);
    let of_cpu =
        judged.beside(&lengths, |len| (bandwidth(sleep, len), bandwidth(tcp, len)), Cell::cpu_us);
    [
        study::LATENCY.judged(
            study::judge_latency(name, &of_latency, because),
            messages_section(found, ("latency", "us"), &latency, &Cell::latency_us),
        ),
        study::BANDWIDTH.judged(
            study::judge_bandwidth(name, &of_bandwidth, because),
            messages_section(found, ("bandwidth", "MB/s"), &bandwidth, &Cell::mb_per_s),
        ),
        study::PROCESSOR.judged(
            study::judge_processor(name, &of_cpu, because),
            messages_section(found, ("processor time", "us"), &bandwidth, &Cell::cpu_us),
        ),
    ]
}

/// Tables and charts of messages, one for each provider.
fn messages_section(
    found: &Found,
    (title, unit): (&str, &str),
    task: &dyn Fn(MessageWay, u64) -> Task,
    value: &dyn Fn(&Cell) -> Option<Spread>,
) -> Section {
    let mut section = Section::default();
    for one in &found.providers {
        let lengths = one.message_lengths();
        let at = |way, len| Some(value(one.cell(task(way, len))?)?.median);
        section.charts.push(by_length(one, (title, unit), &MESSAGE_WAYS, &lengths, at));
        section.tables.push(by_way(one, &format!("{title}, {unit}"), task, value));
    }
    section
}

fn file_figures(found: &Found, judged: &ProviderFound) -> [StudyFigure; 2] {
    let (name, because) = (judged.provider.name(), judged.refused());
    let lengths: Vec<u64> = judged
        .file_lengths()
        .into_iter()
        .filter(|len_bytes| *len_bytes <= study::FILE_BYTES_MAX)
        .collect();
    let file = |way, file_bytes| Task::File { way, file_bytes };
    let (ours, tcp, copied) = (FileWay::SendFile, FileWay::TcpSendfile, FileWay::OneCopy);
    let of_time =
        judged.beside(&lengths, |len| (file(ours, len), file(tcp, len)), Cell::latency_us);
    let of_cpu = judged.beside(&lengths, |len| (file(ours, len), file(copied, len)), Cell::cpu_us);
    let section = |title: &str, value: &dyn Fn(&Cell) -> Option<Spread>| {
        let mut section = Section::default();
        for one in &found.providers {
            let at = |way, len| Some(value(one.cell(file(way, len))?)?.median);
            let lengths = one.file_lengths();
            section.charts.push(by_length(one, (title, "us"), &FILE_WAYS, &lengths, at));
        }
        section
    };
    let mut of_latency = section("sender's time of a file", &Cell::latency_us);
    of_latency.tables = found.providers.iter().map(times_table).collect();
    let mut of_processor = section("sender's processor time of a file", &Cell::cpu_us);
    of_processor.tables = found.providers.iter().map(costs_table).collect();
    let judged_cpu = study::judge_file_processor(name, &of_cpu, copies(judged.provider), because);
    [
        study::FILE_LATENCY.judged(study::judge_file_latency(name, &of_time, because), of_latency),
        study::FILE_PROCESSOR.judged(judged_cpu, of_processor),
    ]
}

/// Adds a row for each file and way, or the reason why there is none.
fn file_rows(one: &ProviderFound, table: &mut Table, figures: impl Fn(&CellLine) -> Vec<String>) {
    for cell in one.cells.iter().filter(|cell| matches!(cell.task, Task::File { .. })) {
        let Task::File { way, file_bytes } = cell.task else { continue };
        let begin = vec![units::bytes(file_bytes), way.name().to_owned()];
        let rest = match (&cell.refused, &cell.runs[..]) {
            (Some(why), []) => vec![why.clone()],
            _ => figures(&cell_line(one, cell)),
        };
        table.row([begin, rest].concat());
    }
}

fn times_table(one: &ProviderFound) -> Table {
    let columns = ["file", "way", "us", "lowest", "highest", "of TCP's", "MB/s", "repeats"];
    let mut table = Table::new(format!("{}: sender's time of a file", one.provider), 2, &columns);
    file_rows(one, &mut table, |line| {
        let end = |of: fn(Spread) -> f64| shown(line.latency_us.map(of));
        let repeats: u64 = line.runs.iter().map(|run| run.repeats).sum();
        vec![
            median(line.latency_us),
            end(|spread| spread.lowest),
            end(|spread| spread.highest),
            shown(line.time_of_tcp),
            median(line.mb_per_s),
            repeats.to_string(),
        ]
    });
    table
}

fn costs_table(one: &ProviderFound) -> Table {
    let columns = [
        "file",
        "way",
        "CPU us",
        "lowest",
        "highest",
        "of one copy's",
        "registering us",
        "copied B/B",
        "windows B/B",
    ];
    let title = format!("{}: sender's processor time of a file", one.provider);
    let mut table = Table::new(title, 2, &columns);
    file_rows(one, &mut table, |line| {
        let end = |of: fn(Spread) -> f64| shown(line.cpu_us.map(of));
        let is_window = line.window_per_byte.is_some_and(|window| window > 0.0);
        vec![
            median(line.cpu_us),
            end(|spread| spread.lowest),
            end(|spread| spread.highest),
            shown(line.cpu_of_one_copy),
            median(line.registering_us.filter(|_| is_window)),
            shown(line.copied_per_byte),
            shown(line.window_per_byte),
        ]
    });
    table.note(format!(
        "Copied are bytes that haul read into a buffer, by its own count; with {}, {}.",
        one.provider,
        copies(one.provider)
    ));
    table
}
