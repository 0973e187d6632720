//! What `haul bench` shows: tables on standard output, and a page with charts.

pub mod chart;
pub mod page;
pub mod steps;
pub mod table;
