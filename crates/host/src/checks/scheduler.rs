//! The I/O scheduler: in which order a disk's requests go to it.

use super::{Check, Group};
use crate::{
    disks::{Disk, Kind, disks},
    tune::{Finding, Goal, Machine, Setting, Weight, machine::Unread},
};

pub const CHECK: Check = Check {
    name: "scheduler",
    group: Group::Storage,
    summary: "requests go to a disk in the order that suits it (mq-deadline, none)",
    why: "A disk with heads, and an array behind a controller, wants neighbours together and no \
        request forgotten: mq-deadline. An NVMe drive orders by itself, and each look at a request \
        costs: none. bfq and kyber share a disk fairly among programs, and cost a transfer node's \
        one program throughput.",
    source: "ESnet fasterdata.es.net, storage tuning; Documentation/block/deadline-iosched.rst",
    look,
};

fn look(machine: &Machine, _: &Goal) -> Vec<Finding> {
    // A stacked disk orders nothing: those beneath it do.
    let real = disks(machine).into_iter().filter(|disk| disk.kind != Kind::Stacked);
    let findings: Vec<Finding> = real.map(|disk| of_disk(machine, &disk)).collect();
    match findings.is_empty() {
        true => vec![Finding::absent("scheduler", "this host shows no disk")],
        false => findings,
    }
}

fn of_disk(machine: &Machine, disk: &Disk) -> Finding {
    let subject = format!("{}: scheduler", disk.name);
    let path = disk.path("queue/scheduler");
    let text = match machine.text(&path) {
        Ok(text) => text,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    // Where there is no choice, the one word stands without brackets.
    let words: Vec<&str> = text.split_whitespace().collect();
    let chosen = words.iter().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let Some(scheduler) = chosen.or(words.first().copied().filter(|_| words.len() == 1)) else {
        return Finding::unknown(&subject, &Unread::nonsense(path, &text));
    };
    let found = format!("{scheduler}, {}", disk.kind.words());
    // Kernels before 5.0 had these names for them.
    let (is_deadline, is_none) =
        (matches!(scheduler, "mq-deadline" | "deadline"), matches!(scheduler, "none" | "noop"));
    let (is_good, wanted, weight) = match disk.kind {
        Kind::Rotating | Kind::HardwareRaid => (is_deadline, "mq-deadline", Weight::Medium),
        Kind::Nvme => (is_none, "none", Weight::Low),
        Kind::Ssd | Kind::Virtual | Kind::Stacked => (is_deadline || is_none, "none", Weight::Low),
    };
    if is_good {
        return Finding::good(weight, &subject, &found);
    }
    let finding = Finding::improve(weight, &subject, &found, wanted);
    let offered = words.iter().find(|word| word.trim_matches(['[', ']']) == wanted);
    match (offered, wanted) {
        (Some(_), _) => finding.change(Setting::file(path), wanted),
        (None, "mq-deadline") => finding
            .note(format!("this kernel offers: {text}"))
            .command(format!("modprobe mq-deadline && echo mq-deadline > {path}")),
        (None, _) => finding.note(format!("this kernel offers: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{checks::stored, tune::State};

    fn found(name: &str, rotational: &str, text: &str) -> Finding {
        let host = stored::host(&[
            (&format!("sys/block/{name}/device/model"), "A drive\n"),
            (&format!("sys/block/{name}/queue/rotational"), rotational),
            (&format!("sys/block/{name}/queue/scheduler"), text),
        ]);
        look(&host.machine(), &host.goal_of(10)).remove(0)
    }

    #[test]
    fn each_kind_of_disk_has_its_own_order() {
        for (name, rotational, text, wanted) in [
            ("sda", "1", "none [mq-deadline] kyber bfq", None),
            ("sda", "1", "[none] mq-deadline kyber bfq", Some("mq-deadline")),
            ("sda", "1", "none mq-deadline [bfq]", Some("mq-deadline")),
            ("sda", "1", "noop [deadline] cfq", None),
            ("sda", "0", "[none] mq-deadline", None),
            ("sda", "0", "none [kyber] mq-deadline", Some("none")),
            ("nvme0n1", "0", "none [mq-deadline]", Some("none")),
            ("nvme0n1", "0", "none", None),
            ("vda", "1", "[none] mq-deadline", None),
            ("vda", "1", "none [bfq]", Some("none")),
        ] {
            let finding = found(name, rotational, text);
            let set = finding.changes.first().map(|change| &change.value[..]);
            assert_eq!(set, wanted, "{name} {text}");
            assert_eq!(finding.state == State::Good, wanted.is_none(), "{name} {text}");
        }
    }

    #[test]
    fn one_that_is_not_offered_is_not_set_and_nonsense_is_unknown() {
        let finding = found("sda", "1", "[none]");
        assert!(finding.changes.is_empty() && finding.command.starts_with("modprobe"));
        for nonsense in ["", "none mq-deadline", "[]none x"] {
            assert_eq!(found("sda", "1", nonsense).state, State::Unknown, "{nonsense}");
        }
    }
}
