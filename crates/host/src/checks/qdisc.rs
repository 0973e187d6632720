//! The queueing discipline, which spaces the packets of a stream.

use super::{Check, Group};
use crate::tune::{
    Finding, Goal, Machine, Needs, Setting, Weight, has_qdisc, machine::Unread, root_qdisc,
};

pub const CHECK: Check = Check {
    name: "qdisc",
    group: Group::Tcp,
    summary: "cards send by fq, which spaces the packets of each stream (default_qdisc)",
    why: "A transfer node is faster than most of its peers: without pacing it sends bursts at its \
        card's full rate, and the slower hop drops them. fq paces every stream by itself, obeys \
        SO_MAX_PACING_RATE (haul's --rate) without a timer for each socket, and gives each stream \
        its turn. With several streams pace their sum to 80 to 90 % of the card.",
    source: "ESnet fasterdata.es.net, packet pacing; tc-fq(8)",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const NAME: &str = "net.core.default_qdisc";
    let default = match machine.sysctl(NAME) {
        Ok(found) if found.is_empty() => Err(Unread::nonsense(NAME, "")),
        other => other,
    };
    let is_fq = default.as_deref() == Ok("fq");
    let own = default.clone().unwrap_or_default();
    let is_there = is_fq || has_qdisc(machine, "fq") != Some(false);
    let mut findings = vec![match default {
        Ok(found) if is_fq => Finding::good(Weight::Medium, NAME, &found),
        Ok(found) => without_fq(Finding::improve(Weight::Medium, NAME, &found, "fq"), is_there)
            .unwrap_or_else(|finding| finding.change(Setting::sysctl(NAME), "fq")),
        Err(unread) => Finding::unknown(NAME, &unread),
    }];
    findings.extend(goal.cards.iter().map(|card| of_card(machine, card, &own, is_there)));
    findings
}

fn of_card(machine: &Machine, card: &str, default: &str, is_there: bool) -> Finding {
    let subject = format!("{card}: qdisc");
    let found = match root_qdisc(machine, card) {
        Ok(found) => found,
        Err(unread) => return Finding::unknown(&subject, &unread),
    };
    let (kind, by_itself) = match found.split_once(' ') {
        Some((kind, _)) => (kind, true),
        None => (&found[..], false),
    };
    if matches!(kind, "fq" | "mq/fq") {
        return Finding::good(Weight::Medium, &subject, &found);
    }
    let wanted = if kind.starts_with("mq") { "mq/fq" } else { "fq" };
    let finding = Finding::improve(Weight::Medium, &subject, &found, wanted);
    if kind == "noqueue" {
        return Finding::absent(&subject, "noqueue: a virtual card keeps no packets waiting");
    }
    // Taken away, ours leaves what the default is: that has to be what was there.
    let of_queue = kind.split('/').next_back().unwrap_or(kind);
    if !by_itself || of_queue != default {
        let words = "haul could not set back what is there: change it yourself";
        let command = format!("tc qdisc replace dev {card} root {}", kind_of(wanted));
        return finding.note(words).command(command);
    }
    let change = |finding: Finding| {
        finding.change(Setting::Qdisc { card: card.to_owned() }, wanted)
    };
    without_fq(finding, is_there).unwrap_or_else(change)
}

fn kind_of(wanted: &str) -> &str {
    wanted.split('/').next().unwrap_or(wanted)
}

/// Returns the finding of a kernel that has no fq; where fq is there, gives the finding back as
/// `Err`.
fn without_fq(finding: Finding, is_there: bool) -> Result<Finding, Finding> {
    if is_there {
        return Err(finding);
    }
    Ok(finding
        .note(
            "this kernel has no fq (CONFIG_NET_SCH_FQ); TCP paces by itself meanwhile, with a \
            timer for each socket",
        )
        .needs(Needs::Reboot))
}
