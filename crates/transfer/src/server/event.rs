//! Events of a running server, of which each is a line of its log.

use crate::{
    events::{FileCounts, FileEnded, files_and_directories},
    problem::Problem,
};
use serde::Serialize;

/// An event of a running server; one line of `haul serve --json` each.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServerEvent {
    /// A client was let in.
    Session {
        /// Number of the session, hexadecimal; the client shows the same.
        session: String,
        /// Address and port of the client.
        peer: String,
        /// `pushes to`, `pulls` or `probe`.
        direction: String,
        /// Number that names the token in lists.
        token: String,
        /// Paths that the client asked for.
        path: String,
    },
    /// A file is settled.
    File {
        /// Number of the session.
        session: String,
        /// The file.
        #[serde(flatten)]
        file: FileEnded,
    },
    /// Something failed and the session goes on.
    Error {
        /// Number of the session.
        session: String,
        /// The problem: what failed, and what to do.
        #[serde(flatten)]
        problem: Problem,
    },
    /// Something other than what was chosen goes on, such as an engine.
    Fallback {
        /// Number of the session.
        session: String,
        /// The change: what was before and what is now.
        from_to: String,
        /// The reason of the change.
        why: String,
    },
    /// A session has ended.
    SessionEnded {
        /// Number of the session.
        session: String,
        /// Address and port of the client.
        peer: String,
        /// Whether all was done, and no file failed.
        ok: bool,
        /// Whether nothing was written or removed.
        dry_run: bool,
        /// Bytes that came in this session, and are as they were sent.
        bytes: u64,
        /// Seconds that the session took.
        seconds: f64,
        /// Outcomes of the session's files, counted.
        files: FileCounts,
        /// The reason why it ended early; empty: it did not.
        why: String,
    },
    /// SIGHUP came, and changes nothing: tokens are read at each use.
    Hangup,
    /// A connection that was not let in, or several of one address.
    Refused {
        /// Address and port of the peer, or only the address of several refusals.
        peer: String,
        /// The reason why it was refused.
        why: String,
        /// Number of refusals that this stands for.
        times: u64,
    },
}

impl std::fmt::Display for ServerEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short = |session: &String| session.get(..8).unwrap_or(session).to_owned();
        match self {
            Self::Session { session, peer, direction, token, path } => {
                let session = short(session);
                write!(f, "[{session}] {peer} {direction} {path:?} with token {token}")
            }
            Self::File { session, file } => {
                let status = file.status.name();
                write!(f, "[{}] {status} {} ({} bytes)", short(session), file.path, file.bytes)
            }
            Self::Error { session, problem } => write!(f, "[{}] {problem}", short(session)),
            Self::Fallback { session, from_to, why } => {
                write!(f, "[{}] {from_to}: {why}", short(session))
            }
            Self::SessionEnded { session, peer, ok, dry_run, bytes, seconds, files, why } => {
                let end = if *ok { "finished" } else { "ended" };
                let FileCounts { skipped, skipped_directories, failed, removed, .. } = files;
                let skipped = match skipped_directories {
                    0 => skipped.to_string(),
                    directories => files_and_directories(*skipped, *directories),
                };
                write!(f, "[{}] {end}: {bytes} bytes in {seconds:.2} s, ", short(session))?;
                if *dry_run {
                    let planned = files_and_directories(files.planned, files.planned_directories);
                    write!(f, "dry run, nothing was changed: {planned} would be copied, ")?;
                    write!(f, "{skipped} skipped, {failed} failed")?;
                } else {
                    let done = files_and_directories(files.done, files.done_directories);
                    write!(f, "{done} done, {skipped} skipped, {failed} failed")?;
                }
                if *removed > 0 {
                    write!(f, ", {removed} removed")?;
                }
                if why.is_empty() { Ok(()) } else { write!(f, " ({peer}: {why})") }
            }
            Self::Hangup => {
                f.write_str("SIGHUP: nothing to read again, tokens are read at each use")
            }
            Self::Refused { peer, why, .. } => write!(f, "refused {peer}: {why}"),
        }
    }
}
