//! Amounts as they stand in sentences.

pub use haul_report::units::bytes_in_words as bytes;
