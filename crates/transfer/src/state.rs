//! State directory of the server: its key, its certificate, and the tokens that it accepts.
//!
//! Mode 0700; files are replaced whole, so a reader never sees half of one. Secrets are kept as
//! SHA-256 only, but for the token that `haul serve` prints again at each start.

mod seen_tokens;
mod token_record;

use crate::{
    bytes::{hex, random_bytes},
    error::problem,
    problem::Problem,
    rights::{Need, Rights},
    served_root::{Belongs, ServedRoot},
    token::{Token, fingerprint_of, same_secret},
};
use haul_protocol::message;
use rustix::fs::{FlockOperation, Mode};
use std::{
    fs::{DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};
use token_record::{StoredToken, now_s};

pub(crate) use seen_tokens::SeenTokens;
pub use token_record::TokenRecord;

/// The rights and limits of a new token.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewToken {
    /// Rights of its bearer.
    pub rights: Rights,
    /// The served root: the token opens no other.
    pub served: ServedRoot,
    /// Path below the served root that the token opens; empty for all of it.
    pub root: PathBuf,
    /// Time until the token expires; `None` for never.
    pub valid_for: Option<Duration>,
    /// Whether the token is good for one transfer only, which may resume until it is complete.
    pub single_use: bool,
    /// Words that tell the token's user what it is for.
    pub label: String,
}

impl NewToken {
    /// A token for all of this root, with these rights, that never expires.
    #[must_use]
    pub fn new(served: ServedRoot, rights: Rights) -> Self {
        Self {
            rights,
            served,
            root: PathBuf::new(),
            valid_for: None,
            single_use: false,
            label: String::new(),
        }
    }
}

/// The grant of a token that was shown.
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
    /// The certificate, as DER.
    pub certificate_der: Vec<u8>,
    /// The private key, as PKCS#8 in DER.
    pub key_der: Vec<u8>,
}

impl Identity {
    /// The first 128 bits of the SHA-256 of the certificate, which tokens name.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 16] {
        fingerprint_of(&self.certificate_der)
    }
}

/// State directory, created when it is missing.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Opens a state directory, which is made when it is missing.
    ///
    /// # Errors
    /// If it cannot be made or is open to other users.
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let fail = |error: &io::Error| state_problem("open the state directory", path, error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| fail(&e))?;
        let metadata = std::fs::metadata(path).map_err(|e| fail(&e))?;
        let mode = metadata.mode();
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

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to serve the server's own key and tokens.
    ///
    /// # Errors
    /// If what is served is this directory, or lies in it.
    pub(crate) fn check_not_served(&self, served: &Path) -> Result<(), Problem> {
        let (Ok(here), Ok(served)) = (self.path.canonicalize(), served.canonicalize()) else {
            return Ok(());
        };
        if !served.starts_with(&here) {
            return Ok(());
        }
        let hint = "serve another directory, or keep the state in another by --state DIR";
        Err(problem(
            &format!("cannot serve {}", served.display()),
            "a directory outside of the server's own state, which holds its key",
            &format!("the state directory {}", here.display()),
            hint,
        ))
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
        let stored = stored(&token, new, false);
        let record = stored.record();
        self.change_tokens(|tokens| tokens.push(stored))?;
        Ok((token, record))
    }

    /// Token that `haul serve` prints for this root: the same at each start, so that clients resume
    /// with the URL they have. Tokens of an older version are bound to their root here.
    ///
    /// # Errors
    /// If the state directory cannot be read or written.
    pub fn serve_token(&self, served: &ServedRoot, rights: Rights) -> Result<Token, Problem> {
        let fresh = self.generate()?;
        let new = NewToken {
            rights,
            served: served.clone(),
            root: PathBuf::new(),
            valid_for: None,
            single_use: false,
            label: format!("{SERVE_LABEL}{}", served.name().unwrap_or_default()),
        };
        let fingerprint = fresh.fingerprint;
        self.change_tokens(|tokens| {
            bind_older(tokens, served);
            let same = |old: &&StoredToken| {
                old.served().belongs_to(served) == Belongs::Here
                    && old.rights == rights
                    && old.record().status() == "valid"
            };
            let kept = tokens.iter().filter(same).find_map(|old| {
                let secret = data_encoding::HEXLOWER.decode(old.secret.as_ref()?.as_bytes());
                secret.ok()?.try_into().ok()
            });
            if let Some(secret) = kept {
                return Token { secret, fingerprint };
            }
            tokens.push(stored(&fresh, &new, true));
            fresh
        })
    }

    /// Roots that were served with this state directory, each path once.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn served_roots(&self) -> Result<Vec<ServedRoot>, Problem> {
        let mut tokens = self.stored_tokens()?;
        name_older(&mut tokens);
        let mut roots: Vec<ServedRoot> = Vec::new();
        for token in tokens.iter().filter(|token| token.secret.is_some()) {
            if !roots.iter().any(|root| root.name() == token.served().name()) {
                roots.push(token.served().clone());
            }
        }
        Ok(roots)
    }

    /// All tokens, oldest first.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, Problem> {
        Ok(self.stored_tokens()?.iter().map(StoredToken::record).collect())
    }

    /// The tokens of a list's text.
    pub(crate) fn tokens_in(&self, text: &[u8]) -> Result<Vec<TokenRecord>, Problem> {
        Ok(self.stored_tokens_in(text)?.iter().map(StoredToken::record).collect())
    }

    fn tokens_path(&self) -> PathBuf {
        self.path.join("tokens.json")
    }

    fn stored_tokens(&self) -> Result<Vec<StoredToken>, Problem> {
        let path = self.tokens_path();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(state_problem("read the tokens", &path, &error)),
        };
        self.stored_tokens_in(&text)
    }

    fn stored_tokens_in(&self, text: &[u8]) -> Result<Vec<StoredToken>, Problem> {
        serde_json::from_slice(text)
            .map_err(|error| state_problem("read the tokens", &self.tokens_path(), &error.into()))
    }

    /// Revokes the token whose id begins with `id`, and returns it.
    ///
    /// # Errors
    /// If the list cannot be written, or no such token or more than one is there.
    pub fn revoke(&self, id: &str) -> Result<TokenRecord, Problem> {
        self.change_tokens(|tokens| {
            let mut matching: Vec<&mut StoredToken> =
                tokens.iter_mut().filter(|t| !id.is_empty() && t.id.starts_with(id)).collect();
            match matching.as_mut_slice() {
                [one] => {
                    one.revoked = true;
                    Ok(one.record())
                }
                others => Err(problem(
                    &format!("cannot revoke the token {id}"),
                    "the id of one token",
                    &format!("{} tokens whose id begins so", others.len()),
                    "`haul token list` shows the ids",
                )),
            }
        })?
    }

    /// Checks a secret that a client showed to who serves `served`, for the rights that it needs.
    /// `purpose` is what it asks for in a hash: a single-use token is bound to the first.
    ///
    /// # Errors
    /// The fault to answer with: unknown, expired, used, revoked, for something else that is
    /// served, or without the right.
    pub(crate) fn authorize(
        &self,
        secret: &[u8],
        served: &ServedRoot,
        purpose: Option<&[u8]>,
        needs: &[Need],
    ) -> Result<Grant, message::Fault> {
        let record = self.known(secret, served, purpose, needs)?;
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

    /// Authorizes a request that moves no file: a single-use token stays as it is.
    ///
    /// # Errors
    /// As [`Self::authorize`].
    pub(crate) fn look_at(
        &self,
        secret: &[u8],
        served: &ServedRoot,
        needs: &[Need],
    ) -> Result<Grant, message::Fault> {
        self.known(secret, served, None, needs).map(|record| grant_of(&record))
    }

    /// The token of this secret, when it is for what is served and has these rights.
    fn known(
        &self,
        secret: &[u8],
        served: &ServedRoot,
        purpose: Option<&[u8]>,
        needs: &[Need],
    ) -> Result<StoredToken, message::Fault> {
        let hash = hex(&Token::secret_hash(secret));
        let tokens = self.stored_tokens().map_err(|problem| state_fault(&problem))?;
        // All are compared before any is looked at: the time does not tell which one it was.
        let is_it =
            |token: &StoredToken| same_secret(token.secret_hash.as_bytes(), hash.as_bytes());
        let known: Vec<StoredToken> = tokens.into_iter().filter(is_it).collect();
        let Some(record) = known.into_iter().next() else { return Err(unknown()) };
        check_good(&record.record())?;
        check_root(&record, served)?;
        let used_for = record.used_for.as_ref().zip(purpose);
        if record.used_up || used_for.is_some_and(|(used, purpose)| *used != hex(purpose)) {
            return Err(used());
        }
        if let Some(missing) = needs.iter().find(|need| !record.rights.allows(need.right)) {
            return Err(missing.fault());
        }
        Ok(record)
    }

    /// Notes that the transfer of a single-use token is complete.
    ///
    /// # Errors
    /// If the list cannot be written.
    pub(crate) fn use_up(&self, id: &str) -> Result<(), Problem> {
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
        self.give_to_owner(&file).map_err(|error| fail(&error))?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|e| fail(&e.into()))?;
        Ok(file)
    }

    fn change_tokens<T>(
        &self,
        change: impl FnOnce(&mut Vec<StoredToken>) -> T,
    ) -> Result<T, Problem> {
        let _lock = self.lock()?;
        let mut tokens = self.stored_tokens()?;
        let result = change(&mut tokens);
        let text = serde_json::to_vec_pretty(&tokens).expect("records are plain data");
        self.replace("tokens.json", &text)?;
        Ok(result)
    }

    /// Gives a file to the owner of the directory: what root writes there, as `haul token new`, a
    /// service that runs as another user has to read.
    fn give_to_owner(&self, file: &File) -> io::Result<()> {
        let (directory, made) = (std::fs::metadata(&self.path)?, file.metadata()?);
        if made.uid() != directory.uid() {
            std::os::unix::fs::fchown(file, Some(directory.uid()), Some(directory.gid()))?;
        }
        Ok(())
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
            self.give_to_owner(&file)?;
            std::fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|error| state_problem("write", &path, &error))
    }
}

fn stored(token: &Token, new: &NewToken, keep_secret: bool) -> StoredToken {
    let secret_hash = hex(&Token::secret_hash(&token.secret));
    StoredToken {
        id: secret_hash[..8].to_owned(),
        secret_hash,
        secret: keep_secret.then(|| hex(&token.secret)),
        rights: new.rights,
        served: Some(new.served.clone()),
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

fn state_problem(what: &str, path: &Path, error: &io::Error) -> Problem {
    problem(
        &format!("cannot {what} {}", path.display()),
        "a state directory that this user may write",
        &error.to_string(),
        "set HAUL_STATE to another directory, or mend this one",
    )
}

const ASK_AGAIN: &str = "ask for a new one (`haul token new` on the server)";

fn token_fault(code: message::FaultCode, what: &str, hint: &str) -> message::Fault {
    message::Fault::new(code, message::Side::Unknown, what).hint(hint)
}

fn unknown() -> message::Fault {
    let hint = "copy the whole URL that `haul serve` or `haul token new` printed";
    token_fault(message::FaultCode::TokenWrong, "the server does not know the token", hint)
}

/// Fails for a token that was revoked, or whose time is over.
fn check_good(record: &TokenRecord) -> Result<(), message::Fault> {
    let (code, what) = match record.status() {
        "revoked" => (message::FaultCode::TokenRevoked, "the token was revoked"),
        "expired" => (message::FaultCode::TokenExpired, "the token has expired"),
        _ => return Ok(()),
    };
    Err(token_fault(code, what, ASK_AGAIN))
}

/// Fails for a token that is not for what is served. The client is not told what that is.
fn check_root(record: &StoredToken, served: &ServedRoot) -> Result<(), message::Fault> {
    let (what, hint) = match record.served().belongs_to(served) {
        Belongs::Here => return Ok(()),
        Belongs::Elsewhere => (
            "the token is for another directory of that server",
            "use the URL that is for this one",
        ),
        Belongs::Replaced => (
            "the token is for a directory that another one has replaced on the server",
            "ask for a new URL: `haul serve` there prints it at its start",
        ),
        Belongs::Nowhere => (
            "the token is of an older version, which did not say for which directory it is",
            ASK_AGAIN,
        ),
    };
    Err(token_fault(message::FaultCode::RightMissing, what, hint))
}

/// Begin of the label that an older version gave the token that it printed for a directory.
const SERVE_LABEL: &str = "serve ";

/// Gives tokens of an older version their roots: what its server printed them for, and for others
/// the one directory that was served until then. With several nobody knows which, and they open
/// nothing.
fn name_older(tokens: &mut [StoredToken]) {
    let printed = |token: &StoredToken| {
        let name = token.secret.as_ref().and_then(|_| token.label.strip_prefix(SERVE_LABEL))?;
        Some(match name {
            "null:" => ServedRoot::Null,
            path => ServedRoot::Directory { path: path.to_owned(), inode: None },
        })
    };
    let older = || tokens.iter().filter(|token| token.served.is_none());
    let mut roots = older().filter_map(printed);
    let only = match roots.next() {
        Some(first) if roots.all(|root| root == first) => first,
        _ => ServedRoot::Unknown,
    };
    for token in tokens.iter_mut().filter(|token| token.served.is_none()) {
        token.served = Some(printed(token).unwrap_or_else(|| only.clone()));
    }
}

/// Gives tokens of an older version their roots, and those for `served` its inode: what has its
/// path now is what they have opened so far.
fn bind_older(tokens: &mut [StoredToken], served: &ServedRoot) {
    name_older(tokens);
    for token in tokens {
        if let Some(ServedRoot::Directory { path, inode: None }) = &token.served
            && Some(path.as_str()) == served.name()
        {
            token.served = Some(served.clone());
        }
    }
}

fn used() -> message::Fault {
    let what = "the token was for one transfer and is used";
    token_fault(message::FaultCode::TokenUsed, what, ASK_AGAIN)
}

fn grant_of(record: &StoredToken) -> Grant {
    Grant {
        single_use: record.single_use,
        token_id: record.id.clone(),
        rights: record.rights,
        root: record.root.clone(),
    }
}

/// Fault of a state directory that fails; where it lies is the operator's, and not told to clients.
fn state_fault(_problem: &Problem) -> message::Fault {
    let what = "the server cannot read or write its own list of tokens";
    message::Fault::new(message::FaultCode::IoFailed, message::Side::Unknown, what)
        .hint("`haul token list` on the server says why")
}

/// Directories that may hold haul's state for this user, whatever was said: no transfer reads or
/// writes them. One without a key is some other directory of that name.
#[must_use]
pub fn usual_state_directories() -> Vec<PathBuf> {
    let at = |name, below| std::env::var_os(name).map(|base| PathBuf::from(base).join(below));
    let named =
        [at("HAUL_STATE", ""), at("XDG_STATE_HOME", "haul"), at("HOME", ".local/state/haul")];
    let named = named.into_iter().flatten().filter(|path| path.is_absolute());
    let all = named.chain([PathBuf::from("/var/lib/haul")]);
    all.filter(|path| path.join("key.der").exists()).collect()
}

/// Default state directory: `$HAUL_STATE`, else `$XDG_STATE_HOME/haul`, else `~/.local/state/haul`.
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
    use crate::rights::Right;
    use message::FaultCode;

    #[test]
    fn the_servers_own_key_is_nothing_to_serve() {
        let place = Fixture::new();
        let at = |name: &str| place.place.path().join(name);
        std::fs::create_dir(at("state/deep")).unwrap();
        std::os::unix::fs::symlink(at("state"), at("link")).unwrap();
        for refused in ["state", "state/deep", "link", "a/../state"] {
            let problem = place.state.check_not_served(&at(refused)).unwrap_err();
            assert!(problem.needs.contains("holds its key"), "{refused}: {problem}");
        }
        for served in ["a", ".", "missing"] {
            assert_eq!(place.state.check_not_served(&at(served)), Ok(()), "{served}");
        }
    }

    /// A service that runs as a user of its own could not read its tokens once root had made one.
    #[test]
    fn what_root_writes_belongs_to_the_owner_of_the_directory() {
        const OWNER: u32 = 7117;
        let place = Fixture::new();
        let path = place.state.path().to_owned();
        if std::os::unix::fs::chown(&path, Some(OWNER), Some(OWNER)).is_err() {
            return haul_testkit::skip::skip("root", "another user");
        }
        place.state.new_token(&place.token(Rights::READ_ONLY)).unwrap();
        for name in ["tokens.json", "lock", "key.der", "certificate.der"] {
            let made = std::fs::metadata(path.join(name)).unwrap();
            assert_eq!((made.uid(), made.gid()), (OWNER, OWNER), "{name}");
            assert_eq!(made.mode() & 0o777, 0o600, "{name}");
        }
    }

    const READ: &[Need] = &[Need::new(Right::Read)];
    const WRITE: &[Need] = &[Need::new(Right::Write)];

    /// A place with a state directory and two directories that can be served.
    struct Fixture {
        place: tempfile::TempDir,
        state: StateDirectory,
    }

    impl Fixture {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            for name in ["a", "b"] {
                std::fs::create_dir(place.path().join(name)).unwrap();
            }
            let state = StateDirectory::open(&place.path().join("state")).unwrap();
            Self { place, state }
        }

        fn served(&self, name: &str) -> ServedRoot {
            match name {
                "null:" => ServedRoot::Null,
                name => ServedRoot::at(&self.place.path().join(name)).unwrap(),
            }
        }

        fn token(&self, rights: Rights) -> NewToken {
            NewToken {
                rights,
                served: self.served("a"),
                root: "sub".into(),
                valid_for: None,
                single_use: false,
                label: "test".into(),
            }
        }

        fn ask(&self, secret: &[u8], purpose: u8, needs: &[Need]) -> Result<Grant, FaultCode> {
            let served = self.served("a");
            let asked = self.state.authorize(secret, &served, Some(&[purpose; 32]), needs);
            asked.map_err(|fault| fault.code)
        }

        /// Rewrites the list of tokens as an older version wrote it.
        fn make_older(&self) {
            let path = self.state.path().join("tokens.json");
            let text = std::fs::read(&path).unwrap();
            let mut tokens: Vec<serde_json::Map<String, serde_json::Value>> =
                serde_json::from_slice(&text).unwrap();
            tokens.iter_mut().for_each(|token| drop(token.remove("served").unwrap()));
            std::fs::write(&path, serde_json::to_vec(&tokens).unwrap()).unwrap();
        }
    }

    #[test]
    fn a_token_opens_what_it_was_made_for_and_nothing_else() {
        let fixture = Fixture::new();
        let read_only = Rights::READ_ONLY;
        let (token, record) = fixture.state.new_token(&fixture.token(read_only)).unwrap();
        let grant = fixture.ask(&token.secret, 1, READ).unwrap();
        assert_eq!((grant.root, grant.rights), ("sub".into(), read_only));
        let ask = |secret: &[u8], needs| fixture.ask(secret, 1, needs).unwrap_err();
        assert_eq!(ask(&token.secret, WRITE), FaultCode::RightMissing);
        assert_eq!(ask(&[0; 16], READ), FaultCode::TokenWrong);
        fixture.state.revoke(&record.id).unwrap();
        assert_eq!(ask(&token.secret, READ), FaultCode::TokenRevoked);
        assert!(fixture.state.revoke("").is_err());
    }

    /// Counted, as a clock tells too little: the first of the list, the last, one that nobody made,
    /// and one that is good for nothing any more.
    #[test]
    fn whoever_asks_is_compared_with_each_token_of_the_list_once() {
        use crate::token::COMPARISONS;
        let fixture = Fixture::new();
        let make = || fixture.state.new_token(&fixture.token(Rights::READ_ONLY)).unwrap();
        let made = [make(), make(), make(), make()];
        fixture.state.revoke(&made[1].1.id).unwrap();
        let unknown = [0; 16];
        let secrets = made.iter().map(|(token, _)| &token.secret).chain([&unknown]);
        let counts = secrets.map(|secret| {
            COMPARISONS.set(0);
            let answer = fixture.ask(secret, 1, READ);
            (answer.is_ok(), COMPARISONS.get())
        });
        let [good, bad] = [(true, 4), (false, 4)];
        assert_eq!(counts.collect::<Vec<_>>(), [good, bad, good, good, bad]);
    }

    /// Rule whatever one state directory knows: each token with each server that it may meet.
    #[test]
    fn no_token_opens_what_another_server_of_the_same_user_serves() {
        let fixture = Fixture::new();
        let roots = ["a", "b", "null:"];
        for name in roots {
            let served = fixture.served(name);
            let printed = fixture.state.serve_token(&served, Rights::ALL).unwrap();
            let new = NewToken { served, ..fixture.token(Rights::ALL) };
            let (made, _) = fixture.state.new_token(&new).unwrap();
            for (token, other) in [&printed, &made].into_iter().flat_map(|t| roots.map(|r| (t, r)))
            {
                for needs in [WRITE, READ] {
                    let (secret, served) = (&token.secret, fixture.served(other));
                    let asked = [
                        fixture.state.authorize(secret, &served, Some(&[1; 32]), needs),
                        fixture.state.look_at(secret, &served, needs),
                    ];
                    for asked in asked {
                        let Err(fault) = asked else {
                            assert_eq!(name, other);
                            continue;
                        };
                        assert_ne!(name, other, "{fault:?}");
                        assert_eq!(fault.code, FaultCode::RightMissing);
                        assert!(fault.what.contains("another directory of that server"));
                        let place = fixture.place.path().to_str().unwrap();
                        assert!(!format!("{fault:?}").contains(place), "it names a directory");
                    }
                }
            }
        }
    }

    #[test]
    fn a_directory_that_took_anothers_place_is_not_opened_by_its_tokens() {
        let fixture = Fixture::new();
        let before = fixture.state.serve_token(&fixture.served("a"), Rights::ALL).unwrap();
        std::fs::rename(fixture.place.path().join("a"), fixture.place.path().join("old")).unwrap();
        std::fs::rename(fixture.place.path().join("b"), fixture.place.path().join("a")).unwrap();
        let served = fixture.served("a");
        let fault = fixture.state.look_at(&before.secret, &served, READ).unwrap_err();
        assert!(fault.what.contains("replaced") && fault.hint.contains("new URL"), "{fault:?}");
        let now = fixture.state.serve_token(&served, Rights::ALL).unwrap();
        assert_ne!(before, now);
        assert!(fixture.ask(&now.secret, 1, READ).is_ok());
        assert_eq!(fixture.state.served_roots().unwrap().len(), 1);
    }

    #[test]
    fn tokens_of_an_older_version_are_bound_where_only_one_directory_was_served() {
        let fixture = Fixture::new();
        let printed = fixture.state.serve_token(&fixture.served("a"), Rights::ALL).unwrap();
        let (made, _) = fixture.state.new_token(&fixture.token(Rights::ALL)).unwrap();
        fixture.make_older();
        assert_eq!(fixture.ask(&made.secret, 1, READ), Err(FaultCode::RightMissing));
        // Another directory is served first: it gets none of them.
        let other = fixture.served("b");
        fixture.state.serve_token(&other, Rights::ALL).unwrap();
        assert_eq!(fixture.state.serve_token(&fixture.served("a"), Rights::ALL).unwrap(), printed);
        for token in [&printed, &made] {
            assert!(fixture.ask(&token.secret, 1, READ).is_ok());
            assert!(fixture.state.look_at(&token.secret, &other, READ).is_err());
        }
    }

    #[test]
    fn a_token_of_an_older_version_opens_nothing_where_several_directories_were_served() {
        let fixture = Fixture::new();
        let printed = ["a", "b", "a"].map(|name| {
            let token = fixture.state.serve_token(&fixture.served(name), Rights::ALL);
            token.unwrap()
        });
        let (made, _) = fixture.state.new_token(&fixture.token(Rights::ALL)).unwrap();
        fixture.make_older();
        for (name, printed) in ["a", "b"].into_iter().zip(printed) {
            let served = fixture.served(name);
            assert_eq!(fixture.state.serve_token(&served, Rights::ALL).unwrap(), printed);
            let fault = fixture.state.look_at(&made.secret, &served, READ).unwrap_err();
            assert!(fault.what.contains("older version"), "{fault:?}");
        }
    }

    #[test]
    fn a_single_use_token_serves_one_transfer_which_may_resume() {
        let fixture = Fixture::new();
        let once = NewToken { single_use: true, ..fixture.token(Rights::ALL) };
        let (token, record) = fixture.state.new_token(&once).unwrap();
        let use_for = |purpose| fixture.ask(&token.secret, purpose, WRITE);
        assert!(use_for(1).is_ok());
        assert_eq!(use_for(2).unwrap_err(), FaultCode::TokenUsed);
        assert!(use_for(1).is_ok());
        fixture.state.use_up(&record.id).unwrap();
        assert_eq!(use_for(1).unwrap_err(), FaultCode::TokenUsed);
    }

    #[test]
    fn an_expired_token_is_refused() {
        let fixture = Fixture::new();
        let brief = NewToken { valid_for: Some(Duration::ZERO), ..fixture.token(Rights::ALL) };
        let (token, _) = fixture.state.new_token(&brief).unwrap();
        let refused = fixture.ask(&token.secret, 1, WRITE).unwrap_err();
        assert_eq!(refused, FaultCode::TokenExpired);
    }

    #[test]
    fn a_restarted_server_has_the_same_key_and_prints_the_same_token() {
        let fixture = Fixture::new();
        let (path, a) = (fixture.state.path(), fixture.served("a"));
        let first = fixture.state.serve_token(&a, Rights::ALL).unwrap();
        let again =
            StateDirectory::open(path).unwrap().serve_token(&fixture.served("a"), Rights::ALL);
        assert_eq!(first, again.unwrap());
        let other = fixture.state.serve_token(&fixture.served("b"), Rights::ALL).unwrap();
        assert_ne!(first.secret, other.secret);
        let text = std::fs::read_to_string(path.join("tokens.json")).unwrap();
        assert!(text.contains(&hex(&first.secret)), "only the file keeps it");
        let told = format!("{:?}", fixture.state.tokens().unwrap());
        assert!(!told.contains(&hex(&first.secret)), "{told}");
        assert!(!told.contains(&hex(&Token::secret_hash(&first.secret))), "{told}");
        let (listed, _) = fixture.state.new_token(&fixture.token(Rights::ALL)).unwrap();
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
