//! Arguments of `haul bench` where it is not built in: all are taken, so that none is called wrong.

use clap::Args;
use std::ffi::OsString;

/// Measures this host's engines and haul's choices; not in this program
///
/// This program was built without its benches. `cargo install --path crates/cli` builds one that
/// has them.
#[derive(Debug, Args)]
pub struct LowBench {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

impl LowBench {
    #[must_use]
    pub fn json(&self) -> bool {
        self.words.iter().any(|word| word == "--json")
    }
}
