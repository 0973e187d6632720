//! Rules by which received files are treated.

use super::attributes::Attributes;
use crate::file_options::FileOptions;
use std::sync::Arc;

/// Rules for received files: options of the transfer, and the attributes that they get.
#[derive(Debug, Default)]
pub struct TargetRules {
    pub file_options: FileOptions,
    pub attributes: Attributes,
}

impl TargetRules {
    #[must_use]
    pub fn new(file_options: FileOptions) -> Arc<Self> {
        Arc::new(Self { file_options, attributes: Attributes::new(file_options.preserve) })
    }
}
