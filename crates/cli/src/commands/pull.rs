//! `haul pull`: fetches files and directories from a server.

use super::{show, token_source};
use crate::{
    args::transfer::LowPull,
    failure::{ExitStatus, Failure},
    interrupt, ui,
};
use haul_transfer::PullRequest;

/// Runs the pull and shows it.
///
/// # Errors
/// If the transfer could not start or was broken midway.
pub fn run(low: &LowPull) -> Result<ExitStatus, Failure> {
    let mut checked = low.checked()?;
    token_source::complete(&mut checked.urls, low.transfer.token_file.as_deref())?;
    let interrupt = interrupt::on_signals()?;
    let urls = haul_transfer::expand(&checked.urls, &interrupt)?;
    let mut request = PullRequest::new(urls, checked.target);
    request.options = checked.options;
    haul_transfer::raise_open_files_limit();
    let screen = ui::screen(&low.transfer);
    show(screen, |tell| haul_transfer::pull(&request, &interrupt, tell))
}
