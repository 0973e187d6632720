//! `haul demo`: moves a file over loopback, kills the transfer, resumes it, and compares.
//!
//! Everything happens in a fresh directory, which is removed at the end, also when a step fails;
//! what a demo that was killed left, by the next.
//! The server and the first push are other processes of this very program, ended by their handles.

use crate::{
    args::{
        demo::{DEMO_BYTES_DEFAULT, LowDemo},
        usage_problem,
    },
    failure::{ExitStatus, Failure},
    interrupt,
    ui::{self, Screen, units},
};
use anyhow::{Context, Result, bail, ensure};
use haul_host::FileSystem;
use haul_scratch::{
    child::{Child, Wanted},
    data_file,
    leftovers::OwnDirectory,
};
use haul_transfer::{HaulUrl, Interrupt, Problem, PushRequest, Report};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// Beginning of the names of the demo's directories.
const PREFIX: &str = "haul-demo-";
const FILE_NAME: &str = "demo.bin";
/// Smallest file of a demo: a smaller one would have arrived before anybody could kill it.
const FILE_BYTES_MIN: u64 = data_file::MADE_BYTES_MIN;
/// The part of the free space that the file takes, as one in this many: source, target, and room
/// for others.
const FREE_SPACE_PARTS: u64 = 3;
/// Time that the first push takes, being slowed, in seconds.
const FIRST_PUSH_SECONDS: u64 = 4;
/// Share of the file that is durable when the first push is killed.
const KILL_AT_SHARE: f64 = 0.4;
/// Time after which the first push is killed on a slow disk, at whatever is durable.
const KILL_AFTER: Duration = Duration::from_secs(12);
/// Longest time without any durable byte before the demo gives up.
const NOTHING_DURABLE_MAX: Duration = Duration::from_secs(30);
/// Longest time that the server may take to start.
const SERVER_START_MAX: Duration = Duration::from_secs(10);
/// Longest wait until the server has noticed that the client died.
const SESSION_END_MAX: Duration = Duration::from_secs(3);

/// Runs the demo to its end.
///
/// # Errors
/// If there is no room for it, or a step fails.
pub fn run(low: &LowDemo) -> Result<ExitStatus, Failure> {
    let interrupt = interrupt::on_signals()?;
    let parent = low.directory.clone().unwrap_or_else(std::env::temp_dir);
    let plan = Plan::new(&parent, low.size)?;
    let mut demo = Demo::new(&parent, interrupt)?;
    let result = demo.run(plan);
    let (step, what) = (demo.step, demo.title);
    // Before any message about the result, so that a failure leaves nothing behind either.
    drop(demo);
    result.map(|()| ExitStatus::AllDone).map_err(|error| {
        let what = format!("haul demo stopped at step {step} ({what})");
        let problem = usage_problem(&what, "", &format!("{error:#}"), "");
        Failure { status: ExitStatus::SomeFailed, ..Failure::from(problem) }
    })
}

/// Size of the demo's file.
#[derive(Clone, Copy, Debug)]
struct Plan {
    file_bytes: u64,
    /// Longest time to make the file: a slow disk makes it smaller, unless the user asked for a
    /// size.
    time_max: Option<Duration>,
}

impl Plan {
    fn new(parent: &Path, asked: Option<u64>) -> Result<Self, Problem> {
        let what = format!("cannot run the demo in {}", parent.display());
        let hint = "name another directory with --dir, or a smaller file with --size";
        let free_bytes = match File::open(parent).and_then(FileSystem::of) {
            Ok(system) => system.free_bytes,
            Err(error) => {
                let needs = "a directory that can be written";
                return Err(usage_problem(&what, needs, &error.to_string(), hint));
            }
        };
        let room_bytes = free_bytes.map_or(u64::MAX, |free| free / FREE_SPACE_PARTS);
        let file_bytes = asked.unwrap_or(DEMO_BYTES_DEFAULT.min(room_bytes));
        if file_bytes > room_bytes || file_bytes < FILE_BYTES_MIN {
            let wanted_bytes = file_bytes.max(FILE_BYTES_MIN);
            let needs = format!(
                "a file of {} or more, and {} free",
                units::bytes(FILE_BYTES_MIN),
                units::bytes(wanted_bytes.saturating_mul(FREE_SPACE_PARTS))
            );
            let found = format!("{}; {}", units::bytes(file_bytes), units::free(free_bytes));
            return Err(usage_problem(&what, &needs, &found, hint));
        }
        let time_max = asked.is_none().then_some(data_file::MAKE_TIME_MAX);
        Ok(Self { file_bytes, time_max })
    }
}

struct Demo {
    directory: OwnDirectory,
    interrupt: Interrupt,
    started: Instant,
    step: u32,
    title: &'static str,
    step_started: Instant,
}

impl Demo {
    fn new(parent: &Path, interrupt: Interrupt) -> Result<Self, Problem> {
        let directory = OwnDirectory::new(parent, PREFIX).map_err(|error| {
            let what = format!("cannot make a directory in {}", parent.display());
            let hint = "name another directory with --dir";
            usage_problem(&what, "the right to write there", &error.to_string(), hint)
        })?;
        let now = Instant::now();
        Ok(Self { directory, interrupt, started: now, step: 0, title: "", step_started: now })
    }

    fn run(&mut self, plan: Plan) -> Result<()> {
        let shown = self.directory.path().display();
        ui::print_to_stdout(&format!("haul demo, in {shown} (removed at the end)"));

        self.begin("make a file of random bytes");
        let file_bytes = data_file::make(&self.source(), plan.file_bytes, plan.time_max, || {
            self.check_interrupt()
        })?;
        self.say(&format!("{FILE_NAME}, {}", units::bytes(file_bytes)));

        self.begin("serve a directory, here on this machine");
        let (mut server, url) = self.serve()?;
        self.say(&url.to_string());

        self.begin("push the file, and kill the push midway (kill -9)");
        let durable_bytes = self.push_and_kill(&url, file_bytes)?;
        let (durable, all) = (units::bytes(durable_bytes), units::bytes(file_bytes));
        self.say(&format!("killed when at least {durable} of {all} were verified and on disk"));

        self.begin("look for half a file under the final name");
        self.session_ended(&mut server)?;
        self.look_for_half_a_file()?;

        self.begin("push again: it goes on where it stopped");
        let (screen, report) = self.push_again(&url)?;
        let resumed = units::bytes(report.resumed_bytes);
        ensure!(
            report.resumed_bytes >= durable_bytes,
            "{durable} were on disk, and only {resumed} were not sent again: this is a bug"
        );
        self.say(&format!("{resumed} were there already and were not sent again"));

        self.begin("compare both files byte by byte");
        data_file::compare(&self.source(), &self.target(), || self.check_interrupt())?;
        self.say("equal");

        self.begin("end the server");
        server.end();
        self.say("ended");
        self.show_end(screen, &report);
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.directory.path().join("source").join(FILE_NAME)
    }

    fn target_directory(&self) -> PathBuf {
        self.directory.path().join("target")
    }

    fn target(&self) -> PathBuf {
        self.target_directory().join(FILE_NAME)
    }

    fn begin(&mut self, title: &'static str) {
        self.step += 1;
        self.title = title;
        self.step_started = Instant::now();
        ui::print_to_stdout(&format!(
            "\n{}. {}{}",
            self.step,
            title[..1].to_uppercase(),
            &title[1..]
        ));
    }

    fn command(&self, words: &str) {
        ui::print_to_stdout(&format!("   $ haul {words}"));
    }

    fn say(&self, result: &str) {
        let took = units::time(self.step_started.elapsed().as_secs_f64());
        ui::print_to_stdout(&format!("   {result}  [{took}]"));
    }

    fn check_interrupt(&self) -> Result<()> {
        ensure!(!self.interrupt.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    fn serve(&self) -> Result<(Child, HaulUrl)> {
        let root = self.target_directory();
        std::fs::create_dir(&root).with_context(|| format!("cannot make {}", root.display()))?;
        self.command("serve target --listen 127.0.0.1:0");
        let mut server = Child::start(self.directory.path(), "serve", |command| {
            command.args(["serve", "target", "--listen", "127.0.0.1:0", "--json"]);
        })?;
        let first = server.wait_for(
            SERVER_START_MAX,
            || self.check_interrupt(),
            |object| {
                object["url"].as_str().map_or(Wanted::More, |url| Wanted::This(url.to_owned()))
            },
        )?;
        let Some(url) = first else { bail!("the server did not start: {}", server.errors()) };
        let url = url.parse::<HaulUrl>().context("the server printed an odd URL")?;
        Ok((server, url))
    }

    /// Runs a push and kills it; returns the durable bytes that it reported last.
    fn push_and_kill(&self, url: &HaulUrl, file_bytes: u64) -> Result<u64> {
        let limit = (file_bytes / FIRST_PUSH_SECONDS).to_string();
        let open_url = HaulUrl { token: None, ..url.clone() }.reveal();
        self.command(&format!(
            "push {FILE_NAME} {open_url} --bwlimit {}M   (slowed, or it would be over too soon)",
            (file_bytes / FIRST_PUSH_SECONDS) >> 20
        ));
        let token = url.token.as_ref().context("the server's URL has no token")?.reveal();
        let source = Path::new("source").join(FILE_NAME);
        let mut push = Child::start(self.directory.path(), "push", |command| {
            command.arg("push").arg(&source).arg(&open_url);
            command.args(["--json", "--bwlimit", &limit]).env("HAUL_TOKEN", &token);
        })?;
        let started = Instant::now();
        let enough_bytes = (file_bytes as f64 * KILL_AT_SHARE) as u64;
        let mut durable_bytes = 0;
        let reached = push.wait_for(
            NOTHING_DURABLE_MAX,
            || self.check_interrupt(),
            |object| {
                if object["event"] == "report" {
                    return Wanted::Never;
                }
                durable_bytes = object["bytes_durable"].as_u64().unwrap_or(durable_bytes);
                let late = started.elapsed() > KILL_AFTER && durable_bytes > 0;
                if durable_bytes >= enough_bytes || late { Wanted::This(()) } else { Wanted::More }
            },
        )?;
        push.kill();
        if reached.is_none() && durable_bytes == 0 {
            bail!("the push came to nothing: {}", push.errors());
        }
        Ok(durable_bytes)
    }

    /// Waits until the server has noticed that the client is gone, so that the target is free
    /// again.
    fn session_ended(&self, server: &mut Child) -> Result<()> {
        let ended = |object: &serde_json::Value| match object["event"].as_str() {
            Some("session_ended") => Wanted::This(()),
            _ => Wanted::More,
        };
        // A server that is slow to notice answers the next push by itself.
        server.wait_for(SESSION_END_MAX, || self.check_interrupt(), ended)?;
        Ok(())
    }

    fn look_for_half_a_file(&self) -> Result<()> {
        let root = self.target_directory();
        let mut hidden_bytes = 0;
        for entry in std::fs::read_dir(&root).context("cannot list the target")? {
            let entry = entry?;
            let name = entry.file_name();
            ensure!(
                name.as_encoded_bytes().starts_with(b"."),
                "{} is to be seen although the push was killed: this is a bug",
                name.to_string_lossy()
            );
            hidden_bytes += entry.metadata()?.len();
        }
        let waits = if hidden_bytes > 0 { "; what arrived waits in a hidden one" } else { "" };
        self.say(&format!("nothing there: a file gets its name when all of it is verified{waits}"));
        Ok(())
    }

    /// Runs the second push in this process, so that its progress and report are shown as they
    /// come.
    fn push_again(&self, url: &HaulUrl) -> Result<(Box<dyn Screen>, Report)> {
        let open_url = HaulUrl { token: None, ..url.clone() }.reveal();
        self.command(&format!("push {FILE_NAME} {open_url}"));
        let request = PushRequest::new([self.source()], url.clone());
        let mut screen = ui::for_people(false);
        let mut show = |event| screen.event(&event);
        let result = haul_transfer::push(&request, &self.interrupt, &mut show);
        screen.finish();
        let report = result?;
        ensure!(report.ok, "the second push did not finish the file");
        Ok((screen, report))
    }

    fn show_end(&self, mut screen: Box<dyn Screen>, report: &Report) {
        ui::print_to_stdout("\nThe report of the second push (over loopback, so no network):\n");
        screen.report(report);
        let took = units::time(self.started.elapsed().as_secs_f64());
        ui::print_to_stdout(&format!("\nAll seven steps took {took}.\n\n{NEXT}"));
    }
}

/// Commands to try after the demo.
pub const NEXT: &str = "\
Next, between two machines:

    there   haul serve /data               prints a URL
    here    haul push FILE... URL          sends files and directories
            haul pull URL/NAME .           fetches them
            haul push zero:20G URL/null:   how fast is the network alone?
            haul push FILE URL/null:       and with this machine's disk?

haul help push tells the rest.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_demo_without_room_says_how_much_it_needs() {
        let parent = std::env::temp_dir();
        for size in [1, u64::MAX / 8] {
            let refused = Plan::new(&parent, Some(size)).unwrap_err().to_string();
            assert!(refused.contains("64.0 MiB or more") && refused.contains("--dir"), "{refused}");
        }
        assert!(Plan::new(Path::new("/nowhere/at/all"), None).is_err());
    }
}
