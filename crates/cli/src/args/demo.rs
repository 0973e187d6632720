//! Arguments of `haul demo`.

use clap::Args;
use haul_transfer::internals::parse_size;
use std::path::PathBuf;

/// Bytes of the demo's file, where there is room for it.
pub const DEMO_BYTES_DEFAULT: u64 = 1 << 30;

/// Shows haul in a minute: moves a file, kills the transfer, resumes and verifies it
///
/// In a fresh directory: makes a file of random bytes, starts `haul serve` on this machine, pushes
/// the file to it, kills the push midway, shows that nothing half-done is to be seen, pushes again,
/// compares both files byte by byte and prints the report. At the end everything is removed.
#[derive(Debug, Args)]
pub struct LowDemo {
    /// Bytes of the file, like 1G; without it 1G, or less where the disk is small or slow
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<u64>,
    /// Parent of the fresh directory; without it the one for temporary files (TMPDIR)
    #[arg(long = "dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
}
