//! Numbers, tables, charts and pages as haul shows them: text out of plain data.
//!
//! Nothing is printed, measured or sent here, and no other crate of haul is needed: who has a
//! figure makes it words here, and says itself where they go.

#![forbid(unsafe_code)]

pub mod aligned;
pub mod chart;
pub mod host_facts;
pub mod html_page;
mod markup;
pub mod printable;
pub mod results;
mod section;
pub mod spread;
pub mod steps;
pub mod study_figure;
pub mod table;
pub mod units;

pub use aligned::aligned;
pub use printable::printable;
