//! The size of a probe's file: more than caches hide, and never all that is free.

use crate::{disk::setting::DiskRequest, words};
use haul_host::{
    FileSystem, Host,
    block_device::{Place, Storage},
};
use haul_transfer::Problem;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

/// The size of a file in memories, so that most of its bytes are elsewhere.
const BEYOND_MEMORY: f64 = 1.25;
/// The divisor of free space: a probe takes at most this part of it by itself.
const FREE_PARTS: u64 = 2;
/// The divisor of free memory, where that is what is written to: others need the rest.
const MEMORY_PARTS: u64 = 4;
/// The largest file in memory: more bytes tell nothing more of memory.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The least size that is wanted on a disk with little memory, so that a run is not over at once.
const BYTES_MIN: u64 = 1 << 30;
/// Bytes left free with --size too: a full disk breaks what others do.
const ROOM_BYTES: u64 = 64 << 20;

/// The size of a probe's file, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    pub len_bytes: u64,
    /// The reason for the size, for the user, without a full stop.
    pub because: String,
    /// Bytes of the file that the page cache could hold.
    pub cache_bytes: u64,
    /// Bytes that a file may take; `None` where the file system does not say, and nothing limits
    /// the sizes of files.
    pub free_bytes: Option<u64>,
}

impl Plan {
    /// Whether all of the file could lie in the page cache.
    #[must_use]
    pub fn fits_the_cache(&self) -> bool {
        self.len_bytes <= self.cache_bytes
    }
}

/// Plans the size of a probe's file.
///
/// # Errors
/// If there is no room for it.
pub fn plan(
    request: &DiskRequest,
    host: &Host,
    file_system: &FileSystem,
    storage: &Storage,
) -> Result<Plan, Problem> {
    let limit_bytes = getrlimit(Resource::Fsize).current;
    let known_bytes = [file_system.free_bytes, limit_bytes].into_iter().flatten().min();
    let free_bytes = known_bytes.unwrap_or(u64::MAX);
    let cache_bytes = host.memory_available_bytes.max(host.dirty_limit_bytes);
    // Whole blocks of any size that is asked for.
    let step_bytes = request.block_sizes.iter().max().copied().unwrap_or(1).max(1) as u64;
    let (len_bytes, because) = match request.len_bytes {
        Some(asked_bytes) => asked(asked_bytes, free_bytes, step_bytes, request)?,
        None => {
            let (len_bytes, because) = match storage.place {
                Place::Memory => in_memory(free_bytes, cache_bytes),
                _ => on_a_disk(free_bytes, cache_bytes),
            };
            let is_bound = len_bytes > request.len_bytes_max;
            let bound = (request.len_bytes_max, "a look takes no more".to_owned());
            if is_bound { bound } else { (len_bytes, because) }
        }
    };
    let len_bytes = len_bytes / step_bytes * step_bytes;
    if len_bytes == 0 {
        return Err(Problem::in_general(
            &format!("no room for a file in {}", request.directory.display()),
            &format!("{} free for one block twice", words::bytes(step_bytes * FREE_PARTS)),
            &words::bytes(free_bytes),
            "name another DIR or smaller --block-sizes",
        ));
    }
    Ok(Plan { len_bytes, because, cache_bytes, free_bytes: known_bytes })
}

fn asked(
    asked_bytes: u64,
    free_bytes: u64,
    step_bytes: u64,
    request: &DiskRequest,
) -> Result<(u64, String), Problem> {
    if asked_bytes < step_bytes {
        return Err(Problem::in_general(
            "cannot take --size",
            &format!("one block of {} at least", words::bytes(step_bytes)),
            &words::bytes(asked_bytes),
            "name a larger --size or smaller --block-sizes",
        ));
    }
    if asked_bytes.saturating_add(ROOM_BYTES) > free_bytes {
        let needs = words::bytes(asked_bytes);
        return Err(Problem::in_general(
            &format!("no room for a file in {}", request.directory.display()),
            &format!("{needs} free and {} left to others", words::bytes(ROOM_BYTES)),
            &words::bytes(free_bytes),
            "name a smaller --size or another DIR",
        ));
    }
    Ok((asked_bytes, "as --size says".to_owned()))
}

fn on_a_disk(free_bytes: u64, cache_bytes: u64) -> (u64, String) {
    let wanted_bytes = ((cache_bytes as f64 * BEYOND_MEMORY) as u64).max(BYTES_MIN);
    let cache = words::bytes(cache_bytes);
    if wanted_bytes <= free_bytes / FREE_PARTS {
        return (wanted_bytes, format!("more than the {cache} of memory that could cache it"));
    }
    let why = format!(
        "half of the {} that are free; memory could cache {cache}",
        words::bytes(free_bytes)
    );
    (free_bytes / FREE_PARTS, why)
}

fn in_memory(free_bytes: u64, available_bytes: u64) -> (u64, String) {
    let most_bytes = (available_bytes / MEMORY_PARTS).min(free_bytes / FREE_PARTS);
    (most_bytes.min(MEMORY_BYTES_MAX), "there is no disk, and others need the memory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_host::FsKind;
    use std::path::Path;

    const GIB: u64 = 1 << 30;

    fn planned(len_bytes: Option<u64>, free_bytes: u64, place: Place) -> Result<Plan, Problem> {
        let request = DiskRequest { len_bytes, ..DiskRequest::new(Path::new("/d")) };
        planned_of(&request, free_bytes, place)
    }

    fn planned_of(request: &DiskRequest, free_bytes: u64, place: Place) -> Result<Plan, Problem> {
        let host =
            Host { memory_available_bytes: 8 * GIB, dirty_limit_bytes: GIB, ..Host::default() };
        let file_system = FileSystem {
            kind: FsKind::Ext,
            block_bytes: 4096,
            free_bytes: Some(free_bytes),
            free_inodes: 1,
            read_only: false,
        };
        let storage = Storage {
            file_system: "ext4".to_owned(),
            source: String::new(),
            options: Vec::new(),
            place,
        };
        plan(request, &host, &file_system, &storage)
    }

    #[test]
    fn by_itself_it_is_more_than_memory_holds_or_half_of_what_is_free() {
        let roomy = planned(None, 100 * GIB, Place::Hidden).unwrap();
        assert_eq!((roomy.len_bytes, roomy.fits_the_cache()), (10 * GIB, false));
        assert!(roomy.because.contains("8 GiB of memory"), "{}", roomy.because);
        let narrow = planned(None, 12 * GIB, Place::Hidden).unwrap();
        assert_eq!((narrow.len_bytes, narrow.fits_the_cache()), (6 * GIB, true));
        assert!(narrow.because.contains("half of the 12 GiB"), "{}", narrow.because);
    }

    #[test]
    fn a_look_takes_no_more_than_it_may() {
        let request = DiskRequest { len_bytes_max: GIB, ..DiskRequest::new(Path::new("/d")) };
        let bound = planned_of(&request, 100 * GIB, Place::Hidden).unwrap();
        assert_eq!((bound.len_bytes, bound.because.as_str()), (GIB, "a look takes no more"));
    }

    #[test]
    fn memory_is_left_to_others() {
        assert_eq!(planned(None, 100 * GIB, Place::Memory).unwrap().len_bytes, GIB);
        assert_eq!(planned(None, GIB, Place::Memory).unwrap().len_bytes, GIB / 2);
    }

    #[test]
    fn a_size_that_was_asked_for_is_taken_where_it_fits_and_in_whole_blocks() {
        let asked = planned(Some(GIB + 5), 2 * GIB, Place::Hidden).unwrap();
        assert_eq!((asked.len_bytes, asked.because.as_str()), (GIB, "as --size says"));
        let full = planned(Some(GIB), GIB, Place::Hidden).unwrap_err().to_string();
        assert!(full.contains("1 GiB free and 64 MiB left to others"), "{full}");
        let small = planned(Some(4096), GIB, Place::Hidden).unwrap_err().to_string();
        assert!(small.contains("one block of 4 MiB"), "{small}");
    }

    #[test]
    fn a_disk_without_room_is_named_with_what_it_has() {
        let full = planned(None, 1 << 20, Place::Hidden).unwrap_err().to_string();
        assert!(full.contains("no room for a file in /d") && full.contains("1 MiB"), "{full}");
    }
}
