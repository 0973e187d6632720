//! Arguments of `haul bench files --small`, and their check.

use crate::args::{results::LowResults, values::Period};
use clap::{Args, ValueEnum};
use haul_bench::requests::{BenchSmallFiles, SmallFilesPlace};
use haul_transfer::internals::parse_size;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Files of the tree, and their size in bytes: what the targets are about.
const FILES_DEFAULT: u64 = 20_000;
const FILE_BYTES_DEFAULT: u64 = 16 << 10;
/// Files of `--quick`.
const FILES_QUICK: u64 = 500;
/// Most files of a tree: their source and their target fit on few disks beyond.
const FILES_MAX: u64 = 10_000_000;
/// Rounds of each mover, for a median.
const ROUNDS_DEFAULT: u32 = 5;
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Small files in place of the studies.
#[derive(Clone, Debug, Args)]
pub struct LowSmallFiles {
    /// Many small files instead: haul both ways, tar and rsync where installed, and the bare floor
    #[arg(long, conflicts_with_all = ["size", "cached_size", "only"])]
    pub small: bool,
    /// Number of the small files; without it 20000, with --quick 500
    #[arg(long, value_name = "N", requires = "small")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    pub files: Option<u64>,
    /// Bytes of each small file; without it 16K
    #[arg(long, value_name = "SIZE", requires = "small", value_parser = parse_size)]
    pub file_size: Option<u64>,
    /// File systems of the small files; without it all, in images as root, and --dir's own
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "small")]
    pub file_systems: Vec<LowSmallFilesPlace>,
    /// Write the page of the small files to FILE, and the JSON lines beside it: page.html and
    /// page.json
    #[arg(long, value_name = "FILE.html", requires = "small", conflicts_with = "html")]
    #[arg(value_parser = parse_report)]
    pub report: Option<PathBuf>,
}

/// The name of a page beside which lines of JSON have a name of their own.
fn parse_report(text: &str) -> Result<PathBuf, String> {
    let page = PathBuf::from(text);
    if page == page.with_extension("json") {
        return Err("the JSON lines beside the page have this name; write page.html".to_owned());
    }
    Ok(page)
}

/// A file system that small files are moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LowSmallFilesPlace {
    /// Made in an image file, with a journal
    Ext4,
    /// Made in an image file
    Xfs,
    /// Made in an image file
    Btrfs,
    /// The directory's own
    Own,
}

impl From<LowSmallFilesPlace> for SmallFilesPlace {
    fn from(place: LowSmallFilesPlace) -> Self {
        match place {
            LowSmallFilesPlace::Ext4 => Self::Ext4,
            LowSmallFilesPlace::Xfs => Self::Xfs,
            LowSmallFilesPlace::Btrfs => Self::Btrfs,
            LowSmallFilesPlace::Own => Self::Own,
        }
    }
}

/// Words of `haul bench files` that hold for small files too.
#[derive(Clone, Copy, Debug)]
pub struct LowShared<'low> {
    pub directory: Option<&'low Path>,
    pub rounds: Option<u32>,
    pub budget: Option<Period>,
    pub quick: bool,
}

impl LowSmallFiles {
    /// The request of `haul bench files --small`; `None` without this word.
    #[must_use]
    pub fn request(&self, shared: LowShared<'_>) -> Option<BenchSmallFiles> {
        let all = LowSmallFilesPlace::value_variants();
        let asked = if self.file_systems.is_empty() { all } else { &self.file_systems };
        let mut places: Vec<SmallFilesPlace> = Vec::new();
        for place in asked.iter().map(|place| SmallFilesPlace::from(*place)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let (files, rounds) =
            if shared.quick { (FILES_QUICK, 1) } else { (FILES_DEFAULT, ROUNDS_DEFAULT) };
        self.small.then(|| BenchSmallFiles {
            files: self.files.unwrap_or(files),
            file_bytes: self.file_size.unwrap_or(FILE_BYTES_DEFAULT),
            places,
            directory: shared.directory.unwrap_or(Path::new(".")).to_owned(),
            rounds: shared.rounds.unwrap_or(rounds),
            time_max: shared.budget.map_or(TIME_MAX, |budget| budget.0),
        })
    }

    /// The output of the results: as asked for, with lines beside a report.
    #[must_use]
    pub fn output(&self, asked: &LowResults) -> LowResults {
        match &self.report {
            None => asked.clone(),
            Some(page) => LowResults {
                json: asked.json,
                html: Some(page.clone()),
                lines_file: Some(page.with_extension("json")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{
        LowArgs, LowCommand,
        bench::{LowBenchCommand, LowBenchFiles},
    };
    use clap::Parser;

    fn files(words: &[&str]) -> Result<LowBenchFiles, String> {
        let words = [&["haul", "bench", "files"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Bench(low) => match low.command {
                LowBenchCommand::Files(low) => Ok(low),
                other => panic!("not of files: {other:?}"),
            },
            other => panic!("not a bench: {other:?}"),
        }
    }

    #[test]
    fn small_files_are_asked_for_by_their_word_alone() {
        assert!(files(&[]).unwrap().small_files().is_none());
        let small = files(&["--small"]).unwrap().small_files().unwrap();
        assert_eq!((small.files, small.file_bytes, small.rounds), (20_000, 16_384, 5));
        let [ext4, xfs, btrfs, own] = [
            SmallFilesPlace::Ext4,
            SmallFilesPlace::Xfs,
            SmallFilesPlace::Btrfs,
            SmallFilesPlace::Own,
        ];
        assert_eq!(small.places, [ext4, xfs, btrfs, own]);
        let quick = files(&["--small", "--quick"]).unwrap().small_files().unwrap();
        assert_eq!((quick.files, quick.rounds), (500, 1));
        let words = ["--small", "--files=7", "--file-size=1K", "--file-systems=own,xfs,own"];
        let some = files(&words).unwrap().small_files().unwrap();
        assert_eq!((some.files, some.file_bytes), (7, 1024));
        assert_eq!(some.places, [own, xfs]);
        let shown = files(&["--small", "--report=a/page.html"]).unwrap().small_output();
        assert_eq!(shown.html, Some("a/page.html".into()));
        assert_eq!(shown.lines_file, Some("a/page.json".into()));
    }

    #[test]
    fn words_of_small_files_and_of_the_studies_do_not_go_together() {
        for words in [
            &["--files=7"][..],
            &["--file-size=1K"],
            &["--file-systems=own"],
            &["--small", "--size=1G"],
            &["--small", "--only=times"],
            &["--small", "--files=0"],
            &["--small", "--file-systems=vfat"],
            &["--report=page.html"],
            &["--small", "--report=page.json"],
            &["--small", "--report=page.html", "--html=page.html"],
        ] {
            assert!(files(words).is_err(), "{words:?}");
        }
    }
}
