//! Attributes of a file beside its bytes: mode, time, owner, extended attributes, ACLs. They are
//! read and set as far as the user asked for them.
//!
//! Owners are matched by name where this host knows the name, else by number. Of extended
//! attributes only `user.*` arrive: `security.*` could give rights that nobody here gave, and
//! `trusted.*` steers file systems such as overlayfs.

use crate::{
    error::io_fault,
    file_options::Preserve,
    locks::{Lock, lock},
};
use haul_protocol::{
    limits,
    message::{Fault, FaultCode, FileOffer, Owner, Side, Xattr},
};
use rustix::{
    fs::{
        AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown, fgetxattr,
        flistxattr, fremovexattr, fsetxattr, fstat, futimens, statat, utimensat,
    },
    io::Errno,
    process::geteuid,
};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt,
    },
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Permission bits, which are all that arrives: set-user-id bits from elsewhere would be a way in.
pub(super) const MODE_BITS: u32 = 0o777;

/// Names of the two attributes that hold ACLs, in the kernel's own format (acl(5)).
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Names of users and groups, looked up once each, for a look-up can be a question to another host.
#[derive(Debug, Default)]
struct Names {
    users: BTreeMap<u32, Vec<u8>>,
    groups: BTreeMap<u32, Vec<u8>>,
    uids: BTreeMap<Vec<u8>, Option<u32>>,
    gids: BTreeMap<Vec<u8>, Option<u32>>,
}

/// Reads and sets attributes.
#[derive(Debug, Default)]
pub struct Attributes {
    pub preserve: Preserve,
    names: Lock<Names>,
    /// Sentence about the first time of a file that a file system did not keep.
    unkept_time: OnceLock<String>,
    unkept_told: AtomicBool,
    /// Extended attributes that were set or removed.
    changed_xattrs: AtomicU64,
    /// Number of entries that were there already and lacked some of what the source has.
    updated: AtomicU64,
}

impl Attributes {
    #[must_use]
    pub fn new(preserve: Preserve) -> Self {
        Self { preserve, ..Self::default() }
    }

    /// Adds the owner to an offer, where it is asked for.
    pub fn describe_owner(&self, stat: &Stat, offer: &mut FileOffer) {
        if !self.preserve.owner && !self.preserve.group {
            return;
        }
        let mut names = lock(&self.names);
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        let user = names.users.entry(uid).or_insert_with(|| {
            let user = uzers::get_user_by_uid(uid);
            user.map_or_else(Vec::new, |user| short(user.name()))
        });
        let user = user.clone();
        let group = names.groups.entry(gid).or_insert_with(|| {
            let group = uzers::get_group_by_gid(gid);
            group.map_or_else(Vec::new, |group| short(group.name()))
        });
        offer.owner = Some(Owner { uid, gid, user, group: group.clone() });
    }

    /// The extended attributes and ACLs of an open file, as far as they are asked for.
    ///
    /// # Errors
    /// If they cannot be read, or there are more than an offer may hold.
    pub fn read_xattrs(&self, file: impl AsFd) -> io::Result<Vec<Xattr>> {
        if !self.preserve.needs_xattrs() {
            return Ok(Vec::new());
        }
        let file = file.as_fd();
        let mut xattrs = Vec::new();
        let mut bytes = 0;
        for name in list(file)?.split(|&byte| byte == 0).filter(|name| self.takes(name)) {
            let Some(value) = get(file, name)? else { continue };
            bytes += name.len() + value.len();
            if xattrs.len() == limits::XATTRS_MAX || bytes > limits::XATTR_BYTES_MAX {
                let (count, kib) = (limits::XATTRS_MAX, limits::XATTR_BYTES_MAX >> 10);
                let what = format!("it has more than {count} attributes or {kib} KiB of them");
                return Err(io::Error::other(what));
            }
            xattrs.push(Xattr { name: name.to_vec(), value });
        }
        xattrs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(xattrs)
    }

    /// Whether an attribute of this name is read and set.
    fn takes(&self, name: &[u8]) -> bool {
        let is_acl = ACLS.contains(&name);
        let is_plain = name.starts_with(b"user.");
        (self.preserve.acls && is_acl) || (self.preserve.xattrs && is_plain)
    }

    /// Gives an open file or directory what was offered with it. `has_time`: the offer's time is
    /// one.
    ///
    /// # Errors
    /// If something that was asked for cannot be set.
    pub fn apply(&self, file: impl AsFd, offer: &FileOffer, has_time: bool) -> io::Result<()> {
        self.apply_to(file, None, offer, has_time)
    }

    /// Gives attributes as [`Self::apply`] does to a file that is known to have the mode
    /// `has_mode`.
    pub(super) fn apply_to(
        &self,
        file: impl AsFd,
        has_mode: Option<u32>,
        offer: &FileOffer,
        has_time: bool,
    ) -> io::Result<()> {
        let file = file.as_fd();
        // Before mode and owner, behind which they may not be set any more.
        if self.preserve.xattrs {
            self.set_xattrs(file, offer, false)?;
        }
        if let Some((uid, gid)) = self.owner_of(offer)
            && let Err(errno) = fchown(file, uid, gid)
        {
            return Err(named(errno, "its owner or group may not be set"));
        }
        let mode = self.mode_of(offer);
        if has_mode != Some(mode)
            && let Err(errno) = fchmod(file, Mode::from_raw_mode(mode))
        {
            // FAT and the like have no modes, and refuse even the owner.
            let is_ours = fstat(file).is_ok_and(|stat| stat.st_uid == geteuid().as_raw());
            if !(is_ours && matches!(errno, Errno::PERM | Errno::OPNOTSUPP)) {
                return Err(named(errno, "its mode cannot be set"));
            }
        }
        if self.preserve.acls {
            self.set_xattrs(file, offer, true)?;
        }
        if has_time && self.preserve.mtime {
            self.set_time(offer, |times| futimens(file, times), || fstat(file))
                .map_err(|errno| named(errno, "its time cannot be set"))?;
        }
        Ok(())
    }

    /// Sets the time of modification and looks at what came of it.
    fn set_time(
        &self,
        offer: &FileOffer,
        set: impl Fn(&Timestamps) -> rustix::io::Result<()>,
        look: impl Fn() -> rustix::io::Result<Stat>,
    ) -> rustix::io::Result<()> {
        set(&times_of(offer))?;
        let mut there = look()?;
        if has_time_of(&there, offer) {
            return Ok(());
        }
        // FUSE file systems by libfuse 2 ignore a time that comes alone, and say that all is well
        // (fuse_lib_setattr in its lib/fuse.c: UTIME_OMIT only with `flag_utime_omit_ok`).
        let last_access =
            Timespec { tv_sec: there.st_atime, tv_nsec: there.st_atime_nsec.cast_signed() };
        set(&Timestamps { last_access, ..times_of(offer) })?;
        there = look()?;
        if !has_time_of(&there, offer) {
            let (is_s, is_ns) = (there.st_mtime, there.st_mtime_nsec);
            self.unkept_time.get_or_init(|| {
                format!(
                    "the file system keeps others than it is given: {}.{:09} s since \
                     1970 became {is_s}.{is_ns:09} for {}. The same command sends such files \
                     again; with --checksum-compare it does not",
                    offer.mtime_s,
                    offer.mtime_ns,
                    offer.name.escape_ascii()
                )
            });
        }
        Ok(())
    }

    /// Says once that a file system did not keep the time of a file, and what that means.
    pub fn take_unkept_time(&self) -> Option<String> {
        let words = self.unkept_time.get()?;
        (!self.unkept_told.swap(true, Ordering::Relaxed)).then(|| words.clone())
    }

    /// Sets owner and time of a symbolic link, which has no mode or attributes of its own.
    ///
    /// # Errors
    /// If an owner was asked for and cannot be set.
    pub fn apply_to_link(
        &self,
        directory: impl AsFd,
        name: &[u8],
        offer: &FileOffer,
    ) -> io::Result<()> {
        let directory = directory.as_fd();
        if let Some((uid, gid)) = self.owner_of(offer) {
            rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| named(errno, "its owner or group may not be set"))?;
        }
        if self.preserve.mtime {
            // A file system that keeps no times of links is no reason to fail.
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let set = |times: &Timestamps| utimensat(directory, name, times, flags);
            let _ = self.set_time(offer, set, || statat(directory, name, flags));
        }
        Ok(())
    }

    /// Whether a file that holds the same bytes lacks some of what was offered with it. What only
    /// the open file tells is taken for different.
    #[must_use]
    pub fn may_differ(&self, there: &Stat, offer: &FileOffer) -> bool {
        let time_differs = self.preserve.mtime && !has_time_of(there, offer);
        time_differs || self.owner_or_mode_differs(there, offer) || self.preserve.needs_xattrs()
    }

    fn owner_or_mode_differs(&self, there: &Stat, offer: &FileOffer) -> bool {
        let owner_differs = self.owner_of(offer).is_some_and(|(uid, gid)| {
            uid.is_some_and(|uid| uid.as_raw() != there.st_uid)
                || gid.is_some_and(|gid| gid.as_raw() != there.st_gid)
        });
        let mode_differs =
            self.preserve.mode && there.st_mode & MODE_BITS != offer.mode & MODE_BITS;
        owner_differs || mode_differs
    }

    /// Brings a file that holds the same bytes up to date, and counts it where something was
    /// missing. In a dry run it is only counted; extended attributes are not looked at then.
    ///
    /// # Errors
    /// As [`Self::apply`], and of `open`.
    pub(super) fn bring_up_to_date<F: AsFd>(
        &self,
        (there, offer): (&Stat, &FileOffer),
        dry_run: bool,
        open: impl FnOnce() -> io::Result<F>,
    ) -> io::Result<()> {
        if !self.may_differ(there, offer) {
            return Ok(());
        }
        let time_differs = self.preserve.mtime && !has_time_of(there, offer);
        let mut differs = time_differs || self.owner_or_mode_differs(there, offer);
        if !dry_run {
            let before = self.changed_xattrs.load(Ordering::Relaxed);
            self.apply(open()?, offer, has_time(offer))?;
            differs |= self.changed_xattrs.load(Ordering::Relaxed) > before;
        }
        self.updated.fetch_add(differs.into(), Ordering::Relaxed);
        Ok(())
    }

    /// Counts a directory that was there and gets another mode or owner at the end. Its time
    /// changes by what comes into it.
    pub(super) fn count_directory(&self, there: &Stat, offer: &FileOffer) {
        let differs = may_change(there, geteuid()) && self.owner_or_mode_differs(there, offer);
        self.updated.fetch_add(differs.into(), Ordering::Relaxed);
    }

    /// Number of entries that were there already and lacked some of what the source has.
    pub fn updated(&self) -> u64 {
        self.updated.load(Ordering::Relaxed)
    }

    /// The permission bits that a target gets: the source's, as it is. Where modes are not kept,
    /// the umask takes its part of them, as cp(1) has it; nobody may do more than at the source.
    pub(super) fn mode_of(&self, offer: &FileOffer) -> u32 {
        let mode = offer.mode & MODE_BITS;
        if self.preserve.mode { mode } else { mode & !umask() }
    }

    /// The owner and group here, as far as they are asked for and were offered.
    fn owner_of(&self, offer: &FileOffer) -> Option<(Option<Uid>, Option<Gid>)> {
        let owner = offer.owner.as_ref()?;
        let mut names = lock(&self.names);
        let uid = self.preserve.owner.then(|| {
            let known = names.uids.entry(owner.user.clone()).or_insert_with(|| {
                uzers::get_user_by_name(OsStr::from_bytes(&owner.user)).map(|user| user.uid())
            });
            Uid::from_raw(known.unwrap_or(owner.uid))
        });
        let gid = self.preserve.group.then(|| {
            let known = names.gids.entry(owner.group.clone()).or_insert_with(|| {
                uzers::get_group_by_name(OsStr::from_bytes(&owner.group)).map(|group| group.gid())
            });
            Gid::from_raw(known.unwrap_or(owner.gid))
        });
        Some((uid, gid)).filter(|(uid, gid)| uid.is_some() || gid.is_some())
    }

    /// Sets the ACLs of the offer, or its other extended attributes, and removes those not offered.
    fn set_xattrs(&self, file: BorrowedFd<'_>, offer: &FileOffer, acls: bool) -> io::Result<()> {
        let is_meant = |name: &[u8]| ACLS.contains(&name) == acls && self.takes(name);
        let there = list(file)?;
        for name in there.split(|&byte| byte == 0).filter(|name| is_meant(name)) {
            if !offer.xattrs.iter().any(|xattr| xattr.name == name) {
                match fremovexattr(file, name) {
                    Ok(()) => _ = self.changed_xattrs.fetch_add(1, Ordering::Relaxed),
                    Err(Errno::NODATA) => {}
                    Err(errno) => return Err(attribute_failed(errno, name)),
                }
            }
        }
        for xattr in offer.xattrs.iter().filter(|xattr| is_meant(&xattr.name)) {
            if get(file, &xattr.name).is_ok_and(|value| value.as_ref() == Some(&xattr.value)) {
                continue;
            }
            fsetxattr(file, &*xattr.name, &xattr.value, XattrFlags::empty())
                .map_err(|errno| attribute_failed(errno, &xattr.name))?;
            self.changed_xattrs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Whether an offer has a modification time; `zero:` has none, as it is no file.
pub(super) fn has_time(offer: &FileOffer) -> bool {
    (offer.inode, offer.device) != (0, 0)
}

/// Whether a user may give an inode another mode.
fn may_change(there: &Stat, user: Uid) -> bool {
    user.is_root() || there.st_uid == user.as_raw()
}

/// The fault of attributes that were asked for and cannot be set.
#[must_use]
pub fn attributes_fault(name: &[u8], error: &io::Error) -> Fault {
    let fault = io_fault(Side::Target, name, "cannot be given its attributes", error);
    if fault.code == FaultCode::NotPermitted {
        return fault.hint("run that side as root, or leave it out of --preserve");
    }
    fault
}

fn named(errno: Errno, what: &str) -> io::Error {
    let error = io::Error::from(errno);
    // Without the number nobody could tell a missing right from a broken disk.
    if matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::DQUOT | Errno::ROFS) {
        return error;
    }
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn attribute_failed(errno: Errno, name: &[u8]) -> io::Error {
    named(errno, &format!("the extended attribute {} cannot be set", name.escape_ascii()))
}

fn short(name: &OsStr) -> Vec<u8> {
    let name = name.as_bytes();
    if name.len() <= limits::SHORT_NAME_BYTES_MAX { name.to_vec() } else { Vec::new() }
}

/// The names of all attributes, each with a zero byte behind it.
fn list(file: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    // The longest list that the kernel gives is 64 KiB (xattr(7)).
    let mut names = vec![0; 64 << 10];
    match flistxattr(file, &mut names) {
        Ok(len) => names.truncate(len),
        Err(Errno::OPNOTSUPP) => names.clear(),
        Err(errno) => return Err(errno.into()),
    }
    Ok(names)
}

/// Value of an extended attribute; `None` when it went away meanwhile.
fn get(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    // No value is longer (xattr(7)).
    let mut value = vec![0; 64 << 10];
    match fgetxattr(file, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Permission bits that new files of this process lack (umask). Asking by umask(2) would change it
/// for a moment, for all threads.
pub(super) fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(0o022)
    })
}

fn has_time_of(there: &Stat, offer: &FileOffer) -> bool {
    there.st_mtime == offer.mtime_s && u32::try_from(there.st_mtime_nsec) == Ok(offer.mtime_ns)
}

pub(super) fn times_of(offer: &FileOffer) -> Timestamps {
    let mtime = Timespec { tv_sec: offer.mtime_s, tv_nsec: offer.mtime_ns.into() };
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    Timestamps { last_access: omit, last_modification: mtime }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::{mount::Mount, skip::skip};
    use rustix::fs::{IFlags, ioctl_setflags};
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn attributes_arrive_as_asked_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let source = File::create(directory.path().join("a")).unwrap();
        let target = File::create(directory.path().join("b")).unwrap();
        let flags = XattrFlags::empty();
        if fsetxattr(&source, "user.one", b"1", flags).is_err() {
            return skip("extended attributes", "a file system without");
        }
        fsetxattr(&target, "user.one", b"other", flags).unwrap();
        fsetxattr(&target, "user.extra", b"x", flags).unwrap();
        source.set_permissions(Permissions::from_mode(0o444)).unwrap();
        let all = Attributes::new(Preserve { owner: false, group: false, ..Preserve::ALL });
        let mut offer = FileOffer { mode: 0o444, mtime_s: 77, ..FileOffer::default() };
        offer.xattrs = all.read_xattrs(&source).unwrap();
        for evil in ["security.evil", "trusted.overlay.opaque"] {
            offer.xattrs.push(Xattr { name: evil.into(), value: vec![b'y'] });
        }
        all.apply(&target, &offer, true).unwrap();
        assert_eq!(all.read_xattrs(&target).unwrap(), all.read_xattrs(&source).unwrap());
        for evil in [&b"security.evil"[..], b"trusted.overlay.opaque"] {
            assert_eq!(get(target.as_fd(), evil).unwrap(), None);
        }
        let stat = fstat(&target).unwrap();
        assert_eq!((stat.st_mode & 0o777, stat.st_mtime), (0o444, 77));
        let nothing = Attributes::new(Preserve::NOTHING);
        assert!(nothing.read_xattrs(&source).unwrap().is_empty());
        nothing.apply(&target, &offer, true).unwrap();
        let stat = fstat(&target).unwrap();
        assert_eq!((stat.st_mode & 0o777, stat.st_mtime), (0o444 & !umask(), 77));
        for (mode, kept) in [(0o600, 0o600), (0o777, 0o777 & !umask()), (0o4755, 0o755 & !umask())]
        {
            let offer = FileOffer { mode, ..FileOffer::default() };
            assert_eq!(nothing.mode_of(&offer), kept, "{mode:o}");
        }
        assert!(!nothing.may_differ(&stat, &offer) && all.may_differ(&stat, &offer));
    }

    /// Behaviour of libfuse 2: a time that comes alone is ignored.
    #[test]
    fn a_time_that_is_ignored_alone_is_set_with_the_other_and_what_is_not_kept_is_told_once() {
        let file = tempfile::tempfile().unwrap();
        let attributes = Attributes::new(Preserve::default());
        let offer = |mtime_s| FileOffer { mtime_s, name: b"it".into(), ..FileOffer::default() };
        let accessed = fstat(&file).unwrap().st_atime;
        let ignores = |times: &Timestamps| {
            let is_alone = times.last_access.tv_nsec == rustix::fs::UTIME_OMIT;
            if is_alone { Ok(()) } else { futimens(&file, times) }
        };
        attributes.set_time(&offer(77), ignores, || fstat(&file)).unwrap();
        let there = fstat(&file).unwrap();
        assert_eq!((there.st_mtime, there.st_atime), (77, accessed));
        assert_eq!(attributes.take_unkept_time(), None);
        let even = |times: &Timestamps| {
            let mut kept = times.clone();
            kept.last_modification.tv_sec &= !1;
            futimens(&file, &kept)
        };
        for mtime_s in [79, 81] {
            attributes.set_time(&offer(mtime_s), even, || fstat(&file)).unwrap();
        }
        let told = attributes.take_unkept_time().unwrap();
        assert!(told.contains("79.000000000 s since 1970 became 78.000000000 for it"), "{told}");
        assert_eq!(attributes.take_unkept_time(), None);
    }

    #[test]
    fn an_owner_is_found_by_name_before_its_number() {
        let both = Attributes::new(Preserve { owner: true, group: true, ..Preserve::default() });
        let owner = |uid, user: &str| {
            let owner = Owner { uid, gid: 7, user: user.into(), group: b"no such group".into() };
            let offer = FileOffer { owner: Some(owner), ..FileOffer::default() };
            let (uid, gid) = both.owner_of(&offer).unwrap();
            (uid.unwrap().as_raw(), gid.unwrap().as_raw())
        };
        assert_eq!(owner(4321, "root"), (0, 7));
        assert_eq!(owner(4321, "nobody knows him"), (4321, 7));
        let none = Attributes::default();
        assert!(
            none.owner_of(&FileOffer { owner: Some(Owner::default()), ..FileOffer::default() })
                .is_none()
        );
    }

    /// A look at a file with something else in it.
    fn with(mut stat: Stat, change: impl FnOnce(&mut Stat)) -> Stat {
        change(&mut stat);
        stat
    }

    const OWNER: Preserve = Preserve { owner: true, ..Preserve::NOTHING };
    const GROUP: Preserve = Preserve { group: true, ..Preserve::NOTHING };
    const XATTRS: Preserve = Preserve { xattrs: true, ..Preserve::NOTHING };
    const ACLS_ALONE: Preserve = Preserve { acls: true, ..Preserve::NOTHING };

    #[test]
    fn the_owner_is_told_by_number_and_name_where_any_of_it_is_asked_for() {
        let stat = fstat(tempfile::tempfile().unwrap()).unwrap();
        let told = |preserve, stat: &Stat| {
            let mut offer = FileOffer::default();
            Attributes::new(preserve).describe_owner(stat, &mut offer);
            offer.owner
        };
        let user = uzers::get_user_by_uid(stat.st_uid).map(|user| short(user.name()));
        let group = uzers::get_group_by_gid(stat.st_gid).map(|group| short(group.name()));
        let (user, group) = (user.unwrap_or_default(), group.unwrap_or_default());
        let owner = Owner { uid: stat.st_uid, gid: stat.st_gid, user, group };
        assert_eq!(told(OWNER, &stat), Some(owner.clone()));
        assert_eq!(told(GROUP, &stat), Some(owner));
        assert_eq!(told(Preserve::default(), &stat), None);
        let nobody = with(stat, |it| (it.st_uid, it.st_gid) = (4_000_000_000, 4_000_000_001));
        let (uid, gid) = (4_000_000_000, 4_000_000_001);
        let unknown = Owner { uid, gid, ..Owner::default() };
        assert_eq!(told(OWNER, &nobody), Some(unknown));
        let longest = "n".repeat(limits::SHORT_NAME_BYTES_MAX);
        assert_eq!(short(longest.as_ref()), longest.as_bytes());
        assert!(short(format!("{longest}n").as_ref()).is_empty());
    }

    #[test]
    fn either_of_owner_and_group_is_set_alone_where_it_alone_is_asked_for() {
        let owner = Owner { uid: 4321, gid: 7, ..Owner::default() };
        let offer = FileOffer { owner: Some(owner), ..FileOffer::default() };
        let owner_of = |preserve| Attributes::new(preserve).owner_of(&offer);
        assert_eq!(owner_of(OWNER), Some((Some(Uid::from_raw(4321)), None)));
        assert_eq!(owner_of(GROUP), Some((None, Some(Gid::from_raw(7)))));
        assert_eq!(owner_of(Preserve::default()), None);
    }

    #[test]
    fn each_kind_of_extended_attribute_comes_where_it_is_asked_for() {
        let takes = |preserve| {
            let names: [&[u8]; 4] = [b"user.x", ACLS[0], ACLS[1], b"security.x"];
            names.map(|name| Attributes::new(preserve).takes(name))
        };
        assert_eq!(takes(XATTRS), [true, false, false, false]);
        assert_eq!(takes(ACLS_ALONE), [false, true, true, false]);
        assert_eq!(takes(Preserve::ALL), [true, true, true, false]);
        assert_eq!(takes(Preserve::default()), [false; 4]);
        let [source, one, other] = [(); 3].map(|()| tempfile::tempfile_in("/tmp").unwrap());
        // For the owner, for a user, for the group, at most, for others (acl(5)).
        let entry = |tag: u16, bits: u16, id: u32| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let nobody = u32::MAX;
        let entries = [
            entry(1, 6, nobody),
            entry(2, 4, 1234),
            entry(4, 4, nobody),
            entry(16, 4, nobody),
            entry(32, 0, nobody),
        ];
        let acl = [2_u32.to_le_bytes().to_vec(), entries.concat()].concat();
        let flags = XattrFlags::empty();
        if fsetxattr(&source, ACLS[0], &acl, flags).is_err()
            || fsetxattr(&source, "user.one", b"1", flags).is_err()
        {
            return skip("extended attributes and ACLs", "none");
        }
        let mut offer = FileOffer { mode: 0o640, ..FileOffer::default() };
        offer.xattrs = Attributes::new(Preserve::ALL).read_xattrs(&source).unwrap();
        assert_eq!(offer.xattrs.len(), 2);
        let has = |file: &File, name: &[u8]| get(file.as_fd(), name).unwrap();
        for (preserve, file) in [(XATTRS, &one), (ACLS_ALONE, &other)] {
            let attributes = Attributes::new(preserve);
            attributes.apply(file, &offer, false).unwrap();
            assert_eq!(attributes.changed_xattrs.load(Ordering::Relaxed), 1);
            attributes.apply(file, &offer, false).unwrap();
            assert_eq!(attributes.changed_xattrs.load(Ordering::Relaxed), 1, "it has it");
        }
        assert_eq!((has(&one, b"user.one"), has(&one, ACLS[0])), (Some(b"1".to_vec()), None));
        assert_eq!((has(&other, b"user.one"), has(&other, ACLS[0])), (None, Some(acl)));
        offer.xattrs.clear();
        let attributes = Attributes::new(XATTRS);
        attributes.apply(&one, &offer, false).unwrap();
        assert_eq!(attributes.changed_xattrs.load(Ordering::Relaxed), 1, "it is removed");
        assert!(has(&one, b"user.one").is_none());
    }

    #[test]
    fn more_attributes_than_an_offer_holds_are_an_error() {
        let place = tempfile::tempdir().unwrap();
        let _mount = match Mount::tmpfs(place.path(), "8m") {
            Ok(mount) => mount,
            Err(why) => return skip("root, to mount a tmpfs", &why),
        };
        let attributes = Attributes::new(XATTRS);
        let set = |file: &File, name: &str, len: usize| {
            fsetxattr(file, name, &vec![b'x'; len], XattrFlags::empty()).unwrap();
        };
        let count = |file: &File| attributes.read_xattrs(file).ok().map(|all| all.len());
        let file = File::create(place.path().join("large")).unwrap();
        if fsetxattr(&file, "user.a", b"x", XattrFlags::empty()).is_err() {
            return skip("a tmpfs with extended attributes (Linux 6.6)", "an older one");
        }
        let most = limits::XATTR_BYTES_MAX / 4 - "user.a".len();
        for name in ["user.a", "user.b", "user.c", "user.d"] {
            set(&file, name, most);
        }
        assert_eq!(count(&file), Some(4));
        set(&file, "user.a", most + 1);
        assert_eq!(count(&file), None);
        let file = File::create(place.path().join("many")).unwrap();
        (0..limits::XATTRS_MAX).for_each(|number| set(&file, &format!("user.{number}"), 1));
        assert_eq!(count(&file), Some(limits::XATTRS_MAX));
        set(&file, "user.more", 1);
        let why = attributes.read_xattrs(&file).unwrap_err().to_string();
        assert_eq!(why, "it has more than 1024 attributes or 256 KiB of them");
    }

    /// Case of file systems without modes, as FAT, which refuse even the owner.
    #[test]
    fn a_mode_that_cannot_be_set_is_an_error_unless_the_file_system_refuses_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let attributes = Attributes::new(Preserve { mtime: false, ..Preserve::default() });
        let offer = FileOffer { mode: 0o640, ..FileOffer::default() };
        for (owner, is_fine) in [(geteuid(), true), (Uid::from_raw(1234), false)] {
            let file = File::create(directory.path().join("file")).unwrap();
            if fchown(&file, Some(owner), None).is_err()
                || ioctl_setflags(&file, IFlags::IMMUTABLE).is_err()
            {
                return skip("root, to make a file immutable", "another user");
            }
            let applied = attributes.apply(&file, &offer, true);
            ioctl_setflags(&file, IFlags::empty()).unwrap();
            assert_eq!(applied.is_ok(), is_fine, "{applied:?}");
            assert!(attributes.apply_to(&file, Some(0o640), &offer, true).is_ok());
            assert_ne!(fstat(&file).unwrap().st_mode & MODE_BITS, 0o640, "it is said to have it");
        }
        let mount = match Mount::tmpfs(directory.path(), "8m") {
            Ok(mount) => mount,
            Err(why) => return skip("root, to mount a tmpfs", &why),
        };
        std::fs::write(directory.path().join("file"), b"x").unwrap();
        mount.make_read_only().unwrap();
        let file = File::open(directory.path().join("file")).unwrap();
        assert!(attributes.apply(&file, &offer, true).is_err());
    }

    #[test]
    fn a_link_gets_its_own_time_and_owner_and_what_it_leads_to_keeps_them() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), b"x").unwrap();
        std::os::unix::fs::symlink("file", directory.path().join("link")).unwrap();
        let opened = File::open(directory.path()).unwrap();
        let there = |name: &str| statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let before = there("file");
        let owner = Owner { uid: 1234, gid: 1235, ..Owner::default() };
        let offer = FileOffer { mtime_s: 77, owner: Some(owner), ..FileOffer::default() };
        Attributes::new(Preserve::NOTHING).apply_to_link(&opened, b"link", &offer).unwrap();
        assert_ne!(there("link").st_mtime, 77);
        let all = Attributes::new(Preserve::ALL);
        if !geteuid().is_root() {
            return skip("root, to give a link another owner", "another user");
        }
        all.apply_to_link(&opened, b"link", &offer).unwrap();
        let link = there("link");
        assert_eq!((link.st_mtime, link.st_uid, link.st_gid), (77, 1234, 1235));
        let after = there("file");
        assert_eq!((after.st_mtime, after.st_uid), (before.st_mtime, before.st_uid));
        assert!(all.apply_to_link(&opened, b"gone", &offer).is_err());
    }

    #[test]
    fn a_file_of_the_same_bytes_differs_by_what_is_to_be_kept() {
        let stat = fstat(tempfile::tempfile().unwrap()).unwrap();
        let stat = with(stat, |it| (it.st_mtime, it.st_mtime_nsec) = (77, 5));
        let stat = with(stat, |it| it.st_mode = 0o100_644);
        let offer = FileOffer { mtime_s: 77, mtime_ns: 5, mode: 0o4644, ..FileOffer::default() };
        let owner = Owner { uid: stat.st_uid, gid: stat.st_gid, ..Owner::default() };
        let others = [
            FileOffer { mtime_s: 78, ..offer.clone() },
            FileOffer { mtime_ns: 6, ..offer.clone() },
            FileOffer { mode: 0o640, ..offer.clone() },
            FileOffer { owner: Some(Owner { uid: 1234, ..owner.clone() }), ..offer.clone() },
            FileOffer { owner: Some(Owner { gid: 1234, ..owner.clone() }), ..offer.clone() },
        ];
        let differ = |preserve| {
            let attributes = Attributes::new(preserve);
            let same = FileOffer { owner: Some(owner.clone()), ..offer.clone() };
            assert_eq!(attributes.may_differ(&stat, &same), preserve.needs_xattrs());
            others.each_ref().map(|other| attributes.may_differ(&stat, other))
        };
        assert_eq!(differ(Preserve::NOTHING), [false; 5]);
        assert_eq!(differ(Preserve::default()), [true, true, true, false, false]);
        assert_eq!(differ(OWNER), [false, false, false, true, false]);
        assert_eq!(differ(GROUP), [false, false, false, false, true]);
        assert_eq!(differ(XATTRS), [true; 5]);
        let of = |owner| with(stat, |it| it.st_uid = owner);
        for (owner, user, may) in [(5, 5, true), (5, 6, false), (5, 0, true), (0, 5, false)] {
            assert_eq!(may_change(&of(owner), Uid::from_raw(user)), may, "{owner} {user}");
        }
    }

    #[test]
    fn a_file_of_the_same_bytes_is_brought_up_to_date_and_counted_where_it_differed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        let attributes = Attributes::new(Preserve { xattrs: true, ..Preserve::default() });
        let update = |offer: &FileOffer, dry_run| {
            let before = attributes.updated();
            let stat = fstat(&file).unwrap();
            let open = || File::open(&path);
            attributes.bring_up_to_date((&stat, offer), dry_run, open).unwrap();
            attributes.updated() - before
        };
        let mtime_s = fstat(&file).unwrap().st_mtime;
        let mtime_ns = fstat(&file).unwrap().st_mtime_nsec as u32;
        let same = FileOffer { mode: 0o600, mtime_s, mtime_ns, inode: 1, ..FileOffer::default() };
        assert_eq!((update(&same, false), update(&same, true)), (0, 0));
        let wider = FileOffer { mode: 0o640, ..same.clone() };
        let mode = || fstat(&file).unwrap().st_mode & MODE_BITS;
        assert_eq!((update(&wider, true), mode()), (1, 0o600));
        assert_eq!((update(&wider, false), mode()), (1, 0o640));
        let later = FileOffer { mtime_s: 77, ..wider.clone() };
        assert_eq!((update(&later, true), update(&later, false)), (1, 1));
        assert_eq!(fstat(&file).unwrap().st_mtime, 77);
        let timeless = FileOffer { mtime_s: 78, inode: 0, ..later.clone() };
        update(&timeless, false);
        assert_eq!(fstat(&file).unwrap().st_mtime, 77, "it has no time to give");
        if fsetxattr(&file, "user.one", b"1", XattrFlags::empty()).is_ok() {
            assert_eq!((update(&later, true), update(&later, false)), (0, 1));
        }
        let plain = Attributes::new(Preserve::default());
        let never = || -> io::Result<File> { panic!("nothing is to be done") };
        plain.bring_up_to_date((&fstat(&file).unwrap(), &later), false, never).unwrap();
        for (mode, count) in [(0o640, 0), (0o600, 1)] {
            let there = with(fstat(&file).unwrap(), |it| (it.st_mode, it.st_mtime) = (mode, 5));
            let before = plain.updated();
            plain.count_directory(&there, &later);
            assert_eq!(plain.updated() - before, count);
        }
    }

    #[test]
    fn what_cannot_be_set_says_what_and_whether_a_right_is_missing() {
        let failed = named(Errno::IO, "its mode cannot be set");
        assert!(failed.to_string().starts_with("its mode cannot be set: "), "{failed}");
        let refused = attribute_failed(Errno::PERM, b"user.x");
        assert_eq!(refused.raw_os_error(), Some(Errno::PERM.raw_os_error()));
        let fault = attributes_fault(b"x", &refused);
        assert_eq!((fault.code, &*fault.path), (FaultCode::NotPermitted, &b"x"[..]));
        assert!(fault.hint.contains("--preserve"));
        let fault = attributes_fault(b"x", &failed);
        assert!(fault.code != FaultCode::NotPermitted && !fault.hint.contains("--preserve"));
        let of = |inode, device| FileOffer { inode, device, ..FileOffer::default() };
        let times = [of(0, 0), of(1, 0), of(0, 1)].map(|offer| has_time(&offer));
        assert_eq!(times, [false, true, true]);
        let directory = tempfile::tempdir().unwrap();
        rustix::fs::mkdir(directory.path().join("d"), Mode::from_raw_mode(0o777)).unwrap();
        let made = rustix::fs::stat(directory.path().join("d")).unwrap();
        assert_eq!(made.st_mode & MODE_BITS, 0o777 & !umask());
    }
}
