//! `haul push`: sends files and directories to a server.

use super::{show, token_source};
use crate::{
    args::transfer::LowPush,
    failure::{ExitStatus, Failure},
    interrupt, ui,
};
use haul_transfer::PushRequest;

/// Runs the push and shows it.
///
/// # Errors
/// If the transfer could not start or was broken midway.
pub fn run(low: &LowPush) -> Result<ExitStatus, Failure> {
    let mut checked = low.checked()?;
    let file = low.transfer.token_file.as_deref();
    token_source::complete(std::slice::from_mut(&mut checked.url), file)?;
    let mut request = PushRequest::new(checked.sources, checked.url);
    request.options = checked.options;
    let interrupt = interrupt::on_signals()?;
    haul_transfer::raise_open_files_limit();
    let screen = ui::screen(&low.transfer);
    show(screen, |tell| haul_transfer::push(&request, &interrupt, tell))
}
