//! `haul serve`: prints a URL, then serves a directory until it is told to end.

use crate::{
    args::{serve::LowServe, usage_problem},
    failure::{ExitStatus, Failure},
    interrupt, ui,
};
use haul_transfer::{
    ServeOptions, ServeRoot,
    server::{Server, ServerEvent},
};
use std::{
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// # Errors
/// If the address, the root or the state directory cannot be used.
pub fn run(low: LowServe) -> Result<ExitStatus, Failure> {
    let json = low.json;
    let options = low.checked()?;
    let welcome = Welcome::of(&options);
    let interrupt = interrupt::on_signals()?;
    haul_transfer::raise_open_files_limit();
    let server = Server::bind(options)?;
    if json {
        let url = server.url().reveal();
        ui::json::print(&serde_json::json!({ "event": "listening", "url": url }));
    } else {
        let address = server.local_addr();
        ui::print_to_stdout(&welcome.text(&server.url().reveal(), &address.to_string()));
    }
    let log = Log::start(json).map_err(|error| {
        usage_problem("cannot start a thread for the log", "", &error.to_string(), "")
    })?;
    server.run(&interrupt, &|event| log.tell(event))?;
    log.end();
    Ok(ExitStatus::AllDone)
}

/// Events that wait to be printed, at most. Nobody may be reading: the server goes on all the same.
const WAITING_EVENTS_MAX: usize = 4096;
/// How long events gather before they are printed.
const GATHER: Duration = Duration::from_millis(2);
/// How long the last events may take to be printed.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Prints events on a thread of its own.
struct Log {
    json: bool,
    waiting: SyncSender<ServerEvent>,
    lost: AtomicU64,
    thread: JoinHandle<()>,
}

impl Log {
    fn start(json: bool) -> std::io::Result<Self> {
        let (waiting, events) = sync_channel::<ServerEvent>(WAITING_EVENTS_MAX);
        let thread = thread::Builder::new().name("haul-log".into()).spawn(move || {
            while let Ok(first) = events.recv() {
                // A wake-up for each of a million files would cost their session more than they do.
                thread::sleep(GATHER);
                let gathered = std::iter::once(first).chain(events.try_iter());
                if json {
                    ui::json::print_all(gathered);
                } else {
                    gathered.for_each(|event| ui::print_to_stdout(&event.to_string()));
                }
            }
        })?;
        Ok(Self { json, waiting, lost: AtomicU64::new(0), thread })
    }

    fn tell(&self, event: ServerEvent) {
        // A line a session is enough to read; --json has every file.
        if !self.json && matches!(event, ServerEvent::File { .. }) {
            return;
        }
        if self.waiting.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn end(self) {
        let Self { waiting, lost, thread, .. } = self;
        drop(waiting);
        wait_a_while(&thread);
        let lost = lost.into_inner();
        if lost > 0 {
            let words = format!("{lost} events were not printed, for nobody read them in time");
            // Nobody may be reading these either: both outputs may be one pipe.
            let builder = thread::Builder::new().name("haul-log-end".into());
            if let Ok(thread) = builder.spawn(move || ui::print_to_stderr(&words)) {
                wait_a_while(&thread);
            }
        }
    }
}

fn wait_a_while(thread: &JoinHandle<()>) {
    let deadline = Instant::now() + END_PATIENCE;
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the user reads first: the URL, who may do what with it, and the commands to copy.
#[derive(Debug)]
pub struct Welcome {
    pub root: ServeRoot,
    pub read_only: bool,
}

impl Welcome {
    fn of(options: &ServeOptions) -> Self {
        Self { root: options.root.clone(), read_only: options.read_only }
    }

    /// The lines for a server that listens on `address` and is reached by `url`.
    #[must_use]
    pub fn text(&self, url: &str, address: &str) -> String {
        let (served, may) = match (&self.root, self.read_only) {
            (ServeRoot::Null, _) => ("null:".to_owned(), "send bytes here, to be thrown away"),
            (ServeRoot::Directory(path), read_only) => (
                path.display().to_string(),
                if read_only { "read all files there" } else { "read and write all files there" },
            ),
        };
        let null = self.root == ServeRoot::Null;
        let mut lines = vec![
            format!("haul serves {served} on {address}"),
            String::new(),
            format!("    {url}"),
            String::new(),
            format!("Whoever has this URL may {may}; it is a password. On the other machine:"),
            String::new(),
        ];
        if !self.read_only {
            lines.push(format!("    haul push FILE... {url}"));
        }
        if !null {
            lines.push(format!("    haul pull {url}NAME ."));
        }
        lines.push(String::new());
        lines.push("Ctrl-C ends it; transfers go on when it is started again.".to_owned());
        lines.join("\n")
    }
}
