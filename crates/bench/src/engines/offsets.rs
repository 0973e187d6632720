//! A fixed offset against an advancing one: the study's table, and what the region's size changes.
//!
//! A fixed offset sends one region of the file again and again, an advancing one the whole file.
//! The regions between them show what a processor's caches have to do with it, and a receiver that
//! throws away what it never looks at shows what the receiver's own copy has to do with it.

use crate::{
    pair::Source,
    series::Series,
    studies::massive_data::{
        self, BLOCK_BYTES, MASSIVE_DATA, MeasuredOffsets, OFFSET_RATES, OffsetRate, judge_offsets,
    },
};
use haul_report::{
    chart::{Bar, BarValue, bars},
    html_page::Section,
    spread::Spread,
    study_figure::StudyFigure,
    table::Table,
    units,
};

/// The region that a fixed offset sends again and again, in bytes: as much as one call moves.
pub const FIXED_BYTES: u64 = 1 << 20;
/// The receiver that copies each byte, as the study's did.
pub const COPYING: &str = "read-write";

/// Measurements of one region with one receiver: by sendfile and by read-write.
#[derive(Clone, Copy, Debug)]
struct Row<'series> {
    source: Source,
    receive_engine: &'static str,
    /// Bytes that one call moves; `None` is the engine's own number.
    block_bytes: Option<usize>,
    sendfile: &'series Series,
    read_write: &'series Series,
}

/// The study's table, where it was asked for.
pub fn figure(all: &[&Series]) -> Option<StudyFigure> {
    all.first()?;
    let because = all.iter().find_map(|series| series.refused.as_deref());
    let ours = measured(all);
    let rows = rows(all);
    let mut words = vec![
        "One region of the file again and again, or the whole of it, from the page cache. Beside \
         the study's are rates to a receiver that copies each byte into its memory, as theirs did. \
         The fixed offset is a region of 1 MiB. Both methods move 64 KiB by a call, as sendfile(2) \
         hands over no more at once, so that both sides switch about as often and the copy is the \
         only difference. The next table has more regions, blocks of 1 MiB, and a receiver that \
         throws bytes away without a look (MSG_TRUNC)."
            .to_owned(),
    ];
    words.extend(explained(&rows));
    let section = Section {
        words,
        charts: vec![chart(&rows)],
        tables: vec![beside(&ours), regions(&rows)],
        ..Section::default()
    };
    Some(massive_data::OFFSETS.judged(judge_offsets(&ours, because), section))
}

/// The rates of each round with the study's own receiver, in Gbit/s.
fn measured(all: &[&Series]) -> MeasuredOffsets {
    let rates = |engine: &str, fixed: bool| -> Vec<f64> {
        let is_it = |series: &&&Series| {
            let is_source = match series.pair.source {
                Source::Fixed { window_bytes } => {
                    fixed && window_bytes == FIXED_BYTES.min(series.pair.len_bytes)
                }
                Source::File(_) => !fixed,
            };
            let pair = &series.pair;
            let is_method = pair.send_engine == engine && pair.receive_engine == COPYING;
            is_source && is_method && pair.send_block_bytes == Some(BLOCK_BYTES)
        };
        let runs = all.iter().find(is_it).map(|series| series.runs.iter());
        runs.into_iter().flatten().map(|run| run.gb_per_s * 8.0).collect()
    };
    let [sendfile, read_write] =
        OFFSET_RATES.map(|theirs| [true, false].map(|fixed| rates(theirs.engine, fixed)));
    MeasuredOffsets { sendfile, read_write }
}

/// The rows of each region and receiver of which there are both methods.
fn rows<'series>(all: &[&'series Series]) -> Vec<Row<'series>> {
    let [sendfile, read_write] = OFFSET_RATES.map(|theirs| theirs.engine);
    let of_sendfile = all.iter().filter(|series| series.pair.send_engine == sendfile);
    let row = |one: &&'series Series| {
        let is_other = |other: &&&'series Series| {
            let (one, other) = (&one.pair, &other.pair);
            other.send_engine == read_write
                && (other.source, other.receive_engine) == (one.source, one.receive_engine)
                && other.send_block_bytes == one.send_block_bytes
        };
        Some(Row {
            source: one.pair.source,
            receive_engine: one.pair.receive_engine,
            block_bytes: one.pair.send_block_bytes,
            sendfile: one,
            read_write: all.iter().find(is_other)?,
        })
    };
    of_sendfile.filter_map(row).collect()
}

impl Row<'_> {
    fn region(&self) -> String {
        match self.source {
            Source::Fixed { window_bytes } => units::bytes(window_bytes),
            Source::File(_) => "whole file".to_owned(),
        }
    }

    fn receiver(&self) -> &'static str {
        if self.receive_engine == COPYING { "copies" } else { "throws away" }
    }

    fn block(&self) -> String {
        units::bytes(self.block_bytes.map_or(FIXED_BYTES, |bytes| bytes as u64))
    }
}

/// The processor time of both sides for 10^9 bytes.
fn cpu_s_per_gb(series: &Series) -> Option<f64> {
    Some(series.send_cost()?.cpu_s_per_gb + series.receive_cost()?.cpu_s_per_gb)
}

/// The switches of both sides for 10^9 bytes.
fn switches_per_gb(series: &Series) -> Option<f64> {
    let (send, receive) = (series.send_cost()?, series.receive_cost()?);
    Some(send.context_switches_per_gb + receive.context_switches_per_gb)
}

/// Sentences about what a larger region costs each method, and how often the sides switch. A reason
/// is given only where the measurements show it.
fn explained(rows: &[Row<'_>]) -> Vec<String> {
    let [copying, other] = [true, false].map(|copies| Costs::of(rows, copies));
    let mut sentences: Vec<String> = [("copies", copying), ("throws away", other)]
        .into_iter()
        .filter_map(|(receiver, costs)| Some(costs?.in_words(receiver)))
        .collect();
    let both: Vec<Costs> = [copying, other].into_iter().flatten().collect();
    if !both.is_empty()
        && both.iter().all(|costs| costs.growth[1] > costs.growth[0] + GROWTH_APART_MIN)
    {
        sentences.push(
            "A region that the caches hold makes read-write's own two copies cheaper and leaves \
             sendfile, which has none, about as it is: with a fixed offset sendfile gains less, \
             not more."
                .to_owned(),
        );
    }
    sentences.extend(rows.iter().filter_map(large_block));
    sentences
}

/// The sentence about a row of the whole file by larger blocks, where those make the sides of
/// read-write switch far less often.
fn large_block(row: &Row<'_>) -> Option<String> {
    if row.block_bytes.is_some() || row.source.region_bytes().is_some() {
        return None;
    }
    let [more, fewer] = [row.sendfile, row.read_write].map(switches_per_gb);
    let (more, fewer) = (more?, fewer?);
    let ratio = row.sendfile.rate()?.median / row.read_write.rate()?.median;
    (more > SWITCHES_TIMES * fewer).then(|| {
        format!(
            "By blocks of 1 MiB and a receiver that {}, sendfile moves {ratio:.1} times what \
             read-write does: it still hands over 64 KiB at once, and both sides switch {more:.0} \
             times for each GB, those of read-write {fewer:.0} times.",
            row.receiver(),
        )
    })
}

/// Least difference between the methods' growths that is a reason: medians of a few rounds lie
/// some hundredths apart by themselves.
const GROWTH_APART_MIN: f64 = 0.05;
/// Least ratio of the methods' switches that is a reason for their rates.
const SWITCHES_TIMES: f64 = 2.0;

/// Costs of both methods with one receiver: sendfile, then read-write.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Growth of the processor time from a region of 1 MiB to the whole file, as a share.
    growth: [f64; 2],
}

impl Costs {
    fn of(rows: &[Row<'_>], copies: bool) -> Option<Self> {
        let is_it = |row: &&Row<'_>| {
            (row.receive_engine == COPYING) == copies && row.block_bytes == Some(BLOCK_BYTES)
        };
        let mut of = rows.iter().filter(is_it);
        let fixed = of.clone().find(|row| row.source.region_bytes() == Some(FIXED_BYTES))?;
        let whole = of.find(|row| row.source.region_bytes().is_none())?;
        let growth = |whole, fixed| Some(cpu_s_per_gb(whole)? / cpu_s_per_gb(fixed)? - 1.0);
        Some(Self {
            growth: [
                growth(whole.sendfile, fixed.sendfile)?,
                growth(whole.read_write, fixed.read_write)?,
            ],
        })
    }

    fn in_words(self, receiver: &str) -> String {
        let [sendfile, read_write] = self.growth.map(|growth| format!("{:+.0} %", 100.0 * growth));
        format!(
            "To a receiver that {receiver}, the whole file costs both sides {sendfile} processor \
             time beside a region of 1 MiB by sendfile and {read_write} by read-write."
        )
    }
}

fn chart(rows: &[Row<'_>]) -> String {
    let rate = |series: &Series| {
        let Spread { median, lowest, highest } = series.rate()?;
        let [value, lowest, highest] = [median, lowest, highest].map(|rate| rate * 8.0);
        Some(BarValue { value, lowest, highest })
    };
    let bar = |row: &Row<'_>| Bar {
        label: format!("{} by {}, {}", row.region(), row.block(), row.receiver()),
        values: vec![rate(row.sendfile), rate(row.read_write)],
    };
    let drawn: Vec<Bar> = rows.iter().map(bar).collect();
    let title = "By the region that is sent again and again, and by the receiver";
    bars(title, "Gbit/s", &["sendfile", "read-write"], &drawn)
}

fn regions(rows: &[Row<'_>]) -> Table {
    let columns = [
        "region",
        "block",
        "receiver",
        "sendfile, Gbit/s",
        "lowest",
        "highest",
        "read-write, Gbit/s",
        "lowest",
        "highest",
        "ratio",
        "sendfile, CPU s/GB",
        "read-write, CPU s/GB",
        "sendfile, switches/GB",
        "read-write, switches/GB",
    ];
    let mut table = Table::new("By region, block and receiver; costs of both sides", 3, &columns);
    for row in rows {
        let mut cells = vec![row.region(), row.block(), row.receiver().to_owned()];
        let both = [row.sendfile, row.read_write];
        let [Some(sent), Some(copied)] = both.map(Series::rate) else {
            let refused = both.iter().find_map(|series| series.refused.as_deref());
            cells.push(refused.unwrap_or("no time was left").to_owned());
            table.row(cells);
            continue;
        };
        for rate in [sent, copied] {
            let rates = [rate.median, rate.lowest, rate.highest];
            cells.extend(rates.map(|rate| format!("{:.1}", rate * 8.0)));
        }
        cells.push(format!("{:.2}x", sent.median / copied.median));
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        cells.extend(both.map(|series| shown(cpu_s_per_gb(series), 3)));
        cells.extend(both.map(|series| shown(switches_per_gb(series), 0)));
        table.row(cells);
    }
    table
}

/// The table of the rates of sendfile and of read-write, fixed and advancing, beside the study's.
fn beside(ours: &MeasuredOffsets) -> Table {
    let columns = ["engine", "fixed", "advancing", "theirs, fixed", "theirs, advancing"];
    let mut beside = Table::new("Gbit/s, ours and the study's", 1, &columns);
    let theirs = |rate: OffsetRate| [rate.fixed_gbit_per_s, rate.advancing_gbit_per_s].map(Some);
    let dash = || "-".to_owned();
    let shown = |rate: &Option<f64>| rate.map_or_else(dash, |rate| format!("{rate:.1}"));
    let ours = ours.medians();
    for (ours, rate) in ours.iter().zip(OFFSET_RATES) {
        let rates = [*ours, theirs(rate)].concat();
        let cells = rates.iter().map(shown);
        beside.row([rate.engine.to_owned()].into_iter().chain(cells).collect());
    }
    let times = |copied: &Option<f64>, sent: &Option<f64>| {
        let ratio = sent.and_then(|sent| Some(sent / (*copied)?));
        ratio.map_or_else(dash, |ratio| format!("{ratio:.1}x"))
    };
    let [sent, copied] = ours;
    let [theirs_sent, theirs_copied] = OFFSET_RATES.map(theirs);
    let (sent, copied) = ([sent, theirs_sent].concat(), [copied, theirs_copied].concat());
    let ratios = copied.iter().zip(&sent).map(|(copied, sent)| times(copied, sent));
    beside.row(["ratio".to_owned()].into_iter().chain(ratios).collect());
    beside.note(format!("Theirs: {MASSIVE_DATA}, table 2, inside one machine, on their hardware."));
    beside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pair::{Pair, Run, Target},
        side::SideDone,
        workshop::Residency,
    };

    /// A series whose sides took so many seconds for 1 GB and switched so often.
    fn series(engine: &'static str, source: Source, cpu_s: u64, switches: u64) -> Series {
        let pair = Pair {
            send_engine: engine,
            receive_engine: COPYING,
            source,
            target: Target::Null,
            len_bytes: 1_000_000_000,
            streams: 1,
            send_block_bytes: None,
            receive_block_bytes: None,
        };
        let send = SideDone { cpu_ns: cpu_s * 1_000_000_000, ..SideDone::default() };
        let receive = SideDone { voluntary_switches: switches, ..SideDone::default() };
        let run = Run { seconds: 1.0, gb_per_s: 1.0, send, receive };
        Series { runs: vec![run], ..Series::new("offsets", pair) }
    }

    fn said(sendfile: [u64; 2], read_write: [u64; 2], switches: [u64; 2]) -> String {
        let sources = [Source::Fixed { window_bytes: FIXED_BYTES }, Source::File(Residency::Warm)];
        let mut all: Vec<Series> = sources
            .into_iter()
            .zip(sendfile.into_iter().zip(read_write))
            .flat_map(|(source, (sent, copied))| {
                [series("sendfile", source, sent, 1), series("read-write", source, copied, 1)]
            })
            .collect();
        all.iter_mut().for_each(|series| series.pair.send_block_bytes = Some(BLOCK_BYTES));
        all.push(series("sendfile", sources[1], 1, switches[0]));
        all.push(series("read-write", sources[1], 1, switches[1]));
        let all: Vec<&Series> = all.iter().collect();
        explained(&rows(&all)).join(" ")
    }

    #[test]
    fn a_reason_is_given_only_where_it_was_measured() {
        let caches = "with a fixed offset sendfile gains less";
        let switches = "By blocks of 1 MiB";
        let both = said([10, 11], [10, 15], [700, 300]);
        assert!(
            both.contains("+10 % processor time beside a region of 1 MiB by sendfile"),
            "{both}"
        );
        assert!(both.contains("and +50 % by read-write"), "{both}");
        assert!(both.contains("switch 700 times for each GB, those of read-write 300 times"));
        assert!(both.contains(caches) && both.contains(switches), "{both}");
        let neither = said([10, 15], [10, 11], [600, 300]);
        assert!(neither.contains("+50 %"), "{neither}");
        assert!(!neither.contains(caches) && !neither.contains(switches), "{neither}");
        assert!(!said([10, 11], [10, 11], [1, 1]).contains(caches), "as much is no reason");
        let little = said([100, 108], [100, 112], [1, 1]);
        assert!(!little.contains(caches), "chance: {little}");
    }
}
