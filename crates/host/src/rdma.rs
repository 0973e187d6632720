//! RDMA devices of a host, as /sys/class/infiniband shows them: ports, rates, addresses, counters.
//!
//! Names and words are those of Documentation/ABI/stable/sysfs-class-infiniband. A file that is
//! missing is a fact less, never an error: drivers differ in what they show.

use crate::tune::{Machine, machine::Unread};

const CLASS: &str = "/sys/class/infiniband";
/// Ports of one device that are looked at; cards have one or two.
const PORTS_MAX: usize = 16;
/// Bytes of headers that the kernel keeps free in an Ethernet frame of RoCE: GRH, UDP, BTH, XRC,
/// atomic, ICRC (`iboe_get_mtu`, include/rdma/ib_addr.h).
const HEADER_BYTES: u64 = 40 + 8 + 12 + 4 + 28 + 4;
/// Sizes of a packet's payload that the standard knows.
const MTUS: [u64; 5] = [4096, 2048, 1024, 512, 256];

/// Counters of packets that were lost on the way or came out of order, by the names of mlx5,
/// bnxt_re, irdma and rxe (each driver's `rdma_stat_desc` table).
const LOST: [&str; 12] = [
    "out_of_sequence",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "roce_adp_retrans",
    "oos_drop_count",
    "seq_err_naks_rcvd",
    "to_retransmits",
    "RetransSegs",
    "out_of_seq_request",
    "rcvd_seq_err",
    "completer_retry_err",
];
/// Counters of messages that found no buffer at the receiver, by driver as above.
const NO_BUFFER: [&str; 6] = [
    "rnr_nak_retry_err",
    "out_of_buffer",
    "rnr_naks_rcvd",
    "rx_out_of_buffer",
    "RNR received",
    "rcvd_rnr_err",
];
/// Counters of congestion notifications sent and obeyed, by driver as above.
const NOTIFIED: [&str; 4] = ["np_cnp_sent", "rp_cnp_handled", "cnpSent", "cnpHandled"];
/// Counters of packets received and sent: the standard's, then those of bnxt_re and rxe.
const PACKETS: [[&str; 2]; 3] =
    [["port_rcv_packets", "port_xmit_packets"], ["rx_pkts", "tx_pkts"], ["rcvd_pkts", "sent_pkts"]];
/// Counters of errors of the cable and the transceiver.
const LINK: [&str; 5] = [
    "symbol_error",
    "port_rcv_errors",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
];

/// The wire below a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    InfiniBand,
    /// RoCE.
    Ethernet,
    /// TCP below RDMA (iWARP), or what the driver calls its own, as EFA does.
    Other(String),
}

impl Layer {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "RoCE",
            Self::Other(name) => name,
        }
    }
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    /// The firmware's version; soft-RoCE has none.
    pub firmware: Option<String>,
    /// Whether a program in the kernel plays the card (rxe, siw).
    pub is_software: bool,
    pub ports: Vec<Port>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub device: String,
    pub number: u32,
    pub is_software: bool,
    /// The state without its number, such as `ACTIVE`, `INIT` or `DOWN`.
    pub state: String,
    /// The state of the wire, such as `LinkUp`, `Polling` or `Disabled`.
    pub wire: String,
    /// The rate in the driver's words, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    pub layer: Layer,
    /// The network interface at the same port.
    pub interface: Option<String>,
}

/// All RDMA devices, in order of their names.
#[must_use]
pub fn devices(machine: &Machine) -> Vec<Device> {
    machine.names(CLASS).into_iter().map(|name| device(machine, name)).collect()
}

/// Finds the device of this name, as libfabric calls its domain: `mlx5_0`, or `mlx5_0-xrc`.
#[must_use]
pub fn device_of_domain(machine: &Machine, domain: &str) -> Option<Device> {
    let mut devices = devices(machine).into_iter();
    devices.find(|device| {
        domain
            .strip_prefix(&device.name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

fn device(machine: &Machine, name: String) -> Device {
    let text = |file: &str| machine.text(&format!("{CLASS}/{name}/{file}")).ok();
    let firmware = text("fw_ver").filter(|version| !version.is_empty());
    let is_software = !machine.exists(&format!("{CLASS}/{name}/device"));
    // A node of type 4 speaks TCP below RDMA (include/rdma/ib_verbs.h, RDMA_NODE_RNIC).
    let is_iwarp = text("node_type").is_some_and(|kind| kind.starts_with('4'));
    let mut numbers: Vec<u32> = machine
        .names(&format!("{CLASS}/{name}/ports"))
        .iter()
        .filter_map(|number| number.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.truncate(PORTS_MAX);
    let ports = numbers.into_iter().map(|number| {
        let file = |file: &str| {
            machine.text(&format!("{CLASS}/{name}/ports/{number}/{file}")).unwrap_or_default()
        };
        let layer = match &file("link_layer")[..] {
            _ if is_iwarp => Layer::Other("iWARP".to_owned()),
            "InfiniBand" => Layer::InfiniBand,
            "Ethernet" => Layer::Ethernet,
            other => Layer::Other(words(other)),
        };
        Port {
            device: name.clone(),
            number,
            is_software,
            state: word_of(&file("state")),
            wire: word_of(&file("phys_state")),
            rate: words(&file("rate")),
            layer,
            interface: interface(machine, &name, number),
        }
    });
    Device {
        firmware: firmware.map(|version| words(&version)),
        is_software,
        ports: ports.collect(),
        name,
    }
}

/// The word behind a number, as in `4: ACTIVE`.
fn word_of(text: &str) -> String {
    words(text.split_once(": ").map_or(text, |(_, word)| word))
}

/// Words of a driver, short enough for a report.
fn words(text: &str) -> String {
    text.chars().take(60).filter(|sign| !sign.is_control()).collect()
}

/// The network interface of a port: that of its addresses, or the only one of the device.
fn interface(machine: &Machine, device: &str, port: u32) -> Option<String> {
    let is_there = |name: &String| machine.has_interface(name);
    let addresses = format!("{CLASS}/{device}/ports/{port}/gid_attrs/ndevs");
    let of_addresses = machine
        .names(&addresses)
        .into_iter()
        .find_map(|index| machine.text(&format!("{addresses}/{index}")).ok().filter(is_there));
    let parent = || machine.text(&format!("{CLASS}/{device}/parent")).ok().filter(is_there);
    let only = || {
        let names = machine.names(&format!("{CLASS}/{device}/device/net"));
        <[String; 1]>::try_from(names).ok().map(|[name]| name).filter(is_there)
    };
    of_addresses.or_else(parent).or_else(only)
}

/// Addresses of a RoCE port, by the protocol that carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// RoCE v2, in UDP, made of an IP address.
    pub routable: u32,
    /// RoCE v2 of the link alone (`fe80::`), which the port has without an IP address.
    pub link_local: u32,
    /// RoCE v1, which passes no router.
    pub version_1: u32,
}

impl Port {
    /// The port's name as rdma(8) has it: `mlx5_0/1`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.device, self.number)
    }

    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The number of the rate in bits a second: `100 Gb/sec (4X EDR)`.
    #[must_use]
    pub fn rate_bits_per_s(&self) -> Option<u64> {
        let gigabits: f64 = self.rate.split_once(" Gb/sec")?.0.parse().ok()?;
        (0.1..100_000.0).contains(&gigabits).then_some((gigabits * 1e9) as u64)
    }

    fn directory(&self) -> String {
        format!("{CLASS}/{}/ports/{}", self.device, self.number)
    }

    #[must_use]
    pub fn addresses(&self, machine: &Machine) -> Addresses {
        let directory = self.directory();
        let mut addresses = Addresses::default();
        for index in machine.names(&format!("{directory}/gid_attrs/types")) {
            // An entry of the table that is not used cannot be read.
            let Ok(kind) = machine.text(&format!("{directory}/gid_attrs/types/{index}")) else {
                continue;
            };
            let address = machine.text(&format!("{directory}/gids/{index}")).unwrap_or_default();
            match &kind[..] {
                "RoCE v2" if address.starts_with("fe80:") => addresses.link_local += 1,
                "RoCE v2" => addresses.routable += 1,
                "IB/RoCE v1" => addresses.version_1 += 1,
                _ => {}
            }
        }
        addresses
    }

    /// A counter of the port, or of its device where the driver keeps it there.
    fn counter(&self, machine: &Machine, name: &str) -> Option<u64> {
        let of = |directory: &str| {
            let number = machine.number(&format!("{directory}/{name}")).ok()?;
            u64::try_from(number).ok()
        };
        of(&format!("{}/hw_counters", self.directory()))
            .or_else(|| of(&format!("{CLASS}/{}/hw_counters", self.device)))
            .or_else(|| of(&format!("{}/counters", self.directory())))
    }

    fn counters<'name>(&self, machine: &Machine, names: &[&'name str]) -> Vec<(&'name str, u64)> {
        names.iter().filter_map(|&name| Some((name, self.counter(machine, name)?))).collect()
    }

    /// Packets lost or out of order since the driver was loaded, by counter.
    #[must_use]
    pub fn lost(&self, machine: &Machine) -> Vec<(&'static str, u64)> {
        self.counters(machine, &LOST)
    }

    /// Messages that found no buffer, by counter.
    #[must_use]
    pub fn without_buffer(&self, machine: &Machine) -> Vec<(&'static str, u64)> {
        self.counters(machine, &NO_BUFFER)
    }

    /// Congestion notifications, by counter.
    #[must_use]
    pub fn notified(&self, machine: &Machine) -> Vec<(&'static str, u64)> {
        self.counters(machine, &NOTIFIED)
    }

    /// Errors of the wire, by counter.
    #[must_use]
    pub fn wire_errors(&self, machine: &Machine) -> Vec<(&'static str, u64)> {
        self.counters(machine, &LINK)
    }

    /// Packets in both directions; `None` where the driver counts none.
    #[must_use]
    pub fn packets(&self, machine: &Machine) -> Option<u64> {
        PACKETS.iter().find_map(|names| {
            let both = self.counters(machine, names);
            let sum = both.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
            (sum > 0).then_some(sum)
        })
    }
}

/// Counters that are above zero, in words: `out_of_sequence 12, packet_seq_err 3`; empty: none.
#[must_use]
pub fn counted_words(counters: &[(&str, u64)]) -> String {
    let above = counters.iter().filter(|(_, count)| *count > 0);
    above.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// The payload of a RoCE packet over an Ethernet interface of this MTU; `None` below the least.
#[must_use]
pub fn payload_bytes(interface_mtu: u64) -> Option<u64> {
    let room = interface_mtu.checked_sub(HEADER_BYTES)?;
    MTUS.into_iter().find(|mtu| *mtu <= room)
}

/// The priorities for which the interface pauses alone (PFC), by dcb-pfc(8); none is on: empty.
///
/// # Errors
/// Why dcb(8) does not tell.
pub fn paused_priorities(machine: &Machine, interface: &str) -> Result<Vec<u8>, Unread> {
    let command = ["dcb", "pfc", "show", "dev", interface];
    let text = machine.answer(&command)?;
    let (_, rest) =
        text.split_once("prio-pfc ").ok_or_else(|| Unread::nonsense(command.join(" "), &text))?;
    let on = |word: &str| word.strip_suffix(":on")?.parse::<u8>().ok().filter(|prio| *prio < 8);
    Ok(rest.split_whitespace().filter_map(on).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::machine::STORED_ANSWERS;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let machine = Machine::below(root.path());
        (root, machine)
    }

    #[test]
    fn the_payload_is_the_largest_of_the_standard_that_fits() {
        for (mtu, payload) in [
            (1500, Some(1024)),
            (4200, Some(4096)),
            (4191, Some(2048)),
            (9000, Some(4096)),
            (90, None),
        ] {
            assert_eq!(payload_bytes(mtu), payload, "{mtu}");
        }
    }

    #[test]
    fn a_device_is_read_with_its_port_and_what_cannot_be_used_is_left_out() {
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let file = |name: &str| format!("{port}/{name}");
        let (_root, machine) = host(&[
            ("sys/class/infiniband/mlx5_0/fw_ver", "22.41.1000\n"),
            ("sys/class/infiniband/mlx5_0/node_type", "1: CA\n"),
            ("sys/class/infiniband/mlx5_0/device/numa_node", "0\n"),
            (&file("state"), "4: ACTIVE\n"),
            (&file("phys_state"), "5: LinkUp\n"),
            (&file("rate"), "100 Gb/sec (4X EDR)\n"),
            (&file("link_layer"), "Ethernet\n"),
            (&file("gid_attrs/ndevs/0"), "../../etc\n"),
            (&file("gid_attrs/ndevs/1"), "eth0\n"),
            (&file("gid_attrs/types/0"), "IB/RoCE v1\n"),
            (&file("gid_attrs/types/1"), "RoCE v2\n"),
            (&file("gid_attrs/types/2"), "RoCE v2\n"),
            (&file("gids/1"), "fe80:0000:0000:0000:0000:0000:0000:0001\n"),
            (&file("gids/2"), "0000:0000:0000:0000:0000:ffff:0a07:0002\n"),
            (&file("hw_counters/out_of_sequence"), "7\n"),
            (&file("hw_counters/packet_seq_err"), "0\n"),
            ("sys/class/net/eth0/mtu", "1500\n"),
        ]);
        let [device] = &devices(&machine)[..] else { panic!("one device") };
        assert_eq!((device.is_software, device.firmware.as_deref()), (false, Some("22.41.1000")));
        let [port] = &device.ports[..] else { panic!("one port") };
        assert!(port.is_active() && port.wire == "LinkUp" && port.layer == Layer::Ethernet);
        assert_eq!(port.rate_bits_per_s(), Some(100_000_000_000));
        assert_eq!(port.interface.as_deref(), Some("eth0"));
        let addresses = Addresses { routable: 1, link_local: 1, version_1: 1 };
        assert_eq!(port.addresses(&machine), addresses);
        assert_eq!(counted_words(&port.lost(&machine)), "out_of_sequence 7");
        assert!(device_of_domain(&machine, "mlx5_0-xrc").is_some());
        assert!(device_of_domain(&machine, "mlx5_01").is_none());
    }

    #[test]
    fn priorities_are_read_from_the_words_of_dcb() {
        let shown = "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 3:on 4:off 7:on 9:on\n";
        let answer = format!("{STORED_ANSWERS}/dcb pfc show dev eth0");
        let (_root, machine) = host(&[(&answer, shown)]);
        assert_eq!(paused_priorities(&machine, "eth0"), Ok(vec![3, 7]));
        assert!(paused_priorities(&machine, "eth1").is_err());
    }
}
