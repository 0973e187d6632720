//! Lines of a run's report: one about the run, then what it did, and last how it ended.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// Version of the reports; a reader refuses a later one.
pub const VERSION: u32 = 1;
/// Most bytes of a line that is read.
pub const LINE_BYTES_MAX: u64 = 256 << 10;

/// The first line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Version of the format.
    pub haul_run: u32,
    /// The plan's id.
    pub plan: String,
    pub shard: u32,
    pub of: u32,
    /// Number of the run among those of the shard, from 1.
    pub attempt: u32,
    /// Name of the machine that runs it.
    pub host: String,
    /// Number of that machine's boot; empty where it is not known.
    pub boot: String,
    pub pid: u32,
    /// Whether the run holds a lock of the file (flock(2)) until it ends.
    #[serde(default)]
    pub locked: bool,
    /// Name and version of the program.
    pub software: String,
    /// Target without its token.
    pub target: String,
    pub began_ms: u64,
}

/// Reads a line of a report, the first or one behind it, and writes it as it was understood. `None`
/// where it is none.
#[must_use]
pub fn line_again(text: &[u8]) -> Option<Vec<u8>> {
    if let Ok(head) = serde_json::from_slice::<Head>(text) {
        return serde_json::to_vec(&head).ok();
    }
    serde_json::to_vec(&serde_json::from_slice::<Line>(text).ok()?).ok()
}

/// A line behind the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    Interval(Interval),
    Failed(Problem),
    Ended(Box<Ended>),
    /// A line that a later haul has added.
    #[serde(other)]
    Unknown,
}

/// A time of the run, and the bytes that it brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds from the begin of the run to the end of the interval.
    pub at_s: f64,
    /// Length in seconds.
    pub seconds: f64,
    /// Bytes verified at the target.
    pub bytes: u64,
    /// Files and links that the run has put in place until then.
    pub files: u64,
    /// Stage that held the interval back; missing where none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limited_by: String,
}

/// The last line of a report that is whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Number of the lines before this one.
    pub lines: u64,
    /// Exit status of the run.
    pub status: u8,
    pub ended_ms: u64,
    /// Seconds from the begin of the run.
    pub at_s: f64,
    pub files: Files,
    /// Bytes of files in place at the target.
    pub bytes: u64,
    /// Bytes of these that the run brought.
    pub moved_bytes: u64,
    /// Bytes of whole files that were there before the run.
    pub skipped_bytes: u64,
    /// Failures that have no line of their own, as there were too many.
    pub failures_left_out: u64,
    /// Stage that limited the run; empty where none is known.
    pub limited_by: String,
    /// Verdict in a sentence.
    pub verdict: String,
    /// Thing to do about the stage.
    pub remedy: String,
    /// Error that ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}

/// Numbers of files and links, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Files and links that the run put in place.
    pub done: u64,
    /// Files and links that were there before the run.
    pub skipped: u64,
    /// Files and directories that failed.
    pub failed: u64,
    /// Entries of kinds that are not moved.
    pub left_out: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_later_haul_is_known_for_one() {
        let unknown = r#"{"event":"weather","sun":[1,2]}"#;
        assert_eq!(serde_json::from_str::<Line>(unknown).unwrap(), Line::Unknown);
        for line in [
            Line::Interval(Interval { limited_by: "disk".into(), ..Interval::default() }),
            Line::Failed(Problem::in_general("a", "b", "c", "d")),
            Line::Ended(Box::new(Ended { error: Some(Problem::default()), ..Ended::default() })),
        ] {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
            // Keys of a later haul are left alone.
            let more = text.replacen('{', r#"{"more":{},"#, 1);
            assert_eq!(serde_json::from_str::<Line>(&more).unwrap(), line, "{more}");
        }
    }
}
