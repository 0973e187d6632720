//! Content values of the spans of a session's files, collected from its streams.

use crate::{
    content::{FileContent, Value},
    locks::{Lock, lock},
};
use haul_protocol::{FileId, SpanGrid, SpanIndex};
use std::collections::BTreeMap;

/// The values of the spans that this session moved, of files that are not settled.
#[derive(Debug, Default)]
pub struct Contents {
    files: Lock<BTreeMap<FileId, FileContent>>,
}

impl Contents {
    /// Begins a file with the values that an earlier run knew.
    pub fn begin(&self, file: FileId, content: FileContent) {
        lock(&self.files).insert(file, content);
    }

    /// Adds the value of a span that was moved; `None`: nobody asked what it holds.
    pub fn span(&self, file: FileId, grid: SpanGrid, span: SpanIndex, value: Option<Value>) {
        let Some(value) = value else { return };
        let mut files = lock(&self.files);
        files.entry(file).or_insert_with(|| FileContent::new(grid)).insert(span, value);
    }

    /// The values of these spans, if all are known.
    #[must_use]
    pub fn values(&self, file: FileId, spans: &[SpanIndex]) -> Option<Vec<Value>> {
        let files = lock(&self.files);
        let content = files.get(&file)?;
        spans.iter().map(|span| content.value(*span)).collect()
    }

    #[must_use]
    pub fn get(&self, file: FileId) -> Option<FileContent> {
        lock(&self.files).get(&file).cloned()
    }

    /// Takes the values of a file that is settled.
    pub fn take(&self, file: FileId) -> Option<FileContent> {
        lock(&self.files).remove(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(3);

    fn grid() -> SpanGrid {
        SpanGrid::new(150 << 10, 64 << 10).unwrap()
    }

    #[test]
    fn values_of_an_earlier_run_and_of_this_one_are_those_of_a_file_until_it_is_settled() {
        let contents = Contents::default();
        let mut earlier = FileContent::new(grid());
        earlier.insert(SpanIndex(0), [1; 32]);
        contents.begin(FILE, earlier);
        contents.span(FILE, grid(), SpanIndex(1), None);
        let values = |spans: &[u32]| {
            let spans: Vec<_> = spans.iter().copied().map(SpanIndex).collect();
            contents.values(FILE, &spans)
        };
        assert_eq!(values(&[0, 1]), None, "nobody knows that of the second");
        contents.span(FILE, grid(), SpanIndex(1), Some([2; 32]));
        assert_eq!(values(&[1, 0]), Some(vec![[2; 32], [1; 32]]));
        let all = contents.get(FILE).unwrap();
        assert_eq!(all.value(SpanIndex(1)), Some([2; 32]));
        assert_eq!((contents.get(FileId(4)), contents.take(FileId(4))), (None, None));
        assert_eq!(contents.take(FILE), Some(all));
        assert_eq!((contents.get(FILE), values(&[0])), (None, None));
    }
}
