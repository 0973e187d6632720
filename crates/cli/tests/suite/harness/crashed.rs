//! Hidden files of transfers, as a crash of their host would have left them.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
};

/// Size of the spans that are spoilt.
pub const SPAN: u64 = 64 << 10;

/// Bytes of a register's header, and of each record behind it.
const REGISTER_HEADER: usize = 96;
const REGISTER_RECORD: usize = 52;

/// CRC-32C of bytes, computed bit by bit (RFC 3720, 12.1).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |mut crc: u32, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
        crc
    })
}

/// The number of this host's start.
fn boot() -> [u8; 16] {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    u128::from_str_radix(&boot.trim().replace('-', ""), 16).unwrap().to_be_bytes()
}

/// Changes the header of a journal, as crates/transfer/src/storage/journal.rs writes it.
pub fn edit_journal(journal: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(journal).unwrap();
    change(&mut bytes[..124]);
    let crc = crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    fs::write(journal, bytes).unwrap();
}

/// Makes a journal one of an earlier start of this host.
pub fn journal_of_an_earlier_boot(journal: &Path) {
    edit_journal(journal, |header| {
        assert_eq!(header[108..124], boot(), "the journal has this boot's id");
        header[108] ^= 1;
    });
}

/// Makes all records of a register (SPEC 7.7) those of an earlier start of this host.
pub fn register_of_an_earlier_boot(register: &Path) {
    let mut bytes = fs::read(register).unwrap();
    let (header, records) = bytes.split_at_mut(REGISTER_HEADER);
    let (records, torn) = records.as_chunks_mut::<REGISTER_RECORD>();
    assert!(!records.is_empty() && torn.is_empty());
    let (first, _) = boot().split_first_chunk::<8>().map(|(it, rest)| (*it, rest.len())).unwrap();
    for record in records {
        assert_eq!(record[32..40], u64::from_be_bytes(first).to_le_bytes(), "this boot's id");
        record[32] ^= 1;
        record[40..48].fill(0);
        let crc = crc32c(&[&record[..48], &header[72..80]].concat());
        record[48..].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(register, bytes).unwrap();
}

/// Spoils spans of a temporary, as a disk that kept the journal, and of several spans something
/// else.
pub fn spoil(part: &Path, spans: &[u64]) {
    let file = OpenOptions::new().write(true).open(part).unwrap();
    for span in spans {
        file.write_all_at(&[0; 4096], span * SPAN).unwrap();
    }
    file.sync_all().unwrap();
}
