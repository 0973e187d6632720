//! Arguments of `haul bench studies`, and the benches that they stand for.

use super::LowBenchCommand;
use crate::args::{LowArgs, LowCommand, results::LowResults, usage_problem};
use clap::{Args, Parser, ValueEnum};
use haul_bench::requests::{BenchJava, BenchStudies, StudyBench, StudyPlan};
use haul_transfer::Problem;
use std::path::{Path, PathBuf};

/// Repeats all studies that this host can, and writes one page: theirs beside ours
///
/// Runs the other benches in turn, each with less than by itself, in about twelve minutes on two
/// cores: a fixed offset against an advancing one, files and recordings, tuned hosts, media on
/// demand, and RDMA endpoints where haul was built with them. Each table and figure of the studies
/// has a verdict: it came out, it did not, or it could not be measured here, with a sentence that
/// says why. The verdict follows from a rule about the shape of a result, which is shown beside it.
///
/// Tuned hosts need root, and a crowd before a bound disk does too. A bench that cannot run is
/// said in the place of its figures, and the others go on.
#[derive(Debug, Args)]
pub struct LowBenchStudies {
    /// The studies' own sizes and times: hours, 100 GB twice on the disk
    #[arg(long)]
    pub paper: bool,
    /// Only these benches
    #[arg(long, value_name = "BENCH", value_delimiter = ',')]
    pub only: Vec<LowStudyBench>,
    /// The program of haul's JVM client, which repeats a study in the JVM itself: clients/java
    /// makes it, as command/target/haul.jar; needs java 17 or newer
    #[arg(long, value_name = "HAUL.JAR")]
    pub jar: Option<PathBuf>,
    /// Directory for the files; without it the current one
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Less of everything: a look, no measurement
    #[arg(long, conflicts_with = "paper")]
    pub quick: bool,
    /// Write the page with all figures to FILE, and the JSON lines beside it: page.html and
    /// page.json
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Print one JSON object a line: host, bench, cell, figure, and what else a bench has
    #[arg(long)]
    pub json: bool,
}

/// A bench that repeats studies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowStudyBench {
    /// A fixed offset against an advancing one
    Engines,
    /// Times of files, and recordings
    Files,
    /// One change of two hosts at a time
    Tuning,
    /// A crowd of viewers, and small requests
    Media,
    /// Messages and files by RDMA endpoints
    Fabric,
    /// Times of files in the JVM, with --jar
    Java,
}

/// The words of each bench.
#[derive(Clone, Copy, Debug)]
struct Words {
    bench: LowStudyBench,
    /// Words that take about ten minutes together.
    usual: &'static str,
    paper: &'static str,
    quick: &'static str,
}

const WORDS: [Words; 5] = [
    Words {
        bench: LowStudyBench::Engines,
        usual: "engines --only=offsets --size=512M --rounds=5",
        paper: "engines --only=offsets --size=10G --rounds=5",
        quick: "engines --only=offsets --quick --size=8M",
    },
    Words {
        bench: LowStudyBench::Files,
        usual: "files --size=6G",
        paper: "files --size=100G --budget=6h",
        quick: "files --quick --size=64M",
    },
    Words {
        bench: LowStudyBench::Tuning,
        usual: "tuning --streams=1,8 --time=3s --omit=2s",
        paper: "tuning --time=10s --omit=3s --rounds=3 --budget=3h",
        quick: "tuning --quick --streams=1,2",
    },
    Words {
        bench: LowStudyBench::Media,
        usual: "media --rounds=2",
        paper: "media --paper",
        quick: "media --users=8 --mean-gap=40ms --films=3 --film-size=200K --rate=2M --periods=4 \
                --period=300ms --file-size=1M --sizes=64K --rounds=1 --disk-share=1",
    },
    Words {
        bench: LowStudyBench::Fabric,
        usual: "fabric --only=messages,files",
        paper: "fabric --only=messages,files --paper",
        quick: "fabric --only=messages,files --quick --message-sizes=4,4K --file-sizes=1K,64K",
    },
];

impl LowBenchStudies {
    /// Checks the words of `haul bench studies`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<BenchStudies, Problem> {
        let output = self.output();
        if output.html.is_some() && output.html == output.lines_file {
            let needs = "a name that the JSON lines beside it do not have";
            let hint = "write it like --report page.html";
            return Err(usage_problem("cannot take --report", needs, "the same name", hint));
        }
        let directory = self.directory.clone().unwrap_or_else(|| ".".into());
        let is_wanted = |words: &&Words| self.only.is_empty() || self.only.contains(&words.bench);
        let benches = WORDS.iter().filter(is_wanted).map(|words| {
            let words = match (self.paper, self.quick) {
                (true, _) => words.paper,
                (false, true) => words.quick,
                (false, false) => words.usual,
            };
            bench(words, &directory)
        });
        let mut benches: Vec<StudyBench> = benches.collect::<Result<_, _>>()?;
        match &self.jar {
            Some(jar) if self.only.is_empty() || self.only.contains(&LowStudyBench::Java) => {
                benches.push(self.java(jar, &directory));
            }
            None if self.only.contains(&LowStudyBench::Java) => {
                let needs = "--jar with haul.jar, the program of haul's JVM client";
                let hint = "`mvn -f clients/java/pom.xml package -DskipTests` makes it, as \
                            clients/java/command/target/haul.jar";
                return Err(usage_problem("cannot take --only=java", needs, "no --jar", hint));
            }
            _ => {}
        }
        Ok(BenchStudies { benches, directory })
    }

    fn java(&self, jar: &Path, directory: &Path) -> StudyBench {
        let (rounds, sizes) = if self.quick { (1, vec![7_000_000]) } else { (5, Vec::new()) };
        let command = format!("java -jar {} bench --rounds={rounds}", jar.display());
        let plan =
            BenchJava { jar: jar.to_owned(), rounds, sizes, directory: directory.to_owned() };
        StudyBench { command, plan: StudyPlan::Java(plan) }
    }

    /// The output of the results: a page, and lines beside it.
    #[must_use]
    pub fn output(&self) -> LowResults {
        LowResults {
            json: self.json,
            html: self.report.clone(),
            lines_file: self.report.as_ref().map(|page| page.with_extension("json")),
        }
    }
}

/// The bench that these words ask for, in the directory.
fn bench(words: &str, directory: &Path) -> Result<StudyBench, Problem> {
    let all = ["haul", "bench"].into_iter().chain(words.split_whitespace());
    let all = all.map(Into::into).chain(["--dir".into(), directory.into()]);
    let odd = |found: &str| usage_problem("cannot begin a bench", "", found, "");
    let low = LowArgs::try_parse_from::<_, std::ffi::OsString>(all)
        .map_err(|error| odd(&error.to_string()))?;
    let LowCommand::Bench(low) = low.command else { return Err(odd(words)) };
    let plan = match low.command {
        LowBenchCommand::Engines(low) => StudyPlan::Engines(Box::new(low.checked()?)),
        LowBenchCommand::Files(low) => StudyPlan::Files(low.checked()?),
        LowBenchCommand::Tuning(low) => StudyPlan::Tuning(low.checked()?),
        LowBenchCommand::Media(low) => StudyPlan::Media(Box::new(low.checked()?)),
        LowBenchCommand::Fabric(low) => StudyPlan::Fabric(low.checked()?),
        LowBenchCommand::Chooser(_)
        | LowBenchCommand::Protection(_)
        | LowBenchCommand::Studies(_) => return Err(odd(words)),
    };
    let command = format!("haul bench {words} --dir {}", directory.display());
    Ok(StudyBench { command, plan })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_bench::requests::{BenchEngines, EnginesPart};

    fn studies(words: &[&str]) -> Result<LowBenchStudies, String> {
        let words = [&["haul", "bench", "studies"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Bench(low) => match low.command {
                LowBenchCommand::Studies(low) => Ok(low),
                other => panic!("not of studies: {other:?}"),
            },
            other => panic!("not a bench: {other:?}"),
        }
    }

    #[test]
    fn every_form_of_each_bench_is_one_that_a_user_could_type() {
        for form in [&[][..], &["--paper"], &["--quick"]] {
            let plan = studies(&[form, &["--dir=/data"]].concat()).unwrap().checked().unwrap();
            let commands: Vec<&str> =
                plan.benches.iter().map(|bench| bench.command.as_str()).collect();
            let of = |bench: &str| {
                let begin = format!("haul bench {bench} ");
                let is_it = |command: &&&str| command.starts_with(&begin);
                let found = commands.iter().filter(is_it).count();
                found == 1
            };
            assert!(
                ["engines", "files", "tuning", "media", "fabric"].into_iter().all(of),
                "{commands:?}"
            );
            assert!(commands.iter().all(|command| command.ends_with(" --dir /data")));
        }
        assert!(studies(&["--paper", "--quick"]).is_err());
    }

    #[test]
    fn only_the_benches_that_were_asked_for_run_and_engines_for_the_study_alone() {
        let plan = studies(&["--only=engines"]).unwrap().checked().unwrap();
        let [StudyBench { plan: StudyPlan::Engines(engines), .. }] = &plan.benches[..] else {
            panic!("not the engines alone: {plan:?}")
        };
        let BenchEngines { parts, .. } = &**engines;
        assert_eq!(parts, &[EnginesPart::Offsets]);
    }

    #[test]
    fn the_jvm_takes_part_where_its_program_is_named() {
        let plan = studies(&["--jar=haul.jar", "--quick"]).unwrap().checked().unwrap();
        let [.., StudyBench { plan: StudyPlan::Java(java), command }] = &plan.benches[..] else {
            panic!("without java: {plan:?}")
        };
        assert_eq!((java.rounds, &java.sizes[..]), (1, &[7_000_000][..]));
        assert_eq!(command, "java -jar haul.jar bench --rounds=1");
        let plan = studies(&["--jar=haul.jar", "--only=java"]).unwrap().checked().unwrap();
        assert_eq!(plan.benches.len(), 1);
        let plan = studies(&["--jar=haul.jar", "--only=engines"]).unwrap().checked().unwrap();
        assert!(!matches!(&plan.benches[..], [.., StudyBench { plan: StudyPlan::Java(_), .. }]));
        let error = studies(&["--only=java"]).unwrap().checked().unwrap_err().to_string();
        assert!(error.contains("needs --jar with haul.jar"), "{error}");
    }

    #[test]
    fn the_lines_stand_beside_the_page() {
        let output = studies(&["--report", "a/page.html"]).unwrap().output();
        assert_eq!(output.html.as_deref(), Some(Path::new("a/page.html")));
        assert_eq!(output.lines_file.as_deref(), Some(Path::new("a/page.json")));
        let same = studies(&["--report=x.json"]).unwrap().checked().unwrap_err().to_string();
        assert!(same.contains("--report page.html"), "{same}");
        let output = studies(&["--json"]).unwrap().output();
        assert!(output.json && output.html.is_none() && output.lines_file.is_none());
    }
}
