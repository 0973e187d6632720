//! Names that a client's sources have at the target, and the place where a pull writes.

use crate::{
    error::{TransferError, problem},
    file_options::FileOptions,
    name::Name,
    options::{SourceSpec, TargetSpec},
    problem::Problem,
    session::receiving::Expected,
    size::parse_size,
    source_name::name_of_source,
    state::usual_state_directories,
    storage::{
        contents_mode,
        root::{Root, join, os_path},
        target_place::{PathMeans, TargetPlace},
    },
};
use std::{
    fs::DirBuilder,
    io,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// Name of a source at the target; `None` where its contents come without it.
pub fn source_name(source: &SourceSpec) -> Option<Vec<u8>> {
    match source {
        SourceSpec::Zero(bytes) => Some(format!("zero-{bytes}").into_bytes()),
        SourceSpec::Beginning(part) => Some(part.name.clone().into_bytes()),
        SourceSpec::Path(path) => name_of_source(path.as_bytes()).map(<[u8]>::to_vec),
        SourceSpec::Beneath(place) => name_of_source(&place.path).map(<[u8]>::to_vec),
    }
}

/// Path of a source as it is asked of a server: `x/.` is `x/`, which every server knows.
pub fn asked_path(path: &[u8]) -> Vec<u8> {
    match path.strip_suffix(b".") {
        Some(contents) if contents.is_empty() || contents.ends_with(b"/") => contents.to_vec(),
        _ => path.to_vec(),
    }
}

/// Name of a source of a pull at the target.
pub fn asked_name(path: &[u8]) -> Option<Vec<u8>> {
    let size = path.strip_prefix(b"zero:").and_then(|size| std::str::from_utf8(size).ok());
    match size.and_then(|size| parse_size(size).ok()) {
        Some(bytes) => Some(format!("zero-{bytes}").into_bytes()),
        None => name_of_source(path).map(<[u8]>::to_vec),
    }
}

/// Refuses two sources of one name: the second would replace the first.
///
/// # Errors
/// Names the two.
pub fn check_names(names: &[Option<Vec<u8>>]) -> Result<(), TransferError> {
    let mut names: Vec<&[u8]> = names.iter().flatten().map(Vec::as_slice).collect();
    names.sort_unstable();
    let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) else { return Ok(()) };
    let what = format!("two sources are called {}", Name(twice[0].to_vec()));
    let needs = "names that differ at the target";
    let hint = "move them by a command each, into directories of their own";
    Err(TransferError::start(problem(&what, needs, "one name twice", hint)))
}

/// Refuses names that could come twice where sources are removed: the one that is refused for it
/// would take the place of the other in the next run. Of contents nobody knows the names before.
///
/// # Errors
/// If there are contents of a directory, and another source.
pub fn check_moved(
    names: &[Option<Vec<u8>>],
    file_options: FileOptions,
) -> Result<(), TransferError> {
    if !file_options.move_sources || names.len() < 2 || names.iter().all(Option::is_some) {
        return Ok(());
    }
    let what = "cannot take --move of the contents of a directory beside another source";
    let needs = "sources whose names differ for certain";
    let hint = "move each by a command of its own, or the directories without the / at their ends";
    Err(TransferError::start(problem(what, needs, "several sources", hint)))
}

/// First components that a pull of these paths may bring; `None` for a directory's contents, which
/// may be any.
pub fn expected_names(paths: &[Vec<u8>]) -> Option<Vec<Expected>> {
    let expected = |path: &Vec<u8>| asked_name(path).map(|name| Expected { name, has_come: false });
    paths.iter().map(expected).collect()
}

/// Place of a pull: any directory of this host, for it is the user's own. One that is made for
/// `contents` is nobody else's before `contents_mode::give` gave it the mode of theirs.
///
/// # Errors
/// If it is none that can be written.
pub fn resolve_local(
    target: &TargetSpec,
    into_directory: bool,
    contents: bool,
    file_options: FileOptions,
) -> Result<TargetPlace, TransferError> {
    let TargetSpec::Path(path) = target else { return Ok(TargetPlace::Null) };
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        let what = format!("{what} {}", path.display());
        TransferError::start(problem(
            &what,
            "a directory that this user may write",
            &error.to_string(),
            "",
        ))
    };
    // By whatever link: to be replaced would be the end of it for all programs.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        let what = format!("cannot pull to {}", path.display());
        let hint = "pull to a file, or to null: to throw it away";
        let (needs, found) = ("a file or a directory", "a FIFO, socket or device");
        return Err(TransferError::start(problem(&what, needs, found, hint)));
    }
    let bytes = path.as_os_str().as_bytes();
    let directory = into_directory || bytes.ends_with(b"/") || path.is_dir();
    let is_new = directory && !file_options.dry_run && !path.is_dir();
    let (base, name): (&Path, &[u8]) = if directory {
        if is_new {
            make_directory(path, contents).map_err(|e| failed("cannot make the directory", &e))?;
        }
        (path, b"")
    } else {
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        (parent.unwrap_or(os_path(b".")), name)
    };
    // A dry run makes no directory: it looks from the last one that is there.
    // The last of them is empty: this directory.
    let is_there =
        |path: &&Path| !file_options.dry_run || path.as_os_str().is_empty() || path.is_dir();
    let there = base.ancestors().find(is_there).unwrap_or(base);
    let there = if there.as_os_str().is_empty() { os_path(b".") } else { there };
    let missing = base.strip_prefix(there).unwrap_or(os_path(b"")).as_os_str().as_bytes();
    let name = join(missing, name);
    let root = Root::open_without(there, &usual_state_directories())
        .map_err(|e| failed("cannot open the target directory of", &e))?;
    let place =
        TargetPlace::resolve(&root, &name, PathMeans::directory_if(directory), file_options)
            .map_err(|fault| TransferError::start(Problem::of(&fault)))?;
    Ok(place.made_before(is_new))
}

/// Makes a directory, and those above it.
fn make_directory(path: &Path, contents: bool) -> io::Result<()> {
    // Without `.` at its end, by which nothing can be made.
    let path: PathBuf = path.components().collect();
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mode = if contents { contents_mode::BEFORE } else { contents_mode::USUAL };
    match DirBuilder::new().mode(mode).create(&path) {
        Err(_) if path.is_dir() => Ok(()),
        made => made,
    }
}

/// Takes away what [`resolve_local`] made for a pull that brought nothing into it: the next one
/// makes it again, with the mode that is due.
pub fn unmake_local(target: &TargetSpec, place: &TargetPlace) {
    if let (TargetSpec::Path(path), TargetPlace::Below { is_new: true, .. }) = (target, place) {
        // Only while it is empty.
        let _ = std::fs::remove_dir(path);
    }
}
