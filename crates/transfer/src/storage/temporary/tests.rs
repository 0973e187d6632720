//! Tests of the temporary: what it takes up of an earlier run, and what it promises.

use super::*;
use crate::storage::open_files::Share;
use haul_protocol::{SpanIndex, message::SpanRange};
use haul_testkit::{mount::Mount, skip::skip};
use rustix::io::{FdFlags, fcntl_getfd};
use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

#[test]
fn what_has_the_temporarys_name_is_named_with_what_to_do() {
    use std::{fs, os::unix::fs::symlink};
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let part = directory.path().join(".f.haul-part");
    let refused = |found: &str, hidden: &str| {
        let offer = FileOffer { name: b"f".to_vec(), size_bytes: 8, ..FileOffer::default() };
        let wanted = Wanted { span_bytes: 4, spans: 2, digest: Digest::AesGmac, recheck: false };
        let fault = Part::open(&root, b"f", &offer, &wanted).unwrap_err();
        assert_eq!(fault.found, found);
        assert!(fault.hint.contains(&format!("remove {hidden} ")), "{fault:?}");
    };
    symlink("elsewhere", &part).unwrap();
    refused("a symbolic link", ".f.haul-part");
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    refused("a directory", ".f.haul-part");
    fs::remove_dir(&part).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &part,
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    refused("a FIFO or device", ".f.haul-part");
    fs::remove_file(&part).unwrap();
    fs::write(directory.path().join("g"), b"").unwrap();
    fs::hard_link(directory.path().join("g"), &part).unwrap();
    refused("a file that has another name too", ".f.haul-part");
    fs::remove_file(&part).unwrap();
    fs::create_dir(directory.path().join(".f.haul-journal")).unwrap();
    refused("a directory", ".f.haul-journal");
}

/// Test of a journal that stayed beside its file for good: nothing looked for it any more.
#[test]
fn a_journal_that_a_crash_left_alone_goes_with_the_first_file_of_one_span() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let hidden = |suffix| {
        let name = hidden_name(b"f", suffix);
        directory.path().join(OsStr::from_bytes(&name))
    };
    for has_part in [false, true] {
        std::fs::write(hidden(JOURNAL_SUFFIX), "of other bytes").unwrap();
        if has_part {
            std::fs::write(hidden(PART_SUFFIX), "other bytes").unwrap();
        }
        let part = Part::begin_whole(&root, b"f", Naming::Locked, 0o600, None).unwrap();
        assert!(!hidden(JOURNAL_SUFFIX).exists(), "with a temporary: {has_part}");
        assert_eq!(part.file.file().metadata().unwrap().len(), 0);
        part.remove();
    }
}

#[test]
fn what_is_only_measured_has_no_name_at_any_time() {
    let directory = tempfile::tempdir().unwrap();
    let count = || std::fs::read_dir(directory.path()).unwrap().count();
    let root = Root::open(directory.path()).unwrap();
    // A directory that is not there is not made.
    let mut part = Part::begin_discarded(&root, b"d/e/x", None).unwrap();
    part.write_whole(b"bytes").unwrap();
    part.make_durable(Recorded::default()).unwrap();
    part.sync().unwrap();
    assert_eq!(count(), 0);
    part.publish().unwrap();
    part.remove();
    assert_eq!(count(), 0);
    // It lies in the nearest directory that is there, and so on its disk.
    std::fs::create_dir(directory.path().join("d")).unwrap();
    let part = Part::begin_discarded(&root, b"d/e/x", None).unwrap();
    let there = directory.path().join("d").metadata().unwrap();
    assert_eq!(fstat(&part.directory).unwrap().st_ino, there.ino());
}

#[test]
fn where_no_file_can_be_without_a_name_it_loses_it_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (file, stat) = create_unlinked(&File::open(directory.path()).unwrap()).unwrap();
    file.write_all_at(b"bytes", 0).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!((file.metadata().unwrap().len(), stat.st_size), (5, 0));
    assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
}

const SPAN: u64 = 64 << 10;
const SIZE: u64 = SPAN * 4;
const THEN: Circumstances = Circumstances { ctime: (5, 6), boot: [0; 16] };

/// Offer of a source of four spans.
fn source() -> FileOffer {
    FileOffer {
        name: b"x".to_vec(),
        size_bytes: SIZE,
        inode: 7,
        device: 9,
        ctime_s: THEN.ctime.0,
        ctime_ns: THEN.ctime.1,
        mtime_s: 77,
        mtime_ns: 8,
        ..FileOffer::default()
    }
}

/// A temporary as it was opened.
struct Found {
    part: Part,
    span_bytes: u64,
    durable: Vec<u32>,
    left: Option<Left>,
}

impl Found {
    /// Suspicion about what was left; `None` where nothing was.
    fn suspicion(&self) -> Option<Option<Suspicion>> {
        self.left.as_ref().map(|left| left.suspicion)
    }
}

fn open_as(directory: &Path, offer: &FileOffer, span_bytes: u64, recheck: bool) -> Found {
    let root = Root::open(directory).unwrap();
    let spans = SpanGrid::new(offer.size_bytes, span_bytes).unwrap().count();
    let wanted = Wanted { span_bytes, spans, digest: Digest::AesGmac, recheck };
    let (part, span_bytes, durable, left) = Part::open(&root, b"x", offer, &wanted).unwrap();
    let durable = durable.iter().map(|span| span.0).collect();
    Found { part, span_bytes, durable, left }
}

fn open(directory: &Path) -> Found {
    open_as(directory, &source(), SPAN, false)
}

fn range(first: u32, count: u32) -> SpanRange {
    SpanRange { first: SpanIndex(first), count }
}

fn digest_of(span: u32) -> [u8; 16] {
    [u8::try_from(span).unwrap() + 1; 16]
}

/// Says that these spans are durable, with their digests.
fn record(part: &mut Part, spans: std::ops::Range<u32>) {
    let digests: Vec<_> = spans.clone().map(digest_of).collect();
    let spans = &[range(spans.start, spans.end - spans.start)];
    part.make_durable(Recorded { spans, digests: &digests, values: &[] }).unwrap();
}

/// Leaves what a run did that received the first two spans, and ended.
fn leave(directory: &Path) {
    let mut part = open(directory).part;
    record(&mut part, 0..2);
    part.leave();
}

/// Writes a journal with one durable span, of another identity or of other circumstances.
fn write_journal(directory: &Path, now: Circumstances, change: impl FnOnce(&mut Identity)) {
    let part = File::open(directory.join(".x.haul-part")).unwrap();
    let mut identity = identity_of(&part, &source(), b"x", Digest::AesGmac).unwrap();
    change(&mut identity);
    let file = File::options().read(true).write(true).open(directory.join(".x.haul-journal"));
    let mut journal = Journal::begin(file.unwrap(), &identity, SPAN, now).unwrap();
    let (spans, digests) = (&[range(0, 1)][..], &[digest_of(0)][..]);
    journal.record(Recorded { spans, digests, values: &[] }).unwrap();
}

#[test]
fn what_an_earlier_run_left_is_taken_up_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(id) = haul_host::boot_id() {
        assert_eq!(boot(), id);
    }
    let new = open(directory.path());
    assert!(new.durable.is_empty() && new.left.is_none() && !new.part.is_of_use());
    let there = std::fs::metadata(directory.path().join(".x.haul-part")).unwrap();
    assert_eq!((new.part.inode(), there.len()), ((there.ino(), there.dev()), SIZE));
    assert_eq!(new.part.device(), there.dev());
    drop(new);
    leave(directory.path());
    let found = open(directory.path());
    assert_eq!((found.span_bytes, found.durable.as_slice()), (SPAN, &[0, 1][..]));
    assert!(found.part.is_of_use() && found.suspicion() == Some(None));
    let left = found.left.unwrap();
    assert_eq!(left.ctime, THEN.ctime);
    let known: Vec<_> = (0..4).map(|span| left.digests.get(SpanIndex(span))).collect();
    assert_eq!(known, [Some(digest_of(0)), Some(digest_of(1)), None, None]);
}

#[test]
fn a_temporary_is_of_use_once_some_span_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let mut part = open(directory.path()).part;
    part.make_durable(Recorded::default()).unwrap();
    assert!(!part.is_of_use() && part.entered);
    record(&mut part, 0..1);
    assert!(part.is_of_use());
    part.make_durable(Recorded::default()).unwrap();
    record(&mut part, 1..2);
    assert!(part.is_of_use());
}

#[test]
fn another_source_or_a_temporary_that_was_cut_begins_anew() {
    let other = [
        FileOffer { size_bytes: SIZE - 1, ..source() },
        FileOffer { inode: 8, ..source() },
        FileOffer { mtime_s: 78, ..source() },
        FileOffer { mtime_ns: 9, ..source() },
    ];
    for offer in other {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path());
        let found = open_as(directory.path(), &offer, SPAN, false);
        assert!(found.left.is_none() && found.durable.is_empty(), "{offer:?}");
    }
    for len_bytes in [SIZE - 1, SIZE + 1] {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path());
        let part = File::options().write(true).open(directory.path().join(".x.haul-part"));
        part.unwrap().set_len(len_bytes).unwrap();
        assert!(open(directory.path()).left.is_none(), "{len_bytes}");
    }
}

/// Case of a source whose file system was mounted anew: its ctime says that it is the same file.
#[test]
fn a_source_on_another_device_is_the_same_only_where_its_change_time_is_known() {
    for (ctime_then, device, ctime, is_taken) in [
        ((5, 6), 9, (5, 6), true),
        ((5, 6), 8, (5, 6), true),
        ((5, 6), 8, (5, 7), true),
        ((5, 6), 8, (0, 0), false),
        ((0, 0), 8, (5, 6), false),
        ((0, 0), 9, (0, 0), true),
        ((5, 6), 9, (0, 0), true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path());
        let now = Circumstances { ctime: ctime_then, boot: boot() };
        write_journal(directory.path(), now, |_| ());
        let (ctime_s, ctime_ns) = ctime;
        let offer = FileOffer { device, ctime_s, ctime_ns, ..source() };
        let found = open_as(directory.path(), &offer, SPAN, false);
        let left = found.left.map(|left| left.ctime);
        assert_eq!(left, is_taken.then_some(ctime_then), "{ctime_then:?} {device} {ctime:?}");
    }
}

#[test]
fn what_may_be_spoilt_is_suspected_until_it_was_read_back() {
    let suspicion = |boot: [u8; 16], other_device: bool| {
        let directory = tempfile::tempdir().unwrap();
        leave(directory.path());
        write_journal(directory.path(), Circumstances { boot, ..THEN }, |identity| {
            identity.target_device += u64::from(other_device);
        });
        let mut found = open(directory.path());
        let suspicion = found.suspicion().unwrap();
        assert_eq!(found.durable, [0]);
        found.part.confirm_boot().unwrap();
        found.part.leave();
        assert_eq!(open(directory.path()).suspicion(), Some(None), "it was read back");
        suspicion
    };
    assert_eq!(suspicion(boot(), false), None);
    assert_eq!(suspicion([9; 16], false), Some(Suspicion::StartedAnew));
    assert_eq!(suspicion([0; 16], false), Some(Suspicion::StartedAnew));
    assert_eq!(suspicion(boot(), true), Some(Suspicion::MountedAnew));
    let directory = tempfile::tempdir().unwrap();
    leave(directory.path());
    let asked = open_as(directory.path(), &source(), SPAN, true);
    assert_eq!(asked.suspicion(), Some(Some(Suspicion::Asked)));
}

#[test]
fn suspected_spans_without_digests_come_again_unless_they_are_holes() {
    let directory = tempfile::tempdir().unwrap();
    let hole = Extent { offset_bytes: 2 * SPAN, len_bytes: SPAN };
    let offer = FileOffer { holes: vec![hole], ..source() };
    let open = |recheck| open_as(directory.path(), &offer, SPAN, recheck);
    let mut part = open(false).part;
    record(&mut part, 0..1);
    let spans = &[range(1, 2)];
    part.make_durable(Recorded { spans, ..Recorded::default() }).unwrap();
    part.leave();
    assert_eq!(open(false).durable, [0, 1, 2]);
    assert_eq!(open(true).durable, [0, 2]);
    // The journal knows it, too.
    let mut again = open(false);
    assert_eq!(again.durable, [0, 2]);
    again.part.lose(&SpanSet::from_ranges(4, &[range(0, 1)]).unwrap()).unwrap();
    again.part.lose(&SpanSet::new(4)).unwrap();
    record(&mut again.part, 3..4);
    again.part.leave();
    assert_eq!(open(false).durable, [2, 3]);
}

#[test]
fn spans_are_cut_smaller_only_where_their_digests_are_not_needed() {
    let taken = |boot: [u8; 16], wanted_bytes, recheck| {
        let directory = tempfile::tempdir().unwrap();
        let mut part = open_as(directory.path(), &source(), 2 * SPAN, false).part;
        record(&mut part, 0..1);
        let journal = part.journal.as_mut().unwrap();
        journal.confirm(Circumstances { boot, ..journal.circumstances() }).unwrap();
        part.leave();
        let found = open_as(directory.path(), &source(), wanted_bytes, recheck);
        let first = found.left.unwrap().digests.get(SpanIndex(0));
        (found.span_bytes, found.durable, first.is_some())
    };
    assert_eq!(taken(boot(), SPAN, false), (SPAN, vec![0, 1], false));
    assert_eq!(taken(boot(), 2 * SPAN, false), (2 * SPAN, vec![0], true));
    assert_eq!(taken(boot(), 4 * SPAN, false), (2 * SPAN, vec![0], true));
    assert_eq!(taken([9; 16], SPAN, false), (2 * SPAN, vec![0], true));
    assert_eq!(taken(boot(), SPAN, true), (SPAN, vec![], false));
}

#[test]
fn what_does_not_fit_is_known_before_the_first_byte_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let _mount = match Mount::tmpfs(place.path(), "4m") {
        Ok(mount) => mount,
        Err(why) => return skip("root, to mount a tmpfs", &why),
    };
    let root = Root::open(place.path()).unwrap();
    let offer = |mib: u64| FileOffer { size_bytes: mib << 20, ..source() };
    let wanted = Wanted { span_bytes: SPAN, spans: 128, digest: Digest::AesGmac, recheck: false };
    let fault = Part::open(&root, b"x", &offer(8), &wanted).unwrap_err();
    assert_eq!((fault.code, fault.side), (FaultCode::NoSpace, Side::Target));
    assert_eq!(fault.needs, "8388608 bytes of free space");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    // Holes take none.
    let hole = Extent { offset_bytes: 1 << 20, len_bytes: 6 << 20 };
    let holed = open_as(place.path(), &FileOffer { holes: vec![hole], ..offer(8) }, SPAN, false);
    let there = holed.part.file.file().metadata().unwrap();
    assert_eq!((there.len(), there.blocks() * 512), (8 << 20, 2 << 20));
    holed.part.remove();
    drop(holed);
    // What it has is not wanted again.
    let first = open_as(place.path(), &offer(3), SPAN, false).part;
    first.preallocate(&offer(3), b"x").unwrap();
    first.preallocate_from(3 << 20, &offer(3), b"x").unwrap();
    assert!(first.preallocate_from(3 << 20, &offer(5), b"x").is_err());
    first.remove();
    drop(first);
    let part = Part::begin_discarded(&root, b"x", None).unwrap();
    let free = unused_bytes(part.file.file()).unwrap();
    assert!((3 << 20..=4 << 20).contains(&free));
    part.preallocate(&FileOffer { size_bytes: free, ..source() }, b"x").unwrap();
    assert_eq!(unused_bytes(part.file.file()), Some(0));
}

/// Case of several sessions that take space in vain at the same moment.
#[test]
fn space_that_is_there_and_is_not_given_is_asked_for_again_and_again() {
    for (free, tries, may) in [
        (Some(10), 1, true),
        (Some(11), TAKES_MAX, true),
        (Some(10), TAKES_MAX + 1, false),
        (Some(9), 1, false),
        (None, 1, false),
    ] {
        assert_eq!(may_try_again(free, 10, tries), may, "{free:?} {tries}");
    }
    let place = tempfile::tempdir().unwrap();
    let _mount = match Mount::tmpfs(place.path(), "1m") {
        Ok(mount) => mount,
        Err(why) => return skip("root, to mount a tmpfs", &why),
    };
    let root = Root::open(place.path()).unwrap();
    let part = Part::begin_discarded(&root, b"x", None).unwrap();
    // Elsewhere the file has as much as it wants, so that nothing seems to be missing.
    let len_bytes = 600 << 10;
    part.file.file().set_len(3 << 20).unwrap();
    fallocate(part.file.file(), FallocateFlags::KEEP_SIZE, 2 << 20, len_bytes).unwrap();
    let begun = std::time::Instant::now();
    let fault = part.preallocate(&FileOffer { size_bytes: len_bytes, ..source() }, b"x");
    assert_eq!(fault.unwrap_err().code, FaultCode::NoSpace);
    let pauses = TAKE_AGAIN_AFTER * (1..=TAKES_MAX).sum::<u32>();
    assert!(begun.elapsed() >= pauses, "{:?}", begun.elapsed());
    assert_eq!(part.file.file().metadata().unwrap().len(), 3 << 20);
}

#[test]
fn the_space_of_a_file_is_taken_from_where_it_is_missing() {
    let run = |offset_bytes, len_bytes| Extent { offset_bytes, len_bytes };
    for (begin_bytes, rest) in [
        (0, Some(run(10, 5))),
        (10, Some(run(10, 5))),
        (11, Some(run(11, 4))),
        (14, Some(run(14, 1))),
        (15, None),
        (16, None),
    ] {
        assert_eq!(behind(&run(10, 5), begin_bytes), rest);
    }
    assert_eq!(unused_bytes(&File::open("/proc/self/status").unwrap()), None);
    assert_eq!(no_space(b"x", 10, Some(9)).found, "9 bytes");
    assert_eq!(no_space(b"x", 10, Some(10)).found, "less when it was asked for");
    assert_eq!(no_space(b"x", 10, None).found, "less when it was asked for");
}

/// Case of file systems as ext2, which can take no space before it is written to.
#[test]
fn where_no_space_can_be_taken_the_free_space_is_looked_at() {
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let _mount = match Mount::ext2(&disk, &place.path().join("image"), 8 << 20) {
        Ok(mount) => mount,
        Err(why) => return skip("root and loop devices", &why),
    };
    let root = Root::open(&disk).unwrap();
    let part = Part::begin_discarded(&root, b"x", None).unwrap();
    let free = || FileSystem::of(part.file.file()).unwrap().free_bytes.unwrap();
    let take = |size_bytes| part.preallocate(&FileOffer { size_bytes, ..source() }, b"x");
    let len = || part.file.file().metadata().unwrap().len();
    assert_eq!(take(free() + 1).unwrap_err().code, FaultCode::NoSpace);
    // Nor is a small one taken where it does not fit.
    let most = usize::try_from(free() - (256 << 10)).unwrap();
    std::fs::write(disk.join("other"), vec![7; most]).unwrap();
    let free = free();
    assert!(free < LOOK_FIRST_FROM_BYTES);
    assert_eq!(take(free + 1).unwrap_err().code, FaultCode::NoSpace);
    assert_eq!(len(), 0);
    take(free).unwrap();
    assert_eq!(len(), free);
}

#[test]
fn a_file_without_a_name_takes_none_away_and_leaves_that_of_another_session() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::open(directory.path()).unwrap();
    let pass = Share::of_small_files();
    let begin = |naming| Part::begin_whole(&root, b"x", naming, 0o640, pass.take()).unwrap();
    let others = directory.path().join(".x.haul-part");
    std::fs::write(&others, "of another session").unwrap();
    for naming in [Naming::Linked, Naming::Staged] {
        let mut part = begin(naming);
        assert!(part.pass.is_some() && part.nameless);
        assert_eq!(part.mode, Some(0o640 & !crate::storage::attributes::umask()));
        part.write_whole(b"bytes").unwrap();
        part.remove();
        assert_eq!(std::fs::read(&others).unwrap(), b"of another session");
        // Somebody has the name, and somebody else is about to give it to a file.
        std::fs::write(directory.path().join("x"), "there").unwrap();
        let refused = part.publish().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(refused.to_string().contains("another transfer"), "{refused}");
        std::fs::remove_file(directory.path().join("x")).unwrap();
        part.publish().unwrap();
        assert_eq!(std::fs::read(directory.path().join("x")).unwrap(), b"bytes");
    }
    std::fs::remove_file(&others).unwrap();
    let locked = begin(Naming::Locked);
    assert!(locked.pass.is_some() && !locked.nameless && others.exists());
    assert!(begin(Naming::Never).pass.is_some());
    locked.remove();
    assert!(!others.exists());
}

#[test]
fn a_hole_is_punched_where_bytes_were_written() {
    let directory = tempfile::tempdir().unwrap();
    let hole = Extent { offset_bytes: SPAN, len_bytes: SPAN };
    let offer = FileOffer { holes: vec![hole], mode: 0o600, ..source() };
    let mut part = open_as(directory.path(), &offer, SPAN, false).part;
    part.file.file().write_all_at(&[7; SIZE as usize], 0).unwrap();
    part.seal(&offer, &Attributes::new(crate::file_options::Preserve::default())).unwrap();
    let bytes = std::fs::read(directory.path().join(".x.haul-part")).unwrap();
    let zeros: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == 0).collect();
    assert_eq!(zeros, Vec::from_iter(SPAN as usize..2 * SPAN as usize));
}
