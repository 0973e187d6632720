//! Scope of the mutants: the crates and files from which a wrong byte could come.

/// A package whose code is mutated. The tests of that package alone decide: its unit tests and its
/// `tests/`, which take seconds. The suite of the binary takes minutes for each mutant.
pub struct Part {
    pub package: &'static str,
    /// Files of the package, as globs of cargo-mutants.
    pub files: &'static [&'static str],
    /// The feature with which its code for RDMA is built, where libfabric is installed.
    pub fabric: Option<&'static str>,
}

pub const SCOPE: [Part; 5] = [
    Part { package: "haul-protocol", files: &["crates/protocol/src/**/*.rs"], fabric: None },
    Part {
        package: "haul-transfer",
        files: &[
            "crates/transfer/src/storage/**/*.rs",
            "crates/transfer/src/session/**/*.rs",
            "crates/transfer/src/storage.rs",
            "crates/transfer/src/session.rs",
        ],
        fabric: Some("fabric"),
    },
    Part {
        package: "haul-datapath",
        files: &["crates/datapath/src/**/*.rs"],
        fabric: Some("fabric"),
    },
    // Windows on files and what is sent out of them, and the room that a peer has.
    Part {
        package: "haul-fabric",
        files: &[
            "crates/fabric/src/endpoint.rs",
            "crates/fabric/src/exchange.rs",
            "crates/fabric/src/opening.rs",
            "crates/fabric/src/receiving.rs",
            "crates/fabric/src/sending.rs",
        ],
        fabric: Some("libfabric"),
    },
    Part {
        package: "haul-media",
        files: &["crates/media/src/admission.rs", "crates/media/src/admission/**/*.rs"],
        fabric: None,
    },
];

/// Files of which no test runs a line where libfabric is missing: there they have no mutants.
pub const FABRIC_FILES: [&str; 3] = [
    "crates/fabric/",
    "crates/datapath/src/engines/fabric.rs",
    "crates/transfer/src/session/rdma.rs",
];

/// Files that a program wrote: prost's own tests hold what it generates.
pub const EXCLUDED_FILES: [&str; 1] = ["crates/protocol/src/generated/**"];

/// Mutants, by their names, that are no question of right bytes: text for a person or a debugger.
pub const EXCLUDED_NAMES: [&str; 1] = [r"<impl ([a-z_]+::)*(Debug|Display) for "];
