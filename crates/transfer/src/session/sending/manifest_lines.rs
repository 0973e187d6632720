//! Writes the manifest's line of each file that is sent, when the file is settled.

use super::{
    context::Context,
    stage::{Settled, Stage},
};
use crate::manifest::{Lines, Origin};
use haul_protocol::{
    file_life::{EndResult, NextStep},
    message::{self, FileKind},
};

pub(super) struct ManifestLines(pub Lines);

impl Stage for ManifestLines {
    fn settled(&mut self, settled: &mut Settled, _context: &mut Context<'_>) {
        if !settled.is_told {
            return;
        }
        let failed = match &settled.step {
            NextStep::OfferAsFile | NextStep::ComesLater(_) => true,
            NextStep::Ends(end) => match end.result {
                EndResult::Done | EndResult::Skipped => false,
                EndResult::Failed(_) => true,
                EndResult::Planned(_) => return,
            },
            _ => return,
        };
        if failed {
            return self.0.failed(&settled.entry.offer);
        }
        let content = settled.content.take();
        let entry = &settled.entry;
        let origin = Origin::of_source(entry);
        let stored_as = settled.stored_as.as_ref().map(|name| &*name.0);
        if entry.offer.kind == FileKind::HardLink {
            let (kind, size_bytes) = (FileKind::Regular, entry.size_bytes);
            let named = message::FileOffer { kind, size_bytes, ..entry.offer.clone() };
            return self.0.settled(&named, stored_as, None, &origin);
        }
        self.0.settled(&entry.offer, stored_as, content, &origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Interrupt, content::FileContent, events::Event, file_options::FileOptions,
        manifest::Manifest, name::Name, session::sending::without_peer,
        storage::source::SourceEntry,
    };
    use haul_protocol::{
        FileId, SpanGrid, SpanIndex,
        file_life::FileEnd,
        message::{Fault, Plan},
    };
    use std::{fs, path::Path, sync::Arc, time::Instant};

    fn settled(entry: &SourceEntry, step: NextStep) -> Settled {
        let (file, content, stored_as, is_told) = (FileId(0), None, None, true);
        let (entry, now) = (entry.clone(), Instant::now());
        Settled { file, entry, step, content, stored_as, is_told, now }
    }

    fn ends(result: EndResult) -> NextStep {
        NextStep::Ends(FileEnd { result, frees_source: false })
    }

    /// Lines of a manifest after these files of a directory were settled, by name.
    fn lines(
        directory: &Path,
        settle: impl FnOnce(&[SourceEntry]) -> Vec<Settled>,
    ) -> Vec<(String, String)> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("manifest");
        let manifest = Arc::new(Manifest::begin(&path).unwrap());
        let mut lines = ManifestLines(Lines { manifest: manifest.clone(), rename: None });
        let mut hear = |_: Event| {};
        let mut context = without_peer::begin(FileOptions::default(), &mut hear).context;
        for mut settled in settle(&without_peer::files(directory)) {
            lines.settled(&mut settled, &mut context);
        }
        manifest.finish(&Interrupt::default(), &mut |left_out| panic!("{left_out:?}")).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let lines = lines.map(|line| line.split_once("  ").expect("a hash and a name"));
        lines.map(|(hash, name)| (name.to_owned(), hash.to_owned())).collect()
    }

    fn line(name: &str, bytes: &str) -> (String, String) {
        (name.to_owned(), blake3::hash(bytes.as_bytes()).to_hex().to_string())
    }

    /// Makes a directory with files whose bytes are their names.
    fn files(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| fs::write(directory.path().join(name), name).unwrap());
        directory
    }

    #[test]
    fn what_is_in_place_has_a_line_and_what_is_not_in_the_end_has_none() {
        let names = ["again", "done", "failed", "file", "later", "open", "planned", "skipped"];
        let directory = files(&names);
        let found = lines(directory.path(), |entries| {
            let [again, done, failed, file, later, open, planned, skipped] = entries else {
                panic!("{entries:?}")
            };
            let fault = Fault::default;
            let not_told = Settled { is_told: false, ..settled(again, ends(EndResult::Done)) };
            vec![
                not_told,
                settled(done, ends(EndResult::Done)),
                settled(failed, ends(EndResult::Done)),
                settled(failed, ends(EndResult::Failed(fault()))),
                settled(file, ends(EndResult::Done)),
                settled(file, NextStep::OfferAsFile),
                settled(later, ends(EndResult::Skipped)),
                settled(later, NextStep::ComesLater(fault())),
                settled(open, NextStep::NextRound),
                settled(planned, ends(EndResult::Planned(Plan::default()))),
                settled(skipped, ends(EndResult::Skipped)),
            ]
        });
        assert_eq!(found, [line("done", "done"), line("skipped", "skipped")]);
    }

    #[test]
    fn the_hash_of_what_was_sent_is_that_of_the_line_and_its_name_that_of_the_receiver() {
        let directory = files(&["sent"]);
        let found = lines(directory.path(), |entries| {
            let grid = SpanGrid::new(4, without_peer::SPAN_BYTES).unwrap();
            let mut content = FileContent::new(grid);
            content.insert(SpanIndex(0), *blake3::hash(b"as it was sent").as_bytes());
            let stored_as = Some(Name(b"other".to_vec()));
            let content = Some(content);
            vec![Settled { content, stored_as, ..settled(&entries[0], ends(EndResult::Done)) }]
        });
        assert_eq!(found, [line("other", "as it was sent")]);
    }

    #[test]
    fn a_hard_link_has_the_line_of_the_file_that_it_is() {
        let directory = files(&["link"]);
        let found = lines(directory.path(), |entries| {
            let mut link = entries[0].clone();
            (link.offer.kind, link.offer.size_bytes) = (FileKind::HardLink, 0);
            vec![settled(&link, ends(EndResult::Done))]
        });
        assert_eq!(found, [line("link", "link")]);
    }
}
