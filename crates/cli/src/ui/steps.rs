//! Steps of a bench as a line on a terminal; no output elsewhere.

use haul_report::steps::ShowSteps;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on standard error that goes away at the end.
#[derive(Debug)]
pub struct Steps(ProgressBar);

impl Steps {
    #[must_use]
    pub fn new(count: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{elapsed_precise}  {pos} of {len}  {msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// Begins a line for a measurement that does not know of terminals.
    #[must_use]
    pub fn boxed(count: usize) -> haul_report::steps::Steps {
        Box::new(Self::new(count))
    }
}

impl ShowSteps for Steps {
    fn begin(&self, what: &str) {
        self.0.inc(1);
        self.show(what);
    }

    fn show(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
