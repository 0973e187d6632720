//! The driver of a card, and whether it came with the kernel.

use super::{Check, Group, of_cards};
use crate::tune::{Finding, Goal, Machine, Weight, driver, machine::Unread};

pub const CHECK: Check = Check {
    name: "card-driver",
    group: Group::NetworkCard,
    summary: "the card's driver and firmware, and whether the driver came with the kernel",
    why: "A driver of the kernel's own is as new as the kernel. One of the vendor's is as new as \
        somebody made it: after a new kernel it may be an old one, or be gone. Firmware and driver \
        are tested in pairs; read the vendor's notes before changing one of them.",
    source: "ESnet fasterdata.es.net, NIC tuning; Documentation/admin-guide/tainted-kernels.rst",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    of_cards(machine, goal, |card| of_card(machine, card))
}

fn of_card(machine: &Machine, card: &str) -> Finding {
    let subject = format!("{card}: driver");
    let values = match driver(machine, card) {
        Ok(values) => values,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let value = |name: &str| {
        let value = values.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty() && *value != "N/A")
    };
    let Some(name) = value("driver") else {
        return Finding::unknown(&subject, &Unread::nonsense(format!("ethtool -i {card}"), ""));
    };
    let release = machine.sysctl("kernel.osrelease").unwrap_or_default();
    let version = value("version");
    let firmware = value("firmware-version").map(|words| format!(", firmware {words}"));
    let firmware = firmware.unwrap_or_default();
    // A driver is named after its module, but for the dashes (kernel/module/sysfs.c).
    let taint = machine.text(&format!("/sys/module/{}/taint", name.replace('-', "_")));
    if taint.is_ok_and(|taint| taint.contains('O')) {
        let version = version.unwrap_or("of no version");
        let found = format!("{name} {version}, not the kernel's own{firmware}");
        return Finding::good(Weight::Low, &subject, &found)
            .note("see whether its vendor has a newer one, and keep it in step with the kernel");
    }
    // Drivers without a version of their own show the kernel's.
    let version = version.filter(|version| *version != release);
    let found = match version {
        Some(version) => format!("{name} {version}{firmware}"),
        None => format!("{name} of the kernel, {release}{firmware}"),
    };
    Finding::good(Weight::Low, &subject, &found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(shown: &str, taint: &str) -> Finding {
        let host = stored::host(&[
            ("sys/class/net/eth0/speed", "100000"),
            ("proc/sys/kernel/osrelease", "6.8.0-40-generic\n"),
            ("sys/module/mlx5_core/taint", taint),
        ]);
        let host = host.answer("ethtool -i eth0", shown);
        of_card(&host.machine(), "eth0")
    }

    #[test]
    fn the_kernels_own_driver_is_told_from_the_vendors() {
        let shown = "driver: mlx5_core\nversion: 6.8.0-40-generic\nfirmware-version: 22.41.1000\n";
        let own = found(shown, "\n");
        assert_eq!(own.found, "mlx5_core of the kernel, 6.8.0-40-generic, firmware 22.41.1000");
        let shown = "driver: mlx5_core\nversion: 24.07-0.6.1\nfirmware-version: \n";
        let vendors = found(shown, "OE\n");
        assert_eq!(vendors.found, "mlx5_core 24.07-0.6.1, not the kernel's own");
        assert_eq!(found("", "").state, State::Unknown);
        assert_eq!(found("driver:\n", "").state, State::Unknown);
    }
}
