//! Frames between both ends of ssh: a magic of 16 bytes, a length, JSON.
//!
//! Whatever login scripts print before the magic is skipped, up to a limit, and kept for the words
//! of a failure.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    fmt,
    io::{self, ErrorKind, Read, Write},
};

/// Begin of a frame: bytes that no text has, as the first is none of UTF-8.
const MAGIC: &[u8; 16] = b"\xffhaul over ssh\n\0";
/// First byte of a frame.
pub const FIRST: u8 = MAGIC[0];
/// Byte by which the near end says, behind its request, that it is through.
pub const THROUGH: u8 = b'.';
/// Most bytes of JSON: 64 paths of a request, percent-encoded, take less.
const JSON_BYTES_MAX: u32 = 256 << 10;
/// Most bytes that may come before the magic.
pub const NOISE_BYTES_MAX: usize = 64 << 10;

/// The reason why no frame came.
#[derive(Debug)]
pub enum FrameError {
    Ended,
    Noise,
    Damaged(String),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("nothing of haul's"),
            Self::Noise => f.write_str("more than 64 KiB, and nothing of haul's among them"),
            Self::Damaged(why) => write!(f, "an answer that cannot be read: {why}"),
        }
    }
}

/// Writes a frame and flushes it.
///
/// # Errors
/// If the writer fails.
pub fn write(to: &mut dyn Write, message: &impl Serialize) -> io::Result<()> {
    // In one call, so that no reader sees half of it.
    to.write_all(&bytes(message)?)?;
    to.flush()
}

/// The bytes of a frame.
///
/// # Errors
/// If the message is too long.
pub fn bytes(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let len = u32::try_from(json.len()).ok().filter(|len| *len <= JSON_BYTES_MAX);
    let len = len.ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
    Ok([&MAGIC[..], &len.to_be_bytes(), &json].concat())
}

/// Reads a frame. `noise` gets what came before it, at most `noise_bytes_max` bytes.
///
/// # Errors
/// If none came, or one that is not as it should be.
pub fn read<M: DeserializeOwned>(
    from: &mut dyn Read,
    noise_bytes_max: usize,
    noise: &mut Vec<u8>,
) -> Result<M, FrameError> {
    let mut byte = [0];
    while !noise.ends_with(MAGIC) {
        if noise.len() >= noise_bytes_max + MAGIC.len() {
            return Err(FrameError::Noise);
        }
        match from.read(&mut byte) {
            Ok(1) => noise.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return Err(FrameError::Ended),
        }
    }
    noise.truncate(noise.len() - MAGIC.len());
    let damaged = |error: &dyn fmt::Display| FrameError::Damaged(error.to_string());
    let mut len = [0; 4];
    from.read_exact(&mut len).map_err(|error| damaged(&error))?;
    let len = u32::from_be_bytes(len);
    if len > JSON_BYTES_MAX {
        return Err(damaged(&format!("it says that it has {len} bytes")));
    }
    let mut json = vec![0; len as usize];
    from.read_exact(&mut json).map_err(|error| damaged(&error))?;
    serde_json::from_slice(&json).map_err(|error| damaged(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(text: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, &text).unwrap();
        bytes
    }

    fn read_all(bytes: &[u8]) -> (Result<String, FrameError>, Vec<u8>) {
        let mut noise = Vec::new();
        (read(&mut &bytes[..], NOISE_BYTES_MAX, &mut noise), noise)
    }

    #[test]
    fn what_login_scripts_print_is_skipped_up_to_a_limit() {
        let most = vec![0xff; NOISE_BYTES_MAX];
        for before in [&b""[..], b"Welcome!\r\n\xffhaul over", &MAGIC[..15], &most] {
            let (text, noise) = read_all(&[before, &framed("x")].concat());
            assert_eq!((text.unwrap().as_str(), &noise[..]), ("x", before));
        }
        let (text, _) = read_all(&[&most[..], b"y", &framed("x")].concat());
        assert!(matches!(text, Err(FrameError::Noise)), "{text:?}");
    }

    #[test]
    fn half_a_frame_and_one_that_is_too_long_are_errors() {
        let whole = framed("abc");
        for len in 0..whole.len() {
            assert!(read_all(&whole[..len]).0.is_err(), "{len}");
        }
        let long = [&MAGIC[..], &(JSON_BYTES_MAX + 1).to_be_bytes()].concat();
        assert!(matches!(read_all(&long).0, Err(FrameError::Damaged(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, text in ".{0,40}") {
            let _ = read_all(&bytes);
            let _ = read_all(&[&MAGIC[..], &bytes].concat());
            let printed: Vec<u8> = bytes.iter().map(|byte| byte & 0x7f).collect();
            let (read, noise) = read_all(&[&printed[..], &framed(&text)].concat());
            prop_assert_eq!((read.unwrap(), noise), (text, printed));
        }
    }
}
