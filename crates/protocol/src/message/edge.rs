//! Edge of the protocol: generated types on one side, types that say what they mean on the other.
//!
//! The generated types hold a number where an enum is meant, bytes of any length where an id is
//! meant, and nothing where something must be. They go no further than this module: each type of a
//! message is declared once, by `message!`, `enumeration!` or `kinds!`, and comes with both ways.

use crate::{FileId, ProtocolError, SpanIndex, StreamId, limits::DATA_KEYS_BYTES, wire};
use alloc::{format, string::String, vec::Vec};

/// A type that a message is made of, and the generated type that carries it.
pub trait Edge: Sized {
    type Wire;

    /// Turns the generated type into this one.
    ///
    /// # Errors
    /// If the peer left out what must be there, or it is none of what it may be.
    fn decode(wire: Self::Wire) -> Result<Self, ProtocolError>;

    fn encode(self) -> Self::Wire;

    /// Turns a list of the generated type into one of this type.
    ///
    /// # Errors
    /// If one of them is refused.
    fn decode_list(list: Vec<Self::Wire>) -> Result<Vec<Self>, ProtocolError> {
        list.into_iter().map(Self::decode).collect()
    }

    fn encode_list(list: Vec<Self>) -> Vec<Self::Wire> {
        list.into_iter().map(Self::encode).collect()
    }
}

/// Implements the edge for types that are the same on both sides of it.
macro_rules! as_they_are {
    ($($type:ty),* $(,)?) => {$(
        impl Edge for $type {
            type Wire = Self;

            fn decode(wire: Self) -> Result<Self, ProtocolError> {
                Ok(wire)
            }

            fn encode(self) -> Self {
                self
            }

            fn decode_list(list: Vec<Self>) -> Result<Vec<Self>, ProtocolError> {
                Ok(list)
            }

            fn encode_list(list: Vec<Self>) -> Vec<Self> {
                list
            }
        }
    )*};
}

/// Implements the edge for ids, which are numbers on the wire.
macro_rules! ids {
    ($($id:ident),* $(,)?) => {$(
        impl Edge for $id {
            type Wire = u32;

            fn decode(number: u32) -> Result<Self, ProtocolError> {
                Ok(Self(number))
            }

            fn encode(self) -> u32 {
                self.0
            }
        }
    )*};
}

/// Declares a struct that has the name and the fields of a generated one. Words behind the type of
/// a field say what is wrong where the peer's value does not fit it.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* pub $field:ident: $type:ty $(=> $refusal:literal)?),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl Edge for $name {
            type Wire = wire::$name;

            fn decode(wire: wire::$name) -> Result<Self, ProtocolError> {
                // Without `..`: a field that the protocol gets cannot be forgotten here.
                let wire::$name { $($field),* } = wire;
                Ok(Self {
                    $($field: Edge::decode($field)
                        $(.map_err(|_| ProtocolError::new($refusal)))??,)*
                })
            }

            fn encode(self) -> wire::$name {
                let Self { $($field),* } = self;
                wire::$name { $($field: Edge::encode($field),)* }
            }
        }

        impl Edge for Option<$name> {
            type Wire = Option<wire::$name>;

            fn decode(wire: Self::Wire) -> Result<Self, ProtocolError> {
                wire.map(Edge::decode).transpose()
            }

            fn encode(self) -> Self::Wire {
                self.map(Edge::encode)
            }
        }
    };
}

/// Declares an enum that has the name, the variants and the numbers of a generated one, and the
/// variant that a number of a later version stands for, and none too. With `refused`, a number of a
/// later version is refused as that field's.
macro_rules! enumeration {
    (
        $(#[$meta:meta])*
        pub enum $name:ident, else $otherwise:ident {
            $($variants:tt)*
        }
    ) => {
        enumeration! { @
            $(#[$meta])* $name, $otherwise, |_| Ok($name::$otherwise), $($variants)*
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident, first $otherwise:ident, refused as $field:literal {
            $($variants:tt)*
        }
    ) => {
        enumeration! { @
            $(#[$meta])* $name, $otherwise, |number: i32| {
                let what = alloc::format!("{} {number}, of a later version", $field);
                Err(ProtocolError::new(what))
            }, $($variants)*
        }
    };
    (
        @ $(#[$meta:meta])*
        $name:ident, $otherwise:ident, $unknown:expr,
        $($(#[$of_variant:meta])* $variant:ident),* $(,)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum $name {
            $($(#[$of_variant])* $variant = wire::$name::$variant as i32,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$otherwise
            }
        }

        impl Edge for $name {
            type Wire = i32;

            fn decode(number: i32) -> Result<Self, ProtocolError> {
                match wire::$name::try_from(number) {
                    $(Ok(wire::$name::$variant) => Ok(Self::$variant),)*
                    Err(_) => ($unknown)(number),
                }
            }

            fn encode(self) -> i32 {
                self as i32
            }
        }
    };
}

/// Declares the enum of all kinds of messages.
macro_rules! kinds {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$of_kind:meta])* $kind:ident($type:ty)),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($(#[$of_kind])* $kind($type),)*
        }

        impl Edge for $name {
            type Wire = wire::control::Kind;

            fn decode(wire: wire::control::Kind) -> Result<Self, ProtocolError> {
                Ok(match wire {
                    $(wire::control::Kind::$kind(message) => Self::$kind(Edge::decode(message)?),)*
                })
            }

            fn encode(self) -> wire::control::Kind {
                match self {
                    $(Self::$kind(message) => wire::control::Kind::$kind(message.encode()),)*
                }
            }
        }
    };
}

pub(super) use {enumeration, kinds, message};

/// Bytes that nobody but the peer may see: they are not printed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Edge for Secret {
    type Wire = Vec<u8>;

    fn decode(bytes: Vec<u8>) -> Result<Self, ProtocolError> {
        Edge::decode(bytes).map(Self)
    }

    fn encode(self) -> Vec<u8> {
        self.0.encode()
    }
}

impl Edge for Option<Secret> {
    type Wire = Vec<u8>;

    fn decode(bytes: Vec<u8>) -> Result<Self, ProtocolError> {
        Ok(<Option<[u8; 16]>>::decode(bytes)?.map(Secret))
    }

    fn encode(self) -> Vec<u8> {
        self.map(|secret| secret.0).encode()
    }
}

/// Keys of a session's data streams, as a server tells them: they are not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct DataKeys(pub [u8; DATA_KEYS_BYTES]);

impl core::fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DataKeys(..)")
    }
}

impl Edge for Option<DataKeys> {
    type Wire = Vec<u8>;

    fn decode(bytes: Vec<u8>) -> Result<Self, ProtocolError> {
        Ok(<Option<[u8; DATA_KEYS_BYTES]>>::decode(bytes)?.map(DataKeys))
    }

    fn encode(self) -> Vec<u8> {
        self.map(|keys| keys.0).encode()
    }
}

as_they_are!(bool, u8, u32, u64, i64, String);

ids!(FileId, StreamId, SpanIndex);

impl<T: Edge> Edge for Vec<T> {
    type Wire = Vec<T::Wire>;

    fn decode(wire: Self::Wire) -> Result<Self, ProtocolError> {
        T::decode_list(wire)
    }

    fn encode(self) -> Self::Wire {
        T::encode_list(self)
    }
}

impl Edge for u16 {
    type Wire = u32;

    fn decode(number: u32) -> Result<Self, ProtocolError> {
        Self::try_from(number).map_err(|_| ProtocolError::new("a number beyond 65535"))
    }

    fn encode(self) -> u32 {
        self.into()
    }
}

impl<const LEN: usize> Edge for [u8; LEN] {
    type Wire = Vec<u8>;

    fn decode(bytes: Vec<u8>) -> Result<Self, ProtocolError> {
        let refused = |bytes: Vec<u8>| format!("{} bytes where {LEN} are due", bytes.len());
        bytes.try_into().map_err(|bytes| ProtocolError::new(refused(bytes)))
    }

    fn encode(self) -> Vec<u8> {
        self.to_vec()
    }
}

/// Bytes of one length, or none at all.
impl<const LEN: usize> Edge for Option<[u8; LEN]> {
    type Wire = Vec<u8>;

    fn decode(bytes: Vec<u8>) -> Result<Self, ProtocolError> {
        if bytes.is_empty() { Ok(None) } else { Edge::decode(bytes).map(Some) }
    }

    fn encode(self) -> Vec<u8> {
        self.map_or(Vec::new(), Edge::encode)
    }
}

/// A size that bounds which files are meant, where there is one.
impl Edge for Option<u64> {
    type Wire = Option<wire::Bound>;

    fn decode(wire: Self::Wire) -> Result<Self, ProtocolError> {
        Ok(wire.map(|bound| bound.bytes))
    }

    fn encode(self) -> Self::Wire {
        self.map(|bytes| wire::Bound { bytes })
    }
}

/// A moment that bounds which files are meant, in seconds since 1970, where there is one.
impl Edge for Option<i64> {
    type Wire = Option<wire::Moment>;

    fn decode(wire: Self::Wire) -> Result<Self, ProtocolError> {
        Ok(wire.map(|moment| moment.seconds))
    }

    fn encode(self) -> Self::Wire {
        self.map(|seconds| wire::Moment { seconds })
    }
}
