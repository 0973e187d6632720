//! `haul bench` where it is not built in: says how to get it.

use crate::{
    args::{bench::LowBench, usage_problem},
    failure::{ExitStatus, Failure},
};

/// Refuses to run a bench.
///
/// # Errors
/// Always: says how to get a program that has benches.
pub fn run(_: &LowBench) -> Result<ExitStatus, Failure> {
    let what = "this haul was built without haul bench, which comes with `cargo install \
                --path crates/cli`";
    Err(usage_problem(what, "", "", "").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand};
    use clap::Parser;

    #[test]
    fn whatever_a_bench_is_asked_for_the_answer_is_one_sentence() {
        for words in [&["haul", "bench"][..], &["haul", "bench", "engines", "--quick", "--json"]] {
            let LowCommand::Bench(low) = LowArgs::try_parse_from(words).unwrap().command else {
                panic!("not a bench")
            };
            assert_eq!(low.json(), words.contains(&"--json"));
            let failure = run(&low).unwrap_err();
            assert_eq!(failure.status, ExitStatus::CouldNotStart);
            assert!(failure.words.contains("cargo install --path crates/cli"), "{}", failure.words);
        }
    }
}
