//! Movie box of an MP4 file: the film's length, its tracks' clocks, whether fragments follow.

use std::time::Duration;

use super::boxes::{Boxes, Span};
use crate::container::time_of_ticks;

/// Most tracks of a movie that are looked at.
const TRACKS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Movie {
    /// Duration of the film without its fragments.
    own: Option<Duration>,
    /// Duration of the film with its fragments.
    whole: Option<Duration>,
    is_fragmented: bool,
    tracks: Vec<Track>,
    defaults: Vec<Defaults>,
}

#[derive(Clone, Copy, Debug)]
struct Track {
    id: u32,
    clock: Clock,
}

/// Values for a track's samples in fragments that say nothing of their own (`trex`).
#[derive(Clone, Copy, Debug)]
struct Defaults {
    track_id: u32,
    sample_ticks: u32,
}

/// The fields that `mvhd` and `mdhd` begin with (8.2.2, 8.4.2).
#[derive(Clone, Copy, Debug)]
struct Clock {
    ticks_per_s: u32,
    /// Duration in ticks; `None` where the header says that it does not know.
    duration_ticks: Option<u64>,
}

impl Clock {
    fn read(boxes: &mut Boxes, span: Span) -> Option<Self> {
        let is_wide = boxes.version(span)? != 0;
        let ticks_per_s = boxes.excerpts.u32(span.body + if is_wide { 20 } else { 12 })?;
        let duration = span.body + if is_wide { 24 } else { 16 };
        let duration_ticks = boxes.wide_field(span, duration)?;
        let unknown = if is_wide { u64::MAX } else { u32::MAX.into() };
        let is_known = duration_ticks != 0 && duration_ticks != unknown;
        Some(Self { ticks_per_s, duration_ticks: is_known.then_some(duration_ticks) })
    }

    fn duration(self) -> Option<Duration> {
        time_of_ticks(self.duration_ticks?, self.ticks_per_s.into())
    }
}

impl Movie {
    /// Reads what can be read of a movie box; the rest is as if it were not there.
    pub fn read(boxes: &mut Boxes, span: Span) -> Self {
        let mut movie = Self::default();
        let (mut header, mut extends) = (None, None);
        let mut at = span.body;
        while let Some(child) = boxes.next(at, span.end) {
            at = child.end;
            match &child.kind {
                b"mvhd" => header = Clock::read(boxes, child),
                b"trak" if movie.tracks.len() < TRACKS_MAX => {
                    movie.tracks.extend(Track::read(boxes, child));
                }
                b"mvex" => extends = Some(child),
                _ => {}
            }
        }
        let longest = movie.tracks.iter().filter_map(|track| track.clock.duration()).max();
        movie.own = header.and_then(Clock::duration).or(longest);
        if let Some(extends) = extends {
            movie.is_fragmented = true;
            movie.read_extends(boxes, extends, header);
        }
        movie
    }

    /// The film's time, where the header tells it.
    pub fn told(&self) -> Option<Duration> {
        if self.is_fragmented { self.whole } else { self.own }
    }

    /// Duration of what stands before the first fragment.
    pub fn before_fragments(&self) -> Option<Duration> {
        self.own
    }

    /// Ticks that a track counts in a second.
    pub fn ticks_per_s(&self, track_id: u32) -> Option<u64> {
        let track = self.tracks.iter().find(|track| track.id == track_id)?;
        Some(track.clock.ticks_per_s.into())
    }

    pub fn default_sample_ticks(&self, track_id: u32) -> Option<u32> {
        let defaults = self.defaults.iter().find(|defaults| defaults.track_id == track_id)?;
        Some(defaults.sample_ticks)
    }

    /// Reads what a movie says of its fragments (8.8.1 to 8.8.3).
    fn read_extends(&mut self, boxes: &mut Boxes, span: Span, header: Option<Clock>) {
        let mut at = span.body;
        while let Some(child) = boxes.next(at, span.end) {
            at = child.end;
            match &child.kind {
                b"mehd" => {
                    let ticks = boxes.wide_field(child, child.body + 4);
                    let clock = header.map(|clock| Clock { duration_ticks: ticks, ..clock });
                    self.whole = clock.and_then(Clock::duration).filter(|time| !time.is_zero());
                }
                b"trex" if self.defaults.len() < TRACKS_MAX => {
                    let track_id = boxes.excerpts.u32(child.body + 4);
                    let sample_ticks = boxes.excerpts.u32(child.body + 12);
                    let fields = track_id.zip(sample_ticks);
                    self.defaults.extend(
                        fields.map(|(track_id, sample_ticks)| Defaults { track_id, sample_ticks }),
                    );
                }
                _ => {}
            }
        }
    }
}

impl Track {
    /// Reads a track's number and clock (8.3.2, 8.4.2).
    fn read(boxes: &mut Boxes, span: Span) -> Option<Self> {
        let header = boxes.child(b"tkhd", span)?;
        let is_wide = boxes.version(header)? != 0;
        let id = boxes.excerpts.u32(header.body + if is_wide { 20 } else { 12 })?;
        let media = boxes.child(b"mdia", span)?;
        let media_header = boxes.child(b"mdhd", media)?;
        Some(Self { id, clock: Clock::read(boxes, media_header)? })
    }
}
