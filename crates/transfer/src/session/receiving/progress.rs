//! Progress of a receiving session, as it is counted and told.

use super::context::Context;
use crate::{
    locks::lock,
    name::Name,
    session::{role::LOOKED_AT_MAX, streams::StreamFigures},
    storage::target_place::TargetPlace,
};
use haul_protocol::message;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

const PROGRESS_EVERY: Duration = Duration::from_millis(400);

impl Context<'_> {
    /// Counts the bytes that have arrived: verified ones, what came whole and is being written, and
    /// what the open spans have so far.
    pub fn count_progress(&mut self) {
        // First: what is verified next leaves the streams' figures before it is counted here.
        let verified = self.shared.verified_bytes.load(Ordering::Relaxed);
        let of_span = |figures: &StreamFigures| {
            let on_wire = figures.tcp.bytes_received.saturating_sub(figures.consumed_bytes);
            figures.unsettled_bytes + on_wire * u64::from(figures.in_span)
        };
        let open = self.shared.streams.open();
        let partial: u64 = open.iter().map(|(_, figures)| of_span(figures)).sum();
        let before = self.tally.there_before();
        let received = (before + verified + partial).min(self.tally.offered_bytes);
        self.tally.received_bytes = self.tally.received_bytes.max(received);
        let durable = match self.place {
            TargetPlace::Null => verified,
            TargetPlace::Below { .. } => self.shared.committer.durable_bytes(),
        };
        self.tally.durable_bytes = self.tally.durable_bytes.max(before + durable);
    }

    /// Name of the first regular file that is under way.
    #[must_use]
    pub fn current(&self) -> Option<Name> {
        let mut offers = self.open.values().map(|open| &*open.offer).take(LOOKED_AT_MAX);
        let file = offers.find(|offer| offer.kind == message::FileKind::Regular)?;
        Some(Name(file.name.clone()))
    }

    pub fn tell_progress(&mut self, now: Instant) {
        let early = |told: Instant| now.saturating_duration_since(told) < PROGRESS_EVERY;
        if self.progress_at.is_some_and(early) {
            return;
        }
        self.progress_at = Some(now);
        self.count_progress();
        let streams = self.shared.streams.open().into_iter().map(|(stream, figures)| {
            message::StreamProgress {
                stream,
                received_bytes: figures.consumed_bytes,
                on_storage: figures.on_storage(),
            }
        });
        let progress = message::Progress {
            received_bytes: self.tally.received_bytes,
            durable_bytes: self.tally.durable_bytes,
            streams: streams.collect(),
        };
        lock(&self.shared.machine).progress(progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_options::FileOptions,
        session::receiving::{context::OpenFile, without_peer},
    };
    use haul_protocol::{FileId, Message, StreamId};
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        sync::{Arc, mpsc},
    };

    /// Runs a stream that was sent 1000 bytes, took 300 of them, and has 200 of whole spans to
    /// write, until the far end is closed.
    fn stream(context: &Context<'_>, in_span: bool) -> (TcpStream, mpsc::Sender<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        far.write_all(&[7; 1000]).unwrap();
        let (end, ends) = mpsc::channel::<()>();
        let work = move |_, figures: &Arc<crate::locks::Lock<StreamFigures>>| {
            {
                let mut figures = lock(figures);
                (figures.consumed_bytes, figures.unsettled_bytes) = (300, 200);
                figures.in_span = in_span;
            }
            let _ = ends.recv();
            Ok(())
        };
        context.shared.streams.spawn(StreamId(0), move || Ok(near), work);
        (far, end)
    }

    /// Bytes received and durable when a stream has brought what it was sent.
    fn counted(context: &mut Context<'_>, in_span: bool) -> (u64, u64) {
        let (far, end) = stream(context, in_span);
        let deadline = Instant::now() + Duration::from_secs(10);
        let has_all = |(_, figures): &(StreamId, StreamFigures)| {
            figures.tcp.bytes_received == 1000 && figures.unsettled_bytes == 200
        };
        while !context.shared.streams.open().iter().any(has_all) {
            assert!(Instant::now() < deadline, "{:?}", context.shared.streams.open());
            std::thread::sleep(Duration::from_millis(5));
        }
        context.count_progress();
        drop((far, end));
        context.shared.streams.stop();
        (context.tally.received_bytes, context.tally.durable_bytes)
    }

    #[test]
    fn what_arrived_is_what_is_there_verified_or_on_its_way_within_a_span() {
        let directory = tempfile::tempdir().unwrap();
        for (in_span, received) in [(true, 30 + 4000 + 900), (false, 30 + 4000 + 200)] {
            let below = without_peer::place(directory.path(), FileOptions::default());
            // Nothing of this session is durable below a directory until it is committed.
            for (place, durable) in [(TargetPlace::Null, 4030), (below, 30)] {
                let mut hear = |_| {};
                let mut context = without_peer::begin(place, &mut hear).context;
                context.tally.offered_bytes = 1 << 20;
                (context.tally.resumed_bytes, context.tally.skipped_bytes) = (10, 20);
                context.shared.verified_bytes.store(4000, Ordering::Relaxed);
                assert_eq!(counted(&mut context, in_span), (received, durable));
            }
        }
    }

    #[test]
    fn no_more_has_arrived_than_was_offered_and_no_less_than_before() {
        let mut hear = |_| {};
        let mut context = without_peer::begin(TargetPlace::Null, &mut hear).context;
        context.tally.offered_bytes = 500;
        context.shared.verified_bytes.store(4000, Ordering::Relaxed);
        context.count_progress();
        assert_eq!(context.tally.received_bytes, 500);
        context.shared.verified_bytes.store(100, Ordering::Relaxed);
        context.count_progress();
        assert_eq!((context.tally.received_bytes, context.tally.durable_bytes), (500, 4000));
    }

    #[test]
    fn progress_is_told_in_its_interval() {
        let mut hear = |_| {};
        let mut context = without_peer::begin(TargetPlace::Null, &mut hear).context;
        context.tally.offered_bytes = 500;
        context.shared.verified_bytes.store(100, Ordering::Relaxed);
        let begun = context.progress_at.unwrap();
        let mut told = |after: Duration| {
            context.tell_progress(begun + after);
            match lock(&context.shared.machine).poll_message() {
                Some(Message::Progress(told)) => Some((told.received_bytes, told.durable_bytes)),
                other => other.map(|other| panic!("{other:?}")),
            }
        };
        let moment = Duration::from_nanos(1);
        let times = [PROGRESS_EVERY - moment, PROGRESS_EVERY, PROGRESS_EVERY * 2 - moment];
        assert_eq!(times.map(&mut told), [None, Some((100, 100)), None]);
    }

    #[test]
    fn the_file_under_way_is_the_first_that_is_no_directory_or_link() {
        let mut hear = |_| {};
        let mut context = without_peer::begin(TargetPlace::Null, &mut hear).context;
        assert_eq!(context.current(), None);
        for (file, kind, name) in [
            (1, message::FileKind::Directory, "tree"),
            (2, message::FileKind::Regular, "tree/a"),
            (3, message::FileKind::Regular, "tree/b"),
        ] {
            let name = name.as_bytes().to_vec();
            let offer = message::FileOffer { kind, name, ..message::FileOffer::default() };
            context.open.insert(
                FileId(file),
                OpenFile { offer: offer.into(), stored_as: None, pass: None },
            );
        }
        assert_eq!(context.current(), Some(Name(b"tree/a".to_vec())));
    }
}
