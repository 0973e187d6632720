//! Paths of a request at the far end: the one directory to serve, and where each path lies in it.
//!
//! A push gets the deepest directory of its path that is there. A pull gets the directory that
//! holds what is fetched, or that whose contents are; several get the one that holds them all.

use super::{messages::Purpose, problem};
use haul_transfer::Problem;
use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
};

/// A directory to serve, and the path of each request's path below it, as a URL has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub root: PathBuf,
    pub paths: Vec<Vec<u8>>,
}

/// Directories that a far end looks from.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The directory of paths without a `/` in front.
    pub home: &'a Path,
    /// The directory that nothing leads out of, where the far end was started with one: each path
    /// is below it then, with or without a `/` in front.
    pub only: Option<&'a Path>,
}

impl Places<'_> {
    /// Finds what to serve for these paths.
    ///
    /// # Errors
    /// If nothing is there, or a path means something else in a URL.
    pub fn served(self, purpose: Purpose, paths: &[Vec<u8>]) -> Result<Served, Problem> {
        if let Some(only) = self.only {
            let below = |path: &Vec<u8>| Ok(from_home(path)?.trim_start().to_vec());
            let paths = paths.iter().map(below).collect::<Result<_, Problem>>()?;
            return Ok(Served { root: only.to_owned(), paths });
        }
        let found: Vec<Found> =
            paths.iter().map(|path| self.find(purpose, path)).collect::<Result<_, _>>()?;
        let mut root = match found.iter().find_map(|one| one.root.as_deref()) {
            Some(first) => first.to_owned(),
            None => self.home.to_owned(),
        };
        for other in found.iter().filter_map(|one| one.root.as_deref()) {
            while !other.starts_with(&root) {
                root.pop();
            }
        }
        let below = |one: &Found| {
            let extra = one.root.as_deref().and_then(|own| own.strip_prefix(&root).ok());
            let extra = extra.map_or(&b""[..], |extra| extra.as_os_str().as_bytes());
            let between = if extra.is_empty() { &b""[..] } else { b"/" };
            [extra, between, &one.rest].concat()
        };
        let paths = found.iter().map(below).collect();
        Ok(Served { root, paths })
    }

    fn find(self, purpose: Purpose, path: &[u8]) -> Result<Found, Problem> {
        if is_special(path) {
            return Ok(Found { root: None, rest: path.to_vec() });
        }
        let path = from_home(path)?;
        let whole = self.home.join(OsStr::from_bytes(path));
        let found = match purpose {
            Purpose::Push => deepest_directory(&whole, path)?,
            Purpose::Pull | Purpose::List | Purpose::Send => holder(&whole, path, purpose)?,
        };
        if is_special(&found.rest) {
            let what = format!("cannot name {} over ssh", whole.display());
            let hint = "call it something else, or copy the directory that holds it";
            let shown = String::from_utf8_lossy(&found.rest).into_owned();
            return Err(problem(&what, "a name that means nothing else to haul", &shown, hint));
        }
        Ok(found)
    }
}

struct Found {
    /// Canonical path of a directory; `None` for what needs none.
    root: Option<PathBuf>,
    rest: Vec<u8>,
}

/// Whether a path is `null:` or `zero:SIZE`, which lie in no directory.
fn is_special(path: &[u8]) -> bool {
    path == b"null:" || (path.starts_with(b"zero:") && !path.contains(&b'/'))
}

/// A path as it is below the home directory, where it says so by `~`.
fn from_home(path: &[u8]) -> Result<&[u8], Problem> {
    match path.strip_prefix(b"~") {
        Some(b"") => Ok(b""),
        Some(rest) if rest.starts_with(b"/") => Ok(rest.trim_start()),
        Some(_) => {
            let what = format!("cannot take the path {}", String::from_utf8_lossy(path));
            let needs = "a path from / on, or one below your own home directory";
            let hint = "write the other home in full; a name with a ~ in front is ./~NAME";
            Err(problem(&what, needs, "another user's home", hint))
        }
        None => Ok(path),
    }
}

trait TrimStart {
    fn trim_start(&self) -> &[u8];
}

impl TrimStart for [u8] {
    /// The path without the `/` in front.
    fn trim_start(&self) -> &[u8] {
        let slashes = self.iter().take_while(|byte| **byte == b'/').count();
        &self[slashes..]
    }
}

fn asks_for_contents(path: &[u8]) -> bool {
    [&b"/"[..], b"/.", b"/.."].iter().any(|end| path.ends_with(end))
        || [&b""[..], b".", b".."].contains(&path)
}

/// The deepest directory of a path that is there, and the names behind it.
fn deepest_directory(whole: &Path, path: &[u8]) -> Result<Found, Problem> {
    let mut root = PathBuf::from("/");
    let mut components = whole.components().peekable();
    while let Some(component) = components.peek() {
        let next = root.join(component);
        match next.metadata() {
            Ok(metadata) if metadata.is_dir() => root = next,
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(no_way(&next, &error)),
        }
        components.next();
    }
    let names: Vec<&[u8]> = components.map(|name| name.as_os_str().as_bytes()).collect();
    let mut rest = names.join(&b'/');
    if !rest.is_empty() && asks_for_contents(path) {
        rest.push(b'/');
    }
    let root = root.canonicalize().map_err(|error| no_way(&root, &error))?;
    Ok(Found { root: Some(root), rest })
}

/// The directory that holds what a path names, and the name or the pattern in it.
fn holder(whole: &Path, path: &[u8], purpose: Purpose) -> Result<Found, Problem> {
    let contents = asks_for_contents(path);
    let parts: Vec<Component<'_>> = whole.components().collect();
    let has_pattern =
        |part: &Component<'_>| part.as_os_str().as_bytes().iter().any(|byte| b"*?[".contains(byte));
    // What is looked into as it is needs no right on what lies beside it.
    let is_root = contents || (purpose == Purpose::List && whole.is_dir());
    let named = if is_root { parts.len() } else { parts.len().saturating_sub(1) };
    let held = parts.iter().position(has_pattern).unwrap_or(named).min(named);
    let directory: PathBuf = parts[..held].iter().collect();
    let root = directory.canonicalize().map_err(|error| no_way(&directory, &error))?;
    if !root.is_dir() {
        return Err(no_way(&directory, &io::ErrorKind::NotADirectory.into()));
    }
    let names: Vec<&[u8]> = parts[held..].iter().map(|part| part.as_os_str().as_bytes()).collect();
    let mut rest = names.join(&b'/');
    if !rest.is_empty() && contents {
        rest.push(b'/');
    }
    Ok(Found { root: Some(root), rest })
}

fn no_way(path: &Path, error: &io::Error) -> Problem {
    let what = format!("cannot look at {}", path.display());
    let needs = "a directory there that your user may enter";
    problem(&what, needs, &error.to_string(), "check the name and its rights")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            for directory in ["data/run7", "data/run8", "x[1]", "elsewhere"] {
                fs::create_dir_all(home.path().join(directory)).unwrap();
            }
            fs::write(home.path().join("data/file"), b"").unwrap();
            symlink("../elsewhere", home.path().join("data/link")).unwrap();
            Self(home)
        }

        fn served(
            &self,
            purpose: Purpose,
            paths: &[&str],
        ) -> Result<(String, Vec<String>), Problem> {
            let home = self.0.path().canonicalize().unwrap();
            let bytes: Vec<Vec<u8>> = paths
                .iter()
                .map(|path| path.replace("HOME", home.to_str().unwrap()).into())
                .collect();
            let served = Places { home: &home, only: None }.served(purpose, &bytes)?;
            let root = served.root.strip_prefix(&home).map_or(served.root.clone(), Path::to_owned);
            let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
            Ok((root.display().to_string(), served.paths.into_iter().map(text).collect()))
        }

        fn one(&self, purpose: Purpose, path: &str) -> (String, String) {
            let (root, mut paths) = self.served(purpose, &[path]).unwrap();
            (root, paths.remove(0))
        }
    }

    #[test]
    fn a_push_gets_the_deepest_directory_that_is_there() {
        let tree = Tree::new();
        for (path, root, rest) in [
            ("", "", ""),
            ("~", "", ""),
            ("~/data", "data", ""),
            (".", "", ""),
            ("data", "data", ""),
            ("data/", "data", ""),
            ("HOME/data/run7/", "data/run7", ""),
            ("data/new", "data", "new"),
            ("data/new/", "data", "new/"),
            ("data/new/deep/.", "data", "new/deep/"),
            ("data/file", "data", "file"),
            ("data/file/x", "data", "file/x"),
            ("data/link", "elsewhere", ""),
            ("data/link/x", "elsewhere", "x"),
            ("data/../x", "", "x"),
            ("null:", "", "null:"),
            ("./a*", "", "a*"),
        ] {
            assert_eq!(tree.one(Purpose::Push, path), (root.into(), rest.into()), "{path}");
        }
    }

    #[test]
    fn a_pull_gets_what_holds_its_source_and_a_listing_the_directory_itself() {
        let tree = Tree::new();
        for (path, root, rest) in [
            ("", "", ""),
            ("data", "", "data"),
            ("data/", "data", ""),
            ("data/.", "data", ""),
            ("data/file", "data", "file"),
            ("data/absent", "data", "absent"),
            ("data/run?/*.dat", "data", "run?/*.dat"),
            ("data/run*/", "data", "run*/"),
            ("x[1]", "", "x[1]"),
            ("data/link", "data", "link"),
            ("data/link/x", "elsewhere", "x"),
            ("HOME/data/run7", "data", "run7"),
            ("zero:4K", "", "zero:4K"),
        ] {
            assert_eq!(tree.one(Purpose::Pull, path), (root.into(), rest.into()), "{path}");
        }
        for (path, root, rest) in
            [("", "", ""), ("data", "data", ""), ("data/file", "data", "file"), ("a", "", "a")]
        {
            assert_eq!(tree.one(Purpose::List, path), (root.into(), rest.into()), "{path}");
        }
    }

    #[test]
    fn several_sources_get_the_directory_that_holds_them_all() {
        let tree = Tree::new();
        let served = |paths: &[&str]| tree.served(Purpose::Pull, paths).unwrap();
        let (root, paths) = served(&["data/run7/a", "data/file", "data/run8/"]);
        assert_eq!(
            (&root[..], &paths[..]),
            ("data", &["run7/a".into(), "file".into(), "run8/".into()][..])
        );
        let (root, paths) = served(&["data/run7/a", "elsewhere/b"]);
        assert_eq!(
            (&root[..], &paths[..]),
            ("", &["data/run7/a".into(), "elsewhere/b".into()][..])
        );
        let (root, paths) = served(&["/etc/", "/usr/bin/env"]);
        assert_eq!((&root[..], &paths[..]), ("/", &["etc/".into(), "usr/bin/env".into()][..]));
    }

    #[test]
    fn a_path_that_is_not_there_or_means_something_else_is_refused() {
        let tree = Tree::new();
        for (purpose, path, says) in [
            (Purpose::Pull, "absent/x", "absent"),
            (Purpose::Pull, "data/file/x", "data/file"),
            (Purpose::List, "absent/x", "absent"),
            (Purpose::Push, "~bob/x", "./~NAME"),
            (Purpose::Push, "data/null:", "means nothing else"),
            (Purpose::Pull, "data/zero:4K", "means nothing else"),
        ] {
            let refused = tree.served(purpose, &[path]).unwrap_err().to_string();
            assert!(refused.contains(says), "{path}: {refused}");
        }
    }

    #[test]
    fn a_far_end_with_a_directory_of_its_own_serves_that_alone() {
        let places = Places { home: Path::new("/ann"), only: Some(Path::new("/data")) };
        for (path, below) in [
            ("/run7/a", "run7/a"),
            ("run7/", "run7/"),
            ("", ""),
            ("~/x", "x"),
            ("../x", "../x"),
            ("null:", "null:"),
        ] {
            let served = places.served(Purpose::Pull, &[path.into()]).unwrap();
            assert_eq!(served.root, Path::new("/data"));
            assert_eq!(served.paths, [below.as_bytes()], "{path}");
        }
    }
}
