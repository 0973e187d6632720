//! Numbers as people read them: bytes in powers of 1024, bits in powers of 1000.
//!
//! All amounts of bytes that the program and the transfer library show become words here: where the
//! one stands beside the other, as a reason does below a table, they must not differ. So
//! `haul-transfer` needs this crate, which has nothing that a library would not want: it draws no
//! screen and knows no other crate of haul.

/// Free space in words: `20.0 GiB free`, or that it is not known.
#[must_use]
pub fn free(free_bytes: Option<u64>) -> String {
    match free_bytes {
        Some(count) => format!("{} free", bytes(count)),
        None => "an unknown amount free".to_owned(),
    }
}

const BYTE_UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Bytes with three digits, as they stand below each other: `512 B`, `1.50 KiB`, `20.0 GiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = BYTE_UNITS[0];
    for larger in &BYTE_UNITS[1..] {
        // 1023.5 would be shown with four digits.
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{} {unit}", three_digits(value))
}

/// Bytes as they stand in a sentence, with no digits behind a whole number: `0 bytes`, `4 KiB`,
/// `1.50 GiB`.
#[must_use]
pub fn bytes_in_words(count: u64) -> String {
    if count < 1024 {
        return format!("{count} bytes");
    }
    let power = count.ilog2() / 10;
    match BYTE_UNITS.get(power as usize - 1) {
        Some(unit) if count.is_multiple_of(1 << (10 * power)) => {
            format!("{} {unit}", count >> (10 * power))
        }
        _ => bytes(count),
    }
}

/// A part of bytes, with one unit where both have it: `8.75/10.0 GiB`, `512 MiB of 10.0 GiB`.
#[must_use]
pub fn of_bytes(part: u64, all: u64) -> String {
    let (part, all) = (bytes(part), bytes(all));
    match (part.split_once(' '), all.split_once(' ')) {
        (Some((value, unit)), Some((_, of))) if unit == of => format!("{value}/{all}"),
        _ => format!("{part} of {all}"),
    }
}

/// A rate in bits a second: `19.8 Gbit/s`, `950 Mbit/s`, `0 bit/s`.
#[must_use]
pub fn rate(gbit_per_s: f64) -> String {
    for (unit, factor) in [("Tbit/s", 1e-3), ("Gbit/s", 1.0), ("Mbit/s", 1e3), ("kbit/s", 1e6)] {
        let value = gbit_per_s * factor;
        if value >= 0.9995 {
            return format!("{} {unit}", three_digits(value));
        }
    }
    format!("{:.0} bit/s", (gbit_per_s * 1e9).max(0.0))
}

/// A time in words: `0.42 s`, `12.3 s`, `3 min 20 s`, `2 h 05 min`.
#[must_use]
pub fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{} s", three_digits(seconds.max(0.0))),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A share of 0 to 1 as every text of haul says it: `83 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", (share * 100.0).round())
}

/// A time in whole seconds: tenths would only flicker.
#[must_use]
pub fn whole_time(seconds: f64) -> String {
    if seconds < 59.5 { format!("{seconds:.0} s") } else { time(seconds) }
}

/// The time of day of this host, `14:02:11`.
#[must_use]
pub fn clock(ms_since_1970: u64) -> String {
    let at = i64::try_from(ms_since_1970).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string()
}

/// A day and its time of this host, `2026-11-28 14:02:11`.
#[must_use]
pub fn moment(ms_since_1970: u64) -> String {
    let at = i64::try_from(ms_since_1970).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A number of things: `1 file`, `2 files`.
#[must_use]
pub fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// A number with three digits: `9.99`, `12.3`, `512`.
#[must_use]
pub fn three_digits(value: f64) -> String {
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
    fn numbers_have_three_digits_and_the_unit_that_fits() {
        assert_eq!([0, 1023, 1024, 1536].map(bytes), ["0 B", "1023 B", "1.00 KiB", "1.50 KiB"]);
        assert_eq!(bytes((1 << 30) - 1), "1.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(
            [0, 4096, 1 << 20, 3 << 29, 1 << 60].map(bytes_in_words),
            ["0 bytes", "4 KiB", "1 MiB", "1.50 GiB", "1 EiB"]
        );
        assert_eq!(bytes_in_words((1 << 20) - 1), "1.00 MiB");
        assert_eq!(of_bytes(5 << 20, 10 << 20), "5.00/10.0 MiB");
        assert_eq!(of_bytes(5 << 10, 10 << 20), "5.00 KiB of 10.0 MiB");
        assert_eq!(
            [0.0, 1e-9, 0.95, 19.84, 1234.0].map(rate),
            ["0 bit/s", "1 bit/s", "950 Mbit/s", "19.8 Gbit/s", "1.23 Tbit/s"]
        );
        assert_eq!(
            [0.0, 9.999, 59.4, 59.6, 200.0, 7500.0].map(time),
            ["0.00 s", "10.0 s", "59.4 s", "1 min 00 s", "3 min 20 s", "2 h 05 min"]
        );
    }
}
