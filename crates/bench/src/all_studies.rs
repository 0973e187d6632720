//! `haul bench studies`: all that this host can repeat of the studies, as one set of results.
//!
//! Each of their tables and figures is in it once. Where a bench could not run, its figures say
//! why, and the other benches go on.

use crate::{
    BenchError, Caller, engines, fabric, files, host_facts, java, media,
    requests::{BenchStudies, StudyBench, StudyPlan},
    studies::{Figure, MeasuredBy, STUDIES},
    tuning,
    workshop::Workshop,
};
use haul_report::{
    host_facts::{BenchWire, HostFacts},
    html_page::Section,
    results::Results,
    study_figure::{StudyFigure, StudyWords, Verdict},
    table::Table,
};
use serde::Serialize;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// A bench that took part, and its end.
#[derive(Debug)]
struct Ended {
    by: MeasuredBy,
    command: String,
    took: Duration,
    results: Result<Results, BenchError>,
}

/// A bench that took part as a line of JSON; the lines of its cells follow.
#[derive(Debug, Serialize)]
struct BenchLine<'ended> {
    event: &'static str,
    command: &'ended str,
    seconds: f64,
    refused: Option<String>,
}

/// Runs the benches that repeat studies, one after the other.
///
/// # Errors
/// If nothing could start, or it was interrupted.
pub fn run(plan: &BenchStudies, caller: &Caller) -> Result<Results, BenchError> {
    let workshop = Workshop::new(&plan.directory, caller)?;
    let facts = host_facts::of_workshop("studies", &workshop, BenchWire::Loopback);
    drop(workshop);
    let mut all = Vec::new();
    for bench in &plan.benches {
        let started = Instant::now();
        let results = run_bench(bench, caller);
        if caller.interrupt.load(Ordering::Relaxed) {
            let interrupted = || anyhow::anyhow!("interrupted; everything it made is removed");
            return Err(results
                .err()
                .unwrap_or_else(|| BenchError::broke_off("studies", &interrupted())));
        }
        let by = measured_by(&bench.plan);
        all.push(Ended { by, command: bench.command.clone(), took: started.elapsed(), results });
    }
    Ok(together(facts, all))
}

fn run_bench(bench: &StudyBench, caller: &Caller) -> Result<Results, BenchError> {
    match &bench.plan {
        StudyPlan::Engines(plan) => engines::run(plan, caller),
        StudyPlan::Files(plan) => files::run(plan, caller),
        StudyPlan::Tuning(plan) => tuning::run(plan, caller),
        StudyPlan::Media(plan) => media::run(plan, caller),
        StudyPlan::Fabric(plan) => fabric::run(plan, caller),
        StudyPlan::Java(plan) => java::run(plan, caller),
    }
}

const fn measured_by(plan: &StudyPlan) -> MeasuredBy {
    match plan {
        StudyPlan::Engines(_) => MeasuredBy::Engines,
        StudyPlan::Files(_) => MeasuredBy::Files,
        StudyPlan::Tuning(_) => MeasuredBy::Tuning,
        StudyPlan::Media(_) => MeasuredBy::Media,
        StudyPlan::Fabric(_) => MeasuredBy::Fabric,
        StudyPlan::Java(_) => MeasuredBy::Java,
    }
}

/// The results of all benches as one: each figure of each study once.
fn together(facts: HostFacts, mut all: Vec<Ended>) -> Results {
    let figures: Vec<StudyFigure> = STUDIES
        .iter()
        .flat_map(|study| study.figures)
        .map(|figure| found_or_why(figure, &mut all))
        .collect();
    let mut results = Results {
        title: "The studies behind haul, repeated".to_owned(),
        verdict: vec![sum(&figures)],
        words: vec![
            "Each figure has a rule about its shape, as the order of rows or the sign of a \
             difference, which was written before anything ran; the verdict follows from it. \
             Theirs are numbers of other hardware and other years, mostly of two machines: they \
             stand beside ours and are none to reach. All of ours was measured in one run on one \
             host, without a network card."
                .to_owned(),
        ],
        facts,
        sections: all.iter_mut().flat_map(sections_of).collect(),
        measured: figures.iter().any(|figure| figure.judgement.verdict != Verdict::NotMeasured),
        figures,
        studies: STUDIES
            .iter()
            .map(|study| StudyWords { name: study.name, source: study.source, words: study.words })
            .collect(),
        lines: Vec::new(),
    };
    results.sections.push(commands(&all));
    for ended in all {
        results.line(&BenchLine {
            event: "bench",
            command: &ended.command,
            seconds: ended.took.as_secs_f64(),
            refused: ended.results.as_ref().err().map(ToString::to_string),
        });
        results.lines.extend(ended.results.into_iter().flat_map(|results| results.lines));
    }
    results
}

/// The figure that its bench found, or the reason why there is none.
fn found_or_why(figure: &Figure, all: &mut [Ended]) -> StudyFigure {
    if let MeasuredBy::Nothing(why) = figure.by {
        return figure.not_measured(why);
    }
    let Some(ended) = all.iter_mut().find(|ended| ended.by == figure.by) else {
        return figure.not_measured(&why_left_out(figure));
    };
    match &mut ended.results {
        Err(error) => figure.not_measured(&error.to_string()),
        Ok(results) => {
            let is_it =
                |found: &StudyFigure| (found.study, found.number) == (figure.study, figure.number);
            match results.figures.iter().position(is_it) {
                Some(at) => results.figures.swap_remove(at),
                None => figure.not_measured("its bench ended without a finding"),
            }
        }
    }
}

fn why_left_out(figure: &Figure) -> String {
    match figure.by {
        MeasuredBy::Java => "needs --jar FILE, the program of haul's JVM client: `mvn -f \
                             clients/java/pom.xml package -DskipTests` makes it, as \
                             clients/java/command/target/haul.jar"
            .to_owned(),
        _ => format!("needs `{}`, which --only left out", figure.command),
    }
}

/// The sections of a bench that are beside the studies, each named after it.
fn sections_of(ended: &mut Ended) -> Vec<Section> {
    let Ok(results) = &mut ended.results else { return Vec::new() };
    let mut sections = std::mem::take(&mut results.sections);
    for section in &mut sections {
        section.title = format!("Beside the studies: {}", section.title);
    }
    sections
}

/// The commands that were run, how long they took and how they measure.
fn commands(all: &[Ended]) -> Section {
    let mut table = Table::new("", 2, &["command", "end", "seconds"]);
    let mut words = Vec::new();
    for ended in all {
        let seconds = format!("{:.0}", ended.took.as_secs_f64());
        let end = if ended.results.is_ok() { "ran" } else { "did not run" };
        table.row(vec![ended.command.clone(), end.to_owned(), seconds]);
        if let Ok(results) = &ended.results {
            words.push(format!("{}: {}", ended.command, results.words.join(" ")));
        }
    }
    Section { title: "Commands".to_owned(), words, tables: vec![table], ..Section::default() }
}

/// The sentence that counts all verdicts.
fn sum(figures: &[StudyFigure]) -> String {
    let count = |verdict: Verdict| {
        figures.iter().filter(|figure| figure.judgement.verdict == verdict).count()
    };
    format!(
        "Of {} tables and figures of {} studies, {} came out, {} did not, and {} were not \
         measured.",
        figures.len(),
        STUDIES.len(),
        count(Verdict::CameOut),
        count(Verdict::DidNotComeOut),
        count(Verdict::NotMeasured),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::{massive_data::OFFSETS, media_on_demand, node_tuning};
    use haul_report::{host_facts::HostFigures, study_figure::Judgement};
    use haul_transfer::Problem;
    use std::collections::BTreeMap;

    fn facts() -> HostFacts {
        HostFacts::new("studies", HostFigures::default(), BenchWire::Loopback, None)
    }

    fn ended(by: MeasuredBy, results: Result<Results, BenchError>) -> Ended {
        Ended { by, command: "haul bench this".to_owned(), took: Duration::from_secs(2), results }
    }

    /// Results of a bench that judged the offsets, twice.
    fn judged() -> Results {
        let figure = |holds| OFFSETS.judged(Judgement::of_rule(holds, "so"), Section::default());
        Results {
            title: "one".to_owned(),
            verdict: Vec::new(),
            words: vec!["One MiB each.".to_owned()],
            facts: facts(),
            sections: Vec::new(),
            figures: vec![figure(true), figure(false)],
            studies: Vec::new(),
            lines: vec![serde_json::json!({"event": "cell"})],
            measured: true,
        }
    }

    fn all() -> Vec<Ended> {
        let problem = Problem::in_general("haul bench media broke off", "root", "another user", "");
        vec![
            ended(MeasuredBy::Engines, Ok(judged())),
            ended(MeasuredBy::Media, Err(BenchError::CouldNotStart(problem))),
            ended(MeasuredBy::Tuning, Ok(Results { figures: Vec::new(), ..judged() })),
        ]
    }

    #[test]
    fn each_figure_of_the_list_is_on_the_page_once_whatever_ran() {
        let listed = STUDIES.iter().flat_map(|study| study.figures);
        let listed: Vec<(&str, &str)> =
            listed.map(|figure| (figure.study.id, figure.number)).collect();
        for benches in [all(), Vec::new()] {
            let results = together(facts(), benches);
            let shown = results.figures.iter().map(|figure| (figure.study.id, figure.number));
            assert_eq!(shown.collect::<Vec<_>>(), listed);
            let anchors: Vec<String> = results.figures.iter().map(StudyFigure::anchor).collect();
            let html = results.page().html();
            for anchor in anchors {
                assert_eq!(html.matches(&format!(" id=\"{anchor}\"")).count(), 1, "{anchor}");
                assert_eq!(html.matches(&format!("href=\"#{anchor}\"")).count(), 1, "{anchor}");
            }
        }
    }

    #[test]
    fn a_figure_that_was_not_found_says_why() {
        let results = together(facts(), all());
        let mut by: BTreeMap<&str, &Judgement> = BTreeMap::new();
        for (figure, study) in
            results.figures.iter().zip(STUDIES.iter().flat_map(|study| study.figures))
        {
            let name = match study.by {
                MeasuredBy::Engines => "engines",
                MeasuredBy::Files => "files",
                MeasuredBy::Tuning => "tuning",
                MeasuredBy::Media => "media",
                MeasuredBy::Fabric => "fabric",
                MeasuredBy::Java => "java",
                MeasuredBy::Nothing(why) => {
                    assert_eq!(figure.judgement, Judgement::not_measured(why));
                    continue;
                }
            };
            by.insert(name, &figure.judgement);
        }
        assert_eq!(by["engines"], &Judgement::of_rule(true, "so"));
        let why = "haul bench media broke off: needs root, found another user.";
        assert_eq!(by["media"], &Judgement::not_measured(why));
        assert!(by["files"].sentence.contains("left out"), "{:?}", by["files"]);
        assert!(by["java"].sentence.contains("needs --jar FILE"), "{:?}", by["java"]);
        assert!(by["tuning"].sentence.contains("without a finding"), "{:?}", by["tuning"]);
        assert!(
            results.verdict[0].contains(" 1 came out, 0 did not, and "),
            "{:?}",
            results.verdict
        );
        assert!(results.measured && !together(facts(), Vec::new()).measured);
    }

    /// Two studies have a figure 8.
    #[test]
    fn a_figure_of_another_study_is_not_taken_for_one_of_the_same_number() {
        let other = node_tuning::DELAYS;
        assert_eq!(other.number, media_on_demand::SINGLE_FILE.number);
        let foreign = other.judged(Judgement::of_rule(true, "so"), Section::default());
        let results = Results { figures: vec![foreign], ..judged() };
        let results = together(facts(), vec![ended(MeasuredBy::Media, Ok(results))]);
        let is_it = |figure: &&StudyFigure| {
            figure.study == media_on_demand::SINGLE_FILE.study && figure.number == other.number
        };
        let figure = results.figures.iter().find(is_it).unwrap();
        assert_eq!(figure.judgement.verdict, Verdict::NotMeasured);
    }

    #[test]
    fn the_lines_of_a_bench_follow_its_own() {
        let results = together(facts(), all());
        let events = results.lines.iter().map(|line| line["event"].as_str().unwrap());
        assert_eq!(events.collect::<Vec<_>>(), ["bench", "cell", "bench", "bench", "cell"]);
        assert_eq!(
            (&results.lines[0]["refused"], &results.lines[0]["seconds"]),
            (&serde_json::Value::Null, &2.0.into())
        );
        assert!(results.lines[2]["refused"].as_str().unwrap().contains("needs root"));
        assert!(results.text().contains("haul bench this: One MiB each."));
    }
}
