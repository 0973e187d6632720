//! Tokens, whose bearers are let in and know that the server is the right one.
//!
//! 33 bytes in lower-case base32 (RFC 4648, without padding): the format's number, a secret of 128
//! bits, and the first 128 bits of the SHA-256 of the server's certificate.

use crate::bytes::random_bytes;
use aws_lc_rs::{constant_time, digest};
use data_encoding::{Encoding, Specification};
use std::{fmt, str::FromStr, sync::LazyLock};

const FORMAT: u8 = 1;
const TOKEN_BYTES: usize = 33;

static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.encoding().expect("32 different symbols")
});

/// Variable of the environment that holds a token.
pub const TOKEN_VARIABLE: &str = "HAUL_TOKEN";

/// A token in the clear. It prints itself redacted.
#[derive(Clone)]
pub struct Token {
    /// The part that only its bearers know.
    pub secret: [u8; 16],
    /// The first 128 bits of the SHA-256 of the server's certificate.
    pub fingerprint: [u8; 16],
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is damaged: a whole one has 53 letters and digits, as `haul serve` printed it")]
pub struct TokenError;

impl Token {
    /// A new secret for the server with this fingerprint.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn generate(fingerprint: [u8; 16]) -> Result<Self, std::io::Error> {
        Ok(Self { secret: random_bytes()?, fingerprint })
    }

    /// The text that lets its bearer in.
    #[must_use]
    pub fn reveal(&self) -> String {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[0] = FORMAT;
        bytes[1..17].copy_from_slice(&self.secret);
        bytes[17..].copy_from_slice(&self.fingerprint);
        BASE32.encode(&bytes)
    }

    /// Hash of the secret (SHA-256), by which a server knows it without keeping it.
    #[must_use]
    pub(crate) fn secret_hash(secret: &[u8]) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        hash
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let bytes = BASE32.decode(text.trim().as_bytes()).map_err(|_| TokenError)?;
        if bytes.len() != TOKEN_BYTES || bytes[0] != FORMAT {
            return Err(TokenError);
        }
        let mut token = Self { secret: [0; 16], fingerprint: [0; 16] };
        token.secret.copy_from_slice(&bytes[1..17]);
        token.fingerprint.copy_from_slice(&bytes[17..]);
        Ok(token)
    }
}

/// Compares in a time that does not tell where they differ.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        let is_same = [(&self.secret, &other.secret), (&self.fingerprint, &other.fingerprint)]
            .map(|(one, other)| same_secret(one, other));
        is_same == [true; 2]
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}

/// The first 128 bits of a certificate's SHA-256.
#[must_use]
pub fn fingerprint_of(certificate_der: &[u8]) -> [u8; 16] {
    let hash = digest::digest(&digest::SHA256, certificate_der);
    hash.as_ref()[..16].try_into().expect("SHA-256 has 32 bytes")
}

/// Whether two secrets are equal, in a time that does not tell where they differ.
#[must_use]
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    #[cfg(test)]
    COMPARISONS.set(COMPARISONS.get() + 1);
    constant_time::verify_slices_are_equal(one, other).is_ok()
}

#[cfg(test)]
thread_local! {
    /// Secrets that this thread has compared.
    pub static COMPARISONS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_letters_and_digits_that_no_shell_touches() {
        let token = Token::generate([0xff; 16]).expect("random bytes");
        let text = token.reveal();
        assert_eq!(text.len(), 53);
        assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
        assert_eq!(text.parse(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains(&text));
    }

    #[test]
    fn a_shortened_token_is_refused() {
        let text = Token::generate([1; 16]).expect("random bytes").reveal();
        for bad in [&text[..52], "", "zzz", &text.to_uppercase()] {
            assert_eq!(bad.parse::<Token>(), Err(TokenError));
        }
    }
}
