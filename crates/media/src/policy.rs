//! Policy for streams: their rates, priorities and places.
//!
//! It may change while the server runs.

use globset::{GlobBuilder, GlobMatcher};

use crate::{
    admission::{Priority, Terms},
    pace::Rate,
};

/// Rate at which a film or a sound is sent where its request names none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RateChoice {
    /// No pace: as fast as the client takes it.
    #[default]
    Unpaced,
    Fixed(Rate),
    /// Rate of the film's container, times the factor, as no film needs its average all the time.
    Container {
        factor: f64,
    },
}

/// Rate and priority of the paths that fit a pattern.
#[derive(Clone, Debug)]
pub struct Rule {
    paths: GlobMatcher,
    pub rate: Option<RateChoice>,
    pub priority: Option<Priority>,
}

impl Rule {
    /// Makes a rule; `pattern` is of whole paths, such as `/lectures/**` or `*.ts` below any
    /// directory.
    ///
    /// # Errors
    /// If the pattern makes no sense.
    pub fn new(
        pattern: &str,
        rate: Option<RateChoice>,
        priority: Option<Priority>,
    ) -> Result<Self, globset::Error> {
        let anywhere = if pattern.starts_with('/') { "" } else { "**/" };
        let pattern = format!("{anywhere}{pattern}");
        let glob = GlobBuilder::new(&pattern).literal_separator(true).build()?;
        let paths = glob.compile_matcher();
        Ok(Self { paths, rate, priority })
    }
}

#[derive(Clone, Debug)]
pub struct Policy {
    pub rate: RateChoice,
    /// Rules by path; for rate and priority each, the first that fits and says something counts.
    pub rules: Vec<Rule>,
    /// A request may name its rate and a lower priority.
    pub clients_choose: bool,
    pub terms: Terms,
    /// Servers to which refused viewers are sent, in turn: without a slash at their end.
    pub elsewhere: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rate: RateChoice::default(),
            rules: Vec::new(),
            clients_choose: true,
            terms: Terms::default(),
            elsewhere: Vec::new(),
        }
    }
}

impl Policy {
    /// The rate and priority of a file, by its path.
    #[must_use]
    pub fn of_path(&self, path: &[u8]) -> (RateChoice, Priority) {
        let path = String::from_utf8_lossy(path);
        let fits = |rule: &&Rule| rule.paths.is_match(&*path);
        let rate = self.rules.iter().filter(fits).find_map(|rule| rule.rate);
        let priority = self.rules.iter().filter(fits).find_map(|rule| rule.priority);
        (rate.unwrap_or(self.rate), priority.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_says_something_counts() {
        let slow = RateChoice::Fixed(Rate { bits_per_s: 1_000_000 });
        let policy = Policy {
            rules: vec![
                Rule::new("/lectures/**", None, Some(Priority::High)).unwrap(),
                Rule::new("*.ts", Some(RateChoice::Unpaced), None).unwrap(),
                Rule::new("/lectures/old/*.mp4", Some(slow), Some(Priority::Low)).unwrap(),
            ],
            rate: RateChoice::Container { factor: 1.25 },
            ..Policy::default()
        };
        let own = RateChoice::Container { factor: 1.25 };
        for (path, rate, priority) in [
            ("/film.mp4", own, Priority::Normal),
            ("/lectures/a.mp4", own, Priority::High),
            ("/lectures/old/a.mp4", slow, Priority::High),
            ("/a/b/c.ts", RateChoice::Unpaced, Priority::Normal),
            ("/c.ts", RateChoice::Unpaced, Priority::Normal),
        ] {
            assert_eq!(policy.of_path(path.as_bytes()), (rate, priority), "{path}");
        }
        assert!(Rule::new("/a[", None, None).is_err());
    }
}
