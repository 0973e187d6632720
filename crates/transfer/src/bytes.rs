//! Random bytes, and bytes as text.

use aws_lc_rs::rand;

/// Random bytes of the system's generator.
///
/// # Errors
/// If the system has none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], std::io::Error> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| std::io::Error::other("no random bytes"))?;
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}
