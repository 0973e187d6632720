//! `haul ls`: lists what a server has, or a machine that ssh reaches.

use super::other_side::{self, Asked, Reached};
use crate::{
    args::ls::LowLs,
    failure::{ExitStatus, Failure},
    interrupt,
    ssh::Purpose,
    ui,
};
use haul_transfer::{
    Entry, EntryKind, Name,
    internals::{exact_path, is_unseen},
};
use serde::Serialize;
use std::time::Duration;

/// Lists what is at a path of a server.
///
/// # Errors
/// If the server cannot be asked, or nothing is at that path.
pub fn run(low: &LowLs) -> Result<ExitStatus, Failure> {
    let (side, depth) = low.checked()?;
    let interrupt = interrupt::on_signals()?;
    let asked = Asked { purpose: Purpose::List, removes: false, retry_for: Duration::ZERO };
    let token_file = low.token_file.as_deref();
    let Reached { urls, connect, held: _held } =
        other_side::reach(side, token_file, asked, low.connections.checked(), &interrupt)?;
    let url = &urls[0];
    let path = url.path.strip_suffix(b"/").unwrap_or(&url.path);
    let own = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
    let mut tell = |mut entry: Entry| {
        let is_itself = entry.name.0.is_empty();
        if is_itself && entry.kind == EntryKind::Directory {
            return;
        }
        if is_itself {
            entry.name = Name(own.clone());
        }
        if low.json {
            ui::json::print(&EntryLine::of(entry));
        } else {
            ui::print_to_stdout(&text(&entry));
        }
    };
    let failed = haul_transfer::list(url, depth, &connect, &interrupt, &mut tell)?;
    for problem in &failed {
        ui::print_to_stderr(&problem.to_string());
        if low.json {
            ui::json::print_error(problem);
        }
    }
    Ok(if failed.is_empty() { ExitStatus::AllDone } else { ExitStatus::SomeFailed })
}

/// An entry as a line of `--json`.
#[derive(Debug, Serialize)]
struct EntryLine {
    event: &'static str,
    #[serde(flatten, serialize_with = "exact_path")]
    path: Name,
    kind: &'static str,
    bytes: u64,
    modified: String,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_target: Option<Name>,
}

impl EntryLine {
    fn of(entry: Entry) -> Self {
        let is_link = entry.kind == EntryKind::Symlink;
        Self {
            event: "entry",
            kind: match entry.kind {
                EntryKind::Directory => "directory",
                EntryKind::Symlink => "link",
                _ => "file",
            },
            bytes: entry.size_bytes,
            modified: utc(entry.modified),
            mode: format!("{:04o}", entry.mode),
            link_target: is_link.then_some(entry.link_target),
            path: entry.name,
        }
    }
}

fn text(entry: &Entry) -> String {
    let bytes = match entry.kind {
        EntryKind::Directory | EntryKind::Symlink => "-".to_owned(),
        _ => entry.size_bytes.to_string(),
    };
    let behind = match entry.kind {
        EntryKind::Directory => "/".to_owned(),
        EntryKind::Symlink => format!(" -> {}", escaped(&entry.link_target.0)),
        _ => String::new(),
    };
    // To the second: a column of one width.
    let time = utc((entry.modified.0, 0));
    format!("{bytes:>15}  {time:>20}  {}{behind}", escaped(&entry.name.0))
}

/// Escapes a name so that no other is shown alike: with `\\` for a backslash, and what is no text
/// by its number.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || is_unseen(character) || character == '\\' {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// A time as RFC 3339 has it, in UTC; `-` for one that no calendar has.
fn utc((seconds, nanoseconds): (i64, u32)) -> String {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    let time = jiff::Timestamp::new(seconds, nanoseconds);
    time.map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::filled;

    #[test]
    fn a_line_has_columns_and_shows_no_control_character() {
        let entry = |kind, name: &[u8]| {
            filled!(Entry {
                name: Name(name.to_vec()),
                kind,
                size_bytes: 1234,
                modified: (0, 5),
                mode: 0o644,
                link_target: Name(b"over\x1bthere".to_vec()),
                ..Entry::default()
            })
        };
        let file = text(&entry(EntryKind::File, b"a b"));
        assert_eq!(file, "           1234  1970-01-01T00:00:00Z  a b");
        let directory = text(&entry(EntryKind::Directory, b"d\n"));
        assert_eq!(directory, "              -  1970-01-01T00:00:00Z  d\\n/");
        let names = [&b"a\nb"[..], b"a\\nb", b"\xff", b"\xfe", b"\\xff", "\u{fffd}".as_bytes()];
        let shown: std::collections::BTreeSet<_> = names.iter().map(|name| escaped(name)).collect();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
        assert!(text(&entry(EntryKind::Symlink, b"l")).ends_with("l -> over\\u{1b}there"));
        assert_eq!(escaped("a\u{202e}b\u{61c}".as_bytes()), "a\\u{202e}b\\u{61c}");
        assert_eq!(utc((i64::MAX, 0)), "-");
    }
}
