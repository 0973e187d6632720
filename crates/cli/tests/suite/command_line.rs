//! The real `haul` in a fresh directory: help, mistakes, tokens.
//!
//! No transfer.

use haul_transfer::{Rights, ServedRoot, StateDirectory};
use serde_json::Value;
use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

struct Fresh {
    directory: TempDir,
}

impl Fresh {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(words).current_dir(self.path()).env_clear();
        command.env("HOME", self.path()).env("HAUL_STATE", self.path().join("state"));
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        Ran::of(self.command(words).output().unwrap())
    }
}

#[derive(Debug)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            status: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    fn ok(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A token that no server knows.
fn stray_token() -> String {
    haul_transfer::Token::generate([9; 16]).unwrap().reveal()
}

#[test]
fn haul_alone_shows_a_short_help_with_every_command_that_exists() {
    let ran = Fresh::new().run(&[]);
    assert_eq!(ran.status, 2);
    for command in ["demo", "serve", "push", "pull", "token", "media", "probe", "tune", "bench"] {
        assert!(ran.err.contains(&format!("\n  {command} ")), "{}", ran.err);
    }
    for absent in ["generate-docs", "bench-side", "history"] {
        assert!(!ran.err.contains(absent), "{}", ran.err);
    }
    assert!(ran.err.lines().count() < 25);
}

#[test]
fn every_help_shows_examples_exit_statuses_and_environment() {
    let fresh = Fresh::new();
    let commands: [&[&str]; 10] = [
        &[],
        &["demo"],
        &["serve"],
        &["push"],
        &["pull"],
        &["token"],
        &["probe", "net"],
        &["probe", "path"],
        &["tune"],
        &["bench", "engines"],
    ];
    for command in commands {
        let help = fresh.run(&[command, &["--help"]].concat()).ok();
        for section in ["Examples:", "Exit status:", "Environment:"] {
            assert!(help.contains(section), "{command:?}: {help}");
        }
    }
}

#[test]
fn help_wraps_at_a_hundred_columns_and_shows_no_token_of_the_environment() {
    let fresh = Fresh::new();
    let token = stray_token();
    let help = fresh.command(&["push", "--help"]).env("HAUL_TOKEN", &token).output().unwrap();
    let help = Ran::of(help).ok();
    assert!(!help.contains(&token));
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
}

#[test]
fn the_version_is_one_line() {
    let fresh = Fresh::new();
    let version = format!("haul {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(fresh.run(&["--version"]).ok(), version);
    assert_eq!(fresh.run(&["-V"]).ok(), version);
}

#[test]
fn mistakes_end_with_status_2_and_say_what_to_do() {
    let fresh = Fresh::new();
    for (words, says) in [
        (&["pusj"][..], "unrecognized subcommand"),
        (&["push", "a"], "the URL that haul serve printed last"),
        (&["push", "haul://host/"], "haul push SOURCE URL"),
        (&["push", "12:00.dat", "haul://host/"], "written ./NAME"),
        (&["push", "a", "host:b", "--ssh", "'ssh"], "--ssh 'ssh -p 2222'"),
        (&["pull", "host:a", "other:b", "."], "once for each machine"),
        (&["push", "a", "-q", "haul://host/100%"], "written %25"),
        (&["get", "haul://host/a"], "haul pull URL DIR"),
        (&["pull", "haul://host/a", "--resume"], "goes on where it stopped"),
        (&["serve", ".", "--port", "9"], "--listen :PORT"),
        (&["serve", ".", "--advertise", "dtn1.example.org:9"], "without a port"),
        (&["push", "a", "host/b"], "no haul:// in front"),
        (&["push", "a", "haul://host/"], "HAUL_TOKEN"),
        (&["push", "a", "haul://host/", "--bwlimit", "fast"], "10Gbit"),
        (&["push", "a", "haul://host/", "--send-engine", "rsync"], "sendfile"),
        (&["push", "a", "haul://host/", "--digest", "none"], "--protection clear"),
        (&["push", "null:", "haul://host/"], "zero:SIZE"),
        (&["pull", "haul://a/x", "haul://b/y", "."], "two servers"),
        (&["pull", "haul://a/x", "haul://b/y"], "two servers"),
        (&["push", "-av", "a", "haul://host/"], "--preserve all"),
        (&["push", "a", "haul://host/", "--bwlimit", "1gb"], "1Gbit for bits"),
        (&["serve"], "<ROOT>"),
        (&["serve", "null:", "--read-only"], "only receives"),
        (&["serve", ".", "--max-streams", "1000"], "64"),
        (&["probe", "net"], "<URL>"),
        (&["probe", "net", "haul://a/", "--interval", "1ms"], "50ms"),
        (&["token", "new", "--root", "../x"], "below the server's root"),
        (&["token", "new", "--host", "a/b"], "host name"),
        (&["token", "new", "--expires", "soon"], "7d"),
        (&["token", "revoke", "abc"], "haul token list"),
        (&["demo", "--size", "1K"], "64.0 MiB"),
        (&["probe"], "disk"),
        (&["probe", "disk"], "<DIR>"),
        (&["probe", "disk", ".", "--block-sizes", "5000"], "4096"),
    ] {
        let ran = fresh.run(words);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{words:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{words:?}: {}", ran.err);
    }
}

#[test]
fn with_json_a_mistake_is_an_event_too() {
    let fresh = Fresh::new();
    let words: [&[&str]; 3] = [
        &["push", "a", "haul://host/", "--json"],
        &["push", "--json", "--nonsense"],
        &["token", "revoke", "abc", "--json"],
    ];
    for words in words {
        let ran = fresh.run(words);
        assert_eq!(ran.status, 2);
        assert!(!ran.err.is_empty());
        let [event] = &ran.json()[..] else { panic!("{ran:?}") };
        assert_eq!(event["event"], "error");
        for field in ["path", "what", "needs", "found", "hint"] {
            assert!(event[field].is_string(), "{event}");
        }
    }
}

#[test]
fn no_mistake_shows_a_token() {
    let fresh = Fresh::new();
    let token = stray_token();
    let url = format!("haul://{token}@host:99999/a");
    std::fs::write(fresh.path().join("token"), &token).unwrap();
    let known = format!("haul://{token}@host/a");
    for words in [
        &["push", "a", &url, "--json"][..],
        &["pull", &url, ".", "--json"],
        &["push", "a", &known, "--token-file", "token"],
        &["pull", &known, "haul://other/b", "."],
    ] {
        let ran = fresh.run(words);
        assert_eq!(ran.status, 2, "{ran:?}");
        assert!(!format!("{ran:?}").contains(&token), "{ran:?}");
    }
}

#[test]
fn a_token_file_and_the_variable_are_read_and_their_faults_named() {
    let fresh = Fresh::new();
    let push = ["push", "a", "haul://host/"];
    let ran = fresh.run(&[&push[..], &["--token-file", "absent"]].concat());
    assert_eq!(ran.status, 2);
    assert!(ran.err.contains("absent") && ran.err.contains("No such file"), "{}", ran.err);
    std::fs::write(fresh.path().join("odd"), "no token").unwrap();
    let ran = fresh.run(&[&push[..], &["--token-file", "odd"]].concat());
    assert!(ran.err.contains("53 letters and digits"), "{}", ran.err);
    let ran = Ran::of(fresh.command(&push).env("HAUL_TOKEN", "odd").output().unwrap());
    assert!(ran.err.contains("HAUL_TOKEN") && ran.status == 2, "{}", ran.err);
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let fresh = Fresh::new();
    std::fs::create_dir_all(fresh.path().join("in/2025")).unwrap();
    let words = ["token", "new", "--write", "--root", "in/2025", "--expires", "7d", "--single-use"];
    let ran = fresh.run(&[&words[..], &["--for", ".", "--label", "for Ann", "--json"]].concat());
    let [made] = &ran.json()[..] else { panic!("{ran:?}") };
    let id = made["id"].as_str().unwrap();
    let secret = made["token"].as_str().unwrap();
    assert_eq!((made["event"].as_str(), secret.len()), (Some("token"), 53));
    let rights = Rights { write: true, ..Rights::NONE };
    assert_eq!(made["rights"], serde_json::to_value(rights).unwrap());

    let served = fresh.path().canonicalize().unwrap();
    assert_eq!(made["served"], served.to_str().unwrap());
    let below = served.join("in/2025");

    let list = fresh.run(&["token", "list"]).ok();
    for cell in [id, "valid", "write", "one", below.to_str().unwrap(), "for Ann"] {
        assert!(list.contains(cell), "{list}");
    }
    assert!(!list.contains(secret));
    let mode = std::fs::metadata(fresh.path().join("state")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let revoked = fresh.run(&["token", "revoke", &id[..4]]).ok();
    assert!(revoked.starts_with(&format!("revoked {id}")), "{revoked}");
    let ran = fresh.run(&["token", "list", "--json"]);
    let [listed] = &ran.json()[..] else { panic!("{ran:?}") };
    assert_eq!((&listed["status"], &listed["id"]), (&"revoked".into(), &made["id"]));
    assert!(listed.get("token").is_none() && listed.get("secret").is_none());
    assert!(!ran.out.contains("secret"));
}

#[test]
fn a_token_allows_all_unless_a_right_is_named_and_comes_as_a_url() {
    let fresh = Fresh::new();
    let text = fresh.run(&["token", "new", "--for", "null:", "--host", "::1", "--port", "99"]).ok();
    assert!(text.contains("read, write, delete below null:\n"), "{text}");
    let url = text.split_whitespace().find(|word| word.starts_with("haul://")).unwrap();
    let url: haul_transfer::HaulUrl = url.parse().unwrap();
    assert_eq!(url.server(), "[::1]:99");
    for (words, allows) in [
        (&["--read"][..], "read"),
        (&["--list"], "list"),
        (&["--read", "--list"], "read"),
        (&["--read", "--write"], "read, write"),
        (&["--write", "--list", "--delete"], "list, write, delete"),
    ] {
        let text = fresh.run(&[&["token", "new", "--for", "/"], words].concat()).ok();
        assert!(text.contains(&format!("allows {allows} below /\n")), "{text}");
    }
}

#[test]
fn a_token_is_for_a_directory_that_is_served_or_named() {
    let fresh = Fresh::new();
    let state = StateDirectory::open(&fresh.path().join("state")).unwrap();
    let refused = |words: &[&str]| {
        let ran = fresh.run(&[&["token", "new"], words].concat());
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{ran:?}");
        ran.err
    };
    let err = refused(&[]);
    assert!(err.contains("--for DIR") && err.contains("served nothing yet"), "{err}");
    assert!(refused(&["--for", "absent"]).contains("absent"));
    let serve = |name: &str| {
        let path = fresh.path().join(name);
        std::fs::create_dir(&path).unwrap();
        state.serve_token(&ServedRoot::at(&path).unwrap(), Rights::ALL).unwrap();
        path.canonicalize().unwrap().to_str().unwrap().to_owned()
    };
    // The one that was served is taken, and said.
    let first = serve("first");
    assert!(
        fresh.run(&["token", "new"]).ok().contains(&format!("read, write, delete below {first}\n"))
    );
    let second = serve("second");
    let err = refused(&[]);
    assert!(err.contains("--for") && err.contains(&first) && err.contains(&second), "{err}");
    std::fs::create_dir(fresh.path().join("second/in")).unwrap();
    let made = fresh.run(&["token", "new", "--for", "second", "--root", "in"]).ok();
    assert!(made.contains(&format!("below {second}/in\n")), "{made}");
}

#[test]
fn without_tokens_the_list_says_how_they_are_made() {
    let fresh = Fresh::new();
    assert!(fresh.run(&["token", "list"]).ok().contains("haul token new"));
    assert_eq!(fresh.run(&["token", "list", "--json"]).ok(), "");
}

#[test]
fn the_state_directory_is_named_by_option_variable_or_home() {
    let fresh = Fresh::new();
    fresh.run(&["token", "new", "--for", ".", "--state", "named"]).ok();
    assert!(fresh.path().join("named/tokens.json").is_file());
    let mut command = fresh.command(&["token", "new", "--for", "."]);
    assert!(command.env_remove("HAUL_STATE").status().unwrap().success());
    assert!(fresh.path().join(".local/state/haul/tokens.json").is_file());
}

#[test]
fn a_closed_output_is_no_panic() {
    let fresh = Fresh::new();
    fresh.run(&["token", "new", "--for", "."]).ok();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = fresh.command(&["token", "list"]).stdout(writer).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// `haul ls > FILE` on a full file system ended with status 0 and half of the lines.
#[test]
fn an_output_that_cannot_be_written_ends_with_status_1_and_says_so_once() {
    let fresh = Fresh::new();
    fresh.run(&["token", "new", "--for", "."]).ok();
    fresh.run(&["token", "new", "--for", "."]).ok();
    for words in [&["token", "list"][..], &["token", "list", "--json"], &["--help"], &["tune"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ran = Ran::of(fresh.command(words).stdout(full).output().unwrap());
        assert_eq!(ran.status, 1, "{words:?}: {}", ran.err);
        let told = ran.err.matches("standard output is not complete").count();
        assert_eq!(told, 1, "{words:?}: {}", ran.err);
    }
}
