//! Sources below a directory that nothing leads out of, on this side.

use super::{
    named_sources::asked,
    root::{Links, Root},
    walk::{Listed, Top},
};
use crate::{error::io_fault, options::Beneath, state::usual_state_directories};
use haul_protocol::message::Side;
use rustix::fs::Stat;
use std::{io, sync::Arc};

impl Beneath {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it is none that can be opened.
    pub(crate) fn open(&self) -> io::Result<Arc<Root>> {
        Root::open_without(&self.root, &usual_state_directories())
    }

    /// The inode at the path.
    ///
    /// # Errors
    /// If none is there, or the path leads out.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        let path = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        self.open()?.stat(path, Links::Follow)
    }

    /// The source, for a walk.
    #[must_use]
    pub(super) fn top(&self) -> Top {
        match self.open() {
            Ok(root) => asked(Some(&root), &self.path),
            Err(error) => {
                let fault = io_fault(Side::Source, &self.path, "cannot be read", &error);
                Top::Listed(Listed::Failed(fault))
            }
        }
    }

    /// Text of the path from `/` on, for messages.
    #[must_use]
    pub(crate) fn text(&self) -> Vec<u8> {
        super::root::join(self.root.as_os_str().as_encoded_bytes(), &self.path)
    }
}
