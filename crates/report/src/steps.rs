//! What a long measurement is doing just now, told to whoever shows it.

/// A line about steps, which goes away when it is dropped.
pub trait ShowSteps {
    /// The next step begins.
    fn begin(&self, what: &str);

    /// Something happens within a step.
    fn show(&self, what: &str);
}

/// The steps of one measurement.
pub type Steps = Box<dyn ShowSteps>;

/// Begins a line about so many steps.
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
