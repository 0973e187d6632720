//! Verdict of a probe: which part of the path limits, and one thing to do about it.

use super::{
    report::{Buffers, Direction, NetReport, Round, SideUse, Verdict, Way},
    summary::gbit,
};
use crate::{
    probe::net::request::{NetProbe, Transport},
    verdict::{QUOTA_REMEDY, quota_holds},
};
use haul_protocol::message::HostFacts;

/// Share of the rate that was asked for from which on that rate was the limit.
const PACED_SHARE: f64 = 0.9;
/// Share of the time from which on a thread that computes has a core to itself, and needs all of
/// it.
const BUSY_SHARE: f64 = 0.85;
/// Share of the time from which on a window or buffer was the limit, or a thread waited for a core.
const HELD_SHARE: f64 = 0.3;
/// Share of bytes that went out again from which on loss limits a congestion window.
const LOSS_SHARE: f64 = 0.001;
/// Share of datagrams that were lost from which on loss is the limit.
const DATAGRAM_LOSS_SHARE: f64 = 0.0005;
/// Bytes of a socket's buffer for each of its window: half is the kernel's own (tcp_adv_win_scale,
/// ip-sysctl.rst).
const BUFFER_PER_WINDOW: u64 = 2;
/// Growth of the round-trip time from which on the path's queue counts as full.
const QUEUED_RTTS: f64 = 2.0;
/// Factor over the rate of one stream below which more streams bring nothing.
const GAIN_MIN: f64 = 1.1;

fn verdict(limit: &str, sentence: String, advice: String) -> Verdict {
    Verdict { limit: limit.into(), sentence, advice }
}

/// Use of one way's hosts by all ways of its round.
#[derive(Clone, Copy, Debug)]
struct Hosts {
    /// Whether one host is both ends.
    loopback: bool,
    /// Cores in use at the sender's host, and at the receiver's.
    cores: (f64, f64),
}

/// Judges what limited each way of a round.
pub fn of_ways(ways: &mut [Way], probe: &NetProbe, loopback: bool) {
    let cores = |pick: fn(&Way, Direction) -> f64, host: Direction| {
        ways.iter().map(|way| pick(way, host)).sum::<f64>()
    };
    // A host is named by the way on which it receives.
    let used = |way: &Way, host: Direction| {
        if way.direction == host { way.receiver.cores } else { way.sender.cores }
    };
    let (server, client) = (cores(used, Direction::ToServer), cores(used, Direction::ToClient));
    for way in ways {
        let cores = match (loopback, way.direction) {
            (true, _) => (server + client, server + client),
            (false, Direction::ToServer) => (client, server),
            (false, Direction::ToClient) => (server, client),
        };
        way.verdict = of_way(way, probe, Hosts { loopback, cores });
    }
}

fn of_way(way: &Way, probe: &NetProbe, hosts: Hosts) -> Verdict {
    if way.bytes == 0 {
        let advice = "see whether the path loses everything: ping, firewalls, MTU";
        return verdict("none", "nothing arrived".into(), advice.into());
    }
    if way.datagrams.is_some() {
        return of_datagrams(way);
    }
    let asked = probe.rate_bytes_per_s.map(|rate| gbit(rate, 1.0));
    if let Some(asked) = asked.filter(|asked| way.gbit_per_s >= asked * PACED_SHARE) {
        let sentence = format!("the rate of {} that was asked for is reached", rate(asked));
        return verdict("pacing", sentence, "leave --rate out to see what the path carries".into());
    }
    processors(way, hosts).unwrap_or_else(|| sockets(way, hosts))
}

/// The verdict on processors: threads that compute all the time, or wait for a core to do so.
fn processors(way: &Way, hosts: Hosts) -> Option<Verdict> {
    let (sender, receiver) = (&way.sender, &way.receiver);
    let all = [(sender, "the sender", hosts.cores.0), (receiver, "the receiver", hosts.cores.1)];
    for (side, at, used) in all {
        if used >= f64::from(side.cores_max.max(1)) * BUSY_SHARE && side.waited + used > 1.0 {
            let host = if hosts.loopback { "this host, which is both ends," } else { at };
            let sentence = format!("all {} processors of {host} are busy", side.cores_max);
            let advice = "free processors there, or take larger packets (MTU, GRO, TSO)";
            return Some(verdict("processors", sentence, advice.into()));
        }
    }
    let sides =
        [(sender, "sender", "sender_processor"), (receiver, "receiver", "receiver_processor")];
    // What waits for a core has none for itself.
    let wanted = |side: &SideUse| side.busiest + side.waited.max(side.throttled);
    let (side, at, limit) = sides
        .into_iter()
        .max_by(|one, other| wanted(one.0).total_cmp(&wanted(other.0)))
        .filter(|(side, ..)| wanted(side) >= BUSY_SHARE)?;
    if quota_holds(side.throttled) && side.waited >= HELD_SHARE {
        return Some(of_quota(side, at, limit));
    }
    let computes = percent(side.busiest);
    if side.waited >= HELD_SHARE {
        let sentence = format!(
            "the {at}'s thread computes {computes} of the time, and waits for a processor {}",
            percent(side.waited)
        );
        return Some(verdict(limit, sentence, format!("free a core at the {at}")));
    }
    let sentence =
        format!("one core is busy at the {at}: its thread computes {computes} of the time");
    let advice = if at == "sender" {
        "more streams use more cores; larger packets (MTU, TSO) cost less"
    } else {
        "more streams use more cores; larger packets (MTU, GRO) cost less, and --receive discard \
         shows what the copy takes"
    };
    Some(verdict(limit, sentence, advice.into()))
}

/// The verdict on a side whose threads wait for a processor that its own control group does not
/// give.
fn of_quota(side: &SideUse, at: &str, limit: &str) -> Verdict {
    let share = percent(side.throttled);
    let sentence = format!("the {at}'s own CPU quota held it {share} of the time");
    verdict(limit, sentence, QUOTA_REMEDY.into())
}

/// The verdict by what TCP_INFO says.
fn sockets(way: &Way, hosts: Hosts) -> Verdict {
    let limited = way.limited;
    let most = limited.receiver_window.max(limited.send_buffer);
    let loses = way.resent_share >= LOSS_SHARE;
    if most >= HELD_SHARE && limited.receiver_window >= limited.send_buffer && !loses {
        let share = percent(limited.receiver_window);
        if way.receiver.waited >= HELD_SHARE && quota_holds(way.receiver.throttled) {
            return of_quota(&way.receiver, "receiver", "receiver_processor");
        }
        if way.receiver.waited >= HELD_SHARE {
            let sentence = format!(
                "the receiver's thread waits for a processor {} of the time, so its window is full",
                percent(way.receiver.waited)
            );
            let advice = "free a core at the receiver";
            return verdict("receiver_processor", sentence, advice.into());
        }
        let sentence = format!("the receiver's window is full {share} of the time");
        let advice = "raise the last number of net.ipv4.tcp_rmem at the receiver, or take more \
                      streams";
        return verdict("receiver_window", sentence, advice.into());
    }
    if most >= HELD_SHARE && !loses {
        let share = percent(limited.send_buffer);
        let sentence = format!("the sender's buffer is full {share} of the time");
        let advice = "raise the last number of net.ipv4.tcp_wmem at the sender, or take more \
                      streams";
        return verdict("send_buffer", sentence, advice.into());
    }
    if loses {
        let share = fine_percent(way.resent_share);
        let sentence = format!("packets are lost: {share} of the bytes went out again");
        let advice = "look for the place that drops them (ethtool -S, the switches); bbr bears \
                      loss better (--congestion cubic,bbr), and so do more streams";
        return verdict("loss", sentence, advice.into());
    }
    if limited.congestion_window >= HELD_SHARE {
        let queued = f64::from(way.rtt_us) >= f64::from(way.min_rtt_us) * QUEUED_RTTS;
        let sentence = if hosts.loopback {
            "the congestion window limits; both ends take turns on one host".into()
        } else if queued && way.min_rtt_us > 0 {
            format!(
                "the link is full: the round trip grows from {} to {}",
                millis(way.min_rtt_us),
                millis(way.rtt_us)
            )
        } else {
            "the congestion window limits: the path takes no more, or the window still grows".into()
        };
        let advice = "a faster link carries more; a longer --time or more streams show whether \
                      the window still grew";
        return verdict("congestion_window", sentence, advice.into());
    }
    let idle = percent(limited.application);
    let sentence = format!("the sender's sockets were empty {idle} of the time");
    let advice = "free a core at the sender: its threads wait for one";
    verdict("application", sentence, advice.into())
}

fn of_datagrams(way: &Way) -> Verdict {
    let Some(datagrams) = way.datagrams else { return Verdict::default() };
    let asked = datagrams.rate_asked_gbit_per_s;
    let sent = datagrams.sent as f64 * f64::from(datagrams.datagram_bytes) * 8.0;
    let sent_gbit_per_s = sent / 1e9 / way.seconds;
    if datagrams.lost_share >= DATAGRAM_LOSS_SHARE {
        let sentence = format!(
            "{} of the datagrams are lost at {}",
            fine_percent(datagrams.lost_share),
            rate(sent_gbit_per_s)
        );
        if way.receiver.busiest >= BUSY_SHARE || way.receiver.waited >= HELD_SHARE {
            let advice = "the receiver's thread has no more processor: take larger --datagram or \
                          a lower --rate";
            return verdict("receiver_processor", sentence, advice.into());
        }
        let advice = "lower --rate until none is lost: that is what the path carries; at the \
                      receiver see net.core.rmem_max and nstat UdpRcvbufErrors";
        return verdict("loss", sentence, advice.into());
    }
    if sent_gbit_per_s < asked * PACED_SHARE {
        let sentence = format!("the sender brings {} of {}", rate(sent_gbit_per_s), rate(asked));
        let advice = "take larger --datagram or more streams: a core sends no more";
        return verdict("sender_processor", sentence, advice.into());
    }
    let loss = match datagrams.lost {
        0 => "without loss".to_owned(),
        _ => format!("and loses {} of them", fine_percent(datagrams.lost_share)),
    };
    let sentence = format!("the path carries {} of datagrams {loss}", rate(asked));
    verdict("pacing", sentence, "raise --rate to find where loss begins".into())
}

/// Compares the bandwidth-delay product of the fastest way in each direction with the buffers.
#[must_use]
pub fn buffers(rounds: &[Round], client: &HostFacts, server: &HostFacts) -> Vec<Buffers> {
    [Direction::ToServer, Direction::ToClient]
        .into_iter()
        .filter_map(|direction| {
            // A socket's buffers hold back no RDMA endpoint.
            let rounds = rounds.iter().filter(|round| round.transport == "tcp");
            let ways = rounds.flat_map(|round| &round.ways);
            let ways = ways.filter(|way| way.direction == direction && way.datagrams.is_none());
            let best = ways.max_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s))?;
            let (from, to) = match direction {
                Direction::ToServer => (client, server),
                Direction::ToClient => (server, client),
            };
            buffers_of(best, from.send_buffer_bytes_max, to.receive_buffer_bytes_max)
        })
        .collect()
}

fn buffers_of(way: &Way, send_max_bytes: u64, receive_max_bytes: u64) -> Option<Buffers> {
    let rtt_us = way.min_rtt_us;
    if rtt_us == 0 || way.bytes == 0 {
        return None;
    }
    let streams = u32::try_from(way.streams.len()).unwrap_or(1).max(1);
    let bdp_bytes = (way.gbit_per_s * 1e9 / 8.0 * f64::from(rtt_us) / 1e6) as u64;
    let needed_bytes = bdp_bytes * BUFFER_PER_WINDOW / u64::from(streams);
    let known = [send_max_bytes, receive_max_bytes].into_iter().filter(|max| *max > 0);
    let least = known.min().unwrap_or(0);
    let one_stream = gbit(least / BUFFER_PER_WINDOW, f64::from(rtt_us) / 1e6);
    let enough = least == 0 || least >= needed_bytes;
    let alone_bytes = bdp_bytes * BUFFER_PER_WINDOW;
    let advice = if least == 0 {
        "the hosts do not say how large their buffers may be".to_owned()
    } else if least >= alone_bytes {
        "the buffers are large enough, even for one stream".to_owned()
    } else {
        let (name, side) = if send_max_bytes == least {
            ("net.ipv4.tcp_wmem", "sender")
        } else {
            ("net.ipv4.tcp_rmem", "receiver")
        };
        format!(
            "one stream alone would need {alone_bytes} bytes: set the last number of {name} at the \
             {side} to that, or keep {streams} streams"
        )
    };
    Some(Buffers {
        direction: way.direction,
        streams,
        gbit_per_s: way.gbit_per_s,
        rtt_us,
        bdp_bytes,
        needed_bytes,
        send_max_bytes,
        receive_max_bytes,
        one_stream_gbit_per_s: one_stream,
        enough,
        advice,
    })
}

/// Judges all that was measured: the fastest round, why it was no faster, and what to do.
#[must_use]
pub fn of_all(report: &NetReport, probe: &NetProbe) -> Verdict {
    let fastest =
        report.rounds.iter().max_by(|one, other| one.gbit_per_s().total_cmp(&other.gbit_per_s()));
    let Some(fastest) = fastest else {
        return verdict("none", "no round could be measured".into(), String::new());
    };
    let slowest_way =
        fastest.ways.iter().min_by(|one, other| one.gbit_per_s.total_cmp(&other.gbit_per_s));
    let Some(way) = slowest_way else { return Verdict::default() };
    let carried: Vec<String> = fastest
        .ways
        .iter()
        .map(|way| format!("{} {}", rate(way.gbit_per_s), way.direction.words()))
        .collect();
    let streams = if fastest.streams == 1 { "stream" } else { "streams" };
    let subject = if report.loopback { "this host's loopback" } else { "the network" };
    let mut sentence = format!(
        "{subject} carries {} with {} {streams}: {}",
        carried.join(" and "),
        fastest.streams,
        way.verdict.sentence
    );
    let mut advice = way.verdict.advice.clone();
    if let Some(hole) = &report.path.black_hole {
        sentence += &format!(
            "; packets of {} bytes vanish {}, and nobody says so, while {} pass",
            hole.vanishes_bytes,
            hole.direction.words(),
            hole.passes_bytes
        );
        if hole.own_queue {
            advice =
                "this host's own queue drops them: raise its burst above the MTU (tc -s qdisc \
                      shows it)"
                    .into();
            return verdict("black_hole", sentence, advice);
        }
        advice = format!(
            "set the interface's MTU to {} on the sending side, or net.ipv4.tcp_mtu_probing=1, or \
             mend the path",
            hole.passes_bytes
        );
        return verdict("black_hole", sentence, advice);
    }
    if probe.transport == Transport::Tcp
        && let Some(gain) = gain_of_streams(report)
    {
        sentence += &gain;
    }
    verdict(&way.verdict.limit, sentence, advice)
}

/// Words for what more streams bring over one.
fn gain_of_streams(report: &NetReport) -> Option<String> {
    let best = |streams: fn(u32) -> bool| {
        let rounds = report.rounds.iter().filter(|round| streams(round.streams));
        rounds.max_by(|one, other| one.gbit_per_s().total_cmp(&other.gbit_per_s()))
    };
    let (one, more) = (best(|streams| streams == 1)?, best(|streams| streams > 1)?);
    let (alone, together) = (one.gbit_per_s(), more.gbit_per_s());
    Some(if together < alone * GAIN_MIN {
        "; more streams than one bring nothing".to_owned()
    } else {
        format!("; one stream alone carries {}", rate(alone))
    })
}

pub(super) fn rate(gbit_per_s: f64) -> String {
    if gbit_per_s >= 0.9995 {
        format!("{gbit_per_s:.2} Gbit/s")
    } else {
        format!("{:.1} Mbit/s", gbit_per_s * 1e3)
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share.min(1.0) * 100.0)
}

fn fine_percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn millis(us: u32) -> String {
    if us < 1000 { format!("{us} us") } else { format!("{:.1} ms", f64::from(us) / 1e3) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::probe::net::report::{DatagramFigures, Limited, StreamFigures};

    pub(in super::super) fn way() -> Way {
        let side = SideUse { cores: 0.5, busiest: 0.5, cores_max: 8, ..SideUse::default() };
        let stream = StreamFigures {
            stream: 0,
            gbit_per_s: 1.0,
            retransmits: 0,
            rtt_us: 50_000,
            min_rtt_us: 50_000,
            cwnd_bytes: 0,
            delivery_rate_gbit_per_s: 0.0,
            sender_cpu: 0.5,
            receiver_cpu: 0.5,
        };
        Way {
            direction: Direction::ToServer,
            seconds: 1.0,
            bytes: 125_000_000,
            gbit_per_s: 1.0,
            congestion: "cubic".into(),
            rtt_us: 50_000,
            min_rtt_us: 50_000,
            retransmits: 0,
            resent_share: 0.0,
            cwnd_bytes: 0,
            limited: Limited { congestion_window: 1.0, ..Limited::default() },
            room_waits: 0,
            sender: side,
            receiver: side,
            datagrams: None,
            streams: vec![stream],
            intervals: Vec::new(),
            verdict: Verdict::default(),
        }
    }

    fn judged(way: &mut Way, probe: &NetProbe) -> Verdict {
        of_ways(std::slice::from_mut(way), probe, false);
        way.verdict.clone()
    }

    fn limit(change: impl Fn(&mut Way)) -> String {
        let url = "haul://host/".parse().expect("a URL");
        let mut way = way();
        change(&mut way);
        judged(&mut way, &NetProbe::new(url)).limit
    }

    #[test]
    fn each_limit_is_told_from_the_others() {
        assert_eq!(limit(|_| {}), "congestion_window");
        assert_eq!(limit(|way| way.bytes = 0), "none");
        assert_eq!(limit(|way| way.sender.busiest = 0.97), "sender_processor");
        assert_eq!(limit(|way| way.receiver.busiest = 0.97), "receiver_processor");
        assert_eq!(limit(|way| way.resent_share = 0.01), "loss");
        let window = |way: &mut Way| {
            way.limited = Limited { receiver_window: 0.9, ..Limited::default() };
        };
        assert_eq!(limit(window), "receiver_window");
        let slow_reader = |way: &mut Way| {
            window(way);
            way.receiver.waited = 0.6;
        };
        assert_eq!(limit(slow_reader), "receiver_processor");
        let buffer = |way: &mut Way| {
            way.limited = Limited { send_buffer: 0.9, ..Limited::default() };
        };
        assert_eq!(limit(buffer), "send_buffer");
        let idle = |way: &mut Way| {
            way.limited = Limited { application: 0.9, ..Limited::default() };
        };
        assert_eq!(limit(idle), "application");
        let full = |way: &mut Way| {
            way.sender.cores = 7.9;
            way.sender.waited = 0.5;
        };
        assert_eq!(limit(full), "processors");
    }

    #[test]
    fn a_quota_of_its_own_is_named_in_a_probe_as_in_a_transfer() {
        let url = "haul://host/".parse().expect("a URL");
        let probe = NetProbe::new(url);
        let held = |throttled| SideUse { waited: 0.8, busiest: 0.2, throttled, ..way().sender };
        let mut others = Way { sender: held(0.0), ..way() };
        assert!(judged(&mut others, &probe).advice.contains("free a core at the sender"));
        let mut own = Way { sender: held(0.7), ..way() };
        let told = judged(&mut own, &probe);
        assert!(told.sentence.contains("sender's own CPU quota held it 70 %"), "{told:?}");
        assert!(told.limit == "sender_processor" && told.advice.contains("cpu.max"), "{told:?}");
        let limited = Limited { receiver_window: 0.9, ..Limited::default() };
        let mut slow =
            Way { receiver: SideUse { busiest: 0.0, waited: 0.6, ..held(0.6) }, limited, ..way() };
        let told = judged(&mut slow, &probe);
        assert!(told.sentence.contains("receiver's own CPU quota"), "{told:?}");
    }

    #[test]
    fn a_rate_that_is_reached_is_the_limit() {
        let url = "haul://host/".parse().expect("a URL");
        let probe = NetProbe { rate_bytes_per_s: Some(130_000_000), ..NetProbe::new(url) };
        assert_eq!(judged(&mut way(), &probe).limit, "pacing");
        let faster = NetProbe { rate_bytes_per_s: Some(1_300_000_000), ..probe };
        assert_eq!(judged(&mut way(), &faster).limit, "congestion_window");
    }

    #[test]
    fn lost_datagrams_are_told_with_their_share() {
        let datagrams = DatagramFigures {
            sent: 100_000,
            received: 99_000,
            lost: 1000,
            lost_share: 0.01,
            reordered: 0,
            duplicates: 0,
            jitter_us: 1.0,
            rate_asked_gbit_per_s: 1.0,
            datagram_bytes: 1250,
        };
        let url = "haul://host/".parse().expect("a URL");
        let probe = NetProbe::new(url);
        let mut lossy = Way { datagrams: Some(datagrams), ..way() };
        let verdict = judged(&mut lossy, &probe);
        assert_eq!(verdict.limit, "loss");
        assert!(verdict.sentence.contains("1.00 %"), "{}", verdict.sentence);
        let clean = DatagramFigures { lost: 0, lost_share: 0.0, ..datagrams };
        let verdict = judged(&mut Way { datagrams: Some(clean), ..way() }, &probe);
        assert_eq!(verdict.limit, "pacing");
    }

    #[test]
    fn buffers_are_held_against_the_product_of_rate_and_time() {
        // 1 Gbit/s x 50 ms is 6.25 MB; half of a buffer is the kernel's own.
        let small = buffers_of(&way(), 4 << 20, 6 << 20).expect("measured");
        assert_eq!((small.bdp_bytes, small.needed_bytes), (6_250_000, 12_500_000));
        assert!(!small.enough && small.advice.contains("tcp_wmem at the sender"), "{small:?}");
        let large = buffers_of(&way(), 64 << 20, 64 << 20).expect("measured");
        assert!(large.enough && large.advice.contains("large enough"), "{large:?}");
        assert!(buffers_of(&way(), 0, 0).expect("measured").enough);
        assert!(buffers_of(&Way { min_rtt_us: 0, ..way() }, 1, 1).is_none());
    }
}
