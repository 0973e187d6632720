//! Transfers that end early, tell their program how far they came, and go on from there.

use haul_transfer::{
    Event, HaulUrl, Interrupt, PullRequest, PushRequest, Report, ServeOptions, ServeRoot, Server,
    TransferError, TransferOptions, pull, push,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread::{self, JoinHandle},
    time::Duration,
};

const FILE_BYTES: usize = 48 << 20;
const SPAN_BYTES: u64 = 1 << 20;

/// A server on a thread, which ends with this.
struct Served {
    place: tempfile::TempDir,
    url: HaulUrl,
    interrupt: Interrupt,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        let place = tempfile::tempdir().expect("a fresh directory");
        let root = place.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 7 + at / 4099) as u8).collect();
        fs::write(place.path().join("source"), bytes).expect("a file");
        let (url, interrupt, thread) = serve(place.path(), 0);
        Self { place, url, interrupt, thread: Some(thread) }
    }

    /// Ends the server and starts it anew, at the same port and with the same state.
    fn restart(&mut self) {
        self.stop();
        let (_, interrupt, thread) = serve(self.place.path(), self.url.port);
        (self.interrupt, self.thread) = (interrupt, Some(thread));
    }

    fn source(&self) -> PathBuf {
        self.place.path().join("source")
    }

    fn arrived(&self) -> Vec<u8> {
        fs::read(self.place.path().join("root/source")).expect("it arrived")
    }

    fn stop(&mut self) {
        self.interrupt.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(place: &Path, port: u16) -> (HaulUrl, Interrupt, JoinHandle<()>) {
    let root = ServeRoot::Directory(place.join("root"));
    let mut options = ServeOptions::new(root, place.join("state"));
    options.listen = format!("127.0.0.1:{port}");
    let server = Server::bind(options).expect("a free port");
    let (url, interrupt) = (server.url(), Interrupt::default());
    let until = interrupt.clone();
    let thread = thread::spawn(move || server.run(&until, &|_| {}).expect("it serves"));
    (url, interrupt, thread)
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

fn request(source: &Path, url: &HaulUrl, rate_bytes_per_s: Option<u64>) -> PushRequest {
    let mut options = TransferOptions::default();
    options.span_bytes = Some(SPAN_BYTES);
    options.rate_bytes_per_s = rate_bytes_per_s;
    options.retry_for = Duration::ZERO;
    let mut request = PushRequest::new([source], url.clone());
    request.options = options;
    request
}

/// Pushes until some of the file is durable, and then calls `then`.
fn push_until_durable(request: &PushRequest, then: &mut dyn FnMut(&Interrupt)) -> TransferError {
    let interrupt = Interrupt::default();
    let pushed = push(request, &interrupt, &mut |event| {
        if matches!(event, Event::Progress(progress) if progress.bytes_durable > 0) {
            then(&interrupt);
        }
    });
    pushed.expect_err("the file is too large to be through by then")
}

fn check_partial(report: &Report, served: &Served) {
    assert!(!report.ok && report.files.done == 0 && report.bytes == 0, "{report:?}");
    assert!(report.unfinished_bytes > 0, "{report:?}");
    assert!(report.unfinished_bytes < FILE_BYTES as u64, "{report:?}");
    assert_eq!(report.moved_bytes, report.unfinished_bytes);
    assert!(report.seconds > 0.0 && report.to.to_string().starts_with("haul://"), "{report:?}");
    assert_eq!(report.from.to_string(), served.source().display().to_string());
}

#[test]
fn an_interrupted_push_gives_its_report_and_the_next_one_resumes() {
    let served = Served::start();
    let source = served.source();
    let slow = request(&source, &served.url, Some(8 << 20));
    let error = push_until_durable(&slow, &mut |interrupt| {
        interrupt.store(true, Ordering::Relaxed);
    });
    assert!(matches!(error, TransferError::Interrupted { .. }), "{error:?}");
    let partial = error.report().expect("a session was under way").clone();
    check_partial(&partial, &served);

    let whole = push(&request(&source, &served.url, None), &Interrupt::default(), &mut |_| {});
    let whole = whole.unwrap();
    assert!(whole.ok && whole.unfinished_bytes == 0, "{whole:?}");
    assert!(whole.resumed_bytes >= partial.unfinished_bytes, "{whole:?} after {partial:?}");
    assert_eq!(whole.moved_bytes + whole.resumed_bytes, FILE_BYTES as u64);
    assert_eq!(served.arrived(), fs::read(&source).unwrap());
}

#[test]
fn an_interrupted_pull_gives_its_report_and_the_next_one_resumes() {
    let served = Served::start();
    let mut url = served.url.clone();
    url.path = b"source".to_vec();
    fs::copy(served.source(), served.place.path().join("root/source")).unwrap();
    let target = served.place.path().join("fetched");
    let mut request = PullRequest::new([url], &*target);
    request.options.span_bytes = Some(SPAN_BYTES);
    request.options.rate_bytes_per_s = Some(8 << 20);
    let interrupt = Interrupt::default();
    let pulled = pull(&request, &interrupt, &mut |event| {
        if matches!(event, Event::Progress(progress) if progress.bytes_durable > 0) {
            interrupt.store(true, Ordering::Relaxed);
        }
    });
    let error = pulled.expect_err("the file is too large to be through by then");
    let partial = error.report().expect("a session was under way");
    assert!(!partial.ok && partial.unfinished_bytes > 0, "{partial:?}");
    assert_eq!(partial.to.to_string(), target.display().to_string());

    request.options.rate_bytes_per_s = None;
    let whole = pull(&request, &Interrupt::default(), &mut |_| {}).unwrap();
    assert!(whole.ok && whole.resumed_bytes >= partial.unfinished_bytes, "{whole:?}");
    assert_eq!(fs::read(target).unwrap(), fs::read(served.source()).unwrap());
}

#[test]
fn a_push_whose_server_ends_gives_its_report() {
    let mut served = Served::start();
    let source = served.source();
    let slow = request(&source, &served.url, Some(8 << 20));
    let error = push_until_durable(&slow, &mut |_| served.stop());
    assert!(matches!(error, TransferError::Broken { .. }), "{error:?}");
    check_partial(error.report().expect("a session was under way"), &served);
}

#[test]
fn a_second_session_that_ends_early_hides_nothing_that_the_first_one_kept() {
    let mut served = Served::start();
    let mut slow = request(&served.source(), &served.url, Some(8 << 20));
    slow.options.retry_for = Duration::from_secs(30);
    let (interrupt, mut sessions) = (Interrupt::default(), 0);
    let pushed = push(&slow, &interrupt, &mut |event| match event {
        Event::Session(_) => {
            sessions += 1;
            interrupt.store(sessions == 2, Ordering::Relaxed);
        }
        Event::Progress(progress) if progress.bytes_durable > 0 && sessions == 1 => {
            served.restart();
        }
        _ => {}
    });
    let error = pushed.expect_err("the file is too large to be through by then");
    let report = error.report().expect("sessions were under way");
    check_partial(report, &served);
    assert_eq!(report.reconnections, 1, "{report:?}");
}

#[test]
fn a_file_that_was_there_is_not_moved_though_the_first_session_was_lost_early() {
    let mut served = Served::start();
    let mut request = request(&served.source(), &served.url, None);
    request.options.retry_for = Duration::from_secs(30);
    push(&request, &Interrupt::default(), &mut |_| {}).expect("it arrives");
    let mut sessions = 0;
    let again = push(&request, &Interrupt::default(), &mut |event| {
        if matches!(event, Event::Session(_)) {
            sessions += 1;
            if sessions == 1 {
                served.restart();
            }
        }
    });
    let again = again.expect("it is there");
    assert_eq!((again.reconnections, again.files.skipped), (1, 1), "{again:?}");
    assert_eq!((again.moved_bytes, again.skipped_bytes), (0, FILE_BYTES as u64), "{again:?}");
}

/// Checks the report of a move of a small and a large file, whose server was started anew between
/// them.
fn check_moved(report: &Report, source: &Path, target: &Path) {
    assert!(report.ok && report.reconnections == 1, "{report:?}");
    assert_eq!((report.files.done, report.files.failed), (2, 0), "{report:?}");
    assert_eq!(report.sources_removed, 2, "{report:?}");
    for name in ["small", "large"] {
        assert!(!source.join(name).exists() && target.join(name).exists(), "{name}");
    }
}

/// Makes the files of a move.
fn make_small_and_large(served: &Served, directory: &Path) {
    fs::write(directory.join("small"), "first").expect("a file");
    fs::copy(served.source(), directory.join("large")).expect("a copy");
}

#[test]
fn a_source_that_a_push_had_moved_before_it_came_back_is_moved() {
    let mut served = Served::start();
    let from = served.place.path().join("from");
    fs::create_dir(&from).unwrap();
    make_small_and_large(&served, &from);
    let sources = ["small", "large"].map(|name| from.join(name));
    let mut request = PushRequest::new(sources, served.url.clone());
    request.options = slow_move();
    let (mut problems, mut is_restarted) = (Vec::new(), false);
    let pushed = push(&request, &Interrupt::default(), &mut |event| match event {
        Event::Progress(progress) if progress.bytes_durable > SPAN_BYTES && !is_restarted => {
            assert!(!from.join("small").exists(), "it is moved first");
            is_restarted = true;
            served.restart();
        }
        Event::Error(problem) => problems.push(problem),
        _ => {}
    });
    assert_eq!(problems, []);
    check_moved(&pushed.unwrap(), &from, &served.place.path().join("root"));
}

#[test]
fn a_source_that_a_pull_had_moved_before_it_came_back_is_moved() {
    let mut served = Served::start();
    let (root, to) = (served.place.path().join("root"), served.place.path().join("to"));
    make_small_and_large(&served, &root);
    fs::create_dir(&to).unwrap();
    let urls = ["small", "large"].map(|name| {
        let mut url = served.url.clone();
        url.path = name.into();
        url
    });
    let mut request = PullRequest::new(urls, &*to);
    request.options = slow_move();
    let (mut problems, mut is_restarted) = (Vec::new(), false);
    let pulled = pull(&request, &Interrupt::default(), &mut |event| match event {
        Event::Progress(progress) if progress.bytes_durable > SPAN_BYTES && !is_restarted => {
            assert!(!root.join("small").exists(), "it is moved first");
            is_restarted = true;
            served.restart();
        }
        Event::Error(problem) => problems.push(problem),
        _ => {}
    });
    assert_eq!(problems, []);
    check_moved(&pulled.unwrap(), &root, &to);
}

/// Options of a move that comes back, and that takes some seconds.
fn slow_move() -> TransferOptions {
    let mut options = TransferOptions::default();
    options.span_bytes = Some(SPAN_BYTES);
    options.rate_bytes_per_s = Some(16 << 20);
    options.retry_for = Duration::from_secs(30);
    options.file_options.move_sources = true;
    options
}

#[test]
fn a_push_that_could_not_start_has_no_report() {
    let served = Served::start();
    let missing = request(&served.place.path().join("missing"), &served.url, None);
    let error = push(&missing, &Interrupt::default(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, TransferError::Unavailable(_)), "it may be mounted later: {error:?}");
    assert!(error.report().is_none());
}
