//! Events that a transfer tells while it runs, and its final report. The names are those of
//! `--json`.

use crate::{
    file_status::FileStatus,
    name::{Name, exact_path, read_exact_path},
    problem::{Problem, Side},
};
use serde::{Deserialize, Serialize};

/// Event of a transfer, one line of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A session is open.
    Session(SessionOpened),
    /// Progress of the transfer, about once a second.
    Progress(Progress),
    /// A file is settled.
    File(FileEnded),
    /// A fallback: another engine, stream or size than the chosen one is used from here on.
    Fallback {
        /// Side on which it is used.
        side: Side,
        /// Name of what was before and of what is now, as `sendfile -> read-write`.
        from_to: String,
        /// Reason for the change.
        why: String,
    },
    /// A stream brought nothing for a while.
    Stall {
        /// Stage that the stream is in.
        stage: String,
        /// Time without a byte, in seconds.
        seconds: f64,
        /// Action that is taken about it.
        what: String,
    },
    /// The target has bytes of an earlier run.
    Resume {
        /// Number of the bytes that are there.
        bytes: u64,
        /// Run or place that the bytes come from.
        why: String,
    },
    /// The server cannot be reached yet and is tried again (`--wait`). Said once.
    Waiting {
        /// Host and port of the server.
        server: String,
        /// Time for which the server is tried, in seconds.
        seconds: f64,
        /// Reason why the server cannot be reached.
        why: String,
    },
    /// The server is silent, its connection is lost, or it is back.
    Connection(Connection),
    /// Distance of the target behind a file that is followed.
    Lag(Lag),
    /// A source is read again, to be compared with what was sent of it.
    Rereading {
        /// Name of the file.
        #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
        path: Name,
        /// Reason why the source is read again.
        why: String,
    },
    /// Explanation of how each side, and the path, was chosen for (`--explain`).
    Explained(Explained),
    /// An entry that is not moved, and is no failure: a FIFO, a device.
    LeftOut(Problem),
    /// A failure, mostly of one file, after which the transfer goes on.
    Error(Problem),
    /// Report of the transfer, in a program's list of events; [`push`](crate::push) returns it
    /// instead.
    Report(Box<Report>),
}

/// A session that is open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SessionOpened {
    /// Number of the session in hexadecimal; the server's log shows the same.
    pub session: String,
    /// Host and port of the server.
    pub server: String,
    /// Name and version of the server.
    pub server_software: String,
    /// Protection of the data streams: `private`, `safe` or `clear`.
    pub protection: String,
    /// Digest that verifies each span.
    pub digest: String,
    /// Number of data connections.
    pub streams: u32,
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
}

/// Progress of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Progress {
    /// Seconds since the transfer began.
    pub seconds: f64,
    /// Bytes received and verified in this run, with what was there from an earlier one.
    pub bytes_received: u64,
    /// Bytes synced at the receiver, with what was there from an earlier run: a restart keeps
    /// these.
    pub bytes_durable: u64,
    /// Bytes through this side's data sockets since the session began, without those sent again.
    pub bytes_on_wire: u64,
    /// Bytes of all files offered so far; grows while the sources are being listed.
    pub bytes_total: u64,
    /// Rate of the last interval.
    pub gbit_per_s: f64,
    /// Bytes of the last interval.
    pub interval_bytes: u64,
    /// Length of the last interval, in seconds.
    pub interval_seconds: f64,
    /// Segments that TCP sent again; `None` where this side only receives, for the kernel of the
    /// other one counts them.
    pub retransmits: Option<u64>,
    /// Number of data connections that are open.
    pub streams: u32,
    /// Files and links that are done in this run.
    pub files_done: u64,
    /// Files and links of this session that are done, were there already, or failed.
    pub files_settled: u64,
    /// Files and links that were offered so far in this session.
    pub files_total: u64,
    /// Whether `bytes_total` and `files_total` grow no more.
    pub total_known: bool,
    /// Name of one of the files under way, the one that was begun first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Name>,
    /// Stage that held the interval back; missing while no stream is at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiting: Option<Limiting>,
    /// Share of the streams' time in the interval by stage, largest first; from both ends.
    pub stages: Vec<(String, f64)>,
}

/// State of the connection to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// The connection stands and nothing comes.
    Silent,
    /// The connection is lost; another is tried.
    #[default]
    Lost,
    /// The server answers again.
    Back,
}

/// Change of the connection to the server. Told at once when it changes, and again while it is
/// away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Connection {
    /// State of the connection now.
    pub state: ConnectionState,
    /// Host and port of the server.
    pub server: String,
    /// Reason for the change.
    pub why: String,
    /// Time when the server was last there, in milliseconds since 1970.
    pub since_ms: u64,
    /// Seconds since the server was last there.
    pub seconds: f64,
    /// Seconds for which the server is still waited for, until the run ends (`--retry-for`).
    pub seconds_left: f64,
}

/// Stage that held an interval back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limiting {
    /// Name of the stage.
    pub stage: String,
    /// Share of the streams' time in the interval, 0 to 1.
    pub share: f64,
    /// Reason for this stage where another one has a larger share.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// Distance of the target behind a file that is sent while it is written. As good as the looks at
/// the file, several a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Lag {
    /// Name of the file.
    #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
    pub path: Name,
    /// Bytes that are written and not durable at the target.
    pub bytes: u64,
    /// Seconds since the first of these bytes was written.
    pub seconds: f64,
}

/// A file that is settled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileEnded {
    /// Name of the file.
    #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
    pub path: Name,
    /// Outcome for the file.
    pub status: FileStatus,
    /// Length of the file.
    pub bytes: u64,
    /// Whether the entry is a directory.
    #[serde(skip)]
    pub is_directory: bool,
    /// Name of the file at the target, where something else has its own and stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored_as: Option<Name>,
}

impl FileEnded {
    /// A file of this length that has its own name at the target.
    #[must_use]
    pub fn new(path: Vec<u8>, status: FileStatus, bytes: u64) -> Self {
        Self { path: Name(path), status, bytes, is_directory: false, stored_as: None }
    }
}

/// Numbers of files, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct FileCounts {
    /// Regular files and links that are in place and verified.
    pub done: u64,
    /// Directories that were made or are as they were sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub done_directories: u64,
    /// Regular files and links that were there already.
    pub skipped: u64,
    /// Directories that were there already.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_directories: u64,
    /// Files and directories that failed.
    pub failed: u64,
    /// FIFOs, sockets and devices that were left out.
    pub left_out: u64,
    /// Names at the target that were removed by `--delete`, or would be in a dry run.
    pub removed: u64,
    /// Files and links that a dry run would copy.
    pub planned: u64,
    /// Directories that a dry run would make.
    #[serde(skip_serializing_if = "is_zero")]
    pub planned_directories: u64,
}

/// Number of files and of directories in words: `3 files and 2 directories`. Links are counted as
/// files, and directories only where there are some.
#[must_use]
pub fn files_and_directories(files: u64, directories: u64) -> String {
    let files_text = match files {
        1 => "1 file".to_owned(),
        several => format!("{several} files"),
    };
    let directories_text = match directories {
        0 => return files_text,
        1 => "1 directory".to_owned(),
        several => format!("{several} directories"),
    };
    if files == 0 { directories_text } else { format!("{files_text} and {directories_text}") }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_nothing(seconds: &f64) -> bool {
    *seconds <= 0.0
}

/// Costs of a transfer on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SideCosts {
    /// Processor seconds (user and system) of this side's transfer threads per 10^9 moved bytes.
    pub cpu_s_per_gb: f64,
    /// Largest resident set of the process, in bytes.
    pub max_rss_bytes: u64,
}

/// Stage that limited a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Bottleneck {
    /// Name of the stage.
    pub stage: String,
    /// Share of the time that the streams were open, 0 to 1.
    pub share: f64,
    /// Reason for this stage where another one has a larger share.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// Rate while the streams were open.
    pub gbit_per_s: f64,
    /// Most that this stage allows by itself; missing where its share does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_gbit_per_s: Option<f64>,
    /// Name of the stage with the next largest share. What it allows is not known.
    pub next_stage: String,
    /// Share of the next stage, 0 to 1.
    pub next_share: f64,
    /// Remedy: one thing to do about the stage.
    pub remedy: String,
    /// Verdict in a sentence, with all of the above.
    pub verdict: String,
}

/// File system that a target writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TargetRoom {
    /// Type of the file system, such as `xfs`.
    pub file_system: String,
    /// Free bytes; `None` where the file system does not say.
    pub free_bytes: Option<u64>,
}

/// Outcome of reading back what an earlier run left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RecheckReport {
    /// Bytes that were read back.
    pub bytes: u64,
    /// Bytes read back that were not as journaled and were sent again.
    pub lost_bytes: u64,
    /// Wall time of reading back in seconds, beside the transfer.
    pub seconds: f64,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// The check found nothing in the way.
    #[default]
    Ok,
    /// The check found what works, and could be better.
    Warning,
    /// The transfer would fail, all or in part.
    Failed,
}

/// A check, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Check {
    /// Name of the check, such as `space`.
    pub name: String,
    /// Outcome of the check.
    pub verdict: CheckVerdict,
    /// Finding of the check, in words.
    pub found: String,
    /// Cure; empty where nothing is to be done.
    pub hint: String,
}

/// The manifest that was written, in the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ManifestReport {
    /// Path of the file that holds the manifest.
    pub path: Name,
    /// Number of lines.
    pub files: u64,
    /// Bytes that the files of the manifest hold together.
    pub bytes: u64,
    /// Bytes that were read again at the end for the manifest: this run did not move them.
    pub read_bytes: u64,
    /// Files in place without a line: they could not be read, or changed meanwhile.
    pub left_out: u64,
}

/// RDMA endpoints that data went by: what both sides' did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RdmaReport {
    /// Provider of libfabric, such as `verbs`.
    pub provider: String,
    /// Endpoints of the sending side.
    pub source: RdmaSource,
    /// Endpoints of the receiving side.
    pub target: RdmaTarget,
}

/// RDMA endpoints of a sending side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RdmaSource {
    /// Port of the card, as libfabric names it.
    pub port: String,
    /// Number of streams that had endpoints.
    pub streams: u32,
    /// Bytes that were sent out of the page cache, by windows on the files.
    pub window_bytes: u64,
    /// Bytes that were copied into a buffer to be sent: small files, pages that could not be
    /// registered, headers and trailers.
    pub buffered_bytes: u64,
    /// Number of windows that were registered.
    pub windows: u64,
    /// Number of regions of memory that were registered: windows and buffers.
    pub registrations: u64,
    /// Seconds that registering took, failed attempts included.
    pub registering_seconds: f64,
    /// Times that a stream waited for the receiver's buffers.
    pub waits_for_room: u64,
    /// Reason why pages of files could not be registered; empty where all could.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refused: String,
}

/// RDMA endpoints of a receiving side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RdmaTarget {
    /// Port of the card, as libfabric names it.
    pub port: String,
    /// Number of streams that had endpoints.
    pub streams: u32,
    /// Bytes that were written past the page cache, out of the memory that they came into.
    pub direct_bytes: u64,
    /// Bytes that were written by way of the page cache; small files in packs are not counted.
    pub cached_bytes: u64,
    /// Number of regions of memory that were registered: buffers.
    pub registrations: u64,
    /// Seconds that registering took.
    pub registering_seconds: f64,
}

/// Streams that had one local end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LocalEndReport {
    /// Address of this host.
    pub address: String,
    /// Streams from there, those that were replaced too.
    pub streams: u32,
    /// Bytes that they moved, with what goes round the data.
    pub bytes: u64,
    /// Rate over the time of the transfer, in Gbit/s.
    pub gbit_per_s: f64,
}

/// Speed of data that ssh carried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct SshReport {
    /// Rate through ssh while streams were open, in Gbit/s.
    pub gbit_per_s: f64,
    /// Guess at the rate without ssh, in Gbit/s: what the work of both ends allows, over a network
    /// that carries as much, and no more than `--bwlimit`.
    pub without_gbit_per_s: f64,
}

/// Report of a transfer, its last line: what was moved, how, and what limited it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Report {
    /// Whether every file is in place and verified (or, with `--digest none`, in place).
    pub ok: bool,
    /// Names of the sources as the user gave them, the first of several.
    pub from: Name,
    /// Place of the files now: a path here, or a URL without a token.
    pub to: Name,
    /// Bytes of the files that are in place now: moved, resumed and skipped.
    pub bytes: u64,
    /// Bytes of the files in place that were there already and were not sent in this run.
    pub resumed_bytes: u64,
    /// Bytes of whole files that were skipped.
    pub skipped_bytes: u64,
    /// Whether files of the same size were compared by their bytes, not by their times.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compared_content: bool,
    /// Bytes of the files in place, and of `unfinished_bytes`, that this run brought.
    pub moved_bytes: u64,
    /// Bytes at the target of files that are not complete: the same request goes on behind them.
    /// Only in the report of a transfer that was interrupted or broke.
    #[serde(skip_serializing_if = "is_zero")]
    pub unfinished_bytes: u64,
    /// Whether it was a dry run: nothing was written or removed, and `files.planned` and
    /// `planned_bytes` say what would be.
    pub dry_run: bool,
    /// Bytes that a dry run would move.
    pub planned_bytes: u64,
    /// Checks of a preflight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preflight: Vec<Check>,
    /// Place where the target writes, with a preflight; `None` for `null:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_room: Option<TargetRoom>,
    /// Number of sources that were removed once they were durable at the target (`--move`).
    pub sources_removed: u64,
    /// Wall time of the run, in seconds.
    pub seconds: f64,
    /// Rate of the moved bytes.
    pub gbit_per_s: f64,
    /// Numbers of files, by outcome.
    pub files: FileCounts,
    /// Files and directories that were there already and got the source's mode, owner, time or
    /// extended attributes; in a dry run, those that would, as far as their inodes tell.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_attributes: u64,
    /// Protection of the data streams: `private`, `safe` or `clear`.
    pub protection: String,
    /// Digest that verified the bytes; `none` verified nothing.
    pub digest: String,
    /// Number of data connections.
    pub streams: u32,
    /// Bytes of a span, of the file with the largest.
    pub span_bytes: u64,
    /// Engine of the sending side.
    pub send_engine: String,
    /// Engine of the receiving side.
    pub receive_engine: String,
    /// Reason for these engines.
    pub chosen_because: String,
    /// Bytes that passed through user space or that the kernel copied, on both sides.
    pub copied_bytes: u64,
    /// Segments that TCP sent again.
    pub retransmits: u64,
    /// Spans that arrived damaged and were sent again.
    pub resent_spans: u64,
    /// Outages that were come back from, however many connections were tried in each.
    pub reconnections: u64,
    /// Seconds without a connection, or with one on which the server was silent: no stage's time.
    #[serde(skip_serializing_if = "is_nothing")]
    pub seconds_without_server: f64,
    /// Largest distance of the target behind a file that was followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_lag: Option<Lag>,
    /// Costs of the sending side.
    pub source: SideCosts,
    /// Costs of the receiving side.
    pub target: SideCosts,
    /// RDMA endpoints that data went by (`--fabric`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<RdmaReport>,
    /// Reason why data went by TCP, all or in part, though RDMA was asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tcp_because: String,
    /// Proxy by which the connections went, without its login; empty where they went directly.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub proxy: String,
    /// Way of the connections in words, where they were not made to the server's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub way: String,
    /// Speed through ssh and, as a guess, without it, where ssh carried the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshReport>,
    /// Streams by the local end that they had, where the user has named some (`--bind`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub local_ends: Vec<LocalEndReport>,
    /// The stage that limited the transfer.
    pub bottleneck: Bottleneck,
    /// Share of the streams' time by stage, largest first.
    pub stages: Vec<(String, f64)>,
    /// Way in which the target was read back from its disk before its files got their names; empty
    /// where that was not asked for, or nothing was written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub read_back: String,
    /// Result of reading back what an earlier run left at the target: after a restart of the
    /// target's host, or with `--recheck`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck: Option<RecheckReport>,
    /// The manifest, where one was asked for and written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<ManifestReport>,
}

/// Explanation of how one side, or the path between both, was chosen for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Explained {
    /// Side that is explained, or the path.
    pub side: Side,
    /// Facts that the choice was made by.
    pub facts: Vec<String>,
    /// Engines that suit the transfer, the best first; empty for the path.
    pub candidates: Vec<Candidate>,
    /// Sentences with the choice, and why.
    pub because: Vec<String>,
}

/// An engine that suits the transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Candidate {
    /// Name of the engine.
    pub engine: String,
    /// Whether the engine can be used here; the first usable one is the choice, and the others go
    /// on where it cannot.
    pub usable: bool,
    /// The work of the engine, or why it cannot be used.
    pub what: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_told_is_read_as_it_was() {
        let status = FileStatus::WouldReplace;
        let file = FileEnded::new(b"na\xffme".to_vec(), status, u64::MAX);
        let stored = FileEnded { stored_as: Some(Name(b"x.1".to_vec())), ..file.clone() };
        let lag = Lag { path: Name(b"a".to_vec()), bytes: 3, seconds: 0.5 };
        let problem = Problem {
            path: Name(b"\xfe/x".to_vec()),
            side: Side::Target,
            ..Problem::in_general("what", "needs", "", "hint")
        };
        let report = Report {
            ok: true,
            largest_lag: Some(lag.clone()),
            stages: vec![("sync".into(), 0.25)],
            preflight: vec![Check::default()],
            rdma: Some(RdmaReport::default()),
            recheck: Some(RecheckReport::default()),
            manifest: Some(ManifestReport::default()),
            target_room: Some(TargetRoom::default()),
            unfinished_bytes: 7,
            ..Report::default()
        };
        let limiting = Limiting { stage: "disk".into(), share: 0.1, because: "x".into() };
        let progress = Progress { limiting: Some(limiting), ..Progress::default() };
        let (path, why) = (Name(b"p".to_vec()), String::from("why"));
        for event in [
            Event::Session(SessionOpened::default()),
            Event::Progress(progress),
            Event::File(file),
            Event::File(stored),
            Event::Fallback { side: Side::Path, from_to: "a -> b".into(), why: why.clone() },
            Event::Stall { stage: "disk".into(), seconds: 1.5, what: "x".into() },
            Event::Resume { bytes: 5, why: why.clone() },
            Event::Waiting { server: "h:1".into(), seconds: 2.0, why: why.clone() },
            Event::Connection(Connection::default()),
            Event::Lag(lag),
            Event::Rereading { path, why },
            Event::Explained(Explained {
                candidates: vec![Candidate::default()],
                ..Explained::default()
            }),
            Event::LeftOut(problem.clone()),
            Event::Error(problem),
            Event::Report(Box::new(report)),
        ] {
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
        }
        let newer = r#"{"event":"resume","bytes":1,"why":"","more":[1]}"#;
        assert!(serde_json::from_str::<Event>(newer).is_ok());
        assert!(serde_json::from_str::<Event>(r#"{"event":"unknown"}"#).is_err());
    }
}
