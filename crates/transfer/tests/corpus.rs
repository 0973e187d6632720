//! Replay of the corpora of this crate's fuzz targets with stable Rust, in the normal tests.

#[path = "../../../fuzz/src/transfer_bodies.rs"]
mod bodies;

use haul_transfer::{ShardState, internals::plan_lines};
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
fn reports_of_runs() {
    replay("report", bodies::report);
}

/// Random numbers of a seed (xorshift64, Marsaglia 2003).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }
}

/// Damages a report as disks, other programs and those who mean harm do.
fn damaged(chance: &mut Chance, whole: &[u8], other: &[u8]) -> Vec<u8> {
    const NUMBERS: [&str; 8] =
        ["1e999", "-1e308", "18446744073709551615", "-1", "1e308", "0.1", "null", "4294967296"];
    let mut report = whole.to_vec();
    for _ in 0..=chance.below(3) {
        let (at, len) = (chance.below(report.len() + 1), report.len());
        match chance.below(8) {
            0 => report.truncate(at),
            1 => report.insert(at, chance.below(256) as u8),
            2 if at < len => report[at] ^= 1 << chance.below(8),
            3 => report.splice(at..at, vec![b'x'; 300_000]).for_each(drop),
            4 => report.splice(at.., other[chance.below(other.len())..].to_vec()).for_each(drop),
            5 => {
                let mut lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
                let (one, two) = (chance.below(lines.len()), chance.below(lines.len()));
                lines.swap(one, two);
                report = lines.concat();
            }
            _ => {
                let digits = |byte: &u8| byte.is_ascii_digit();
                let Some(begin) = report.iter().skip(at).position(digits) else { continue };
                let begin = begin + at;
                let count = report[begin..].iter().take_while(|byte| digits(byte)).count();
                let number = NUMBERS[chance.below(NUMBERS.len())].bytes();
                report.splice(begin..begin + count, number).for_each(drop);
            }
        }
    }
    report
}

#[test]
fn damaged_reports_of_runs_are_named_in_words_or_are_runs() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/report");
    let wholes = ["done", "failed"].map(|name| fs::read(root.join(name)).expect("a report"));
    for seed in 1..4000_u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let whole = chance.below(2);
        let mut report = damaged(&mut chance, &wholes[whole], &wholes[1 - whole]);
        if chance.below(4) == 0 {
            report.push(255);
            report.extend(damaged(&mut chance, &wholes[1 - whole], &wholes[whole]));
        }
        bodies::report(&report);
    }
    let done = plan_lines::add_up(&[&wholes[0]]);
    assert!(done.shards[0].state == ShardState::Done && done.faults.is_empty(), "{done:?}");
}

#[test]
fn registers_of_ranges() {
    replay("register", bodies::register);
}

#[test]
fn the_whole_register_of_the_corpus_is_believed() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/register/good");
    let bytes = fs::read(root).expect("the corpus has it");
    use haul_transfer::internals::register::{Counting, Register};
    let register = Register::decode(&bytes).expect("a register");
    assert!(register.is_complete(Counting::of((9, 8))) && register.begun() == [0, 4 << 20]);
}
