//! The size of a file that a bench makes.

use crate::args::usage_problem;
use haul_datapath::BLOCK_BYTES_MIN;
use haul_transfer::Problem;

/// Checks a size that was asked for.
///
/// # Errors
/// If it is less than what one call moves.
pub fn checked_size(size: Option<u64>) -> Result<Option<u64>, Problem> {
    if size.is_some_and(|size| size < BLOCK_BYTES_MIN as u64) {
        let needs = format!("{BLOCK_BYTES_MIN} bytes or more");
        let hint = "write it like --size 1G";
        return Err(usage_problem("cannot take --size", &needs, "fewer bytes", hint));
    }
    Ok(size)
}
