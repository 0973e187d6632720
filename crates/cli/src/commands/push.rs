//! `haul push`: sends files and directories to a server, or over ssh.

use super::{
    other_side::{self, Asked, Reached},
    run_log::Kept,
    show,
};
use crate::{
    args::transfer::{CheckedPush, LowPush},
    failure::{ExitStatus, Failure},
    interrupt,
    ssh::Purpose,
    ui,
};
use haul_transfer::{Interrupt, Plan, PushRequest, Shard, TransferError};
use serde_json::json;

/// Runs the push and shows it.
///
/// # Errors
/// If the transfer could not start or was broken midway.
pub fn run(low: &LowPush) -> Result<ExitStatus, Failure> {
    let interrupt = interrupt::on_signals_and(low.transfer.signal)?;
    let mut checked = low.checked(planned(low, &interrupt)?)?;
    let mut log = Kept::begin(checked.shard.take());
    let shown = push(low, checked, &interrupt, &mut log);
    let shown = if low.is_one_of_many() { shown.map_err(Failure::of_one_of_many) } else { shown };
    log.end(shown.as_ref().map_or_else(|failure| failure.status, |status| *status));
    shown
}

/// The plan whose shard is to be moved, and the shard, once it is there.
fn planned(low: &LowPush, interrupt: &Interrupt) -> Result<Option<(Plan, Shard)>, Failure> {
    let Some((place, number)) = low.planned() else { return Ok(None) };
    let plan = Plan::open_for(place, number, interrupt, &mut |plan| {
        if low.transfer.json {
            let shards = plan.shards;
            ui::json::print(&json!({ "event": "waiting", "shard": number, "shards": shards }));
        } else {
            let shards = ui::units::count(plan.shards.into(), "shard");
            ui::print_to_stderr(&format!("waits for shard {number}: the plan has {shards} so far"));
        }
    });
    let with_shard = plan.and_then(|plan| {
        let shard = plan.shard(number)?;
        Ok((plan, shard))
    });
    with_shard.map(Some).map_err(|error| Failure::from(error).of_one_of_many())
}

fn push(
    low: &LowPush,
    checked: CheckedPush,
    interrupt: &Interrupt,
    log: &mut Kept,
) -> Result<ExitStatus, Failure> {
    let asked = Asked {
        purpose: Purpose::Push,
        removes: checked.options.file_options.removal.is_some(),
        retry_for: checked.options.retry_for,
    };
    let token_file = low.transfer.token_file.as_deref();
    let connect = checked.options.connect.clone();
    let reached = other_side::reach(checked.to, token_file, asked, connect, interrupt);
    let reached = reached.inspect_err(|error: &TransferError| log.outcome(&Err(error.clone())));
    let Reached { mut urls, connect, held } = reached?;
    let mut request = PushRequest::new(checked.sources, urls.remove(0));
    request.options = checked.options;
    request.options.connect = connect;
    haul_transfer::raise_open_files_limit();
    let screen = ui::screen(&low.transfer);
    show(screen, |tell| {
        let mut both = |event| {
            log.event(&event);
            tell(event);
        };
        let result =
            held.while_held(&mut both, |tell| haul_transfer::push(&request, interrupt, tell));
        log.outcome(&result);
        result
    })
}
