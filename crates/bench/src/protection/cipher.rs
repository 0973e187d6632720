//! The bare cipher: AES-128-GCM on records of TLS in a core's cache, by one thread.

use anyhow::Result;
use haul_datapath::tls::{ContentType, Opener, RECORD_BYTES, Sealer};
use haul_sys::ktls::Cipher;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Time of each direction.
const TIME: Duration = Duration::from_millis(400);
/// Records that are sealed one behind the other, as the engine `tls` does.
const RECORDS: usize = 16;
/// Bytes of content of a full record.
const CONTENT_BYTES: u64 = 1 << 14;

/// Rates of the cipher by one thread, in 10^9 bytes of content a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CipherRates {
    pub seal_gb_per_s: f64,
    pub open_gb_per_s: f64,
}

/// Measures both directions.
///
/// # Errors
/// If the cipher fails, or the user wants to stop.
pub fn rates(go_on: impl Fn() -> Result<()>) -> Result<CipherRates> {
    let (key, iv) = ([7; 16], [3; 12]);
    let mut sealer = Sealer::new(Cipher::Aes128Gcm, &key, iv, 0)?;
    let mut buffer = vec![0x5a; RECORDS * RECORD_BYTES];
    go_on()?;
    let begun = Instant::now();
    let mut sealed = 0_u64;
    while begun.elapsed() < TIME {
        for record in buffer.chunks_exact_mut(RECORD_BYTES) {
            sealer.seal(record, ContentType::ApplicationData)?;
        }
        sealed += RECORDS as u64;
    }
    let seal_gb_per_s = gb_per_s(sealed, begun.elapsed());
    // The same records are opened again and again: each as the number that it was sealed as.
    let mut opened = 0_u64;
    let mut spent = Duration::ZERO;
    while spent < TIME {
        go_on()?;
        let mut sealer = Sealer::new(Cipher::Aes128Gcm, &key, iv, 0)?;
        for record in buffer.chunks_exact_mut(RECORD_BYTES) {
            sealer.seal(record, ContentType::ApplicationData)?;
        }
        let mut opener = Opener::new(Cipher::Aes128Gcm, &key, iv, 0)?;
        let begun = Instant::now();
        for record in buffer.chunks_exact_mut(RECORD_BYTES) {
            opener.open(record)?;
        }
        spent += begun.elapsed();
        opened += RECORDS as u64;
    }
    Ok(CipherRates { seal_gb_per_s, open_gb_per_s: gb_per_s(opened, spent) })
}

fn gb_per_s(records: u64, time: Duration) -> f64 {
    (records * CONTENT_BYTES) as f64 / 1e9 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_content_and_a_wish_to_stop_ends_them() {
        assert!((gb_per_s(61_036, Duration::from_secs(1)) - 1.0).abs() < 1e-4);
        assert!(rates(|| anyhow::bail!("stop")).is_err());
    }
}
