//! The screens that a user sees, compared with those kept in `tests/screens/`.
//!
//! `HAUL_SCREENS=write cargo test -p haul --test screens` writes them anew.

#![allow(clippy::unwrap_used)]

use haul::{
    commands::{demo, media, serve::Welcome},
    ui::{Screen, json::Json, plain::Plain, progress, quiet::Quiet, report},
};
use haul_media::tls;
use haul_transfer::{
    Event, Report, ServeRoot,
    events::{
        Bottleneck, FileCounts, FileEnded, FileStatus, Limiting, Name, Problem, Progress,
        SessionOpened, Side, SideCosts,
    },
    manifest::ManifestReport,
    server::reachable::Hosts,
};
use std::path::Path;

fn assert_screen(name: &str, screen: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(name);
    let screen = format!("{}\n", screen.trim_end());
    if std::env::var_os("HAUL_SCREENS").is_some_and(|value| value == "write") {
        std::fs::write(&path, &screen).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        screen == kept,
        "{name} is not as kept.\n--- kept\n{kept}\n--- now\n{screen}\n\
         Right? HAUL_SCREENS=write cargo test -p haul --test screens"
    );
    for line in screen.lines() {
        assert_eq!(line, line.trim_end(), "{name}: blanks at the end of a line");
    }
}

fn full_report() -> Report {
    Report {
        ok: true,
        bytes: 12 << 30,
        resumed_bytes: 2 << 30,
        dry_run: false,
        planned_bytes: 0,
        preflight: Vec::new(),
        target_room: None,
        sources_removed: 0,
        moved_bytes: 10 << 30,
        seconds: 4.321,
        gbit_per_s: 19.88,
        files: FileCounts { done: 12, skipped: 3, failed: 0, ..FileCounts::default() },
        protection: "safe".into(),
        digest: "aes-gmac".into(),
        streams: 4,
        span_bytes: 8 << 20,
        send_engine: "sendfile".into(),
        receive_engine: "io-uring".into(),
        chosen_because: "100 % of the source is in the page cache, so sendfile moves it without a \
                         copy; the digest reads the page cache beside it; the target is ext4"
            .into(),
        copied_bytes: 5 << 30,
        retransmits: 7,
        resent_spans: 1,
        reconnections: 2,
        largest_lag: None,
        source: SideCosts { cpu_s_per_gb: 0.1234, max_rss_bytes: 21 << 20 },
        target: SideCosts { cpu_s_per_gb: 0.4321, max_rss_bytes: 33 << 20 },
        bottleneck: Bottleneck {
            stage: "target_disk".into(),
            share: 0.83,
            because: String::new(),
            gbit_per_s: 24.0,
            next_stage: "network".into(),
            next_gbit_per_s: 199.0,
            remedy: "a faster target disk, or several (RAID 0, one server a disk)".into(),
            verdict: "the receiver waited for its disk 83 % of the time, which allows about \
                      24 Gbit/s; without it the network would allow about 199 Gbit/s; to go \
                      faster: a faster target disk, or several (RAID 0, one server a disk)"
                .into(),
        },
        stages: [("target_disk", 0.83), ("network", 0.1), ("source_digest", 0.04)]
            .map(|(stage, share)| (stage.to_owned(), share))
            .to_vec(),
        read_back: String::new(),
        manifest: None,
        recheck: None,
    }
}

fn failed_report() -> Report {
    Report {
        ok: false,
        files: FileCounts { done: 1, skipped: 0, failed: 2, ..FileCounts::default() },
        resumed_bytes: 0,
        resent_spans: 0,
        reconnections: 0,
        ..full_report()
    }
}

fn progress(second: u32) -> Event {
    let seconds = f64::from(second);
    Event::Progress(Progress {
        seconds,
        bytes_received: u64::from(second) * (5 << 28),
        bytes_on_wire: u64::from(second) * (6 << 28),
        bytes_durable: u64::from(second) << 30,
        bytes_total: 10 << 30,
        gbit_per_s: 10.737,
        interval_bytes: 5 << 28,
        interval_seconds: 1.0,
        retransmits: u64::from(second) * 2,
        streams: 4,
        files_done: second.into(),
        limiting: (second > 1).then(|| Limiting {
            stage: "target_disk".into(),
            share: 0.83,
            because: String::new(),
        }),
        stages: vec![("target_disk".into(), 0.83), ("source_processor".into(), 0.12)],
    })
}

/// One of each kind, in the order in which they could come.
fn events() -> Vec<Event> {
    let problem = Problem {
        path: Name(b"run7/odd\x1bname".to_vec()),
        side: Side::Source,
        what: "cannot read".into(),
        needs: "the right to read it".into(),
        found: "Permission denied (os error 13)".into(),
        hint: "check owner and mode".into(),
    };
    let fallback = Event::Fallback {
        side: Side::Target,
        from_to: "io-uring to read-write".into(),
        why: "the kernel has no rings here".into(),
    };
    let failed = FileEnded::new(problem.path.0.clone(), FileStatus::Failed, 0);
    let done = FileEnded::new(b"run7/a".to_vec(), FileStatus::Done, 7);
    vec![
        Event::Session(SessionOpened {
            session: "1f2e3d4c5b6a79880011223344556677".into(),
            server: "dtn1.example.org:7117".into(),
            server_software: "haul 0.1.0".into(),
            protection: "safe".into(),
            digest: "aes-gmac".into(),
            streams: 4,
            rtt_us: 1234,
        }),
        Event::Resume { bytes: 2 << 30, why: "left verified and on disk by an earlier run".into() },
        progress(1),
        fallback.clone(),
        fallback,
        Event::Error(problem),
        Event::File(failed),
        Event::File(done),
        Event::Stall {
            stage: "network".into(),
            seconds: 10.0,
            what: "stream 3 brought nothing; it is opened again".into(),
        },
        progress(2),
    ]
}

#[test]
fn what_haul_media_says_when_it_listens() {
    let welcome = |address: &str, status: Option<&str>, tls: Option<tls::By>| {
        let address: std::net::SocketAddr = address.parse().unwrap();
        let policy = "Films go at the rate of their containers and a quarter more.\n\
            All are admitted: --measure finds how many can be kept."
            .to_owned();
        let url = media::url(address, tls.is_some());
        let (root, status) = ("/films".to_owned(), status.map(str::to_owned));
        let host = Some("dtn1".to_owned());
        media::Welcome { root, url, host, address, status, policy, tls }.text()
    };
    let own = welcome("127.0.0.1:8080", Some("http://127.0.0.1:8081/"), None);
    let all = welcome("[::]:80", Some("http://0.0.0.0:81/"), None);
    let [kernel, rustls] =
        [tls::By::Kernel, tls::By::Rustls].map(|by| welcome("127.0.0.1:443", None, Some(by)));
    assert_screen(
        "media.txt",
        &format!(
            "{own}\n\non all addresses:\n{all}\n\nover TLS:\n{kernel}\n\n\
            without a kernel's TLS:\n{rustls}"
        ),
    );
}

#[test]
fn the_report_of_a_transfer() {
    assert_screen("report.txt", &report::text(&full_report(), &[]));
}

#[test]
fn the_report_of_a_transfer_with_failed_files() {
    let failed = ["run7/b".to_owned()];
    assert_screen("report-failed.txt", &report::text(&failed_report(), &failed));
}

#[test]
fn the_report_of_bytes_that_nothing_verified() {
    let report = Report {
        protection: "clear".into(),
        digest: "none".into(),
        copied_bytes: 0,
        stages: Vec::new(),
        ..full_report()
    };
    assert_screen("report-unverified.txt", &report::text(&report, &[]));
}

#[test]
fn the_report_of_a_run_that_found_everything_done() {
    let report = Report {
        ok: true,
        bytes: 3 << 20,
        resumed_bytes: 3 << 20,
        seconds: 0.012,
        files: FileCounts { done: 0, skipped: 2, failed: 0, ..FileCounts::default() },
        protection: "clear".into(),
        digest: "xxh3-128".into(),
        ..Report::default()
    };
    assert_screen("report-again.txt", &report::text(&report, &[]));
}

#[test]
fn the_report_of_a_target_that_was_read_back_and_of_its_manifest() {
    let manifest = ManifestReport {
        path: Name(b"run7.b3".to_vec()),
        files: 15,
        bytes: 12 << 30,
        read_bytes: 2 << 30,
        left_out: 1,
    };
    let report = Report {
        ok: false,
        read_back: "O_DIRECT".into(),
        manifest: Some(manifest),
        ..full_report()
    };
    assert_screen("report-manifest.txt", &report::text(&report, &[]));
}

#[test]
fn a_whole_transfer_in_a_log() {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut screen = Plain::new(&mut output, &mut errors);
    events().iter().for_each(|event| screen.event(event));
    screen.finish();
    screen.report(&failed_report());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_screen(
        "plain.txt",
        &format!("standard output:\n{}\nstandard error:\n{}", text(output), text(errors)),
    );
}

#[test]
fn a_quiet_transfer_says_only_what_went_wrong() {
    let mut errors = Vec::new();
    let mut screen = Quiet::new(&mut errors);
    events().iter().for_each(|event| screen.event(event));
    screen.report(&Report { digest: "none".into(), ..full_report() });
    assert_screen("quiet.txt", &String::from_utf8(errors).unwrap());
}

#[test]
fn a_transfer_as_json() {
    let mut output = Vec::new();
    let mut screen = Json::new(&mut output, false);
    // Errors go to standard error too, where a test cannot look.
    let shown = events();
    shown.iter().for_each(|event| screen.event(event));
    screen.report(&full_report());
    drop(screen);
    let text = String::from_utf8(output).unwrap();
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line.starts_with("{\"event\":\""), "{line}");
        assert!(object.is_object());
    }
    assert_eq!(text.lines().count(), shown.len() + 1);
    assert_screen("json.txt", &text);
}

#[test]
fn the_progress_line() {
    let mut rate = progress::SmoothRate::default();
    let mut lines = Vec::new();
    for second in [1, 2, 7] {
        let Event::Progress(progress) = progress(second) else { unreachable!() };
        rate.add(&progress);
        lines.push(progress::progress_text(&progress, &rate));
    }
    let Event::Progress(mut first) = progress(0) else { unreachable!() };
    (first.bytes_total, first.gbit_per_s) = (0, 0.0);
    lines.push(progress::progress_text(&first, &progress::SmoothRate::default()));
    assert_screen("progress.txt", &lines.join("\n"));
}

#[test]
fn what_a_server_says_first() {
    let directory = ServeRoot::Directory("/data".into());
    let names = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
    let dtn1 = Hosts::chosen("dtn1".into());
    let several = Hosts { names: names(&["10.0.0.5", "2001:db8::5"]), for_others: true };
    let alone = Hosts { names: names(&["localhost"]), for_others: false };
    let screens = [
        (directory.clone(), false, dtn1),
        (directory, true, several),
        (ServeRoot::Null, false, alone),
    ]
    .map(|(root, read_only, hosts)| {
        let url = format!("haul://TOKEN@{}:7117/", hosts.names[0]);
        Welcome { root, read_only }.text(&url, &hosts, "[::]:7117")
    });
    assert_screen("serve.txt", &screens.join("\n\n----\n\n"));
}

#[test]
fn what_to_try_after_the_demo() {
    assert_screen("demo-next.txt", demo::NEXT);
}
