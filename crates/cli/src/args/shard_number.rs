//! The number of this run among those that a scheduler started alike.

use super::usage_problem;
use haul_transfer::{Part, Problem};

/// A variable in which a scheduler tells a run its number.
struct Told {
    variable: &'static str,
    /// Number of the first run.
    first: u32,
}

/// The variables of arrays of runs.
const ARRAYS: [Told; 4] = [
    Told { variable: "PARALLEL_SEQ", first: 1 },
    Told { variable: "HQ_TASK_ID", first: 1 },
    Told { variable: "JOB_COMPLETION_INDEX", first: 0 },
    Told { variable: "SLURM_ARRAY_TASK_ID", first: 1 },
];
/// The variable of a task of `srun`. A batch script without `srun` has it too, as 0, so it counts
/// where no other is there, or where the step has several tasks.
const TASK: Told = Told { variable: "SLURM_PROCID", first: 0 };
/// Number of the tasks of a step of Slurm.
const TASKS: &str = "SLURM_STEP_NUM_TASKS";

/// Reads `--part`: `K/N`, or `auto/N` where the scheduler tells the number.
///
/// # Errors
/// Says what a part is, or which variables were looked for.
pub fn parse_part(text: &str) -> Result<Part, Problem> {
    parse_part_with(text, &|name| std::env::var(name).ok())
}

fn parse_part_with(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Part, Problem> {
    let Some(count) = text.strip_prefix("auto/") else { return text.parse() };
    let number = number_of_run(environment)?;
    let count = count.parse::<u32>().map_err(|_| {
        usage_problem("cannot read the part", "auto/N, as auto/16", text, "N is how many run")
    })?;
    Part::new(number, count)
}

/// The shard that is asked for: its number, and how many there are where that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedShard {
    pub number: u32,
    pub count: Option<u32>,
}

/// Reads `--shard`: `auto`, where the scheduler tells the number, `K` or `K/N`.
///
/// # Errors
/// Says what a shard is, or which variables were looked for.
pub fn parse_shard(text: &str) -> Result<AskedShard, Problem> {
    parse_shard_with(text, &|name| std::env::var(name).ok())
}

fn parse_shard_with(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<AskedShard, Problem> {
    let (number, count) = text.split_once('/').map_or((text, None), |(k, n)| (k, Some(n)));
    let refused = |_| {
        usage_problem("cannot read the shard", "auto, K or K/N, as 2/16", text, "K begins at 1")
    };
    let count = count.map(str::parse).transpose().map_err(refused)?;
    let number = match number {
        "auto" => number_of_run(environment)?,
        number => number.parse().map_err(refused)?,
    };
    Ok(AskedShard { number, count })
}

/// Number of this run, counted from 1.
fn number_of_run(environment: &dyn Fn(&str) -> Option<String>) -> Result<u32, Problem> {
    let of = |told: &'static Told| Some((told, environment(told.variable)?));
    let mut found: Vec<_> = ARRAYS.iter().filter_map(of).collect();
    let is_one_of_several = environment(TASKS).is_some_and(|count| count != "1");
    if found.is_empty() || is_one_of_several {
        found.extend(of(&TASK));
    }
    let names = |of: &[&Told]| of.iter().map(|it| it.variable).collect::<Vec<_>>().join(", ");
    let (told, value) = match &found[..] {
        [one] => one,
        [] => {
            let all: Vec<_> = ARRAYS.iter().chain([&TASK]).collect();
            let needs = format!("one of {}", names(&all));
            let hint = "say the number itself, as 2/16";
            return Err(usage_problem(
                "no scheduler tells this run's number",
                &needs,
                "none",
                hint,
            ));
        }
        several => {
            let found = names(&several.iter().map(|(told, _)| *told).collect::<Vec<_>>());
            let what = "several schedulers tell this run a number";
            let hint = "say which counts, as 2/16 or by its variable: \"$SLURM_ARRAY_TASK_ID/16\"";
            return Err(usage_problem(what, "the number of one", &found, hint));
        }
    };
    let number = value.parse::<u32>().ok().filter(|number| *number >= told.first);
    number.map(|number| number - told.first + 1).ok_or_else(|| {
        let what = format!("cannot take the number in {}", told.variable);
        let needs = format!("a number from {} on", told.first);
        usage_problem(&what, &needs, value, "number the runs so, or say it as K/N")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, variables: &[(&str, &str)]) -> Result<String, String> {
        let environment = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let read = parse_part_with(text, &environment);
        read.map(|part| part.to_string()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn the_scheduler_tells_the_number_from_where_it_counts() {
        for (variable, first, last) in [
            ("PARALLEL_SEQ", "1", "16"),
            ("HQ_TASK_ID", "1", "16"),
            ("JOB_COMPLETION_INDEX", "0", "15"),
            ("SLURM_ARRAY_TASK_ID", "1", "16"),
            ("SLURM_PROCID", "0", "15"),
        ] {
            assert_eq!(part("auto/16", &[(variable, first)]).as_deref(), Ok("1/16"), "{variable}");
            assert_eq!(part("auto/16", &[(variable, last)]).as_deref(), Ok("16/16"), "{variable}");
        }
        assert_eq!(part("2/16", &[("SLURM_PROCID", "7")]).as_deref(), Ok("2/16"));
    }

    #[test]
    fn a_shard_is_a_number_with_or_without_how_many_there_are() {
        let shard = |text: &str, variables: &[(&str, &str)]| {
            let environment = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            parse_shard_with(text, &environment).map_err(|problem| problem.to_string())
        };
        let is = |number, count| Ok(AskedShard { number, count });
        let third = [("SLURM_PROCID", "2")];
        assert_eq!(shard("2", &third), is(2, None));
        assert_eq!(shard("2/16", &third), is(2, Some(16)));
        assert_eq!(shard("auto", &third), is(3, None));
        assert_eq!(shard("auto/4", &third), is(3, Some(4)));
        assert!(shard("auto", &[]).unwrap_err().contains("SLURM_PROCID"));
        for text in ["", "x", "1/x", "-1", "1/2/3"] {
            assert!(shard(text, &[]).unwrap_err().contains("K/N"), "{text}");
        }
    }

    #[test]
    fn of_several_numbers_none_is_guessed() {
        let array = ("SLURM_ARRAY_TASK_ID", "3");
        // The batch script of an array's task, or its one task.
        let batch = [("SLURM_PROCID", "0"), array];
        assert_eq!(part("auto/4", &batch).as_deref(), Ok("3/4"));
        let one = [batch[0], array, ("SLURM_STEP_NUM_TASKS", "1")];
        assert_eq!(part("auto/4", &one).as_deref(), Ok("3/4"));
        let tasks = [("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(part("auto/4", &tasks).as_deref(), Ok("3/4"));
        for both in [
            [tasks[0], tasks[1], array],
            [("PARALLEL_SEQ", "2"), array, batch[0]],
            [("HQ_TASK_ID", "2"), ("PARALLEL_SEQ", "2"), batch[0]],
        ] {
            let refused = part("auto/4", &both).unwrap_err();
            assert!(refused.contains("several schedulers"), "{refused}");
        }
    }

    #[test]
    fn a_number_that_is_none_or_not_there_is_told() {
        let none = part("auto/4", &[]).unwrap_err();
        assert!(none.contains("SLURM_ARRAY_TASK_ID") && none.contains("as 2/16"), "{none}");
        let zero = part("auto/4", &[("SLURM_ARRAY_TASK_ID", "0")]).unwrap_err();
        assert!(zero.contains("SLURM_ARRAY_TASK_ID") && zero.contains("from 1 on"), "{zero}");
        assert!(part("auto/4", &[("SLURM_PROCID", "4")]).unwrap_err().contains("5/4"));
        assert!(part("auto/x", &[("SLURM_PROCID", "0")]).unwrap_err().contains("auto/16"));
    }
}
