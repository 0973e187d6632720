//! Boxes of an MP4 file: a size, a kind, a body (ISO/IEC 14496-12, 4.2).

use crate::container::excerpts::Excerpts;

/// Most boxes looked at in one file. A long film in fragments has thousands; its index, or its
/// first, are enough.
const BOXES_MAX: u32 = 1_000;

/// The place of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub kind: [u8; 4],
    pub at: u64,
    pub body: u64,
    /// End of the box, not behind the end of what surrounds it, whatever it says.
    pub end: u64,
    /// The end that the box itself says.
    pub said_end: u64,
}

pub struct Boxes<'one, 'file> {
    pub excerpts: &'one mut Excerpts<'file>,
    left: u32,
}

impl<'one, 'file> Boxes<'one, 'file> {
    pub fn new(excerpts: &'one mut Excerpts<'file>) -> Self {
        Self { excerpts, left: BOXES_MAX }
    }

    /// Reads the box at `at`. `None`: there is none before `end`, or what is there is no box, or
    /// there were too many.
    pub fn next(&mut self, at: u64, end: u64) -> Option<Span> {
        if at >= end {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let short = self.excerpts.u32(at)?;
        let kind = self.excerpts.array(at + 4)?;
        let (size, head_bytes) = match short {
            // It goes on to the end.
            0 => (end - at, 8),
            1 => (self.excerpts.u64(at + 8)?, 16),
            size => (size.into(), 8),
        };
        if size < head_bytes {
            return None;
        }
        let (body, said_end) = (at + head_bytes, at.saturating_add(size));
        Some(Span { kind, at, body, end: said_end.min(end).max(body), said_end })
    }

    /// The first box of a kind within another.
    pub fn child(&mut self, kind: &[u8; 4], parent: Span) -> Option<Span> {
        let mut at = parent.body;
        loop {
            let span = self.next(at, parent.end)?;
            if span.kind == *kind {
                return Some(span);
            }
            at = span.end;
        }
    }

    /// The version of a box that has one (4.2.2).
    pub fn version(&mut self, span: Span) -> Option<u8> {
        self.excerpts.array(span.body).map(|[version]| version)
    }

    pub fn flags(&mut self, span: Span) -> Option<u32> {
        self.excerpts.u32(span.body).map(|word| word & 0x00ff_ffff)
    }

    /// A field of 4 bytes, or 8 in boxes of version 1.
    pub fn wide_field(&mut self, span: Span, at: u64) -> Option<u64> {
        match self.version(span)? {
            0 => self.excerpts.u32(at).map(u64::from),
            _ => self.excerpts.u64(at),
        }
    }
}
