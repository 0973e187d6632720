//! `mmap(2)` with `send(2)` and `recv(2)`: the page cache is the buffer.
//!
//! Copies per byte: one, between page cache and socket, by the kernel. The file is mapped in
//! windows, so that the process stays small. A file that is truncated meanwhile is an error: the
//! mapped bytes are only ever touched by the kernel.

use std::{io, os::unix::fs::FileExt};

use haul_sys::mapping::{Access, Mapping, Populate};
use rustix::{io::Errno, net::RecvFlags};

use crate::{
    Boundary, EngineInfo, Setup, SpanFile, StageTimes, Verdict, Wire, WireKind,
    copy_free::{CopyFree, Moved, ReceiveMover, SendMover},
    progress::{Copied, Failure, Run, Side},
    socket,
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "mmap",
    summary: "study: send from and receive into a mapping of the file",
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: false,
    reads_while_sending: true,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup: Setup<'_>| Ok(Box::new(CopyFree::new(setup, Window { open: None })))),
    open_receive: Some(|setup: Setup<'_>| {
        Ok(Box::new(CopyFree::new(setup, Window { open: None })))
    }),
};

/// Bytes of the file that are mapped at a time.
const WINDOW_BYTES: u64 = 8 << 20;

/// The part of the span's file that is mapped now.
struct Window {
    open: Option<(u64, Mapping)>,
}

impl Window {
    /// The part of the mapping that `run` begins with, mapping it first if it is not.
    fn at(
        &mut self,
        file: &SpanFile,
        run: Run,
        access: Access,
    ) -> io::Result<(&Mapping, std::ops::Range<usize>)> {
        let holds = |(start, mapping): &(u64, Mapping)| {
            (*start..*start + mapping.len_bytes() as u64).contains(&run.offset_bytes)
        };
        if !self.open.as_ref().is_some_and(holds) {
            self.open = None;
            let len_bytes = run.len_bytes.min(WINDOW_BYTES);
            if access == Access::ReadAndWrite {
                make_long_enough(file, run.offset_bytes + len_bytes)?;
            }
            let populate = match access {
                Access::Read => Populate::AtOnce,
                Access::ReadAndWrite => Populate::OnUse,
            };
            let mapping =
                Mapping::new(file.file(), run.offset_bytes, len_bytes as usize, access, populate)?;
            self.open = Some((run.offset_bytes, mapping));
        }
        let (start, mapping) = self.open.as_ref().expect("it was opened above if it was not open");
        let first = (run.offset_bytes - start) as usize;
        let last = (first as u64 + run.len_bytes).min(mapping.len_bytes() as u64) as usize;
        Ok((mapping, first..last))
    }
}

/// Makes the file reach to `end_bytes`: only what is inside it can be mapped and used. The byte
/// written is in the span, which is still to be received; unlike ftruncate(2) this never makes the
/// file shorter for another thread.
fn make_long_enough(file: &SpanFile, end_bytes: u64) -> io::Result<()> {
    if file.file().metadata()?.len() < end_bytes {
        file.file().write_all_at(&[0], end_bytes - 1)?;
    }
    Ok(())
}

impl SendMover for Window {
    const ENGINE: &'static str = "mmap";
    const COPIED: Copied = Copied::All;
    const STRIDE_BYTES: u64 = 1 << 20;

    fn send_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved {
        // Behind the end of a file its last page holds zeros, which must not be sent.
        let size_bytes = match file.file().metadata() {
            Ok(metadata) => metadata.len(),
            Err(error) => return Moved::failed(0, Failure::new("fstat", Side::File, error)),
        };
        let len_bytes = run.len_bytes.min(size_bytes.saturating_sub(run.offset_bytes));
        if len_bytes == 0 {
            return Moved::some(0);
        }
        let run = Run { len_bytes, ..run };
        let mapped = timed(&mut times.source_ns, || self.at(file, run, Access::Read));
        let (mapping, part) = match mapped {
            Ok(mapped) => mapped,
            Err(error) => return Moved::failed(0, Failure::new("mmap", Side::File, error)),
        };
        let flags = socket::send_flags(Boundary::Flush);
        match timed(&mut times.send_ns, || mapping.send_to(wire.socket(), part, flags)) {
            Ok(moved) => checked(file, run.offset_bytes, moved as u64),
            Err(error) => Moved::failed(0, Failure::new("send", Side::Either, error)),
        }
    }

    fn span_is_over(&mut self) {
        self.open = None;
    }
}

/// Marks an error as one that another engine may not meet.
fn unsupported(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error)
}

/// Checks that the bytes sent were inside the file, which may have become shorter.
fn checked(file: &SpanFile, offset_bytes: u64, moved_bytes: u64) -> Moved {
    match file.file().metadata() {
        Ok(metadata) if metadata.len() >= offset_bytes + moved_bytes => Moved::some(moved_bytes),
        Ok(_) => {
            let source =
                io::Error::new(io::ErrorKind::UnexpectedEof, "truncated while it was sent");
            Moved::failed(moved_bytes, Failure::new("send", Side::File, source))
        }
        Err(error) => Moved::failed(moved_bytes, Failure::new("fstat", Side::File, error)),
    }
}

impl ReceiveMover for Window {
    const ENGINE: &'static str = "mmap";
    const COPIED: Copied = Copied::All;
    const STRIDE_BYTES: u64 = 1 << 20;

    fn receive_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved {
        let mapped = timed(&mut times.target_ns, || self.at(file, run, Access::ReadAndWrite));
        let (mapping, part) = match mapped {
            Ok(mapped) => mapped,
            // EACCES: the file is open for writing only, which is enough for others.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ACCESS) => {
                return Moved::failed(0, Failure::new("mmap", Side::File, unsupported(error)));
            }
            Err(error) => return Moved::failed(0, Failure::new("mmap", Side::File, error)),
        };
        let outcome = timed(&mut times.receive_ns, || {
            mapping.receive_from(wire.socket(), part, RecvFlags::WAITALL)
        });
        let failure = match outcome {
            Ok(0) => Failure::new("recv", Side::Wire, socket::closed()),
            Ok(moved) => return Moved::some(moved as u64),
            // No room for the page, or the file became shorter: the bytes are still to be
            // received, and an engine that writes will learn which of the two it is.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::FAULT) => {
                Failure::new("recv into the mapped file", Side::File, unsupported(error))
            }
            Err(error) => Failure::new("recv", Side::Wire, error),
        };
        Moved::failed(0, failure)
    }

    fn span_is_over(&mut self) {
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::net::UnixStream};

    fn file_of(bytes: &[u8]) -> SpanFile {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        SpanFile::new(file)
    }

    #[test]
    fn what_was_sent_from_beyond_the_end_of_a_file_is_an_error() {
        let file = file_of(&[7; 10]);
        assert!(checked(&file, 4, 6).failure.is_none());
        let beyond = checked(&file, 4, 7);
        assert_eq!(beyond.bytes, 7);
        assert_eq!(beyond.failure.unwrap().source.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_file_is_made_longer_and_never_shorter_or_another() {
        let file = file_of(&[7; 10]);
        let bytes = |end_bytes| {
            make_long_enough(&file, end_bytes).unwrap();
            let mut bytes = vec![0; file.file().metadata().unwrap().len() as usize];
            file.file().read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        assert_eq!([bytes(5), bytes(10)], [[7; 10], [7; 10]]);
        assert_eq!(bytes(12), [&[7; 10][..], &[0; 2]].concat());
    }

    #[test]
    fn a_window_is_mapped_once_and_holds_no_more_than_it_may() {
        let file = file_of(&[7; 10]);
        file.file().set_len(2 * WINDOW_BYTES).unwrap();
        let mut window = Window { open: None };
        let mut at = |offset_bytes, len_bytes| {
            let run = Run { offset_bytes, len_bytes };
            let (_, part) = window.at(&file, run, Access::Read).unwrap();
            (part, window.open.as_ref().unwrap().0)
        };
        let size = WINDOW_BYTES as usize;
        assert_eq!(at(0, 2 * WINDOW_BYTES), (0..size, 0));
        assert_eq!(at(100, 50), (100..150, 0));
        assert_eq!(at(WINDOW_BYTES - 1, 9), (size - 1..size, 0), "what is mapped of it");
        assert_eq!(at(WINDOW_BYTES, 9), (0..9, WINDOW_BYTES));
        assert_eq!(at(0, 9), (0..9, 0), "it lies before");
    }

    #[test]
    fn only_a_file_that_may_not_be_mapped_or_filled_is_for_another_engine() {
        let (near, far) = UnixStream::pair().unwrap();
        let wire = Wire::Tcp(near.into());
        let receive = |file: &SpanFile| {
            let (run, mut window) = (Run { offset_bytes: 0, len_bytes: 9 }, Window { open: None });
            let moved = window.receive_some(&wire, file, run, &mut StageTimes::default());
            let failure = moved.failure.unwrap();
            (failure.call, failure.side, failure.source.kind())
        };
        let named = tempfile::NamedTempFile::new().unwrap();
        let written = File::options().write(true).open(named.path()).unwrap();
        let unsupported = io::ErrorKind::Unsupported;
        assert_eq!(receive(&SpanFile::new(written)), ("mmap", Side::File, unsupported));
        let empty = tempfile::NamedTempFile::new().unwrap();
        let read = File::open(empty.path()).unwrap();
        let (call, side, kind) = receive(&SpanFile::new(read));
        assert!((call, side) == ("mmap", Side::File) && kind != unsupported);
        drop(far);
        let closed = ("recv", Side::Wire, io::ErrorKind::UnexpectedEof);
        assert_eq!(receive(&file_of(&[7; 9])), closed);
    }

    #[test]
    fn nothing_stays_mapped_of_a_span_that_is_over() {
        let file = file_of(&[7; 10]);
        let ends: [fn(&mut Window); 2] =
            [<Window as SendMover>::span_is_over, <Window as ReceiveMover>::span_is_over];
        for end in ends {
            let mut window = Window { open: None };
            window.at(&file, Run { offset_bytes: 0, len_bytes: 9 }, Access::Read).unwrap();
            assert!(window.open.is_some());
            end(&mut window);
            assert!(window.open.is_none());
        }
    }

    /// Case of a full disk, which is met where the kernel fills the mapped page.
    #[test]
    fn a_page_that_has_no_room_is_for_an_engine_that_learns_why() {
        let place = tempfile::tempdir().unwrap();
        let _mount = match haul_testkit::mount::Mount::tmpfs(place.path(), "64k") {
            Ok(mount) => mount,
            Err(why) => return haul_testkit::skip::skip("root, to mount a tmpfs", &why),
        };
        let file = tempfile::tempfile_in(place.path()).unwrap();
        file.set_len(4096).unwrap();
        std::fs::write(place.path().join("fill"), vec![7; 64 << 10]).unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut far, &[7; 9]).unwrap();
        let (run, mut window) = (Run { offset_bytes: 0, len_bytes: 9 }, Window { open: None });
        let (wire, file) = (Wire::Tcp(near.into()), SpanFile::new(file));
        let moved = window.receive_some(&wire, &file, run, &mut StageTimes::default());
        let failure = moved.failure.unwrap();
        assert_eq!((failure.call, failure.side), ("recv into the mapped file", Side::File));
        assert_eq!(failure.source.kind(), io::ErrorKind::Unsupported);
        // Another error of the socket is the wire's.
        let no_socket = File::open("/dev/null").unwrap();
        let wire = Wire::Tcp(no_socket.into());
        let file = file_of(&[7; 9]);
        let mut window = Window { open: None };
        let moved = window.receive_some(&wire, &file, run, &mut StageTimes::default());
        assert_eq!(moved.failure.unwrap().side, Side::Wire);
    }
}
