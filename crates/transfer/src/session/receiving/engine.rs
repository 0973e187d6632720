//! Choice of the engine that receives and writes, and what the user is told of it.

use super::{context::Context, data_streams::DataStreams};
use crate::{
    error::io_problem_fault,
    events::Explained,
    problem::Side,
    session::{growth::growth, streams::StreamFigures},
    storage::{
        root::{Links, Root, split_last},
        target_place::TargetPlace,
    },
};
use haul_datapath::{WireKind, choose};
use haul_host::FileSystem;
use haul_protocol::message::{self, Fault, FaultCode, FileOffer};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{io, os::fd::OwnedFd, path::Path, sync::Arc, time::Instant};

impl DataStreams {
    /// Chooses the engines by an offered file, if it is the first that has bytes or if they have
    /// become many.
    pub fn choose_engines(
        &mut self,
        offer: &FileOffer,
        context: &mut Context<'_>,
    ) -> Result<(), Fault> {
        let file_options = context.place.file_options();
        if file_options.dry_run && !file_options.explain {
            return Ok(());
        }
        let Some(size_bytes) = self.engines.offered(offer) else { return Ok(()) };
        let setup = &context.shared.setup;
        let (target, rotational) = match &context.place {
            TargetPlace::Null => (choose::Target::Null, None),
            TargetPlace::Below { root, base, .. } => {
                let failed = |what| {
                    move |error| io_problem_fault(message::Side::Target, what, &error).at(&**base)
                };
                let directory = open_existing(root, base, file_options.leaves_nothing())
                    .map_err(failed("the target cannot be opened"))?;
                let system =
                    FileSystem::of(&directory).map_err(failed("the file system is unknown"))?;
                let rotational = haul_host::rotational(Path::new("/"), &directory);
                (choose::Target::File(system.kind), rotational)
            }
        };
        let facts = choose::ReceiveFacts {
            host: &setup.host,
            wire: setup.wire(),
            target,
            size_bytes,
            durable: true,
            grows: growth(offer).is_some(),
            digest: setup.sees_bytes(),
            rotational,
            forced: self.forced_engine.as_deref(),
        };
        let choice = choose::receive_engine(&facts).map_err(|error| {
            Fault::new(FaultCode::EngineRefused, message::Side::Target, error.to_string())
        })?;
        let over_tcp = setup.rdma.as_ref().map_or_else(Vec::new, |_| {
            let facts = choose::ReceiveFacts { wire: WireKind::Tcp, forced: None, ..facts };
            choose::receive_engine(&facts).map(|choice| choice.candidates).unwrap_or_default()
        });
        if file_options.explain {
            let words = vec![facts.in_words()];
            let explained = Explained::engines(Side::Target, words, &setup.host, &choice);
            self.explain(explained, context);
        }
        self.engines.over_tcp = over_tcp;
        let forced = self.forced_engine.is_some();
        let watches_disk = matches!(context.place, TargetPlace::Below { .. });
        self.engines.choose(choice, forced, watches_disk, &context.shared.orders);
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

    /// Tries the other engines when the target disk has slowed down.
    pub(super) fn watch_disk(&mut self, now: Instant, context: &mut Context<'_>) {
        let shared = &context.shared;
        let durable = |_: &[StreamFigures]| shared.committer.durable_bytes();
        let streams = (&*shared.streams, &shared.orders);
        let change = self.engines.watch_disk(now, streams, durable, |f| f.stages.target_ns);
        context.tell_change(change);
    }
}

/// Opens the directory, or in a dry run, which makes none, the lowest of those above it that is
/// there.
fn open_existing(root: &Arc<Root>, base: &[u8], or_above: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut name = base;
    loop {
        match root.open_beneath(name, flags, Mode::empty(), Links::Refuse) {
            Err(error)
                if or_above
                    && !name.is_empty()
                    && Errno::from_io_error(&error) == Some(Errno::NOENT) =>
            {
                name = split_last(name).0;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        events::Event,
        file_options::FileOptions,
        locks::{Lock, lock},
        session::{
            receiving::{
                with_sender::{DataStream, Session, offer},
                without_peer,
            },
            role::Role,
            streams::{SharedFigures, StreamSetup},
        },
        storage::{fresh::Fresh, prepare::Prepared},
    };
    use haul_protocol::{FileId, Message, StreamId, message::Digest};
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    #[test]
    fn a_directory_that_is_not_there_yet_is_looked_at_from_above_only_in_a_dry_run() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("there")).unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        let root = Root::open(place.path()).unwrap();
        let is_open = |name: &str, or_above| {
            open_existing(&root, name.as_bytes(), or_above).map_err(|error| error.kind())
        };
        assert!(is_open("there", false).is_ok() && is_open("", false).is_ok());
        assert_eq!(is_open("there/gone/deep", false).unwrap_err(), io::ErrorKind::NotFound);
        assert!(is_open("there/gone/deep", true).is_ok() && is_open("gone", true).is_ok());
        assert_eq!(is_open("file", true).unwrap_err(), io::ErrorKind::NotADirectory);
        assert_eq!(is_open("file/in-it", true).unwrap_err(), io::ErrorKind::NotADirectory);
        drop(place);
        // Of a root that is gone nothing is above.
        assert!(is_open("gone", true).is_err() || root.is_directory(b""));
    }

    #[test]
    fn a_dry_run_chooses_an_engine_only_to_explain_it_and_each_side_explains_to_the_user() {
        for (dry_run, explain, is_chosen) in
            [(false, false, true), (false, true, true), (true, false, false), (true, true, true)]
        {
            for is_client in [false, true] {
                let place = tempfile::tempdir().unwrap();
                let file_options = FileOptions { dry_run, explain, ..FileOptions::default() };
                let target = without_peer::place(place.path(), file_options);
                let (options, setup) = (without_peer::options(), StreamSetup::of_nobody());
                let mut told = 0;
                let mut hear = |event| told += u32::from(matches!(event, Event::Explained(_)));
                let mut session = match is_client {
                    true => Session::begin_client(target, options, 1, &mut hear),
                    false => Session::begin(target, options, setup, &mut hear),
                };
                session.say(Message::FileOffer(offer(0, "x", 10)));
                assert_eq!(session.role.streams.engines.chosen.is_some(), is_chosen);
                let first = session.role.poll_message();
                let is_said = matches!(first, Some(Message::Explained(_)));
                assert_eq!(is_said, explain && !is_client);
                drop(session);
                assert_eq!(told, u32::from(explain && is_client));
            }
        }
    }

    #[test]
    fn an_engine_that_is_asked_for_is_taken_or_ends_the_session() {
        for (engine, is_there) in [("read-write", true), ("no-such-engine", false)] {
            let mut options = without_peer::options();
            options.engine = Some(engine.to_owned());
            let mut hear = |_| {};
            let setup = StreamSetup::of_nobody();
            let mut session = Session::begin(TargetPlace::Null, options, setup, &mut hear);
            session.say(Message::FileOffer(offer(0, "x", 10)));
            session.turn();
            let chosen = session.role.streams.engines.chosen.clone();
            assert_eq!(chosen.is_some_and(|chosen| chosen.forced), is_there);
            assert_eq!(matches!(session.ended, Some(Err(_))), !is_there, "{:?}", session.ended);
        }
    }

    /// Case of a stream whose endpoints fail: it stays TCP, whatever was asked for.
    #[cfg(feature = "fabric")]
    #[test]
    fn a_stream_that_stays_tcp_beside_rdma_endpoints_has_the_engines_of_tcp() {
        use crate::session::rdma::{Part, Route};
        for engine in [None, Some("fabric".to_owned())] {
            let (mut options, mut setup) = (without_peer::options(), StreamSetup::of_nobody());
            options.engine = engine;
            setup.rdma = Some(Route::of_this_host(Part::Listens, None));
            let mut hear = |_| {};
            let mut session = Session::begin(TargetPlace::Null, options, setup, &mut hear);
            session.say(Message::FileOffer(offer(0, "x", 10)));
            let chosen = session.role.streams.engines.chosen.clone().expect("there is a file");
            let [rdma, tcp] = [&chosen.candidates, &chosen.over_tcp];
            assert!(rdma.iter().all(|engine| engine.wires.contains(&WireKind::Fabric)));
            assert!(!tcp.is_empty() && tcp.iter().all(|e| e.wires.contains(&WireKind::Tcp)));
        }
    }

    /// Case of a disk whose cache is full: it does a tenth of what it did.
    #[test]
    fn a_disk_that_slows_down_has_another_engine_tried() {
        let place = tempfile::tempdir().unwrap();
        let mut changes = Vec::new();
        let mut hear = |event| {
            if let Event::Fallback { from_to, .. } = event {
                changes.push(from_to);
            }
        };
        let target = without_peer::place(place.path(), FileOptions::default());
        let (options, setup) = (without_peer::options(), StreamSetup::of_nobody());
        let mut session = Session::begin(target, options, setup, &mut hear);
        session.say(Message::FileOffer(offer(0, "x", 1 << 30)));
        let chosen = session.role.streams.engines.chosen.clone().expect("there is a file");
        let [_, second, _, ..] = chosen.candidates[..] else {
            return haul_testkit::skip::skip("three engines", format!("{chosen:?}"));
        };
        let shared = session.role.context.shared.clone();
        let waited_ns = Arc::new(AtomicU64::new(0));
        let (streams, of_thread) = (shared.streams.clone(), waited_ns.clone());
        let (_ours, theirs) = DataStream::open(9, &shared.setup);
        let work = move |_, figures: &SharedFigures| {
            while !streams.stopping() {
                lock(figures).stages.target_ns = of_thread.load(Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        shared.streams.spawn(StreamId(9), move || Ok(theirs), work);
        let begun = Instant::now();
        for second in 1..16 {
            let bytes = if second < 8 { 1_000_000_000 } else { 100_000_000 };
            let (file, nothing) = (FileId(1000 + second), offer(1, "y", 0));
            let fresh = &mut Fresh::default();
            let Ok(Prepared::Ready { target, .. }) =
                TargetPlace::Null.prepare(&nothing, 1 << 20, Digest::None, fresh)
            else {
                panic!("nowhere is room for anything")
            };
            let target = Arc::new(Lock::new(Some(*target)));
            let durable = shared.committer.durable_bytes() + bytes;
            shared.committer.verified_whole([(file, target.clone(), bytes)].into_iter());
            shared.committer.commit(file, &target);
            waited_ns.fetch_add(900_000_000, Ordering::Relaxed);
            session.until("it is seen", |_| {
                let figures = shared.streams.socket_figures();
                let seen_ns: u64 = figures.iter().map(|figures| figures.stages.target_ns).sum();
                seen_ns == waited_ns.load(Ordering::Relaxed)
                    && shared.committer.durable_bytes() == durable
            });
            session.role.pump(begun + Duration::from_secs(u64::from(second) * 2)).unwrap();
        }
        session.role.stop();
        drop(session);
        assert_eq!(changes.first(), Some(&format!("-> {}", second.name)), "{changes:?}");
    }
}
