//! Spread of several measurements: their middle, and how far they lie apart.

use serde::Serialize;

/// The middle of some values, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Spread {
    /// The spread of the values, `None` of none. Of an even number, the median is the mean of the
    /// two in the middle.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (lowest, highest) = (*values.first()?, *values.last()?);
        let (below, above) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(below, above), lowest, highest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_the_ends() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        let odd = Spread { median: 2.0, lowest: 1.0, highest: 9.0 };
        assert_eq!(spread(&[9.0, 1.0, 2.0]), Some(odd));
        let even = Spread { median: 3.0, lowest: 1.0, highest: 9.0 };
        assert_eq!(spread(&[9.0, 4.0, 1.0, 2.0]), Some(even));
    }
}
