//! `haul push`: sends files and directories to a server, or over ssh.

use super::{
    other_side::{self, Asked, Reached},
    show,
};
use crate::{
    args::transfer::LowPush,
    failure::{ExitStatus, Failure},
    interrupt,
    ssh::Purpose,
    ui,
};
use haul_transfer::PushRequest;

/// Runs the push and shows it.
///
/// # Errors
/// If the transfer could not start or was broken midway.
pub fn run(low: &LowPush) -> Result<ExitStatus, Failure> {
    let checked = low.checked()?;
    let interrupt = interrupt::on_signals()?;
    let asked = Asked {
        purpose: Purpose::Push,
        removes: checked.options.file_options.removal.is_some(),
        retry_for: checked.options.retry_for,
    };
    let token_file = low.transfer.token_file.as_deref();
    let Reached { mut urls, connect, held } = other_side::reach(
        checked.to,
        token_file,
        asked,
        checked.options.connect.clone(),
        &interrupt,
    )?;
    let mut request = PushRequest::new(checked.sources, urls.remove(0));
    request.options = checked.options;
    request.options.connect = connect;
    haul_transfer::raise_open_files_limit();
    let screen = ui::screen(&low.transfer);
    let shown = show(screen, |tell| {
        held.while_held(tell, |tell| haul_transfer::push(&request, &interrupt, tell))
    });
    if low.is_one_of_many() { shown.map_err(Failure::of_one_of_many) } else { shown }
}
