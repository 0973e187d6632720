//! Trees that are pushed and pulled within one process: what arrives, what stays, and what is told.

use haul_testkit::{
    content,
    seed::Seed,
    tree::{differences, names},
};
use haul_transfer::{
    ClearDigest, Event, FileStatus, HaulUrl, Interrupt, OnConflict, Protection, PullRequest,
    PushRequest, Removal, Report, ServeOptions, ServeRoot, Server, TransferError, TransferOptions,
    pull, push,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

const SPAN_BYTES: u64 = 64 << 10;

/// A server on a thread, which ends with this, and a place for files beside its root.
struct Served {
    place: tempfile::TempDir,
    url: HaulUrl,
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        let place = tempfile::tempdir().expect("a fresh directory");
        let root = place.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let mut options = ServeOptions::new(ServeRoot::Directory(root), place.path().join("state"));
        options.listen = "127.0.0.1:0".into();
        let server = Server::bind(options).expect("a free port");
        let (url, interrupt) = (server.url(), Interrupt::default());
        let until = interrupt.clone();
        let thread = thread::spawn(move || server.run(&until, &|_| {}).expect("it serves"));
        Self { place, url, interrupt, thread: Some(thread) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn url(&self, path: &str) -> HaulUrl {
        HaulUrl { path: path.into(), ..self.url.clone() }
    }

    /// Pushes to a path below the root.
    fn push(&self, source: &str, to: &str, options: &TransferOptions) -> Told {
        self.push_until(u64::MAX, source, to, options)
    }

    /// Pulls from a path below the root.
    fn pull(&self, from: &str, to: &str, options: &TransferOptions) -> Told {
        self.pull_until(u64::MAX, from, to, options)
    }

    /// Pushes until so many bytes are durable.
    fn push_until(&self, bytes: u64, source: &str, to: &str, options: &TransferOptions) -> Told {
        let mut request = PushRequest::new([self.path(source)], self.url(to));
        request.options = options.clone();
        Told::of(bytes, |interrupt, hear| push(&request, interrupt, hear))
    }

    /// Pulls until so many bytes are durable.
    fn pull_until(&self, bytes: u64, from: &str, to: &str, options: &TransferOptions) -> Told {
        let mut request = PullRequest::new([self.url(from)], self.path(to));
        request.options = options.clone();
        Told::of(bytes, |interrupt, hear| pull(&request, interrupt, hear))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.interrupt.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Events of a transfer, and its report.
#[derive(Debug, Default)]
struct Told {
    /// Names of files and directories, by what became of them.
    files: BTreeMap<&'static str, Vec<String>>,
    /// Names that files got in the place of their own.
    stored: Vec<String>,
    problems: Vec<String>,
    report: Report,
}

impl Told {
    /// Runs a transfer until so many bytes are durable, or to its end.
    fn of(
        bytes: u64,
        run: impl FnOnce(&Interrupt, &mut dyn FnMut(Event)) -> Result<Report, TransferError>,
    ) -> Self {
        let (interrupt, mut told) = (Interrupt::default(), Self::default());
        let ended = run(&interrupt, &mut |event| {
            if matches!(&event, Event::Progress(now) if now.bytes_durable >= bytes) {
                interrupt.store(true, Ordering::Relaxed);
            }
            told.hear(event);
        });
        told.report = match ended {
            Ok(report) => report,
            Err(TransferError::Interrupted { report, .. }) if bytes < u64::MAX => {
                *report.expect("a session was under way")
            }
            Err(error) => panic!("a session that does not end in order: {error:?}"),
        };
        told
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::File(file) => {
                let name = String::from_utf8_lossy(&file.path.0).into_owned();
                self.files.entry(file.status.name()).or_default().push(name);
                let stored = file.stored_as.iter().map(|name| String::from_utf8_lossy(&name.0));
                self.stored.extend(stored.map(String::from));
            }
            Event::Error(problem) => self.problems.push(problem.to_string()),
            _ => {}
        }
    }

    /// The names with an outcome, in the order of the alphabet.
    fn with(&self, status: FileStatus) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.files.get(status.name()).into_iter().flatten().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Files that are done, skipped, failed and removed.
    fn counts(&self) -> [u64; 4] {
        let files = &self.report.files;
        [files.done, files.skipped, files.failed, files.removed]
    }
}

fn options() -> TransferOptions {
    let mut options = TransferOptions::default();
    options.span_bytes = Some(SPAN_BYTES);
    options.streams = Some(2);
    options.retry_for = Duration::ZERO;
    options
}

/// Lengths of files, about the limits of spans and of packs.
const LENGTHS: [u64; 12] = [
    0,
    1,
    511,
    4_096,
    SPAN_BYTES - 1,
    SPAN_BYTES,
    SPAN_BYTES + 1,
    (128 << 10) - 1,
    128 << 10,
    (128 << 10) + 1,
    5 * SPAN_BYTES,
    1_300_007,
];

fn file(path: &Path, len_bytes: u64) {
    fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
    let file = File::create(path).expect("a file");
    content::fill(&file, Seed(len_bytes + 1), len_bytes).expect("bytes");
}

fn set_time(path: &Path, seconds: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, 123_456_789);
    File::open(path).and_then(|file| file.set_modified(time)).expect("a time");
}

/// Makes a tree with files of all lengths, and with all that is no plain file. Gives the number of
/// its files, links among them, of its directories, and of its files' bytes.
fn make_tree(root: &Path) -> [u64; 3] {
    for (at, len_bytes) in LENGTHS.into_iter().enumerate() {
        file(&root.join(format!("d{}/f{at}", at % 3)), len_bytes);
    }
    for number in 0..40 {
        file(&root.join(format!("many/deep/f{number}")), 100 + number);
    }
    fs::create_dir(root.join("empty")).expect("a directory");
    symlink("../elsewhere", root.join("d0/link")).expect("a link");
    let holes = File::create(root.join("d1/holes")).expect("a file");
    holes.set_len(20 * SPAN_BYTES).expect("a length");
    holes.write_all_at(b"in the middle", 7 * SPAN_BYTES + 5).expect("bytes");
    fs::set_permissions(root.join("d1/f1"), fs::Permissions::from_mode(0o640)).expect("a mode");
    fs::set_permissions(root.join("d2/f2"), fs::Permissions::from_mode(0o444)).expect("a mode");
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o750)).expect("a mode");
    set_time(&root.join("d1/f10"), 1_000_000_000);
    set_time(&root.join("many/deep/f7"), 1_100_000_000);
    for directory in ["empty", "many/deep", "many", "d0"] {
        set_time(&root.join(directory), 1_200_000_000);
    }
    let many: u64 = (0..40).map(|number| 100 + number).sum();
    let bytes = LENGTHS.iter().sum::<u64>() + many + 20 * SPAN_BYTES;
    [LENGTHS.len() as u64 + 40 + 2, 6, bytes]
}

fn assert_same(one: &Path, other: &Path) {
    assert_eq!(differences(one, other).expect("both can be read"), [""; 0]);
}

fn held_bytes(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").blocks() * 512
}

#[test]
fn a_tree_arrives_as_it_is_and_only_once_under_every_protection() {
    let clear = |digest| (Protection::Clear, Some(digest));
    for (protection, digest) in [
        (Protection::Safe, None),
        clear(ClearDigest::None),
        clear(ClearDigest::Crc32c),
        clear(ClearDigest::Xxh3),
    ] {
        let served = Served::start();
        let [files, directories, bytes] = make_tree(&served.path("tree"));
        let mut options = options();
        (options.protection, options.digest) = (protection, digest);
        let pushed = served.push("tree", "", &options);
        assert_same(&served.path("tree"), &served.path("root/tree"));
        let pulled = served.pull("tree", "back/", &options);
        assert_same(&served.path("tree"), &served.path("back/tree"));
        for told in [&pushed, &pulled] {
            assert!(told.report.ok && told.problems.is_empty(), "{told:?}");
            assert_eq!(told.counts(), [files, 0, 0, 0], "{told:?}");
            assert_eq!(told.report.files.done_directories, directories + 1);
            assert_eq!(told.report.bytes, bytes);
            assert!(told.report.moved_bytes <= bytes && told.report.skipped_bytes == 0);
            assert_eq!(told.report.digest, options.digest_name());
        }
        for held in ["root/tree/d1/holes", "back/tree/d1/holes"] {
            assert!(held_bytes(&served.path(held)) <= 2 * SPAN_BYTES, "{held}");
        }
        for again in [served.push("tree", "", &options), served.pull("tree", "back/", &options)] {
            assert_eq!(again.counts(), [0, files, 0, 0], "{again:?}");
            assert_eq!((again.report.moved_bytes, again.report.skipped_bytes), (0, bytes));
        }
    }
}

/// Two trees of which several files differ: one in its bytes alone, one in its length, one in its
/// time alone; one is missing, and one is too many.
fn make_two(served: &Served, at_target: &str) {
    for tree in ["tree", at_target] {
        for (name, len_bytes) in
            [("same", 9), ("time", 70_000), ("length", 3 * SPAN_BYTES), ("d/bytes", 300_000)]
        {
            file(&served.path(tree).join(name), len_bytes);
            set_time(&served.path(tree).join(name), 1_300_000_000);
        }
    }
    let there = served.path(at_target);
    set_time(&there.join("time"), 1_300_000_001);
    file(&there.join("length"), 3 * SPAN_BYTES - 1);
    let mut bytes = fs::read(there.join("d/bytes")).expect("bytes");
    bytes[170_000] ^= 1;
    fs::write(there.join("d/bytes"), bytes).expect("bytes");
    set_time(&there.join("d/bytes"), 1_300_000_000);
    file(&served.path("tree/d/missing"), 40);
    file(&there.join("d/extra"), 41);
    file(&there.join("e/extra"), 42);
}

/// Tries options on two trees that differ, by a push and by a pull, and gives what was told and the
/// directory that was the target.
fn both_ways(options: &TransferOptions, check: impl Fn(&Told, &Path, &Path)) {
    let served = Served::start();
    make_two(&served, "root/at");
    check(&served.push("tree/", "at/", options), &served.path("tree"), &served.path("root/at"));
    let served = Served::start();
    make_two(&served, "at");
    fs::rename(served.path("tree"), served.path("root/tree")).expect("a new name");
    let told = served.pull("tree/", "at/", options);
    check(&told, &served.path("root/tree"), &served.path("at"));
}

#[test]
fn what_differs_is_replaced_and_what_is_the_same_is_not_moved() {
    both_ways(&options(), |told, source, target| {
        assert_eq!(told.with(FileStatus::Done), ["d/missing", "length", "time"], "{told:?}");
        assert_eq!(told.counts(), [3, 2, 0, 0], "{told:?}");
        let found = differences(source, target).unwrap().join("\n");
        assert!(found.contains("\"d/bytes\": other bytes (300000 and 300000 bytes)"), "{found}");
        assert!(found.contains("\"d/extra\" is only in") && !found.contains("length"), "{found}");
    });
}

#[test]
fn a_comparison_of_the_bytes_finds_what_size_and_time_do_not_tell() {
    let mut options = options();
    options.file_options.compare_content = true;
    both_ways(&options, |told, source, target| {
        assert_eq!(told.with(FileStatus::Done), ["d/bytes", "d/missing", "length"], "{told:?}");
        assert_eq!(told.counts(), [3, 2, 0, 0], "{told:?}");
        assert!(told.report.compared_content);
        let found = differences(source, target).unwrap().join("\n");
        assert!(!found.contains("bytes") && !found.contains("time"), "{found}");
    });
}

#[test]
fn the_rule_for_names_that_are_taken_says_which_file_stays() {
    for (on_conflict, done, failed) in [
        (OnConflict::Replace, ["d/bytes", "d/missing", "length", "same", "time"].as_slice(), 0),
        (OnConflict::Fail, &["d/missing"], 2),
        (OnConflict::KeepBoth, &["d/missing", "length", "time"], 0),
    ] {
        let mut options = options();
        options.file_options.on_conflict = on_conflict;
        both_ways(&options, |told, source, target| {
            assert_eq!(told.with(FileStatus::Done), done, "{on_conflict:?}: {told:?}");
            assert_eq!(told.counts()[2], failed, "{on_conflict:?}: {told:?}");
            assert_eq!((told.report.ok, told.problems.len() as u64), (failed == 0, failed));
            let length = fs::metadata(target.join("length")).unwrap().len();
            let is_replaced = on_conflict == OnConflict::Replace;
            assert_eq!(length, 3 * SPAN_BYTES - u64::from(!is_replaced), "{on_conflict:?}");
            let others = names(target).unwrap().len() - names(source).unwrap().len();
            let is_kept = on_conflict == OnConflict::KeepBoth;
            assert_eq!(others, 3 + 2 * usize::from(is_kept), "{on_conflict:?}");
            assert_eq!(told.stored.len(), 2 * usize::from(is_kept), "{told:?}");
            for name in &told.stored {
                assert!(target.join(name).exists() && !source.join(name).exists(), "{told:?}");
            }
        });
    }
}

#[test]
fn a_mirror_removes_what_the_source_lacks_and_nothing_where_that_is_too_much() {
    for (most, removed) in [(None, 3), (Some(3), 3), (Some(2), 0)] {
        let mut options = options();
        options.file_options.removal = Some(Removal::new(most));
        options.file_options.compare_content = true;
        both_ways(&options, |told, source, target| {
            assert_eq!(told.report.files.removed, removed, "{most:?}: {told:?}");
            let found = differences(source, target).unwrap();
            assert_eq!(told.report.ok, removed > 0, "{most:?}: {told:?}");
            assert_eq!(target.join("d/extra").exists(), removed == 0);
            let extra = found.iter().filter(|what| what.contains("is only in")).count();
            assert_eq!(extra, if removed == 0 { 3 } else { 0 }, "{found:?}");
        });
    }
}

#[test]
fn a_dry_run_tells_what_would_be_done_and_does_nothing() {
    let mut options = options();
    options.file_options.dry_run = true;
    options.file_options.removal = Some(Removal::new(None));
    both_ways(&options, |told, _, target| {
        assert_eq!(told.with(FileStatus::WouldCopy), ["d/missing"], "{told:?}");
        assert_eq!(told.with(FileStatus::WouldReplace), ["length", "time"], "{told:?}");
        let removed = told.with(FileStatus::WouldRemove);
        assert_eq!(removed, ["d/extra", "e", "e/extra"], "{told:?}");
        assert_eq!(told.report.moved_bytes, 0, "{told:?}");
        assert_eq!(told.report.planned_bytes, 40 + 3 * SPAN_BYTES + 70_000, "{told:?}");
        let there = names(target).unwrap();
        assert_eq!(there.len(), 8, "{there:?}");
        assert_eq!(fs::metadata(target.join("length")).unwrap().len(), 3 * SPAN_BYTES - 1);
    });
}

#[test]
fn a_dry_run_tells_what_could_not_be_made_and_goes_where_nothing_is_yet() {
    let mut options = options();
    options.file_options.dry_run = true;
    let served = Served::start();
    for name in ["d/x", "d/e/y", "f/z"] {
        file(&served.path("tree").join(name), 10);
    }
    let told = served.push("tree/", "nowhere/deep/", &options);
    assert_eq!(told.with(FileStatus::WouldCopy).len(), 6, "{told:?}");
    fs::write(served.path("root/d"), "a file").unwrap();
    let told = served.push("tree/", "", &options);
    assert_eq!(told.with(FileStatus::Failed), ["d", "d/e", "d/e/y", "d/x"], "{told:?}");
    assert_eq!(told.with(FileStatus::WouldCopy), ["f", "f/z"], "{told:?}");
    assert_eq!(names(&served.path("root")).unwrap().len(), 1);
}

#[test]
fn a_move_removes_the_sources_that_arrived_and_no_others() {
    let mut options = options();
    options.file_options.move_sources = true;
    options.file_options.on_conflict = OnConflict::Fail;
    both_ways(&options, |told, source, target| {
        assert_eq!(told.counts()[2], 2, "{told:?}");
        let left: Vec<_> = names(source).unwrap();
        let left: Vec<_> = left.iter().map(|name| name.to_string_lossy()).collect();
        for kept in ["length", "time"] {
            assert!(left.iter().any(|name| name == kept), "{left:?}");
        }
        assert!(!left.iter().any(|name| name == "d/missing"), "{left:?}");
        assert!(target.join("d/missing").exists());
    });
}

/// Case of a target that was read back, and of the hashes of all that was moved.
#[test]
fn a_manifest_has_the_hash_of_every_file_read_back_from_the_target() {
    let served = Served::start();
    let [files, _, bytes] = make_tree(&served.path("tree"));
    let mut options = options();
    options.verify_target = true;
    for (way, manifest) in [("push", served.path("pushed")), ("pull", served.path("pulled"))] {
        options.manifest = Some(manifest.clone());
        let told = match way {
            "push" => served.push("tree", "", &options),
            _ => served.pull("tree", "back/", &options),
        };
        assert!(told.report.ok, "{told:?}");
        let of_manifest = told.report.manifest.as_ref().expect("it was asked for");
        // A link has no line.
        assert_eq!((of_manifest.files, of_manifest.bytes), (files - 1, bytes), "{told:?}");
        let text = fs::read_to_string(manifest).unwrap();
        let mut lines = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (hash, name) = line.split_once("  ").expect("a hash and a name");
            let path = served.path("").join(name);
            let bytes = fs::read(path).unwrap();
            assert_eq!(hash, blake3::hash(&bytes).to_hex().as_str(), "{name}");
            lines += 1;
        }
        assert_eq!(lines, files - 1, "{text}");
    }
    assert_same(&served.path("tree"), &served.path("back/tree"));
}

#[test]
fn what_cannot_arrive_is_named_and_the_rest_arrives() {
    let served = Served::start();
    make_tree(&served.path("tree"));
    fs::create_dir_all(served.path("root/tree/d0/f3")).unwrap();
    fs::create_dir_all(served.path("root/tree/many/deep/f9/x")).unwrap();
    let told = served.push("tree", "", &options());
    assert_eq!(told.with(FileStatus::Failed), ["tree/d0/f3", "tree/many/deep/f9"], "{told:?}");
    assert_eq!(told.problems.len(), 2, "{told:?}");
    assert!(!told.report.ok && told.counts()[2] == 2, "{told:?}");
    let found = differences(&served.path("tree"), &served.path("root/tree")).unwrap();
    let named = |what: &String| what.contains("f3") || what.contains("f9");
    let others: Vec<_> = found.iter().filter(|what| what.contains("/f") && !named(what)).collect();
    assert_eq!(others, [""; 0], "{found:?}");
}

#[test]
fn what_is_only_measured_is_received_and_leaves_nothing() {
    let served = Served::start();
    let [files, _, bytes] = make_tree(&served.path("tree"));
    let mut options = options();
    options.file_options.discard = true;
    let told = served.push("tree", "", &options);
    assert_eq!(told.counts(), [files, 0, 0, 0], "{told:?}");
    assert_eq!(told.report.bytes, bytes);
    assert_eq!(names(&served.path("root")).unwrap().len(), 0);
}

#[test]
fn names_of_one_file_are_one_file_at_the_target() {
    let served = Served::start();
    for (name, len_bytes) in [("tree/small", 10), ("tree/large", 10 * SPAN_BYTES)] {
        file(&served.path(name), len_bytes);
        fs::hard_link(served.path(name), served.path(&format!("{name}-too"))).unwrap();
    }
    assert!(served.push("tree", "", &options()).report.ok);
    assert!(served.pull("tree", "back/", &options()).report.ok);
    let mut dry = options();
    dry.file_options.dry_run = true;
    for again in [served.push("tree", "", &dry), served.push("tree", "", &options())] {
        assert_eq!(again.counts(), [0, 4, 0, 0], "{again:?}");
    }
    // Another file of the first name has all its names replaced.
    fs::write(served.path("tree/small"), "other bytes").unwrap();
    let told = served.push("tree", "", &dry);
    assert_eq!(told.with(FileStatus::WouldReplace), ["tree/small", "tree/small-too"], "{told:?}");
    for told in [served.push("tree", "", &options()), served.pull("tree", "back/", &options())] {
        assert_eq!(told.counts(), [2, 2, 0, 0], "{told:?}");
    }
    for target in ["root/tree", "back/tree"] {
        assert_same(&served.path("tree"), &served.path(target));
        for name in ["small", "large"] {
            let inode = |suffix: &str| {
                fs::metadata(served.path(&format!("{target}/{name}{suffix}"))).unwrap().ino()
            };
            assert_eq!(inode(""), inode("-too"), "{target}/{name}");
        }
    }
}

/// Appends to a file from a thread, piece by piece, and ends.
fn write_slowly(path: &Path, pieces: u64) -> JoinHandle<()> {
    let mut written = File::create(path).expect("a file");
    thread::spawn(move || {
        for piece in 0..pieces {
            written.write_all(&content::bytes(Seed(piece), 50_000)).expect("a piece");
            thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn a_file_that_is_written_meanwhile_arrives_whole_whatever_it_was_at_the_start() {
    for append_only in [false, true] {
        let served = Served::start();
        let mut options = options();
        options.file_options.recording.follow = true;
        options.file_options.recording.append_only = append_only;
        options.file_options.recording.idle = Duration::from_millis(500);
        let writer = write_slowly(&served.path("film"), 15);
        let told = served.push("film", "", &options);
        writer.join().unwrap();
        assert!(told.report.ok && told.report.bytes == 15 * 50_000, "{told:?}");
        let bytes = fs::read(served.path("film")).unwrap();
        assert_eq!(fs::read(served.path("root/film")).unwrap(), bytes);
        let writer = write_slowly(&served.path("root/film"), 12);
        let told = served.pull("film", "back", &options);
        writer.join().unwrap();
        assert!(told.report.ok && told.report.bytes == 12 * 50_000, "{told:?}");
        assert_eq!(fs::read(served.path("back")).unwrap(), bytes[..12 * 50_000]);
    }
}

#[test]
fn a_watch_brings_what_appears_and_ends_when_nothing_does() {
    let served = Served::start();
    make_tree(&served.path("tree"));
    let mut options = options();
    options.file_options.recording.watch = true;
    options.file_options.recording.idle = Duration::from_millis(200);
    options.file_options.recording.watch_for = Some(Duration::from_millis(1_500));
    let (tree, other) = (served.path("tree"), served.path("other"));
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(600));
        file(&tree.join("new/late"), 70_000);
        file(&other, 33);
        fs::rename(&other, tree.join("moved")).expect("a new name");
    });
    let told = served.push("tree/", "", &options);
    writer.join().unwrap();
    assert!(told.report.ok, "{told:?}");
    let found = differences(&served.path("tree"), &served.path("root")).unwrap();
    let bytes: Vec<_> = found.iter().filter(|what| !what.contains("times")).collect();
    assert_eq!(bytes, [""; 0], "{told:?}");
}

/// Ways of a transfer between a directory and a server's root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Push,
    Pull,
}

const WAYS: [Way; 2] = [Way::Push, Way::Pull];

impl Way {
    fn source(self) -> &'static str {
        if self == Self::Push { "" } else { "root/" }
    }

    fn target(self) -> &'static str {
        if self == Self::Push { "root/" } else { "back/" }
    }

    /// Moves `name` until so many bytes are durable.
    fn run(self, served: &Served, name: &str, until: u64, options: &TransferOptions) -> Told {
        match self {
            Self::Push => served.push_until(until, name, "", options),
            Self::Pull => served.pull_until(until, name, "back/", options),
        }
    }
}

/// Writes other bytes into a span, as a disk that lost what was written would have them.
fn spoil(path: &Path, span: u64) {
    let file = File::options().write(true).open(path).expect("an earlier run left it");
    file.write_all_at(&[0; 4096], span * SPAN_BYTES).expect("bytes");
}

#[test]
fn what_an_earlier_run_left_is_gone_on_from_and_what_was_spoilt_meanwhile_comes_again() {
    let len_bytes = 60 * SPAN_BYTES + 77;
    for (way, spoilt) in [(Way::Push, false), (Way::Push, true), (Way::Pull, true)] {
        let served = Served::start();
        file(&served.path(way.source()).join("data"), len_bytes);
        let mut slow = options();
        slow.streams = Some(1);
        slow.rate_bytes_per_s = Some(1 << 20);
        let first = way.run(&served, "data", 1, &slow);
        let durable = first.report.unfinished_bytes;
        let part = served.path(way.target()).join(".data.haul-part");
        assert!(durable > 4 * SPAN_BYTES && durable < len_bytes, "{way:?}: {first:?}");
        assert!(part.exists() && !served.path(way.target()).join("data").exists());
        let mut options = options();
        options.file_options.recheck = spoilt;
        if spoilt {
            spoil(&part, 1);
            spoil(&part, 3);
        }
        let lost = if spoilt { 2 * SPAN_BYTES } else { 0 };
        let second = way.run(&served, "data", u64::MAX, &options);
        let report = &second.report;
        assert!(report.ok, "{way:?}: {second:?}");
        assert_eq!(report.recheck.map_or(0, |recheck| recheck.lost_bytes), lost, "{second:?}");
        // Its last spans were journaled as it ended.
        assert!(report.resumed_bytes >= durable - lost, "{way:?}: {second:?}");
        assert!(report.resumed_bytes < len_bytes && report.resumed_bytes % SPAN_BYTES == 0);
        assert_eq!(report.moved_bytes, len_bytes - report.resumed_bytes, "{way:?}: {second:?}");
        let [source, target] = [way.source(), way.target()].map(|at| served.path(at).join("data"));
        assert_eq!(fs::read(target).unwrap(), fs::read(source).unwrap(), "{way:?}");
    }
}

/// Case of a tree that has no name before all of it is there.
#[test]
fn a_tree_that_was_interrupted_is_gone_on_with_where_it_is_hidden() {
    for way in WAYS {
        let served = Served::start();
        let source = served.path(way.source()).join("tree");
        for number in 0..300 {
            file(&source.join(format!("d{}/f{number}", number % 5)), 10_000 + number);
        }
        let mut slow = options();
        slow.rate_bytes_per_s = Some(700 << 10);
        let first = way.run(&served, "tree", 300_000, &slow);
        let target = served.path(way.target());
        assert!(!target.join("tree").exists(), "{way:?}: {first:?}");
        // What is gone on with is what the source has now.
        let hidden = names(&target.join(".tree.haul-staged")).unwrap();
        let came = hidden.iter().find(|name| name.components().count() == 2);
        fs::write(source.join(came.expect("it came")), "other bytes").unwrap();
        let second = way.run(&served, "tree", u64::MAX, &options());
        assert!(second.report.ok, "{way:?}: {second:?}");
        let [done, skipped, ..] = second.counts();
        assert!(skipped >= 20 && done + skipped == 300, "{way:?}: {second:?}");
        assert_same(&source, &target.join("tree"));
        let left = names(&target).unwrap();
        let hidden = left.iter().filter(|name| name.to_string_lossy().contains(".haul-"));
        assert_eq!(hidden.count(), 0, "{left:?}");
    }
}
