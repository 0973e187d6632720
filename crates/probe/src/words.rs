//! Rates and times as they stand in sentences.

pub use haul_report::units::bytes_in_words as bytes;
use haul_report::units::three_digits;

/// A rate in gigabytes a second, and in the gigabits a second that a network would have to carry.
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

#[must_use]
pub fn seconds(seconds: f64) -> String {
    match seconds {
        long if long >= 1.0 => format!("{} s", three_digits(long)),
        short => format!("{} ms", three_digits(short * 1e3)),
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
        assert_eq!([0.0123, 4.0, 120.0].map(seconds), ["12.3 ms", "4.00 s", "120 s"]);
    }
}
