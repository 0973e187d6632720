//! Check of whether what is offered fits the target's file system, before most of it is sent.
//!
//! Each file takes its space before its first byte, and fails alone where there is none. A tree
//! that cannot fit is told as soon as the offers show it: they come long before the bytes.

use super::{context::Context, stage::Stage};
use crate::{storage::free_space::free_bytes_of, words};
use haul_protocol::message::{FileKind, FileOffer};

/// The space that offered files are still to take.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Free space before the first file took any, in bytes; `None`: not known.
    free_bytes: Option<u64>,
    is_looked_at: bool,
    needed_bytes: u64,
    files: u64,
    is_over: bool,
}

impl Room {
    /// Adds a file that is to come. Says once what the files need and what is free, where they do
    /// not fit: of a single file its own fault says that.
    fn needs(&mut self, bytes: u64) -> Option<(u64, u64)> {
        self.needed_bytes = self.needed_bytes.saturating_add(bytes);
        self.files += u64::from(bytes > 0);
        let free_bytes = self.free_bytes?;
        let is_news = !self.is_over && self.files > 1 && self.needed_bytes > free_bytes;
        self.is_over |= is_news;
        is_news.then_some((self.needed_bytes, free_bytes))
    }
}

impl Room {
    /// Counts a file that is to come, of which so many bytes are there.
    pub fn count(&mut self, size_bytes: u64, there_bytes: u64, context: &mut Context<'_>) {
        if let Some((needed, free)) = self.needs(size_bytes - there_bytes) {
            let (needed, free) = (words::bytes(needed), words::bytes(free));
            let why = format!(
                "what was offered so far needs {needed}, and {free} are free: files that do not \
                 fit fail, and the same command brings them when there is room"
            );
            context.tell_fallback("free space", why);
        }
    }
}

impl Stage for Room {
    /// Looks at the free space before the first file takes any of it.
    fn offered(&mut self, offer: &FileOffer, context: &mut Context<'_>) {
        let is_file = offer.kind == FileKind::Regular;
        if is_file && !std::mem::replace(&mut self.is_looked_at, true) {
            self.free_bytes = free_bytes_of(&context.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{events::Event, file_options::FileOptions, session::receiving::without_peer};

    #[test]
    fn files_that_do_not_fit_together_are_told_once_and_a_single_one_by_its_own_fault() {
        let mut room = Room { free_bytes: Some(100), ..Room::default() };
        assert_eq!(room.needs(60), None);
        assert_eq!(room.needs(40), None, "it fits exactly");
        assert_eq!(room.needs(1), Some((101, 100)));
        assert_eq!(room.needs(50), None, "it was said");
        let mut single = Room { free_bytes: Some(100), ..Room::default() };
        assert_eq!((single.needs(0), single.needs(500)), (None, None), "a directory needs none");
        let mut unknown = Room::default();
        assert_eq!((unknown.needs(u64::MAX), unknown.needs(u64::MAX)), (None, None));
    }

    #[test]
    fn an_empty_file_makes_no_second_one() {
        let mut room = Room { free_bytes: Some(100), ..Room::default() };
        assert_eq!([room.needs(500), room.needs(0)], [None, None]);
        assert_eq!(room.needs(1), Some((501, 100)));
    }

    #[test]
    fn free_space_is_looked_at_before_the_first_file_and_a_lack_of_it_told_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let place = without_peer::place(directory.path(), FileOptions::default());
        let mut context = without_peer::begin(place, &mut hear).context;
        let mut room = Room::default();
        let offer = |kind| FileOffer { kind, ..FileOffer::default() };
        room.offered(&offer(FileKind::Directory), &mut context);
        assert_eq!(room.free_bytes, None, "a directory takes none");
        room.offered(&offer(FileKind::Regular), &mut context);
        assert!(room.free_bytes.is_some_and(|free| free > 0), "{room:?}");
        room.free_bytes = Some(7);
        room.offered(&offer(FileKind::Regular), &mut context);
        assert_eq!(room.free_bytes, Some(7), "files that came first have taken some by now");
        [7, 1, 1].into_iter().for_each(|bytes| room.count(bytes + 10, 10, &mut context));
        drop(context);
        let [Event::Fallback { from_to, why, .. }] = &told[..] else { panic!("{told:?}") };
        assert!(
            from_to == "free space" && why.contains("needs 8 bytes, and 7 bytes are free"),
            "{why}"
        );
    }
}
