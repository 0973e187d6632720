//! Scope of the mutants: the crates and files from which a wrong byte could come.

/// A package whose code is mutated. The tests of that package alone decide: its unit tests and its
/// `tests/`, which take seconds. The suite of the binary takes minutes for each mutant.
pub struct Part {
    pub package: &'static str,
    /// Files of the package, as globs of cargo-mutants.
    pub files: &'static [&'static str],
}

pub const SCOPE: [Part; 4] = [
    Part { package: "haul-protocol", files: &["crates/protocol/src/**/*.rs"] },
    Part {
        package: "haul-transfer",
        files: &[
            "crates/transfer/src/storage/**/*.rs",
            "crates/transfer/src/session/**/*.rs",
            "crates/transfer/src/storage.rs",
            "crates/transfer/src/session.rs",
        ],
    },
    Part { package: "haul-datapath", files: &["crates/datapath/src/**/*.rs"] },
    Part {
        package: "haul-media",
        files: &["crates/media/src/admission.rs", "crates/media/src/admission/**/*.rs"],
    },
];

/// Files that a program wrote: prost's own tests hold what it generates.
pub const EXCLUDED_FILES: [&str; 1] = ["crates/protocol/src/generated/**"];

/// Mutants, by their names, that are no question of right bytes: text for a person or a debugger.
pub const EXCLUDED_NAMES: [&str; 1] = [r"<impl ([a-z_]+::)*(Debug|Display) for "];
