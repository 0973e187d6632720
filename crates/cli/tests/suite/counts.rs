//! Counts of files, links and directories in all that a run tells of them.

use crate::harness::{
    journey::{Journey, WAYS, Way},
    process::Ran,
};
use std::{ffi::OsString, fs, os::unix::fs::symlink};

/// The words of a command that moves the tree `t`.
fn command(journey: &Journey, options: &[OsString]) -> Vec<OsString> {
    let words = match journey.way {
        Way::Push => words!["push", journey.place.source("t"), journey.server.url("")],
        Way::Pull => words!["pull", journey.server.url("t"), journey.place.target("")],
    };
    [words, options.to_vec()].concat()
}

fn moved(journey: &Journey, options: &[OsString]) -> Ran {
    journey.place.run(&command(journey, options))
}

/// The report as people read it.
fn report_text(journey: &Journey, options: &[OsString]) -> String {
    let ran = journey.place.command(&command(journey, options)).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

/// Counts of one tree, the same in a dry run, the run, the run again, their texts and the log.
#[test]
fn directories_are_counted_apart_from_files_and_links_by_all_that_is_told() {
    for way in WAYS {
        let journey = Journey::new(way);
        for directory in ["t/d", "t/empty"] {
            fs::create_dir_all(journey.from(directory)).unwrap();
        }
        fs::write(journey.from("t/a"), "four").unwrap();
        fs::write(journey.from("t/d/b"), "bytes").unwrap();
        symlink("a", journey.from("t/link")).unwrap();
        let counts = |ran: &Ran, what: &str| {
            let files = &ran.ok()["files"];
            [what.to_owned(), format!("{what}_directories")].map(|key| files[key].as_u64())
        };
        let both = [Some(3), Some(3)];
        assert_eq!(counts(&moved(&journey, &words!["-n"]), "planned"), both);
        assert!(report_text(&journey, &words!["-n", "--preflight"]).contains("3 files and 3 dir"));
        assert_eq!(counts(&moved(&journey, &[]), "done"), both);
        assert_eq!(counts(&moved(&journey, &[]), "skipped"), both);
        let text = report_text(&journey, &[]);
        assert!(text.contains("nothing to do: 3 files and 3 directories with 9 B"), "{text}");
        fs::remove_dir_all(journey.to("t")).unwrap();
        let text = report_text(&journey, &words!["-n"]);
        assert!(text.contains("3 files would be copied, 9 B"), "{text}");
        assert!(text.contains("3 directories would be made"), "{text}");
        let text = report_text(&journey, &words!["--report"]);
        assert!(text.contains("complete and verified: 3 files and 3 directories, 9 B"), "{text}");
        assert!(text.contains("files       3 files and 3 directories done"), "{text}");
        let text = report_text(&journey, &words!["-n"]);
        assert!(text.contains("0 files would be copied, 0 B"), "{text}");
        assert!(text.contains("3 files and 3 directories there already"), "{text}");
    }
}

/// Files that were moved before the connection was lost, and are not at the source any more.
#[test]
fn a_move_over_two_sessions_counts_the_files_of_both() {
    for way in WAYS {
        let mut journey = Journey::new(way);
        for number in 0..8 {
            journey.place.file(&journey.from(&format!("t/f{number}")), 1 << 20);
        }
        let client = journey.place.start(&command(&journey, &words!["--move", "--bwlimit", "4M"]));
        client.wait_for_count("file", 3);
        journey.server.restart(&journey.place);
        let ran = client.finish();
        let report = ran.ok();
        let count = |name: &str| report["files"][name].as_u64().unwrap();
        assert_eq!(report["reconnections"], 1, "{ran:?}");
        // A file that was in place when its server ended, before it could say so, is found there.
        let (done, found) = (count("done"), count("skipped"));
        assert!(done + found == 8 && found <= 1, "{ran:?}");
        assert_eq!(report["sources_removed"], 8, "{ran:?}");
        assert_eq!(ran.number("moved_bytes"), done << 20, "{ran:?}");
        assert_eq!(fs::read_dir(journey.from("t")).unwrap().count(), 0, "{ran:?}");
    }
}
