//! Copies over ssh where no port can be reached: the other side comes, or ssh carries the data.

use crate::{
    harness::{
        Place, assert_same_files, assert_same_trees, is_root,
        process::{Haul, Ran, behind},
        sshd::{self, Sshd, SshdSetup, there},
        wait_until,
    },
    ssh::{slow_push, ssh_of},
};
use haul_emulator::{EmulatorError, namespace::Namespace, veth::Veth};
use haul_testkit::skip::skip;
use rustix::process::{Signal, kill_process};
use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    net::TcpListener,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Has ssh start an sshd in a namespace, by pipes: ssh comes there whatever the network does.
pub fn enter(sshd: &Sshd, place: &Place, namespace: &Namespace) {
    let enter: Vec<String> =
        namespace.words().iter().map(|word| word.to_str().unwrap().to_owned()).collect();
    let program = sshd::program().unwrap().display().to_string();
    let config = place.path("sshd_config").display().to_string();
    let inetd = format!("{} {program} -i -f {config}", enter.join(" "));
    sshd.configure_ssh(&format!("ProxyCommand {inetd}"));
}

pub fn lacks_root() -> bool {
    let lacks = sshd::program().is_none() || !is_root();
    if lacks {
        skip("root, and sshd (openssh-server)", "less");
    }
    lacks
}

/// The ways that a run fell back to.
pub fn ways(ran: &Ran) -> Vec<&str> {
    let told = ran.named("fallback").into_iter();
    told.filter(|event| event["side"] == "path")
        .map(|event| event["from_to"].as_str().unwrap())
        .collect()
}

pub fn way(ran: &Ran) -> String {
    ran.ok()["way"].as_str().unwrap_or_default().to_owned()
}

/// Checks that a run says how fast ssh was and how fast it may have been without; gives both.
fn ssh_rates(ran: &Ran) -> [f64; 2] {
    let ssh = &ran.ok()["ssh"];
    let rates = ["gbit_per_s", "without_gbit_per_s"].map(|key| ssh[key].as_f64().unwrap_or(0.0));
    assert!(rates[0] > 0.0 && rates[1] >= rates[0], "{ran:?}");
    rates
}

/// Both ways that the user can name, for trees, single files, patterns and listings.
#[test]
fn data_may_come_from_there_or_go_through_ssh() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.tree(&place.source("run7"), 2, 6);
    place.file(&place.source("large"), 9_000_001);
    for (option, words) in [("--reverse", "the other side made"), ("--through-ssh", "through ssh")]
    {
        let run = |words: &[OsString]| sshd.run(&place, &[words, &words![option]].concat());
        let below = |name: &str| there(format!("{option}/{name}"));
        let pushed = run(&words![
            "push",
            place.source("run7"),
            place.source("large"),
            below(""),
            "--streams",
            "4"
        ]);
        assert!(way(&pushed).starts_with(words), "{pushed:?}");
        assert_eq!(ways(&pushed), [""; 0], "the user has named it");
        if option == "--through-ssh" {
            ssh_rates(&pushed);
        } else {
            assert!(pushed.ok()["ssh"].is_null(), "{pushed:?}");
        }
        assert_same_trees(&place.source("run7"), &sshd.home(option).join("run7"));
        assert_same_files(&place.source("large"), &sshd.home(option).join("large"));
        let target = place.target(option).join("");
        let pulled = run(&words![
            "pull",
            below("run7/d0/f?"),
            below("l*"),
            &target,
            "--on-conflict",
            "keep-both"
        ]);
        pulled.ok();
        assert_same_files(&place.source("large"), &target.join("large"));
        let private =
            run(&words!["push", place.source("large"), below("p"), "--protection", "private"]);
        assert_eq!(private.ok()["protection"], "private");
        let listed = run(&words!["ls", below("run7")]);
        assert_eq!(listed.named("entry").len(), 2, "{listed:?}");
        wait_until("over there", || sshd.far_ends().is_empty());
    }
    let both = words!["ls", there(""), "--reverse", "--through-ssh"];
    sshd.run(&place, &both).refused(&["--reverse", "--through-ssh"]);
    for option in ["--reverse", "--through-ssh"] {
        let pull = words!["pull", there("run7"), option, "--proxy", "http://h:1"];
        sshd.run(&place, &pull).refused(&["cannot take --proxy", option, "leave out one"]);
    }
}

/// With a ControlMaster another process encrypts, and nobody here knows its work.
#[test]
fn what_ssh_costs_is_told_where_another_ssh_carries_the_data_too() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let socket = place.path("control");
    let path = format!("ControlPath {}", socket.display());
    sshd.configure_ssh(&format!("{path}\nControlMaster auto\nControlPersist 60"));
    assert!(sshd.ssh(&["true"]).status.success());
    place.file(&place.source("large"), 24 << 20);
    let words = words!["push", place.source("large"), there("large"), "--through-ssh", "--report"];
    let rates = ssh_rates(&sshd.run(&place, &words));
    assert_same_files(&place.source("large"), &sshd.home("large"));
    let words = sshd.words(&words!["pull", there("large"), place.target(""), "--through-ssh"]);
    let shown = place.command(&words).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).replace('\n', " ");
    let words: Vec<&str> = shown.split_whitespace().collect();
    let shown = words.join(" ");
    assert!(shown.contains("way through ssh, as --through-ssh says"), "{rates:?} {shown}");
    assert!(shown.contains("ssh carried") && shown.contains("without it both ends may"), "{shown}");
    assert!(sshd.ssh_with(&["-O", "exit", "far"]).status.success());
}

/// A machine that nobody can connect to, and that can connect to us: its server listens on its own
/// loopback alone, as behind a firewall.
#[test]
fn a_machine_that_cannot_be_reached_comes_itself() {
    let place = Place::new();
    if lacks_root() {
        return;
    }
    let veth = match Veth::start() {
        Ok(veth) => veth,
        Err(why) => return skip("root and ip(8)", why),
    };
    let forced = "command=\"haul serve --over-ssh --listen 127.0.0.1:0\"";
    let Some(sshd) = SshdSetup::new().key_options(forced).start(&place) else { return };
    let (near, far) = (veth.hosts().near, veth.hosts().far);
    enter(&sshd, &place, far);
    let start = |words: &[OsString]| {
        let command = place.command(&[&sshd.words(words)[..], &words!["--json"]].concat());
        Haul::start(near.wrap(&command))
    };
    place.file(&place.source("large"), 24 << 20);
    let words = words!["push", place.source("large"), there("large"), "--bwlimit", "6M"];
    let push = start(&[words, words!["--span-size", "1M"]].concat());
    push.wait_for_bytes("bytes_durable", 1 << 20);
    // It comes without ssh, too.
    kill_process(ssh_of(&push), Signal::KILL).unwrap();
    let ran = push.finish();
    assert!(way(&ran).starts_with("the other side made"), "{ran:?}");
    let ways = ways(&ran);
    assert_eq!(ways.len(), 2, "{ways:?}");
    assert!(ways[0].ends_with("-> connections from there"), "{ways:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
    let pulled = start(&words!["pull", there("large"), place.target("")]).finish();
    pulled.ok();
    assert_same_files(&place.source("large"), &place.target("large"));
    wait_until("over there", || sshd.far_ends().is_empty());

    // A key for one directory gets no connections to a machine that it names: its ssh has come from
    // nowhere, as sshd sees it.
    let key = fs::read_to_string(place.path("user_key.pub")).unwrap();
    let below = sshd.home("").display().to_string();
    let confined = forced.replace("--over-ssh", &format!("--over-ssh {below}"));
    fs::write(place.path("authorized_keys"), format!("{confined} {key}")).unwrap();
    let ran = start(&words!["pull", there("large"), place.target("x"), "--reverse"]).finish();
    ran.refused(&["cannot connect to this machine", "no connection within 5 s"]);
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// A machine to which no packet goes but those of ssh, either way.
#[test]
fn data_goes_through_ssh_where_no_connection_can_be_made_and_that_is_told() {
    let place = Place::new();
    if lacks_root() {
        return;
    }
    let namespace = match Namespace::make("ssh", "far") {
        Ok(namespace) => namespace,
        Err(why) => return skip("root and ip(8)", why),
    };
    // A block that nobody has (RFC 5737).
    namespace.ip(&["address", "add", "203.0.113.7/32", "dev", "lo"]).unwrap();
    let Some(sshd) = Sshd::start(&place) else { return };
    enter(&sshd, &place, &namespace);
    place.file(&place.source("large"), 24 << 20);
    let words = words!["push", place.source("large"), there("large"), "--dscp", "le"];
    let ran = sshd.run(&place, &words);
    assert!(way(&ran).contains("no connection could be made beside it"), "{ran:?}");
    assert!(way(&ran).contains("% of a processor"), "{ran:?}");
    ssh_rates(&ran);
    let told = ran.named("fallback");
    let why = told[0]["why"].as_str().unwrap();
    assert!(ways(&ran)[0].ends_with("-> through ssh"), "{ran:?}");
    for part in ["203.0.113.7", "no connection to far", "none from there", "--dscp does not count"]
    {
        assert!(why.contains(part), "{why}");
    }
    assert_same_files(&place.source("large"), &sshd.home("large"));
    sshd.run(&place, &words!["ls", there(""), "--reverse"])
        .refused(&["far cannot connect to this machine", "--port-range"]);
    wait_until("over there", || sshd.far_ends().is_empty());
}

/// This machine, a gate, and a machine behind it, in namespaces with wires between them.
struct BehindAGate {
    here: Namespace,
    gate: Namespace,
    far: Namespace,
    /// Addresses of the gate, for this machine and for the one behind.
    gate_addresses: [&'static str; 2],
    far_address: &'static str,
}

impl BehindAGate {
    /// Makes them; nothing goes through the gate.
    fn make() -> Result<Self, EmulatorError> {
        let [here, gate, far] = ["here", "gate", "far"].map(|side| Namespace::make("jump", side));
        let (here, gate, far) = (here?, gate?, far?);
        let gate_addresses = ["10.80.1.2", "10.80.2.1"];
        let far_address = "10.80.2.2";
        let ends = [(&here, "10.80.1.1", gate_addresses[0], "outer")];
        let ends = ends.into_iter().chain([(&far, far_address, gate_addresses[1], "inner")]);
        for (host, address, of_gate, device) in ends {
            let peer = ["type", "veth", "peer", "name", device, "netns", gate.name()];
            host.ip(&[&["link", "add", "wire"][..], &peer].concat())?;
            for (host, address, device) in [(host, address, "wire"), (&gate, of_gate, device)] {
                host.ip(&["address", "add", &format!("{address}/24"), "dev", device])?;
                host.ip(&["link", "set", device, "up"])?;
            }
        }
        Ok(Self { here, gate, far, gate_addresses, far_address })
    }

    /// Has both machines reach each other by way of the gate.
    fn route(&self) -> Result<(), EmulatorError> {
        self.gate.set("ipv4/ip_forward", "1")?;
        self.here.ip(&["route", "add", "default", "via", self.gate_addresses[0]])?;
        self.far.ip(&["route", "add", "default", "via", self.gate_addresses[1]])
    }
}

/// ProxyJump of ssh_config(5), with an sshd at the gate and one behind it.
#[test]
fn behind_a_jump_host_the_data_takes_the_way_that_is_there() {
    behind_a_gate(|_| "ProxyJump gate".to_owned());
}

/// The form of a jump host that is older than ProxyJump, and still stands in many files.
#[test]
fn behind_a_proxy_command_the_data_takes_the_way_that_is_there() {
    behind_a_gate(|config| format!("ProxyCommand ssh -F {} -W %h:%p gate", config.display()));
}

/// Pushes by way of a gate, which a line of the configuration names. The gate is a machine of
/// others: its services get no connection of a copy.
fn behind_a_gate(line: impl Fn(&Path) -> String) {
    let (place, gate_place) = (Place::new(), Place::new());
    if lacks_root() {
        return;
    }
    let net = match BehindAGate::make() {
        Ok(net) => net,
        Err(why) => return skip("root and ip(8)", why),
    };
    let gate = SshdSetup::new().between(&net.here, &net.gate, net.gate_addresses[0]);
    let Some(_gate) = gate.start(&gate_place) else { return };
    let setup = SshdSetup::new().between(&net.gate, &net.far, net.far_address);
    let Some(far) = setup.start(&place) else { return };
    let of_gate = fs::read_to_string(gate_place.path("ssh_config")).unwrap();
    let line = line(&place.path("ssh_config"));
    far.configure_ssh(&format!("{line}\n{}", of_gate.replace("Host far", "Host gate")));
    // Both ends take this port, so whoever is led to the gate comes here.
    let service = net.gate.within(|| TcpListener::bind("0.0.0.0:0")).unwrap().unwrap();
    service.set_nonblocking(true).unwrap();
    let port = service.local_addr().unwrap().port();
    place.file(&place.source("a"), 3 << 20);
    let push = |name: &str| {
        let words = words!["push", place.source("a"), there(name), "--json"];
        let words = [far.words(&words), words!["--port-range", port.to_string()]].concat();
        let ran = Haul::start(behind(&net.here.words(), place.command(&words))).finish();
        ran.ok();
        assert_same_files(&place.source("a"), &far.home(name));
        let come = service.accept().map_err(|error| error.kind());
        assert_eq!(come.unwrap_err(), ErrorKind::WouldBlock, "a service of the gate: {ran:?}");
        wait_until("over there", || far.far_ends().is_empty());
        ran
    };
    let ran = push("closed");
    assert_eq!(ways(&ran), ["connections to far -> through ssh"], "{ran:?}");
    assert!(way(&ran).starts_with("through ssh"), "{ran:?}");
    net.route().unwrap();
    let ran = push("open");
    assert_eq!((way(&ran), ways(&ran)), (String::new(), vec![]), "{ran:?}");
    let server = format!("{}:{port}", net.far_address);
    assert_eq!(ran.named("session")[0]["server"], server, "{ran:?}");
}

/// Two machines with a wire between them, on which an sshd runs and a test can put a firewall.
struct Firewalled {
    sshd: Sshd,
    veth: Veth,
}

impl Firewalled {
    fn start(place: &Place) -> Option<Self> {
        let veth = match Veth::start() {
            Ok(veth) => veth,
            Err(why) => {
                skip("root and ip(8)", why);
                return None;
            }
        };
        let hosts = veth.hosts();
        let setup = SshdSetup::new().between(hosts.near, hosts.far, hosts.far_address);
        let sshd = setup.start(place)?;
        Some(Self { sshd, veth })
    }

    /// Has both drop all but ssh, and say nothing.
    fn close(&self) {
        let hosts = self.veth.hosts();
        for host in [hosts.near, hosts.far] {
            host.drop_tcp_but(hosts.device, self.sshd.port).unwrap();
        }
    }
}

/// Most firewalls answer nothing to a connection that they do not let through.
#[test]
fn a_firewall_that_says_nothing_costs_two_waits_and_no_more() {
    let place = Place::new();
    let Some(firewalled) = Firewalled::start(&place) else { return };
    let (sshd, hosts) = (&firewalled.sshd, firewalled.veth.hosts());
    // A second address of the other side (RFC 5737) does not cost a wait of its own.
    hosts.far.ip(&["address", "add", "203.0.113.7/32", "dev", hosts.device]).unwrap();
    hosts.near.ip(&["route", "add", "203.0.113.7/32", "dev", hosts.device]).unwrap();
    firewalled.close();
    place.file(&place.source("a"), 3 << 20);
    let begun = Instant::now();
    let ran = sshd.run(&place, &words!["push", place.source("a"), there("a")]);
    let taken = begun.elapsed();
    assert_eq!(ways(&ran), ["connections to far -> through ssh"], "{ran:?}");
    assert!(way(&ran).starts_with("through ssh"), "{ran:?}");
    let why = ran.named("fallback")[0]["why"].as_str().unwrap();
    for part in [hosts.far_address, "203.0.113.7", "no connection within 5 s"] {
        assert!(why.contains(part), "{why}");
    }
    // Each wait is 5 s: three, or one of the 10 s where there is no other way, would be more.
    let waits = Duration::from_secs(10);
    assert!(taken >= waits * 9 / 10 && taken < waits * 2, "{taken:?}: {ran:?}");
    assert_same_files(&place.source("a"), &sshd.home("a"));
}

/// A box on the way drops a connection in mid-copy and says nothing: a copy takes another one.
#[test]
fn a_data_connection_that_is_dropped_in_silence_is_replaced() {
    let place = Place::new();
    let Some(firewalled) = Firewalled::start(&place) else { return };
    let sshd = &firewalled.sshd;
    let push = slow_push(&place, sshd, &[]);
    let (hosts, [here, there]) = (firewalled.veth.hosts(), data_connection(&firewalled, &push));
    hosts.far.drop_connection(hosts.device, [here, there]).unwrap();
    hosts.near.drop_connection(hosts.device, [there, here]).unwrap();
    let ran = push.finish();
    assert_eq!((way(&ran), ways(&ran)), (String::new(), vec![]), "{ran:?}");
    assert_eq!(ran.named("stall").len(), 1, "{ran:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
}

/// Nothing but ssh comes through any more: a copy ends in its time, and the same command goes by
/// another way.
#[test]
fn a_firewall_that_closes_in_mid_copy_ends_it_and_the_same_command_goes_on_through_ssh() {
    let place = Place::new();
    let Some(firewalled) = Firewalled::start(&place) else { return };
    let sshd = &firewalled.sshd;
    let push = slow_push(&place, sshd, &words!["--retry-for", "5s"]);
    firewalled.close();
    let begun = Instant::now();
    let ran = push.finish();
    let taken = begun.elapsed();
    assert_eq!(ran.status, 1, "{ran:?}");
    let words = ["nothing heard for 5 s", "did not come back", "no answer within 5 s"];
    ran.says(&[&words[..], &["run the same command again"]].concat());
    // Both are 5 s here; one of them as by default would be 10 s or a minute more.
    assert!(taken < Duration::from_secs(20), "{taken:?}: {ran:?}");
    wait_until("over there", || sshd.far_ends().is_empty());
    let words = words!["push", place.source("large"), there("large"), "--span-size", "1M"];
    let ran = sshd.run(&place, &words);
    assert_eq!(ways(&ran), ["connections to far -> through ssh"], "{ran:?}");
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
}

/// Ports of the connection of a push that has carried most bytes, here and there.
fn data_connection(firewalled: &Firewalled, push: &Haul) -> [u16; 2] {
    let session = push.wait_for("a session", |event| event["event"] == "session");
    let port = session["server"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let mut ss = Command::new("ss");
    ss.args(["-OHtni", &format!("dport = :{port}")]);
    let shown = firewalled.sshd.near(ss).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let sent = |line: &&str| {
        let of = line.split_whitespace().find_map(|word| word.strip_prefix("bytes_sent:"));
        of.map_or(0, |bytes| bytes.parse::<u64>().unwrap())
    };
    let line = shown.lines().max_by_key(sent).unwrap();
    let local = line.split_whitespace().nth(3).unwrap().rsplit(':').next().unwrap();
    [local.parse().unwrap(), port.parse().unwrap()]
}

/// A copy through ssh has no way without it; what is durable by then stays for the same command.
#[test]
fn a_copy_through_ssh_ends_with_it_and_the_same_command_goes_on() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let push = slow_push(&place, &sshd, &words!["--through-ssh", "--retry-for", "1h"]);
    kill_process(ssh_of(&push), Signal::KILL).unwrap();
    let ran = push.finish();
    assert_eq!(ran.status, 1, "{ran:?}");
    let words = ["did not come back", "ssh has ended", "the same command"];
    assert!(words.iter().all(|word| ran.err.contains(word)), "{ran:?}");
    assert!(!sshd.home("large").exists(), "nothing half has a name");
    wait_until("over there", || sshd.far_ends().is_empty());
    let words = words!["push", place.source("large"), there("large"), "--through-ssh"];
    let ran = sshd.run(&place, &words);
    assert!(ran.gone_on_from() >= 1 << 20, "{ran:?}");
    assert_same_files(&place.source("large"), &sshd.home("large"));
}

/// The end that listens takes its port out of the range.
#[test]
fn a_range_of_ports_is_for_the_end_that_listens() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    let taken = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = taken.local_addr().unwrap().port();
    let words = words!["ls", there(""), "--reverse", "--port-range", port.to_string()];
    // The other side's server finds it taken first.
    sshd.run(&place, &words).refused(&["cannot listen on any of the ports"]);
    // What the administrator has written is no client's to change.
    let key = fs::read_to_string(place.path("user_key.pub")).unwrap();
    let forced = "command=\"haul serve --over-ssh --listen 127.0.0.1:0\"";
    fs::write(place.path("authorized_keys"), format!("{forced} {key}")).unwrap();
    let held = sshd.run(&place, &words!["ls", there(""), "--port-range", port.to_string()]);
    assert_eq!(held.status, 0, "{held:?}");
    let serve = words!["serve", place.path("root"), "--port-range"];
    let refused = place.run(&[serve.clone(), words![port.to_string()]].concat());
    refused.refused(&["cannot listen on any of the ports", "--port-range"]);
    drop(taken);
    // Another test may take the port before it is listened on.
    let listens = |_| {
        let free = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let serves = place.start(&[serve.clone(), words![port.to_string()]].concat());
        let line = serves.wait_for("line", |_| true);
        line["url"].as_str().is_some_and(|url| url.contains(&format!(":{port}")))
    };
    assert!((0..5).any(listens));
}

/// Marks and local ends are for connections that this machine makes to the other side.
#[test]
fn an_option_for_connections_to_the_other_side_is_refused_beside_another_way() {
    let place = Place::new();
    place.file(&place.source("a"), 1);
    let push = words!["push", place.source("a"), there("")];
    for words in [push, words!["pull", there("a"), "."], words!["ls", there("")]] {
        for way in ["--reverse", "--through-ssh"] {
            for option in ["--bind=127.0.0.1", "--dscp=le", "--scitag=2.14"] {
                let ran = place.run(&[&words[..], &words![way, option]].concat());
                let name = option.split('=').next().unwrap();
                ran.refused(&[&format!("cannot take {name}"), way, "leave out one of both"]);
            }
        }
    }
}

/// Options of a copy over ssh mean nothing where a server runs already, and are not passed over.
#[test]
fn a_url_with_an_option_for_ssh_is_refused() {
    let place = Place::new();
    for option in ["--reverse", "--through-ssh", "--port-range=5-6", "--install-remote"] {
        let ran = place.run(&words!["ls", "haul://h/x", option]);
        let name = option.split('=').next().unwrap();
        ran.refused(&[&format!("cannot take {name}"), "a haul:// URL"]);
    }
}
