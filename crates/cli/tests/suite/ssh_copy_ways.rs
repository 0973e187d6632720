//! Copies between two other machines of which one cannot reach the other.
//!
//! The target comes, or both ssh carry the data.

use crate::{
    harness::{
        Place, assert_same_files, assert_same_trees,
        process::{Haul, Ran},
        sshd::{self, Sshd, SshdSetup},
        wait_until,
    },
    proxies::Proxy,
    ssh_copy::{Machines, at, bytes_of, kill_ssh},
    ssh_ways::{enter, lacks_root, way, ways},
};
use haul_emulator::{EmulatorError, namespace::Namespace, veth::Veth};
use haul_testkit::skip::skip;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    net::{TcpListener, UdpSocket},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::Command,
};

/// Two machines with networks of their own. The test's machine has a way to neither but ssh.
struct Apart {
    machines: Machines,
    _hosts: Hosts,
}

enum Hosts {
    /// With a wire between them.
    Wired(Veth),
    /// With no way between them.
    Alone(Namespace, Namespace),
}

impl Hosts {
    fn wired() -> Result<Self, EmulatorError> {
        let veth = Veth::start()?;
        // The kernel says a moment later that the wire has two ends.
        let is_up = |host: &Namespace| {
            let mut ip = Command::new("ip");
            let shown = ip.args(["-n", host.name(), "link", "show", veth.hosts().device]).output();
            String::from_utf8_lossy(&shown.unwrap().stdout).contains("state UP")
        };
        wait_until("a wire", || is_up(veth.hosts().near) && is_up(veth.hosts().far));
        Ok(Self::Wired(veth))
    }

    fn alone() -> Result<Self, EmulatorError> {
        let (one, two) = (Namespace::make("sshcopy", "one")?, Namespace::make("sshcopy", "two")?);
        // Blocks that nobody has (RFC 5737).
        one.ip(&["address", "add", "198.51.100.7/32", "dev", "lo"])?;
        two.ip(&["address", "add", "203.0.113.7/32", "dev", "lo"])?;
        Ok(Self::Alone(one, two))
    }
}

impl Apart {
    /// Starts both; `None` and a skipped test where that cannot be.
    fn start(hosts: fn() -> Result<Hosts, EmulatorError>, two: SshdSetup) -> Option<Self> {
        if lacks_root() {
            return None;
        }
        let hosts = match hosts() {
            Ok(hosts) => hosts,
            Err(why) => {
                skip("root and ip(8)", why);
                return None;
            }
        };
        let machines = Machines::with(SshdSetup::new(), two)?;
        let (one, other) = match &hosts {
            Hosts::Wired(veth) => (veth.hosts().near, veth.hosts().far),
            Hosts::Alone(one, two) => (one, two),
        };
        enter(&machines.one, &machines.one_place, one);
        enter(&machines.two, &machines.two_place, other);
        machines.configure();
        Some(Self { machines, _hosts: hosts })
    }
}

/// A machine whose server listens on its own loopback alone, as behind a firewall.
fn behind_a_firewall() -> SshdSetup {
    SshdSetup::new().key_options("command=\"haul serve --over-ssh --listen 127.0.0.1:0\"")
}

fn large(machines: &Machines) -> Vec<OsString> {
    machines.one_place.file(&machines.one.home("large"), 24 << 20);
    words![at("one", "large"), at("two", "large")]
}

fn assert_large_arrived(machines: &Machines) {
    assert_same_files(&machines.one.home("large"), &machines.two.home("large"));
}

fn kill_haul(sshd: &Sshd) {
    let found = sshd.far_ends();
    // The login shell may have begun it, and waits for it.
    assert!(!found.is_empty(), "no haul there");
    for id in found {
        let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        // One that went with the other is gone.
        let _ = kill_process(id, Signal::KILL);
    }
}

/// Checks that a copy broke off in these words, and that the same command goes on.
#[track_caller]
fn breaks_and_goes_on(machines: &Machines, copy: Haul, says: &[&str], option: &str) {
    let ran = copy.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    ran.says(says);
    // Where the target comes, its ssh ends with its haul, which may be heard of before the end.
    let goes_on = ways(&ran).contains(&"with ssh -> without it");
    assert!(!goes_on || option == "--reverse", "ssh was all of it: {ran:?}");
    machines.are_free();
    assert!(!machines.two.home("large").exists(), "nothing half has a name");
    let ran = machines.copy(&words![at("one", "large"), at("two", "large"), option]);
    ran.ok();
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    assert_large_arrived(machines);
}

/// Both ways that the user can name, for trees, single files and patterns.
#[test]
fn the_target_may_come_or_both_ssh_carry_the_data() {
    let Some(machines) = Machines::start() else { return };
    let Machines { one, two, one_place, .. } = &machines;
    one_place.tree(&one.home("run7"), 2, 6);
    one_place.file(&one.home("large"), 9_000_001);
    for (option, words) in [
        ("--reverse", "the other side made"),
        (
            "--through-ssh",
            "through ssh, by way of the machine that asked for the copy, as --through",
        ),
    ] {
        let to = |name: &str| at("two", format!("{option}/{name}"));
        let copy = |words: &[OsString]| machines.copy(&[words, &words![option]].concat());
        let both = words![at("one", "run7"), at("one", "large"), to(""), "--streams", "4"];
        let ran = copy(&both);
        assert!(way(&ran).starts_with(words), "{ran:?}");
        assert_eq!(ways(&ran), [""; 0], "the user has named it");
        assert_same_trees(&one.home("run7"), &two.home(option).join("run7"));
        assert_same_files(&one.home("large"), &two.home(option).join("large"));
        assert_eq!(
            ran.report()["to"],
            format!("two:{}/{option}/", two.home("").display()).replace("//", "/")
        );
        copy(&words![at("one", "run7/d1/f*"), to("fit/")]).ok();
        assert_eq!(fs::read_dir(two.home(option).join("fit")).unwrap().count(), 6);
        let private = copy(&words![at("one", "large"), to("p"), "--protection", "private"]);
        assert_eq!(private.ok()["protection"], "private");
        assert_same_files(&one.home("large"), &two.home(option).join("p"));
        let moved = copy(&words![at("one", "run7/d0/f1"), to("moved"), "--move"]);
        moved.ok();
        assert!(!one.home("run7/d0/f1").exists() && two.home(option).join("moved").exists());
        copy(&words![at("one", "absent"), to("")]).refused(&["one: ", "absent"]);
        machines.are_free();
        one_place.file(&one.home("run7/d0/f1"), 1000);
    }
    let both = words![at("one", "large"), at("two", ""), "--reverse", "--through-ssh"];
    machines.copy(&both).refused(&["--reverse", "--through-ssh"]);
    for option in ["--reverse", "--through-ssh"] {
        let words = words![at("one", "large"), at("two", ""), option, "--proxy", "http://h:1"];
        machines.copy(&words).refused(&["cannot take --proxy", option]);
    }
}

#[test]
fn a_target_that_is_reached_is_connected_to_and_needs_no_other_way() {
    let Some(apart) = Apart::start(Hosts::wired, SshdSetup::new()) else { return };
    let machines = &apart.machines;
    let ran = machines.copy(&large(machines));
    assert_eq!((way(&ran), ways(&ran)), (String::new(), vec![]), "{ran:?}");
    assert_large_arrived(machines);
    machines.are_free();
}

#[test]
fn a_target_that_cannot_be_reached_comes_itself_and_needs_its_ssh_no_more() {
    let Some(apart) = Apart::start(Hosts::wired, behind_a_firewall()) else { return };
    let machines = &apart.machines;
    let copy = machines.slow_copy(&words!["--dscp", "le"]);
    kill_ssh(&copy, "two");
    let ran = copy.finish();
    assert!(way(&ran).starts_with("the other side made"), "{ran:?}");
    let ways = ways(&ran);
    assert_eq!(ways, ["connections to two -> connections from there", "with ssh -> without it"]);
    let why = ran.named("fallback")[0]["why"].as_str().unwrap();
    for part in ["no connection to two", "it told no address", "--dscp does not count there"] {
        assert!(why.contains(part), "{why}");
    }
    assert_large_arrived(machines);
    machines.are_free();
    // The machine that listens there has a port of the range.
    let taken = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = taken.local_addr().unwrap().port();
    drop(taken);
    let words = words![at("one", "large"), at("two", "new"), "--port-range", port.to_string()];
    let copy = machines
        .place
        .start(&machines.words(&[&words[..], &words!["--reverse", "--bwlimit", "6M"]].concat()));
    copy.wait_for_bytes("bytes_durable", 1 << 20);
    assert!(listens(&machines.one, port), "{port}");
    copy.finish().ok();
    machines.are_free();
}

/// Words of an administrator hold the machine that sends where it listens, too.
#[test]
fn a_machine_that_sends_listens_where_its_administrator_lets_it() {
    let port = free_port();
    let forced = format!("command=\"haul serve --over-ssh --listen 127.0.0.1:{port}\"");
    let one = SshdSetup::new().key_options(&forced);
    let Some(machines) = Machines::with(one, SshdSetup::new()) else { return };
    let copy = machines.slow_copy(&words!["--reverse", "--port-range", "50000-50100"]);
    assert!(listens(&machines.one, port), "{port}");
    assert!(way(&copy.finish()).starts_with("the other side made"));
    machines.are_free();
    let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let again = words![at("one", "large"), at("two", "new"), "--reverse"];
    machines.copy(&again).refused(&["one: cannot listen on 127.0.0.1", "administrator"]);
    machines.are_free();
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Whether a haul there listens on a port, as the tables of its network have it.
fn listens(sshd: &Sshd, port: u16) -> bool {
    let port = format!(":{port:04X}");
    sshd.far_ends().iter().any(|id| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{id}/net/{name}"));
        let tables = [read("tcp"), read("tcp6")].map(Result::unwrap_or_default).concat();
        let mut lines = tables.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        // Local address, peer, state: 0A is LISTEN (proc_net_tcp).
        lines.any(|words| words.len() > 3 && words[1].ends_with(&port) && words[3] == "0A")
    })
}

/// Two machines between which no packet goes.
#[test]
fn data_goes_through_both_ssh_where_no_connection_can_be_made_and_that_is_told() {
    let Some(apart) = Apart::start(Hosts::alone, SshdSetup::new()) else { return };
    let machines = &apart.machines;
    let words = large(machines);
    let ran = machines.copy(&words);
    let by =
        "through ssh, by way of the machine that asked for the copy, as no connection could be";
    assert!(way(&ran).starts_with(by), "{ran:?}");
    assert!(way(&ran).contains("both ssh here used"), "{ran:?}");
    assert_eq!(ways(&ran), ["connections to two -> through ssh"]);
    let why = ran.named("fallback")[0]["why"].as_str().unwrap();
    for part in ["203.0.113.7", "no connection to two", "none from there"] {
        assert!(why.contains(part), "{why}");
    }
    let stages = ran.report()["stages"].as_array().unwrap();
    assert!(stages.iter().any(|stage| stage[0] == "ssh"), "{ran:?}");
    assert_large_arrived(machines);
    let reverse = [&words[..], &words!["--reverse"]].concat();
    machines.copy(&reverse).refused(&["one: two cannot connect to this machine", "--port-range"]);
    // By a proxy data goes, or it does not go.
    let proxy = [&words[..], &words!["--proxy", "http://203.0.113.7:9"]].concat();
    machines.copy(&proxy).refused(&["one: cannot reach two from here"]);
    machines.are_free();
}

/// A key for one directory leads to no third machine, and needs none when ssh has the data.
#[test]
fn a_target_with_a_key_for_one_directory_goes_nowhere_and_gets_the_data_through_ssh() {
    let outer = Place::new();
    let serve = format!("haul serve --over-ssh {} --listen 127.0.0.1:0", outer.root("").display());
    let confined = SshdSetup::new().key_options(&format!("command=\"{serve}\",restrict"));
    let Some(apart) = Apart::start(Hosts::wired, confined) else { return };
    let machines = &apart.machines;
    let words = large(machines);
    let reverse = [&words[..], &words!["--reverse"]].concat();
    machines.copy(&reverse).refused(&["two cannot connect", "a key for one directory"]);
    let ran = machines.copy(&words);
    assert_eq!(ways(&ran), ["connections to two -> through ssh"], "{ran:?}");
    assert_same_files(&machines.one.home("large"), &outer.root("large"));
    machines.are_free();
}

#[test]
fn a_copy_through_both_ssh_ends_with_either_and_the_same_command_goes_on() {
    let Some(machines) = Machines::start() else { return };
    let through = "--through-ssh";
    let slow = || machines.slow_copy(&words![through, "--retry-for", "1h"]);
    for (machine, says) in [("one", "ssh to one ended"), ("two", "ssh to two ended")] {
        let copy = slow();
        kill_ssh(&copy, machine);
        breaks_and_goes_on(&machines, copy, &[says, "same command"], through);
        fs::remove_file(machines.two.home("large")).unwrap();
    }
    for (sshd, says) in [(&machines.one, "ssh to one ended"), (&machines.two, "ssh to two ended")] {
        let copy = slow();
        kill_haul(sshd);
        breaks_and_goes_on(&machines, copy, &[says, "same command"], through);
        fs::remove_file(machines.two.home("large")).unwrap();
    }
    let mut copy = slow();
    copy.kill();
    machines.are_free();
    assert!(!machines.two.home("large").exists(), "nothing half has a name");
    let copy = slow();
    copy.signal(Signal::INT);
    breaks_and_goes_on(&machines, copy, &["interrupted"], through);
}

/// The words of the machine that sends stand behind data that the target does not take.
#[test]
fn a_copy_through_both_ssh_ends_where_the_target_takes_nothing_any_more() {
    let Some(machines) = Machines::start() else { return };
    let copy = machines.slow_copy(&words!["--through-ssh", "--retry-for", "2s"]);
    let stopped = machines.two.far_ends();
    let signal = |signal| {
        for id in &stopped {
            let id = i32::try_from(*id).ok().and_then(Pid::from_raw).unwrap();
            // One that is gone by then needs no signal.
            let _ = kill_process(id, signal);
        }
    };
    signal(Signal::STOP);
    let ran = copy.finish();
    signal(Signal::CONT);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(format!("{:?}", ran.named("error")).contains("two"), "{ran:?}");
    machines.are_free();
}

#[test]
fn a_copy_to_which_the_target_comes_ends_with_either_haul_and_goes_on() {
    let Some(machines) = Machines::start() else { return };
    let slow = || machines.slow_copy(&words!["--reverse", "--retry-for", "2s"]);
    let copy = slow();
    kill_haul(&machines.one);
    breaks_and_goes_on(&machines, copy, &["ssh to one ended", "same command"], "--reverse");
    fs::remove_file(machines.two.home("large")).unwrap();
    let copy = slow();
    kill_haul(&machines.two);
    breaks_and_goes_on(&machines, copy, &["did not come back", "same command"], "--reverse");
    fs::remove_file(machines.two.home("large")).unwrap();
    let mut copy = slow();
    copy.kill();
    machines.are_free();
    let copy = slow();
    kill_ssh(&copy, "one");
    breaks_and_goes_on(&machines, copy, &["ssh to one ended", "same command"], "--reverse");
}

/// Options about connections are for the machine that makes them.
#[test]
fn a_proxy_and_addresses_are_those_of_the_machine_that_sends() {
    let place = Place::new();
    let port = free_port();
    let listen = format!("command=\"haul serve --over-ssh --listen 127.0.0.1:{port}\"");
    let two = SshdSetup::new().key_options(&listen);
    let Some(machines) = Machines::with(SshdSetup::new(), two) else { return };
    let Machines { one, two, one_place, .. } = &machines;
    one_place.file(&one.home("a"), 3 << 20);
    let copy = |options: &[OsString]| {
        let ran = machines.copy(&[&words![at("one", "a"), at("two", "a")], options].concat());
        assert!(!format!("{ran:?}").contains("secret"), "{ran:?}");
        machines.are_free();
        ran
    };
    let proxy = Proxy::start(([127, 0, 0, 1], port).into());
    let shown = |scheme: &str| {
        let word = proxy.word(scheme);
        format!("{scheme}://...@{}", word.rsplit('@').next().unwrap())
    };
    assert_eq!(copy(&words!["--proxy", proxy.word("http")]).ok()["proxy"], shown("http"));
    assert_eq!(proxy.asked().first().map(String::as_str), Some("127.0.0.1"));
    assert_same_files(&one.home("a"), &two.home("a"));
    // What the file holds goes there, and not its name.
    fs::write(place.path("proxy"), format!("{}\n", proxy.word("socks5"))).unwrap();
    let by_file = words!["--proxy", format!("@{}", place.path("proxy").display()), "--recheck"];
    fs::remove_file(two.home("a")).unwrap();
    assert_eq!(copy(&by_file).ok()["proxy"], shown("socks5"));
    let asked = proxy.asked().len();
    // The environment of this machine is not that of the one that sends.
    fs::remove_file(two.home("a")).unwrap();
    let words = machines.words(&words![at("one", "a"), at("two", "a")]);
    let mut command = machines.place.command(&[&words[..], &words!["--json"]].concat());
    command.env("ALL_PROXY", proxy.word("http"));
    Haul::start(command).finish().ok();
    assert_eq!(proxy.asked().len(), asked, "nobody has asked it");
    machines.are_free();

    fs::remove_file(two.home("a")).unwrap();
    let ends = copy(&words!["--bind", "127.0.0.3,127.0.0.4", "--streams", "2", "--dscp", "le"]);
    let named: Vec<_> = ends.ok()["local_ends"].as_array().unwrap().clone();
    let is_bound = |end: &Value| ["127.0.0.3", "127.0.0.4"].iter().any(|it| end["address"] == *it);
    assert!(!named.is_empty() && named.iter().all(is_bound), "{ends:?}");
    let nowhere = copy(&words!["--bind", "no-such-if"]);
    nowhere.refused(&["no-such-if"]);

    // A key for one directory goes by the paths that its machine has.
    let key = fs::read_to_string(one_place.path("user_key.pub")).unwrap();
    let forced =
        format!("command=\"haul serve --over-ssh {}\",restrict {key}", one.home("").display());
    fs::write(one_place.path("authorized_keys"), forced).unwrap();
    copy(&words!["--proxy", proxy.word("http")]).refused(&["one: haul there may not", "--proxy"]);
    copy(&words!["--bind", "127.0.0.3"]).refused(&["one: haul there may not send so", "--bind"]);
    copy(&[]).ok();
}

/// A machine in the middle has what one on the path would have: docs/ssh.md says so.
#[test]
fn bytes_that_go_through_both_ssh_can_be_read_here_unless_they_are_private() {
    let Some(machines) = Machines::start() else { return };
    let Machines { one, place, .. } = &machines;
    let marker = b"a-line-that-can-be-known-again\n";
    fs::write(one.home("secret-name"), marker.repeat(50_000)).unwrap();
    let path = |name: &str| place.path(name).display().to_string();
    let text = format!(
        "{{ printf '%s\\n' \"$@\"; env; }} >> {log}\n\
         tee -a {sent} | ssh -F {config} \"$@\" | tee -a {got}\n",
        log = path("log"),
        sent = path("sent"),
        got = path("got"),
        config = path("ssh_config"),
    );
    fs::write(place.path("my-ssh"), text).unwrap();
    let ssh = format!("sh {}", path("my-ssh"));
    for (protection, is_read) in [("clear", true), ("safe", true), ("private", false)] {
        let words = words!["copy", at("one", "secret-name"), at("two", protection), "--ssh", ssh];
        let ran: Ran =
            place.run(&[words, words!["--through-ssh", "--protection", protection]].concat());
        ran.ok();
        let through = bytes_of(&place.path("sent")) + bytes_of(&place.path("got"));
        assert!(through > 2 * 50_000 * marker.len() as u64, "{through} bytes came by here");
        let seen = ["sent", "got"].map(|name| {
            let bytes = fs::read(place.path(name)).unwrap();
            fs::remove_file(place.path(name)).unwrap();
            bytes.windows(marker.len()).any(|part| part == marker)
        });
        assert_eq!(seen, [is_read; 2], "{protection}");
        wait_until("over", || machines.one.far_ends().is_empty());
        machines.are_free();
    }
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(!log.contains("secret") && !log.contains("haul://"), "{log}");
    let is_of_token = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    assert!(log.split(|c: char| !is_of_token(c)).all(|word| word.len() < 53), "{log}");
}

/// A scheduler ends a job by a signal to all of its processes, and a person may kill a group.
#[test]
fn a_signal_that_ends_both_ssh_too_is_told_as_the_interruption_that_it_is() {
    let Some(machines) = Machines::start() else { return };
    for option in ["--through-ssh", "--reverse"] {
        machines.one_place.file(&machines.one.home("large"), 24 << 20);
        let words = words![at("one", "large"), at("two", "large"), "--bwlimit", "6M", option];
        let words = [&machines.words(&words)[..], &words!["--retry-for", "2s", "--json"]].concat();
        let mut command = machines.place.command(&words);
        command.process_group(0);
        let copy = Haul::start(command);
        copy.wait_for_bytes("bytes_durable", 1 << 20);
        let group = Pid::from_raw(i32::try_from(copy.id()).unwrap()).unwrap();
        kill_process_group(group, Signal::TERM).unwrap();
        let ran = copy.finish();
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.err.contains("interrupted"), "{option}: {ran:?}");
        machines.are_free();
    }
}

/// `Match exec` of ssh_config(5) may ask others.
#[test]
fn an_ssh_that_is_slow_to_tell_its_configuration_takes_no_time_of_the_target() {
    let Some(machines) = Machines::start() else { return };
    let place = &machines.place;
    let script = "#!/bin/sh\ncase \" $* \" in *' -G '*) sleep 3;; esac\nexec ssh \"$@\"\n";
    fs::create_dir(place.path("bin")).unwrap();
    fs::write(place.path("bin/ssh"), script).unwrap();
    fs::set_permissions(place.path("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let [ssh, config] = ["bin/ssh", "ssh_config"].map(|name| place.path(name));
    let ssh = format!("{} -F {}", ssh.display(), config.display());
    let words = [&words!["copy"], &large(&machines)[..], &words!["--ssh", ssh, "--reverse"]];
    let ran = place.run(&words.concat());
    assert!(way(&ran).starts_with("the other side made"), "{ran:?}");
    assert_large_arrived(&machines);
    machines.are_free();
}

/// The environment of the machine that sends is asked about the host that is connected to. The name
/// by which the user calls it is known here alone.
#[test]
fn a_host_without_a_proxy_at_the_machine_that_sends_is_the_one_that_it_connects_to() {
    // Port 9 has no proxy: who asks it goes nowhere.
    let one = SshdSetup::new().environment("ALL_PROXY", "http://127.0.0.1:9");
    let Some(machines) = Machines::with(one, SshdSetup::new()) else { return };
    let ran = machines.copy(&large(&machines));
    assert_eq!((way(&ran), ways(&ran)), (String::new(), vec![]), "{ran:?}");
    assert_large_arrived(&machines);
    machines.are_free();
}

/// A key for one directory at the machine that sends is none for its own services.
#[test]
fn a_machine_that_sends_by_a_key_for_one_directory_connects_to_no_service_of_its_own() {
    let Some(machines) = Machines::start() else { return };
    let words = large(&machines);
    let Machines { one, one_place, .. } = &machines;
    let key = fs::read_to_string(one_place.path("user_key.pub")).unwrap();
    let forced =
        format!("command=\"haul serve --over-ssh {}\",restrict {key}", one.home("").display());
    fs::write(one_place.path("authorized_keys"), forced).unwrap();
    let ran = machines.copy(&words);
    assert_eq!(ways(&ran), ["connections to two -> connections from there"], "{ran:?}");
    assert_large_arrived(&machines);
    machines.are_free();
}

/// Words of a haul that is none: it says where it listens, and names what it likes.
fn says_that_it_listens(place: &Place, addresses: &[String], port: u16) {
    let listens = json!({ "port": port, "addresses": addresses, "secret": "0f".repeat(32) });
    let json = json!({ "listens": listens }).to_string();
    let len = u32::try_from(json.len()).unwrap().to_be_bytes();
    let frame = [&b"\xffhaul over ssh\n\0"[..], &len, json.as_bytes()].concat();
    fs::write(place.path("frame"), frame).unwrap();
    fs::create_dir_all(place.path("bin")).unwrap();
    let script = format!("#!/bin/sh\ncat {}\nsleep 4\n", place.path("frame").display());
    fs::write(place.path("bin/haul"), script).unwrap();
    fs::set_permissions(place.path("bin/haul"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The machine that sends may be of an enemy, and behind a host that nobody here can ask.
#[test]
fn a_machine_that_sends_leads_the_target_to_no_service_of_its_own() {
    let route = UdpSocket::bind("0.0.0.0:0").unwrap();
    // A block that nobody has (RFC 5737): nothing is sent.
    let of_host = route.connect("203.0.113.1:9").and_then(|()| route.local_addr());
    let Some(own) = of_host.ok().map(|own| own.ip()).filter(|own| !own.is_loopback()) else {
        return skip("a route to other hosts", "loopback alone");
    };
    let (one_place, two_place, place) = (Place::new(), Place::new(), Place::new());
    let one = SshdSetup::new().search_first(&one_place.path("bin"));
    let Some(one) = one.start(&one_place) else { return };
    let Some(two) = Sshd::start(&two_place) else { return };
    let machines = Machines { one, two, one_place, two_place, place };
    machines.configure();
    let comes = |told: &[String]| {
        let service = TcpListener::bind((own, 0)).unwrap();
        let port = service.local_addr().unwrap().port();
        says_that_it_listens(&machines.one_place, told, port);
        let ran = machines.copy(&words![at("one", "a"), at("two", "a")]);
        assert_eq!(ran.status, 2, "{ran:?}");
        service.set_nonblocking(true).unwrap();
        let come = service.accept().map(|(_, from)| from.ip()).map_err(|error| error.kind());
        machines.are_free();
        come
    };
    // The same words of a machine that ssh comes to at loopback, as that of the target: they are
    // the same, and the target comes.
    assert_eq!(comes(&["127.0.0.1".to_owned(), own.to_string()]), Ok(own));
    let program = sshd::program().unwrap().display().to_string();
    let config = machines.one_place.path("sshd_config").display().to_string();
    machines.one.configure_ssh(&format!("ProxyCommand {program} -i -f {config}"));
    machines.configure();
    assert_eq!(comes(&[own.to_string()]), Err(ErrorKind::WouldBlock), "somebody came");
}
