//! Marks of packets for those who run the network.
//!
//! They say which class the packets are of (DSCP), and whose data they carry (SciTags).

use crate::bytes::random_bytes;
use rustix::net::sockopt;
use std::{fmt, os::fd::AsFd, str::FromStr};

/// The class of packets, six bits of their header (RFC 2474).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

/// Names of classes (RFC 2474, RFC 2597, RFC 3246, RFC 5865, RFC 8622).
const CLASSES: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("voice-admit", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// A text that is no DSCP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no DSCP: a number below 64, or a name like af11")]
pub struct NoDscp(String);

/// Reads a number of six bits, or the name of a class.
impl FromStr for Dscp {
    type Err = NoDscp;

    fn from_str(text: &str) -> Result<Self, NoDscp> {
        let lower = text.to_ascii_lowercase();
        let named = CLASSES.iter().find(|(name, _)| *name == lower).map(|(_, value)| *value);
        let number = || text.parse::<u8>().ok().filter(|value| *value < 64);
        let value = named.or_else(number).map(Self);
        value.ok_or_else(|| NoDscp(text.to_owned()))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CLASSES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl Dscp {
    /// Has a socket, and those that a listener accepts, ask for this class. It is no error where
    /// the kernel does not take it: the packets go as any others.
    pub fn mark(self, socket: impl AsFd) {
        // The field has two more bits, for congestion, which TCP sets.
        let field = self.0 << 2;
        // A socket of IPv6 may have packets of IPv4, too.
        let _ = sockopt::set_ip_tos(&socket, field);
        let _ = sockopt::set_ipv6_tclass(&socket, field.into());
    }
}

/// Community and activity of data, by the numbers of the SciTags registry (scitags.org/api.json).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SciTag {
    /// Number of the community: an experiment, or a project. It has nine bits.
    pub experiment: u16,
    /// Number of what it does. It has six bits.
    pub activity: u8,
}

const EXPERIMENT_BITS: u32 = 9;
const ACTIVITY_BITS: u32 = 6;

/// A text that is no SciTag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no SciTag: EXPERIMENT.ACTIVITY, from 1.1 to 511.63")]
pub struct NoSciTag(String);

/// Reads `EXPERIMENT.ACTIVITY`, or both as the one number that HTTP's header SciTag has.
impl FromStr for SciTag {
    type Err = NoSciTag;

    fn from_str(text: &str) -> Result<Self, NoSciTag> {
        let parts = match text.split_once('.') {
            Some((experiment, activity)) => experiment.parse().ok().zip(activity.parse().ok()),
            None => text
                .parse::<u16>()
                .ok()
                .map(|both| (both >> ACTIVITY_BITS, (both & ((1 << ACTIVITY_BITS) - 1)) as u8)),
        };
        let is_one = |(experiment, activity): &(u16, u8)| {
            (1..1 << EXPERIMENT_BITS).contains(experiment)
                && (1..1 << ACTIVITY_BITS).contains(activity)
        };
        let tag = parts.filter(is_one).map(|(experiment, activity)| Self { experiment, activity });
        tag.ok_or_else(|| NoSciTag(text.to_owned()))
    }
}

impl fmt::Display for SciTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.experiment, self.activity)
    }
}

impl SciTag {
    /// The flow label of a stream: 20 bits, of which the highest two, the one between both numbers
    /// and the lowest two are drawn by lot, so that routers spread the streams over their links.
    /// The community's bits stand in reverse (draft-cc-v6ops-wlcg-flow-label-marking).
    #[must_use]
    pub fn flow_label(self) -> u32 {
        let lot = random_bytes().map_or(0, u32::from_le_bytes);
        self.with_lot(lot)
    }

    fn with_lot(self, lot: u32) -> u32 {
        const LOT_BITS: u32 = 0b1100_0000_0001_0000_0011;
        let reversed = u32::from(self.experiment).reverse_bits() >> (u32::BITS - EXPERIMENT_BITS);
        (lot & LOT_BITS) | reversed << 9 | u32::from(self.activity) << 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_class_is_a_name_or_a_number_below_64() {
        for (text, shown) in [("AF11", "af11"), ("10", "af11"), ("le", "le"), ("63", "63")] {
            assert_eq!(text.parse::<Dscp>().unwrap().to_string(), shown);
        }
        for bad in ["", "64", "-1", "af51", "ef "] {
            assert!(bad.parse::<Dscp>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_socket_and_what_a_listener_accepts_ask_for_the_class() {
        let ef: Dscp = "ef".parse().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            ef.mark(&listener);
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            ef.mark(&near);
            for socket in [&near, &far] {
                let class = match address.starts_with('[') {
                    true => sockopt::ipv6_tclass(socket).unwrap(),
                    false => sockopt::ip_tos(socket).unwrap().into(),
                };
                assert_eq!(class >> 2, 46, "{address}");
            }
        }
    }

    #[test]
    fn a_tag_has_two_numbers_or_one_for_both() {
        let tag = SciTag { experiment: 2, activity: 3 };
        for text in ["2.3", "131"] {
            assert_eq!(text.parse::<SciTag>().unwrap(), tag);
        }
        assert_eq!(tag.to_string(), "2.3");
        for bad in ["", "2", "0.1", "1.0", "512.1", "1.64", "2.3.4", "64", "65536"] {
            assert!(bad.parse::<SciTag>().is_err(), "{bad}");
        }
    }

    /// Bits from the highest: 2 by lot, 9 of the community in reverse, 1 by lot, 6 of the activity,
    /// 2 by lot.
    #[test]
    fn a_flow_label_has_its_numbers_in_their_places_and_a_lot_in_the_others() {
        let tag = SciTag { experiment: 0b0_0000_0110, activity: 0b10_0001 };
        assert_eq!(tag.with_lot(0), 0b0001_1000_0000_1000_0100);
        assert_eq!(tag.with_lot(u32::MAX), 0b1101_1000_0001_1000_0111);
        let labels: Vec<u32> = (0..64).map(|_| tag.flow_label()).collect();
        assert!(labels.iter().any(|label| *label != labels[0]));
    }
}
