//! The common part of engines that send or receive by system calls which show them no byte.
//!
//! Without a tap the calls are as large as they can be. With one, bytes are moved in strides: a
//! sender shows a stride to the tap first, so that it is in the processor's cache when the kernel
//! moves it, and so that never a byte leaves that the tap has not seen; a receiver reads a stride
//! back from the page cache once it has arrived.

use std::io;

use crate::{
    Boundary, EngineError, FileSpan, ReceiveEngine, Remedy, SendEngine, Setup, SpanDone, SpanFile,
    SpanTap, StageTimes, Wire,
    progress::{Copied, Failure, Progress, Run},
    socket,
    stopwatch::timed,
    tap_view::TapView,
};

/// Bytes that one call moved, and the reason why not more.
///
/// No bytes and no failure is the end of the file.
pub(crate) struct Moved {
    pub bytes: u64,
    pub failure: Option<Failure>,
}

impl Moved {
    pub(crate) fn some(bytes: u64) -> Self {
        Self { bytes, failure: None }
    }

    pub(crate) fn failed(bytes: u64, failure: Failure) -> Self {
        Self { bytes, failure: Some(failure) }
    }
}

/// The part of a sender that each engine writes itself.
pub(crate) trait SendMover: Send {
    const ENGINE: &'static str;
    const COPIED: Copied;
    /// Bytes that go at once when there is a tap.
    const STRIDE_BYTES: u64;

    /// Moves bytes of `run` to the wire, all or fewer.
    fn send_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved;

    /// Lets go of what is kept of the span's file, as the span is over or has failed.
    fn span_is_over(&mut self) {}
}

/// The part of a receiver that each engine writes itself.
pub(crate) trait ReceiveMover: Send {
    const ENGINE: &'static str;
    const COPIED: Copied;
    /// Bytes that are received before they are read back for a tap.
    const STRIDE_BYTES: u64;

    /// Moves bytes of `run` from the wire to the file, all or fewer. `bytes` is what has left the
    /// wire.
    fn receive_some(
        &mut self,
        wire: &Wire,
        file: &SpanFile,
        run: Run,
        times: &mut StageTimes,
    ) -> Moved;

    /// Lets go of what is kept of the span's file, as the span is over or has failed.
    fn span_is_over(&mut self) {}
}

/// An engine made of a mover and the common part.
pub(crate) struct CopyFree<M> {
    wire: Wire,
    mover: M,
    /// The view for taps, made when the first one comes.
    tap_view: Option<TapView>,
    buffer_bytes_max: usize,
    /// Most bytes that one call moves.
    call_bytes_max: u64,
    times: StageTimes,
}

impl<M> CopyFree<M> {
    pub(crate) fn new(setup: Setup<'_>, mover: M) -> Self {
        Self {
            wire: setup.wire,
            mover,
            tap_view: None,
            buffer_bytes_max: setup.buffer_bytes_max,
            call_bytes_max: setup.block_bytes.map_or(u64::MAX, |bytes| bytes as u64),
            times: StageTimes::default(),
        }
    }

    fn tap_view(&mut self) -> (&mut TapView, &mut u64) {
        let tap_view = self.tap_view.get_or_insert_with(|| TapView::new(self.buffer_bytes_max));
        (tap_view, &mut self.times.digest_ns)
    }
}

impl<M: SendMover> CopyFree<M> {
    fn send_span(
        &mut self,
        progress: &mut Progress<'_>,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let span = progress.span;
        while progress.left_bytes() > 0 {
            let mut to_bytes = span.len_bytes;
            if let Some(tap) = tap.as_deref_mut() {
                let from_bytes = progress.moved_bytes;
                to_bytes = to_bytes.min(from_bytes + M::STRIDE_BYTES);
                let (tap_view, digest_ns) = self.tap_view();
                let show = || tap_view.show_mapped(span, from_bytes, to_bytes, tap);
                let seen_bytes =
                    timed(digest_ns, show).map_err(|error| progress.file("pread", error))?;
                to_bytes = from_bytes + seen_bytes;
                if seen_bytes == 0 {
                    return Err(progress.truncated("pread"));
                }
            }
            while progress.moved_bytes < to_bytes {
                let left_bytes = to_bytes - progress.moved_bytes;
                let run = progress.run(left_bytes.min(self.call_bytes_max));
                let moved = self.mover.send_some(&self.wire, &span.file, run, &mut self.times);
                progress.moved_bytes += moved.bytes;
                if let Some(failure) = moved.failure {
                    return Err(self.give_up(progress, failure, to_bytes, tap.is_some()));
                }
                if moved.bytes == 0 {
                    return Err(progress.truncated(M::ENGINE));
                }
            }
        }
        Ok(())
    }

    /// Turns a failure into an error, and brings the wire to where the tap is if another engine is
    /// to go on from here.
    fn give_up(
        &mut self,
        progress: &mut Progress<'_>,
        failure: Failure,
        seen_bytes: u64,
        tapped: bool,
    ) -> EngineError {
        let mut error = progress.failure(failure);
        if error.remedy != Remedy::UseAnotherEngine || !tapped {
            return error;
        }
        let Some(tap_view) = &mut self.tap_view else { return error };
        if let Err(worse) = tap_view.send_up_to(&self.wire, progress, seen_bytes) {
            return worse;
        }
        error.offset_bytes = progress.span.offset_bytes + progress.moved_bytes;
        error.moved_bytes = progress.moved_bytes;
        error
    }
}

impl<M: SendMover> SendEngine for CopyFree<M> {
    fn send_bytes(&mut self, bytes: &[u8], boundary: Boundary) -> Result<(), EngineError> {
        timed(&mut self.times.send_ns, || {
            socket::send_all(M::ENGINE, &mut self.wire, bytes, boundary)
        })
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(M::ENGINE, span);
        let outcome = self.send_span(&mut progress, tap);
        self.mover.span_is_over();
        if let Some(tap_view) = &mut self.tap_view {
            tap_view.let_go();
        }
        outcome?;
        done.push(progress.done(M::COPIED));
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}

impl<M: ReceiveMover> CopyFree<M> {
    fn receive_span(
        &mut self,
        progress: &mut Progress<'_>,
        mut tap: Option<&mut dyn SpanTap>,
    ) -> Result<(), EngineError> {
        let span = progress.span;
        if tap.is_some() && !span.file.is_readable() {
            let source = io::Error::other("the target is not open for reading, as a digest needs");
            return Err(progress.unsupported("pread", source));
        }
        while progress.left_bytes() > 0 {
            let stride_bytes = if tap.is_some() { M::STRIDE_BYTES } else { u64::MAX };
            let from_bytes = progress.moved_bytes;
            let outcome = self.receive_stride(progress, stride_bytes);
            let goes_on = match &outcome {
                Ok(()) => true,
                Err(error) => error.remedy == Remedy::UseAnotherEngine,
            };
            if goes_on && let Some(tap) = tap.as_deref_mut() {
                let to_bytes = progress.moved_bytes;
                let (tap_view, digest_ns) = self.tap_view();
                let show = || tap_view.show(span, from_bytes, to_bytes, tap);
                let seen_bytes =
                    timed(digest_ns, show).map_err(|error| progress.file("pread", error))?;
                if seen_bytes < to_bytes - from_bytes {
                    return Err(progress.truncated("pread"));
                }
            }
            outcome?;
        }
        Ok(())
    }

    fn receive_stride(
        &mut self,
        progress: &mut Progress<'_>,
        stride_bytes: u64,
    ) -> Result<(), EngineError> {
        let to_bytes = progress.moved_bytes + progress.left_bytes().min(stride_bytes);
        while progress.moved_bytes < to_bytes {
            let left_bytes = to_bytes - progress.moved_bytes;
            let run = progress.run(left_bytes.min(self.call_bytes_max));
            let file = &progress.span.file;
            let moved = self.mover.receive_some(&self.wire, file, run, &mut self.times);
            progress.moved_bytes += moved.bytes;
            if let Some(failure) = moved.failure {
                return Err(progress.failure(failure));
            }
        }
        Ok(())
    }
}

impl<M: ReceiveMover> ReceiveEngine for CopyFree<M> {
    fn receive_bytes(&mut self, buffer: &mut [u8]) -> Result<(), EngineError> {
        timed(&mut self.times.receive_ns, || socket::receive_all(M::ENGINE, &mut self.wire, buffer))
    }

    fn submit(
        &mut self,
        span: &FileSpan,
        tap: Option<&mut dyn SpanTap>,
        done: &mut Vec<SpanDone>,
    ) -> Result<(), EngineError> {
        let mut progress = Progress::new(M::ENGINE, span);
        let outcome = self.receive_span(&mut progress, tap);
        self.mover.span_is_over();
        outcome?;
        done.push(progress.done(M::COPIED));
        Ok(())
    }

    fn stage_times(&self) -> StageTimes {
        self.times
    }

    fn into_wire(self: Box<Self>) -> Wire {
        self.wire
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, IfCopied, SpanId, progress::Side};
    use rustix::io::Errno;
    use std::{
        collections::VecDeque,
        io::{Read, Write},
        os::unix::{fs::FileExt, net::UnixStream},
        path::Path,
        sync::Arc,
    };

    const STRIDE_BYTES: u64 = 1000;
    const OFFSET_BYTES: u64 = 100;
    const LEN_BYTES: u64 = 2500;

    /// Moves as many bytes a call as its list says, and fails where the list says so.
    struct Listed {
        calls: VecDeque<(u64, Option<Errno>)>,
        /// Lengths of the runs that it was asked for.
        asked: Vec<u64>,
        /// Whether what is received is dropped, as by a file that became shorter.
        drops: bool,
    }

    impl Listed {
        fn next(&mut self, run: Run) -> (usize, Option<Failure>) {
            let (bytes, errno) = self.calls.pop_front().expect("no more calls");
            self.asked.push(run.len_bytes);
            assert!(bytes <= run.len_bytes);
            (bytes as usize, errno.map(|errno| Failure::new("call", Side::File, errno)))
        }
    }

    impl SendMover for Listed {
        const ENGINE: &'static str = "listed";
        const COPIED: Copied = Copied::Nothing;
        const STRIDE_BYTES: u64 = STRIDE_BYTES;

        fn send_some(
            &mut self,
            wire: &Wire,
            file: &SpanFile,
            run: Run,
            times: &mut StageTimes,
        ) -> Moved {
            let (bytes, failure) = self.next(run);
            let mut part = vec![0; bytes];
            file.file().read_exact_at(&mut part, run.offset_bytes).unwrap();
            socket::send_whole_to(wire.socket(), &part, Boundary::Flush).unwrap();
            times.send_ns += 1;
            Moved { bytes: bytes as u64, failure }
        }
    }

    impl ReceiveMover for Listed {
        const ENGINE: &'static str = "listed";
        const COPIED: Copied = Copied::Nothing;
        const STRIDE_BYTES: u64 = STRIDE_BYTES;

        fn receive_some(
            &mut self,
            wire: &Wire,
            file: &SpanFile,
            run: Run,
            times: &mut StageTimes,
        ) -> Moved {
            let (bytes, failure) = self.next(run);
            let mut part = vec![0; bytes];
            socket::receive_whole_from(wire.socket(), &mut part).unwrap();
            if !self.drops {
                file.file().write_all_at(&part, run.offset_bytes).unwrap();
            }
            times.receive_ns += 1;
            Moved { bytes: bytes as u64, failure }
        }
    }

    #[derive(Default)]
    struct Seen(Vec<u8>);

    impl SpanTap for Seen {
        fn see(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }
    }

    fn content() -> Vec<u8> {
        (0..OFFSET_BYTES + LEN_BYTES).map(|at| (at % 251) as u8).collect()
    }

    fn span_of(file: std::fs::File) -> FileSpan {
        let (offset_bytes, len_bytes) = (OFFSET_BYTES, LEN_BYTES);
        FileSpan { id: SpanId(3), file: Arc::new(SpanFile::new(file)), offset_bytes, len_bytes }
    }

    /// Makes an engine of these calls, and the other end of its wire.
    fn engine(calls: &[(u64, Option<Errno>)], drops: bool) -> (CopyFree<Listed>, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let setup = Setup {
            wire: Wire::Tcp(near.into()),
            host: &Host::read(Path::new("/")),
            buffer_bytes_max: 1 << 20,
            block_bytes: None,
            if_copied: IfCopied::GiveUp,
        };
        let mover = Listed { calls: calls.iter().copied().collect(), asked: Vec::new(), drops };
        (CopyFree::new(setup, mover), far)
    }

    #[test]
    fn a_sender_that_gives_up_leaves_wire_and_tap_at_the_same_byte() {
        for (errno, tapped, remedy, moved) in [
            (Errno::NOSYS, true, Remedy::UseAnotherEngine, 2000),
            (Errno::NOSYS, false, Remedy::UseAnotherEngine, 1300),
            // Nobody goes on from there: what is missing is filled up by the caller.
            (Errno::IO, true, Remedy::SkipFile, 1300),
        ] {
            let (mut engine, mut far) = engine(&[(1000, None), (300, Some(errno))], false);
            let source = tempfile::tempfile().unwrap();
            source.write_all_at(&content(), 0).unwrap();
            let span = span_of(source);
            let mut seen = Seen::default();
            let tap = tapped.then_some(&mut seen as &mut dyn SpanTap);
            let error = SendEngine::submit(&mut engine, &span, tap, &mut Vec::new()).unwrap_err();
            assert_eq!((error.remedy, error.moved_bytes), (remedy, moved), "{error}");
            assert_eq!(error.offset_bytes, OFFSET_BYTES + moved);
            assert_eq!(SendEngine::stage_times(&engine).send_ns, 2, "of two calls");
            drop(engine);
            let mut sent = Vec::new();
            far.read_to_end(&mut sent).unwrap();
            let first = OFFSET_BYTES as usize;
            assert!(sent == content()[first..first + moved as usize], "{error}");
            if tapped {
                assert!(seen.0 == content()[first..first + 2000], "a whole stride is shown");
            }
        }
    }

    #[test]
    fn a_receiver_reads_a_stride_back_before_it_takes_the_next() {
        let calls = [(600, None), (400, None), (1000, None), (500, None)];
        let (mut engine, mut far) = engine(&calls, false);
        far.write_all(&content()[OFFSET_BYTES as usize..]).unwrap();
        let span = span_of(tempfile::tempfile().unwrap());
        let (mut seen, mut done) = (Seen::default(), Vec::new());
        ReceiveEngine::submit(&mut engine, &span, Some(&mut seen), &mut done).unwrap();
        assert_eq!(engine.mover.asked, [1000, 400, 1000, 500]);
        assert_eq!(ReceiveEngine::stage_times(&engine).receive_ns, 4, "of four calls");
        assert!(seen.0 == content()[OFFSET_BYTES as usize..]);
        assert_eq!((done.len(), done[0].moved_bytes), (1, LEN_BYTES));
    }

    #[test]
    fn a_target_that_does_not_hold_what_was_received_fails_alone() {
        let (mut engine, mut far) = engine(&[(1000, None)], true);
        far.write_all(&content()).unwrap();
        let span = span_of(tempfile::tempfile().unwrap());
        let mut seen = Seen::default();
        let tap = Some(&mut seen as &mut dyn SpanTap);
        let error = ReceiveEngine::submit(&mut engine, &span, tap, &mut Vec::new()).unwrap_err();
        assert_eq!((error.remedy, error.moved_bytes), (Remedy::SkipFile, 1000), "{error}");
    }
}
