//! Rates, amounts and times as they stand in sentences.

/// Gigabytes a second, and the gigabits a second that a network would have to carry.
#[must_use]
pub fn rate(bytes_per_s: f64) -> String {
    format!("{} ({})", gb_per_s(bytes_per_s), bits(bytes_per_s))
}

#[must_use]
pub fn gb_per_s(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate < 1e3 => "nothing".to_owned(),
        rate if rate >= 1e8 => format!("{} GB/s", three_digits(rate / 1e9)),
        rate => format!("{} MB/s", three_digits(rate / 1e6)),
    }
}

#[must_use]
pub fn bits(bytes_per_s: f64) -> String {
    match bytes_per_s * 8.0 {
        rate if rate >= 1e9 => format!("{} Gbit/s", three_digits(rate / 1e9)),
        rate => format!("{} Mbit/s", three_digits(rate / 1e6)),
    }
}

/// Bytes in powers of 1024.
#[must_use]
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| count >> shift > 0) {
        Some((unit, shift)) if count.is_multiple_of(1 << shift) => {
            format!("{} {unit}", count >> shift)
        }
        Some((unit, shift)) => {
            format!("{} {unit}", three_digits(count as f64 / 2_f64.powi(*shift as i32)))
        }
        None => format!("{count} bytes"),
    }
}

#[must_use]
pub fn seconds(seconds: f64) -> String {
    match seconds {
        long if long >= 1.0 => format!("{} s", three_digits(long)),
        short => format!("{} ms", three_digits(short * 1e3)),
    }
}

fn three_digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        assert_eq!(rate(1.3754e9), "1.38 GB/s (11.0 Gbit/s)");
        assert_eq!(gb_per_s(0.0), "nothing");
        assert_eq!(rate(2.5e7), "25.0 MB/s (200 Mbit/s)");
        assert_eq!(
            [0, 4096, 1 << 20, 3 << 29].map(bytes),
            ["0 bytes", "4 KiB", "1 MiB", "1.50 GiB"]
        );
        assert_eq!([0.0123, 4.0, 120.0].map(seconds), ["12.3 ms", "4.00 s", "120 s"]);
    }
}
