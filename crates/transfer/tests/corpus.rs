//! Replay of the corpora of this crate's fuzz targets with stable Rust, in the normal tests.

#[path = "../../../fuzz/src/transfer_bodies.rs"]
mod bodies;

use std::{fs, path::PathBuf};

fn replay(target: &str, body: fn(&[u8])) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
    let inputs: Vec<Vec<u8>> =
        entries.map(|entry| fs::read(entry.expect("an entry").path()).expect("a file")).collect();
    assert!(!inputs.is_empty(), "{} holds no inputs", root.display());
    inputs.iter().for_each(|input| body(input));
    body(&[]);
}

#[test]
fn tokens() {
    replay("token", bodies::token);
}

#[test]
fn urls() {
    replay("url", bodies::url);
}

#[test]
fn sizes() {
    replay("size", bodies::size);
}

#[test]
fn lines_of_manifests() {
    replay("manifest_line", bodies::manifest_line);
}

#[test]
fn datagrams_of_probes() {
    replay("datagram", bodies::datagram);
}

#[test]
fn journals() {
    replay("journal", bodies::journal);
}

#[test]
fn the_whole_journal_of_the_corpus_is_believed() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/journal/good");
    let bytes = fs::read(root).expect("the corpus has it");
    let told = haul_transfer::internals::journal::decode(&bytes[..], &bodies::identity());
    assert_eq!(told.expect("a journal of this transfer").durable.count(), 65);
}

#[test]
fn lines_of_plans() {
    replay("plan_line", bodies::plan_line);
}

#[test]
fn lines_of_the_reports_of_runs() {
    replay("report_line", bodies::report_line);
}

#[test]
fn registers_of_ranges() {
    replay("register", bodies::register);
}

#[test]
fn the_whole_register_of_the_corpus_is_believed() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/register/good");
    let bytes = fs::read(root).expect("the corpus has it");
    let register =
        haul_transfer::internals::register::Register::decode(&bytes).expect("a register");
    assert!(register.is_complete(Some((9, 8))) && register.begun() == [0, 4 << 20]);
}
