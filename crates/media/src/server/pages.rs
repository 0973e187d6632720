//! Cache of directory pages, shared by all loops.
//!
//! To look at a thousand files takes milliseconds, in which a loop sends nothing, and whoever wants
//! to can ask again and again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::site::Identity;

/// Greatest age of a page that is sent: what is in the directory may have changed since.
const KEPT: Duration = Duration::from_secs(1);
/// Most bytes of all pages together; with more they are made again.
const BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// Pages by directory and path: the path is on the page, and a directory may have several.
    pages: HashMap<(Identity, Vec<u8>), Page>,
    bytes: usize,
}

#[derive(Debug)]
struct Page {
    made: Instant,
    text: Arc<[u8]>,
}

impl Pages {
    /// The page that was made a moment ago, or a new one.
    ///
    /// # Errors
    /// What `make` says.
    pub fn get<E>(
        &self,
        directory: Identity,
        path: &[u8],
        now: Instant,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Arc<[u8]>, E> {
        let key = (directory, path.to_vec());
        let known = self.lock().pages.get(&key).and_then(|page| {
            let is_new = now.saturating_duration_since(page.made) < KEPT;
            is_new.then(|| page.text.clone())
        });
        if let Some(text) = known {
            return Ok(text);
        }
        // Other loops look up other pages meanwhile.
        let text: Arc<[u8]> = make()?.into();
        let mut book = self.lock();
        if book.bytes + text.len() > BYTES_MAX {
            *book = Book::default();
        }
        book.bytes += text.len();
        let page = Page { made: now, text: text.clone() };
        book.bytes -= book.pages.insert(key, page).map_or(0, |old| old.text.len());
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn get(pages: &Pages, inode: u64, path: &str, now: Instant, text: &str) -> String {
        let make = || Ok::<_, Infallible>(text.as_bytes().to_vec());
        let page = pages.get((1, inode), path.as_bytes(), now, make).unwrap();
        String::from_utf8(page.to_vec()).unwrap()
    }

    #[test]
    fn a_page_is_made_once_a_second_for_each_directory_and_path() {
        let (pages, now) = (Pages::default(), Instant::now());
        assert_eq!(get(&pages, 1, "/", now, "one"), "one");
        assert_eq!(get(&pages, 1, "/", now + KEPT / 2, "two"), "one");
        assert_eq!(get(&pages, 2, "/", now, "other"), "other");
        assert_eq!(get(&pages, 1, "/link/", now, "by a link"), "by a link");
        assert_eq!(get(&pages, 1, "/", now + KEPT, "two"), "two");
        assert_eq!(pages.lock().bytes, "two".len() + "other".len() + "by a link".len());
    }

    #[test]
    fn what_fails_is_not_kept_and_pages_have_an_end() {
        let (pages, now) = (Pages::default(), Instant::now());
        assert_eq!(pages.get((1, 1), b"/", now, || Err("no")), Err("no"));
        for inode in 0..40 {
            let make = || Ok::<_, Infallible>(vec![0; 1 << 20]);
            pages.get((1, inode), b"/", now, make).unwrap();
            assert!(pages.lock().bytes <= BYTES_MAX);
        }
    }
}
