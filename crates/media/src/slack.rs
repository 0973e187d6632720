//! Slack of a stream: what it has in hand when a period ends, and what that says of the next one.
//!
//! *Slack* is the time between the client's last acknowledgement of what was due and the end of the
//! period; where something was not there, less than nothing: the time that the missing bytes play.

/// Upper bounds of the classes of slack, in milliseconds; the last class has none.
pub const BOUNDS_MS: [i64; CLASSES - 1] =
    [-10_000, -3_000, -1_000, -300, -100, -1, 30, 100, 300, 1_000, 2_000, 3_000, 10_000];
pub const CLASSES: usize = 14;

/// Number of periods in each class of slack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlackHistogram {
    /// Periods by class: the first class has what is at most its bound; each further one what is
    /// above the bound before it and at most its own.
    pub counts: [u64; CLASSES],
    pub sum_ms: i64,
}

impl SlackHistogram {
    pub fn tell(&mut self, slack_ms: i64) {
        self.counts[class(slack_ms)] += 1;
        self.sum_ms = self.sum_ms.saturating_add(slack_ms);
    }

    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
    }

    #[must_use]
    pub fn periods(&self) -> u64 {
        self.counts.iter().sum()
    }
}

fn class(slack_ms: i64) -> usize {
    BOUNDS_MS.iter().position(|bound| slack_ms <= *bound).unwrap_or(CLASSES - 1)
}

/// Weight of the newest period against all before it.
const WEIGHT: f32 = 0.2;
/// Least spread of a buffer's changes, as the clocks of a player and a server differ.
const SPREAD_MIN_S: f32 = 0.01;

/// Memory of a stream, to say how likely its player runs dry.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trend {
    /// Film that the player has in hand, if it began to play with the first byte.
    buffer_s: f32,
    /// Mean of the buffer's changes from period to period, weighted by age.
    mean_change_s: f32,
    variance_s2: f32,
    periods: u32,
}

impl Trend {
    /// Takes in what the player has in hand at the end of a period.
    pub fn tell(&mut self, buffer_s: f32) {
        if self.periods > 0 {
            let change = buffer_s - self.buffer_s;
            let away = change - self.mean_change_s;
            self.mean_change_s += WEIGHT * away;
            // West, "Updating mean and variance estimates", CACM 22(9), 1979, with a fixed weight.
            self.variance_s2 = (1.0 - WEIGHT) * (self.variance_s2 + WEIGHT * away * away);
        }
        self.buffer_s = buffer_s;
        self.periods = self.periods.saturating_add(1);
    }

    #[must_use]
    pub fn buffer_s(&self) -> f32 {
        self.buffer_s
    }

    /// The probability, 0 to 1, that the player is dry after another period: that the buffer and
    /// one more change, normally distributed as the changes so far, come to less than nothing.
    #[must_use]
    pub fn rebuffer_risk(&self) -> f32 {
        let spread = self.variance_s2.sqrt().max(SPREAD_MIN_S);
        normal_tail((self.buffer_s + self.mean_change_s) / spread)
    }
}

/// The probability that a standard normal variable is above `x`; to 1e-4 (the logistic form of
/// Bowling et al., "A logistic approximation to the cumulative normal distribution", JIEM 2(1),
/// 2009).
fn normal_tail(x: f32) -> f32 {
    1.0 / (1.0 + (1.5976 * x + 0.070_566 * x.powi(3)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_in_the_class_of_its_bound() {
        for (slack_ms, at) in
            [(i64::MIN, 0), (-10_000, 0), (-9_999, 1), (-1, 5), (0, 6), (40_000, 13)]
        {
            assert_eq!(class(slack_ms), at, "{slack_ms}");
        }
        let mut all = SlackHistogram::default();
        let mut one = SlackHistogram::default();
        one.tell(3_000);
        one.tell(-5);
        all.add(&one);
        all.add(&one);
        assert_eq!((all.periods(), all.sum_ms), (4, 5_990));
    }

    #[test]
    fn a_steady_stream_is_safe_one_that_falls_behind_is_not() {
        let mut steady = Trend::default();
        let mut falling = Trend::default();
        for period in 0..12_u8 {
            steady.tell(9.0);
            falling.tell(9.0 - 0.75 * f32::from(period));
        }
        assert!(steady.rebuffer_risk() < 1e-6, "{steady:?}");
        assert!(falling.rebuffer_risk() > 0.1, "{falling:?}");
        falling.tell(0.0);
        assert!(falling.rebuffer_risk() > 0.5, "{falling:?}");
    }

    #[test]
    fn the_tail_is_that_of_tables() {
        for (x, tail) in [(0.0, 0.5), (1.0, 0.158_66), (2.0, 0.022_75), (-1.0, 0.841_34)] {
            assert!((normal_tail(x) - tail).abs() < 2e-4, "{x}");
        }
    }
}
