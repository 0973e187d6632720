//! Sizes and rates as users write them: `10G`, `64KiB`, `1.5T`.

/// A text that is no size, told with what one looks like.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size; write it like 100M, 10G or 64KiB")]
pub struct SizeError(String);

/// Reads a size in bytes. `K`, `M`, `G`, `T` and `P`, alone or with `B` or `iB` behind, are powers
/// of 1024, as dd and iperf take them; `kB`, `MB`... are the same.
///
/// # Errors
/// Says what a size looks like.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let wrong = || SizeError(text.to_owned());
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().trim_end_matches(['b', 'B']).trim_end_matches('i');
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
    if bytes.is_finite() && (0.0..9e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_dd_reads_them() {
        for (text, bytes) in [
            ("0", 0),
            ("10", 10),
            ("1K", 1024),
            ("1.5k", 1536),
            ("2GiB", 2 << 30),
            ("1MB", 1 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "G", "1X", "-1", "1e9", "99999999999T", "."] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
