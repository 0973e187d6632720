//! `haul token`: makes, lists and revokes the tokens that a server accepts.

use crate::{
    args::{
        checked_host,
        token::{LowToken, LowTokenCommand, LowTokenNew},
        usage_problem,
    },
    failure::{ExitStatus, Failure},
    ui,
};
use haul_transfer::{HaulUrl, Rights, ServedRoot, StateDirectory, Token, TokenRecord};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Makes, lists or revokes tokens.
///
/// # Errors
/// If the state directory cannot be used, or no such token is there.
pub fn run(low: LowToken) -> Result<ExitStatus, Failure> {
    match low.command {
        LowTokenCommand::New(low) => new(low)?,
        LowTokenCommand::List(low) => list(&StateDirectory::open(&low.state.checked())?, low.json)?,
        LowTokenCommand::Revoke(low) => {
            let record = StateDirectory::open(&low.state.checked())?.revoke(&low.id)?;
            if low.json {
                ui::json::print(&TokenLine::of("revoked", &record));
            } else {
                ui::print_to_stdout(&format!("revoked {}", described(&record)));
            }
        }
    }
    Ok(ExitStatus::AllDone)
}

/// A token as a line of `--json`. A token's secret is on it only when it was made just now.
#[derive(Debug, Serialize)]
struct TokenLine<'record> {
    event: &'static str,
    id: &'record str,
    rights: Rights,
    served: Option<&'record str>,
    root: String,
    label: &'record str,
    created: String,
    expires: Option<String>,
    single_use: bool,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl<'record> TokenLine<'record> {
    fn of(event: &'static str, record: &'record TokenRecord) -> Self {
        Self {
            event,
            id: &record.id,
            rights: record.rights,
            served: record.served().name(),
            root: record.root.display().to_string(),
            label: &record.label,
            created: utc(record.created_s),
            expires: record.expires_s.map(utc),
            single_use: record.single_use,
            status: record.status(),
            token: None,
            url: None,
        }
    }
}

fn new(low: LowTokenNew) -> Result<(), Failure> {
    let mut wanted = low.checked()?;
    let host = low
        .host
        .as_deref()
        .map(|host| checked_host("--host", host, "the port is given by --port"))
        .transpose()?;
    let state = StateDirectory::open(&low.state.directory_or_default())?;
    let (served, directory) = match &low.served {
        Some(named) => (ServedRoot::named(named)?, named.clone()),
        None => only_served(&state)?,
    };
    wanted.root = real_root(&directory, &wanted.root)?;
    wanted.served = served;
    let (token, record) = state.new_token(&wanted)?;
    let url = host.map(|host| url(&token, host, low.port));
    if low.json {
        let line =
            TokenLine { token: Some(token.reveal()), url, ..TokenLine::of("token", &record) };
        ui::json::print(&line);
        return Ok(());
    }
    let (name, secret) = url.map_or_else(|| ("token", token.reveal()), |url| ("url  ", url));
    ui::print_to_stdout(&format!(
        "{name}  {secret}\nid     {}\nallows {}\n\nIt is shown only now; whoever has it is let in. \
         Revoke it with: haul token revoke {}",
        record.id,
        described(&record).split_once(": ").map_or("", |(_, text)| text),
        record.id,
    ));
    Ok(())
}

/// The real path of a root below what is served. Links on its way are resolved here and at no other
/// time: those who may write there could make them lead elsewhere later.
fn real_root(served: &Path, root: &Path) -> Result<PathBuf, Failure> {
    if root.as_os_str().is_empty() {
        return Ok(PathBuf::new());
    }
    let refused = |found: &str, hint: &str| {
        let what = format!("cannot make a token for {}", root.display());
        let needs = format!("a directory that is there, below {}", served.display());
        Err(usage_problem(&what, &needs, found, hint).into())
    };
    let real = served.canonicalize().and_then(|served| {
        let real = served.join(root).canonicalize()?;
        Ok((real.is_dir(), real.strip_prefix(&served).map(Path::to_owned)))
    });
    match real {
        Ok((true, Ok(real))) if real.to_str().is_some() => Ok(real),
        Ok((true, Ok(_))) => refused("a name that is no UTF-8 text", "rename it"),
        Ok((true, Err(_))) => {
            refused("a link that leads out", "name the directory itself by --for")
        }
        Ok((false, _)) => refused("no directory", "name a directory"),
        Err(error) => refused(&error.to_string(), "make it first, then the token"),
    }
}

/// The directory that was served so far, where that is one, and the path to it.
fn only_served(state: &StateDirectory) -> Result<(ServedRoot, PathBuf), Failure> {
    let roots = state.served_roots()?;
    let names: Vec<&str> = roots.iter().filter_map(ServedRoot::name).collect();
    let hint = match names.as_slice() {
        // As it is now: that it was replaced is nothing to this token.
        [_] if roots[0] == ServedRoot::Null => return Ok((ServedRoot::Null, "null:".into())),
        [path] => match ServedRoot::at(Path::new(path)) {
            Ok(root) => return Ok((root, path.into())),
            Err(error) => format!("{path} was served, and cannot be opened: {error}"),
        },
        [] => "name it: haul token new --for DIR; `haul serve` there has served nothing yet".into(),
        several => format!("name one by --for: {}", several.join(", ")),
    };
    let found = format!("{} that were served from this state directory", names.len());
    let needs = "the directory that it is to open";
    Err(usage_problem("cannot make a token", needs, &found, &ui::printable(&hint)).into())
}

fn url(token: &Token, host: String, port: u16) -> String {
    let (token, path) = (Some(token.clone()), Vec::new());
    HaulUrl { token, host, port, path, proxy: None }.reveal()
}

fn list(state: &StateDirectory, json: bool) -> Result<(), Failure> {
    let records = state.tokens()?;
    if json {
        for record in &records {
            ui::json::print(&TokenLine::of("token", record));
        }
        return Ok(());
    }
    if records.is_empty() {
        let directory = ui::printable(&state.path().display().to_string());
        ui::print_to_stdout(&format!(
            "no tokens in {directory}: `haul serve` and `haul token new` make them"
        ));
        return Ok(());
    }
    let mut rows =
        vec![["ID", "STATUS", "RIGHTS", "USES", "EXPIRES", "ROOT", "LABEL"].map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        [
            record.id.clone(),
            record.status().to_owned(),
            rights(record.rights),
            if record.single_use { "one" } else { "any" }.to_owned(),
            record.expires_s.map_or_else(|| "never".to_owned(), utc),
            shown_root(record),
            ui::printable(&record.label),
        ]
    }));
    ui::print_to_stdout(&ui::aligned(&rows));
    Ok(())
}

fn described(record: &TokenRecord) -> String {
    let uses = if record.single_use { ", for one transfer" } else { "" };
    let expires = record.expires_s.map_or_else(String::new, |end| format!(", until {}", utc(end)));
    let (id, rights) = (&record.id, rights(record.rights));
    format!("{id}: {rights} below {}{uses}{expires}", shown_root(record))
}

/// The directory that a token opens, in words.
fn shown_root(record: &TokenRecord) -> String {
    let Some(served) = record.served().name() else {
        return "? (of an older version: it opens nothing)".to_owned();
    };
    if record.root.as_os_str().is_empty() {
        return ui::printable(served);
    }
    ui::printable(&format!("{}/{}", served.trim_end_matches('/'), record.root.display()))
}

fn rights(rights: Rights) -> String {
    let names: Vec<&str> = rights.names().collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// A time in seconds since 1970 as RFC 3339 has it, in UTC.
fn utc(time_s: u64) -> String {
    let time = i64::try_from(time_s).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    time.map_or_else(|| "never".to_owned(), |time| time.to_string())
}
