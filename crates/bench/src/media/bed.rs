//! The disk that films are read from in a bench, and the films.
//!
//! As root the films lie in an image file with a file system and a device of its own: its
//! read-ahead is known, and what is bound is this device. Without root they lie in the bench's
//! directory.

use crate::{
    media::request::{BenchMedia, MediaPart, READ_AHEAD_BYTES},
    mounts::ImageMount,
    workshop::{ROOM_BYTES, Residency, Workshop},
};
use anyhow::{Context, Result, ensure};
use haul_host::control_group::{ControlGroupError, DeviceNumber};
use haul_report::units;
use haul_scratch::data_file;
use serde::Serialize;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

const KIND: &str = "ext4";
/// Room that the file system of an image needs for itself, in bytes.
const IMAGE_ROOM_BYTES: u64 = 128 << 20;
/// Read-ahead of the films' own device, in KiB: the kernel's default, which a distribution may
/// have changed.
const READ_AHEAD_KIB: u64 = READ_AHEAD_BYTES >> 10;

/// The disk below the films.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Disk {
    event: &'static str,
    /// Whether the films lie in an image file with a device of its own.
    pub is_image: bool,
    pub read_ahead_kib: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Bed {
    pub directory: PathBuf,
    pub disk: Disk,
    /// The device below the films, or why there is none to bind.
    pub device: Result<DeviceNumber, ControlGroupError>,
    /// Shortcomings of the bed, such as a device that could not be made, a sentence each.
    pub notes: Vec<String>,
    pub films: Vec<String>,
    _mount: Option<ImageMount>,
}

impl Bed {
    /// Makes all files that the parts need.
    pub fn make(plan: &BenchMedia, workshop: &Workshop) -> Result<Self> {
        let files = files(plan);
        let len_bytes: u64 = files.iter().map(|(_, len_bytes)| len_bytes).sum();
        ensure_room(workshop, len_bytes)?;
        let mut notes = Vec::new();
        let mount = plan.bounds.as_ref().and_then(|_| {
            let size_bytes = len_bytes + len_bytes / 8 + IMAGE_ROOM_BYTES;
            ImageMount::new(workshop.path(), KIND, size_bytes)
                .inspect_err(|why| {
                    notes.push(format!("The films have no device of their own: {why}."));
                })
                .ok()
        });
        let directory = match &mount {
            Some(mount) => mount.path().join("films"),
            None => workshop.path().join("films"),
        };
        fs::create_dir(&directory).context("cannot make the films' directory")?;
        let device = DeviceNumber::below(Path::new("/"), &directory);
        let read_ahead = device
            .as_ref()
            .ok()
            .map(|device| PathBuf::from(format!("/sys/class/bdi/{device}/read_ahead_kb")));
        if let Some(path) = read_ahead.as_ref().filter(|_| mount.is_some()) {
            // What the device has is told; that it could not be changed is no reason to stop.
            let _ = fs::write(path, READ_AHEAD_KIB.to_string());
        }
        let read_ahead_kib =
            read_ahead.and_then(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
        let disk = Disk { event: "disk", is_image: mount.is_some(), read_ahead_kib };
        let films = (0..plan.crowd.films).map(film_name).collect();
        let bed = Self { directory, disk, device, notes, films, _mount: mount };
        bed.fill(workshop, &files)?;
        Ok(bed)
    }

    fn fill(&self, workshop: &Workshop, files: &[(String, u64)]) -> Result<()> {
        let steps = workshop.steps(files.len());
        for (name, len_bytes) in files {
            steps.begin(&format!("making {name}"));
            let path = self.directory.join(name);
            data_file::make(&path, *len_bytes, None, || workshop.go_on())?;
            let file = File::open(&path)?;
            rustix::fs::fsync(&file).context("cannot sync a film")?;
        }
        Ok(())
    }

    /// Brings a file of the bed into the page cache or out of it, or says why that cannot be.
    pub fn bring(
        &self,
        workshop: &Workshop,
        name: &str,
        wanted: Residency,
    ) -> Result<Option<String>> {
        let path = self.directory.join(name);
        let len_bytes = fs::metadata(&path).context("a file is gone")?.len();
        workshop.bring(&path, len_bytes, wanted)
    }
}

fn film_name(number: u32) -> String {
    format!("film-{:02}.mp4", number + 1)
}

pub(super) fn file_name(len_bytes: u64) -> String {
    format!("file-{len_bytes}.bin")
}

/// Names and lengths of the files that the parts need.
fn files(plan: &BenchMedia) -> Vec<(String, u64)> {
    let mut files = Vec::new();
    if plan.parts.contains(&MediaPart::Crowd) {
        files.extend((0..plan.crowd.films).map(|at| (film_name(at), plan.crowd.film_bytes)));
    }
    let mut sizes = Vec::new();
    if plan.parts.contains(&MediaPart::SingleFile) {
        sizes.push(plan.file_bytes);
    }
    if plan.parts.contains(&MediaPart::Response) {
        sizes.extend(&plan.sizes);
    }
    sizes.sort_unstable();
    sizes.dedup();
    files.extend(sizes.into_iter().map(|len_bytes| (file_name(len_bytes), len_bytes)));
    files
}

fn ensure_room(workshop: &Workshop, len_bytes: u64) -> Result<()> {
    let free_bytes = workshop.free_bytes()?;
    let needs_bytes = len_bytes.saturating_add(len_bytes / 8 + IMAGE_ROOM_BYTES + ROOM_BYTES);
    ensure!(
        free_bytes >= needs_bytes,
        "needs {} free in {}, found {}: take fewer --films, a smaller --film-size or another --dir",
        units::bytes(needs_bytes),
        workshop.path().display(),
        units::bytes(free_bytes)
    );
    Ok(())
}
