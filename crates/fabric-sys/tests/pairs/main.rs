//! Pairs of endpoints on this machine, by each provider that every machine has.

#[cfg(feature = "libfabric")]
mod pairs;

#[cfg(not(feature = "libfabric"))]
#[test]
fn pairs_of_endpoints() {
    haul_testkit::skip::skip("libfabric-dev 1.17 or newer, and pkg-config", "a build without them");
}
