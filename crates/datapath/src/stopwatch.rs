//! Time that an engine spends in each stage, added up.

use std::time::Instant;

/// Does `work` and adds the time it took to `total_ns`.
pub(crate) fn timed<T>(total_ns: &mut u64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    *total_ns += u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    result
}
