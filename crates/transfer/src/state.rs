//! The server's state directory: its key, its certificate, and the tokens that it accepts.
//!
//! Mode 0700; files are replaced whole, so a reader never sees half of one. Secrets are kept as
//! SHA-256 only, but for the token that `haul serve` prints again at each start.

use crate::{
    error::problem,
    events::Problem,
    token::{Token, fingerprint_of, hex, random_bytes, same_secret},
};
use haul_protocol::wire;
use rustix::fs::{FlockOperation, Mode};
use serde::{Deserialize, Serialize};
use std::{
    fs::{DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

/// What a new token shall allow.
#[derive(Clone, Debug)]
pub struct NewToken {
    pub rights: Rights,
    /// Below the server's root; empty: all of it.
    pub root: PathBuf,
    pub valid_for: Option<Duration>,
    /// Good for one transfer, which may resume until it is complete.
    pub single_use: bool,
    pub label: String,
}

/// A token as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The first digits of the secret's hash: names the token in lists and logs.
    pub id: String,
    secret_hash: String,
    /// Only for the token that `haul serve` prints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    pub rights: Rights,
    pub root: PathBuf,
    pub label: String,
    /// Seconds since 1970.
    pub created_s: u64,
    pub expires_s: Option<u64>,
    pub single_use: bool,
    /// What a single-use token was first shown for; the same may go on until it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_for: Option<String>,
    /// A single-use token whose transfer is complete.
    #[serde(default)]
    used_up: bool,
    pub revoked: bool,
}

impl TokenRecord {
    /// In a word: `valid`, `expired`, `used` or `revoked`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        if self.revoked {
            "revoked"
        } else if self.expires_s.is_some_and(|end| end <= now_s()) {
            "expired"
        } else if self.used_up {
            "used"
        } else {
            "valid"
        }
    }
}

/// What a token that was shown allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub single_use: bool,
    pub token_id: String,
    pub rights: Rights,
    pub root: PathBuf,
}

/// The server's key pair and its certificate, self-signed.
#[derive(Clone)]
pub struct Identity {
    pub certificate_der: Vec<u8>,
    pub key_der: Vec<u8>,
}

impl Identity {
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 16] {
        fingerprint_of(&self.certificate_der)
    }
}

/// The directory, created when it is missing.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// # Errors
    /// If it cannot be made or is open to other users.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let fail = |error: &io::Error| state_problem("open the state directory", path, error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| fail(&e))?;
        let metadata = std::fs::metadata(path).map_err(|e| fail(&e))?;
        let mode = std::os::unix::fs::MetadataExt::mode(&metadata);
        if mode & 0o077 != 0 {
            let path = path.display();
            return Err(problem(
                &format!("the state directory {path} is open to others"),
                "mode 0700, for it holds the server's key",
                &format!("mode {:04o}", mode & 0o7777),
                &format!("chmod 700 {path}, or set HAUL_STATE to another directory"),
            ));
        }
        Ok(Self { path: path.to_owned() })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The server's identity, made at the first call.
    ///
    /// # Errors
    /// If the files cannot be read or written.
    pub fn identity(&self) -> Result<Identity, Problem> {
        let _lock = self.lock()?;
        let (certificate, key) = (self.path.join("certificate.der"), self.path.join("key.der"));
        let fail = |error: &io::Error| state_problem("read the server's key", &key, error);
        match (std::fs::read(&certificate), std::fs::read(&key)) {
            (Ok(certificate_der), Ok(key_der)) => Ok(Identity { certificate_der, key_der }),
            (_, Err(e)) | (Err(e), _) if e.kind() != io::ErrorKind::NotFound => Err(fail(&e)),
            _ => {
                let made = rcgen::generate_simple_self_signed(["haul".to_owned()])
                    .map_err(|e| fail(&io::Error::other(e)))?;
                let identity = Identity {
                    certificate_der: made.cert.der().to_vec(),
                    key_der: made.signing_key.serialize_der(),
                };
                self.replace("key.der", &identity.key_der)?;
                self.replace("certificate.der", &identity.certificate_der)?;
                Ok(identity)
            }
        }
    }

    /// Makes a token and remembers what it allows.
    ///
    /// # Errors
    /// If the state directory cannot be written.
    pub fn new_token(&self, new: &NewToken) -> Result<(Token, TokenRecord), Problem> {
        let token = self.generate()?;
        let record = record_of(&token, new, false);
        self.change_tokens(|tokens| tokens.push(record.clone()))?;
        Ok((token, record))
    }

    /// The token that `haul serve` prints for this root: the same at each start, so that clients
    /// resume with the URL they have.
    ///
    /// # Errors
    /// If the state directory cannot be read or written.
    pub fn serve_token(&self, label: &str, rights: Rights) -> Result<Token, Problem> {
        let fresh = self.generate()?;
        let new = NewToken {
            rights,
            root: PathBuf::new(),
            valid_for: None,
            single_use: false,
            label: label.to_owned(),
        };
        let fingerprint = fresh.fingerprint;
        self.change_tokens(|tokens| {
            let same = |old: &&TokenRecord| {
                old.label == label && old.rights == rights && old.status() == "valid"
            };
            let kept = tokens.iter().find(same).and_then(|old| {
                let secret = data_encoding::HEXLOWER.decode(old.secret.as_ref()?.as_bytes());
                secret.ok()?.try_into().ok()
            });
            if let Some(secret) = kept {
                return Token { secret, fingerprint };
            }
            tokens.push(record_of(&fresh, &new, true));
            fresh
        })
    }

    /// All tokens, oldest first.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, Problem> {
        let path = self.path.join("tokens.json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(state_problem("read the tokens", &path, &error)),
        };
        serde_json::from_slice(&text)
            .map_err(|error| state_problem("read the tokens", &path, &error.into()))
    }

    /// Revokes the tokens whose id begins with `id`; returns those.
    ///
    /// # Errors
    /// If the list cannot be written, or no such token or more than one is there.
    pub fn revoke(&self, id: &str) -> Result<TokenRecord, Problem> {
        self.change_tokens(|tokens| {
            let mut matching: Vec<&mut TokenRecord> =
                tokens.iter_mut().filter(|t| !id.is_empty() && t.id.starts_with(id)).collect();
            match matching.as_mut_slice() {
                [one] => {
                    one.revoked = true;
                    Ok(one.clone())
                }
                others => Err(problem(
                    &format!("revoke the token {id}"),
                    "the id of one token",
                    &format!("{} tokens whose id begins so", others.len()),
                    "`haul token list` shows the ids",
                )),
            }
        })?
    }

    /// Checks a secret that a client showed, for what it asks. `purpose` is that in a hash: a
    /// single-use token is bound to the first.
    ///
    /// # Errors
    /// The fault to answer with: unknown, expired, used, revoked, or without the right.
    pub fn authorize(
        &self,
        secret: &[u8],
        purpose: Option<&[u8]>,
        direction: wire::Direction,
    ) -> Result<Grant, wire::Fault> {
        let record = self.known(secret, purpose, direction)?;
        if let Some(purpose) = purpose.map(hex)
            && record.single_use
            && record.used_for.is_none()
        {
            let claimed = self
                .change_tokens(|tokens| {
                    let mut same = tokens.iter_mut().filter(|token| token.id == record.id);
                    same.all(|token| {
                        // Under the lock: another may have been quicker.
                        *token.used_for.get_or_insert_with(|| purpose.clone()) == purpose
                    })
                })
                .map_err(|problem| state_fault(&problem))?;
            if !claimed {
                return Err(used());
            }
        }
        Ok(grant_of(&record))
    }

    /// The same for what moves no file: a single-use token stays as it is.
    ///
    /// # Errors
    /// As [`Self::authorize`].
    pub fn look_at(&self, secret: &[u8], direction: wire::Direction) -> Result<Grant, wire::Fault> {
        self.known(secret, None, direction).map(|record| grant_of(&record))
    }

    /// The token of this secret, when it allows the direction.
    fn known(
        &self,
        secret: &[u8],
        purpose: Option<&[u8]>,
        direction: wire::Direction,
    ) -> Result<TokenRecord, wire::Fault> {
        let hash = hex(&Token::secret_hash(secret));
        let tokens = self.tokens().map_err(|problem| state_fault(&problem))?;
        let mut known =
            tokens.into_iter().filter(|t| same_secret(t.secret_hash.as_bytes(), hash.as_bytes()));
        let Some(record) = known.next() else {
            let hint = "copy the whole URL that `haul serve` or `haul token new` printed";
            let what = "the server does not know the token";
            return Err(token_fault(wire::FaultCode::TokenWrong, what, hint));
        };
        match record.status() {
            "revoked" => {
                let code = wire::FaultCode::TokenRevoked;
                return Err(token_fault(code, "the token was revoked", ASK_AGAIN));
            }
            "expired" => {
                let code = wire::FaultCode::TokenExpired;
                return Err(token_fault(code, "the token has expired", ASK_AGAIN));
            }
            _ => {}
        }
        let used_for = record.used_for.as_ref().zip(purpose);
        if record.used_up || used_for.is_some_and(|(used, purpose)| *used != hex(purpose)) {
            return Err(used());
        }
        let (allowed, right) = match direction {
            wire::Direction::Push => (record.rights.write, "write"),
            _ => (record.rights.read, "read"),
        };
        if !allowed {
            let what = format!("the token has no right to {right} here");
            let hint = format!("`haul token new --{right}` on the server makes one that has");
            return Err(token_fault(wire::FaultCode::RightMissing, &what, &hint));
        }
        Ok(record)
    }

    /// A single-use token's transfer is complete.
    ///
    /// # Errors
    /// If the list cannot be written.
    pub fn use_up(&self, id: &str) -> Result<(), Problem> {
        self.change_tokens(|tokens| {
            for token in tokens.iter_mut().filter(|token| token.id == id) {
                token.used_up = true;
            }
        })
    }

    fn generate(&self) -> Result<Token, Problem> {
        let fingerprint = self.identity()?.fingerprint();
        let secret =
            random_bytes().map_err(|error| state_problem("make a token in", &self.path, &error))?;
        Ok(Token { secret, fingerprint })
    }

    fn lock(&self) -> Result<File, Problem> {
        let path = self.path.join("lock");
        let fail = |error: &io::Error| state_problem("lock the state directory", &path, error);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| fail(&error))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| fail(&e.into()))?;
        Ok(file)
    }

    fn change_tokens<T>(
        &self,
        change: impl FnOnce(&mut Vec<TokenRecord>) -> T,
    ) -> Result<T, Problem> {
        let _lock = self.lock()?;
        let mut tokens = self.tokens()?;
        let result = change(&mut tokens);
        let text = serde_json::to_vec_pretty(&tokens).expect("records are plain data");
        self.replace("tokens.json", &text)?;
        Ok(result)
    }

    /// Replaces a file whole: written, synced, renamed.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Problem> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}.new"));
        let write = || -> io::Result<()> {
            let mut file =
                File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600))?;
            std::fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|error| state_problem("write", &path, &error))
    }
}

fn record_of(token: &Token, new: &NewToken, keep_secret: bool) -> TokenRecord {
    let secret_hash = hex(&Token::secret_hash(&token.secret));
    TokenRecord {
        id: secret_hash[..8].to_owned(),
        secret_hash,
        secret: keep_secret.then(|| hex(&token.secret)),
        rights: new.rights,
        root: new.root.clone(),
        label: new.label.clone(),
        created_s: now_s(),
        expires_s: new.valid_for.map(|valid| now_s().saturating_add(valid.as_secs())),
        single_use: new.single_use,
        used_for: None,
        used_up: false,
        revoked: false,
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn state_problem(what: &str, path: &Path, error: &io::Error) -> Problem {
    problem(
        &format!("cannot {what} {}", path.display()),
        "a state directory that this user may write",
        &error.to_string(),
        "set HAUL_STATE to another directory, or mend this one",
    )
}

const ASK_AGAIN: &str = "ask for a new one (`haul token new` on the server)";

fn token_fault(code: wire::FaultCode, what: &str, hint: &str) -> wire::Fault {
    wire::Fault::new(code, wire::Side::Unknown, what).hint(hint)
}

fn used() -> wire::Fault {
    let what = "the token was for one transfer and is used";
    token_fault(wire::FaultCode::TokenUsed, what, ASK_AGAIN)
}

fn grant_of(record: &TokenRecord) -> Grant {
    Grant {
        single_use: record.single_use,
        token_id: record.id.clone(),
        rights: record.rights,
        root: record.root.clone(),
    }
}

fn state_fault(problem: &Problem) -> wire::Fault {
    wire::Fault::new(wire::FaultCode::IoFailed, wire::Side::Unknown, problem.what.clone())
        .found(problem.found.clone())
        .hint("see the server's own messages")
}

/// `$HAUL_STATE`, else `$XDG_STATE_HOME/haul`, else `~/.local/state/haul`.
#[must_use]
pub fn default_state_directory() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HAUL_STATE")
        .or_else(|| set("XDG_STATE_HOME").map(|base| base.join("haul")))
        .or_else(|| set("HOME").map(|home| home.join(".local/state/haul")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/haul"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Direction, FaultCode};

    fn new(rights: Rights) -> NewToken {
        NewToken {
            rights,
            root: "sub".into(),
            valid_for: None,
            single_use: false,
            label: "test".into(),
        }
    }

    const BOTH: Rights = Rights { read: true, write: true };

    #[test]
    fn a_token_opens_what_it_was_made_for_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("state")).unwrap();
        let read_only = Rights { read: true, write: false };
        let (token, record) = state.new_token(&new(read_only)).unwrap();
        let grant = state.authorize(&token.secret, Some(&[1; 16]), Direction::Pull).unwrap();
        assert_eq!((grant.root, grant.rights), ("sub".into(), read_only));
        let code = |result: Result<Grant, wire::Fault>| result.unwrap_err().code();
        let ask =
            |secret: &[u8], direction| code(state.authorize(secret, Some(&[1; 16]), direction));
        assert_eq!(ask(&token.secret, Direction::Push), FaultCode::RightMissing);
        assert_eq!(ask(&[0; 16], Direction::Pull), FaultCode::TokenWrong);
        state.revoke(&record.id).unwrap();
        assert_eq!(ask(&token.secret, Direction::Pull), FaultCode::TokenRevoked);
        assert!(state.revoke("").is_err());
    }

    #[test]
    fn a_single_use_token_serves_one_transfer_which_may_resume() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("state")).unwrap();
        let once = NewToken { single_use: true, ..new(BOTH) };
        let (token, record) = state.new_token(&once).unwrap();
        let use_for =
            |purpose| state.authorize(&token.secret, Some(&[purpose; 32]), Direction::Push);
        assert!(use_for(1).is_ok());
        assert_eq!(use_for(2).unwrap_err().code(), FaultCode::TokenUsed);
        assert!(use_for(1).is_ok());
        state.use_up(&record.id).unwrap();
        assert_eq!(use_for(1).unwrap_err().code(), FaultCode::TokenUsed);
    }

    #[test]
    fn an_expired_token_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::open(&directory.path().join("state")).unwrap();
        let brief = NewToken { valid_for: Some(Duration::ZERO), ..new(BOTH) };
        let (token, _) = state.new_token(&brief).unwrap();
        let refused = state.authorize(&token.secret, Some(&[1; 16]), Direction::Push).unwrap_err();
        assert_eq!(refused.code(), FaultCode::TokenExpired);
    }

    #[test]
    fn a_restarted_server_has_the_same_key_and_prints_the_same_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let state = StateDirectory::open(&path).unwrap();
        let first = state.serve_token("serve /data", BOTH).unwrap();
        let again = StateDirectory::open(&path).unwrap().serve_token("serve /data", BOTH).unwrap();
        assert_eq!(first, again);
        let other = state.serve_token("serve /other", BOTH).unwrap();
        assert_ne!(first.secret, other.secret);
        let text = std::fs::read_to_string(path.join("tokens.json")).unwrap();
        let (listed, _) = state.new_token(&new(BOTH)).unwrap();
        assert!(!text.contains(&hex(&listed.secret)));
    }

    #[test]
    fn a_state_directory_that_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        StateDirectory::open(&path).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        let refused = StateDirectory::open(&path).unwrap_err();
        assert!(refused.to_string().contains("0755"), "{refused}");
    }
}
