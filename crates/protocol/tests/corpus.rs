//! Replays the corpora of the fuzz targets with stable Rust, in the normal tests.

#[allow(dead_code)]
#[path = "../../../fuzz/src/bodies/mod.rs"]
mod bodies;

use std::{fs, path::PathBuf};

fn replay(target: &str, body: fn(&[u8])) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("a corpus entry").path();
        println!("{}", path.display());
        body(&fs::read(&path).expect("a corpus file"));
        count += 1;
    }
    assert!(count > 0, "{} holds no inputs", root.display());
    // Nothing at all must do no harm either.
    body(&[]);
}

macro_rules! targets {
    ($($target:ident),*) => {$(
        #[test]
        fn $target() {
            replay(stringify!($target), bodies::$target);
        }
    )*};
}

targets!(
    message,
    handshake,
    frame_header,
    pack,
    span_trailer,
    preface,
    name,
    sender,
    receiver,
    range_sender,
    range_receiver
);
