//! `haul pull`: fetches files and directories from a server, or over ssh.

use super::{
    other_side::{self, Asked, Reached},
    show,
};
use crate::{
    args::transfer::LowPull,
    failure::{ExitStatus, Failure},
    interrupt,
    ssh::Purpose,
    ui,
};
use haul_transfer::PullRequest;

/// Runs the pull and shows it.
///
/// # Errors
/// If the transfer could not start or was broken midway.
pub fn run(low: &LowPull) -> Result<ExitStatus, Failure> {
    let checked = low.checked()?;
    let interrupt = interrupt::on_signals_and(low.transfer.signal)?;
    let asked = Asked {
        purpose: Purpose::Pull,
        removes: checked.options.file_options.move_sources,
        retry_for: checked.options.retry_for,
    };
    let token_file = low.transfer.token_file.as_deref();
    let Reached { urls, connect, held } = other_side::reach(
        checked.from,
        token_file,
        asked,
        checked.options.connect.clone(),
        &interrupt,
    )?;
    let urls = haul_transfer::expand(&urls, &connect, &interrupt)?;
    let mut request = PullRequest::new(urls, checked.target);
    request.options = checked.options;
    request.options.connect = connect;
    haul_transfer::raise_open_files_limit();
    let screen = ui::screen(&low.transfer);
    show(screen, |tell| {
        held.while_held(tell, |tell| haul_transfer::pull(&request, &interrupt, tell))
    })
}
