//! `haul serve`: prints a URL, then serves a directory until it is told to end.

use super::serve_log::Log;
use crate::{
    args::{serve::LowServe, usage_problem},
    failure::{ExitStatus, Failure},
    interrupt, ui,
};
use haul_transfer::{ServeOptions, ServeRoot, server::Server};

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
    server.run(&interrupt, &|event| log.tell(&event))?;
    log.end();
    Ok(ExitStatus::AllDone)
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
