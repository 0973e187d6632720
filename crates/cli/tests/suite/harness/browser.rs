//! A headless Chromium that a test drives, by the DevTools protocol over two pipes.

use super::{PATIENCE, Place};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
/// Words that run Chromium: it reads commands from descriptor 3 and writes answers to 4.
const RUN: &str = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
const END_MAX: Duration = Duration::from_secs(5);

/// A browser with one page; it and its process end when it is dropped.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    commands_count: u64,
    session: Option<String>,
    /// Events that the browser told without being asked.
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser; `None` where no Chromium is installed.
    pub fn start(place: &Place) -> Option<Self> {
        let paths = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&paths)
            .flat_map(|path| NAMES.map(|name| path.join(name)))
            .find(|path| path.is_file())?;
        let mut command = Command::new("sh");
        command.args(["-c", RUN, "sh"]).arg(found).args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            // A click of a script is no gesture of a user.
            "--autoplay-policy=no-user-gesture-required",
            "--remote-debugging-pipe",
        ]);
        command.arg(format!("--user-data-dir={}", place.path("chromium").display()));
        // Its processes are a group: whichever are left are ended with it.
        command.env("HOME", place.path("")).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, answers) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                let _ = sender.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let events = Vec::new();
        let mut browser =
            Self { child, commands, answers, commands_count: 0, session: None, events };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.ask("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Page", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Asks a command of the protocol and returns its result.
    #[track_caller]
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.commands_count += 1;
        let id = self.commands_count;
        let mut command = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = match self.answers.recv_timeout(left) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("no answer to {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("Chromium ended before {method}"),
            };
            if message["id"] != id {
                self.events.push(message);
                continue;
            }
            assert!(message["error"].is_null(), "{method}: {message}");
            return message["result"].clone();
        }
    }

    pub fn open(&mut self, url: &str) {
        self.ask("Page.navigate", json!({ "url": url }));
    }

    /// Evaluates an expression of JavaScript on the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let found = self.ask("Runtime.evaluate", asked);
        assert!(found["exceptionDetails"].is_null(), "{expression}: {found}");
        found["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.value(expression) != true {
            if Instant::now() > deadline {
                let page = self.value("document.body.innerText");
                panic!("never {expression}: {page}\n{:?}", self.complaints());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Complaints of the page: what the console shows as an error or a warning, and exceptions that
    /// nobody caught.
    pub fn complaints(&self) -> Vec<String> {
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] != "verbose",
            Some("Runtime.consoleAPICalled") => event["params"]["type"] != "log",
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
    }

    /// URLs of all that the pages asked for.
    pub fn asked_for(&self) -> Vec<String> {
        let asked = self.events.iter().filter(|one| one["method"] == "Network.requestWillBeSent");
        asked
            .filter_map(|one| one["params"]["request"]["url"].as_str().map(str::to_owned))
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let deadline = Instant::now() + END_MAX;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        let group = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
