//! The notation of a stored host: `README.md` beside this file shows it.

use std::{fmt, path::Path};

use haul_host::tune::{Role, Wanted};

use super::expansion;

/// The beginning of each line of a block.
const BLOCK: &str = "  |";
const GOAL: &str = "goal:";

/// A fault of a stored host, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    pub line: usize,
    pub words: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.words)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Writable,
    /// A file without a mode for writing, for root, too.
    ReadOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    Somewhere,
    /// A link whose target is meant to be missing.
    Nowhere,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Bytes(Vec<u8>, Mode),
    Link(String, Leads),
    Directory,
    /// A program's output, or `! ` and its words when it fails.
    Answer(String),
}

/// A thing of a host, written in a line of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub line: usize,
    /// The name of the thing: a path, or a command and its words.
    pub name: String,
    pub content: Content,
}

#[derive(Debug)]
pub struct StoredHost {
    pub name: String,
    pub wanted: Wanted,
    pub entries: Vec<Entry>,
}

/// The lines of a host that have not been read yet.
struct Lines<'text> {
    rest: std::iter::Peekable<std::iter::Enumerate<std::str::Lines<'text>>>,
}

impl Lines<'_> {
    /// The block that begins at the next line, as the text of a file.
    fn block(&mut self) -> Result<String, String> {
        let mut text = String::new();
        while let Some((_, line)) = self.rest.next_if(|(_, line)| line.starts_with(BLOCK)) {
            let line = &line[BLOCK.len()..];
            for line in expansion::lines(line.strip_prefix(' ').unwrap_or(line))? {
                text.push_str(&line);
                text.push('\n');
            }
        }
        if text.is_empty() {
            return Err(format!("needs lines that begin with {BLOCK:?} below it"));
        }
        Ok(text)
    }
}

/// Reads the text of the file `file`.
pub fn read(file: &str, text: &str) -> Result<StoredHost, Fault> {
    let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut lines = Lines { rest: text.lines().enumerate().peekable() };
    let mut wanted = None;
    let mut entries = Vec::new();
    while let Some((index, line)) = lines.rest.next() {
        let fault = |words| Fault { file: file.to_owned(), line: index + 1, words };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(words) = line.strip_prefix(GOAL) {
            if wanted.is_some() {
                return Err(fault("has a second goal".to_owned()));
            }
            wanted = Some(goal(words).map_err(fault)?);
            continue;
        }
        for (name, content) in entry(line, &mut lines).map_err(fault)? {
            entries.push(Entry { line: index + 1, name, content });
        }
    }
    let words = format!("needs a line such as `{GOAL} dtn card=eth0 rtt=80 rate=100G`");
    let wanted = wanted.ok_or(Fault { file: file.to_owned(), line: 1, words })?;
    Ok(StoredHost { name, wanted, entries })
}

fn goal(words: &str) -> Result<Wanted, String> {
    let mut words = words.split_whitespace();
    let role = match words.next() {
        Some("dtn") => Role::Dtn,
        Some("test-host") => Role::TestHost,
        Some("media") => Role::Media,
        other => return Err(format!("has the role {other:?}: dtn, test-host or media")),
    };
    let mut wanted = Wanted { role, ..Wanted::default() };
    for word in words {
        let wrong = || format!("has {word:?}: card=NAME, rtt=MILLISECONDS or rate=GIGABITSG");
        match word.split_once('=').ok_or_else(wrong)? {
            ("card", name) => wanted.card = Some(name.to_owned()),
            ("rtt", number) => wanted.rtt_ms = Some(number.parse().map_err(|_| wrong())?),
            ("rate", rate) => {
                let gigabits: Option<u64> = rate.strip_suffix('G').and_then(|n| n.parse().ok());
                wanted.rate_bits_per_s = Some(gigabits.ok_or_else(wrong)? * 1_000_000_000);
            }
            _ => return Err(wrong()),
        }
    }
    Ok(wanted)
}

fn entry(line: &str, lines: &mut Lines) -> Result<Vec<(String, Content)>, String> {
    if let Some(command) = line.strip_prefix("$ ") {
        return answer(command, lines);
    }
    if !line.starts_with('/') {
        return Err("is no comment, no path, no `$ command` and no block's line".to_owned());
    }
    let (path, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (path, rest) = match path.strip_suffix(':') {
        Some(path) if rest.is_empty() => (path, ":"),
        _ => (path, rest),
    };
    let (mark, rest) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((mark, rest)) => (mark, rest.trim_start()),
        None => ("", rest),
    };
    let names = paths(path)?;
    let contents = contents(path, mark, rest, lines)?;
    if contents.len() != 1 && contents.len() != names.len() {
        let (names, contents) = (names.len(), contents.len());
        return Err(format!("has {contents} values for {names} paths"));
    }
    let contents = contents.into_iter().cycle();
    Ok(names.into_iter().zip(contents).collect())
}

fn paths(path: &str) -> Result<Vec<String>, String> {
    let names = expansion::names(path.strip_suffix('/').unwrap_or(path))?;
    let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    match names.iter().find(|name| !name[1..].split('/').all(is_plain)) {
        Some(name) => Err(format!("has the path {name:?}: plain names between single slashes")),
        None => Ok(names),
    }
}

/// Contents that a line gives its paths: one for all, or one for each.
fn contents(path: &str, mark: &str, rest: &str, lines: &mut Lines) -> Result<Vec<Content>, String> {
    let value = if rest == "=" { Some("") } else { rest.strip_prefix("= ") };
    let mode = if mark == "read-only" { Mode::ReadOnly } else { Mode::Writable };
    match (mark, value) {
        ("" | "read-only", Some(value)) => {
            let ended = |line: String| if line.is_empty() { line } else { line + "\n" };
            let bytes = |line| Content::Bytes(ended(line).into_bytes(), mode);
            return Ok(expansion::lines(value)?.into_iter().map(bytes).collect());
        }
        ("bytes", Some(value)) => return Ok(vec![Content::Bytes(hex(value)?, mode)]),
        _ => {}
    }
    if let ("" | "nowhere", Some(target)) = (mark, rest.strip_prefix("-> ")) {
        if target.starts_with('/') {
            return Err(format!("leads to {target}: links of stored hosts are relative"));
        }
        let leads = if mark == "nowhere" { Leads::Nowhere } else { Leads::Somewhere };
        let link = |target| Content::Link(target, leads);
        return Ok(expansion::lines(target)?.into_iter().map(link).collect());
    }
    match (mark, rest) {
        ("" | "read-only", ":") => Ok(vec![Content::Bytes(lines.block()?.into_bytes(), mode)]),
        // Root may read any file; nobody reads a directory as one.
        ("unreadable", "") => Ok(vec![Content::Directory]),
        ("", "") if path.ends_with('/') => Ok(vec![Content::Directory]),
        _ => {
            Err("holds nothing: ` = value`, `:` and a block, ` -> target`, ` (unreadable)`, or a \
            slash behind a directory"
                .to_owned())
        }
    }
}

fn answer(command: &str, lines: &mut Lines) -> Result<Vec<(String, Content)>, String> {
    let (command, answer) = match command.split_once(" ! ") {
        Some((command, words)) => (command, format!("! {words}\n")),
        None => {
            let none = || "needs `:` and a block, or ` ! ` and how it fails".to_owned();
            (command.strip_suffix(':').ok_or_else(none)?, lines.block()?)
        }
    };
    let named = |name| (name, Content::Answer(answer.clone()));
    Ok(expansion::names(command)?.into_iter().map(named).collect())
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let byte = |pair: &str| {
        u8::from_str_radix(pair, 16).map_err(|_| format!("has {pair:?}: two digits of hex a byte"))
    };
    text.split_whitespace().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL_LINE: &str = "goal: dtn card=eth0 rtt=80 rate=100G\n";

    fn entries(text: &str) -> Vec<(String, Content)> {
        let host = read("a/some-host.host", &format!("{GOAL_LINE}{text}")).unwrap();
        host.entries.into_iter().map(|entry| (entry.name, entry.content)).collect()
    }

    fn bytes(text: &str) -> Content {
        Content::Bytes(text.as_bytes().to_vec(), Mode::Writable)
    }

    #[test]
    fn a_host_has_a_name_and_a_goal() {
        let host = read("a/some-host.host", GOAL_LINE).unwrap();
        assert_eq!(host.name, "some-host");
        assert_eq!(host.wanted.role, Role::Dtn);
        assert_eq!(host.wanted.card.as_deref(), Some("eth0"));
        assert_eq!(host.wanted.rtt_ms, Some(80.0));
        assert_eq!(host.wanted.rate_bits_per_s, Some(100_000_000_000));
    }

    #[test]
    fn every_kind_of_line_is_read() {
        let file = |name: &str, content| (name.to_owned(), content);
        assert_eq!(entries("# nothing\n\n/a = 1 2\n"), [file("/a", bytes("1 2\n"))]);
        assert_eq!(entries("/a ="), [file("/a", bytes(""))]);
        assert_eq!(entries("/a:\n  | x\n  |\n  |  y\n"), [file("/a", bytes("x\n\n y\n"))]);
        let link = |leads| Content::Link("../b".to_owned(), leads);
        assert_eq!(entries("/a -> ../b"), [file("/a", link(Leads::Somewhere))]);
        assert_eq!(entries("/a (nowhere) -> ../b"), [file("/a", link(Leads::Nowhere))]);
        assert_eq!(entries("/a (unreadable)"), [file("/a", Content::Directory)]);
        assert_eq!(entries("/a/b/"), [file("/a/b", Content::Directory)]);
        let fixed = Content::Bytes(b"1\n".to_vec(), Mode::ReadOnly);
        assert_eq!(entries("/a (read-only) = 1"), [file("/a", fixed)]);
        let odd = Content::Bytes(vec![0, 255], Mode::Writable);
        assert_eq!(entries("/a (bytes) = 00 ff"), [file("/a", odd)]);
        let shown = Content::Answer("RX: 1\n".to_owned());
        assert_eq!(entries("$ ethtool -g eth0:\n  | RX: 1"), [file("ethtool -g eth0", shown)]);
        let failed = Content::Answer("! no right\n".to_owned());
        assert_eq!(entries("$ ethtool -g eth0 ! no right"), [file("ethtool -g eth0", failed)]);
    }

    #[test]
    fn paths_that_stand_for_many_have_one_value_or_as_many() {
        assert_eq!(entries("/cpu{0..1}/x = 5").len(), 2);
        let expected = [("/irq/7".to_owned(), bytes("0\n")), ("/irq/8".to_owned(), bytes("2\n"))];
        assert_eq!(entries("/irq/{7..8} = {0..2..2}"), expected);
    }

    #[test]
    fn a_fault_is_named_with_its_file_and_line() {
        for (text, words) in [
            ("/a", "holds nothing"),
            ("/a b", "holds nothing"),
            ("/a (odd) = 1", "holds nothing"),
            ("/a:", "needs lines that begin"),
            ("/a/../b = 1", "plain names"),
            ("//b = 1", "plain names"),
            ("/a -> /b", "links of stored hosts are relative"),
            ("/a{0..1} = {0..2}", "has 3 values for 2 paths"),
            ("/a = {2..1}", "leads nowhere"),
            ("/a (bytes) = xx", "two digits"),
            ("$ ethtool -g eth0", "needs `:` and a block"),
            ("  | x", "is no comment"),
            ("goal: dtn", "second goal"),
        ] {
            let fault = read("odd.host", &format!("{GOAL_LINE}# x\n{text}\n")).unwrap_err();
            assert!(fault.to_string().starts_with("odd.host:3: "), "{fault}");
            assert!(fault.words.contains(words), "{fault}");
        }
        for text in ["", "goal:", "goal: king", "goal: dtn rtt", "goal: dtn rate=x"] {
            assert_eq!(read("odd.host", text).unwrap_err().line, 1, "{text}");
        }
    }
}
