//! The end that sends: frames through registered buffers, files out of the page cache.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use haul_fabric_sys::{Buffer, Completion, NoWindow, Operation, Reach, Source, Window};
use rustix::io::Errno;

use crate::{
    Error, Figures, Provider,
    budget::{SEND_BUFFERS, Share},
    endpoint::{self, End, Endpoint},
    receiving::{ROOM_BYTES, Room},
};

/// Shortest buffer that a peer may have, in bytes.
const MESSAGE_BYTES_MIN: u32 = 4096;
/// Receives for the peer's words about its room: it has at most four under way.
const ROOM_RECEIVES: usize = 8;
/// Time that a peer may take to read what was sent last.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Reasons why a part of a file was not sent as a whole.
#[derive(Debug)]
pub enum FileError {
    /// The file ends before the part does.
    Truncated,
    /// The file cannot be read.
    Read(io::Error),
    /// The pair is of no more use.
    Wire(Error),
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        Self::Wire(error)
    }
}

/// Windows on files out of which bytes may still be sent.
#[derive(Debug, Default)]
pub struct InFlight(Vec<Weak<Window>>);

impl InFlight {
    /// Whether all windows are free: the pages of their files are not read any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.iter().all(|window| window.strong_count() == 0)
    }
}

/// The end that sends.
#[derive(Debug)]
pub struct SendEnd {
    provider: Provider,
    endpoint: Endpoint,
    /// Buffers that nothing is under way from.
    spare: Vec<Buffer>,
    /// Bytes that wait for more.
    filling: Option<(Buffer, usize)>,
    message_bytes: usize,
    /// Bytes of a window on a file.
    window_bytes: u64,
    /// Messages that the peer has ever had room for.
    room: u64,
    sent: u64,
    /// Messages that are over.
    over: u64,
    /// The first error: the pair is of no more use.
    broken: Option<Error>,
    /// Length of the peer's buffers, once it has said it.
    peer_bytes: Option<u32>,
    /// Buffers for the peer's words about its room that are not posted.
    rooms: Vec<Buffer>,
    /// Whether the pages of a file were cut off while they were sent.
    has_lost_a_page: bool,
    /// Most bytes a second, and the time from which on the next message may go.
    rate: Option<(u64, Instant)>,
    figures: Figures,
    moved_bytes: Arc<AtomicU64>,
}

impl SendEnd {
    pub(crate) fn new(
        provider: Provider,
        endpoint: Endpoint,
        share_bytes: usize,
    ) -> Result<Self, Error> {
        let Share { message_bytes, window_bytes } = Share::of(share_bytes);
        let message_bytes = message_bytes.min(endpoint.channel.domain().info().message_bytes_max());
        let domain = endpoint.channel.domain().clone();
        let mut figures = Figures::default();
        let mut buffer = |len_bytes| {
            figures
                .register(|| Buffer::new(&domain, len_bytes, Reach::Local))
                .map_err(|error| Error::NoMemory { len_bytes, words: error.words() })
        };
        let spare = (0..SEND_BUFFERS).map(|_| buffer(message_bytes)).collect::<Result<_, _>>()?;
        let empty =
            (0..ROOM_RECEIVES).map(|_| buffer(ROOM_BYTES)).collect::<Result<Vec<_>, _>>()?;
        let mut end = Self {
            provider,
            endpoint,
            spare,
            filling: None,
            message_bytes,
            window_bytes: window_bytes as u64,
            room: 0,
            sent: 0,
            over: 0,
            broken: None,
            peer_bytes: None,
            rooms: Vec::new(),
            has_lost_a_page: false,
            rate: None,
            figures,
            moved_bytes: Arc::default(),
        };
        for buffer in empty {
            end.post(Operation::Receive(buffer))?;
        }
        // Only now is it known how long a message may be.
        end.await_room()?;
        Ok(end)
    }

    #[must_use]
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The TCP connection beside the pair.
    #[must_use]
    pub fn lifeline(&self) -> &std::os::fd::OwnedFd {
        self.endpoint.lifeline()
    }

    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// Bytes of messages that are over, for others to look at meanwhile.
    #[must_use]
    pub fn moved_bytes(&self) -> Arc<AtomicU64> {
        self.moved_bytes.clone()
    }

    /// Sends no more than this many bytes a second from now on: no card paces by itself.
    pub fn set_rate(&mut self, bytes_per_s: u64) {
        self.rate = Some((bytes_per_s.max(1), Instant::now()));
        // A tenth of a second at once, at most.
        let message_bytes = usize::try_from(bytes_per_s / 10).unwrap_or(usize::MAX);
        self.message_bytes = self.message_bytes.min(message_bytes / 4096 * 4096).max(4096);
    }

    /// Sends bytes behind all that was sent before. They may wait for more until [`Self::flush`].
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let taken = self.fill(|free| {
                let len = free.len().min(bytes.len());
                free[..len].copy_from_slice(&bytes[..len]);
                Ok::<_, Error>(len)
            })?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Puts on the wire what waits for more.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn flush(&mut self) -> Result<(), Error> {
        match self.filling.take() {
            // A file that could not be read leaves its buffer as it was: there is no empty message.
            Some((buffer, 0)) => {
                self.spare.push(buffer);
                Ok(())
            }
            Some((buffer, filled)) => self.send_message(Source::Buffer(buffer, 0..filled)),
            None => Ok(()),
        }
    }

    /// Sends a part of a file out of the page cache, behind all that was sent before, and shows
    /// its bytes to `see`, once, in order. Nothing is copied in this process where the pages can be
    /// registered; [`Self::figures`] tells why not, and how much was copied.
    ///
    /// # Errors
    /// With the count of bytes that are on the wire, all of which `see` has seen.
    pub fn send_file(
        &mut self,
        file: &File,
        offset_bytes: u64,
        len_bytes: u64,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<InFlight, (u64, FileError)> {
        if len_bytes > self.provider.copied_bytes_max() {
            // A payload begins a message, so that it comes to lie at a page.
            self.flush().map_err(|error| (0, error.into()))?;
        }
        let mut moved = 0;
        let mut in_flight = InFlight::default();
        // The window on what comes next. It is of this very file, and so lives no longer than this.
        let mut next = None;
        while moved < len_bytes {
            let (from, left) = (offset_bytes + moved, len_bytes - moved);
            let window = match next.take() {
                None if self.takes_windows(left) => {
                    self.window(file, from, left).map_err(|error| (moved, error))?
                }
                ready => ready,
            };
            moved = match window {
                Some(window) => {
                    in_flight.0.push(Arc::downgrade(&window));
                    let sent = self.send_window(&window, moved, see)?;
                    // While the card sends. What is wrong with it is told when it is to be sent.
                    let (behind, rest) = (offset_bytes + sent, len_bytes - sent);
                    if self.takes_windows(rest) {
                        next = self.window(file, behind, rest).ok().flatten();
                    }
                    sent
                }
                None => {
                    let took = self.copy_some(file, from, left, see);
                    moved + took.map_err(|error| (moved, error))?
                }
            };
        }
        Ok(in_flight)
    }

    /// Sends a part of a file through registered buffers, behind all that was sent before, as a
    /// program does without [`Self::send_file`]: one copy, from the page cache into a buffer.
    ///
    /// # Errors
    /// With the count of bytes that were copied, all of which `see` has seen.
    pub fn send_copied(
        &mut self,
        file: &File,
        offset_bytes: u64,
        len_bytes: u64,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<(), (u64, FileError)> {
        let mut moved = 0;
        while moved < len_bytes {
            let took = self.copy_some(file, offset_bytes + moved, len_bytes - moved, see);
            moved += took.map_err(|error| (moved, error))?;
        }
        Ok(())
    }

    /// Takes back the memory of what has been sent, without waiting.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn progress(&mut self) -> Result<(), Error> {
        self.take_all()
    }

    /// Waits until all windows on files are free again: their pages are not read any more.
    ///
    /// # Errors
    /// The pair is of no more use then.
    pub fn settle(&mut self) -> Result<(), Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        self.flush()?;
        while self.over < self.sent {
            self.await_one()?;
        }
        Ok(())
    }

    /// Whether windows are taken for a part of this length. A rate may have made messages so short
    /// that the provider copies each of them.
    fn takes_windows(&self, len_bytes: u64) -> bool {
        let message_bytes = len_bytes.min(self.message_bytes as u64);
        self.figures.refused.is_none() && message_bytes > self.provider.copied_bytes_max()
    }

    /// Registers the pages of what comes next; `None` where they cannot be registered.
    fn window(
        &mut self,
        file: &File,
        from: u64,
        left: u64,
    ) -> Result<Option<Arc<Window>>, FileError> {
        let size_bytes = file.metadata().map_err(FileError::Read)?.len();
        if size_bytes <= from {
            return Err(FileError::Truncated);
        }
        let len_bytes = left.min(self.window_bytes).min(size_bytes - from);
        let domain = self.endpoint.channel.domain();
        let len = usize::try_from(len_bytes).unwrap_or(0);
        match self.figures.register(|| Window::new(domain, file, from, len)) {
            Ok(window) => {
                self.figures.windows += 1;
                Ok(Some(Arc::new(window)))
            }
            Err(refused) => {
                if is_for_all_files(&refused, file, from, len_bytes) {
                    self.figures.refused = Some(why_refused(&refused, len_bytes));
                }
                Ok(None)
            }
        }
    }

    /// Sends a window, message by message; returns how far the part has come.
    fn send_window(
        &mut self,
        window: &Arc<Window>,
        moved: u64,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<u64, (u64, FileError)> {
        // A file that was cut short and grew again has bytes that wait before this window.
        self.flush().map_err(|error| (moved, error.into()))?;
        let mut sent = 0;
        while sent < window.len_bytes() {
            let at = moved + sent as u64;
            self.await_room().map_err(|error| (at, error.into()))?;
            let range = sent..window.len_bytes().min(sent + self.message_bytes);
            let source = Source::Window(window.clone(), range.clone());
            self.send_message(source).map_err(|error| (at, error.into()))?;
            sent = range.end;
            let len_bytes = range.len() as u64;
            if len_bytes > self.provider.copied_bytes_max() {
                self.figures.window_bytes += len_bytes;
            } else {
                self.figures.copied_bytes += len_bytes;
            }
            // A page that is gone was sent as zeros, too, or the pair breaks: the part ends here.
            let lost = |_| (moved + sent as u64, FileError::Truncated);
            window.see(range, &mut *see).map_err(lost)?;
        }
        Ok(moved + sent as u64)
    }

    /// Sends bytes of a file through a buffer; returns how many.
    fn copy_some(
        &mut self,
        file: &File,
        offset_bytes: u64,
        left: u64,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<u64, FileError> {
        let taken = self.fill(|free| {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(free.len());
            let taken = loop {
                match file.read_at(&mut free[..len], offset_bytes) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    outcome => break outcome,
                }
            };
            let taken = taken.map_err(FileError::Read)?;
            see(&free[..taken]);
            Ok::<_, FileError>(taken)
        })?;
        self.figures.copied_bytes += taken as u64;
        if taken == 0 { Err(FileError::Truncated) } else { Ok(taken as u64) }
    }

    /// Fills the free part of a buffer, which goes to the wire when it is full.
    fn fill<E: From<Error>>(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let (mut buffer, filled) = match self.filling.take() {
            Some(filling) => filling,
            None => (self.spare_buffer()?, 0),
        };
        let outcome = fill(&mut buffer.bytes_mut()[filled..self.message_bytes]);
        let filled = filled + outcome.as_ref().map_or(0, |taken| *taken);
        self.filling = Some((buffer, filled));
        if filled == self.message_bytes {
            self.flush()?;
        }
        outcome
    }

    fn spare_buffer(&mut self) -> Result<Buffer, Error> {
        loop {
            if let Some(buffer) = self.spare.pop() {
                return Ok(buffer);
            }
            self.await_one()?;
        }
    }

    /// Sends one message once the peer has room for it.
    fn send_message(&mut self, source: Source) -> Result<(), Error> {
        self.await_turn(source.len_bytes())?;
        self.await_room()?;
        if let Source::Buffer(_, range) = &source {
            self.figures.buffered_bytes += range.len() as u64;
        }
        self.post(Operation::Send(source))?;
        self.sent += 1;
        self.figures.messages += 1;
        self.progress()
    }

    /// Waits as the rate demands before a message of this length, while completions go on.
    fn await_turn(&mut self, len_bytes: usize) -> Result<(), Error> {
        let Some((bytes_per_s, mut at)) = self.rate else { return Ok(()) };
        while let Some(left) = at.checked_duration_since(Instant::now()) {
            if endpoint::has_ended(self.endpoint.lifeline()) {
                return Err(Error::PeerGone);
            }
            std::thread::sleep(left.min(Duration::from_millis(10)));
            self.progress()?;
        }
        at = at.max(Instant::now());
        let takes = Duration::from_secs_f64(len_bytes as f64 / bytes_per_s as f64);
        self.rate = Some((bytes_per_s, at + takes));
        Ok(())
    }

    fn await_room(&mut self) -> Result<(), Error> {
        if self.sent < self.room {
            return Ok(());
        }
        self.figures.waits_for_room += 1;
        let begun = Instant::now();
        while self.sent == self.room {
            self.await_one()?;
        }
        self.figures.waiting_for_room += begun.elapsed();
        Ok(())
    }

    fn take_back(&mut self, Completion { operation, outcome }: Completion) -> Result<(), Error> {
        self.over += u64::from(matches!(operation, Operation::Send(_)));
        let came = outcome.map_err(|error| self.endpoint.failed(error))?;
        match operation {
            Operation::Send(Source::Buffer(buffer, range)) => {
                self.moved_bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
                self.spare.push(buffer);
            }
            Operation::Send(Source::Window(window, range)) => {
                self.moved_bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
                self.has_lost_a_page |= window.has_lost_a_page();
            }
            Operation::Receive(buffer) => {
                let room = Room::decode(&buffer.bytes()[..came])?;
                self.take_room(room)?;
                self.rooms.push(buffer);
            }
            Operation::Write(..) | Operation::Read(..) => {}
        }
        while let Some(buffer) = self.rooms.pop() {
            if let Some(back) = self.endpoint.post(Operation::Receive(buffer))? {
                // The queue is full for a moment: when the next operation is over.
                if let Operation::Receive(buffer) = back {
                    self.rooms.push(buffer);
                }
                break;
            }
        }
        if self.has_lost_a_page {
            // It is not known which part the zeros belonged to: all of the stream comes again.
            return Err(Error::LostPages);
        }
        Ok(())
    }
}

impl End for SendEnd {
    fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Takes back what belonged to an operation that is over; the first error stays.
    fn over(&mut self, completion: Completion) -> Result<(), Error> {
        let outcome = self.take_back(completion);
        outcome.inspect_err(|error| {
            self.broken.get_or_insert_with(|| error.clone());
        })
    }
}

impl SendEnd {
    /// Takes what the peer says of its room: the length of its buffers never changes, as bytes that
    /// wait for more may fill one already.
    fn take_room(&mut self, Room { posted, message_bytes }: Room) -> Result<(), Error> {
        check_room(Room { posted, message_bytes }, self.room, self.peer_bytes)?;
        if self.peer_bytes.replace(message_bytes).is_none() {
            let peers = usize::try_from(message_bytes).unwrap_or(usize::MAX);
            self.message_bytes = self.message_bytes.min(peers);
        }
        self.room = posted;
        Ok(())
    }
}

impl Drop for SendEnd {
    /// Waits until the peer has read everything, at most some seconds.
    fn drop(&mut self) {
        if self.settle().is_ok() {
            self.endpoint.say_no_more();
            self.endpoint.await_peer_close(CLOSE_PATIENCE);
        }
    }
}

/// Checks what a peer says of its room against what it has said before.
fn check_room(said: Room, room: u64, peer_bytes: Option<u32>) -> Result<(), Error> {
    let more = said.posted.checked_sub(room);
    if more.is_none_or(|more| more > u64::from(u16::MAX)) {
        return Err(Error::BadMessage("a count of buffers that cannot be"));
    }
    let is_same = peer_bytes.is_none_or(|was| was == said.message_bytes);
    if said.message_bytes < MESSAGE_BYTES_MIN || !is_same {
        return Err(Error::BadMessage("a length of buffers that cannot be"));
    }
    Ok(())
}

/// Whether a file has this many bytes.
fn reaches(file: &File, end_bytes: u64) -> bool {
    file.metadata().is_ok_and(|found| found.len() >= end_bytes)
}

/// Whether no other file will have a window either. One that was cut short has none at a card; the
/// next file has.
fn is_for_all_files(refused: &NoWindow, file: &File, from: u64, len_bytes: u64) -> bool {
    matches!(refused, NoWindow::Map(_)) || reaches(file, from + len_bytes)
}

/// The reason for which pages cannot be registered, in words.
fn why_refused(refused: &NoWindow, len_bytes: u64) -> String {
    match refused {
        NoWindow::Map(error) => format!("needs a file that can be mapped, found {error}"),
        NoWindow::Register(error) if error.code == Errno::FAULT.raw_os_error() => format!(
            "needs Linux 6.2 and a file system whose pages may be registered for reading, found \
             {error}"
        ),
        NoWindow::Register(error) => format!(
            "needs memory that may be locked (RLIMIT_MEMLOCK) for {len_bytes} bytes, found \
             {error}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_grows_by_no_more_than_65_535_buffers_and_never_shrinks() {
        let said = |posted| check_room(Room { posted, message_bytes: 4096 }, 10, None);
        assert_eq!([10, 11, 10 + 65_535].map(said), [0; 3].map(|_| Ok(())));
        let bad = Err(Error::BadMessage("a count of buffers that cannot be"));
        assert_eq!([9, 0, 10 + 65_536, u64::MAX].map(said), [0; 4].map(|_| bad.clone()));
    }

    #[test]
    fn buffers_have_a_page_at_least_and_stay_as_long_as_they_were() {
        let said = |message_bytes, was| check_room(Room { posted: 1, message_bytes }, 0, was);
        assert_eq!(said(4096, None), Ok(()));
        assert_eq!(said(8192, Some(8192)), Ok(()));
        let bad = Err(Error::BadMessage("a length of buffers that cannot be"));
        assert_eq!(said(4095, None), bad);
        assert_eq!(said(4095, Some(4095)), bad);
        assert_eq!((said(8191, Some(8192)), said(8193, Some(8192))), (bad.clone(), bad));
    }

    #[test]
    fn a_file_reaches_its_last_byte() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        assert!(reaches(&file, 100) && !reaches(&file, 101));
    }

    /// Case of a file that was cut short at a card: no file behind it was sent without a copy.
    #[test]
    fn a_file_that_was_cut_short_is_no_reason_to_copy_the_others() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let error = haul_fabric_sys::Error { call: "fi_mr_reg", code: Errno::FAULT.raw_os_error() };
        let cannot_register = NoWindow::Register(error);
        let is_for_all = |from, len| is_for_all_files(&cannot_register, &file, from, len);
        assert!(is_for_all(90, 10) && is_for_all(0, 1));
        assert!(!is_for_all(90, 11) && !is_for_all(10, 100));
        let cannot_map = NoWindow::Map(io::ErrorKind::InvalidInput.into());
        assert!(is_for_all_files(&cannot_map, &file, 90, 11));
    }

    #[test]
    fn pages_that_are_refused_say_what_they_need() {
        let said = |code| {
            let error = haul_fabric_sys::Error { call: "fi_mr_reg", code };
            why_refused(&NoWindow::Register(error), 4_194_304)
        };
        assert!(said(Errno::FAULT.raw_os_error()).contains("needs Linux 6.2"));
        assert!(said(Errno::NOMEM.raw_os_error()).contains("for 4194304 bytes"));
        let said = why_refused(&NoWindow::Map(io::ErrorKind::InvalidInput.into()), 1);
        assert!(said.starts_with("needs a file that can be mapped, found"), "{said}");
    }
}
