//! Finds libfabric's headers and compiles the functions that they define as static inline ones. The
//! library itself is loaded by the program (library.rs).

fn main() {
    println!("cargo::rerun-if-changed=src/generated/inlines.c");
    println!("cargo::rerun-if-changed=src/generated/libfabric.h");
    #[cfg(feature = "libfabric")]
    libfabric();
}

#[cfg(feature = "libfabric")]
fn libfabric() {
    let found =
        pkg_config::Config::new().atleast_version("1.17").cargo_metadata(false).probe("libfabric");
    let library = found.unwrap_or_else(|error| {
        panic!(
            "the feature `fabric` needs libfabric 1.17 or newer (Debian: libfabric-dev): {error}"
        )
    });
    let mut build = cc::Build::new();
    build.file("src/generated/inlines.c").includes(&library.include_paths).warnings(false);
    build.compile("haul_fabric_inlines");
}
