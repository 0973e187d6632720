//! Manifests: what `--manifest` writes, `haul verify` finds and `--verify-target` holds back.

use crate::harness::{
    Place, assert_no_temporaries, assert_same_files, assert_same_trees, is_root,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
};
use haul_datapath::{EngineInfo, Host, Verdict, engines::ENGINES};
use haul_testkit::{mount::Mount, skip::skip, tree};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const MIB: u64 = 1 << 20;

/// The manifest of the files below `directory`, as b3sum's documentation describes it, and bytes
/// that are no text in haul's own way.
fn expected(directory: &Path, prefix: &str) -> Vec<u8> {
    let mut lines: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for name in tree::names(directory).unwrap() {
        let path = directory.join(&name);
        if !path.symlink_metadata().unwrap().is_file() {
            continue;
        }
        let name = [prefix.as_bytes(), name.as_os_str().as_bytes()].concat();
        lines.push((name.clone(), line_of(&name, &fs::read(path).unwrap())));
    }
    lines.sort();
    lines.into_iter().flat_map(|(_, line)| line).collect()
}

fn line_of(name: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut shown = Vec::new();
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid().replace('\\', "\\\\").replace('\n', "\\n");
        shown.extend_from_slice(valid.as_bytes());
        for byte in chunk.invalid() {
            shown.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
        }
    }
    let escaped = if shown == name { "" } else { "\\" };
    let head = format!("{escaped}{}  ", blake3::hash(bytes).to_hex());
    [head.as_bytes(), &shown, b"\n"].concat()
}

#[track_caller]
fn assert_manifest(manifest: &Path, expected: &[u8]) {
    let found = fs::read(manifest).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(found == expected, "{}\nfor\n{}", text(&found), text(expected));
}

/// A tree with everything that a manifest has to cope with: files in packs, of one span and of
/// several, empty ones, and directories and links, which have no lines.
fn odd_tree(place: &Place, root: &Path) {
    place.tree(root, 2, 20);
    place.file(&root.join("large"), 5 * MIB + 4097);
    place.file(&root.join("even"), 4 * MIB);
    place.file(&root.join("pack's limit"), 128 << 10);
    place.file(&root.join("new\nline/back\\slash"), 1000);
    place.file(&root.join(" leading and trailing "), 10);
    place.file(&root.join("a\\b"), 10);
    // Sorted by bytes, `d0.x` is before what is in `d0`.
    place.file(&root.join("d0.x"), 10);
    symlink("large", root.join("link")).unwrap();
}

fn is_installed(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Names of the engines of this host that can do this.
fn usable(able: impl Fn(&EngineInfo) -> bool) -> Vec<&'static str> {
    let host = Host::read(Path::new("/"));
    let works = |engine: &&EngineInfo| matches!((engine.probe)(&host), Verdict::Usable);
    let able = ENGINES
        .iter()
        .copied()
        .filter(|engine| engine.takes_tcp() && able(engine) && works(engine));
    able.map(|engine| engine.name).collect()
}

/// Runs `haul verify WORDS`.
fn verify(place: &Place, words: &[OsString]) -> Ran {
    place.run(&[&words!["verify"], words].concat())
}

/// Names and status of all files that are not the same.
fn bad_files(ran: &Ran) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let files = ran.named("file").into_iter().filter(|file| file["status"] != "ok");
    let mut bad: Vec<_> = files.map(|file| (text(&file["path"]), text(&file["status"]))).collect();
    bad.sort();
    bad
}

#[track_caller]
fn assert_verified(place: &Place, manifest: &Path, directory: &Path) {
    let ran = verify(place, &words![manifest, directory]);
    assert_eq!((ran.status, &ran.report()["ok"]), (0, &true.into()), "{ran:?}");
    assert_eq!(bad_files(&ran), [], "{ran:?}");
}

#[test]
fn a_manifest_has_the_lines_of_b3sum_for_a_push_and_for_a_pull() {
    let place = Place::new();
    let server = Server::start(&place);
    odd_tree(&place, &place.source("tree"));
    let no_text = OsString::from_vec(b"no\xfftext\xfe".to_vec());
    place.file(&place.source("tree").join(no_text), 100);
    let manifest = place.path("push.b3");
    let pushed = words![place.source("tree"), server.url("to/"), "--manifest", manifest];
    let pushed = place.push(&pushed);
    assert_manifest(&manifest, &expected(&place.source("tree"), "tree/"));
    let report = pushed.ok();
    assert_eq!(report["manifest"]["files"], 48, "{report}");
    assert_eq!(report["manifest"]["read_bytes"], 0, "all of it was made while moving: {report}");
    assert_verified(&place, &manifest, &place.root("to"));

    let manifest = place.path("pull.b3");
    let pulled = words![server.url("to/tree/"), place.target("t"), "--manifest", manifest];
    let pulled = place.pull(&pulled);
    assert_manifest(&manifest, &expected(&place.source("tree"), ""));
    assert_eq!(pulled.ok()["manifest"]["read_bytes"], 0);
    assert_verified(&place, &manifest, &place.target("t"));
    assert_no_temporaries(&place.path(""));
}

#[test]
fn b3sum_checks_a_manifest_and_haul_verifies_what_b3sum_printed() {
    if !is_installed("b3sum") {
        return skip("b3sum", "none");
    }
    let place = Place::new();
    let server = Server::start(&place);
    odd_tree(&place, &place.source("tree"));
    let manifest = place.path("manifest");
    place.push(&words![place.source("tree"), server.url(""), "--manifest", manifest]).ok();
    let check = |quiet: &[&str]| {
        let mut command = Command::new("b3sum");
        command.arg("--check").args(quiet).arg(&manifest).current_dir(place.root(""));
        command.output().unwrap()
    };
    let checked = check(&[]);
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{said}");
    assert_eq!(said.lines().filter(|line| line.ends_with(": OK")).count(), 47, "{said}");
    // The other way round, names as people give them.
    let files = Command::new("sh")
        .args(["-c", "find . -type f -exec b3sum {} + > by-b3sum"])
        .current_dir(place.root("tree"))
        .status();
    assert!(files.unwrap().success());
    // Itself was empty when it was hashed: it is the one that differs.
    let ran = verify(&place, &words![place.root("tree/by-b3sum"), "--extra"]);
    assert_eq!(bad_files(&ran), [("./by-b3sum".into(), "differs".into())], "{ran:?}");
    let absolute = Command::new("b3sum").arg(place.root("tree/large")).output().unwrap().stdout;
    fs::write(place.path("absolute"), absolute).unwrap();
    assert_verified(&place, &place.path("absolute"), &place.path("source"));
}

#[test]
fn protections_digests_streams_spans_and_engines_all_give_the_same_manifest() {
    let place = Place::new();
    let server = Server::start(&place);
    odd_tree(&place, &place.source("tree"));
    let lines = expected(&place.source("tree"), "tree/");
    let manifest = place.path("manifest");
    let mut options = vec![
        words!["--protection", "clear", "--digest", "none", "--span-size", "64K"],
        words!["--protection", "clear", "--digest", "crc32c", "--streams", "1"],
        words!["--protection", "clear", "--digest", "xxh3-128", "--streams", "5"],
        words!["--span-size", "64K", "--streams", "3", "--verify-target"],
        words!["--span-size", "8M", "--bwlimit", "500M"],
    ];
    let senders = usable(|engine| engine.open_send.is_some());
    let receivers = usable(|engine| engine.open_receive.is_some() && engine.name != "discard");
    for (at, send) in senders.iter().enumerate() {
        let receive = receivers[(at + 1) % receivers.len()];
        let engines = words!["--send-engine", send, "--receive-engine", receive];
        options.push([engines, words!["--span-size", "1M"]].concat());
    }
    for options in options {
        let push = words![place.source("tree"), server.url(""), "--manifest", manifest];
        let pushed = place.push(&[push, options.clone()].concat());
        assert_eq!(pushed.ok()["manifest"]["read_bytes"], 0, "{options:?}");
        assert_manifest(&manifest, &lines);
        let pull = words![server.url("tree"), place.target(""), "--manifest", manifest];
        let pulled = place.pull(&[pull, options.clone()].concat());
        assert_eq!(pulled.ok()["manifest"]["read_bytes"], 0, "{options:?}");
        assert_manifest(&manifest, &lines);
        assert_same_trees(&place.source("tree"), &place.target("tree"));
        fs::remove_dir_all(place.root("tree")).unwrap();
        fs::remove_dir_all(place.target("tree")).unwrap();
    }
}

#[test]
fn a_new_name_and_a_target_without_files_are_in_the_manifest_as_they_should() {
    let place = Place::new();
    let server = Server::start(&place);
    let (source, manifest) = (place.source("data"), place.path("manifest"));
    place.file(&source, 3 * MIB);
    let bytes = fs::read(&source).unwrap();
    let with = |words: Vec<OsString>| [words, words!["--manifest", manifest]].concat();
    place.push(&with(words![source, server.url("renamed")])).ok();
    assert_manifest(&manifest, &line_of(b"renamed", &bytes));
    // The same words where a directory has that name mean that directory.
    fs::create_dir(place.root("there")).unwrap();
    place.push(&with(words![source, server.url("there")])).ok();
    assert_manifest(&manifest, &line_of(b"data", &bytes));
    assert_same_files(&source, &place.root("there/data"));
    place.pull(&with(words![server.url("renamed"), place.target("again")])).ok();
    assert_manifest(&manifest, &line_of(b"again", &bytes));
    place.push(&with(words!["zero:3000000", server.url("null:")])).ok();
    assert_manifest(&manifest, &line_of(b"zero-3000000", &vec![0; 3_000_000]));
    place.pull(&with(words![server.url("renamed"), "null:"])).ok();
    assert_manifest(&manifest, &line_of(b"renamed", &bytes));
}

#[test]
fn what_is_there_already_has_its_line_read_from_this_side() {
    let place = Place::new();
    let server = Server::start(&place);
    odd_tree(&place, &place.source("tree"));
    let manifest = place.path("manifest");
    place.push(&words![place.source("tree"), server.url("")]).ok();
    let again = words![place.source("tree"), server.url(""), "--manifest", manifest];
    let again = place.push(&again);
    let report = again.ok();
    assert_eq!(
        (report["moved_bytes"].as_u64(), report["files"]["done"].as_u64()),
        (Some(0), Some(0))
    );
    assert_eq!(report["manifest"]["read_bytes"], report["bytes"], "{report}");
    assert_manifest(&manifest, &expected(&place.source("tree"), "tree/"));
    // By size and time it counts as the same; the manifest of a pull tells what is here.
    place.pull(&words![server.url("tree"), place.target("")]).ok();
    let large = place.target("tree/large");
    let time = large.metadata().unwrap().modified().unwrap();
    let file = File::options().write(true).open(&large).unwrap();
    file.write_all_at(b"rot", 12345).unwrap();
    file.set_modified(time).unwrap();
    place.pull(&words![server.url("tree"), place.target(""), "--manifest", manifest]).ok();
    assert_manifest(&manifest, &expected(&place.target("tree"), "tree/"));
    let ran = verify(&place, &words![manifest, place.root("")]);
    assert_eq!(bad_files(&ran), [("tree/large".into(), "differs".into())], "{ran:?}");
}

#[test]
fn what_is_a_hole_is_read_back_as_zeros_and_stands_in_the_manifest() {
    let place = Place::new();
    let server = Server::start(&place);
    let tree = place.source("tree");
    std::fs::create_dir(&tree).unwrap();
    for (name, data_at) in [("all", vec![]), ("between", vec![0, 5 * MIB]), ("end", vec![8 * MIB])]
    {
        let file = std::fs::File::create(tree.join(name)).unwrap();
        file.set_len(9 * MIB + 5).unwrap();
        for at in data_at {
            std::os::unix::fs::FileExt::write_all_at(&file, &[7; 70_000], at).unwrap();
        }
    }
    let lines = expected(&tree, "tree/");
    let manifest = place.path("manifest");
    for (at, span) in ["64K", "1M", "16M"].into_iter().enumerate() {
        let options = words!["--span-size", span, "--verify-target", "--manifest", manifest];
        let push = words![tree, server.url(format!("to-{at}/"))];
        place.push(&[push, options.clone()].concat()).ok();
        assert_manifest(&manifest, &lines);
        let target = place.target(format!("{at}/"));
        let pull = words![server.url(format!("to-{at}/tree")), target];
        place.pull(&[pull, options].concat()).ok();
        assert_manifest(&manifest, &lines);
        crate::harness::assert_same_files(&tree, &target.join("tree"));
    }
}

#[test]
fn after_a_kill_the_manifest_of_the_run_that_goes_on_is_whole() {
    for (way, verify_target) in [("push", false), ("push", true), ("pull", false), ("pull", true)] {
        let place = Place::new();
        let server = Server::start(&place);
        let pushes = way == "push";
        let tree = if pushes { place.source("tree") } else { place.root("tree") };
        place.file(&tree.join("large"), 12 * MIB + 4097);
        place.tree(&tree, 1, 10);
        let manifest = place.path("run.b3");
        let words = if pushes {
            words!["push", tree, server.url("")]
        } else {
            words!["pull", server.url("tree"), place.target("")]
        };
        let mut words = [words, words!["--manifest", manifest, "--span-size", "64K"]].concat();
        if verify_target {
            words.push("--verify-target".into());
        }
        let mut first = place.start(&[words.clone(), words!["--bwlimit", "1M"]].concat());
        first.wait_for_bytes("bytes_durable", 2 * MIB);
        first.kill();
        assert!(!manifest.exists(), "of a run that was killed there is no manifest");
        let ran = place.run(&words);
        let report = ran.ok();
        let read = report["manifest"]["read_bytes"].as_u64().unwrap();
        assert!(ran.number("resumed_bytes") >= 2 * MIB, "{way}: {ran:?}");
        assert!(pushes || read < 2 * MIB, "what is journaled is not read again: {ran:?}");
        assert!(!pushes || read >= 2 * MIB, "the source of what was sent before is read: {ran:?}");
        assert_manifest(&manifest, &expected(&tree, "tree/"));
        let target = if pushes { place.root("") } else { place.target("") };
        assert_verified(&place, &manifest, &target);
        assert_no_temporaries(&place.path(""));
    }
}

#[test]
fn a_server_that_comes_back_costs_no_line_and_doubles_none() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let tree = place.source("tree");
    place.file(&tree.join("m/large"), 8 * MIB);
    place.tree(&tree, 2, 30);
    let manifest = place.path("manifest");
    let words = words!["push", tree, server.url(""), "--manifest", manifest, "--bwlimit", "1M"];
    let client = place.start(&[words, words!["--span-size", "64K"]].concat());
    client.wait_for_bytes("bytes_durable", 2 * MIB);
    server.restart(&place);
    let ran = client.finish();
    assert!(ran.number("reconnections") > 0, "{ran:?}");
    ran.ok();
    assert_manifest(&manifest, &expected(&tree, "tree/"));
}

#[test]
fn a_directory_under_a_new_path_stays_there_when_the_server_comes_back() {
    let place = Place::new();
    let mut server = Server::start(&place);
    let tree = place.source("tree");
    place.file(&tree.join("large"), 8 * MIB);
    place.tree(&tree, 1, 10);
    let manifest = place.path("manifest");
    let words = words!["push", tree, server.url("new"), "--manifest", manifest];
    let words = [words, words!["--bwlimit", "1M", "--span-size", "64K"]].concat();
    let client = place.start(&words);
    client.wait_for_bytes("bytes_durable", 2 * MIB);
    server.restart(&place);
    let ran = client.finish();
    assert!(ran.number("reconnections") > 0, "{ran:?}");
    ran.ok();
    // The path is a directory before and after, and the source keeps its name below it.
    assert_same_trees(&tree, &place.root("new/tree"));
    assert_manifest(&manifest, &expected(&tree, "tree/"));
}

#[test]
fn a_file_that_failed_or_changed_has_no_line_and_the_others_have_theirs() {
    let place = Place::new();
    let server = Server::start(&place);
    let tree = place.source("tree");
    place.tree(&tree, 1, 10);
    place.file(&tree.join("in the way"), 1000);
    place.file(&tree.join("changes"), 8 * MIB);
    fs::create_dir_all(place.root("tree/in the way")).unwrap();
    let manifest = place.path("manifest");
    let words = words!["push", tree, server.url(""), "--manifest", manifest, "--bwlimit", "1M"];
    let client = place.start(&[words, words!["--span-size", "64K"]].concat());
    client.wait_for_bytes("bytes_received", MIB);
    let changed = File::options().write(true).open(tree.join("changes")).unwrap();
    changed.write_all_at(b"changed", 0).unwrap();
    let ran = client.finish();
    ran.failed(2);
    ran.says(&["tree/in the way", "directory"]);
    ran.says(&["tree/changes", "changed"]);
    fs::remove_file(tree.join("changes")).unwrap();
    fs::remove_file(tree.join("in the way")).unwrap();
    assert_manifest(&manifest, &expected(&tree, "tree/"));
}

#[test]
fn a_file_that_was_there_and_changes_meanwhile_is_named_and_has_no_line() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.root("tree/there"), 1000);
    place.pull(&words![server.url("tree"), place.target("")]).ok();
    place.file(&place.root("tree/large"), 8 * MIB);
    let manifest = place.path("manifest");
    let words = words!["pull", server.url("tree"), place.target(""), "--manifest", manifest];
    let client = place.start(&[words, words!["--bwlimit", "1M", "--span-size", "64K"]].concat());
    client.wait_for_bytes("bytes_received", MIB);
    fs::write(place.target("tree/there"), "changed").unwrap();
    let ran = client.finish();
    ran.failed(0);
    ran.says(&["tree/there", "has no line in the manifest", "changed since it was moved"]);
    assert_eq!(ran.report()["manifest"]["left_out"], 1, "{ran:?}");
    let large = fs::read(place.root("tree/large")).unwrap();
    assert_manifest(&manifest, &line_of(b"tree/large", &large));
}

#[test]
fn a_manifest_that_cannot_be_written_is_told_before_anything_moves() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.source("data"), 1000);
    for manifest in [place.path("not there/manifest"), place.path("source")] {
        let words = words![place.source("data"), server.url(""), "--manifest", manifest];
        place.push(&words).refused(&["cannot write the manifest"]);
        assert!(!place.root("data").exists());
    }
    // What is there under its name is replaced by a whole one only.
    let manifest = place.path("manifest");
    fs::write(&manifest, "old").unwrap();
    // Nor is a link followed that stands where it is written.
    fs::write(place.path("victim"), "not to be touched").unwrap();
    symlink("victim", place.path(".manifest.haul-part")).unwrap();
    let words = words![place.source("none"), server.url(""), "--manifest", manifest];
    place.push(&words).refused(&["none"]);
    assert_eq!(fs::read(&manifest).unwrap(), b"old");
    place.push(&words![place.source("data"), server.url(""), "--manifest", manifest]).ok();
    assert_manifest(&manifest, &expected(&place.source(""), ""));
    assert_eq!(fs::read(place.path("victim")).unwrap(), b"not to be touched");
    assert_no_temporaries(&place.path(""));
}

#[test]
fn verify_names_what_differs_is_missing_is_cut_or_is_no_file_and_with_extra_what_is_new() {
    let place = Place::new();
    let tree = place.path("tree");
    odd_tree(&place, &tree);
    // More than one part of the many that threads share.
    place.file(&tree.join("huge"), 40 * MIB + 5);
    let manifest = place.path("tree.b3");
    fs::write(&manifest, expected(&tree, "tree/")).unwrap();
    assert_verified(&place, &manifest, &place.path(""));
    // Without a directory, that of the manifest.
    let beside = verify(&place, &words![manifest, "--threads", "1"]);
    assert_eq!((beside.status, &beside.report()["files"]), (0, &48.into()), "{beside:?}");

    let flip = |name: &str, at: u64| {
        let file = File::options().read(true).write(true).open(tree.join(name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    };
    let mut random = place.seed.random();
    flip("huge", random.below(40 * MIB + 5));
    flip("even", 4 * MIB - 1);
    flip("new\nline/back\\slash", 0);
    fs::remove_file(tree.join("a\\b")).unwrap();
    let large = File::options().write(true).open(tree.join("large")).unwrap();
    large.set_len(5 * MIB).unwrap();
    fs::remove_file(tree.join("d0.x")).unwrap();
    fs::create_dir(tree.join("d0.x")).unwrap();
    place.file(&tree.join("d0/added"), 3);
    let bad = |name: &str, status: &str| (format!("tree/{name}"), status.to_owned());
    let mut expected = vec![
        bad("a\\b", "missing"),
        bad("d0.x", "unreadable"),
        bad("even", "differs"),
        bad("huge", "differs"),
        bad("large", "differs"),
        bad("new\nline/back\\slash", "differs"),
    ];
    let ran = verify(&place, &words![manifest]);
    assert_eq!((ran.status, bad_files(&ran)), (1, expected.clone()), "{ran:?}");
    let report = ran.report();
    let counts = ["same", "differs", "missing", "unreadable", "extra"].map(|key| &report[key]);
    assert_eq!(counts, [42, 4, 1, 1, 0].map(Value::from).each_ref(), "{report}");
    expected.insert(1, bad("d0/added", "extra"));
    expected.sort();
    let ran = verify(&place, &words![manifest, tree.parent().unwrap().join("."), "--extra"]);
    let found = bad_files(&ran);
    let below_tree: Vec<_> =
        found.into_iter().filter(|(name, _)| name.starts_with("tree/")).collect();
    assert_eq!((ran.status, below_tree), (1, expected), "{ran:?}");
    // In words, a line for each and a verdict.
    let plain = place.command(&words!["verify", manifest]).output().unwrap();
    let said = String::from_utf8(plain.stdout).unwrap();
    assert!(said.contains("differs     tree/even\n"), "{said}");
    assert!(said.contains("missing     tree/a\\b\n"), "{said}");
    assert!(said.contains("unreadable  tree/d0.x (it is no regular file)\n"), "{said}");
    assert!(said.contains("NOT the same: 4 differ, 1 missing, 1 unreadable; 42 of 48"), "{said}");
}

#[test]
fn extra_alone_is_not_the_same_and_everything_listed_is() {
    let place = Place::new();
    let tree = place.path("tree");
    place.tree(&tree, 2, 5);
    let manifest = tree.join("MANIFEST");
    fs::write(&manifest, expected(&tree, "./")).unwrap();
    // The manifest itself, links and haul's temporaries do not count.
    symlink("nowhere", tree.join("d1/link")).unwrap();
    fs::write(tree.join(".x.haul-part"), "x").unwrap();
    let ran = verify(&place, &words![manifest, "--extra"]);
    assert_eq!((ran.status, bad_files(&ran)), (0, vec![]), "{ran:?}");
    fs::write(tree.join("d1/f1.bak"), "x").unwrap();
    let ran = verify(&place, &words![manifest, "--extra"]);
    let expected = vec![("d1/f1.bak".to_owned(), "extra".to_owned())];
    assert_eq!((ran.status, bad_files(&ran)), (1, expected), "{ran:?}");
}

#[test]
fn verify_starts_with_a_whole_manifest_and_a_directory_only() {
    let place = Place::new();
    let manifest = place.path("manifest");
    place.file(&place.source("data"), 10);
    let good = expected(&place.source(""), "");
    fs::write(&manifest, [&good[..], &good, b"nonsense\n", &good].concat()).unwrap();
    let ran = verify(&place, &words![manifest, place.source("")]);
    ran.refused(&["cannot read the manifest", "line 3", "too short"]);
    assert!(ran.named("file").is_empty(), "nothing is read before every line is known: {ran:?}");
    let sha = format!("{:0128}  data\n", 7);
    fs::write(&manifest, sha).unwrap();
    verify(&place, &words![manifest]).refused(&["line 1", "two blanks"]);
    fs::write(&manifest, vec![b'a'; 1 << 20]).unwrap();
    verify(&place, &words![manifest]).refused(&["line 1", "longer"]);
    verify(&place, &words![place.path("none")]).refused(&["cannot read the manifest", "none"]);
    fs::write(&manifest, &good).unwrap();
    verify(&place, &words![manifest, place.path("none")]).refused(&["cannot verify below"]);
    verify(&place, &words![manifest, place.source("data")]).refused(&["a directory"]);
}

/// Makes a place whose `name` is a file system of its own, in the file `image`; `None` is a skip.
fn with_disk(name: &str) -> Option<(Place, Mount)> {
    if !is_root() {
        skip("root, to mount", "another user");
        return None;
    }
    let place = Place::new();
    match Mount::ext4(&place.path(name), &place.path("image"), 96 * MIB) {
        Ok(mount) => Some((place, mount)),
        Err(why) => {
            skip("an ext4 on a loop device", &why);
            None
        }
    }
}

/// Changes a byte on the disk, below the file system: where the image holds `bytes`.
#[track_caller]
fn rot(image: &Path, bytes: &[u8]) {
    let whole = fs::read(image).unwrap();
    let block = |at: &usize| whole[*at..].starts_with(bytes);
    let found: Vec<usize> = (0..whole.len()).step_by(1024).filter(block).collect();
    assert_eq!(found.len(), 1, "the bytes are on the disk once");
    let file = File::options().write(true).open(image).unwrap();
    let at = found[0] + 100;
    file.write_all_at(&[whole[at] ^ 1], at as u64).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn verify_reads_the_disk_where_the_page_cache_still_has_the_right_bytes() {
    let Some((place, _mount)) = with_disk("target") else { return };
    for name in ["small", "large"] {
        let len = if name == "small" { 50_000 } else { 20 * MIB };
        place.file(&place.target(name), len);
        File::open(place.target(name)).unwrap().sync_all().unwrap();
    }
    let manifest = place.path("manifest");
    fs::write(&manifest, expected(&place.target(""), "")).unwrap();
    assert_verified(&place, &manifest, &place.target(""));
    for name in ["small", "large"] {
        let bytes = fs::read(place.target(name)).unwrap();
        let half = bytes.len() / 2 / 4096 * 4096;
        rot(&place.path("image"), &bytes[half..half + 512]);
        assert!(fs::read(place.target(name)).unwrap() == bytes, "the page cache has not seen it");
    }
    let ran = verify(&place, &words![manifest, place.target("")]);
    let differs = |name: &str| (name.to_owned(), "differs".to_owned());
    assert_eq!(bad_files(&ran), [differs("large"), differs("small")], "{ran:?}");
}

#[test]
fn on_tmpfs_nobody_claims_to_have_read_a_disk() {
    let place = Place::new();
    let _mount = match Mount::tmpfs(&place.path("target"), "8m") {
        Ok(mount) => mount,
        Err(why) => return skip("a tmpfs of its own", &why),
    };
    place.file(&place.target("data"), MIB);
    let manifest = place.path("manifest");
    fs::write(&manifest, expected(&place.target(""), "")).unwrap();
    let ran = verify(&place, &words![manifest, place.target("")]);
    let report = ran.report();
    let bytes = ["bytes", "direct_bytes", "dropped_bytes", "memory_bytes"].map(|key| &report[key]);
    assert_eq!(bytes, [MIB, 0, 0, MIB].map(Value::from).each_ref(), "{ran:?}");
    let plain = place.command(&words!["verify", manifest, place.target("")]).output().unwrap();
    let said = String::from_utf8(plain.stdout).unwrap();
    assert!(said.contains("1.00 MiB from memory: tmpfs has no disk"), "{said}");
}

/// A transfer onto a disk of its own, held up when a part of it is durable.
struct Held {
    client: Option<Haul>,
    words: Vec<OsString>,
    source: PathBuf,
    target: PathBuf,
    _server: Server,
    _mount: Mount,
    place: Place,
}

/// Offset of a byte in the file that is durable by then; the span that it is in is below.
const ROTS_AT: usize = 4096 * 30;
const ROTTEN_SPAN: &str = "from byte 65536 on";

impl Held {
    fn start(way: &str, first_run: &[&str]) -> Option<Self> {
        let (from, to) = if way == "push" { ("source", "root") } else { ("root", "target") };
        let (place, mount) = with_disk(to)?;
        let server = ServerSetup::new(&place).start(&place);
        let (source, target) = (place.path(from).join("data"), place.path(to).join("data"));
        place.file(&source, 8 * MIB + 17);
        let words = match way {
            "push" => words!["push", source, server.url("")],
            _ => words!["pull", server.url("data"), place.target("")],
        };
        let words = [words, words!["--span-size", "64K"]].concat();
        let more: Vec<OsString> = first_run.iter().map(OsString::from).collect();
        let client = place.start(&[words.clone(), words!["--bwlimit", "1M"], more].concat());
        client.wait_for_bytes("bytes_durable", 2 * MIB);
        client.signal(Signal::STOP);
        let client = Some(client);
        Some(Self { client, words, source, target, _server: server, _mount: mount, place })
    }

    #[track_caller]
    fn rot(&self) {
        let bytes = fs::read(&self.source).unwrap();
        rot(&self.place.path("image"), &bytes[ROTS_AT..ROTS_AT + 512]);
    }

    fn go_on(&mut self) -> Ran {
        let client = self.client.take().unwrap();
        client.signal(Signal::CONT);
        client.finish()
    }

    fn kill(&mut self) {
        self.client.take().unwrap().kill();
    }

    fn again(&self) -> Ran {
        self.place.run(&[self.words.clone(), words!["--verify-target"]].concat())
    }

    /// Checks that the file that differs is named, has no name, and is moved anew by the next run.
    #[track_caller]
    fn assert_found(&self, ran: &Ran) {
        ran.failed(1);
        ran.says(&["data", "is on its disk not what arrived", ROTTEN_SPAN]);
        assert!(!self.target.exists(), "a damaged file has no name");
        assert_no_temporaries(self.target.parent().unwrap());
        let again = self.again();
        assert_eq!(again.ok()["read_back"], "O_DIRECT", "{again:?}");
        assert_eq!(again.number("resumed_bytes"), 0, "{again:?}");
        assert_same_files(&self.source, &self.target);
    }
}

#[test]
fn a_disk_that_keeps_other_bytes_than_arrived_is_found_before_a_push_is_done() {
    let Some(mut held) = Held::start("push", &["--verify-target"]) else { return };
    held.rot();
    let ran = held.go_on();
    held.assert_found(&ran);
}

#[test]
fn a_disk_that_keeps_other_bytes_than_arrived_is_found_before_a_pull_is_done() {
    let Some(mut held) = Held::start("pull", &["--verify-target"]) else { return };
    held.rot();
    let ran = held.go_on();
    held.assert_found(&ran);
}

#[test]
fn without_verify_target_nobody_looks_at_the_disk() {
    let Some(mut held) = Held::start("push", &[]) else { return };
    held.rot();
    // So this is what the two tests above would see if nothing were read back.
    assert!(held.go_on().ok().get("read_back").is_none());
}

#[test]
fn what_an_earlier_run_brought_is_read_back_too() {
    let Some(mut held) = Held::start("push", &["--verify-target"]) else { return };
    held.kill();
    held.rot();
    let ran = held.again();
    let resumed = ran.named("resume")[0]["bytes"].as_u64();
    assert!(resumed >= Some(2 * MIB), "{ran:?}");
    held.assert_found(&ran);
}

#[test]
fn what_an_earlier_run_brought_without_a_look_is_moved_again_to_be_read_back() {
    let Some(mut held) = Held::start("push", &[]) else { return };
    held.kill();
    held.rot();
    let ran = held.again();
    assert_eq!((ran.ok()["resumed_bytes"].as_u64(), ran.status), (Some(0), 0), "{ran:?}");
    assert_same_files(&held.source, &held.target);
    let manifest = held.place.path("manifest");
    fs::write(&manifest, line_of(b"data", &fs::read(&held.source).unwrap())).unwrap();
    assert_verified(&held.place, &manifest, held.target.parent().unwrap());
}

#[test]
fn what_a_broken_transfer_left_is_verified_by_its_journal() {
    let Some(mut held) = Held::start("pull", &["--manifest", "manifest"]) else { return };
    held.kill();
    let journal = held.target.with_file_name(".data.haul-journal");
    let ran = verify(&held.place, &words![journal]);
    let unfinished = &ran.report()["unfinished"];
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(unfinished["durable_bytes"].as_u64() >= Some(2 * MIB), "{ran:?}");
    assert_eq!(unfinished["durable_bytes"], unfinished["compared_bytes"], "{ran:?}");
    // By its manifest it is missing, and why.
    let manifest = held.place.path("whole");
    fs::write(&manifest, line_of(b"data", &fs::read(&held.source).unwrap())).unwrap();
    let by_manifest = verify(&held.place, &words![manifest, held.target.parent().unwrap()]);
    assert_eq!(by_manifest.named("file")[0]["status"], "missing", "{by_manifest:?}");
    let why = by_manifest.named("file")[0]["why"].as_str().unwrap();
    assert!(why.contains("unfinished"), "{why}");
    held.rot();
    let ran = verify(&held.place, &words![journal]);
    let file = ran.named("file")[0];
    assert_eq!((ran.status, &file["status"]), (1, &"differs".into()), "{ran:?}");
    assert!(file["why"].as_str().unwrap().contains(ROTTEN_SPAN), "{file}");
    let plain = held.place.command(&words!["verify", journal]).output().unwrap();
    let said = String::from_utf8(plain.stdout).unwrap();
    assert!(said.contains("unfinished, NOT as it arrived"), "{said}");
    fs::remove_file(held.target.with_file_name(".data.haul-part")).unwrap();
    verify(&held.place, &words![journal]).refused(&["by the journal", "haul-part"]);
}

/// Files that a plain transfer left, compared by the digests that every journal has.
#[test]
fn what_a_plain_transfer_left_is_compared_by_its_journal() {
    for way in ["push", "pull"] {
        let Some(mut held) = Held::start(way, &[]) else { return };
        held.kill();
        let journal = held.target.with_file_name(".data.haul-journal");
        let ran = verify(&held.place, &words![journal]);
        let unfinished = &ran.report()["unfinished"];
        assert_eq!(ran.status, 0, "{way}: {ran:?}");
        assert!(unfinished["durable_bytes"].as_u64() >= Some(2 * MIB), "{ran:?}");
        assert_eq!(unfinished["durable_bytes"], unfinished["compared_bytes"], "{ran:?}");
        held.rot();
        let ran = verify(&held.place, &words![journal]);
        let file = ran.named("file")[0];
        assert_eq!((ran.status, &file["status"]), (1, &"differs".into()), "{ran:?}");
        assert!(file["why"].as_str().unwrap().contains(ROTTEN_SPAN), "{file}");
    }
}

#[test]
fn trees_are_read_back_and_listed_with_few_descriptors_and_little_memory() {
    let place = Place::new();
    for file in 0..2000 {
        place.file(&place.source(format!("tree/d{}/f{file}", file % 3)), file * 7 % 9001);
    }
    let with_few_descriptors = |words: &[OsString]| {
        let haul = place.command(&[words, &words!["--json"]].concat());
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n 96; exec \"$@\"", "sh"]);
        command.arg(haul.get_program()).args(haul.get_args());
        command.current_dir(haul.get_current_dir().unwrap()).env_clear();
        command.envs(haul.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Haul::start(command)
    };
    let serve = words!["serve", place.path("root"), "--listen", "127.0.0.1:0"];
    let server = with_few_descriptors(&serve);
    let line = server.wait_for("listening line", |_| true);
    let url = line["url"].as_str().unwrap();
    let (manifest, checks) = (place.path("manifest"), words!["--verify-target", "--manifest"]);
    let push = words!["push", place.source("tree"), url];
    let pushed = with_few_descriptors(&[push, checks.clone(), words![manifest]].concat()).finish();
    assert!(!pushed.ok()["read_back"].as_str().unwrap().is_empty(), "{pushed:?}");
    let lines = expected(&place.source("tree"), "tree/");
    assert_manifest(&manifest, &lines);
    let pull = words!["pull", format!("{url}tree"), place.target("")];
    let pulled = with_few_descriptors(&[pull, checks, words![manifest]].concat()).finish();
    assert!(!pulled.ok()["read_back"].as_str().unwrap().is_empty(), "{pulled:?}");
    assert_manifest(&manifest, &lines);
    for ran in [&pushed, &pulled] {
        for side in ["source", "target"] {
            let memory = ran.report()[side]["max_rss_bytes"].as_u64().unwrap();
            assert!(memory < 64 << 20, "{memory} bytes at the {side}");
        }
    }
    let words = words!["verify", manifest, place.target(""), "--extra"];
    let ran = with_few_descriptors(&words).finish();
    assert_eq!((ran.status, bad_files(&ran)), (0, vec![]), "{ran:?}");
}

#[test]
fn a_target_that_keeps_nothing_cannot_be_read_back() {
    let place = Place::new();
    let server = Server::start(&place);
    place.file(&place.root("data"), 1000);
    let push = words![place.root("data"), server.url("null:"), "--verify-target"];
    place.push(&push).refused(&["null:", "--verify-target"]);
    let pull = words![server.url("data"), "null:", "--verify-target"];
    place.pull(&pull).refused(&["null:", "--verify-target"]);
}
