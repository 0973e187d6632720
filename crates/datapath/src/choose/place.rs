//! Choice of the processors that a stream's thread runs on.

use crate::Host;

/// Processors for a thread, and the reason for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub cpus: Vec<u32>,
    pub because: String,
}

/// Places a thread near the network interface, where the host has several nodes: bytes that cross
/// between nodes cost a copy's time without a copy. `None` leaves the thread to the scheduler.
///
/// `node` is that of the interface. Only processors that this process may use anyway are taken.
#[must_use]
pub fn placement(host: &Host, interface: &str, node: Option<u32>) -> Option<Placement> {
    let node = host.nodes.iter().find(|known| Some(known.number) == node)?;
    if host.nodes.len() < 2 {
        return None;
    }
    let may_use = |cpu: &u32| host.cpus.contains(cpu);
    let cpus: Vec<u32> = node.cpus.iter().copied().filter(may_use).collect();
    if cpus.is_empty() || cpus.len() == host.cpus.len() {
        return None;
    }
    let because = format!(
        "threads of streams run on node {} of {}, where {interface} is",
        node.number,
        host.nodes.len()
    );
    Some(Placement { cpus, because })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_host::Node;

    fn host(cpus: &[u32]) -> Host {
        let node = |number, cpus: [u32; 2]| Node { number, cpus: cpus.to_vec() };
        let nodes = vec![node(0, [0, 1]), node(1, [2, 3])];
        Host { nodes, cpus: cpus.to_vec(), ..Host::default() }
    }

    fn cpus(host: &Host, node: Option<u32>) -> Option<Vec<u32>> {
        placement(host, "eth0", node).map(|placement| placement.cpus)
    }

    #[test]
    fn a_thread_runs_near_the_interface() {
        let host = host(&[0, 1, 2, 3]);
        let placement = placement(&host, "eth0", Some(1)).unwrap();
        assert_eq!(placement.cpus, [2, 3]);
        assert_eq!(placement.because, "threads of streams run on node 1 of 2, where eth0 is");
    }

    #[test]
    fn what_the_process_may_not_use_or_nobody_knows_is_left() {
        assert_eq!(cpus(&host(&[0, 1, 3]), Some(1)), Some(vec![3]));
        assert_eq!(cpus(&host(&[0, 1]), Some(1)), None, "none of them");
        assert_eq!(cpus(&host(&[2, 3]), Some(1)), None, "it runs there anyway");
        assert_eq!(cpus(&host(&[0, 1, 2, 3]), None), None);
        assert_eq!(cpus(&host(&[0, 1, 2, 3]), Some(7)), None);
        let one = Host { nodes: host(&[]).nodes[..1].to_vec(), ..host(&[0, 1]) };
        assert_eq!(cpus(&one, Some(0)), None, "one node is near everything");
    }

    #[test]
    fn one_node_places_nothing_and_three_do() {
        let one = Host { nodes: host(&[]).nodes[..1].to_vec(), ..host(&[0, 1, 9]) };
        assert_eq!(cpus(&one, Some(0)), None);
        let mut three = host(&[0, 1, 2, 3]);
        three.nodes.push(Node { number: 2, cpus: vec![4, 5] });
        assert_eq!(cpus(&three, Some(1)), Some(vec![2, 3]));
    }
}
