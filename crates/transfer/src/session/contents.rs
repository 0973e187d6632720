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
