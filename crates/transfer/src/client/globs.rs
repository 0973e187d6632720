//! Patterns in the path of a URL that is pulled, expanded by a listing of the server.
//!
//! As in a shell `*` and `?` stay within a name, and fit no name with a leading dot unless it is
//! written. A name that really has such characters comes first.

use super::listing::{Depth, EntryKind, list};
use crate::{
    Interrupt,
    connecting::ConnectOptions,
    error::{TransferError, problem},
    name::Name,
    options::Beneath,
    patterns,
    storage::{
        root::{Links, join},
        tree, walk,
    },
    url::HaulUrl,
};
use globset::{GlobBuilder, GlobMatcher};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// Expands URLs: each stays as it is, or becomes what its pattern fits, in the order of names.
///
/// # Errors
/// If a pattern fits nothing, is none, or the server cannot be asked.
pub fn expand(
    urls: &[HaulUrl],
    connect: &ConnectOptions,
    interrupt: &Interrupt,
) -> Result<Vec<HaulUrl>, TransferError> {
    let server = Asked { connect, interrupt };
    let mut expanded = Vec::new();
    for url in urls {
        if has_pattern(&url.path) && !is_there(url, server)? {
            expanded.extend(fitting(url, server)?);
        } else {
            expanded.push(url.clone());
        }
    }
    Ok(expanded)
}

fn has_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// Needs of each listing of an expansion.
#[derive(Clone, Copy)]
struct Asked<'a> {
    connect: &'a ConnectOptions,
    interrupt: &'a Interrupt,
}

fn is_there(url: &HaulUrl, server: Asked<'_>) -> Result<bool, TransferError> {
    let mut seen = false;
    match list(url, Depth::Names(0), server.connect, server.interrupt, &mut |_| seen = true) {
        Err(TransferError::CouldNotStart(_) | TransferError::Unavailable(_)) if !seen => {}
        result => drop(result?),
    }
    Ok(seen)
}

fn fitting(url: &HaulUrl, server: Asked<'_>) -> Result<Vec<HaulUrl>, TransferError> {
    let contents = url.path.ends_with(b"/");
    let path = url.path.strip_suffix(b"/").unwrap_or(&url.path);
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let at = parts.iter().position(|part| has_pattern(part)).unwrap_or(0);
    let patterns =
        parts[at..].iter().map(|part| Pattern::new(part)).collect::<Result<Vec<_>, _>>()?;
    let base = HaulUrl { path: parts[..at].join(&b'/'), ..url.clone() };
    let mut found: Vec<Vec<u8>> = Vec::new();
    list(&base, Depth::Names(patterns.len()), server.connect, server.interrupt, &mut |entry| {
        let names: Vec<&[u8]> = entry.name.0.split(|&byte| byte == b'/').collect();
        let fits = names.len() == patterns.len()
            && names.iter().zip(&patterns).all(|(name, pattern)| pattern.fits(name));
        if fits && (entry.kind == EntryKind::Directory || !contents) {
            found.push(entry.name.0);
        }
    })?;
    if found.is_empty() {
        let what = format!("nothing at the server fits {url}");
        let hint = "`haul ls` of the directory shows what is there";
        return Err(TransferError::start(problem(
            &what,
            "a name that the pattern fits",
            "none",
            hint,
        )));
    }
    found.sort_unstable();
    let whole = |name: Vec<u8>| {
        let parts = [&base.path[..], &name].into_iter().filter(|part| !part.is_empty());
        let mut path = parts.collect::<Vec<_>>().join(&b'/');
        path.extend(contents.then_some(b'/'));
        HaulUrl { path, ..url.clone() }
    };
    Ok(found.into_iter().map(whole).collect())
}

/// Expands a source of this side as [`expand`] does URLs.
///
/// # Errors
/// If its pattern fits nothing or is none, or its directory cannot be read.
pub fn expand_beneath(source: &Beneath) -> Result<Vec<Beneath>, TransferError> {
    if !has_pattern(&source.path) || source.stat().is_ok() {
        return Ok(vec![source.clone()]);
    }
    let shown = Name(source.text());
    let root = source.open().map_err(|error| {
        let what = format!("cannot look for what fits {shown}");
        TransferError::start(problem(&what, "", &error.to_string(), ""))
    })?;
    let contents = source.path.ends_with(b"/");
    let path = source.path.strip_suffix(b"/").unwrap_or(&source.path);
    let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    let at = parts.iter().position(|part| has_pattern(part)).unwrap_or(0);
    let mut found = vec![parts[..at].join(&b'/')];
    for (index, part) in parts[at..].iter().enumerate() {
        let pattern = Pattern::new(part)?;
        let is_last = at + index + 1 == parts.len();
        let mut fitting = Vec::new();
        for base in &found {
            // What cannot be read fits nothing, as in a shell.
            let Ok(names) = root.below(base, Links::Follow).and_then(|it| walk::list(&it, b""))
            else {
                continue;
            };
            let fits = names.iter().filter(|name| pattern.fits(name));
            fitting.extend(fits.map(|name| join(base, name)).filter(|path| {
                let stat = root.stat(path, Links::Refuse);
                (is_last && !contents) || stat.is_ok_and(|stat| tree::is_directory(&stat))
            }));
        }
        found = fitting;
    }
    if found.is_empty() {
        let what = format!("nothing fits {shown}");
        let hint = "`haul ls` of the directory shows what is there";
        let needs = "a name that the pattern fits";
        return Err(TransferError::start(problem(&what, needs, "none", hint)));
    }
    found.sort_unstable();
    let whole = |mut path: Vec<u8>| {
        path.extend(contents.then_some(b'/'));
        Beneath { root: source.root.clone(), path }
    };
    Ok(found.into_iter().map(whole).collect())
}

/// A pattern of one component of a path.
struct Pattern {
    glob: GlobMatcher,
    fits_hidden: bool,
}

impl Pattern {
    fn new(text: &[u8]) -> Result<Self, TransferError> {
        let fail = |found: &str| {
            let what = format!("cannot take the pattern {}", String::from_utf8_lossy(text));
            let hint = "* is any text within a name, ? one character, [a-z] one of these";
            TransferError::start(problem(&what, "a pattern as a shell has it", found, hint))
        };
        let pattern = std::str::from_utf8(text).map_err(|_| fail("bytes that are no UTF-8"))?;
        let globs = patterns::globs(pattern).map_err(|found| fail(&found.to_string()))?;
        // More than one where names of several components are meant, which these are not.
        let mut builder = GlobBuilder::new(&globs[0]);
        let glob =
            builder.literal_separator(true).build().map_err(|error| fail(&error.to_string()))?;
        Ok(Self { glob: glob.compile_matcher(), fits_hidden: text.starts_with(b".") })
    }

    fn fits(&self, name: &[u8]) -> bool {
        // The directory that is listed comes first, without a name: no pattern means it.
        !name.is_empty()
            && (self.fits_hidden || !name.starts_with(b"."))
            && self.glob.is_match(OsStr::from_bytes(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn what_a_pattern_fits_on_this_side_is_below_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["in/run7/a.vdif", "in/run7/b.txt", "in/run8/a.vdif", "out/a.vdif"] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        symlink("../out", directory.path().join("in/link")).unwrap();
        fs::write(directory.path().join("in/[x]"), b"").unwrap();
        let root = directory.path().join("in");
        let expanded = |path: &str| {
            let source = Beneath { root: root.clone(), path: path.into() };
            let found = expand_beneath(&source).ok()?;
            let text = |one: Beneath| String::from_utf8(one.path).unwrap();
            Some(found.into_iter().map(text).collect::<Vec<_>>().join(" "))
        };
        for (path, found) in [
            ("run7", Some("run7")),
            ("run?/*.vdif", Some("run7/a.vdif run8/a.vdif")),
            ("*/", Some("run7/ run8/")),
            ("[x]", Some("[x]")),
            ("*/a.vdif", Some("run7/a.vdif run8/a.vdif")),
            ("../out/*", None),
            ("link/*", None),
            ("run9*", None),
            ("gone", Some("gone")),
        ] {
            assert_eq!(expanded(path).as_deref(), found, "{path}");
        }
    }

    #[test]
    fn a_pattern_fits_what_a_shell_would_take() {
        for (pattern, fits, others) in [
            ("*.vdif", &["a.vdif", "\u{e4}.vdif"][..], &["a.vdi", ".x.vdif", "vdif"][..]),
            ("scan?", &["scan1"], &["scan", "scan12"]),
            ("[ab]*", &["a", "bc"], &["c", ".a"]),
            ("*", &["a"], &["", ".x"]),
            ("**", &["a"], &["", ".x"]),
            ("[[:digit:]]*", &["1", "2a"], &["a1", ":"]),
            ("a**b", &["ab", "axb"], &["a"]),
            (".*", &[".x"], &["x"]),
            ("plain", &["plain"], &["plain2"]),
        ] {
            let pattern = Pattern::new(pattern.as_bytes()).unwrap();
            assert!(fits.iter().all(|name| pattern.fits(name.as_bytes())), "{fits:?}");
            assert!(!others.iter().any(|name| pattern.fits(name.as_bytes())), "{others:?}");
        }
        assert!(Pattern::new(b"[a").is_err() && Pattern::new(b"\xff*").is_err());
    }
}
