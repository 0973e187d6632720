//! Every form of source by every form of target: what arrives under which name.
//!
//! Also what a dry run says of it, and what `--move` leaves.

use crate::harness::{Place, process::Ran, server::Server};
use haul_testkit::tree;
use std::{collections::BTreeMap, ffi::OsString, fs, os::unix::fs::PermissionsExt, path::Path};

/// A form of sources: where a command runs, its sources, and the names that they bring into a
/// directory.
struct Form {
    sources: &'static [&'static str],
    names: &'static [&'static str],
    /// Whether the source is a single file, which takes the new name `new`. All else goes into a
    /// directory `new`: one that took the name would be there at the second run, which would go
    /// below it.
    is_file: bool,
}

const CONTENTS: &[&str] = &["a", "b", "sub/c"];
const BELOW_X: &[&str] = &["x/a", "x/b", "x/sub/c"];

/// Forms of sources: the command runs in `source/x/sub` where the form is `..`, in `source/x` where
/// it is `.`.
const FORMS: &[Form] = &[
    Form { sources: &["."], names: CONTENTS, is_file: false },
    Form { sources: &["./."], names: CONTENTS, is_file: false },
    Form { sources: &["./"], names: CONTENTS, is_file: false },
    Form { sources: &[".."], names: CONTENTS, is_file: false },
    Form { sources: &["x/."], names: CONTENTS, is_file: false },
    Form { sources: &["x/"], names: CONTENTS, is_file: false },
    Form { sources: &["x/sub/.."], names: CONTENTS, is_file: false },
    Form { sources: &["x"], names: BELOW_X, is_file: false },
    Form { sources: &["./x"], names: BELOW_X, is_file: false },
    Form { sources: &["x/a"], names: &["a"], is_file: true },
    Form { sources: &["x/a", "x/b"], names: &["a", "b"], is_file: false },
    Form { sources: &["x/.", "y"], names: &["a", "b", "sub/c", "y"], is_file: false },
    Form { sources: &["empty"], names: &["empty/"], is_file: false },
    Form { sources: &["empty/"], names: &[], is_file: false },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Root,
    NewDirectory,
    NewName,
    DirectoryThere,
}

impl Target {
    const ALL: [Self; 4] = [Self::Root, Self::NewDirectory, Self::NewName, Self::DirectoryThere];

    fn path(self) -> &'static str {
        match self {
            Self::Root => "",
            Self::NewDirectory => "new/",
            Self::NewName | Self::DirectoryThere => "new",
        }
    }

    /// Names that are there afterwards: files, and empty directories with a `/`.
    fn expected(self, form: &Form) -> Vec<String> {
        let below = |directory: &str| {
            form.names.iter().map(|name| format!("{directory}{name}")).collect::<Vec<_>>()
        };
        let expected = match self {
            Self::Root => below(""),
            Self::NewName if form.is_file => vec!["new".into()],
            _ => below("new/"),
        };
        let is_empty_directory = expected.is_empty() && self != Self::Root;
        if is_empty_directory { vec!["new/".into()] } else { expected }
    }
}

fn make_sources(source: &Path) {
    fs::create_dir_all(source.join("x/sub")).unwrap();
    fs::create_dir_all(source.join("empty")).unwrap();
    for name in ["x/a", "x/b", "x/sub/c", "y"] {
        fs::write(source.join(name), format!("the bytes of {name}")).unwrap();
    }
}

/// Names below a root: files with their contents, and empty directories with a `/` behind.
fn listing(root: &Path) -> BTreeMap<String, String> {
    let mut listing = BTreeMap::new();
    for name in tree::names(root).unwrap() {
        let (path, name) = (root.join(&name), name.to_str().unwrap().to_owned());
        if path.is_file() {
            listing.insert(name, fs::read_to_string(path).unwrap());
        } else if fs::read_dir(path).unwrap().next().is_none() {
            listing.insert(name + "/", String::new());
        }
    }
    listing
}

fn directory_of(form: &Form) -> &'static str {
    match form.sources[0] {
        ".." => "source/x/sub",
        "." | "./." | "./" => "source/x",
        _ => "source",
    }
}

fn push(place: &Place, form: &Form, url: OsString, options: &[&str]) -> Ran {
    let mut words: Vec<OsString> = vec!["push".into()];
    words.extend(form.sources.iter().map(OsString::from));
    words.push(url);
    words.extend(["--json".into()]);
    words.extend(options.iter().map(OsString::from));
    let mut command = place.command(&words);
    command.current_dir(place.path(directory_of(form)));
    crate::harness::process::Haul::start(command).finish()
}

/// The bytes of a source that a name at the target must have.
fn content_of(name: &str, form: &Form) -> String {
    let last = name.rsplit('/').next().unwrap();
    match (last, form.sources) {
        ("new", _) => "the bytes of x/a".into(),
        ("c", _) => "the bytes of x/sub/c".into(),
        ("y", _) => "the bytes of y".into(),
        (last, _) => format!("the bytes of x/{last}"),
    }
}

/// Counts of files and directories; where there are no directories, they are not told.
fn counts(ran: &Ran, keys: [&str; 2]) -> [u64; 2] {
    let files = &ran.ok()["files"];
    [files[keys[0]].as_u64().unwrap(), files[keys[1]].as_u64().unwrap_or(0)]
}

fn try_form(form: &Form, target: Target, options: &[&str]) {
    let what = format!("{:?} to {target:?} {options:?}", form.sources);
    let place = Place::new();
    make_sources(&place.path("source"));
    let server = Server::start(&place);
    if target == Target::DirectoryThere {
        fs::create_dir(place.root("new")).unwrap();
    }
    let before = listing(&place.path("root"));
    let dry = push(&place, form, server.url(target.path()), &[options, &["-n"]].concat());
    assert_eq!(dry.status, 0, "{what}: {}", dry.err);
    assert_eq!(listing(&place.path("root")), before, "{what}: a dry run changes nothing");
    let planned = counts(&dry, ["planned", "planned_directories"]);
    for round in 0..3 {
        if !place.path(directory_of(form)).exists() {
            // --move removed the directory that the command would run in, as it was empty.
            break;
        }
        let ran = push(&place, form, server.url(target.path()), options);
        // What was moved is gone: a named source that is missing cannot start.
        let is_gone = round > 0 && options.contains(&"--move");
        assert!(ran.status == 0 || is_gone, "{what}: {}", ran.err);
        if round == 0 {
            assert_eq!(counts(&ran, ["done", "done_directories"]), planned, "{what}");
        }
        let arrived = listing(&place.path("root"));
        let names: Vec<&String> = arrived.keys().collect();
        let mut expected = target.expected(form);
        expected.sort();
        assert_eq!(names, expected.iter().collect::<Vec<_>>(), "{what}, round {round}");
        for (name, content) in arrived.iter().filter(|(name, _)| !name.ends_with('/')) {
            assert_eq!(*content, content_of(name, form), "{what}: {name}");
        }
    }
}

/// Every form of source in every form of target: `push . URL/lost --move` gave all files the one
/// name `lost`, and two of three existed nowhere.
#[test]
fn every_form_of_source_arrives_under_its_names_in_every_form_of_target() {
    for form in FORMS {
        for target in Target::ALL {
            try_form(form, target, &[]);
        }
    }
}

#[test]
fn moved_sources_are_all_there_under_their_names() {
    // Contents beside another source are refused: see below.
    for form in FORMS.iter().filter(|form| form.sources != ["x/.", "y"]) {
        for target in Target::ALL {
            try_form(form, target, &["--move"]);
        }
    }
}

/// Two directories' contents with a file of one name: the second would replace the first, and with
/// `--move`, which is refused, neither source would be left.
#[test]
fn a_second_file_of_a_name_is_refused_and_its_source_stays() {
    let place = Place::new();
    for directory in ["one", "two"] {
        fs::create_dir_all(place.source(directory)).unwrap();
        fs::write(place.source(directory).join("same"), directory).unwrap();
        fs::write(place.source(directory).join(format!("own-{directory}")), directory).unwrap();
    }
    let server = Server::start(&place);
    let form = Form { sources: &["one/", "two/"], names: &[], is_file: false };
    push(&place, &form, server.url("to/"), &["--move"]).refused(&["contents of a directory"]);
    assert!(place.source("one/same").exists() && !place.root("to").exists());
    let ran = push(&place, &form, server.url("to/"), &[]);
    assert_eq!(ran.status, 1, "{}", ran.err);
    ran.failed(1);
    assert_eq!(fs::read_to_string(place.root("to/same")).unwrap(), "one");
    assert_eq!(fs::read_to_string(place.source("two/same")).unwrap(), "two");
    assert!(place.root("to/own-one").exists() && place.root("to/own-two").exists());
    let errors = ran.named("error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("has this name already"), "{errors:?}");
}

#[test]
fn a_pull_goes_to_the_same_place_again_and_says_where_by_every_form() {
    let (contents, named) =
        (&["new/a", "new/b", "new/sub/c"][..], &["new/x/a", "new/x/b", "new/x/sub/c"][..]);
    for (path, expected, to) in [
        ("x/.", contents, "new/"),
        ("x/", contents, "new/"),
        ("x", named, "new/x"),
        ("x/a", &["new"], "new"),
    ] {
        let place = Place::new();
        make_sources(&place.path("root"));
        let server = Server::start(&place);
        let words = words![server.url(path), place.target("new")];
        place.pull(&[words.clone(), words!["-n"]].concat()).ok();
        assert!(!place.target("new").exists(), "{path}: a dry run makes nothing");
        let manifest = place.path("manifest");
        for round in 0..3 {
            let ran = place.pull(&[words.clone(), words!["--manifest", manifest]].concat());
            let told = ran.ok();
            assert_eq!(told["files"]["done"] == 0, round > 0, "{path}, round {round}");
            assert!(told["to"].as_str().unwrap().ends_with(&format!("/{to}")), "{path}: {told}");
            let arrived = listing(&place.path("target"));
            assert_eq!(arrived.keys().collect::<Vec<_>>(), expected, "{path}");
            // Its names are those below the directory that the command names.
            let below = if path == "x/a" { place.target("") } else { place.target("new") };
            for line in fs::read_to_string(&manifest).unwrap().lines() {
                let name = line.split("  ").nth(1).unwrap();
                assert!(below.join(name).is_file(), "{path}, round {round}: {line}");
            }
        }
    }
}

/// A directory under a new path: `push rs URL/new` made `new` a copy of rs, and after a break the
/// same command began anew below it.
#[test]
fn a_directory_under_a_new_path_is_gone_on_with_by_the_same_command() {
    for is_push in [true, false] {
        let place = Place::new();
        let server = Server::start(&place);
        let from = if is_push { place.source("x") } else { place.root("x") };
        let to = if is_push { place.root("new") } else { place.target("new") };
        place.file(&from.join("large"), 8 << 20);
        fs::hard_link(from.join("large"), from.join("second")).unwrap();
        let command = match is_push {
            true => words!["push", from, server.url("new")],
            false => words!["pull", server.url("x"), to],
        };
        let slow = [command.clone(), words!["--bwlimit", "1M", "--span-size", "64K"]].concat();
        let mut client = place.start(&slow);
        client.wait_for_bytes("bytes_durable", 2 << 20);
        client.kill();
        let ran = place.run(&[command.clone(), words!["--span-size", "64K"]].concat());
        assert!(ran.ok()["resumed_bytes"].as_u64().unwrap() > 0, "{ran:?}");
        crate::harness::assert_same_trees(&from, &to.join("x"));
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "no hidden temporary is left");
        // What the source lacks goes below the name that it keeps, and nowhere else.
        fs::write(to.join("x/extra"), b"extra").unwrap();
        fs::write(to.join("beside"), b"beside").unwrap();
        let mirrored = [command, words!["--delete", "--move"]].concat();
        place.run(&mirrored).ok();
        assert!(!to.join("x/extra").exists() && to.join("beside").exists());
        assert!(to.join("x/second").exists() && !from.join("large").exists());
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A directory made for the contents of others, which is no wider than they are: what is private
/// stays so.
#[test]
fn a_directory_made_for_contents_has_their_mode_and_one_that_was_there_keeps_its_own() {
    let place = Place::new();
    make_sources(&place.path("source"));
    make_sources(&place.root("served"));
    let usual = mode_of(&place.path("source"));
    for (source, mode) in [("x", 0o700), ("empty", 0o750)] {
        set_mode(&place.path("source").join(source), mode);
        set_mode(&place.root("served").join(source), mode);
    }
    fs::create_dir(place.root("there")).unwrap();
    set_mode(&place.root("there"), 0o711);
    let server = Server::start(&place);
    for (sources, target, mode) in [
        (&["x/"][..], "new/deep", 0o700),
        (&["x/."], "new2/", 0o700),
        (&["empty/"], "new3", 0o750),
        (&["empty/", "x/"], "new4", 0o700),
        (&["x/"], "there", 0o711),
        (&["x/"], "there/", 0o711),
    ] {
        let form = Form { sources, names: &[], is_file: false };
        let ran = push(&place, &form, server.url(target), &[]);
        assert_eq!(ran.status, 0, "{sources:?} to {target}: {}", ran.err);
        assert_eq!(mode_of(&place.root(target)), mode, "{sources:?} to {target}");
    }
    assert_eq!(mode_of(&place.root("new")), usual & 0o755, "one above is no source's");
    for (source, target, mode) in [
        ("served/x/", "pulled/deep", 0o700),
        ("served/x/.", "pulled2/", 0o700),
        ("served/empty/", "source", usual),
    ] {
        let words = ["pull".into(), server.url(source), place.path(target).into_os_string()];
        let ran = crate::harness::process::Haul::start(place.command(&words)).finish();
        assert_eq!(ran.status, 0, "{source} to {target}: {}", ran.err);
        assert_eq!(mode_of(&place.path(target)), mode, "{source} to {target}");
    }
}

#[test]
fn a_pull_that_brought_nothing_leaves_no_directory_that_would_be_too_wide_for_the_next() {
    let place = Place::new();
    make_sources(&place.root("served"));
    set_mode(&place.root("served/x"), 0o700);
    let server = Server::start(&place);
    let pull = |source: &str, target: &str| {
        let words = ["pull".into(), server.url(source), place.path(target).into_os_string()];
        crate::harness::process::Haul::start(place.command(&words)).finish().status
    };
    for (first, target) in [("served/none/", "new"), ("../served/x/", "new2/deep/")] {
        assert_ne!(pull(first, target), 0, "{first}");
        assert!(!place.path(target).exists(), "{first} left {target}");
        assert_eq!(pull("served/x/", target), 0, "{target}");
        assert_eq!(mode_of(&place.path(target)), 0o700, "{target}");
    }
    // One that the user made stays as it is.
    fs::create_dir(place.path("own")).unwrap();
    set_mode(&place.path("own"), 0o711);
    assert_ne!(pull("served/none/", "own"), 0);
    assert_eq!(mode_of(&place.path("own")), 0o711);
}

/// Case of a file below /proc, which arrived empty and was told as complete.
#[test]
fn a_file_that_the_kernel_makes_up_while_it_is_read_is_not_told_as_complete() {
    let place = Place::new();
    make_sources(&place.path("source"));
    let server = Server::start(&place);
    for (target, options) in [("", &[][..]), ("new", &["--dry-run"])] {
        let form = Form { sources: &["/proc/version"], names: &[], is_file: true };
        let ran = push(&place, &form, server.url(target), options);
        assert_eq!(ran.status, 2, "{options:?}: {}", ran.err);
        assert!(ran.err.contains("makes files up while they are read"), "{}", ran.err);
        assert!(ran.err.contains("cat FILE >COPY"), "{}", ran.err);
    }
    assert_eq!(fs::read_dir(place.root("")).unwrap().count(), 0);
}
