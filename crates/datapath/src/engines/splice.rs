//! `splice(2)`: file to socket or socket to file through a pipe, by reference.
//!
//! Copies per byte: none to send; one to receive, from the socket's pages into the page cache,
//! which still is one less than read-write makes.
//!
//! splice(2) has no MSG_NOSIGNAL: the process must ignore SIGPIPE, as Rust programs do.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use rustix::{
    io::{Errno, read, retry_on_intr},
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
};

use crate::{
    EngineError, EngineInfo, OpenError, Remedy, Setup, SpanFile, StageTimes, Verdict, Wire,
    WireKind,
    copy_free::{CopyFree, Moved, ReceiveMover, SendMover},
    progress::{Copied, Failure, Run, Side},
    socket,
    stopwatch::timed,
};

pub static INFO: EngineInfo = EngineInfo {
    name: "splice",
    summary: "file to socket and socket to file through a pipe inside the kernel",
    wires: &[WireKind::Tcp, WireKind::KernelTls],
    align_bytes: 1,
    spans_in_flight_max: 1,
    sees_bytes: false,
    reads_while_sending: false,
    probe: |_| Verdict::Usable,
    open_send: Some(|setup| Ok(Box::new(open(setup)?))),
    open_receive: Some(|setup| Ok(Box::new(open(setup)?))),
};

/// Size of the pipe, the default of fs.pipe-max-size: what a process may take without
/// CAP_SYS_RESOURCE. Measured, a larger pipe moves nothing faster.
const PIPE_BYTES: usize = 1 << 20;
/// Largest size of the pipe, for studies of larger calls.
const PIPE_BYTES_MAX: usize = 4 << 20;
/// Smallest size of the pipe, which every user gets (pipe(7)).
const PIPE_BYTES_MIN: usize = 65_536;

fn open(setup: Setup<'_>) -> Result<CopyFree<Pipe>, OpenError> {
    match Pipe::new(setup.block_bytes.unwrap_or(PIPE_BYTES).clamp(PIPE_BYTES, PIPE_BYTES_MAX)) {
        Ok(pipe) => Ok(CopyFree::new(setup, pipe)),
        Err(errno) => Err(OpenError {
            wire: setup.wire,
            cause: EngineError {
                engine: INFO.name,
                call: "pipe2",
                span: None,
                offset_bytes: 0,
                moved_bytes: 0,
                remedy: Remedy::UseAnotherEngine,
                source: errno.into(),
            },
        }),
    }
}

/// A pipe between file and socket, empty between any two calls of the engine.
struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
    capacity_bytes: usize,
}

impl Pipe {
    fn new(mut wanted_bytes: usize) -> Result<Self, Errno> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        // Refused beyond fs.pipe-max-size, or when the user's pipes hold too much already.
        while wanted_bytes > PIPE_BYTES_MIN && fcntl_setpipe_size(&into, wanted_bytes).is_err() {
            wanted_bytes /= 2;
        }
        let capacity_bytes = fcntl_getpipe_size(&into)?;
        Ok(Self { out, into, capacity_bytes })
    }

    /// Writes what is in the pipe to the file in the ordinary way; the pipe is empty afterwards.
    fn copy_out(&mut self, file: &File, offset_bytes: u64, len_bytes: usize) -> io::Result<()> {
        let mut rest = vec![0; len_bytes];
        self.empty_into(&mut rest)?;
        file.write_all_at(&rest, offset_bytes)
    }

    /// Takes as many bytes out of the pipe as `buffer` holds.
    fn empty_into(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut got = 0;
        while got < buffer.len() {
            match retry_on_intr(|| read(&self.out, &mut buffer[got..]))? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                moved => got += moved,
            }
        }
        Ok(())
    }
}

impl SendMover for Pipe {
    const ENGINE: &'static str = "splice";
    const COPIED: Copied = Copied::Nothing;
    const STRIDE_BYTES: u64 = 1 << 20;

    fn send_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved {
        let len = run.len_bytes.min(self.capacity_bytes as u64) as usize;
        let mut offset = run.offset_bytes;
        let taken = timed(&mut times.source_ns, || {
            retry_on_intr(|| {
                splice(file.file(), Some(&mut offset), &self.into, None, len, SpliceFlags::MOVE)
            })
        });
        let taken = match taken {
            Ok(taken) => taken,
            Err(errno) => {
                let failure = Failure::new("splice from the file", Side::File, errno);
                return Moved::failed(0, failure);
            }
        };
        let is_last = taken as u64 == run.len_bytes;
        let boundary = if is_last { SpliceFlags::empty() } else { SpliceFlags::MORE };
        let flags = SpliceFlags::MOVE.union(boundary);
        let mut sent = 0;
        while sent < taken {
            let outcome = timed(&mut times.send_ns, || {
                // No more than what is left of it is in the pipe.
                retry_on_intr(|| splice(&self.out, None, wire.socket(), None, taken, flags))
            });
            match outcome {
                Ok(0) => {
                    let failure = Failure::new("splice to the wire", Side::Wire, Errno::PIPE);
                    return Moved::failed(sent as u64, failure);
                }
                Ok(moved) => sent += moved,
                // What is left in the pipe can be read from the file again; whatever the remedy
                // is, this engine is not used again.
                Err(errno) => {
                    let failure = Failure::new("splice to the wire", Side::Wire, errno);
                    return Moved::failed(sent as u64, failure);
                }
            }
        }
        Moved::some(taken as u64)
    }
}

impl ReceiveMover for Pipe {
    const ENGINE: &'static str = "splice";
    const COPIED: Copied = Copied::Nothing;
    const STRIDE_BYTES: u64 = 1 << 20;

    fn receive_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved {
        let len = run.len_bytes.min(self.capacity_bytes as u64) as usize;
        let taken = timed(&mut times.receive_ns, || {
            retry_on_intr(|| splice(wire.socket(), None, &self.into, None, len, SpliceFlags::MOVE))
        });
        let failed = |source| Failure::new("splice from the wire", Side::Wire, source);
        let taken = match taken {
            Ok(0) => return Moved::failed(0, failed(socket::closed())),
            Ok(taken) => taken,
            Err(errno) => return Moved::failed(0, failed(errno.into())),
        };
        let outcome = timed(&mut times.target_ns, || self.put(file, run.offset_bytes, taken));
        Moved { bytes: taken as u64, failure: outcome.err() }
    }
}

impl Pipe {
    /// Moves `taken` bytes from the pipe to the file. The pipe is empty afterwards in any case:
    /// what splice(2) refuses to write is written in the ordinary way, and what cannot be written
    /// at all is dropped.
    fn put(&mut self, file: &SpanFile, offset_bytes: u64, taken: usize) -> Result<(), Failure> {
        let mut at = offset_bytes;
        let end = offset_bytes + taken as u64;
        while at < end {
            let left = (end - at) as usize;
            // The kernel advances `at` by what it moved.
            let outcome = retry_on_intr(|| {
                splice(&self.out, None, file.file(), Some(&mut at), left, SpliceFlags::MOVE)
            });
            let errno = match outcome {
                Ok(0) => Errno::NOSPC,
                Ok(_) => continue,
                Err(errno) => errno,
            };
            let failure = Failure::new("splice to the file", Side::File, errno);
            if !crate::progress::is_unsupported(errno) {
                let _ = self.empty_into(&mut vec![0; left]);
                return Err(failure);
            }
            let copied = self.copy_out(file.file(), at, left);
            return match copied {
                Ok(()) => Err(failure),
                Err(error) => Err(Failure::new("pwrite", Side::Target, error)),
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_as_large_as_wanted_or_as_the_kernel_allows() {
        let limit = std::fs::read_to_string("/proc/sys/fs/pipe-max-size").unwrap_or_default();
        let limit = limit.trim().parse().unwrap_or(PIPE_BYTES);
        for wanted_bytes in [PIPE_BYTES, PIPE_BYTES_MAX] {
            let pipe = Pipe::new(wanted_bytes).unwrap();
            println!("wanted {wanted_bytes}, got {}", pipe.capacity_bytes);
            // A user who has many pipes gets smaller ones (fs.pipe-user-pages-soft).
            assert!((4096..=wanted_bytes).contains(&pipe.capacity_bytes));
            if rustix::process::geteuid().is_root() && wanted_bytes <= limit {
                assert_eq!(pipe.capacity_bytes, wanted_bytes);
            }
        }
    }

    /// A socket holds the end of what it gets back for a moment where more follows at once.
    #[test]
    fn what_is_in_the_pipe_is_held_back_only_where_more_of_the_run_follows() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nodelay(true).unwrap();
        let (far, _) = listener.accept().unwrap();
        let wire = Wire::Tcp(near.into());
        let file = tempfile::tempfile().unwrap();
        file.set_len(1000).unwrap();
        let file = SpanFile::new(file);
        let mut pipe = Pipe::new(4096).unwrap();
        let mut held_bytes = |len_bytes| {
            let run = Run { offset_bytes: 0, len_bytes };
            let moved = pipe.send_some(&wire, &file, run, &mut StageTimes::default());
            assert!(moved.failure.is_none() && moved.bytes == 1000);
            haul_sys::tcp_info::TcpInfo::of(wire.socket()).unwrap().notsent_bytes
        };
        // On a busy host the moment may be over.
        assert!((0..20).any(|_| held_bytes(3000) == 1000), "more follows");
        assert_eq!(held_bytes(1000), 0, "nothing follows");
        drop(far);
    }

    /// A file that only takes what is appended to it is none for splice(2).
    #[test]
    fn what_a_file_does_not_take_by_splice_is_written_and_the_pipe_is_empty() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let appending = File::options().append(true).open(named.path()).unwrap();
        let mut pipe = Pipe::new(4096).unwrap();
        rustix::io::write(&pipe.into, b"by another way").unwrap();
        let failure = pipe.put(&SpanFile::new(appending), 0, 14).unwrap_err();
        assert_eq!((failure.call, failure.side), ("splice to the file", Side::File));
        assert!(crate::progress::is_unsupported_error(&failure.source), "{}", failure.source);
        assert_eq!(std::fs::read(named.path()).unwrap(), b"by another way");
        drop(std::mem::replace(&mut pipe.into, tempfile::tempfile().unwrap().into()));
        assert_eq!(read(&pipe.out, &mut [0; 1][..]), Ok(0), "the pipe is empty");
    }
}
