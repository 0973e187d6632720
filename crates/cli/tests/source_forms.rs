//! Every form of source by every form of target: what arrives under which name, what a dry run says
//! of it, and what `--move` leaves.

#![allow(clippy::unwrap_used)]

mod harness;

use harness::{Place, process::Ran, server::Server};
use haul_testkit::tree;
use std::{collections::BTreeMap, ffi::OsString, fs, path::Path};

/// Where a command runs, its sources, and the names that they bring into a directory.
struct Form {
    sources: &'static [&'static str],
    names: &'static [&'static str],
    /// What it brings as the new name `new`; `None`: its contents go into the directory `new`.
    renamed: Option<&'static [&'static str]>,
}

const CONTENTS: &[&str] = &["a", "b", "sub/c"];
const BELOW_X: &[&str] = &["x/a", "x/b", "x/sub/c"];
const BELOW_NEW: &[&str] = &["new/a", "new/b", "new/sub/c"];

/// The command runs in `source/x/sub` where the form is `..`, in `source/x` where it is `.`.
const FORMS: &[Form] = &[
    Form { sources: &["."], names: CONTENTS, renamed: None },
    Form { sources: &["./."], names: CONTENTS, renamed: None },
    Form { sources: &["./"], names: CONTENTS, renamed: None },
    Form { sources: &[".."], names: CONTENTS, renamed: None },
    Form { sources: &["x/."], names: CONTENTS, renamed: None },
    Form { sources: &["x/"], names: CONTENTS, renamed: None },
    Form { sources: &["x/sub/.."], names: CONTENTS, renamed: None },
    Form { sources: &["x"], names: BELOW_X, renamed: Some(BELOW_NEW) },
    Form { sources: &["./x"], names: BELOW_X, renamed: Some(BELOW_NEW) },
    Form { sources: &["x/a"], names: &["a"], renamed: Some(&["new"]) },
    Form { sources: &["x/a", "x/b"], names: &["a", "b"], renamed: None },
    Form { sources: &["x/.", "y"], names: &["a", "b", "sub/c", "y"], renamed: None },
    Form { sources: &["empty"], names: &["empty/"], renamed: Some(&["new/"]) },
    Form { sources: &["empty/"], names: &[], renamed: None },
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

    /// The files that are there afterwards, and empty directories with a `/`.
    fn expected(self, form: &Form) -> Vec<String> {
        let below = |directory: &str| {
            form.names.iter().map(|name| format!("{directory}{name}")).collect::<Vec<_>>()
        };
        let expected = match (self, form.renamed) {
            (Self::Root, _) => below(""),
            (Self::NewName, Some(renamed)) => renamed.iter().map(|name| (*name).into()).collect(),
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

/// Files with their contents, and empty directories with a `/` behind.
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
    harness::process::Haul::start(command).finish()
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
    let planned = dry.ok()["files"]["would_copy"].as_u64();
    // A directory that got the target's name is there at the second run, which goes into it, as cp
    // does.
    let is_new_directory =
        target == Target::NewName && form.renamed.is_some_and(|names| names != ["new"]);
    for round in 0..if is_new_directory { 1 } else { 3 } {
        if !place.path(directory_of(form)).exists() {
            // --move removed the directory that the command would run in, as it was empty.
            break;
        }
        let ran = push(&place, form, server.url(target.path()), options);
        // What was moved is gone: a named source that is missing cannot start.
        let is_gone = round > 0 && options.contains(&"--move");
        assert!(ran.status == 0 || is_gone, "{what}: {}", ran.err);
        if round == 0
            && let Some(planned) = planned
        {
            assert_eq!(ran.ok()["files"]["done"].as_u64(), Some(planned), "{what}");
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

/// `push . URL/lost --move` gave all files the one name `lost`: two of three existed nowhere.
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
    for form in FORMS {
        for target in Target::ALL {
            try_form(form, target, &["--move"]);
        }
    }
}

/// Two directories' contents with a file of one name: the second would replace the first, and with
/// `--move` neither source would be left.
#[test]
fn a_second_file_of_a_name_is_refused_and_its_source_stays() {
    let place = Place::new();
    for directory in ["one", "two"] {
        fs::create_dir_all(place.source(directory)).unwrap();
        fs::write(place.source(directory).join("same"), directory).unwrap();
        fs::write(place.source(directory).join(format!("own-{directory}")), directory).unwrap();
    }
    let server = Server::start(&place);
    let form = Form { sources: &["one/", "two/"], names: &[], renamed: None };
    let ran = push(&place, &form, server.url("to/"), &["--move"]);
    assert_eq!(ran.status, 1, "{}", ran.err);
    ran.failed(1);
    assert_eq!(fs::read_to_string(place.root("to/same")).unwrap(), "one");
    assert!(!place.source("one/same").exists(), "it was moved");
    assert_eq!(fs::read_to_string(place.source("two/same")).unwrap(), "two");
    assert!(place.root("to/own-one").exists() && place.root("to/own-two").exists());
    let errors = ran.named("error");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("has this name already"), "{errors:?}");
}

#[test]
fn a_pull_of_contents_goes_into_a_directory_by_every_form() {
    for (path, expected) in [
        ("x/.", ["new/a", "new/b", "new/sub/c"]),
        ("x/", ["new/a", "new/b", "new/sub/c"]),
        ("x", ["new/a", "new/b", "new/sub/c"]),
    ] {
        let place = Place::new();
        make_sources(&place.path("root"));
        let server = Server::start(&place);
        let words = [server.url(path), place.target("new").into()];
        let ran = place.pull(&words);
        assert_eq!(ran.status, 0, "{path}: {}", ran.err);
        let arrived = listing(&place.path("target"));
        assert_eq!(arrived.keys().collect::<Vec<_>>(), expected, "{path}");
    }
}
