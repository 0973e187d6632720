//! Options of a transfer beyond the bytes of its files.
//!
//! They say what happens to what is there already, which attributes arrive, and whether anything is
//! written or removed at all.

use crate::file_status::FileStatus;
use haul_protocol::{file_life::LifeOptions, message};
use std::time::Duration;

/// Time without a write after which a file counts as complete, by default.
pub const IDLE_DEFAULT: Duration = Duration::from_secs(10);

/// The treatment of a file whose name is taken at the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnConflict {
    /// A file that is the same by size and time stays, one that differs is replaced.
    #[default]
    SkipSame,
    /// Even a file that is the same is replaced.
    Replace,
    /// A file that differs stays, and is an error.
    Fail,
    /// A file that differs stays, and the new one gets a number behind its name.
    KeepBoth,
}

/// The attributes that arrive with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification time.
    pub mtime: bool,
    /// Owner, which needs root.
    pub owner: bool,
    /// Group.
    pub group: bool,
    /// Extended attributes of the user.
    pub xattrs: bool,
    /// Access control lists.
    pub acls: bool,
}

impl Preserve {
    /// No attribute, only bytes.
    pub const NOTHING: Self =
        Self { mode: false, mtime: false, owner: false, group: false, xattrs: false, acls: false };

    /// Every attribute.
    pub const ALL: Self =
        Self { mode: true, mtime: true, owner: true, group: true, xattrs: true, acls: true };

    /// Whether attributes are asked for that a look at the inode does not tell.
    #[must_use]
    pub(crate) fn needs_xattrs(self) -> bool {
        self.xattrs || self.acls
    }

    fn to_bits(self) -> u32 {
        let bits = [self.mode, self.mtime, self.owner, self.group, self.xattrs, self.acls];
        bits.iter().enumerate().map(|(at, bit)| u32::from(*bit) << at).sum()
    }

    fn from_bits(bits: u32) -> Self {
        let has = |at: u32| bits >> at & 1 == 1;
        Self {
            mode: has(0),
            mtime: has(1),
            owner: has(2),
            group: has(3),
            xattrs: has(4),
            acls: has(5),
        }
    }
}

impl Default for Preserve {
    fn default() -> Self {
        Self { mode: true, mtime: true, ..Self::NOTHING }
    }
}

/// Removal of what the sources do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal {
    /// Most names that may go, 1 at least; if more would, none does. `None` for no limit.
    pub names_max: Option<u64>,
    /// Whether the target directory itself is mirrored, as its contents are what is sent (`dir/`).
    /// A transfer finds that out from its sources.
    pub(crate) of_base: bool,
}

impl Removal {
    /// Removal of at most `names_max` names, or of any number.
    #[must_use]
    pub fn new(names_max: Option<u64>) -> Self {
        Self { names_max, of_base: false }
    }
}

/// Treatment of sources that are still being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recording {
    /// Whether each file is sent while it is written, until its writer closes or renames it.
    pub follow: bool,
    /// Whether no byte that was written ever changes, so that nothing is read again at the end.
    pub append_only: bool,
    /// Whether what appears in the source directories is sent too.
    pub watch: bool,
    /// Time without a write after which a file counts as complete.
    pub idle: Duration,
    /// Time without anything new after which a watch ends; `None` for never.
    pub watch_for: Option<Duration>,
}

impl Default for Recording {
    fn default() -> Self {
        Self {
            follow: false,
            append_only: false,
            watch: false,
            idle: IDLE_DEFAULT,
            watch_for: None,
        }
    }
}

/// Options of a transfer beyond the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileOptions {
    /// The treatment of a file whose name is taken at the target.
    pub on_conflict: OnConflict,
    /// Whether files of the same size are compared by their bytes, whatever their times.
    pub compare_content: bool,
    /// Removal of what the sources do not have; `None` removes nothing.
    pub removal: Option<Removal>,
    /// Whether nothing is written.
    pub dry_run: bool,
    /// Whether a dry run looks at both hosts too.
    pub preflight: bool,
    /// Whether both sides say how they chose.
    pub explain: bool,
    /// Whether a source is removed once it is durable at the target.
    pub move_sources: bool,
    /// Attributes that arrive with a file.
    pub preserve: Preserve,
    /// Treatment of sources that are still being written.
    pub recording: Recording,
    /// Whether what arrives is made durable and then thrown away: it was only to be measured.
    pub discard: bool,
    /// Whether what an earlier run left at the target is read back before it is believed.
    pub recheck: bool,
    /// Whether some files are offered in ranges, of which other runs bring the rest. A transfer
    /// finds that out from its sources.
    pub(crate) ranges: bool,
}

impl FileOptions {
    /// Whether the target is as it was in the end, whatever was done.
    #[must_use]
    pub(crate) fn leaves_nothing(self) -> bool {
        self.dry_run || self.discard
    }

    /// Options that decide how files go on.
    pub(crate) fn life(self) -> LifeOptions {
        LifeOptions {
            compare_content: self.compare_content,
            dry_run: self.dry_run,
            move_sources: self.move_sources,
            watches: self.recording.watch,
        }
    }

    /// Outcome for a name that was not offered.
    pub(crate) fn removal_status(self) -> FileStatus {
        if self.dry_run { FileStatus::WouldRemove } else { FileStatus::Removed }
    }

    /// Whether a peer may read whole files, or all of a target, before it says anything.
    pub(crate) fn takes_long(self) -> bool {
        self.compare_content || self.removal.is_some() || self.recording.follow
    }

    pub(crate) fn to_message(self, selection_follows: bool) -> message::FileOptions {
        let on_conflict = match self.on_conflict {
            OnConflict::SkipSame => message::OnConflict::SkipSame,
            OnConflict::Replace => message::OnConflict::Replace,
            OnConflict::Fail => message::OnConflict::Fail,
            OnConflict::KeepBoth => message::OnConflict::KeepBoth,
        };
        message::FileOptions {
            on_conflict,
            compare_content: self.compare_content,
            remove_extra: self.removal.is_some(),
            mirrors_base: self.removal.is_some_and(|removal| removal.of_base),
            removals_max: self.removal.and_then(|removal| removal.names_max).unwrap_or(0),
            dry_run: self.dry_run,
            preflight: self.preflight,
            explain: self.explain,
            move_sources: self.move_sources,
            preserve: self.preserve.to_bits(),
            selection_follows,
            follow: self.recording.follow,
            idle_ms: whole_ms(self.recording.idle),
            append_only: self.recording.append_only,
            watch: self.recording.watch,
            watch_for_ms: self.recording.watch_for.map_or(0, whole_ms),
            discard: self.discard,
            recheck: self.recheck,
            ranges: self.ranges,
        }
    }

    pub(crate) fn from_message(file_options: Option<&message::FileOptions>) -> Self {
        let Some(file_options) = file_options else { return Self::default() };
        let on_conflict = match file_options.on_conflict {
            message::OnConflict::SkipSame => OnConflict::SkipSame,
            message::OnConflict::Replace => OnConflict::Replace,
            message::OnConflict::Fail => OnConflict::Fail,
            message::OnConflict::KeepBoth => OnConflict::KeepBoth,
        };
        let names_max = Some(file_options.removals_max).filter(|max| *max > 0);
        let of_base = file_options.mirrors_base;
        Self {
            on_conflict,
            compare_content: file_options.compare_content,
            removal: file_options.remove_extra.then_some(Removal { names_max, of_base }),
            dry_run: file_options.dry_run,
            preflight: file_options.preflight,
            explain: file_options.explain,
            move_sources: file_options.move_sources,
            preserve: Preserve::from_bits(file_options.preserve),
            recording: Recording {
                follow: file_options.follow,
                append_only: file_options.append_only,
                watch: file_options.watch,
                idle: Duration::from_millis(file_options.idle_ms),
                watch_for: Some(file_options.watch_for_ms)
                    .filter(|ms| *ms > 0)
                    .map(Duration::from_millis),
            },
            discard: file_options.discard,
            recheck: file_options.recheck,
            ranges: file_options.ranges,
        }
    }
}

fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_arrive_as_they_were_said() {
        let plain = FileOptions::default();
        assert_eq!(FileOptions::from_message(None), plain);
        let all = FileOptions {
            on_conflict: OnConflict::KeepBoth,
            compare_content: true,
            removal: Some(Removal { names_max: Some(7), of_base: true }),
            dry_run: true,
            preflight: true,
            explain: true,
            move_sources: true,
            preserve: Preserve::ALL,
            recording: Recording {
                follow: true,
                append_only: true,
                watch: true,
                idle: Duration::from_millis(1500),
                watch_for: Some(Duration::from_secs(60)),
            },
            discard: true,
            recheck: true,
            ranges: true,
        };
        for file_options in [plain, all, FileOptions { preserve: Preserve::NOTHING, ..all }] {
            assert_eq!(
                FileOptions::from_message(Some(&file_options.to_message(false))),
                file_options
            );
        }
        assert_eq!(plain.to_message(false).preserve, 3);
    }
}
