//! Ctrl-C and SIGTERM: the first ends a transfer in an orderly way, the second at once.

use crate::{
    args::{usage_problem, values::StopSignal},
    failure::Failure,
};
use haul_transfer::Interrupt;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};
use std::sync::Arc;

/// The flag that the first signal sets.
///
/// # Errors
/// If the system lets no handler be set.
pub fn on_signals() -> Result<Interrupt, Failure> {
    on_signals_and(None)
}

/// The flag that the first signal sets, where another signal may do so, too.
///
/// # Errors
/// If the system lets no handler be set.
pub fn on_signals_and(other: Option<StopSignal>) -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::default();
    let register = || -> std::io::Result<()> {
        for signal in [SIGINT, SIGTERM].into_iter().chain(other.map(StopSignal::number)) {
            // In this order: the first signal finds the flag unset and only sets it.
            flag::register_conditional_default(signal, Arc::clone(&interrupt))?;
            flag::register(signal, Arc::clone(&interrupt))?;
        }
        Ok(())
    };
    register().map_err(|error| {
        usage_problem("cannot set a handler for Ctrl-C", "", &error.to_string(), "")
    })?;
    Ok(interrupt)
}
