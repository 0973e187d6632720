//! The screens that a user sees, compared with those kept in `tests/screens/`.
//!
//! `HAUL_SCREENS=write cargo test -p haul-cli --test screens` writes them anew.

use haul::{
    commands::{demo, media, serve::Welcome},
    ui::{
        Look, Screen, Width,
        json::Json,
        line::{Colour, columns_of},
        plain::{Plain, interval_line},
        progress::{Shown, line_text},
        quiet::Quiet,
        report,
    },
};
use haul_media::tls;
use haul_testkit::filled;
use haul_transfer::{
    Bottleneck, Connection, ConnectionState, Event, FileCounts, FileEnded, FileStatus, Hosts, Lag,
    Limiting, LocalEndReport, ManifestReport, Name, Problem, Progress, RdmaReport, RdmaSource,
    RdmaTarget, Report, ServeRoot, SessionOpened, Side, SideCosts, SshReport,
};
use proptest::prelude::*;
use std::{
    path::Path,
    time::{Duration, Instant},
};

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
         Right? HAUL_SCREENS=write cargo test -p haul-cli --test screens"
    );
    for line in screen.lines() {
        assert_eq!(line, line.trim_end(), "{name}: blanks at the end of a line");
    }
}

/// The look of a file or a pipe.
const LOG: Look = Look { width: Width::Any, colour: Colour::Off, whole: false };

fn columns(columns: usize) -> Look {
    Look { width: Width::Columns(columns), ..LOG }
}

fn full_report() -> Report {
    filled!(Report {
        ok: true,
        from: Name(b"run7/".to_vec()),
        to: Name(b"haul://dtn1:7117/archive/".to_vec()),
        bytes: 12 << 30,
        resumed_bytes: 2 << 30,
        skipped_bytes: 0,
        compared_content: false,
        dry_run: false,
        planned_bytes: 0,
        preflight: Vec::new(),
        target_room: None,
        sources_removed: 0,
        moved_bytes: 10 << 30,
        unfinished_bytes: 0,
        seconds: 4.321,
        gbit_per_s: 19.88,
        updated_attributes: 0,
        files: filled!(FileCounts { done: 12, skipped: 3, failed: 0, ..FileCounts::default() }),
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
        seconds_without_server: 8.25,
        largest_lag: None,
        source: filled!(SideCosts {
            cpu_s_per_gb: 0.1234,
            max_rss_bytes: 21 << 20,
            ..SideCosts::default()
        }),
        target: filled!(SideCosts {
            cpu_s_per_gb: 0.4321,
            max_rss_bytes: 33 << 20,
            ..SideCosts::default()
        }),
        bottleneck: filled!(Bottleneck {
            stage: "target_disk".into(),
            share: 0.83,
            because: String::new(),
            gbit_per_s: 19.92,
            at_most_gbit_per_s: Some(24.0),
            next_stage: "network".into(),
            next_share: 0.1,
            remedy: "a faster target disk, or several (RAID 0, one server a disk)".into(),
            verdict: "the receiver waited for its disk 83 % of the time, at 20 Gbit/s, and so \
                      allows at most 24 Gbit/s; next is the network, 10 %; to go faster: a faster \
                      target disk, or several (RAID 0, one server a disk)"
                .into(),
            ..Bottleneck::default()
        }),
        stages: [("target_disk", 0.83), ("network", 0.1), ("source_digest", 0.04)]
            .map(|(stage, share)| (stage.to_owned(), share))
            .to_vec(),
        read_back: String::new(),
        manifest: None,
        recheck: None,
        ..Report::default()
    })
}

/// The report of a run whose streams went over RDMA endpoints, and by TCP in the end.
fn rdma_report() -> Report {
    filled!(Report {
        send_engine: "fabric".into(),
        receive_engine: "fabric".into(),
        rdma: Some(filled!(RdmaReport {
            provider: "verbs".into(),
            source: filled!(RdmaSource {
                port: "mlx5_0".into(),
                streams: 4,
                window_bytes: 9 << 30,
                buffered_bytes: 1 << 30,
                windows: 2304,
                registrations: 2348,
                registering_seconds: 0.123_456,
                waits_for_room: 17,
                refused: "needs a file that can be mapped, found Permission denied".into(),
                ..RdmaSource::default()
            }),
            target: filled!(RdmaTarget {
                port: "rxe0".into(),
                streams: 4,
                direct_bytes: 10 << 30,
                cached_bytes: 4096,
                registrations: 40,
                registering_seconds: 0.000_8,
                ..RdmaTarget::default()
            }),
            ..RdmaReport::default()
        })),
        tcp_because: "the peer has left".into(),
        ..full_report()
    })
}

fn failed_report() -> Report {
    filled!(Report {
        ok: false,
        files: filled!(FileCounts { done: 1, skipped: 0, failed: 2, ..FileCounts::default() }),
        resumed_bytes: 0,
        resent_spans: 0,
        reconnections: 0,
        seconds_without_server: 0.0,
        ..full_report()
    })
}

fn progress(second: u32) -> Event {
    let seconds = f64::from(second);
    Event::Progress(filled!(Progress {
        seconds,
        bytes_received: u64::from(second) * (5 << 28),
        bytes_on_wire: u64::from(second) * (6 << 28),
        bytes_durable: u64::from(second) << 30,
        bytes_total: 10 << 30,
        gbit_per_s: 10.737,
        interval_bytes: 5 << 28,
        interval_seconds: 1.0,
        retransmits: Some(u64::from(second) * 2),
        streams: 4,
        files_done: second.into(),
        files_settled: second.into(),
        files_total: 12,
        total_known: true,
        current: Some(Name(b"run7/scan_0042.vdif".to_vec())),
        limiting: (second > 1).then(|| filled!(Limiting {
            stage: "target_disk".into(),
            share: 0.83,
            because: String::new(),
            ..Limiting::default()
        })),
        stages: vec![("target_disk".into(), 0.83), ("source_processor".into(), 0.12)],
        ..Progress::default()
    }))
}

/// An event of a server that went away at noon, and is waited for for a minute.
fn outage(state: ConnectionState, seconds: f64) -> Event {
    Event::Connection(filled!(Connection {
        state,
        server: "dtn1.example.org:7117".into(),
        why: "Connection reset by peer (os error 104)".into(),
        since_ms: 1_796_040_000_000,
        seconds,
        seconds_left: if state == ConnectionState::Back { 0.0 } else { 60.0 - seconds },
        ..Connection::default()
    }))
}

/// Events, one of each kind, in the order in which they could come.
fn events() -> Vec<Event> {
    let problem = filled!(Problem {
        path: Name(b"run7/odd\x1bname".to_vec()),
        side: Side::Source,
        what: "cannot read".into(),
        needs: "the right to read it".into(),
        found: "Permission denied (os error 13)".into(),
        hint: "check owner and mode".into(),
        ..Problem::default()
    });
    let fallback = Event::Fallback {
        side: Side::Target,
        from_to: "io-uring to read-write".into(),
        why: "the kernel has no rings here".into(),
    };
    let failed = FileEnded::new(problem.path.0.clone(), FileStatus::Failed, 0);
    let done = FileEnded::new(b"run7/a".to_vec(), FileStatus::Done, 7);
    vec![
        Event::Session(filled!(SessionOpened {
            session: "1f2e3d4c5b6a79880011223344556677".into(),
            server: "dtn1.example.org:7117".into(),
            server_software: "haul 0.1.0".into(),
            protection: "safe".into(),
            digest: "aes-gmac".into(),
            streams: 4,
            rtt_us: 1234,
            ..SessionOpened::default()
        })),
        Event::Resume { bytes: 2 << 30, why: "these are at the target already".into() },
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
        outage(ConnectionState::Lost, 0.0),
        outage(ConnectionState::Lost, 3.0),
        outage(ConnectionState::Lost, 13.0),
        outage(ConnectionState::Back, 14.0),
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
    assert_screen("report.txt", &report::text(&full_report(), &[], LOG));
    assert_screen("report-rdma.txt", &report::text(&rdma_report(), &[], LOG));
}

/// The report of a copy over ssh, of a part that nothing held back for long.
fn ssh_report() -> Report {
    filled!(Report {
        from: Name(b"run7/".to_vec()),
        to: Name(b"ann@dtn1:/data/run7/".to_vec()),
        bottleneck: Bottleneck::default(),
        resumed_bytes: 0,
        resent_spans: 0,
        reconnections: 0,
        seconds_without_server: 0.0,
        ..full_report()
    })
}

#[test]
fn the_report_of_the_ways_that_data_has_taken() {
    let through = filled!(Report {
        seconds: 36.63,
        gbit_per_s: 2.345,
        way: "through ssh, as no connection could be made beside it (see --port-range); ssh here \
              used 96 % of a processor"
            .into(),
        ssh: Some(filled!(SshReport {
            gbit_per_s: 2.345,
            without_gbit_per_s: 17.6,
            ..SshReport::default()
        })),
        ..ssh_report()
    });
    assert_screen("report-ssh.txt", &report::text(&through, &[], LOG));
    let reverse = filled!(Report {
        way: "the other side made the connections, as none could be made to it".into(),
        ..ssh_report()
    });
    assert_screen("report-reverse.txt", &report::text(&reverse, &[], LOG));
    let end = |address: &str, gib: u64, gbit_per_s| {
        filled!(LocalEndReport {
            address: address.into(),
            streams: 2,
            bytes: gib << 30,
            gbit_per_s,
            ..LocalEndReport::default()
        })
    };
    let named = filled!(Report {
        proxy: "socks5://gate:1080".into(),
        local_ends: vec![end("192.0.2.7", 6, 11.93), end("2001:db8::7", 4, 7.95)],
        ..ssh_report()
    });
    assert_screen("report-ends.txt", &report::text(&named, &[], Look { whole: true, ..LOG }));
}

#[test]
fn the_report_of_a_transfer_with_failed_files() {
    let failed = ["run7/b".to_owned()];
    assert_screen("report-failed.txt", &report::text(&failed_report(), &failed, LOG));
}

#[test]
fn the_report_of_bytes_that_nothing_verified() {
    let report = filled!(Report {
        protection: "clear".into(),
        digest: "none".into(),
        copied_bytes: 0,
        stages: Vec::new(),
        ..full_report()
    });
    assert_screen("report-unverified.txt", &report::text(&report, &[], LOG));
}

#[test]
fn the_report_of_a_run_that_found_everything_done() {
    let report = filled!(Report {
        ok: true,
        bytes: 3 << 20,
        resumed_bytes: 3 << 20,
        skipped_bytes: 3 << 20,
        seconds: 0.012,
        files: filled!(FileCounts { done: 0, skipped: 2, failed: 0, ..FileCounts::default() }),
        protection: "clear".into(),
        digest: "xxh3-128".into(),
        ..Report::default()
    });
    assert_screen("report-again.txt", &report::text(&report, &[], LOG));
    let report = filled!(Report { updated_attributes: 1, ..report });
    assert_screen("report-updated.txt", &report::text(&report, &[], LOG));
}

#[test]
fn the_report_of_a_target_that_was_read_back_and_of_its_manifest() {
    let manifest = filled!(ManifestReport {
        path: Name(b"run7.b3".to_vec()),
        files: 15,
        bytes: 12 << 30,
        read_bytes: 2 << 30,
        left_out: 1,
        ..ManifestReport::default()
    });
    let report = filled!(Report {
        ok: false,
        read_back: "O_DIRECT".into(),
        manifest: Some(manifest),
        ..full_report()
    });
    assert_screen("report-manifest.txt", &report::text(&report, &[], LOG));
}

#[test]
fn a_whole_transfer_in_a_log() {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut screen = Plain::new(&mut output, &mut errors, LOG);
    events().iter().for_each(|event| screen.event(event));
    screen.finish();
    screen.report(&failed_report());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&noon(), "HH:MM:SS");
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
    screen.finish();
    screen.report(&filled!(Report { digest: "none".into(), ..full_report() }));
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

/// The line after these events, as wide as `look` says.
fn line_after(events: &[Event], look: Look) -> String {
    let mut shown = Shown::default();
    events.iter().for_each(|event| shown.take(event));
    line_text(&shown, Instant::now(), look.columns().unwrap() - 1, look)
}

/// States that the progress line has to tell of, with a name each.
fn states() -> Vec<(&'static str, Vec<Event>)> {
    let changed = |second: u32, change: fn(&mut Progress)| {
        let Event::Progress(mut progress) = progress(second) else { unreachable!() };
        change(&mut progress);
        Event::Progress(progress)
    };
    let one_file = changed(2, |now| now.files_total = 1);
    let listing = changed(2, |now| now.total_known = false);
    let idle_watch = changed(8, |now| {
        (now.total_known, now.bytes_total, now.interval_bytes) = (false, now.bytes_received, 0);
        (now.gbit_per_s, now.current) = (0.0, None);
        let share = 1.0;
        now.limiting = Some(filled!(Limiting {
            stage: "waiting".into(),
            share,
            because: String::new(),
            ..Limiting::default()
        }));
    });
    let limit = changed(7, |now| {
        let because = "the rate reached --bwlimit".into();
        now.limiting = Some(filled!(Limiting {
            stage: "limit".into(),
            share: 0.27,
            because,
            ..Limiting::default()
        }));
    });
    let nothing_yet = changed(0, |now| (now.bytes_total, now.gbit_per_s) = (0, 0.0));
    let lag = filled!(Lag {
        path: Name(b"scan".to_vec()),
        bytes: 3 << 19,
        seconds: 0.42,
        ..Lag::default()
    });
    vec![
        ("begins", vec![nothing_yet]),
        ("a tree", vec![progress(1), progress(2)]),
        ("a tree, later", vec![progress(1), progress(2), progress(7)]),
        ("one file", vec![one_file]),
        ("a tree that is being listed", vec![listing]),
        ("a watch that is idle", vec![idle_watch]),
        ("a file that grows", vec![progress(2), Event::Lag(lag)]),
        ("a limit that was reached", vec![limit]),
        ("a server that is silent", vec![progress(2), outage(ConnectionState::Silent, 7.0)]),
        ("a connection that is lost", vec![progress(2), outage(ConnectionState::Lost, 12.0)]),
        (
            "a connection that is back",
            vec![
                outage(ConnectionState::Lost, 12.0),
                outage(ConnectionState::Back, 14.0),
                progress(3),
            ],
        ),
    ]
}

#[test]
fn the_progress_line_at_each_width() {
    let mut screen = String::new();
    for wide in [40, 80, 200] {
        screen += &format!("{wide} columns:\n");
        for (name, events) in states() {
            // The time of day is that of the host's time zone.
            let line = line_after(&events, columns(wide)).replace(&noon(), "HH:MM:SS");
            screen += &format!("{line}\n");
            assert!(columns_of(&line) < wide, "{name} is {} wide: {line}", columns_of(&line));
        }
        screen.push('\n');
    }
    assert_screen("progress.txt", &screen);
}

fn noon() -> String {
    haul::ui::units::clock(1_796_040_000_000)
}

#[test]
fn neither_rate_nor_limiting_stage_is_lost_at_40_columns() {
    let stages = ["target_disk", "source_run_queue", "receiver_window", "target_processor"];
    for stage in stages {
        let Event::Progress(mut progress) = progress(7) else { unreachable!() };
        let because = String::new();
        progress.limiting = Some(filled!(Limiting {
            stage: stage.into(),
            share: 1.0,
            because,
            ..Limiting::default()
        }));
        let interval = interval_line(&progress, Some(7), 40);
        let line = line_after(&[Event::Progress(progress)], columns(40));
        for line in [line, interval] {
            assert!(line.contains("10.7 Gbit/s"), "{line}");
            assert!(line.contains(&stage.replace('_', " ")), "{line}");
        }
    }
}

/// An outage, in which no rate and no end is promised while nothing comes, and the seconds are
/// counted without events.
#[test]
fn an_outage_takes_the_place_of_the_rate_at_once_and_counts() {
    for state in [ConnectionState::Silent, ConnectionState::Lost] {
        let mut shown = Shown::default();
        [progress(2), outage(state, 5.0)].iter().for_each(|event| shown.take(event));
        let now = Instant::now();
        let line = |passed: u64| line_text(&shown, now + Duration::from_secs(passed), 79, LOG);
        assert!(!line(0).contains("bit/s") && !line(0).contains("ETA"), "{}", line(0));
        assert!(line(0).contains("5 s") && line(0).contains("55 s"), "{}", line(0));
        assert!(line(10).contains("15 s") && line(10).contains("45 s"), "{}", line(10));
        assert!(line(100).contains(" 0 s"), "{}", line(100));
    }
}

/// Progress that a session tells while its server is silent: of nothing.
#[test]
fn a_silent_server_stays_silent_until_something_comes() {
    let Event::Progress(mut still) = progress(2) else { unreachable!() };
    (still.interval_bytes, still.gbit_per_s) = (0, 0.0);
    let silent = outage(ConnectionState::Silent, 5.0);
    let line = |last: Event| line_after(&[progress(1), silent.clone(), last], columns(80));
    assert!(line(Event::Progress(still)).contains("no word"));
    assert!(line(progress(2)).contains("bit/s"));
    assert!(!line(outage(ConnectionState::Back, 6.0)).contains("no word"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_state_makes_a_line_wider_than_its_place(
        (name, why) in (any::<String>(), any::<String>()),
        bytes in any::<[u64; 4]>(),
        files in any::<[u64; 3]>(),
        (rate, share, seconds) in (0.0..1e9f64, 0.0..=1.0f64, 0.0..1e12f64),
        (known, streams) in (any::<bool>(), any::<u32>()),
        stage in "[a-z_]{0,30}",
        wide in 1..220usize,
    ) {
        let Event::Progress(mut now) = progress(2) else { unreachable!() };
        now.current = Some(Name(name.clone().into_bytes()));
        [now.bytes_received, now.bytes_total, now.interval_bytes, now.bytes_durable] = bytes;
        [now.files_done, now.files_settled, now.files_total] = files;
        (now.gbit_per_s, now.total_known) = (rate, known);
        (now.streams, now.seconds) = (streams, seconds);
        now.limiting = Some(filled!(Limiting { stage, share, ..Limiting::default() }));
        let lost = filled!(Connection {
            state: if known { ConnectionState::Lost } else { ConnectionState::Silent },
            server: name.clone(),
            why,
            since_ms: bytes[0],
            seconds,
            seconds_left: rate,
            ..Connection::default()
        });
        let path = Name(name.into_bytes());
        let lag = filled!(Lag { path, bytes: bytes[1], seconds, ..Lag::default() });
        let interval = interval_line(&now, Some(bytes[3]), wide - 1);
        prop_assert!(columns_of(&interval) < wide, "{interval:?}");
        for events in [vec![Event::Progress(now), Event::Lag(lag)], vec![Event::Connection(lost)]] {
            let line = line_after(&events, columns(wide));
            prop_assert!(columns_of(&line) < wide, "{} of {wide}: {line:?}", columns_of(&line));
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}

#[test]
fn colours_stand_only_where_they_are_wanted() {
    let coloured = Look { colour: Colour::On, ..columns(80) };
    for (name, events) in states() {
        let plain = line_after(&events, columns(80));
        assert!(!plain.contains('\x1b'), "{name}: {plain:?}");
        let line = line_after(&events, coloured);
        let bare: String =
            line.replace("\x1b[33m", "").replace("\x1b[31m", "").replace("\x1b[0m", "");
        assert_eq!(bare, plain, "{name}: colour changes nothing else");
    }
    let report = report::text(&full_report(), &[], coloured);
    assert!(report.contains("\x1b[32mcomplete and verified"), "{report}");
    assert!(report::text(&failed_report(), &[], coloured).contains("\x1b[31mNOT complete"));
}

/// A report of a file of three bytes: three lines, one of them where it is now.
fn small_report() -> Report {
    filled!(Report {
        from: Name(b"scan.vdif".to_vec()),
        to: Name(b"haul://dtn1:7117/scan.vdif".to_vec()),
        bytes: 3,
        moved_bytes: 3,
        resumed_bytes: 0,
        seconds: 0.02,
        gbit_per_s: 0.0,
        files: filled!(FileCounts { done: 1, ..FileCounts::default() }),
        retransmits: 0,
        resent_spans: 0,
        reconnections: 0,
        seconds_without_server: 0.0,
        source: filled!(SideCosts {
            cpu_s_per_gb: 301_103.0,
            max_rss_bytes: 21 << 20,
            ..SideCosts::default()
        }),
        ..full_report()
    })
}

/// A report of a transfer that nothing held back for most of its time.
fn unlimited_report() -> Report {
    let unlimited = small_report();
    let bottleneck = filled!(Bottleneck { share: 0.26, ..full_report().bottleneck });
    let (moved_bytes, seconds, gbit_per_s) = (700 << 20, 1.32, 4.45);
    filled!(Report { bytes: 700 << 20, moved_bytes, seconds, gbit_per_s, bottleneck, ..unlimited })
}

#[test]
fn a_small_or_unlimited_transfer_has_three_lines() {
    let mut screen = String::new();
    for report in [small_report(), unlimited_report()] {
        let text = report::text(&report, &[], LOG);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains(" 0 bit/s") && !text.contains("s/G"), "{text}");
        screen += &format!("{text}\n\n");
    }
    let whole = Look { whole: true, ..LOG };
    screen += &format!("with --report:\n{}\n\n", report::text(&small_report(), &[], whole));
    screen += &format!("with --report:\n{}\n\n", report::text(&unlimited_report(), &[], whole));
    screen += &format!("at 40 columns:\n{}\n", report::text(&small_report(), &[], columns(40)));
    assert_screen("report-small.txt", &screen);
}

/// A report stored after a push of which every file failed: "verified every span", a bottleneck of
/// 100 %.
#[test]
fn the_report_of_a_transfer_in_which_nothing_moved() {
    let report = filled!(Report {
        ok: false,
        bytes: 0,
        moved_bytes: 0,
        resumed_bytes: 0,
        resent_spans: 0,
        reconnections: 0,
        seconds_without_server: 0.0,
        files: filled!(FileCounts { failed: 2, ..FileCounts::default() }),
        bottleneck: Bottleneck::default(),
        stages: Vec::new(),
        ..full_report()
    });
    let failed = ["run7/a".to_owned(), "run7/b".to_owned()];
    let mut screen = String::new();
    for look in [LOG, Look { whole: true, ..LOG }] {
        let text = report::text(&report, &failed, look);
        for praise in ["verified", "bottleneck", "%", "engines", "bit/s"] {
            assert!(!text.contains(praise), "{praise}: {text}");
        }
        screen += &format!("{text}\n\n");
    }
    assert_screen("report-nothing.txt", &screen);
}

/// A full disk fails 200 files in one way; `--json` has each of them.
#[test]
fn equal_faults_are_one_line_with_a_count() {
    let fault = |file: u64| {
        Event::Error(filled!(Problem {
            path: Name(format!("run7/{file}").into_bytes()),
            side: Side::Target,
            what: "does not fit".into(),
            needs: format!("{} bytes of free space", file * 1000 + 1),
            found: format!("{}", 5000 - file),
            hint: "free space there, then run the same command again".into(),
            ..Problem::default()
        }))
    };
    let faults: Vec<Event> = (1..=200).map(fault).collect();
    let mut errors = Vec::new();
    let mut screen = Quiet::new(&mut errors);
    faults.iter().for_each(|event| screen.event(event));
    screen.finish();
    let text = String::from_utf8(errors).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("199 more files") && text.contains("run7/1:"), "{text}");
    assert_screen("equal-faults.txt", &text);
    let mut errors = Vec::new();
    let mut screen = Quiet::new(&mut errors);
    let other = Event::Error(filled!(Problem {
        path: Name(b"run7/x".to_vec()),
        side: Side::Source,
        what: "cannot read".into(),
        needs: String::new(),
        found: "Permission denied".into(),
        hint: String::new(),
        ..Problem::default()
    }));
    [fault(1), other, fault(2)].iter().for_each(|event| screen.event(event));
    screen.finish();
    let text = String::from_utf8(errors).unwrap();
    assert_eq!(text.lines().count(), 3, "two of a kind are both said in full: {text}");
    let mut output = Vec::new();
    let mut screen = Json::new(&mut output, false);
    faults.iter().for_each(|event| screen.event(event));
    screen.finish();
    drop(screen);
    assert_eq!(String::from_utf8(output).unwrap().lines().count(), 200);
}

/// A quiet transfer in which nothing failed says nothing, whatever else happens in it.
#[test]
fn a_quiet_transfer_in_which_nothing_failed_is_silent() {
    let mut errors = Vec::new();
    let mut screen = Quiet::new(&mut errors);
    let is_failure = |event: &Event| {
        matches!(event, Event::Error(_))
            || matches!(event, Event::File(FileEnded { status: FileStatus::Failed, .. }))
    };
    events().iter().filter(|event| !is_failure(event)).for_each(|event| screen.event(event));
    screen.finish();
    screen.report(&filled!(Report { digest: "none".into(), ..full_report() }));
    assert_eq!(String::from_utf8(errors).unwrap(), "");
}

#[test]
fn the_report_is_no_wider_than_the_terminal() {
    for wide in [40, 80, 200] {
        let text = report::text(&full_report(), &[], columns(wide));
        // A word that is longer than a line, as a name, is not cut.
        for line in text.lines().filter(|line| !line.contains("complete and verified")) {
            assert!(columns_of(line) < wide, "{wide}: {line}");
        }
    }
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
        let not_served = if read_only { vec!["/data/.local/state/haul".into()] } else { vec![] };
        Welcome { root, read_only, not_served }.text(&url, &hosts, "[::]:7117")
    });
    assert_screen("serve.txt", &screens.join("\n\n----\n\n"));
}

#[test]
fn what_to_try_after_the_demo() {
    assert_screen("demo-next.txt", demo::NEXT);
}
