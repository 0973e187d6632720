//! Choice of the engine that reads and sends, and what the user is told of it.

use super::{context::Context, data_streams::DataStreams};
use crate::{
    events::Explained,
    problem::Side,
    session::{engine_orders::source_of, streams::StreamFigures},
    storage::source::{Location, SourceEntry},
};
use haul_datapath::{WireKind, choose};
use haul_protocol::message::{self, Fault, FaultCode};
use std::{sync::atomic::Ordering, time::Instant};

impl DataStreams {
    /// Chooses the engines by an offered file, if it is the first that has bytes or if they have
    /// become many: the others are like it more often than not. A stream that finds them otherwise
    /// chooses again.
    pub fn choose_engines(
        &mut self,
        entry: &SourceEntry,
        context: &mut Context<'_>,
    ) -> Result<(), Fault> {
        let due = self.engines.offered(&entry.offer);
        context.shared.bulk_bytes.store(self.engines.bulk_bytes(), Ordering::Relaxed);
        let Some(bytes) = due else { return Ok(()) };
        let setup = &context.shared.setup;
        let opened = entry.open().ok();
        let is_zero = matches!(entry.location, Location::Zero);
        let file = opened.as_ref().filter(|_| !is_zero).map(|file| file.file());
        let size_bytes = entry.offer.size_bytes;
        let begin_bytes = opened.as_ref().map_or(0, |file| file.place(0));
        let resident_share = file.map_or(1.0, |file| {
            let cached = haul_sys::cachestat::cached_bytes(file, begin_bytes, size_bytes);
            cached.unwrap_or(size_bytes) as f64 / size_bytes.max(1) as f64
        });
        let facts = choose::SendFacts {
            host: &setup.host,
            wire: setup.wire(),
            source: if is_zero { choose::Source::Zeros } else { source_of(file) },
            size_bytes: bytes,
            resident_share,
            digest: setup.sees_bytes(),
            forced: self.forced_engine.as_deref(),
        };
        let choice = choose::send_engine(&facts).map_err(|error| {
            Fault::new(FaultCode::EngineRefused, message::Side::Source, error.to_string())
        })?;
        let over_tcp = setup.rdma.as_ref().map_or_else(Vec::new, |_| {
            let facts = choose::SendFacts { wire: WireKind::Tcp, forced: None, ..facts };
            choose::send_engine(&facts).map(|choice| choice.candidates).unwrap_or_default()
        });
        if context.file_options.explain {
            let words = vec![facts.in_words()];
            let host = setup.host.clone();
            let explained = Explained::engines(Side::Source, words, &host, &choice);
            self.explain(explained, context);
        }
        self.engines.over_tcp = over_tcp;
        let forced = self.forced_engine.is_some();
        self.engines.choose(choice, forced, true, &context.shared.orders);
        Ok(())
    }

    /// Tells how the engines were chosen: a client its user, a server its client.
    fn explain(&mut self, explained: Explained, context: &mut Context<'_>) {
        if self.supply.connects() {
            context.tell(explained.into());
        } else {
            self.engines.explain(explained);
        }
    }

    /// Tries the other engines when the source disk has slowed down.
    pub(super) fn watch_disk(&mut self, now: Instant, context: &mut Context<'_>) {
        let shared = &context.shared;
        let sent = |figures: &[StreamFigures]| figures.iter().map(|f| f.payload_bytes).sum();
        let streams = (&*shared.streams, &shared.orders);
        let change = self.engines.watch_disk(now, streams, sent, |f| f.stages.source_ns);
        context.tell_change(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        session::{
            sending::{start::Begun, without_peer},
            streams::StreamSetup,
            supply::Supply,
        },
    };
    use haul_protocol::{Message, StreamId};
    use std::{
        fs::{self, File},
        os::unix::fs::FileExt,
        path::Path,
        time::Duration,
    };

    fn explains() -> FileOptions {
        FileOptions { explain: true, ..FileOptions::default() }
    }

    /// Facts by which the engines were chosen, as a server tells them.
    fn facts(streams: &mut DataStreams) -> String {
        let Some(Message::Explained(explained)) = streams.engines.take_explained() else {
            panic!("it is explained")
        };
        explained.facts[0].clone()
    }

    fn entry(directory: &Path) -> SourceEntry {
        without_peer::files(directory).remove(0)
    }

    #[test]
    fn engines_are_chosen_by_the_first_file_and_what_is_cached_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("data")).unwrap();
        // Of a hole that nobody has read nothing is in the page cache.
        file.set_len(400 << 10).unwrap();
        file.write_all_at(&[7; 100 << 10], 0).unwrap();
        let cached = haul_sys::cachestat::cached_bytes(&file, 0, 400 << 10);
        if cached.ok() != Some(100 << 10) {
            return haul_testkit::skip::skip("cachestat(2)", "none");
        }
        let mut hear = |_| {};
        let Begun { mut context, mut streams, .. } = without_peer::begin(explains(), &mut hear);
        streams.choose_engines(&entry(directory.path()), &mut context).unwrap();
        assert!(streams.engines.chosen.is_some());
        let facts = facts(&mut streams);
        assert!(facts.contains("25 % of it in the page cache"), "{facts}");
        assert_eq!(context.shared.bulk_bytes.load(Ordering::Relaxed), 400 << 10);
    }

    #[test]
    fn zeros_and_files_that_cannot_be_opened_have_engines_too() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("data"), "bytes").unwrap();
        let file = entry(directory.path());
        fs::remove_file(directory.path().join("data")).unwrap();
        let zeros = SourceEntry { location: Location::Zero, ..file.clone() };
        for (entry, expected) in [(zeros, "of zeros"), (file, "of which nothing is known")] {
            let mut hear = |_| {};
            let Begun { mut context, mut streams, .. } = without_peer::begin(explains(), &mut hear);
            streams.choose_engines(&entry, &mut context).unwrap();
            let facts = facts(&mut streams);
            assert!(facts.contains(expected), "{facts}");
        }
    }

    #[test]
    fn an_engine_that_cannot_do_it_is_refused_and_one_that_was_asked_for_stays() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("data"), "bytes").unwrap();
        for (name, is_chosen) in [("read-write", true), ("no-such-engine", false)] {
            let mut hear = |_| {};
            let Begun { mut context, mut streams, .. } = without_peer::begin(explains(), &mut hear);
            streams.forced_engine = Some(name.into());
            let chosen = streams.choose_engines(&entry(directory.path()), &mut context);
            assert_eq!(chosen.is_ok(), is_chosen, "{chosen:?}");
            let chosen = streams.engines.chosen.as_ref();
            assert_eq!(chosen.is_some_and(|chosen| chosen.forced), is_chosen);
        }
    }

    /// Case of a stream whose endpoints fail: it stays TCP, whatever was asked for.
    #[cfg(feature = "fabric")]
    #[test]
    fn a_stream_that_stays_tcp_beside_rdma_endpoints_has_the_engines_of_tcp() {
        use crate::session::rdma::{Part, Route};
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("data"), "bytes").unwrap();
        for engine in [None, Some("fabric".into())] {
            let mut hear = |_| {};
            let Begun { mut context, mut streams, .. } = without_peer::begin(explains(), &mut hear);
            let shared = std::sync::Arc::get_mut(&mut context.shared).expect("no stream has it");
            shared.setup.rdma = Some(Route::of_this_host(Part::Connects, None));
            streams.forced_engine = engine;
            streams.choose_engines(&entry(directory.path()), &mut context).unwrap();
            let chosen = streams.engines.chosen.clone().expect("there is a file");
            let [rdma, tcp] = [&chosen.candidates, &chosen.over_tcp];
            assert!(rdma.iter().all(|engine| engine.wires.contains(&WireKind::Fabric)));
            assert!(!tcp.is_empty() && tcp.iter().all(|e| e.wires.contains(&WireKind::Tcp)));
        }
    }

    #[test]
    fn a_client_tells_its_user_how_the_engines_were_chosen() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("data"), "bytes").unwrap();
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let Begun { mut context, mut streams, .. } = without_peer::begin(explains(), &mut hear);
        let (source, _) = without_peer::client(Duration::from_secs(60));
        let all = context.shared.streams.clone();
        streams.supply = Supply::new(source, all, StreamSetup::of_nobody());
        streams.choose_engines(&entry(directory.path()), &mut context).unwrap();
        assert!(streams.engines.take_explained().is_none());
        drop(context);
        assert!(matches!(&told[..], [Event::Explained(_)]), "{told:?}");
    }

    #[test]
    fn another_engine_is_tried_and_told_when_the_disk_has_slowed_down() {
        const MIB: u64 = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("data"), vec![7; 2 * MIB as usize]).unwrap();
        let mut told = Vec::new();
        let mut hear = |event| told.push(event);
        let Begun { mut context, mut streams, .. } =
            without_peer::begin(FileOptions::default(), &mut hear);
        streams.choose_engines(&entry(directory.path()), &mut context).unwrap();
        if streams.engines.chosen.as_ref().is_some_and(|chosen| chosen.candidates.len() < 3) {
            return haul_testkit::skip::skip("two engines beside the last resort", "fewer");
        }
        let stream = StreamId(0);
        without_peer::open_stream(&context, stream);
        let begun = Instant::now();
        let (mut bytes, mut waited) = (0, 0);
        for second in 1..20 {
            // It reads fast, and then it makes the stream wait.
            bytes += if second < 8 { 1000 * MIB } else { 10 * MIB };
            waited += if second < 8 { 0 } else { 900_000_000 };
            context.shared.streams.set_figures(stream, |figures| {
                figures.payload_bytes = bytes;
                figures.stages.source_ns = waited;
            });
            streams.watch_disk(begun + Duration::from_secs(second), &mut context);
            if context.shared.orders.newer_than(&mut 0).is_some() {
                break;
            }
        }
        context.shared.streams.stop();
        let said = without_peer::said(&context);
        assert!(matches!(&said[..], [Message::Notice(_)]), "{said:?}");
        drop(context);
        assert!(matches!(&told[..], [Event::Fallback { side: Side::Source, .. }]), "{told:?}");
    }
}
