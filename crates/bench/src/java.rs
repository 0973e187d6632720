//! Table 1 of the study of `transferTo()` in the JVM itself, by the bench of haul's JVM client.

use crate::{
    BenchError, Caller, host_facts,
    requests::BenchJava,
    studies::efficient_transfer::{
        FILE_TIMES, JAVA_TIMES, MeasuredTime, judge_java_times, ratio_chart,
    },
    workshop::Workshop,
};
use anyhow::{Context, Result, bail, ensure};
use haul_report::{
    host_facts::BenchWire, html_page::Section, results::Results, study_figure::StudyFigure,
    table::Table,
};
use serde::Deserialize;
use std::{
    fs::{self, File},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

/// The time between two looks at the program and at the user's wish.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Heap of the JVM: a file of any size needs no more.
const HEAP: &str = "-Xmx64m";

/// The last line of the program: what all rounds came to.
#[derive(Debug, Deserialize)]
struct BenchLine {
    java: String,
    sizes: Vec<SizeLine>,
}

/// A size in it, with medians.
#[derive(Debug, Deserialize)]
struct SizeLine {
    bytes: u64,
    traditional_ms: f64,
    transfer_to_ms: f64,
    traditional_calls: u64,
    transfer_to_calls: u64,
    traditional_copies_per_byte: f64,
    transfer_to_copies_per_byte: f64,
}

/// Runs the client's bench, and judges what it measured.
///
/// # Errors
/// If no directory can be made, the program cannot run, or it was interrupted.
pub fn run(plan: &BenchJava, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let facts = host_facts::of_workshop("studies", &workshop, BenchWire::Loopback);
    let said = said(plan, &workshop);
    let measured = said.and_then(|said| measured(&said));
    let line = measured.map_err(|error| BenchError::broke_off("studies --only=java", &error))?;
    let mut results = Results {
        title: "Efficient data transfer in the JVM".to_owned(),
        verdict: Vec::new(),
        words: vec![format!(
            "Medians of {} rounds in Java {}, in which the ways took turns behind one that warmed \
             up.",
            plan.rounds, line.java
        )],
        facts,
        sections: Vec::new(),
        figures: vec![figure(&line)],
        studies: Vec::new(),
        lines: Vec::new(),
        measured: true,
    };
    for size in &line.sizes {
        results.lines.push(serde_json::json!({
            "event": "cell", "table": "java", "bytes": size.bytes,
            "traditional_ms": size.traditional_ms, "transfer_to_ms": size.transfer_to_ms,
        }));
    }
    Ok(results)
}

/// Runs the program to its end, and returns what it printed.
fn said(plan: &BenchJava, workshop: &Workshop) -> Result<String> {
    let [said, errors] = ["said", "errors"].map(|name| workshop.path().join(name));
    let mut command = Command::new("java");
    command.args([HEAP, "-jar"]).arg(&plan.jar).args(["bench", "--json"]);
    command.arg(format!("--rounds={}", plan.rounds));
    command.arg("--directory").arg(workshop.path());
    if !plan.sizes.is_empty() {
        let sizes: Vec<String> = plan.sizes.iter().map(u64::to_string).collect();
        command.arg(format!("--sizes={}", sizes.join(",")));
    }
    command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(File::create(&errors)?);
    let child = command.spawn().context("needs java, 17 or newer, in the PATH")?;
    let status = ended(child, workshop)?;
    let errors = fs::read_to_string(&errors).unwrap_or_default();
    ensure!(status.success(), "{} ended with {status}: {}", plan.jar.display(), errors.trim());
    Ok(fs::read_to_string(&said)?)
}

/// Waits for the end of the program, and ends it where the user wants to stop.
fn ended(mut child: Child, workshop: &Workshop) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if let Err(stopped) = workshop.go_on() {
            child.kill()?;
            child.wait()?;
            return Err(stopped);
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn measured(said: &str) -> Result<BenchLine> {
    let Some(last) = said.lines().last() else { bail!("the program said nothing") };
    serde_json::from_str(last).with_context(|| format!("the program said: {last}"))
}

/// The figure: each of the study's sizes that was measured, ours beside theirs.
fn figure(line: &BenchLine) -> StudyFigure {
    let mut table = Table::new(
        "",
        1,
        &[
            "file",
            "traditional, ms",
            "transferTo(), ms",
            "ratio",
            "theirs: traditional, ms",
            "theirs: transferTo(), ms",
            "theirs: ratio",
            "calls: traditional",
            "calls: transferTo()",
        ],
    );
    let mut times = Vec::new();
    for size in &line.sizes {
        let Some(file) = FILE_TIMES.into_iter().find(|file| file.len_bytes == size.bytes) else {
            continue;
        };
        let (traditional_ms, zero_copy_ms) = (size.traditional_ms, size.transfer_to_ms);
        let theirs = f64::from(file.traditional_ms) / f64::from(file.zero_copy_ms);
        table.row(vec![
            file.name.to_owned(),
            format!("{traditional_ms:.1}"),
            format!("{zero_copy_ms:.1}"),
            format!("{:.2}", traditional_ms / zero_copy_ms),
            file.traditional_ms.to_string(),
            file.zero_copy_ms.to_string(),
            format!("{theirs:.2}"),
            size.traditional_calls.to_string(),
            size.transfer_to_calls.to_string(),
        ]);
        times.push(MeasuredTime { file, traditional_ms, zero_copy_ms });
    }
    if let Some(largest) = line.sizes.last() {
        table.note(format!(
            "By the results of its calls, the program copied each byte {:.0} times into its own \
             memory or out of it by the traditional way, and {:.0} times by transferTo().",
            largest.traditional_copies_per_byte, largest.transfer_to_copies_per_byte,
        ));
    }
    let section = Section {
        words: vec![
            "A program in Java sends from the page cache to a thread of its own, which throws \
             away."
                .to_owned(),
        ],
        charts: vec![ratio_chart("transferTo()", &times)],
        tables: vec![table],
        ..Section::default()
    };
    JAVA_TIMES.judged(judge_java_times(&times), section)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_report::study_figure::Verdict::{CameOut, DidNotComeOut, NotMeasured};

    /// Lines of the program, of a file of 7 MB and one of no size of the study.
    fn line(transfer_to_ms: f64) -> String {
        let size = |bytes: u64| {
            format!(
                "{{\"bytes\":{bytes},\"traditional_ms\":20.0,\"traditional_copies_per_byte\":2.0,\
                 \"traditional_calls\":3419,\"transfer_to_ms\":{transfer_to_ms},\
                 \"transfer_to_copies_per_byte\":0.0,\"transfer_to_calls\":1,\"ratio\":2.0}}"
            )
        };
        format!(
            "{{\"event\":\"round\",\"bytes\":7000000}}\n{{\"event\":\"bench\",\"rounds\":5,\
             \"java\":\"17.0.1+2\",\"sizes\":[{},{}]}}\n",
            size(7_000_000),
            size(8_000_000),
        )
    }

    #[test]
    fn the_last_line_is_judged_by_the_study_s_sizes() {
        let judged = |transfer_to_ms| figure(&measured(&line(transfer_to_ms)).unwrap());
        let figure = judged(8.0);
        assert_eq!(figure.judgement.verdict, CameOut);
        let sentence = "transferTo() takes less time at each of the 1 sizes that were measured";
        assert!(figure.judgement.sentence.starts_with(sentence), "{:?}", figure.judgement);
        let table = figure.section.tables[0].text();
        for cell in ["7 MB", "20.0", "8.0", "2.50", "156", "45", "3.47", "3419"] {
            assert!(table.contains(cell), "{cell}: {table}");
        }
        assert_eq!(figure.section.tables[0].rows.len(), 1);
        let chart = &figure.section.charts[0];
        assert!(chart.contains("How many times transferTo() is as fast"), "{chart}");
        assert!(chart.contains("2.5") && chart.contains("7 MB"), "{chart}");
        assert!(table.contains("2 times into its own memory"), "{table}");
        assert_eq!(judged(20.0).judgement.verdict, DidNotComeOut);
    }

    #[test]
    fn a_program_that_says_something_else_is_an_error() {
        assert!(measured("").unwrap_err().to_string().contains("said nothing"));
        assert!(measured("no\n").unwrap_err().to_string().contains("said: no"));
        let none = BenchLine { java: String::new(), sizes: Vec::new() };
        assert_eq!(figure(&none).judgement.verdict, NotMeasured);
    }
}
