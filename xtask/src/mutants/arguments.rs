//! Words after `cargo xtask mutants`, read into what is asked for.

use anyhow::{Context, Result, bail};

/// The options, as an error names them; the whole usage says what they do.
const OPTIONS: &str = "the options are --sample N, --seed S, --file TEXT, --minutes M";

/// Minutes of a run over whole files, and of a sample.
const MINUTES_OF_FILES: u64 = 60;
const MINUTES_OF_SAMPLE: u64 = 3;

#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// Mutants to draw; without it whole files are mutated.
    pub sample: Option<usize>,
    pub seed: Option<u64>,
    /// Parts of the paths of the files; none means all.
    pub files: Vec<String>,
    /// Minutes after which no further mutant is tried.
    pub minutes: u64,
}

impl Request {
    pub fn of_minutes(minutes: u64) -> Request {
        Request { sample: None, seed: None, files: Vec::new(), minutes }
    }

    pub fn read(arguments: &[&str]) -> Result<Request> {
        let mut request = Request::of_minutes(0);
        let mut minutes = None;
        for pair in arguments.chunks(2) {
            let [option, value] = pair else {
                bail!("`{}` needs a value; {OPTIONS}", pair.join(" "));
            };
            let number = || {
                let text = || format!("cannot read `{value}` of `{option}` as a number");
                value.parse::<u64>().with_context(text)
            };
            match *option {
                "--sample" => request.sample = Some(usize::try_from(number()?)?),
                "--seed" => request.seed = Some(number()?),
                "--file" => request.files.push((*value).to_owned()),
                "--minutes" => minutes = Some(number()?),
                other => bail!("there is no option `{other}`; {OPTIONS}"),
            }
        }
        let usual = if request.sample.is_some() { MINUTES_OF_SAMPLE } else { MINUTES_OF_FILES };
        request.minutes = minutes.unwrap_or(usual);
        Ok(request)
    }

    /// Words that draw the same mutants once more.
    pub fn again(&self, sample: usize, seed: u64) -> String {
        let files = self.files.iter().map(|file| format!(" --file {file}"));
        format!("--sample {sample} --seed {seed}{}", files.collect::<String>())
    }

    /// Whether mutants of the file at `path` are asked for.
    pub fn takes(&self, path: &str) -> bool {
        self.files.is_empty() || self.files.iter().any(|part| path.contains(part.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_three_minutes_unless_told_otherwise() {
        let sample = Request::read(&["--sample", "5", "--seed", "7"]).unwrap();
        assert_eq!((sample.sample, sample.seed, sample.minutes), (Some(5), Some(7), 3));
        let longer = Request::read(&["--sample", "5", "--minutes", "9"]).unwrap();
        assert_eq!(longer.minutes, 9);
        assert_eq!(Request::read(&[]).unwrap(), Request::of_minutes(60));
    }

    #[test]
    fn a_file_is_taken_by_a_part_of_its_path() {
        let request = Request::read(&["--file", "protocol/src/frame", "--file", "span"]).unwrap();
        assert!(request.takes("crates/protocol/src/frame.rs"));
        assert!(request.takes("crates/protocol/src/span.rs"));
        assert!(!request.takes("crates/protocol/src/sender.rs"));
    }

    #[test]
    fn the_words_of_a_sample_draw_it_again() {
        let words = ["--sample", "5", "--seed", "7", "--file", "span", "--file", "frame"];
        let request = Request::read(&words).unwrap();
        assert_eq!(request.again(5, 7), words.join(" "));
        assert_eq!(Request::of_minutes(2).again(60, 1), "--sample 60 --seed 1");
    }

    #[test]
    fn what_cannot_be_read_is_answered_with_its_words() {
        for (words, told) in [
            (["--sample"].as_slice(), "`--sample` needs a value"),
            (&["--sample", "few"], "`few` of `--sample`"),
            (&["--smaple", "5"], "no option `--smaple`"),
        ] {
            let error = Request::read(words).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
