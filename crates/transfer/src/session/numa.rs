//! Placement of streams near their network interface, where the host has several NUMA nodes.

use haul_datapath::{
    Host,
    choose::{self, Placement},
};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{net::SocketAddr, os::fd::AsFd, path::Path};

/// Finds the processors for threads that use this socket; `None` leaves them to the scheduler. The
/// facts of the interface are read below `root`.
#[must_use]
pub fn near_interface(root: &Path, socket: impl AsFd, host: &Host) -> Option<Placement> {
    if host.nodes.len() < 2 {
        return None;
    }
    let local = SocketAddr::try_from(rustix::net::getsockname(socket).ok()?).ok()?;
    let interface = haul_sys::interfaces::name_of(local.ip()).ok()??;
    let node = haul_host::interface_node(root, &interface);
    choose::placement(host, &interface, node)
}

/// Keeps the calling thread, and those that it starts, where the socket's interface is.
pub fn run_near_interface(root: &Path, socket: impl AsFd, host: &Host) {
    let Some(placement) = near_interface(root, socket, host) else { return };
    // Refused where another has confined this process meanwhile: then it runs where it may.
    let _ = run_on(&placement);
}

fn run_on(placement: &Placement) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in &placement.cpus {
        let cpu = *cpu as usize;
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
    }
    sched_setaffinity(None, &set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_host::Node;
    use rustix::thread::sched_getaffinity;

    #[test]
    fn a_thread_stays_on_the_processors_it_is_given() {
        std::thread::spawn(|| {
            let all = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap();
            // The kernel's sets may be larger than this program's.
            let cpus = vec![first as u32, CpuSet::MAX_CPU as u32];
            let placement = Placement { cpus, because: String::new() };
            run_on(&placement).unwrap();
            let now = sched_getaffinity(None).unwrap();
            assert_eq!((now.count(), now.is_set(first)), (1, true));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn loopback_is_near_every_node() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let node = |number, cpu| Node { number, cpus: vec![cpu] };
        let nodes = vec![node(0, 0), node(1, 1)];
        let host = Host { nodes, cpus: vec![0, 1], ..Host::default() };
        assert_eq!(near_interface(Path::new("/"), &listener, &host), None);
    }

    #[test]
    fn a_thread_runs_on_the_node_of_its_interface_where_there_are_several() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("sys/class/net/lo/device");
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("numa_node"), "1\n").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let all = sched_getaffinity(None).unwrap();
        let ours = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap() as u32;
        let near = Some(vec![ours]);
        for (numbers, cpus) in [(&[1][..], None), (&[0, 1], near.clone()), (&[0, 1, 2], near)] {
            let node = |number: &u32| {
                let cpus = if *number == 1 { vec![ours] } else { vec![5000 + number] };
                Node { number: *number, cpus }
            };
            let nodes = numbers.iter().map(node).collect();
            let host = Host { cpus: vec![ours, 5000, 5002], nodes, ..Host::default() };
            let placement = near_interface(root.path(), &listener, &host);
            assert_eq!(placement.map(|placement| placement.cpus), cpus, "nodes {numbers:?}");
            let is_placed = cpus.is_some();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    run_near_interface(root.path(), &listener, &host);
                    let now = sched_getaffinity(None).unwrap();
                    assert_eq!(now.count() == 1, is_placed || all.count() == 1);
                });
            });
        }
    }
}
