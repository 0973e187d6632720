//! What a transfer tells while it runs, and its final report. The names are those of `--json`.

use crate::{
    file_status::FileStatus,
    name::{Name, exact_path},
    problem::{Problem, Side},
};
use serde::Serialize;

/// One line of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A session is open.
    Session(SessionOpened),
    /// How far the transfer is, about once a second.
    Progress(Progress),
    /// A file is settled.
    File(FileEnded),
    /// Something other than what was chosen goes on: an engine, a stream, a size.
    Fallback {
        /// Where.
        side: Side,
        /// What was before and what is now, as `sendfile -> read-write`.
        from_to: String,
        /// Why.
        why: String,
    },
    /// A stream brought nothing for a while.
    Stall {
        /// The stage that the stream is in.
        stage: String,
        /// How long nothing came.
        seconds: f64,
        /// What is done about it.
        what: String,
    },
    /// The target has bytes of an earlier run.
    Resume {
        /// How many.
        bytes: u64,
        /// Where they come from.
        why: String,
    },
    /// With `--wait`: the server cannot be reached yet; it is tried for so long. Said once.
    Waiting {
        /// Host and port.
        server: String,
        /// How long it is tried.
        seconds: f64,
        /// Why the server cannot be reached.
        why: String,
    },
    /// The server is silent, its connection is lost, or it is back.
    Connection(Connection),
    /// How far the target is behind a file that is followed.
    Lag(Lag),
    /// A source is read again, to be compared with what was sent of it.
    Rereading {
        /// Name of the file.
        #[serde(flatten, serialize_with = "exact_path")]
        path: Name,
        /// Why it is read again.
        why: String,
    },
    /// With `--explain`: how each side, and the path, was chosen for.
    Explained(Explained),
    /// What is not moved, and is no failure: a FIFO, a device.
    LeftOut(Problem),
    /// Something failed and the transfer goes on, mostly one file.
    Error(Problem),
    /// The report, in a program's list of events; [`push`](crate::push) returns it instead.
    Report(Box<Report>),
}

/// A session that is open.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionOpened {
    /// Hexadecimal; the server's log shows the same.
    pub session: String,
    /// Host and port.
    pub server: String,
    /// Name and version of the server.
    pub server_software: String,
    /// Protection of the data streams: `safe` or `clear`.
    pub protection: String,
    /// Digest that verifies each span.
    pub digest: String,
    /// Data connections.
    pub streams: u32,
    /// Round-trip time in microseconds.
    pub rtt_us: u64,
}

/// How far a transfer is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Progress {
    /// Since the transfer began.
    pub seconds: f64,
    /// Received and verified in this run, and what was there from an earlier one.
    pub bytes_received: u64,
    /// Synced at the receiver, with what was there from an earlier run: a restart keeps these.
    pub bytes_durable: u64,
    /// Through this side's data sockets since the session began, what was sent again left out.
    pub bytes_on_wire: u64,
    /// Bytes of all files offered so far; grows while the sources are being listed.
    pub bytes_total: u64,
    /// The rate of the last interval.
    pub gbit_per_s: f64,
    /// Bytes of the last interval.
    pub interval_bytes: u64,
    /// Length of the last interval.
    pub interval_seconds: f64,
    /// `None` where this side only receives: the kernel of the other one counts them.
    pub retransmits: Option<u64>,
    /// Data connections that are open.
    pub streams: u32,
    /// Files and links, as in all three.
    pub files_done: u64,
    /// Those of this session that are done, were there already, or failed.
    pub files_settled: u64,
    /// Offered so far in this session.
    pub files_total: u64,
    /// Whether `bytes_total` and `files_total` grow no more.
    pub total_known: bool,
    /// One of the files under way, the one that was begun first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<Name>,
    /// The stage that held the interval back; missing while no stream is at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiting: Option<Limiting>,
    /// Share of the streams' time in the interval by stage, largest first; from both ends.
    pub stages: Vec<(String, f64)>,
}

/// State of the connection to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionState {
    /// The connection stands and nothing comes.
    Silent,
    /// There is no connection; another is tried.
    #[default]
    Lost,
    /// The server answers again.
    Back,
}

/// How it stands with the server. Told at once when it changes, and again while it is away.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// Change of the connection.
    pub state: ConnectionState,
    /// Host and port.
    pub server: String,
    /// Why.
    pub why: String,
    /// When the server was last there, in milliseconds since 1970.
    pub since_ms: u64,
    /// How long ago that was.
    pub seconds: f64,
    /// How long it is still waited for, until the run ends (`--retry-for`).
    pub seconds_left: f64,
}

/// The stage that held an interval back.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Limiting {
    /// Name of the stage.
    pub stage: String,
    /// Share of the streams' time in the interval, 0 to 1.
    pub share: f64,
    /// Why it is this one where another stage has a larger share.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// How far the target is behind a file that is sent while it is written. As good as the looks at
/// the file, some a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lag {
    /// Name of the file.
    #[serde(flatten, serialize_with = "exact_path")]
    pub path: Name,
    /// Written and not durable at the target.
    pub bytes: u64,
    /// How long ago the first of these bytes was written.
    pub seconds: f64,
}

/// A file that is settled.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FileEnded {
    /// Name of the file.
    #[serde(flatten, serialize_with = "exact_path")]
    pub path: Name,
    /// Outcome for the file.
    pub status: FileStatus,
    /// Length of the file.
    pub bytes: u64,
    /// Whether it is a directory.
    #[serde(skip)]
    pub is_directory: bool,
    /// Its name at the target, where something else has its own and stays.
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

/// Numbers of files, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileCounts {
    /// Regular files and links.
    pub done: u64,
    /// Directories that were made or are as they were sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub done_directories: u64,
    /// Regular files and links.
    pub skipped: u64,
    /// Directories that were there already.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_directories: u64,
    /// Whatever failed, directories included.
    pub failed: u64,
    /// FIFOs, sockets and devices.
    pub left_out: u64,
    /// Names at the target, with `--delete`; in a dry run those that would be.
    pub removed: u64,
    /// In a dry run: files and links that would be copied.
    pub planned: u64,
    /// In a dry run: directories that would be made.
    #[serde(skip_serializing_if = "is_zero")]
    pub planned_directories: u64,
}

/// `3 files and 2 directories`: links are counted as files, and directories only where there are
/// some.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SideCosts {
    /// Processor seconds (user and system) of this side's transfer threads per 10^9 moved bytes.
    pub cpu_s_per_gb: f64,
    /// The largest resident set of the process, in bytes.
    pub max_rss_bytes: u64,
}

/// The stage that limited a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Bottleneck {
    /// Name of the stage.
    pub stage: String,
    /// Share of the time that the streams were open, 0 to 1.
    pub share: f64,
    /// Why it is this one where another stage has a larger share.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// While the streams were open.
    pub gbit_per_s: f64,
    /// Most that this stage allows by itself; missing where its share does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most_gbit_per_s: Option<f64>,
    /// The stage with the next largest share. What it allows is not known.
    pub next_stage: String,
    /// Share of the next stage, 0 to 1.
    pub next_share: f64,
    /// One thing to do about it.
    pub remedy: String,
    /// All of it in a sentence.
    pub verdict: String,
}

/// The file system that a target writes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TargetRoom {
    /// Its type, such as `xfs`.
    pub file_system: String,
    /// `None` where the file system does not say.
    pub free_bytes: Option<u64>,
}

/// The outcome of reading back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RecheckReport {
    /// Bytes that were read back.
    pub bytes: u64,
    /// Bytes of these that were not as journaled: they were sent again.
    pub lost_bytes: u64,
    /// Wall time, beside the transfer.
    pub seconds: f64,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckVerdict {
    /// Nothing stands in the way.
    #[default]
    Ok,
    /// It works, and could be better.
    Warning,
    /// The transfer would fail, all or in part.
    Failed,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Name of the check, such as `space`.
    pub name: String,
    /// Its outcome.
    pub verdict: CheckVerdict,
    /// The finding, in words.
    pub found: String,
    /// Cure; empty: nothing is to be done.
    pub hint: String,
}

/// The manifest that was written, in the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ManifestReport {
    /// The file that holds it.
    pub path: Name,
    /// Lines in it.
    pub files: u64,
    /// Bytes that these files hold together.
    pub bytes: u64,
    /// Bytes of these that were read again at the end: this run did not move them.
    pub read_bytes: u64,
    /// Files in place without a line: they could not be read, or changed meanwhile.
    pub left_out: u64,
}

/// The last line: what was moved, how, and what limited it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Every file is in place and verified (or, with `--digest none`, in place).
    pub ok: bool,
    /// The sources as they were named, the first of several.
    pub from: Name,
    /// The place of the files now: a path here, or a URL without a token.
    pub to: Name,
    /// Bytes of the files that are in place now: moved, resumed and skipped.
    pub bytes: u64,
    /// Bytes of these that were there already and were not sent in this run.
    pub resumed_bytes: u64,
    /// Bytes of whole files that were skipped.
    pub skipped_bytes: u64,
    /// Files of the same size were compared by their bytes, not by their times.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub compared_content: bool,
    /// Bytes of these, and of `unfinished_bytes`, that this run brought.
    pub moved_bytes: u64,
    /// Bytes at the target of files that are not complete: the same request goes on behind them.
    /// Only in the report of a transfer that was interrupted or broke.
    #[serde(skip_serializing_if = "is_zero")]
    pub unfinished_bytes: u64,
    /// Nothing was written or removed; `files.planned` and `planned_bytes` say what would be.
    pub dry_run: bool,
    /// Bytes that a dry run would move.
    pub planned_bytes: u64,
    /// Checks of a preflight.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preflight: Vec<Check>,
    /// With a preflight: where the target writes; `None` for `null:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_room: Option<TargetRoom>,
    /// Sources that were removed once they were durable at the target (`--move`).
    pub sources_removed: u64,
    /// Wall time of the run.
    pub seconds: f64,
    /// Rate of the moved bytes.
    pub gbit_per_s: f64,
    /// Numbers of files, by outcome.
    pub files: FileCounts,
    /// Files and directories that were there already and got the source's mode, owner, time or
    /// extended attributes; in a dry run, those that would, as far as their inodes tell.
    #[serde(skip_serializing_if = "is_zero")]
    pub updated_attributes: u64,
    /// Protection of the data streams: `safe` or `clear`.
    pub protection: String,
    /// Digest that verified the bytes; `none` verified nothing.
    pub digest: String,
    /// Data connections.
    pub streams: u32,
    /// Bytes of a span, of the file with the largest.
    pub span_bytes: u64,
    /// Engine of the sending side.
    pub send_engine: String,
    /// Engine of the receiving side.
    pub receive_engine: String,
    /// Why these engines.
    pub chosen_because: String,
    /// Bytes that passed through user space or that the kernel copied, on both sides.
    pub copied_bytes: u64,
    /// Segments that TCP sent again.
    pub retransmits: u64,
    /// Spans that arrived damaged and were sent again.
    pub resent_spans: u64,
    /// Outages that were come back from, however many connections were tried in each.
    pub reconnections: u64,
    /// Without a connection, or with one on which the server was silent: no stage's time.
    #[serde(skip_serializing_if = "is_nothing")]
    pub seconds_without_server: f64,
    /// The most bytes that the target was behind a file that was followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_lag: Option<Lag>,
    /// Costs of the sending side.
    pub source: SideCosts,
    /// Costs of the receiving side.
    pub target: SideCosts,
    /// The stage that limited the transfer.
    pub bottleneck: Bottleneck,
    /// Share of the streams' time by stage, largest first.
    pub stages: Vec<(String, f64)>,
    /// How the target was read back from its disk before its files got their names; empty where
    /// that was not asked for, or nothing was written.
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

/// How one side, or the path between both, was chosen for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// The side, or the path.
    pub side: Side,
    /// Facts that the choice was made by.
    pub facts: Vec<String>,
    /// The best first; empty for the path.
    pub candidates: Vec<Candidate>,
    /// The choice, and why.
    pub because: Vec<String>,
}

/// An engine that suits the transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Candidate {
    /// Name of the engine.
    pub engine: String,
    /// The first that is usable is the choice; the others go on where it cannot.
    pub usable: bool,
    /// The work of the engine, or why it cannot be used.
    pub what: String,
}
