//! Real players at a real `haul media`: ffprobe, ffmpeg and a browser.
//!
//! They play, seek and switch segments, and get what they get from the disk.
//!
//! The films are made by ffmpeg in each test. What is not installed is skipped, and said.

use crate::harness::{
    PATIENCE, Place,
    browser::Browser,
    http::{Body, Client},
    media::Media,
    wait_until,
};
use haul_testkit::skip::skip;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{ErrorKind, Read, Seek, Write},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

const SECONDS: u32 = 8;
/// Second that tests seek to, between two frames that stand for themselves.
const MIDDLE: &str = "4.3";
/// Browsers, of which the first is taken that is there and is no snap: a snap sees nothing of a
/// test's directory.
const BROWSERS: [&str; 2] = ["chromium", "google-chrome"];
/// Longest time that a player in a page waits for anything.
const PAGE_PATIENCE: Duration = Duration::from_secs(60);

/// The server of a place's root, and its access log.
struct Logged {
    media: Media,
    log: PathBuf,
}

impl Logged {
    fn start(place: &Place, options: &[&str]) -> Self {
        let log = place.path("access.log");
        let own = ["--access-log", log.to_str().unwrap()];
        Self { media: Media::start(place, &[&own, options].concat()), log }
    }

    fn url(&self, target: &str) -> OsString {
        format!("http://{}/{target}", self.media.address).into()
    }

    /// Ends the server; returns the status of its answers to requests for `name`.
    fn statuses(self, name: &str) -> Vec<u16> {
        let ran = self.media.end();
        assert_eq!(ran.status, 0, "{ran:?}");
        let log = fs::read_to_string(&self.log).unwrap();
        let lines = log.lines().filter(|line| line.contains(&format!(" /{name}")));
        let status = |line: &str| line.split("HTTP/1.1\" ").nth(1)?.get(..3)?.parse().ok();
        lines.map(|line| status(line).unwrap_or_else(|| panic!("{line}"))).collect()
    }
}

/// A program with all that it starts, killed when dropped.
struct Program {
    child: Child,
    output: fs::File,
    errors: fs::File,
}

impl Program {
    fn start(command: &mut Command) -> Result<Self, String> {
        let (output, errors) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let path = std::env::var_os("PATH").unwrap_or_default();
        // No proxy, no settings of whoever runs the test.
        let home = command.get_current_dir().unwrap_or(Path::new("/nonexistent")).to_owned();
        command.env_clear().env("PATH", path).env("HOME", home);
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(output.try_clone().unwrap()).stderr(errors.try_clone().unwrap());
        match command.spawn() {
            Ok(child) => Ok(Self { child, output, errors }),
            Err(error) => Err(format!("{command:?}: {error}")),
        }
    }

    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "never ended: {}", text_of(&mut self.errors));
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn text_of(file: &mut fs::File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program; returns what it prints, or why it failed.
#[track_caller]
fn run(command: &mut Command) -> Result<String, String> {
    let mut program = Program::start(command)?;
    let status = program.wait();
    let errors = text_of(&mut program.errors);
    if status.success() && errors.is_empty() {
        return Ok(text_of(&mut program.output));
    }
    Err(format!("{command:?}: {status}\n{errors}"))
}

fn ffmpeg(words: &[OsString]) -> Command {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-nostdin", "-y"]).args(words);
    command
}

/// A program that tests need and that is not there.
fn lacks() -> Option<&'static str> {
    let is_there = |program: &str| run(Command::new(program).arg("-version")).is_ok();
    ["ffmpeg", "ffprobe"].into_iter().find(|program| !is_there(program))
}

/// Makes a film of moving figures and a tone. `options` end with the file's name below the root.
fn film(place: &Place, options: &[&str]) -> Result<(), String> {
    let (name, options) = options.split_last().unwrap();
    let path = place.root(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let words = words![
        "-f",
        "lavfi",
        "-i",
        "testsrc2=size=320x180:rate=25",
        "-f",
        "lavfi",
        "-i",
        "sine",
        "-t",
        SECONDS.to_string(),
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-pix_fmt",
        "yuv420p",
        "-g",
        "25",
        "-c:a",
        "aac"
    ];
    let words = [words, options.iter().map(OsString::from).collect(), words![path]].concat();
    run(&mut ffmpeg(&words)).map(drop)
}

/// Makes a place with `film.mp4`, whose movie header is at its end, and `stream.ts`. `None` where
/// it cannot be, which is said.
fn place() -> Option<Place> {
    if let Some(program) = lacks() {
        skip(program, "none");
        return None;
    }
    let place = Place::new();
    if let Err(why) = film(&place, &["film.mp4"]).and_then(|()| film(&place, &["stream.ts"])) {
        skip("ffmpeg with libx264", &why);
        return None;
    }
    let bytes = fs::read(place.root("film.mp4")).unwrap();
    let at = |kind: &[u8]| bytes.windows(4).position(|word| word == kind).unwrap();
    assert!(at(b"moov") > at(b"mdat"), "the movie header is not at the end");
    Some(place)
}

/// Digests of each frame that ffmpeg decodes, picture and sound.
#[track_caller]
fn frames(before: &[&str], input: &OsStr) -> String {
    let before = before.iter().map(OsString::from).collect();
    let behind = words!["-i", input, "-f", "framemd5", "-"];
    run(&mut ffmpeg(&[before, behind].concat())).unwrap()
}

/// Checks that the server gives the same frames as the disk, and more than a few.
#[track_caller]
fn assert_same_frames(place: &Place, media: &Logged, target: &str, before: &[&str]) {
    let name = target.split('?').next().unwrap();
    let expected = frames(before, place.root(name).as_os_str());
    assert!(expected.lines().count() > 30, "{expected}");
    let got = frames(before, &media.url(target));
    assert!(got == expected, "{target} {before:?}: from the server\n{got}from disk\n{expected}");
}

#[test]
fn ffprobe_finds_the_same_over_http_as_on_disk() {
    let Some(place) = place() else { return };
    let media = Logged::start(&place, &[]);
    for name in ["film.mp4", "stream.ts"] {
        let facts = |input: &OsStr| {
            let mut command = Command::new("ffprobe");
            command.args(["-v", "error", "-show_format", "-show_streams", "-of", "flat"]);
            let text = run(command.arg(input)).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("format.filename="));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let expected = facts(place.root(name).as_os_str());
        assert!(expected.iter().any(|line| line.starts_with("format.duration=\"8.")));
        assert_eq!(facts(&media.url(name)), expected, "{name}");
    }
    // It went to the end for the movie header.
    let statuses = media.statuses("film.mp4");
    assert!(statuses.len() > 1 && statuses.iter().all(|it| *it == 206), "{statuses:?}");
}

#[test]
fn ffmpeg_decodes_the_same_frames_from_the_beginning_and_from_the_middle() {
    let Some(place) = place() else { return };
    for options in [&[][..], &["--method", "normal"], &["--method", "direct"]] {
        let media = Logged::start(&place, options);
        for name in ["film.mp4", "stream.ts"] {
            assert_same_frames(&place, &media, name, &[]);
            assert_same_frames(&place, &media, name, &["-ss", MIDDLE]);
            assert_same_frames(&place, &media, name, &["-ss", "6.9"]);
        }
    }
}

#[test]
fn ffmpeg_decodes_the_same_frames_of_a_stream_that_is_paced() {
    let Some(place) = place() else { return };
    // A small buffer in advance, so that there is something to wait for.
    let media = Logged::start(&place, &["--period", "200ms", "--start-up", "400ms"]);
    for name in ["film.mp4", "stream.ts"] {
        let len_bytes = fs::metadata(place.root(name)).unwrap().len();
        let bits_per_s = 4 * len_bytes * 8 / u64::from(SECONDS);
        let target = format!("{name}?rate={bits_per_s}");
        let begun = Instant::now();
        let expected = frames(&[], place.root(name).as_os_str());
        let of_disk = begun.elapsed();
        let begun = Instant::now();
        assert!(frames(&[], &media.url(&target)) == expected, "{target}");
        // A quarter of the film's time, but for what is sent in advance.
        let least = Duration::from_millis(1_000);
        let waited = begun.elapsed();
        assert!(waited > least, "{target}: not paced: {waited:?}, from disk {of_disk:?}");
        assert_same_frames(&place, &media, &target, &["-ss", MIDDLE]);
    }
}

/// A seek of ffmpeg, which begins to read elsewhere before it lets go of where it was; there is a
/// place for one.
#[test]
fn ffmpeg_seeks_where_no_other_place_is_left() {
    let Some(place) = place() else { return };
    let options = ["--max-streams", "1", "--period", "400ms", "--start-up", "400ms"];
    let media = Logged::start(&place, &options);
    for (name, seek) in [("film.mp4", "6.9"), ("stream.ts", MIDDLE), ("film.mp4", MIDDLE)] {
        assert_same_frames(&place, &media, name, &["-ss", seek]);
        // For some periods a place is kept for whoever had it; nobody else comes meanwhile.
        thread::sleep(Duration::from_secs(1));
    }
    let statuses = media.statuses("film.mp4");
    assert!(statuses.len() > 3 && statuses.iter().all(|it| *it == 206), "{statuses:?}");
}

/// A film without a named rate: it is found in the film, and takes a place.
#[test]
fn a_film_goes_at_the_rate_of_its_container_and_takes_a_place() {
    let Some(place) = place() else { return };
    let periods = ["--period", "500ms", "--start-up", "500ms"];
    let options = [&["--max-streams", "1", "--status", "127.0.0.1:0"][..], &periods].concat();
    for name in ["film.mp4", "stream.ts"] {
        let media = Media::start(&place, &options);
        let mut client = media.client();
        let begun = Instant::now();
        client.send(format!("GET /{name} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let film = thread::spawn(move || client.answer(Body::AsTold).unwrap());
        let sessions = || {
            let answer = Client::connect(media.status()).get("/api/sessions", "");
            serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap()["sessions"].take()
        };
        wait_until("the stream", || sessions()[0]["rate_bits_per_s"].is_number());
        let other = if name == "film.mp4" { "/stream.ts" } else { "/film.mp4" };
        assert_eq!(media.client().get(other, "").status, 503, "{name}");
        let rate = sessions()[0]["rate_bits_per_s"].as_f64().unwrap();
        // Of the whole file, which is a little more than its pictures and sounds.
        let len_bytes = fs::metadata(place.root(name)).unwrap().len();
        let average = len_bytes as f64 * 8.0 / f64::from(SECONDS);
        assert!((1.2..1.3).contains(&(rate / average)), "{name}: {rate} of {average}");
        // 8 s at 1.25 times its rate, of which a second's worth is there at once.
        let body = film.join().unwrap().body;
        assert!(begun.elapsed() > Duration::from_secs(4), "{name}: {:?}", begun.elapsed());
        assert!(body == fs::read(place.root(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_playlist_and_its_segments_play_as_from_disk() {
    let Some(place) = place() else { return };
    let hls = ["-f", "hls", "-hls_time", "2", "-hls_playlist_type", "vod"];
    film(&place, &[&hls[..], &["hls/list.m3u8"]].concat()).unwrap();
    let fragments = ["-hls_segment_type", "fmp4"];
    film(&place, &[&hls[..], &fragments, &["fragments/list.m3u8"]].concat()).unwrap();
    for name in ["hls", "fragments"] {
        let media = Logged::start(&place, &[]);
        let list = format!("{name}/list.m3u8");
        assert_same_frames(&place, &media, &list, &[]);
        if name == "hls" {
            // In fragments ffmpeg 5.1 finds nothing behind a seek, from disk neither.
            assert_same_frames(&place, &media, &list, &["-ss", MIDDLE]);
        }
        // The list, and four of 2 s.
        assert_eq!(assert_same_files(&place, &media, name, "list"), 5);
    }
}

#[test]
fn a_manifest_and_its_segments_play_as_from_disk() {
    let Some(place) = place() else { return };
    film(&place, &["-f", "dash", "-seg_duration", "2", "dash/list.mpd"]).unwrap();
    let media = Logged::start(&place, &[]);
    // Of each stream, picture and sound.
    let segments = assert_same_files(&place, &media, "dash", "chunk");
    assert!(segments >= 2 * 4, "{segments}");
    let demuxers = run(Command::new("ffmpeg").args(["-v", "error", "-demuxers"])).unwrap();
    if !demuxers.split_whitespace().any(|word| word == "dash") {
        return skip("ffmpeg with the demuxer dash", "one without");
    }
    assert_same_frames(&place, &media, "dash/list.mpd", &[]);
    assert_same_frames(&place, &media, "dash/list.mpd", &["-ss", MIDDLE]);
}

/// Checks that all files of a directory have the server's bytes; returns how many are segments, by
/// how they begin.
#[track_caller]
fn assert_same_files(place: &Place, media: &Logged, directory: &str, segment: &str) -> usize {
    let mut client = Client::connect(media.media.address);
    let mut segments = 0;
    for entry in fs::read_dir(place.root(directory)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let target = format!("{directory}/{name}");
        let answer = client.get(&format!("/{target}"), "");
        assert_eq!(answer.status, 200, "{target}");
        assert!(answer.body == fs::read(place.root(&target)).unwrap(), "{target}");
        segments += usize::from(name.starts_with(segment));
    }
    segments
}

/// A page that plays each film, from its beginning, its middle and near its end, and tells the
/// test how it went. The films get brighter as they play, so that a picture tells its time.
const PAGE: &str = r#"<!doctype html><title>test</title>
<video muted playsinline></video><canvas width="320" height="180"></canvas>
<script>
const video = document.querySelector("video");
const canvas = document.querySelector("canvas").getContext("2d", { willReadFrequently: true });
const sleep = ms => new Promise(done => setTimeout(done, ms));
const state = () => `currentTime ${video.currentTime}, duration ${video.duration}, readyState ` +
  `${video.readyState}, networkState ${video.networkState}, seeking ${video.seeking}, ` +
  `error ${video.error && video.error.message}`;
async function until(what, isSo) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!isSo()) {
    if (video.error || Date.now() > deadline) throw Error(`never ${what}: ${state()}`);
    await sleep(20);
  }
}
function brightness() {
  canvas.drawImage(video, 0, 0);
  const pixels = canvas.getImageData(0, 0, 320, 180).data;
  let sum = 0;
  for (let at = 1; at < pixels.length; at += 4) sum += pixels[at];
  return sum / (pixels.length / 4);
}
// The film's luma is 20 + 25 t; 16 to 235 are what a page sees as 0 to 255.
async function playsFrom(time) {
  await until(`playing from ${time}`, () => !video.seeking && video.currentTime > time + 0.2);
  const expected = (20 + 25 * video.currentTime - 16) * 255 / 219;
  const found = brightness();
  if (Math.abs(found - expected) > 25) {
    throw Error(`brightness ${found}, expected ${expected}: ${state()}`);
  }
}
async function play(name) {
  video.src = name;
  await video.play();
  await playsFrom(0);
  for (const time of [video.duration / 2, video.duration - 1, 1]) {
    video.currentTime = time;
    await playsFrom(time);
  }
  video.currentTime = video.duration - 0.5;
  await until("at its end", () => video.ended);
}
async function main() {
  for (const name of FILMS) {
    if (!video.canPlayType(name.includes(".webm") ? "video/webm; codecs=vp8" :
      'video/mp4; codecs="avc1.42E01E"')) continue;
    await play(name).catch(error => { throw Error(`${name}: ${error.message}`); });
    played.push(name);
  }
}
const played = [];
main().then(() => `played ${played.join(" ")}`, error => `failed: ${error.message}`)
  .then(body => fetch("REPORT", { method: "POST", mode: "no-cors", body }));
</script>
"#;

/// Makes a film of which each picture tells its time by its brightness. `noise` makes it long in
/// bytes.
fn bright_film(place: &Place, noise: &str, codec: &[&str], name: &str) -> Result<(), String> {
    let source = format!("color=black:size=320x180:rate=25,geq=lum='20+25*T':cb=128:cr=128{noise}");
    let words = words!["-f", "lavfi", "-i", source, "-f", "lavfi", "-i", "sine"];
    let time = words!["-t", SECONDS.to_string(), "-pix_fmt", "yuv420p", "-g", "25"];
    let codec = codec.iter().map(OsString::from).collect();
    run(&mut ffmpeg(&[words, time, codec, words![place.root(name)]].concat())).map(drop)
}

/// The first browser that can be used here.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let all = BROWSERS.iter().flat_map(|name| directories.iter().map(move |it| it.join(name)));
    let mut own = all.filter(|path| {
        fs::canonicalize(path).is_ok_and(|path| path.is_file() && !path.starts_with("/snap"))
    });
    // What only says that a snap is needed fails here.
    own.find(|path| {
        let started = Program::start(Command::new(path).arg("--version"));
        started.is_ok_and(|mut program| program.wait().success())
    })
}

fn start_browser(place: &Place, path: &Path, url: &OsStr) -> Program {
    let home = place.path("browser");
    fs::create_dir_all(&home).unwrap();
    let mut command = Command::new(path);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--mute-audio"]);
    command.args(["--autoplay-policy=no-user-gesture-required", "--no-first-run"]);
    // Containers have little shared memory; nothing is to be asked of the world.
    command.args(["--disable-dev-shm-usage", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--no-default-browser-check"]);
    command.args(["--disable-breakpad", "--disable-crash-reporter", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", home.join("profile").display())).arg(url);
    command.current_dir(&home);
    Program::start(&mut command).unwrap()
}

/// The report that the page sends; `None` when nothing comes in time.
fn report(listener: &TcpListener, time_max: Duration) -> Option<String> {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + time_max;
    while Instant::now() < deadline {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Some(report) = body_of(stream) {
                    return Some(report);
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}

/// The body of a request, which is answered. `None`: a connection that a browser made in advance.
fn body_of(mut stream: TcpStream) -> Option<String> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (mut request, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        request.push_str(&String::from_utf8_lossy(&buffer[..count]));
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let (_, value) = head.split_once("content-length: ")?;
        if body.len() >= value.lines().next()?.parse().ok()? {
            stream.write_all(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n").ok()?;
            return Some(body.to_owned());
        }
    }
}

/// Plays films of the place in a browser, which asks for parts of them only; returns what the page
/// said.
#[track_caller]
fn play_in(place: &Place, browser: &Path, films: &[&str], options: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let page = PAGE
        .replace("REPORT", &format!("http://{}/", listener.local_addr().unwrap()))
        .replace("PATIENCE_MS", &PAGE_PATIENCE.as_millis().to_string())
        .replace("FILMS", &serde_json::to_string(films).unwrap());
    fs::write(place.root("page.html"), page).unwrap();
    let media = Logged::start(place, options);
    let mut program = start_browser(place, browser, &media.url("page.html"));
    let said = report(&listener, PATIENCE);
    let said = said.unwrap_or_else(|| {
        let log = fs::read_to_string(&media.log).unwrap_or_default();
        panic!("the page said nothing\n{log}\n{}", text_of(&mut program.errors))
    });
    drop(program);
    let statuses = media.statuses(films[films.len() - 1]);
    println!("{said}: {statuses:?}");
    assert!(statuses.iter().all(|status| [206, 304].contains(status)), "{statuses:?}");
    said
}

#[test]
fn a_browser_plays_and_seeks() {
    if let Some(program) = lacks() {
        return skip(program, "none");
    }
    let Some(browser) = browser() else {
        return skip("chromium or google-chrome", "none, or only a snap");
    };
    let place = Place::new();
    let vp8 = ["-c:v", "libvpx", "-deadline", "realtime", "-b:v", "1M", "-c:a", "libopus"];
    let h264 = ["-c:v", "libx264", "-preset", "ultrafast", "-qp", "18", "-c:a", "aac"];
    let made = bright_film(&place, "", &vp8, "film.webm").and_then(|()| {
        // Some MB: a browser that seeks in it asks for another part of it.
        bright_film(&place, ",noise=c0s=50:c0f=t", &h264, "film.mp4")
    });
    if let Err(why) = made {
        return skip("ffmpeg with libvpx, libopus and libx264", &why);
    }
    let played = play_in(&place, &browser, &["film.webm", "film.mp4"], &[]);
    // Some builds of Chromium lack H.264.
    let film = match &played[..] {
        "played film.webm film.mp4" => "film.mp4",
        "played film.webm" => "film.webm",
        _ => panic!("{played}"),
    };
    let len_bytes = fs::metadata(place.root(film)).unwrap().len();
    let paced = format!("{film}?rate={}", 2 * len_bytes * 8 / u64::from(SECONDS));
    let played = play_in(&place, &browser, &[&paced], &["--period", "500ms", "--start-up", "1s"]);
    assert_eq!(played, format!("played {paced}"));
}

/// The page of a directory: a click plays a film, and says why where there is no place for it.
#[test]
fn a_click_on_the_page_of_a_directory_plays() {
    if let Some(program) = lacks() {
        return skip(program, "none");
    }
    let place = Place::new();
    let vp8 = ["-c:v", "libvpx", "-deadline", "realtime", "-b:v", "1M", "-c:a", "libopus"];
    if let Err(why) = bright_film(&place, "", &vp8, "film.webm") {
        return skip("ffmpeg with libvpx and libopus", &why);
    }
    // No film, and it would take 32 s.
    place.file(&place.root("long.mp4"), 4_000_000);
    let Some(mut browser) = Browser::start(&place) else { return skip("chromium", "none") };
    let periods = ["--period", "500ms", "--start-up", "500ms"];
    let media = Media::start(&place, &[&["--max-streams", "1"][..], &periods].concat());
    let click = "document.querySelector('a[data-play]').click()";
    browser.open(&format!("http://{}/", media.address));
    browser.wait_for("document.querySelector('a[data-play]') !== null");
    browser.value(click);
    browser.wait_for("document.querySelector('video').currentTime > 0.3");
    assert_eq!(browser.value("document.querySelector('h2').textContent"), "film.webm");
    drop(media);

    let media = Media::start(&place, &[&["--max-streams", "1"][..], &periods].concat());
    let mut watching = media.client();
    watching.send("GET /long.mp4?rate=1M HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(watching.answer(Body::None).unwrap().status, 200);
    browser.open(&format!("http://{}/", media.address));
    browser.wait_for(&format!("location.port == {}", media.address.port()));
    browser.wait_for("document.querySelector('a[data-play]') !== null");
    browser.value(click);
    let told = "document.querySelector('#player p')";
    browser.wait_for(&format!("{told} !== null && {told}.textContent.includes('no place')"));
}
