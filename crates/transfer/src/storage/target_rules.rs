//! Rules by which received files are treated.

use super::{attributes::Attributes, filling::Filling};
use crate::file_options::FileOptions;
use std::sync::Arc;

/// Rules for received files: options of the transfer, and the attributes that they get.
#[derive(Debug, Default)]
pub struct TargetRules {
    pub file_options: FileOptions,
    pub attributes: Attributes,
    /// Directories of a narrow mode that this session fills.
    pub filling: Filling,
}

impl TargetRules {
    #[must_use]
    pub fn new(file_options: FileOptions) -> Arc<Self> {
        let attributes = Attributes::new(file_options.preserve);
        Arc::new(Self { file_options, attributes, filling: Filling::default() })
    }
}
