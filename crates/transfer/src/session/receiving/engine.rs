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
            wire: WireKind::Tcp,
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
        if file_options.explain {
            let words = vec![facts.in_words()];
            let explained = Explained::engines(Side::Target, words, &setup.host, &choice);
            self.explain(explained, context);
        }
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
