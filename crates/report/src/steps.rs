//! Steps of a long measurement, told to whoever shows them.

/// A line about steps, which goes away when it is dropped.
pub trait ShowSteps {
    /// Begins the next step, named by `what`.
    fn begin(&self, what: &str);

    /// Shows what happens within a step.
    fn show(&self, what: &str);
}

/// The steps of one measurement.
pub type Steps = Box<dyn ShowSteps>;

/// Function that begins a line about this many steps.
pub type BeginSteps = fn(count: usize) -> Steps;

/// Steps that nobody looks at.
#[must_use]
pub fn unseen(_: usize) -> Steps {
    struct Unseen;
    impl ShowSteps for Unseen {
        fn begin(&self, _: &str) {}
        fn show(&self, _: &str) {}
    }
    Box::new(Unseen)
}
