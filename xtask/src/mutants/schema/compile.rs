//! Build of a package with all of its mutants in it, without those that the compiler refuses.
//!
//! An error lies in the text of a mutant or in a place that has several. What lies there is taken
//! out, and the rest is built again, until it compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::rewrite::{Part, Rewritten, rewrite};
use super::{NUMBERS_MAX, runtime_text, sites};
use crate::child;
use crate::mutants::tool::{self, Mutant, TREE};

/// Builds until all that does not compile is out. Each stage of the compiler, of which there are
/// five, tells its errors only when the stages before it found none.
const ROUNDS_MAX: usize = 16;

/// Errors that the text of a mutant has wherever it stands. Others, as of a type that cannot be
/// told or of a borrow, may be of the place around it, so that only its own build decides.
const CERTAIN: [&str; 12] = [
    "E0063",
    "E0277",
    "E0308",
    "E0368",
    "E0369",
    "E0412",
    "E0425",
    "E0433",
    "E0599",
    "E0600",
    "arithmetic_overflow",
    "unconditional_panic",
];

/// Error of a match that an arm is missing in. It lies at what is matched, wherever the arm is: all
/// arms of that match need builds of their own.
const NOT_EXHAUSTIVE: &str = "E0004";

/// A test program, and the directory where cargo would start it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    pub path: PathBuf,
    pub directory: PathBuf,
}

/// Package that is built with its mutants, which are named by their places in the list.
#[derive(Debug, Default)]
pub struct Built {
    pub programs: Vec<Program>,
    /// The first number of each place, and the mutants that are chosen by it and those after it.
    pub places: BTreeMap<usize, Vec<usize>>,
    /// Mutants that the compiler refused.
    pub refused: BTreeSet<usize>,
    /// Mutants that need a build of their own.
    pub alone: BTreeSet<usize>,
}

/// Builds the tests of a package with these mutants, all of that package; `None` when the time was
/// over before. The copy of the tree is then as it was.
pub fn build(
    root: &Path,
    package: &str,
    mutants: &[&Mutant],
    deadline: Instant,
) -> Result<Option<Built>> {
    let sources = Sources::read(root, mutants)?;
    let mut built = Built::default();
    let outcome = build_rounds(root, package, mutants, deadline, &sources, &mut built);
    sources.restore()?;
    Ok(outcome?.then_some(built))
}

/// Builds until it succeeds; false when the time is over.
fn build_rounds(
    root: &Path,
    package: &str,
    mutants: &[&Mutant],
    deadline: Instant,
    sources: &Sources,
    built: &mut Built,
) -> Result<bool> {
    for _ in 0..ROUNDS_MAX {
        let files = sources.write(mutants, built)?;
        let seconds = deadline.saturating_duration_since(Instant::now()).as_secs();
        if seconds == 0 {
            return Ok(false);
        }
        let output = run_cargo(root, package, seconds)?;
        if output.status.code() == Some(124) {
            return Ok(false);
        }
        let messages = messages_of(&output.stdout);
        if output.status.success() {
            built.programs = messages.iter().filter_map(program_of).collect();
            return Ok(true);
        }
        let before = built.refused.len() + built.alone.len();
        messages.iter().for_each(|message| blame(message, &files, built));
        if built.refused.len() + built.alone.len() == before {
            let said = messages.iter().filter_map(|one| one["message"]["rendered"].as_str());
            let said: Vec<&str> = said.filter(|text| text.starts_with("error")).collect();
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{package} with its mutants does not compile:\n{}\n{stderr}", said.join("\n"));
        }
    }
    bail!("{package} with its mutants did not compile in {ROUNDS_MAX} builds")
}

fn run_cargo(root: &Path, package: &str, seconds: u64) -> Result<Output> {
    let bound = ["--signal=INT", "--kill-after=60", &seconds.to_string()].map(str::to_owned);
    let mut command = child::command(&root.join(TREE), "timeout", &[]);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    command.args(bound).arg(cargo).args(["test", "--no-run", "--message-format=json"]);
    command.args(["--lib", "--tests", "--package", package]);
    command.args(tool::features(root, package));
    tool::set_variables(root, &mut command);
    command.output().context("cannot start timeout and cargo")
}

fn messages_of(stdout: &[u8]) -> Vec<Value> {
    let lines = stdout.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn program_of(message: &Value) -> Option<Program> {
    if message["profile"]["test"] != true {
        return None;
    }
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    Some(Program { path, directory: directory.to_owned() })
}

/// Takes out the mutants in which an error of the compiler lies.
fn blame(message: &Value, files: &BTreeMap<String, Rewritten>, built: &mut Built) {
    let message = &message["message"];
    if message["level"] != "error" {
        return;
    }
    let text = message["message"].as_str().unwrap_or_default();
    // Without a code it is an error of the syntax.
    let code = message["code"]["code"].as_str();
    let is_certain = code.is_none_or(|code| CERTAIN.contains(&code)) && !text.contains("arms have");
    let spans = message["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    if code == Some(NOT_EXHAUSTIVE) {
        let places = spans.iter().filter_map(|span| place_of(span, files));
        built.alone.extend(places.flat_map(|(file, byte)| file.arms_at(byte)));
        return;
    }
    for wants_primary in [true, false] {
        let mut is_found = false;
        for span in spans.iter().filter(|span| span["is_primary"] == wants_primary) {
            let Some((file, byte)) = place_of(span, files) else { continue };
            let Some(spot) = file.spot_at(byte) else { continue };
            is_found = true;
            if is_certain && wants_primary && spot.part == Part::Mutant {
                built.refused.extend(&spot.mutants);
            } else {
                built.alone.extend(&spot.mutants);
            }
        }
        if is_found {
            // One error may leave open what another one says for certain.
            built.alone.retain(|mutant| !built.refused.contains(mutant));
            return;
        }
    }
}

/// The file of a mutant, and the byte in it, that a span of an error begins at.
fn place_of<'f>(
    span: &Value,
    files: &'f BTreeMap<String, Rewritten>,
) -> Option<(&'f Rewritten, usize)> {
    let file = files.get(span["file_name"].as_str()?)?;
    Some((file, usize::try_from(span["byte_start"].as_u64()?).ok()?))
}

/// The files of the mutants as they are, by their paths below the tree, and the crate's first one.
struct Sources {
    tree: PathBuf,
    files: BTreeMap<String, String>,
    library: String,
}

impl Sources {
    fn read(root: &Path, mutants: &[&Mutant]) -> Result<Sources> {
        let first = mutants.first().context("there is no mutant to build")?;
        let (directory, _) = first.file.split_once("/src/").context("a mutant outside of src")?;
        let library = format!("{directory}/src/lib.rs");
        let tree = root.join(TREE);
        let mut files = BTreeMap::new();
        for path in mutants.iter().map(|one| &one.file).chain([&library]) {
            if !files.contains_key(path) {
                let text = fs::read_to_string(tree.join(path));
                files.insert(path.clone(), text.with_context(|| format!("cannot read {path}"))?);
            }
        }
        Ok(Sources { tree, files, library })
    }

    /// Writes the files with all mutants that are not out, and notes which number each has.
    fn write(&self, mutants: &[&Mutant], built: &mut Built) -> Result<BTreeMap<String, Rewritten>> {
        let mut next = 1;
        let mut rewritten = BTreeMap::new();
        built.places.clear();
        for (path, source) in &self.files {
            let is_out =
                |index: &usize| built.refused.contains(index) || built.alone.contains(index);
            let of_file: Vec<(usize, &Mutant)> = mutants
                .iter()
                .enumerate()
                .filter(|(index, one)| one.file == *path && !is_out(index))
                .map(|(index, one)| (index, *one))
                .collect();
            let found = sites::find(source, &of_file).with_context(|| path.clone())?;
            let mut file = rewrite(source, &found.sites, next);
            let mut known: BTreeSet<usize> = found.refused.iter().copied().collect();
            for site in &found.sites {
                let of_site: Vec<usize> = site.texts.iter().map(|(index, _)| *index).collect();
                known.extend(&of_site);
                built.places.insert(next, of_site);
                next += site.texts.len();
            }
            let all = of_file.iter().map(|(index, _)| *index);
            built.alone.extend(all.filter(|index| !known.contains(index)));
            built.refused.extend(found.refused);
            if *path == self.library {
                file.text += &runtime_text();
            }
            put(&self.tree.join(path), &file.text)?;
            rewritten.insert(path.clone(), file);
        }
        if next > NUMBERS_MAX {
            bail!("{} mutants are more than {NUMBERS_MAX}, the most in one build", next - 1);
        }
        Ok(rewritten)
    }

    fn restore(&self) -> Result<()> {
        self.files.iter().try_for_each(|(path, text)| put(&self.tree.join(path), text))
    }
}

/// Writes a file unless it is the same, which cargo would take for a change.
fn put(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::rewrite::Spot;
    use super::*;
    use serde_json::json;

    /// A file with mutants 0 and 1 at bytes 10 to 40, the own text of 1 at 20 to 30, and a match at
    /// bytes 0 to 60, of which 2 takes an arm away.
    fn files() -> BTreeMap<String, Rewritten> {
        let whole = Spot { range: 10..40, mutants: vec![0, 1], part: Part::Whole };
        let own = Spot { range: 20..30, mutants: vec![1], part: Part::Mutant };
        let arm = Spot { range: 0..60, mutants: vec![2], part: Part::Whole };
        let file = Rewritten { text: String::new(), spots: vec![own, whole], matches: vec![arm] };
        BTreeMap::from([("a.rs".to_owned(), file)])
    }

    /// Mutants that are refused and that are left to builds of their own, for an error with spans:
    /// each a byte, and whether the error lies there.
    fn taken(level: &str, code: Value, text: &str, spans: &[(u64, bool)]) -> [Vec<usize>; 2] {
        let spans: Vec<Value> = spans
            .iter()
            .map(|(at, is_primary)| {
                json!({"file_name": "a.rs", "byte_start": at, "is_primary": is_primary})
            })
            .collect();
        let message = json!({"level": level, "code": code, "message": text, "spans": spans});
        let mut built = Built::default();
        blame(&json!({ "message": message }), &files(), &mut built);
        [built.refused, built.alone].map(|set| set.into_iter().collect())
    }

    const NOTHING: [Vec<usize>; 2] = [Vec::new(), Vec::new()];

    fn code(code: &str) -> Value {
        json!({ "code": code })
    }

    #[test]
    fn a_type_that_a_mutant_cannot_have_refuses_it() {
        let [refused, alone] = taken("error", code("E0277"), "no `Default`", &[(22, true)]);
        assert_eq!((refused, alone), (vec![1], vec![]));
        let [refused, alone] = taken("error", Value::Null, "expected one of", &[(22, true)]);
        assert_eq!((refused, alone), (vec![1], vec![]));
    }

    #[test]
    fn an_error_that_may_be_of_the_place_leaves_the_mutant_to_a_build_of_its_own() {
        for (code, text) in [
            (code("E0382"), "use of moved value"),
            (code("E0282"), "type annotations needed"),
            (code("E0308"), "`match` arms have incompatible types"),
        ] {
            assert_eq!(taken("error", code, text, &[(22, true)]), [vec![], vec![1]]);
        }
    }

    /// Case of two errors in one mutant, which was counted twice.
    #[test]
    fn a_mutant_that_is_refused_for_certain_needs_no_build_of_its_own() {
        let mut built = Built::default();
        for code in ["E0282", "E0277", "E0282"] {
            let spans = [json!({"file_name": "a.rs", "byte_start": 22, "is_primary": true})];
            let message = json!({"level": "error", "code": {"code": code}, "spans": spans});
            blame(&json!({ "message": message }), &files(), &mut built);
        }
        assert_eq!((built.refused, built.alone), (BTreeSet::from([1]), BTreeSet::new()));
    }

    #[test]
    fn an_error_of_a_place_takes_out_all_of_its_mutants() {
        assert_eq!(
            taken("error", code("E0308"), "mismatched types", &[(12, true), (5, false)]),
            [vec![], vec![0, 1]]
        );
    }

    #[test]
    fn an_error_elsewhere_is_blamed_on_the_place_that_it_points_at() {
        assert_eq!(
            taken("error", code("E0277"), "no such bound", &[(50, true), (22, false)]),
            [vec![], vec![1]]
        );
        assert_eq!(taken("error", code("E0277"), "no such bound", &[(50, true)]), NOTHING);
    }

    /// Case of `match flag { _ if x => .., true => .., false => .. }` in haul-transfer.
    #[test]
    fn an_arm_that_is_missed_leaves_the_arms_of_its_match_to_builds_of_their_own() {
        let text = "non-exhaustive patterns: `true` not covered";
        assert_eq!(taken("error", code("E0004"), text, &[(3, true)]), [vec![], vec![2]]);
        assert_eq!(taken("error", code("E0004"), text, &[(70, true)]), NOTHING);
    }

    #[test]
    fn a_warning_is_no_error() {
        assert_eq!(taken("warning", code("E0277"), "", &[(22, true)]), NOTHING);
    }

    #[test]
    fn test_programs_are_told_from_other_files_that_are_built() {
        let artifact = |is_test: bool| {
            json!({"manifest_path": "/p/crates/a/Cargo.toml", "executable": "/p/b/a-1",
                "profile": {"test": is_test}})
        };
        let program = Program { path: "/p/b/a-1".into(), directory: "/p/crates/a".into() };
        assert_eq!(program_of(&artifact(true)), Some(program));
        assert_eq!(program_of(&artifact(false)), None);
    }
}
