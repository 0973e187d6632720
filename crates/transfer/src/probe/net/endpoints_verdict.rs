//! Verdict of a round over RDMA endpoints: processors, link, receiver's buffers, or path.

use super::{
    report::{NetReport, Round, Verdict, Way},
    request::NetProbe,
    verdict,
};

/// Share of the link's rate from which on the link is the limit: headers take the rest.
pub const LINK_SHARE: f64 = 0.9;
/// Share of the time from which on the wait for the receiver's buffers was the limit.
pub const ROOM_SHARE: f64 = 0.3;

/// Judges what limited each way of a round over RDMA endpoints.
pub fn of_ways(
    ways: &mut [Way],
    probe: &NetProbe,
    (loopback, link_gbit_per_s): (bool, Option<f64>),
) {
    // Rates that were asked for, and processors, limit as they do by TCP.
    verdict::of_ways(ways, probe, loopback);
    for way in ways {
        let by_host = ["none", "pacing", "processors", "sender_processor", "receiver_processor"];
        if !by_host.contains(&&way.verdict.limit[..]) {
            way.verdict = of_way(way, link_gbit_per_s);
        }
    }
}

/// Judges the fastest round over RDMA endpoints, beside the fastest one by TCP; `None` where no
/// such round was measured.
#[must_use]
pub fn of_all(report: &NetReport) -> Option<Verdict> {
    let facts = report.rdma.as_ref()?;
    let fastest = |by_rdma: bool| {
        let rounds = report.rounds.iter().filter(|round| round.is_by_rdma() == by_rdma);
        rounds.max_by(|one, other| one.gbit_per_s().total_cmp(&other.gbit_per_s()))
    };
    let best = fastest(true)?;
    let slowest = |one: &&Way, other: &&Way| one.gbit_per_s.total_cmp(&other.gbit_per_s);
    let way = best.ways.iter().min_by(slowest)?;
    let carried = |round: &Round| {
        let streams = if round.streams == 1 { "stream" } else { "streams" };
        format!("{} with {} {streams}", verdict::rate(round.gbit_per_s()), round.streams)
    };
    let mut sentence = format!(
        "RDMA endpoints ({} at {}) carry {}: {}",
        facts.provider,
        facts.device,
        carried(best),
        way.verdict.sentence
    );
    if let Some(tcp) = fastest(false) {
        sentence += &format!("; TCP carries {}", carried(tcp));
    }
    Some(Verdict { sentence, ..way.verdict.clone() })
}

fn of_way(way: &Way, link_gbit_per_s: Option<f64>) -> Verdict {
    let verdict = |limit: &str, sentence: String, advice: &str| Verdict {
        limit: limit.into(),
        sentence,
        advice: advice.into(),
    };
    if let Some(link) = link_gbit_per_s.filter(|link| way.gbit_per_s >= link * LINK_SHARE) {
        let sentence = format!("the card's port of {link:.0} Gbit/s is full");
        return verdict("link", sentence, "a faster card or a second port carries more");
    }
    let waited = way.limited.receiver_window;
    if waited >= ROOM_SHARE {
        let sentence = format!(
            "the sender waits for the receiver's buffers {:.0} % of the time",
            waited.min(1.0) * 100.0
        );
        let advice = "more streams have more buffers; see what else the receiver's processors do";
        return verdict("receiver_buffers", sentence, advice);
    }
    let sentence =
        "neither processor nor buffers are the limit: the path or the card takes no more";
    verdict("path", sentence.into(), "more streams may bring more; `haul tune` looks at the card")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_comes_before_the_receivers_buffers_and_these_before_the_path() {
        let limit = |gbit_per_s, waited, link| {
            let mut way = verdict::tests::way();
            way.gbit_per_s = gbit_per_s;
            way.limited.receiver_window = waited;
            let probe = NetProbe::new("haul://host/".parse().unwrap());
            of_ways(std::slice::from_mut(&mut way), &probe, (false, link));
            way.verdict.limit
        };
        assert_eq!(limit(91.0, 0.9, Some(100.0)), "link");
        assert_eq!(limit(89.0, 0.3, Some(100.0)), "receiver_buffers");
        assert_eq!(limit(89.0, 0.29, Some(100.0)), "path");
        assert_eq!(limit(91.0, 0.0, None), "path");
    }
}
