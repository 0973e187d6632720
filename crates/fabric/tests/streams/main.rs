//! Streams between two ends, by the providers that every machine has. Without the feature this is
//! one test that is skipped.

#[cfg(feature = "libfabric")]
mod counts;
#[cfg(feature = "libfabric")]
mod hostile;
#[cfg(feature = "libfabric")]
mod parts;
#[cfg(feature = "libfabric")]
mod processes;
#[cfg(feature = "libfabric")]
mod room;
#[cfg(feature = "libfabric")]
mod streams;

#[cfg(not(feature = "libfabric"))]
#[test]
fn streams_over_endpoints() {
    haul_testkit::skip::skip("libfabric-dev 1.17 or newer, and pkg-config", "a build without them");
}
