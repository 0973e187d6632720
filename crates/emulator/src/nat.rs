//! A NAT on a long path, which forgets its connections when a test says so.
//!
//! From then on they come from other ports, and what is sent to the old ones goes nowhere.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

const IPV4_HEADER_BYTES_MIN: usize = 20;
const TCP: u8 = 6;
/// Offset of the checksum in a TCP header (RFC 9293, 3.1).
const CHECKSUM_AT: usize = 16;
/// Distance between a connection's outside port before and after the NAT forgot it.
const SHIFT: u16 = 1009;

/// Direction of a packet through the NAT, seen from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Out,
    In,
}

#[derive(Debug, Default)]
pub struct Nat {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number added to an inside port: 0 until the NAT forgets for the first time.
    shift: u16,
    /// Inside port behind each outside port.
    inside: BTreeMap<u16, u16>,
}

impl Nat {
    /// Forgets all connections. Nobody is told.
    pub fn rebind(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.shift = state.shift.wrapping_add(SHIFT);
        state.inside.clear();
    }

    /// Changes the inside port of an IPv4 TCP packet; false where the packet is to be dropped.
    pub fn translate(&self, packet: &mut [u8], way: Way) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.shift == 0 {
            return true;
        }
        let Some(header_bytes) = tcp_at(packet) else { return true };
        // The source port stands first, the target's behind it.
        let at = header_bytes + if way == Way::Out { 0 } else { 2 };
        let port = u16::from_be_bytes([packet[at], packet[at + 1]]);
        let translated = match way {
            Way::Out => {
                let outside = port.wrapping_add(state.shift);
                state.inside.insert(outside, port);
                Some(outside)
            }
            Way::In => state.inside.get(&port).copied(),
        };
        let Some(new) = translated else { return false };
        packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
        let at = header_bytes + CHECKSUM_AT;
        let sum = u16::from_be_bytes([packet[at], packet[at + 1]]);
        packet[at..at + 2].copy_from_slice(&updated(sum, port, new).to_be_bytes());
        true
    }
}

/// Offset at which the TCP header of a packet begins; `None` where the packet is no TCP over IPv4.
fn tcp_at(packet: &[u8]) -> Option<usize> {
    let first = *packet.first()?;
    let header_bytes = usize::from(first & 0xf) * 4;
    let is_tcp = first >> 4 == 4
        && header_bytes >= IPV4_HEADER_BYTES_MIN
        && packet.len() >= header_bytes + CHECKSUM_AT + 2
        && packet[9] == TCP;
    is_tcp.then_some(header_bytes)
}

/// A checksum after one of its words has changed (RFC 1624, 3).
fn updated(sum: u16, old: u16, new: u16) -> u16 {
    let mut total = u32::from(!sum) + u32::from(!old) + u32::from(new);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP packet from one port to another.
    fn packet(source: u16, target: u16) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[9] = TCP;
        packet[20..22].copy_from_slice(&source.to_be_bytes());
        packet[22..24].copy_from_slice(&target.to_be_bytes());
        packet[36..38].copy_from_slice(&0x1234_u16.to_be_bytes());
        packet
    }

    /// Sum over a TCP header, which stays the same when the checksum is kept right.
    fn sum(packet: &[u8]) -> u32 {
        let words = packet[20..].chunks(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
        let total: u32 = words.map(u32::from).sum();
        (total & 0xffff) + (total >> 16)
    }

    #[test]
    fn ports_change_when_it_forgets_and_the_old_ones_lead_nowhere() {
        let nat = Nat::default();
        let mut out = packet(40_000, 7117);
        assert!(nat.translate(&mut out, Way::Out));
        assert_eq!(out, packet(40_000, 7117));
        nat.rebind();
        assert!(nat.translate(&mut out, Way::Out));
        let outside = u16::from_be_bytes([out[20], out[21]]);
        assert_ne!(outside, 40_000);
        assert_eq!(sum(&out), sum(&packet(40_000, 7117)));
        let mut back = packet(7117, outside);
        assert!(nat.translate(&mut back, Way::In));
        assert_eq!(
            (back[22], back[23]),
            (40_000_u16.to_be_bytes()[0], 40_000_u16.to_be_bytes()[1])
        );
        assert!(!nat.translate(&mut packet(7117, 40_000), Way::In));
        nat.rebind();
        assert!(!nat.translate(&mut packet(7117, outside), Way::In));
    }

    #[test]
    fn what_is_no_tcp_goes_through_as_it_is() {
        let nat = Nat::default();
        nat.rebind();
        for mut packet in [vec![], vec![0x60; 40], vec![0x45; 20], vec![0x45; 25]] {
            assert!(nat.translate(&mut packet, Way::In));
        }
    }
}
