//! `haul copy`: from one machine that ssh reaches to another.

use super::{
    other_side::{Asked, Held},
    pull, push, show,
};
use crate::{
    args::copy::{Between, CheckedCopy, LowCopy},
    failure::{ExitStatus, Failure},
    interrupt,
    ssh::{
        NeededRights, Purpose,
        direct_host::KnownHost,
        near_end::{NearEnd, Wanted},
        relay::Relay,
        send_order::{OtherWays, SendOrder},
        ways::Way,
    },
    ui,
};
use haul_transfer::OnConflict;

/// Runs the copy and shows it.
///
/// # Errors
/// If the transfer could not start or was broken midway.
pub fn run(low: LowCopy) -> Result<ExitStatus, Failure> {
    match low.checked()? {
        CheckedCopy::Push(low) => push::run(&low),
        CheckedCopy::Pull(low) => pull::run(&low),
        CheckedCopy::Between(between) => run_between(*between),
    }
}

fn run_between(between: Between) -> Result<ExitStatus, Failure> {
    let Between { program, from, paths, to, path, ports, way, options, relayed, transfer } =
        between;
    let interrupt = interrupt::on_signals_and(transfer.signal)?;
    let asked = Asked {
        purpose: Purpose::Push,
        removes: options.file_options.removal.is_some(),
        retry_for: options.retry_for,
    };
    // The machine that sends has the token: it is to learn no more than its push needs.
    let list = options.file_options.removal.is_some();
    let replaces = options.file_options.on_conflict == OnConflict::Replace;
    let read = options.file_options.compare_content && !replaces;
    let of_another = Some(NeededRights { list, read });
    let wanted = Wanted { of_another, ..asked.wanted(to, vec![path], (ports, way)) };
    let sender = KnownHost::of(&program, &from);
    let (mut near, mut target) = NearEnd::start_for_another(&program, wanted, &sender, &interrupt)?;
    if way != Way::Any {
        // An older haul goes by connections alone: with no address it goes by none.
        target.hosts.clear();
    }
    let other_ways = near.takes_orders().then_some(OtherWays { way, ports });
    let asked = Asked {
        purpose: Purpose::Send,
        removes: options.file_options.move_sources,
        retry_for: options.retry_for,
    };
    let wanted = asked.wanted(from, paths, (None, Way::Any));
    let order = SendOrder { target, options: relayed, other_ways };
    let relay = Relay::start(&program, (wanted, sender), order, &mut near, &interrupt)?;
    near.reached_at(relay.server());
    let held = Held::by(near);
    let screen = ui::screen(&transfer);
    show(screen, |tell| held.while_held(tell, |tell| relay.run(&interrupt, tell)))
}
