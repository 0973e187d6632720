//! Tests of the play times of real files, as ffmpeg makes them and ffprobe tells.

#![allow(clippy::unwrap_used)]

use haul_media::container::{average_rate, play_time};
use haul_testkit::skip::skip;
use std::{fs::File, path::Path, process::Command};

/// Seconds that each file plays: the clock of a program stream also counts how a player's buffer is
/// filled, half a second.
const SECONDS: &str = "30";
/// Share by which times may differ: containers tell the time of packets, ffprobe adds the last
/// frame's.
const DIFFERENCE_MAX: f64 = 0.02;

const H264: &[&str] = &["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-c:a", "aac"];
const MPEG2: &[&str] = &["-c:v", "mpeg2video", "-c:a", "mp2"];

/// A file's name, and what ffmpeg is told besides.
const FILES: [(&str, &[&str], &[&str]); 14] = [
    ("end.mp4", H264, &[]),
    ("front.mp4", H264, &["-movflags", "+faststart"]),
    ("fragments.mp4", H264, &["-movflags", "frag_keyframe+empty_moov"]),
    ("first_in_movie.mp4", H264, &["-movflags", "frag_keyframe"]),
    ("no_list.mp4", H264, &["-movflags", "frag_keyframe+empty_moov+skip_trailer"]),
    ("index.mp4", H264, &["-movflags", "dash+frag_keyframe+global_sidx"]),
    ("indexes.mp4", H264, &["-movflags", "dash+frag_keyframe"]),
    ("film.mov", H264, &[]),
    ("sound.m4a", &["-vn", "-c:a", "aac"], &[]),
    ("stream.ts", H264, &[]),
    ("disc.m2ts", H264, &["-mpegts_m2ts_mode", "1"]),
    ("disc.vob", MPEG2, &["-f", "vob"]),
    ("old.mpg", &["-c:v", "mpeg1video", "-c:a", "mp2"], &["-f", "mpeg"]),
    ("film.webm", &["-c:v", "libvpx", "-deadline", "realtime", "-c:a", "libopus"], &[]),
];

/// Makes a file by ffmpeg; false where ffmpeg lacks what it takes.
fn make(path: &Path, codecs: &[&str], options: &[&str]) -> bool {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-y", "-f", "lavfi", "-i", "testsrc=size=160x90:rate=25"]);
    command.args(["-f", "lavfi", "-i", "sine=frequency=440", "-t", SECONDS]);
    command.args(codecs).args(options).arg(path);
    let ran = command.output().unwrap();
    if !ran.status.success() {
        println!("{}: {}", path.display(), String::from_utf8_lossy(&ran.stderr));
    }
    ran.status.success()
}

fn probed_seconds(path: &Path) -> f64 {
    let words = ["-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"];
    let ran = Command::new("ffprobe").args(words).arg(path).output().unwrap();
    String::from_utf8_lossy(&ran.stdout).trim().parse().unwrap()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("-version").output().is_ok_and(|ran| ran.status.success())
}

#[track_caller]
fn assert_plays(path: &Path, seconds: f64) {
    let file = File::open(path).unwrap();
    let len_bytes = file.metadata().unwrap().len();
    let name = path.display();
    let time = play_time(&file, len_bytes).unwrap_or_else(|| panic!("{name} tells nothing"));
    let difference = (time.as_secs_f64() / seconds - 1.0).abs();
    assert!(difference < DIFFERENCE_MAX, "{name}: {time:?}, ffprobe says {seconds} s");
    let rate = average_rate(&file, len_bytes).unwrap().bits_per_s as f64;
    let expected = len_bytes as f64 * 8.0 / seconds;
    assert!((rate / expected - 1.0).abs() < DIFFERENCE_MAX + 0.001, "{name}: {rate} bit/s");
}

#[test]
fn files_of_ffmpeg_play_as_long_as_ffprobe_says() {
    if !is_there("ffmpeg") || !is_there("ffprobe") {
        return skip("ffmpeg and ffprobe", "none");
    }
    let place = tempfile::tempdir().unwrap();
    let mut made = 0;
    for (name, codecs, options) in FILES {
        let path = place.path().join(name);
        if make(&path, codecs, options) {
            assert_plays(&path, probed_seconds(&path));
            made += 1;
        }
    }
    assert!(made > 0, "ffmpeg made none of the files");
}

#[test]
fn joined_transport_streams_play_as_long_as_both() {
    if !is_there("ffmpeg") || !is_there("ffprobe") {
        return skip("ffmpeg and ffprobe", "none");
    }
    let place = tempfile::tempdir().unwrap();
    let [one, other, both] = ["one.ts", "other.ts", "both.ts"].map(|name| place.path().join(name));
    let is_made = make(&one, MPEG2, &["-output_ts_offset", "70000"]) && make(&other, MPEG2, &[]);
    assert!(is_made, "ffmpeg made no stream");
    let bytes = [&one, &other].map(|path| std::fs::read(path).unwrap()).concat();
    std::fs::write(&both, bytes).unwrap();
    assert_plays(&both, probed_seconds(&one) + probed_seconds(&other));
}
