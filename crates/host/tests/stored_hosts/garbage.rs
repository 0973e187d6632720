//! Hosts whose files hold anything at all. No check ends because of one, or believes it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use haul_host::{
    checks::audit,
    tune::{Goal, Wanted, score},
};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};

use super::{HOSTS, unpacking::UnpackedHost};

/// Content that takes the place of a file's own.
#[derive(Clone, Debug)]
enum Garbage {
    Nothing,
    Empty,
    Bytes(Vec<u8>),
    /// A number, or a word where a number should be.
    Word(&'static str),
    Directory,
    /// A symbolic link that leads to itself.
    Circle,
    /// The file's own content, cut short.
    Cut(Index),
    /// The file's own content, with another byte somewhere.
    Byte(Index, u8),
    /// The file's own content, with each digit replaced by this one.
    Digits(char),
}

const WORDS: [&str; 20] = [
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "NaN",
    "0x10",
    "max",
    "0-4294967295",
    "7-3",
    "4096 4096",
    "1 2 3 4",
    "[]",
    "[{}]",
    "[[[[",
    "!",
    "! \u{1b}[2J",
];

fn garbage() -> impl Strategy<Value = Garbage> {
    prop_oneof![
        Just(Garbage::Nothing),
        Just(Garbage::Empty),
        proptest::collection::vec(any::<u8>(), 1..200).prop_map(Garbage::Bytes),
        proptest::sample::select(&WORDS[..]).prop_map(Garbage::Word),
        Just(Garbage::Directory),
        Just(Garbage::Circle),
        any::<Index>().prop_map(Garbage::Cut),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Garbage::Byte(at, byte)),
        proptest::sample::select(vec!['0', '9']).prop_map(Garbage::Digits),
    ]
}

/// A file that holds something else until this is dropped.
struct Replaced {
    path: PathBuf,
    before: Before,
}

enum Before {
    File(Vec<u8>, fs::Permissions),
    Link(PathBuf),
}

impl Replaced {
    fn by(garbage: &Garbage, path: PathBuf) -> Self {
        let before = match fs::read_link(&path) {
            Ok(target) => Before::Link(target),
            Err(_) => {
                let bytes = fs::read(&path).expect("a file that we made");
                let metadata = fs::metadata(&path).expect("a file that we made");
                Before::File(bytes, metadata.permissions())
            }
        };
        fs::remove_file(&path).expect("a file that we made");
        let bytes = match &before {
            Before::File(bytes, _) => &bytes[..],
            Before::Link(_) => &[],
        };
        put(&path, garbage, bytes);
        Self { path, before }
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let path = &self.path;
        if fs::remove_file(path).is_err() {
            // A directory, or nothing at all.
            let _ = fs::remove_dir(path);
        }
        match &self.before {
            Before::Link(target) => symlink(target, path).expect("the link as it was"),
            Before::File(bytes, permissions) => {
                fs::write(path, bytes).expect("the file as it was");
                fs::set_permissions(path, permissions.clone()).expect("its mode as it was");
            }
        }
    }
}

/// Puts garbage in a file's place; `before` is what the file held.
fn put(path: &Path, garbage: &Garbage, before: &[u8]) {
    let made = match garbage {
        Garbage::Nothing => Ok(()),
        Garbage::Empty => fs::write(path, ""),
        Garbage::Bytes(bytes) => fs::write(path, bytes),
        Garbage::Word(word) => fs::write(path, format!("{word}\n")),
        Garbage::Directory => fs::create_dir(path),
        Garbage::Circle => symlink(path.file_name().expect("a file's name"), path),
        Garbage::Cut(at) => fs::write(path, &before[..at.index(before.len() + 1)]),
        Garbage::Byte(at, byte) => {
            let mut bytes = before.to_vec();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            fs::write(path, bytes)
        }
        Garbage::Digits(digit) => {
            let text = String::from_utf8_lossy(before).into_owned();
            fs::write(path, text.replace(|sign: char| sign.is_ascii_digit(), &digit.to_string()))
        }
    };
    made.expect("garbage in its place");
}

fn rtt_ms() -> impl Strategy<Value = Option<f64>> {
    let odd = vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX];
    proptest::option::of(prop_oneof![proptest::sample::select(odd), 0.01..400.0])
}

/// Groups the files of a host that differ in numbers only, so that those of 64 processors are
/// replaced no more often than one file on which all depends.
fn by_shape(host: &UnpackedHost) -> Vec<Vec<PathBuf>> {
    let mut shapes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in host.files() {
        let shape = file.to_string_lossy().replace(|sign: char| sign.is_ascii_digit(), "");
        shapes.entry(shape).or_default().push(file);
    }
    shapes.into_values().collect()
}

#[test]
fn whatever_files_hold_an_audit_ends_and_its_changes_can_be_named() {
    // Unpacked once: a host is thousands of files.
    let hosts: Vec<_> = HOSTS.iter().map(|stored| (stored, UnpackedHost::of(stored))).collect();
    let hosts: Vec<_> = hosts.iter().map(|(stored, host)| (stored, host, by_shape(host))).collect();
    let place = (any::<Index>(), any::<Index>(), garbage());
    let places = proptest::collection::vec(place, 1..60);
    let cases = (any::<Index>(), places, rtt_ms(), any::<bool>());
    let outcome = TestRunner::default().run(&cases, |(host, places, rtt_ms, is_asked_for)| {
        let (stored, host, shapes) = host.get(&hosts);
        let mut files = BTreeMap::new();
        for (shape, file, garbage) in &places {
            files.insert(file.get(&shape.get(shapes)[..]), garbage);
        }
        let replace =
            |(file, garbage): (&PathBuf, _)| Replaced::by(garbage, host.root().join(file));
        let _replaced: Vec<Replaced> = files.into_iter().map(replace).collect();
        let wanted = if is_asked_for { stored.wanted.clone() } else { Wanted::default() };
        let goal = Goal { rtt_ms, ..Goal::of(&host.machine, &wanted) };
        let findings = audit(&host.machine, &goal);
        prop_assert!(score(&findings) <= 100);
        for change in findings.iter().flat_map(|finding| &finding.changes) {
            let words = change.setting.to_string();
            prop_assert_eq!(words.parse(), Ok(change.setting.clone()));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    for (stored, host, _) in &hosts {
        let found = audit(&host.machine, &host.goal);
        let untouched = UnpackedHost::of(stored);
        assert_eq!(
            found,
            audit(&untouched.machine, &untouched.goal),
            "{} is as it was",
            stored.name
        );
    }
}
