//! Which engine receives and writes, and what is said of it.

use super::{Receiving, growth, lock};
use crate::{
    error::io_problem_fault,
    events::Explained,
    problem::Side,
    session::{engines::Change, streams::StreamFigures},
    storage::{
        root::{Links, Root, split_last},
        target_place::TargetPlace,
    },
};
use haul_datapath::{WireKind, choose};
use haul_host::FileSystem;
use haul_protocol::wire::{self, Fault, FaultCode, FileOffer};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use std::{io, os::fd::OwnedFd, path::Path, sync::Arc, time::Instant};

impl Receiving<'_> {
    /// By a file that is offered, if it is the first that has bytes or if they have become many.
    pub(super) fn choose_engines(&mut self, offer: &FileOffer) -> Result<(), Fault> {
        let wishes = self.place.wishes();
        if wishes.dry_run && !wishes.explain {
            return Ok(());
        }
        let Some(size_bytes) = self.engines.offered(offer) else { return Ok(()) };
        let setup = &self.shared.setup;
        let (target, rotational) = match &self.place {
            TargetPlace::Null => (choose::Target::Null, None),
            TargetPlace::Below { root, base, .. } => {
                let failed = |what| {
                    move |error| io_problem_fault(wire::Side::Target, what, &error).at(&**base)
                };
                let directory = open_existing(root, base, wishes.leaves_nothing())
                    .map_err(failed("the target cannot be opened"))?;
                let system =
                    FileSystem::of(&directory).map_err(failed("the file system is unknown"))?;
                let rotational = haul_host::rotational(Path::new("/"), &directory);
                (choose::Target::File(system.kind), rotational)
            }
        };
        let facts = choose::ReceiveFacts {
            host: &setup.host,
            wire: WireKind::Tcp,
            target,
            size_bytes,
            durable: true,
            grows: growth(offer).is_some(),
            digest: setup.sees_bytes(),
            rotational,
            forced: self.options.engine.as_deref(),
        };
        let choice = choose::receive_engine(&facts).map_err(|error| {
            Fault::new(FaultCode::EngineRefused, wire::Side::Target, error.to_string())
        })?;
        if wishes.explain {
            let words = vec![facts.in_words()];
            let host = setup.host.clone();
            self.explain(Explained::engines(Side::Target, words, &host, &choice));
        }
        let forced = self.options.engine.is_some();
        let watches_disk = matches!(self.place, TargetPlace::Below { .. });
        self.engines.choose(choice, forced, watches_disk, &self.shared.orders);
        Ok(())
    }

    /// A client tells its user, a server its client.
    fn explain(&mut self, explained: Explained) {
        if self.supply.connects() {
            (self.events)(explained.into());
        } else {
            self.engines.explain(explained);
        }
    }

    /// Tells both sides' users of a change.
    pub(super) fn tell_change(&mut self, change: Option<Change>) {
        let Some((notice, event)) = change else { return };
        lock(&self.shared.machine).notice(notice);
        (self.events)(event);
    }

    /// A target disk that slowed is tried with the other engines.
    pub(super) fn watch_disk(&mut self, now: Instant) {
        let shared = &self.shared;
        let durable = |_: &[StreamFigures]| shared.committer.durable_bytes();
        let streams = (&*shared.streams, &shared.orders);
        let change = self.engines.watch_disk(now, streams, durable, |f| f.stages.target_ns);
        self.tell_change(change);
    }
}

/// The directory, or in a dry run, which makes none, the lowest of those above it that is there.
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
