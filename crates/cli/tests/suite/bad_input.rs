//! Bad input: wrong tokens, hostile names, full and read-only disks, sources that change meanwhile.
//!
//! Each ends with a clear error, and the rest of the run and the server go on.

use crate::harness::{
    NOBODY, Place, as_nobody, assert_no_temporaries, assert_same_files, assert_same_trees, is_root,
    journey::{WAYS, Way},
    peer::FakeServer,
    process::{Haul, Ran},
    server::{Server, ServerSetup},
};
use haul_protocol::{Message, message};
use haul_testkit::{Unavailable, mount::Mount, skip::skip};
use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    io::Write,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

const MIB: u64 = 1 << 20;

/// A place with a server and, on both sides, a file `data` to push and to pull.
fn with_data(len_bytes: u64) -> (Place, Server) {
    let place = Place::new();
    place.file(&place.source("data"), len_bytes);
    place.file(&place.root("served"), len_bytes);
    let server = Server::start(&place);
    (place, server)
}

/// Runs `haul token WORDS` for the server's state and returns the one line that it prints.
fn token_command(place: &Place, words: &[OsString]) -> serde_json::Value {
    let state = words!["--state", place.path("state")];
    let ran = place.run(&[words!["token"], words.to_vec(), state].concat());
    assert_eq!(ran.status, 0, "{ran:?}");
    ran.events[0].clone()
}

fn new_token(place: &Place, words: &[&str]) -> (String, String) {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let made = token_command(place, &[words!["new"], words].concat());
    let text = |key: &str| made[key].as_str().unwrap().to_owned();
    (text("token"), text("id"))
}

/// Checks that a run ends with an error in these words, and status 1 or 2; what is there is not
/// told as done.
#[track_caller]
fn assert_not_done(ran: &Ran, words: &[&str]) {
    assert!(ran.status == 1 || ran.status == 2, "{ran:?}");
    ran.says(words);
    assert!(ran.named("report").iter().all(|report| report["ok"] == false), "{ran:?}");
}

#[test]
fn a_token_that_is_wrong_expired_used_or_revoked_is_refused_with_the_reason() {
    let (place, server) = with_data(1000);
    let (expired, _) = new_token(&place, &["--expires", "1s"]);
    let wrong = haul_transfer::Token::generate(server.token().fingerprint).unwrap().reveal();
    let (used, _) = new_token(&place, &["--single-use"]);
    let (revoked, id) = new_token(&place, &[]);
    let by = |token: &str, path: &str| server.url_with(token, server.address(), path);
    place.push(&words![place.source("data"), by(&used, "used/")]).ok();
    place.push(&words![place.source("data"), by(&revoked, "revoked/")]).ok();
    token_command(&place, &words!["revoke", id]);
    thread::sleep(Duration::from_millis(1200));
    for (token, why) in [
        (&wrong, "does not know the token"),
        (&expired, "expired"),
        (&used, "used"),
        (&revoked, "revoked"),
    ] {
        for ran in [
            place.push(&words![place.source("data"), by(token, "no/")]),
            place.pull(&words![by(token, "served"), place.target("")]),
        ] {
            ran.refused(&[why, "token"]);
            assert!(!format!("{ran:?}").contains(token.as_str()), "the token is shown: {ran:?}");
        }
    }
    assert!(!place.root("no").exists() && !place.target("served").exists());
    server.still_serves(&place);
}

#[test]
fn a_token_without_the_right_is_refused_and_one_with_it_is_not() {
    let (place, server) = with_data(1000);
    let (read, _) = new_token(&place, &["--read"]);
    let (write, _) = new_token(&place, &["--write"]);
    let by = |token: &str, path: &str| server.url_with(token, server.address(), path);
    let push = |token: &str| place.push(&words![place.source("data"), by(token, "")]);
    let pull = |token: &str| place.pull(&words![by(token, "served"), place.target("")]);
    push(&read).refused(&["no right to write"]);
    pull(&write).refused(&["no right to read"]);
    assert!(!place.root("data").exists() && !place.target("served").exists());
    push(&write).ok();
    pull(&read).ok();
    let read_only = ServerSetup::new(&place).options(&["--read-only"]).start(&place);
    let (both, _) = new_token(&place, &[]);
    let url = read_only.url_with(&both, read_only.address(), "");
    place.push(&words![place.source("data"), url]).refused(&["read-only"]);
    place.pull(&words![read_only.url("served"), place.target("again")]).ok();
}

/// A token that may only write, by the words of the program; hostile_rights.rs tries what it would
/// not say.
#[test]
fn a_token_that_may_only_write_learns_neither_names_nor_contents() {
    let (place, server) = with_data(1000);
    fs::create_dir(place.root("in")).unwrap();
    place.file(&place.root("in/secret-name"), 10);
    place.file(&place.root("in/data"), 1234);
    let (write, _) = new_token(&place, &["--write"]);
    let url = |token: &str| server.url_with(token, server.address(), "in/");
    let push = |token: &str, options: &[&str]| {
        let mut source = place.path("source").into_os_string();
        source.push("/");
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        place.push(&[words![source, url(token)], options].concat())
    };
    for (options, words) in [
        (&["--delete", "-n"][..], ["no right to list", "it, as --delete tells the names"]),
        (&["--delete"], ["no right to list", "leave out --delete"]),
        (&["--checksum-compare"], ["no right to read", "BLAKE3"]),
        (&["--checksum-compare", "-n"], ["no right to read", "BLAKE3"]),
        (&["--move"], ["no right to read", "--on-conflict replace"]),
    ] {
        let ran = push(&write, options);
        ran.refused(&words);
        assert!(!format!("{ran:?}").contains("secret"), "{ran:?}");
    }
    let ran = push(&write, &["--on-conflict", "fail"]);
    ran.says(&["something of that name is there already"]);
    assert!(!format!("{ran:?}").contains("1234"), "it tells the size of what is there: {ran:?}");
    let (some, _) = new_token(&place, &["--write", "--list"]);
    push(&some, &["--delete"]).refused(&["no right to delete", "--delete removes"]);
    let (more, _) = new_token(&place, &["--write", "--list", "--delete"]);
    push(&more, &["--delete"]).ok();
    assert!(!place.root("in/secret-name").exists());
    push(&write, &["--move", "--on-conflict", "replace"]).ok();
    assert!(!place.source("data").exists() && place.root("in/data").exists());
}

/// A listing, which tells what may be listed name by name, and not a byte of it.
#[test]
fn a_token_that_may_only_list_fetches_nothing() {
    let (place, server) = with_data(1000);
    let (list, _) = new_token(&place, &["--list"]);
    let url = || server.url_with(&list, server.address(), "served");
    let planned = place.pull(&words![url(), place.target(""), "-n"]);
    assert_eq!((planned.status, planned.named("file").len()), (0, 1), "{planned:?}");
    place.pull(&words![url(), place.target("")]).refused(&["no right to read"]);
    place.push(&words![place.source("data"), url()]).refused(&["no right to write"]);
    let compare = words![url(), place.target(""), "-n", "--checksum-compare"];
    place.pull(&compare).refused(&["no right to read"]);
    let (read, _) = new_token(&place, &["--read", "--write"]);
    let moving = words![server.url_with(&read, server.address(), "served"), place.target("")];
    place.pull(&[moving, words!["--move"]].concat()).refused(&["no right to delete", "--move"]);
    assert!(place.root("served").exists() && !place.target("served").exists());
}

#[test]
fn a_token_opens_its_own_root_and_nothing_beside_it() {
    let (place, server) = with_data(1000);
    fs::create_dir(place.root("inbox")).unwrap();
    let (token, _) = new_token(&place, &["--root", "inbox"]);
    let by = |path: &str| server.url_with(&token, server.address(), path);
    place.push(&words![place.source("data"), by("")]).ok();
    assert_same_files(&place.source("data"), &place.root("inbox/data"));
    place.pull(&words![by("data"), place.target("")]).ok();
    for path in ["served", "../served", "inbox/data", "/served"] {
        assert_not_done(&place.pull(&words![by(path), place.target("no")]), &["source"]);
        assert!(!place.target("no").exists());
    }
    symlink("../served", place.root("inbox/up")).unwrap();
    assert_not_done(&place.pull(&words![by("up"), place.target("no")]), &["up"]);
    // A root that is not there any more is named.
    fs::create_dir(place.root("gone")).unwrap();
    let (token, _) = new_token(&place, &["--root", "gone"]);
    fs::remove_dir(place.root("gone")).unwrap();
    let url = server.url_with(&token, server.address(), "");
    assert_not_done(&place.push(&words![place.source("data"), url]), &["root"]);
    server.still_serves(&place);
}

#[test]
fn a_tokens_root_is_a_directory_that_is_there_and_links_to_it_are_resolved_once() {
    let (place, server) = with_data(1000);
    fs::create_dir_all(place.root("real/deep")).unwrap();
    symlink("real", place.root("link")).unwrap();
    symlink(place.path(""), place.root("out")).unwrap();
    let state = || words!["--state", place.path("state")];
    for (root, found) in [
        ("absent", "No such file"),
        ("real/absent", "No such file"),
        ("served", "no directory"),
        ("out/target", "a link that leads out"),
        ("out", "a link that leads out"),
    ] {
        let ran = place.run(&[words!["token", "new", "--root", root], state()].concat());
        ran.refused(&["cannot make a token for", "a directory that is there", found]);
    }
    let made = token_command(&place, &words!["new", "--root", "link/deep"]);
    assert_eq!(made["root"], "real/deep");
    // The link leads elsewhere now, the token does not.
    fs::remove_file(place.root("link")).unwrap();
    symlink(place.path(""), place.root("link")).unwrap();
    let url = server.url_with(made["token"].as_str().unwrap(), server.address(), "");
    place.push(&words![place.source("data"), url]).ok();
    assert_same_files(&place.source("data"), &place.root("real/deep/data"));
}

/// A token that may write replaces the directory of another token's root by a link.
#[test]
fn a_link_in_the_place_of_a_tokens_root_opens_nothing() {
    let (place, server) = with_data(1000);
    fs::create_dir_all(place.root("incoming/sub")).unwrap();
    place.file(&place.root("secret/s"), 1000);
    let (writing, _) = new_token(&place, &["--write", "--list", "--delete", "--root", "incoming"]);
    let (reading, _) = new_token(&place, &["--read", "--write", "--root", "incoming/sub"]);
    let by = |token: &str, path: &str| server.url_with(token, server.address(), path);
    fs::create_dir(place.source("empty")).unwrap();
    let empty = words![place.source("empty/"), by(&writing, ""), "--delete"];
    place.push(&empty).ok();
    symlink("../secret", place.source("empty/sub")).unwrap();
    place.push(&words![place.source("empty/"), by(&writing, "")]).ok();
    assert!(fs::symlink_metadata(place.root("incoming/sub")).unwrap().is_symlink());
    let words = ["the token's root", "a symbolic link in its place"];
    place.run(&words!["ls", by(&reading, "")]).refused(&words);
    place.pull(&words![by(&reading, "s"), place.target("")]).refused(&words);
    place.push(&words![place.source("data"), by(&reading, "")]).refused(&words);
    assert!(!place.target("s").exists() && !place.root("secret/data").exists());
    server.still_serves(&place);
}

#[test]
fn a_token_of_one_directory_opens_no_other_that_the_same_user_serves() {
    let (place, one) = with_data(1000);
    fs::create_dir(place.path("other")).unwrap();
    fs::write(place.path("other/secret"), b"secret").unwrap();
    let other = ServerSetup::new(&place).root(place.path("other")).start(&place);
    let null = ServerSetup::new(&place).root("null:").start(&place);
    let root = place.path("root");
    let (made, _) = new_token(&place, &["--for", root.to_str().unwrap()]);
    for token in [one.token().reveal(), made] {
        for there in [&other, &null] {
            let url = |path: &str| there.url_with(&token, there.address(), path);
            for ran in [
                place.push(&words![place.source("data"), url("")]),
                place.push(&words![place.source("data"), url(""), "-n"]),
                place.pull(&words![url("secret"), place.target("")]),
                place.run(&words!["probe", "net", url(""), "--time", "100ms"]),
            ] {
                ran.refused(&["the token is for another directory of that server"]);
                assert!(!format!("{ran:?}").contains("root"), "it tells which: {ran:?}");
            }
        }
        place.push(&words![place.source("data"), one.url_with(&token, one.address(), "")]).ok();
    }
    assert!(!place.target("secret").exists() && !place.path("other/data").exists());
    other.still_serves(&place);
}

#[test]
fn a_directory_that_took_the_place_of_a_served_one_has_a_url_of_its_own() {
    let (place, mut server) = with_data(1000);
    let before = server.token().reveal();
    server.restart(&place);
    server.process.kill();
    fs::rename(place.path("root"), place.path("moved")).unwrap();
    place.file(&place.root("served"), 1000);
    let server = Server::start(&place);
    assert_ne!(server.token().reveal(), before);
    let url = server.url_with(&before, server.address(), "served");
    place.pull(&words![url, place.target("")]).refused(&["replaced", "ask for a new URL"]);
    place.pull(&words![server.url("served"), place.target("")]).ok();
}

#[test]
fn a_single_use_token_lets_one_transfer_in_however_many_try_at_once() {
    let (place, server) = with_data(MIB);
    for round in 0..4 {
        let (token, _) = new_token(&place, &["--single-use"]);
        let start = |number: u32| {
            let path = format!("round{round}/n{number}/");
            let url = server.url_with(&token, server.address(), path);
            place.start(&words!["push", place.source("data"), url])
        };
        let running: Vec<Haul> = (0..8).map(start).collect();
        let ran: Vec<Ran> = running.into_iter().map(Haul::finish).collect();
        let let_in = ran.iter().filter(|ran| ran.status == 0).count();
        assert_eq!(let_in, 1, "so many got in with one token");
        for ran in ran.iter().filter(|ran| ran.status != 0) {
            ran.refused(&["used"]);
        }
    }
}

#[test]
fn a_single_use_token_lets_the_same_command_in_once_however_many_run_it() {
    let (place, server) = with_data(MIB);
    for round in 0..4 {
        let (token, _) = new_token(&place, &["--single-use"]);
        let url = server.url_with(&token, server.address(), format!("round{round}/"));
        let words = words!["push", place.source("data"), url];
        let running: Vec<Haul> = (0..4).map(|_| place.start(&words)).collect();
        let ran: Vec<Ran> = running.into_iter().map(Haul::finish).collect();
        let let_in = ran.iter().filter(|ran| ran.status == 0).count();
        assert_eq!(let_in, 1, "so many got in with one token");
        for ran in ran.iter().filter(|ran| ran.status != 0) {
            ran.refused(&["token", "for one transfer"]);
        }
    }
}

#[test]
fn a_single_use_token_goes_on_with_its_own_transfer_and_no_other() {
    let (place, server) = with_data(16 * MIB);
    let (token, _) = new_token(&place, &["--single-use"]);
    let by = |path: &str| server.url_with(&token, server.address(), path);
    let push = words!["push", place.source("data"), by("in/")];
    let others = [
        words!["push", place.source("data"), by("elsewhere/")],
        words!["push", place.source("data"), by("in")],
        words!["pull", by("in/"), place.target("")],
        words!["pull", by("served"), place.target("")],
    ];
    let assert_refused = |words: &[OsString], why: &str| {
        place.run(words).refused(&["token", "for one transfer", why]);
    };
    let slow = words!["--bwlimit", "3M", "--span-size", "256K"];
    let mut first = place.start(&[push.clone(), slow].concat());
    first.wait_for_bytes("bytes_durable", MIB);
    // While it runs, nobody else gets in, not with the same command either.
    others.iter().for_each(|words| assert_refused(words, "is used"));
    assert_refused(&push, "is running");
    let durable = first.progress("bytes_durable");
    first.kill();
    server.wait_for_sessions(1);
    others.iter().for_each(|words| assert_refused(words, "is used"));
    let ran = place.run(&push);
    ran.ok();
    assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
    assert_same_files(&place.source("data"), &place.root("in/data"));
    others.iter().chain([&push]).for_each(|words| assert_refused(words, "is used"));
    assert!(!place.root("elsewhere").exists());
    assert!(haul_testkit::tree::names(&place.path("target")).unwrap().is_empty());
    server.still_serves(&place);
}

#[test]
fn a_server_with_another_key_is_not_talked_to() {
    let (place, server) = with_data(1000);
    let state = place.path("other");
    let other = ServerSetup::new(&place).root(place.path("target")).state(state).start(&place);
    let url = server.url_by(other.address(), "");
    let ran = place.push(&words![place.source("data"), url]);
    ran.refused(&[&other.address().to_string(), "not the server of this token"]);
    assert!(!place.target("data").exists());
    other.still_serves(&place);
}

#[test]
fn a_server_that_is_not_there_or_speaks_something_else_is_named() {
    let place = Place::new();
    place.file(&place.source("data"), 10);
    let token = haul_transfer::Token::generate([1; 16]).unwrap().reveal();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
        }
    });
    let ran = place.push(&words![place.source("data"), format!("haul://{token}@{address}/")]);
    ran.refused(&[&address, "does not open a session"]);
    // A client's own port: nobody listens at it, and nobody else gets it while the client is there.
    let client = std::net::TcpStream::connect(&address).unwrap();
    let gone = client.local_addr().unwrap();
    let ran = place.push(&words![place.source("data"), format!("haul://{token}@{gone}/")]);
    ran.refused(&[&gone.to_string(), "cannot connect"]);
    let ran = place.push(&words![place.source("data"), format!("haul://{gone}/")]);
    ran.refused(&["token"]);
}

#[test]
fn names_that_would_leave_the_root_are_refused_both_ways() {
    let (place, server) = with_data(1000);
    fs::create_dir(place.root("sub")).unwrap();
    place.file(&place.path("outside"), 10);
    let long = "n".repeat(300);
    for path in ["../outside", "sub/../../outside", "..", "../", "%2e%2e/outside", "a%00b", &long] {
        let pushed = place.push(&words![place.source("data"), server.url(path)]);
        assert_not_done(&pushed, &["name is refused"]);
        let pulled = place.pull(&words![server.url(path), place.target("got")]);
        assert_not_done(&pulled, &["source", "name is refused"]);
        // A path that ends in a slash makes a directory of what is fetched; it stays empty.
        let got = haul_testkit::tree::names(&place.path("target")).unwrap();
        assert!(got.is_empty() || got == [Path::new("got")], "{path}: {got:?}");
        assert!(!place.target("got").is_file() && !place.path("data").exists(), "{path}");
        let _ = fs::remove_dir(place.target("got"));
    }
    assert_eq!(fs::metadata(place.path("outside")).unwrap().len(), 10);
    // What begins with a slash lies below the root all the same.
    let pulled = place.pull(&words![server.url("%2Fetc/passwd"), place.target("got")]);
    assert_not_done(&pulled, &["etc/passwd", "source"]);
    place.push(&words![place.source("data"), server.url("//tmp/x/")]).ok();
    assert_same_files(&place.source("data"), &place.root("tmp/x/data"));
    server.still_serves(&place);
}

#[test]
fn a_link_in_the_root_leads_nobody_out() {
    let (place, server) = with_data(1000);
    fs::create_dir(place.path("outside")).unwrap();
    place.file(&place.path("outside/secret"), 77);
    symlink("../outside", place.root("out")).unwrap();
    symlink(place.path("outside/secret"), place.root("file")).unwrap();
    for path in ["out/", "out/new", "out/deep/er/"] {
        let ran = place.push(&words![place.source("data"), server.url(path)]);
        assert_not_done(&ran, &["target", "out", "link"]);
    }
    // A tree that brings a directory of the link's name.
    place.file(&place.source("tree/out/data"), 10);
    place.file(&place.source("tree/beside"), 10);
    let ran = place.push(&words![place.source("tree/"), server.url("")]);
    assert_not_done(&ran, &["out", "target"]);
    assert_same_files(&place.source("tree/beside"), &place.root("beside"));
    assert_eq!(haul_testkit::tree::names(&place.path("outside")).unwrap().len(), 1);
    for path in ["out/secret", "out", "out/", "file"] {
        let ran = place.pull(&words![server.url(path), place.target("got")]);
        assert_not_done(&ran, &["source", "link"]);
        assert!(!place.target("got").is_file());
    }
    // Within a tree a link is a link, wherever it leads; a file that takes its place is a file.
    place.pull(&words![server.url(""), place.target("all")]).ok();
    assert!(place.target("all/out").is_symlink() && place.target("all/file").is_symlink());
    place.push(&words![place.source("data"), server.url("file")]).ok();
    assert_same_files(&place.source("data"), &place.root("file"));
    assert_eq!(fs::metadata(place.path("outside/secret")).unwrap().len(), 77);
}

/// Runs a test with the server's root on a file system of its own; skips where that cannot be.
fn mounted(
    mount: impl FnOnce(&Place) -> Result<Mount, Unavailable>,
) -> Option<(Place, Mount, Server)> {
    let place = Place::new();
    match mount(&place) {
        Ok(mount) => {
            let server = Server::start(&place);
            Some((place, mount, server))
        }
        Err(why) => {
            skip("a user who may mount (root)", &why);
            None
        }
    }
}

/// Files that do not fit together: each takes what it finds until it finds no more, and gives it
/// back.
#[test]
fn files_that_do_not_fit_together_are_never_told_of_more_room_than_they_need() {
    let mount = |place: &Place| Mount::tmpfs(&place.path("root"), "40m");
    let Some((place, _mount, server)) = mounted(mount) else { return };
    let words = |number: u8| words!["push", "zero:8M", server.url(format!("z{number}")), "--json"];
    let pushes: Vec<_> = (0..8).map(|number| Haul::start(place.command(&words(number)))).collect();
    let ends: Vec<Ran> = pushes.into_iter().map(Haul::finish).collect();
    let failed = ends.iter().filter(|ran| ran.status != 0).collect::<Vec<_>>();
    assert!((3..8).contains(&failed.len()), "{failed:?}");
    for ran in failed {
        let found = ran.says(&["space", "8388608 bytes"])["found"].as_str().unwrap().to_owned();
        let bytes = found.strip_suffix(" bytes").map(|bytes| bytes.parse::<u64>().unwrap());
        assert!(bytes.is_none_or(|bytes| bytes < 8 * MIB), "{found}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_known_before_the_first_byte_and_the_others_arrive() {
    let mount = |place: &Place| Mount::tmpfs(&place.path("root"), "8m");
    let Some((place, _mount, server)) = mounted(mount) else { return };
    place.file(&place.source("big"), 16 * MIB);
    place.file(&place.source("small"), 100_000);
    place.file(&place.source("zzz"), 100_000);
    let (big, small, zzz) = (place.source("big"), place.source("small"), place.source("zzz"));
    let ran = place.push(&words![big, small, zzz, server.url("")]);
    ran.failed(1);
    let error = ran.says(&["big", "target", "space", "16777216 bytes"]);
    assert!(error["hint"].as_str().unwrap().contains("free space"), "{error}");
    assert_eq!(ran.number("moved_bytes"), 200_000, "bytes were sent in vain: {ran:?}");
    assert!(!place.root("big").exists());
    assert_same_files(&small, &place.root("small"));
    assert_same_files(&zzz, &place.root("zzz"));
    assert_no_temporaries(&place.path("root"));
    server.still_serves(&place);
}

/// Free space of a tmpfs and of an ext4: what a failed fallocate(2) took is not free when it is
/// asked for.
#[test]
fn what_is_free_is_told_as_it_was_before_the_file_that_does_not_fit() {
    for kind in ["tmpfs", "ext4"] {
        let mount = |place: &Place| match kind {
            "tmpfs" => Mount::tmpfs(&place.path("root"), "8m"),
            _ => Mount::ext4(&place.path("root"), &place.path("image"), 48 * MIB),
        };
        let Some((place, _mount, server)) = mounted(mount) else { return };
        // One behind a hole, of which the first run of bytes fits.
        let sparse = File::create(place.source("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, &[1; MIB as usize], 0).unwrap();
        let content = vec![1; 60 * MIB as usize];
        std::os::unix::fs::FileExt::write_all_at(&sparse, &content, 100 * MIB).unwrap();
        for source in [words!["zero:1G"], words![place.source("sparse")]] {
            let ran = place.push(&[source, words![server.url("other")]].concat());
            ran.failed(1);
            let error = ran.says(&["does not fit", "bytes of free space"]);
            let found = error["found"].as_str().unwrap().trim_end_matches(" bytes");
            let found: u64 = found.parse().unwrap();
            assert!(found > 6 * MIB && found < 48 * MIB, "{error}");
            // One name in all events, though the target has another.
            assert_eq!(error["path"], ran.named("file")[0]["path"], "{ran:?}");
        }
        assert_no_temporaries(&place.path("root"));
    }
}

#[test]
fn a_disk_that_fills_up_in_the_middle_fails_the_file_and_the_next_run_goes_on() {
    let mount = |place: &Place| Mount::ext2(&place.path("root"), &place.path("image"), 48 * MIB);
    let Some((place, _mount, server)) = mounted(mount) else { return };
    place.file(&place.source("big"), 24 * MIB);
    place.file(&place.source("small"), 10_000);
    let sources = words![place.source("small"), place.source("big"), server.url("")];
    let options = words!["--bwlimit", "8M", "--span-size", "256K"];
    let client = place.start(&[words!["push"], sources.clone(), options].concat());
    let durable = client.wait_for_bytes("bytes_durable", MIB);
    let filler = place.root("filler");
    let chunk = vec![1; 1 << 16];
    let mut file = File::create(&filler).unwrap();
    while file.write_all(&chunk).is_ok() {}
    let ran = client.finish();
    ran.failed(1);
    ran.says(&["big", "target", "no space", "free space"]);
    assert!(!place.root("big").exists());
    assert_same_files(&place.source("small"), &place.root("small"));
    drop(file);
    fs::remove_file(filler).unwrap();
    let ran = place.push(&sources);
    ran.ok();
    assert!(ran.number("resumed_bytes") >= durable, "{durable} were durable: {ran:?}");
    assert_same_files(&place.source("big"), &place.root("big"));
    assert_no_temporaries(&place.path("root"));
}

/// A disk below the file system that is too small for what the file system promised.
#[test]
fn a_disk_that_fails_at_the_sync_never_shows_the_file() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    let disk = Mount::tmpfs(&place.path("disk"), "20m");
    let image = place.path("disk").join("image");
    let system =
        disk.and_then(|disk| Ok((disk, Mount::ext4(&place.path("root"), &image, 128 * MIB)?)));
    let _mounts = match system {
        Ok(mounts) => mounts,
        Err(why) => return skip("a user who may mount (root)", &why),
    };
    let server = Server::start(&place);
    place.file(&place.source("big"), 48 * MIB);
    let ran = place.push(&words![place.source("big"), server.url("")]);
    assert_not_done(&ran, &["big", "target"]);
    assert!(!place.root("big").exists());
    // The server itself is well.
    place.push(&words!["zero:1M", server.url("null:")]).ok();
}

#[test]
fn a_read_only_target_is_named_with_what_to_do() {
    let mount = |place: &Place| Mount::tmpfs(&place.path("root"), "8m");
    let Some((place, mount, server)) = mounted(mount) else { return };
    place.file(&place.source("data"), 100_000);
    place.file(&place.root("served"), 50_000);
    mount.make_read_only().unwrap();
    for path in ["", "new/dir/", "name"] {
        let ran = place.push(&words![place.source("data"), server.url(path)]);
        assert_not_done(&ran, &["target", "read-only", "remount"]);
    }
    place.pull(&words![server.url("served"), place.target("")]).ok();
    // The same on this side.
    for target in ["root", "root/new/"] {
        let ran = place.pull(&words![server.url("served"), place.path(target)]);
        if target == "root" {
            // It is the very same file, so there is nothing to write.
            ran.ok();
            continue;
        }
        assert_not_done(&ran, &["read-only"]);
    }
    let ran = place.pull(&words![server.url("served"), place.root("other")]);
    assert_not_done(&ran, &["other", "target", "read-only", "remount"]);
}

#[test]
fn a_target_directory_without_rights_fails_its_files_and_no_others() {
    if !is_root() {
        return skip("root, to run the server as another user", "another user");
    }
    let place = Place::new();
    fs::create_dir(place.root("locked")).unwrap();
    fs::create_dir(place.root("open")).unwrap();
    if !place.open_to_nobody(&[&place.root("open")]) {
        return skip("a program that every user may run", "one in a closed directory");
    }
    let server = ServerSetup::new(&place).run_by_nobody().start(&place);
    for name in ["locked/a", "open/b"] {
        place.file(&place.source(name), 70_000);
    }
    let ran = place.push(&words![place.source("locked"), place.source("open"), server.url("")]);
    ran.failed(1);
    ran.says(&["locked/a", "target", "permission denied", "owner and mode"]);
    assert_same_files(&place.source("open/b"), &place.root("open/b"));
    let ran = place.push(&words![place.source("open/b"), server.url("locked/new/")]);
    assert_not_done(&ran, &["target", "permission denied"]);
    place.push(&words![place.source("locked/a"), server.url("open/")]).ok();
}

#[test]
fn a_source_without_rights_is_named_and_the_others_arrive() {
    if !is_root() {
        return skip("root, to run one side as another user", "another user");
    }
    for way in WAYS {
        let place = Place::new();
        let from = place.path(if way == Way::Push { "source" } else { "root" });
        for name in ["secret", "good", "closed/inside"] {
            place.file(&from.join("all").join(name), 100_000);
        }
        let closed = Permissions::from_mode(0o700);
        fs::set_permissions(from.join("all/secret"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(from.join("all/closed"), closed).unwrap();
        if !place.open_to_nobody(&[&place.path("target")]) {
            return skip("a program that every user may run", "one in a closed directory");
        }
        let (ran, to) = match way {
            Way::Push => {
                let server = Server::start(&place);
                let words = words!["push", from.join("all"), server.url(""), "--json"];
                let mut command = place.command(&words);
                as_nobody(&mut command);
                (Haul::start(command).finish(), place.root("all"))
            }
            Way::Pull => {
                let server = ServerSetup::new(&place).run_by_nobody().start(&place);
                let ran = place.pull(&words![server.url("all"), place.target("")]);
                (ran, place.target("all"))
            }
        };
        ran.failed(2);
        ran.says(&["all/secret", "source", "permission denied"]);
        ran.says(&["all/closed", "source", "permission denied"]);
        assert_same_files(&from.join("all/good"), &to.join("good"));
        assert!(!to.join("secret").exists());
        assert_no_temporaries(&to);
    }
}

/// Changes a source while it is being moved, and runs it again when nothing changes any more.
fn changed_meanwhile(way: Way, change: impl Fn(&Place, &Path), words: &[&str]) {
    let (place, server) = with_data(12 * MIB);
    place.file(&place.source("good"), 100_000);
    place.file(&place.root("good"), 100_000);
    let (from, to, command) = match way {
        Way::Push => {
            let sources = words![place.source("data"), place.source("good"), server.url("")];
            (place.source("data"), place.root("data"), [words!["push"], sources].concat())
        }
        Way::Pull => {
            let urls = words![server.url("served"), server.url("good"), place.target("")];
            (place.root("served"), place.target("served"), [words!["pull"], urls].concat())
        }
    };
    let slow = words!["--bwlimit", "6M", "--span-size", "256K"];
    let client = place.start(&[command.clone(), slow].concat());
    client.wait_for_bytes("bytes_received", MIB);
    change(&place, &from);
    let ran = client.finish();
    ran.failed(1);
    let name = from.file_name().unwrap().to_str().unwrap();
    ran.says(&[&[name, "source"], words].concat());
    assert!(!to.exists(), "a file that changed meanwhile is there");
    let good = |directory: &Path| directory.with_file_name("good");
    assert_same_files(&good(&from), &good(&to));
    if from.exists() {
        place.run(&command).ok();
        assert_same_files(&from, &to);
        assert_no_temporaries(&place.path(""));
    }
    server.still_serves(&place);
}

#[test]
fn a_source_truncated_meanwhile_is_an_error_that_names_it() {
    for way in WAYS {
        let change = |_: &Place, file: &Path| {
            File::options().write(true).open(file).unwrap().set_len(100).unwrap();
        };
        changed_meanwhile(way, change, &["changed", "100 bytes", "again"]);
    }
}

#[test]
fn a_source_appended_to_meanwhile_is_an_error_that_names_it() {
    for way in WAYS {
        let change = |_: &Place, file: &Path| {
            File::options().append(true).open(file).unwrap().write_all(b"more").unwrap();
        };
        changed_meanwhile(way, change, &["changed", "12582916 bytes", "again"]);
    }
}

#[test]
fn a_source_written_to_meanwhile_is_an_error_that_names_it() {
    for way in WAYS {
        let change = |_: &Place, file: &Path| {
            let file = File::options().write(true).open(file).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"other", 10).unwrap();
        };
        changed_meanwhile(way, change, &["changed", "written to", "again"]);
    }
}

#[test]
fn a_source_replaced_meanwhile_is_an_error_that_names_it() {
    for way in WAYS {
        let change = |place: &Place, file: &Path| {
            place.file(&place.path("new"), 12 * MIB);
            fs::rename(place.path("new"), file).unwrap();
        };
        changed_meanwhile(way, change, &["changed", "replaced", "again"]);
    }
}

#[test]
fn a_source_deleted_meanwhile_is_an_error_that_names_it() {
    for way in WAYS {
        let change = |_: &Place, file: &Path| fs::remove_file(file).unwrap();
        changed_meanwhile(way, change, &["went away"]);
    }
}

#[test]
fn a_directory_where_a_file_belongs_and_the_reverse_are_named_and_the_rest_arrives() {
    for way in WAYS {
        let (place, server) = with_data(1000);
        let (from, to) = match way {
            Way::Push => (place.path("source"), place.path("root")),
            Way::Pull => (place.path("root"), place.path("target")),
        };
        place.file(&from.join("tree/x"), 5000);
        place.file(&from.join("tree/d/inside"), 5000);
        place.file(&from.join("tree/y"), 5000);
        fs::create_dir_all(to.join("into/x/kept")).unwrap();
        place.file(&to.join("into/d"), 10);
        let ran = match way {
            Way::Push => place.push(&words![from.join("tree/"), server.url("into/")]),
            Way::Pull => place.pull(&words![server.url("tree/"), to.join("into")]),
        };
        assert_eq!(ran.status, 1, "{ran:?}");
        let error = ran.says(&["x", "target", "directory"]);
        assert!(error["hint"].as_str().unwrap().contains("remove it"), "{error}");
        ran.says(&["d", "target"]);
        ran.says(&["d/inside", "target"]);
        assert_same_files(&from.join("tree/y"), &to.join("into/y"));
        assert!(to.join("into/x/kept").is_dir() && to.join("into/d").is_file());
        assert_no_temporaries(&place.path(""));
        server.still_serves(&place);
    }
}

#[test]
fn a_file_named_as_a_target_directory_is_an_error_at_once() {
    let (place, server) = with_data(1000);
    place.file(&place.root("file"), 10);
    place.file(&place.target("file"), 10);
    for path in ["file/", "file/deeper", "file/deeper/"] {
        let ran = place.push(&words![place.source("data"), server.url(path)]);
        assert_not_done(&ran, &["target", "file"]);
        let ran = place.pull(&words![server.url("served"), place.target(path)]);
        assert_not_done(&ran, &["file"]);
    }
    // Two sources need a directory.
    let words = words![place.source("data"), place.root("served"), server.url("file")];
    assert_not_done(&place.push(&words), &["file", "target"]);
    assert_eq!(fs::metadata(place.root("file")).unwrap().len(), 10);
    server.still_serves(&place);
}

#[test]
fn sources_that_are_missing_or_of_no_kind_that_is_moved_are_named() {
    let (place, server) = with_data(1000);
    let missing = place.source("missing");
    let ran = place.push(&words![missing, place.source("data"), server.url("")]);
    assert_not_done(&ran, &["missing", "no such file"]);
    let ran = place.pull(&words![server.url("missing"), server.url("served"), place.target("")]);
    ran.failed(1);
    ran.says(&["missing", "source", "no such file", "check the name"]);
    assert_same_files(&place.root("served"), &place.target("served"));
    place.file(&place.source("tree/plain"), 1000);
    let fifo = place.source("tree/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // In a tree it is named, and nothing has failed; named by the user it is an error.
    let ran = place.push(&words![place.source("tree"), server.url("")]);
    ran.ok();
    let left_out = ran.named("left_out");
    assert_eq!((left_out.len(), &left_out[0]["path"]), (1, &"tree/fifo".into()));
    assert_eq!(ran.report()["files"]["left_out"], 1);
    assert_same_files(&place.source("tree/plain"), &place.root("tree/plain"));
    let ran = place.push(&words![fifo, server.url("")]);
    assert_not_done(&ran, &["fifo", "source", "FIFO"]);
    // A tree that is all right arrives whole behind it.
    fs::remove_file(&fifo).unwrap();
    place.push(&words![place.source("tree"), server.url("")]).ok();
    assert_same_trees(&place.source("tree"), &place.root("tree"));
}

#[test]
fn a_name_of_hauls_own_temporaries_is_refused() {
    let (place, server) = with_data(1000);
    let ran = place.push(&words![place.source("data"), server.url(".x.haul-part")]);
    assert_not_done(&ran, &[".x.haul-part", "target", "temporaries"]);
    assert_no_temporaries(&place.path("root"));
}

#[test]
fn a_state_directory_that_others_can_read_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("state")).unwrap();
    fs::set_permissions(place.path("state"), Permissions::from_mode(0o755)).unwrap();
    let words = words!["serve", place.path("root"), "--listen", "127.0.0.1:0"];
    let ran = place.run(&[words, words!["--state", place.path("state")]].concat());
    ran.refused(&["state", "0700", "chmod"]);
    if is_root() {
        chown(place.path("state"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let ran = place.run(&words!["serve", place.path("nowhere"), "--listen", "127.0.0.1:0"]);
    assert_eq!(ran.status, 2, "{ran:?}");
    ran.says(&["nowhere", "no such file"]);
}

#[test]
fn what_a_server_does_not_bring_is_an_error() {
    let place = Place::new();
    let server = FakeServer::start(&place.path("fake"), |mut peer| {
        if peer.let_in().is_ok() {
            peer.say(Message::OffersEnd(message::OffersEnd { files: 0, bytes: 0 }));
            let report = Some(message::SideReport::default());
            peer.say(Message::Finish(message::Finish { report }));
            peer.hear_close();
        }
    });
    let words = words![server.url("data"), place.target(""), "--retry-for", "1s"];
    let ran = place.pull(&words);
    assert_eq!(ran.status, 2, "{ran:?}");
    ran.says(&["data", "asked for and not offered"]);
}

#[test]
fn a_source_that_is_missing_is_said_once() {
    let place = Place::new();
    let server = Server::start(&place);
    let pushed = place.push(&words![place.source("absent"), server.url("")]);
    let pulled = place.pull(&words![server.url("absent"), place.target("")]);
    for ran in [pushed, pulled] {
        assert_eq!(ran.status, 2, "{ran:?}");
        let lines = ran.err.lines().filter(|line| line.contains("absent")).count();
        assert_eq!((ran.named("error").len(), lines), (1, 1), "{ran:?}");
    }
}
