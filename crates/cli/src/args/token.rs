//! Arguments of `haul token`, and their check.

use super::{LowState, usage_problem, values::Period};
use clap::{Args, Subcommand};
use haul_transfer::{NewToken, PORT_DEFAULT, Problem, Rights, ServedRoot};
use std::path::{Component, Path, PathBuf};

/// Makes, lists and revokes the tokens that a server accepts
///
/// Run it on the server, as the user who runs `haul serve`. A running server sees the change at
/// once.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, subcommand_value_name = "COMMAND")]
pub struct LowToken {
    #[command(subcommand)]
    pub command: LowTokenCommand,
}

#[derive(Debug, Subcommand)]
pub enum LowTokenCommand {
    New(LowTokenNew),
    List(LowTokenList),
    Revoke(LowTokenRevoke),
}

/// Makes a token and prints it, once
///
/// Only its SHA-256 is kept, so it cannot be shown again.
#[derive(Debug, Args)]
pub struct LowTokenNew {
    /// Allow fetching and listing files (with none of the four options: everything)
    #[arg(long)]
    pub read: bool,
    /// Allow sending files, which replace others of their names
    #[arg(long)]
    pub write: bool,
    /// Allow listing files: names, sizes, times
    #[arg(long)]
    pub list: bool,
    /// Allow removing files, as `push --delete` and `pull --move` do
    #[arg(long)]
    pub delete: bool,
    /// The served directory that it opens, or `null:`; without it the one that was served so far
    #[arg(long = "for", value_name = "DIR")]
    pub served: Option<PathBuf>,
    /// Directory below the served one that it is limited to, which must exist
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// How long it is good for, like 12h or 7d; without it for ever
    #[arg(long, value_name = "TIME")]
    pub expires: Option<Period>,
    /// Good for one transfer, which may resume
    #[arg(long)]
    pub single_use: bool,
    /// A note that `haul token list` shows
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub label: String,
    /// Print a whole URL with this host name
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// The port in the printed URL: that of the `haul serve` which it is for
    #[arg(long, value_name = "N", requires = "host", default_value_t = PORT_DEFAULT)]
    pub port: u16,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: LowState,
}

/// Lists the tokens: id, rights, root, expiry, status
#[derive(Debug, Args)]
pub struct LowTokenList {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: LowState,
}

/// Revokes a token: it is refused from now on, and its sessions end
#[derive(Debug, Args)]
pub struct LowTokenRevoke {
    /// The id that `haul token list` shows, or its first digits
    #[arg(value_name = "ID")]
    pub id: String,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: LowState,
}

impl LowTokenNew {
    /// Checks the words of `haul token new`; which directory is served is not known yet.
    ///
    /// # Errors
    /// If the root is no directory below the server's, or the time to expire is now.
    pub fn checked(&self) -> Result<NewToken, Problem> {
        if self.expires.is_some_and(|period| period.0.is_zero()) {
            let (what, needs) = ("cannot make a token that has expired", "a time to come");
            return Err(usage_problem(what, needs, "--expires 0", "like --expires 12h, or 7d"));
        }
        let mut new = NewToken::new(ServedRoot::Unknown, self.rights());
        new.root = checked_root(self.root.as_deref().unwrap_or(Path::new("")))?;
        new.valid_for = self.expires.map(|period| period.0);
        new.single_use = self.single_use;
        new.label.clone_from(&self.label);
        Ok(new)
    }
}

impl LowTokenNew {
    fn rights(&self) -> Rights {
        let (read, list) = (self.read, self.list || self.read);
        let named = Rights { read, write: self.write, list, delete: self.delete };
        if named == Rights::NONE { Rights::ALL } else { named }
    }
}

/// The root without `.` and doubled slashes.
fn checked_root(root: &Path) -> Result<PathBuf, Problem> {
    let below = |part: &Component| matches!(part, Component::Normal(_) | Component::CurDir);
    if let Some(odd) = root.components().find(|part| !below(part)) {
        return Err(usage_problem(
            &format!("cannot make a token for {}", root.display()),
            "a directory below the server's root, written from there",
            &format!("{:?} in it", odd.as_os_str()),
            "name it like --root incoming/2025",
        ));
    }
    if root.to_str().is_none() {
        let (what, found) = (format!("cannot make a token for {}", root.display()), "another name");
        return Err(usage_problem(&what, "a name that is UTF-8 text", found, "rename it"));
    }
    Ok(root.components().filter(|part| matches!(part, Component::Normal(_))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_stays_below_the_servers() {
        assert_eq!(checked_root(Path::new("./a//b/")), Ok("a/b".into()));
        assert_eq!(checked_root(Path::new("")), Ok(PathBuf::new()));
        for bad in ["/a", "..", "a/../.."] {
            assert!(checked_root(Path::new(bad)).is_err(), "{bad}");
        }
        let odd = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"a/\xff");
        assert!(checked_root(Path::new(odd)).is_err());
    }
}
