//! The words of `haul serve`: the URLs that others can use, and its log.

use crate::harness::{
    Place,
    process::Haul,
    server::{Server, ServerSetup},
    wait_until,
};
use std::{
    fs::File,
    io::Read,
    net::IpAddr,
    process::{Child, Stdio},
};

/// A server that talks to people; killed when dropped.
struct Talking {
    child: Child,
    log: std::path::PathBuf,
}

impl Talking {
    fn start(place: &Place, options: &[&str]) -> Self {
        let log = place.path("log");
        let options: Vec<_> = options.iter().map(std::ffi::OsString::from).collect();
        let mut command = place.command(&[words!["serve", place.path("root")], options].concat());
        command.stdout(File::create(&log).unwrap()).stderr(Stdio::null()).stdin(Stdio::null());
        let talking = Self { child: command.spawn().unwrap(), log };
        talking.wait_for("Ctrl-C");
        talking
    }

    fn text(&self) -> String {
        let mut text = String::new();
        File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[track_caller]
    fn wait_for(&self, words: &str) {
        wait_until(words, || self.text().contains(words));
    }

    fn url(&self) -> haul_transfer::HaulUrl {
        let text = self.text();
        let url = text.split_whitespace().find(|word| word.starts_with("haul://")).unwrap();
        url.parse().unwrap()
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_log_has_times_and_addresses_as_people_write_them_and_names_files_where_asked() {
    for options in [&["--listen", "[::]:0"][..], &["--listen", "[::]:0", "-v"]] {
        let place = Place::new();
        place.file(&place.source("d/one"), 10);
        let server = Talking::start(&place, options);
        let mut url = server.url();
        url.host = "127.0.0.1".into();
        place.push(&words![place.source("d"), url.reveal()]).ok();
        server.wait_for("finished:");
        let text = server.text();
        let (_, log) = text.split_once("started again.\n").unwrap();
        for line in log.lines() {
            let time = line.split(' ').next().unwrap();
            assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{line}");
        }
        assert!(log.contains("s, 1 file and 1 directory done, 0 skipped, 0 failed"), "{log}");
        assert!(log.contains("] 127.0.0.1:") && !log.contains("::ffff:"), "{log}");
        assert_eq!(log.contains("] done d/one (10 bytes)"), options.contains(&"-v"), "{log}");
    }
}

/// The log as the record of what happened to the files of this host.
#[test]
fn the_log_says_what_was_done_here_and_by_which_name() {
    let place = Place::new();
    place.file(&place.root("t/only-here"), 10);
    place.file(&place.source("t/one"), 10);
    place.file(&place.source("large"), 64 << 20);
    let server = Talking::start(&place, &["--listen", "127.0.0.1:0", "-v"]);
    let url = |path: &str| format!("{}{path}", server.url().reveal());
    place.push(&words![place.source("t/"), url("t/"), "--delete", "-n"]).ok();
    server.wait_for("finished: 0 bytes");
    assert!(server.text().contains("dry run, nothing was changed: 1 file would be copied"));
    assert!(!server.text().contains("removed") && place.root("t/only-here").exists());
    place.push(&words![place.source("t/one"), url("same")]).ok();
    server.wait_for("] done same (10 bytes)");
    let words = words!["push", place.source("large"), url("cut"), "--bwlimit", "16M"];
    let mut client = place.start(&words);
    let durable = client.wait_for_bytes("bytes_durable", 4 << 20);
    client.kill();
    server.wait_for("ended: ");
    let text = server.text();
    let bytes = text.split_once("ended: ").unwrap().1.split(' ').next().unwrap();
    assert!(bytes.parse::<u64>().unwrap() >= durable, "{durable} were durable: {text}");
}

#[test]
fn a_hangup_ends_no_server_that_has_no_terminal() {
    let place = Place::new();
    place.file(&place.source("data"), 10);
    let server = Talking::start(&place, &["--listen", "127.0.0.1:0"]);
    for _ in 0..2 {
        let id = rustix::process::Pid::from_child(&server.child);
        rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
        server.wait_for("SIGHUP: nothing to read again");
    }
    place.push(&words![place.source("data"), server.url().reveal()]).ok();
}

#[test]
fn the_printed_urls_lead_to_addresses_of_this_machine_or_are_said_not_to() {
    let place = Place::new();
    let words = words!["serve", place.path("root"), "--listen", "[::]:0", "--json"];
    let server = Haul::start(place.command(&words));
    let line = server.wait_for("listening line", |line| line["event"] == "listening");
    assert!(line["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
    let urls: Vec<haul_transfer::HaulUrl> = line["urls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|url| url.as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(line["url"], line["urls"][0]);
    let addresses = haul_sys::interfaces::addresses().unwrap();
    let here: Vec<IpAddr> = addresses.iter().map(|one| one.address).collect();
    for url in &urls {
        if let Ok(address) = url.host.parse::<IpAddr>() {
            assert!(here.contains(&address) && !address.is_loopback(), "{url}");
        } else if line["for_others"] == false {
            assert_eq!(url.host, "localhost");
        }
    }
    // The first one works, from here at least.
    place.file(&place.source("data"), 10);
    place.push(&words![place.source("data"), urls[0].reveal()]).ok();
    let named = ServerSetup::new(&place).options(&["--advertise", "dtn1.example.org"]);
    let url = named.start(&place).url("");
    assert!(url.to_str().unwrap().contains("@dtn1.example.org:"));
}

/// An address that cannot be listened on: another port is the cure of a busy port only.
#[test]
fn what_cannot_be_listened_on_is_told_by_what_is_wrong_with_it() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    for (listen, needs) in [
        (busy.as_str(), "a free port"),
        ("no-such-host.invalid:22001", "an address of this host"),
        ("[::1", "an address of this host"),
        ("192.0.2.1:0", "an address of this host"),
        ("99999", "a port up to 65535"),
    ] {
        let ran = place.run(&words!["serve", place.path("root"), "--listen", listen]);
        assert_eq!(ran.status, 2, "{listen}: {}", ran.err);
        assert!(ran.err.contains(needs), "{listen}: {}", ran.err);
    }
}

/// A directory that is held open keeps its file system from being unmounted.
#[test]
fn a_server_holds_no_directory_of_a_session_that_has_ended() {
    let place = Place::new();
    for name in ["d/a", "d/b/c", "d/b/e/f"] {
        let path = place.source(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        place.file(&path, 100_000);
    }
    let server = Server::start(&place);
    let below = place.root("up");
    let held = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.process.id())).unwrap();
        let links = open.flatten().filter_map(|one| std::fs::read_link(one.path()).ok());
        links.filter(|path| path.starts_with(&below)).collect::<Vec<_>>()
    };
    for options in [&[][..], &["--on-conflict", "replace"]] {
        let words = words![place.source("d"), server.url("up/")];
        let options = options.iter().map(std::ffi::OsString::from);
        place.push(&words.into_iter().chain(options).collect::<Vec<_>>()).ok();
        wait_until("the session has let go", || held().is_empty());
    }
    place.pull(&words![server.url("up/d"), place.target("")]).ok();
    wait_until("the session has let go", || held().is_empty());
}

/// A root that was moved away, as by `umount -l` or `mv`: what came would lie where nobody finds
/// it.
#[test]
fn a_server_whose_directory_is_not_at_its_path_any_more_says_so() {
    let place = Place::new();
    place.file(&place.source("a"), 1000);
    let server = Server::start(&place);
    let push = words!["push", place.source("a"), server.url("")];
    let (root, away) = (place.root(""), place.path("away"));
    std::fs::rename(&root, &away).unwrap();
    let words = ["not at its path any more", "start the server again"];
    place.run(&push).refused(&[words[0], words[1], "nothing there"]);
    std::fs::create_dir(&root).unwrap();
    place.run(&push).refused(&[words[0], words[1], "another directory there"]);
    assert!(!away.join("a").exists() && !root.join("a").exists());
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    place.run(&push).ok();
}

#[test]
fn a_server_whose_state_is_broken_does_not_tell_where_it_lies() {
    let place = Place::new();
    place.file(&place.source("a"), 1000);
    let server = Server::start(&place);
    std::fs::write(place.path("state/tokens.json"), "{").unwrap();
    let ran = place.run(&words!["push", place.source("a"), server.url("")]);
    ran.refused(&["its own list of tokens", "haul token list"]);
    assert!(!format!("{ran:?}").contains("tokens.json"), "{ran:?}");
}
