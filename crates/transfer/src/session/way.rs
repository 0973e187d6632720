//! The direction in which a data stream's bytes go.

/// The direction in which a stream's bytes go, as this side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Sends,
    Receives,
}
