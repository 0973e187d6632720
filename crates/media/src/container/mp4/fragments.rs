//! Play time of a movie in fragments that has neither a whole duration nor an index.
//!
//! It lasts from the begin of the first fragment to the end of the last (8.8).

use std::time::Duration;

use super::{
    boxes::{Boxes, Span},
    movie::Movie,
};
use crate::container::{scaled, time_of_ticks};

/// Most samples of a run that are added up, as a fragment plays for seconds.
const SAMPLES_MAX: u32 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    begin: Duration,
    end: Duration,
}

/// Play time of a movie in fragments, of which `first` is the first. Where all cannot be looked at,
/// and no list names the last, those that were are taken for all.
pub fn play_time(boxes: &mut Boxes, movie: &Movie, first: Span) -> Option<Duration> {
    let file_end = boxes.excerpts.len_bytes();
    let first_times = times(boxes, movie, first)?;
    let last = last_listed(boxes, first);
    let mut end = first_times.end;
    let mut at = first.end;
    if let Some((span, times)) = last.and_then(|it| Some((it, times(boxes, movie, it)?))) {
        end = times.end;
        at = span.end;
    }
    while let Some(span) = boxes.next(at, file_end) {
        if span.kind == *b"moof" {
            let Some(times) = times(boxes, movie, span) else { break };
            end = end.max(times.end);
        }
        at = span.end;
    }
    // The movie itself may hold what comes before the first fragment.
    let own = movie.before_fragments().unwrap_or_default();
    let begin = if first_times.begin <= own { Duration::ZERO } else { first_times.begin };
    scaled(end.checked_sub(begin)?, at - first.at, file_end - first.at)
}

/// The fragment that comes last in the lists at the file's end (8.8.9 to 8.8.11). Others may
/// follow it.
fn last_listed(boxes: &mut Boxes, first: Span) -> Option<Span> {
    let file_end = boxes.excerpts.len_bytes();
    let trailer = file_end.checked_sub(16)?;
    if boxes.excerpts.array(trailer + 4)? != *b"mfro" {
        return None;
    }
    let lists_bytes = u64::from(boxes.excerpts.u32(trailer + 12)?);
    let lists = boxes.next(file_end.checked_sub(lists_bytes)?, file_end)?;
    let mut last_at = None;
    let mut at = lists.body;
    while let Some(list) = boxes.next(at, lists.end) {
        at = list.end;
        if list.kind == *b"tfra" {
            last_at = last_at.max(last_of_list(boxes, list));
        }
    }
    let last = boxes.next(last_at.filter(|at| *at > first.at)?, file_end)?;
    (last.kind == *b"moof").then_some(last)
}

/// Place of the last fragment of one track.
fn last_of_list(boxes: &mut Boxes, list: Span) -> Option<u64> {
    let number_lens = boxes.excerpts.u32(list.body + 8)?;
    let numbers_bytes: u32 = [4, 2, 0].map(|shift| (number_lens >> shift & 3) + 1).iter().sum();
    let is_wide = boxes.version(list)? != 0;
    let field_bytes = if is_wide { 8 } else { 4 };
    let entry_bytes = 2 * field_bytes + u64::from(numbers_bytes);
    let count = u64::from(boxes.excerpts.u32(list.body + 12)?);
    let entry = list.body + 16 + count.checked_sub(1)? * entry_bytes;
    boxes.wide_field(list, entry + field_bytes)
}

/// Begin and end of a fragment: from the first sample of all tracks to the end of the last.
fn times(boxes: &mut Boxes, movie: &Movie, fragment: Span) -> Option<Times> {
    let mut all: Option<Times> = None;
    let mut at = fragment.body;
    while let Some(child) = boxes.next(at, fragment.end) {
        at = child.end;
        if child.kind == *b"traf"
            && let Some(track) = track_times(boxes, movie, child)
        {
            let before = all.unwrap_or(track);
            all = Some(Times {
                begin: before.begin.min(track.begin),
                end: before.end.max(track.end),
            });
        }
    }
    all
}

/// Begin and end of one track within a fragment (8.8.6 to 8.8.8, 8.8.12).
fn track_times(boxes: &mut Boxes, movie: &Movie, span: Span) -> Option<Times> {
    let (mut track_id, mut begin, mut sample_ticks) = (None, None, None);
    let mut ticks = 0_u64;
    let mut at = span.body;
    while let Some(child) = boxes.next(at, span.end) {
        at = child.end;
        match &child.kind {
            b"tfhd" => {
                let flags = boxes.flags(child)?;
                let id = boxes.excerpts.u32(child.body + 4)?;
                track_id = Some(id);
                let before = u64::from(flags & 1) * 8 + u64::from(flags >> 1 & 1) * 4;
                sample_ticks = match flags & 8 {
                    0 => movie.default_sample_ticks(id),
                    _ => boxes.excerpts.u32(child.body + 8 + before),
                };
            }
            b"tfdt" => begin = boxes.wide_field(child, child.body + 4),
            b"trun" => ticks = ticks.checked_add(run_ticks(boxes, child, sample_ticks)?)?,
            _ => {}
        }
    }
    let ticks_per_s = movie.ticks_per_s(track_id?)?;
    let begin = begin?;
    Some(Times {
        begin: time_of_ticks(begin, ticks_per_s)?,
        end: time_of_ticks(begin.checked_add(ticks)?, ticks_per_s)?,
    })
}

/// The time of a run of samples.
fn run_ticks(boxes: &mut Boxes, run: Span, sample_ticks: Option<u32>) -> Option<u64> {
    let flags = boxes.flags(run)?;
    let count = boxes.excerpts.u32(run.body + 4)?;
    if flags & 0x100 == 0 {
        return Some(u64::from(count) * u64::from(sample_ticks?));
    }
    // Time, size, flags and offset of each, those that are there.
    let entry_bytes = 4 * u64::from((flags & 0xf00).count_ones());
    let table = run.body + 8 + u64::from(flags & 1) * 4 + u64::from(flags >> 2 & 1) * 4;
    let there = run.end.saturating_sub(table) / entry_bytes;
    if count > SAMPLES_MAX || u64::from(count) > there {
        return None;
    }
    let mut ticks = 0;
    for number in 0..u64::from(count) {
        ticks += u64::from(boxes.excerpts.u32(table + number * entry_bytes)?);
    }
    Some(ticks)
}
