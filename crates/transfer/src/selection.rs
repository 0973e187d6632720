//! Selection of the files of a tree: patterns, a list of names, limits of size and age.
//!
//! Patterns are rsync's: the first rule that fits decides, what none fits is taken; a pattern that
//! ends in `/` fits directories only, one that begins with `/` fits from the top, any other at
//! every depth; `*` and `?` stay within a name, `**` crosses directories. A directory that is left
//! out is not entered. With include rules alone, only what they fit is taken, and all below a
//! directory that they fit.

use crate::{
    error::problem, file_ranges::FileRanges, packed_names::PackedNames, part::Part, patterns,
    problem::Problem,
};
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use haul_protocol::{
    ProtocolError, limits,
    message::{self, FileKind, FileOffer},
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::Arc};

/// The effect of a rule on what it fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The rule takes what its pattern fits.
    Include,
    /// The rule leaves out what its pattern fits.
    Exclude,
}

/// A pattern and its effect, in the order in which the user gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether what fits is taken or left out.
    pub effect: Effect,
    /// The pattern, as bytes of a name.
    pub pattern: Vec<u8>,
}

/// Selection of the files that are meant. The default takes all.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Selection {
    /// Rules in order: the first that fits a name decides.
    pub rules: Vec<Rule>,
    /// Names below the one source that are meant; `None` where all are.
    pub names: Option<Arc<PackedNames>>,
    /// Whether the names stand for themselves: a directory among them is made, and what is below
    /// it is not taken. Of a push.
    pub names_alone: bool,
    /// Ranges of files among the names, of which nothing else is meant. Of a push.
    pub ranges: Option<Arc<FileRanges>>,
    /// Size below which files are left out, in bytes.
    pub size_min: Option<u64>,
    /// Size above which files are left out, in bytes.
    pub size_max: Option<u64>,
    /// Earliest time of modification of the files that are meant, in seconds since 1970.
    pub modified_from: Option<i64>,
    /// Latest time of modification of the files that are meant, in seconds since 1970.
    pub modified_until: Option<i64>,
    /// The part of the files that is meant; `None` where all are. Directories are in each part.
    pub part: Option<Part>,
}

impl Selection {
    /// Whether nothing is left out.
    #[must_use]
    pub(crate) fn takes_all(&self) -> bool {
        let Self { rules, names, size_min, size_max, modified_from, modified_until, part, .. } =
            self;
        let bounds = size_min.or(*size_max).is_some();
        let moments = modified_from.or(*modified_until).is_some();
        rules.is_empty() && names.is_none() && !bounds && !moments && part.is_none()
    }

    /// Messages of a size that fits, which together hold the selection.
    pub(crate) fn to_message(&self) -> Vec<message::Selection> {
        let mut parts = vec![message::Selection {
            names_given: self.names.is_some(),
            size_min: self.size_min,
            size_max: self.size_max,
            modified_from: self.modified_from,
            modified_until: self.modified_until,
            ..message::Selection::default()
        }];
        let mut bytes = 0;
        let mut part_for = |parts: &mut Vec<message::Selection>, item: &[u8]| {
            bytes += item.len() + ITEM_BYTES;
            if bytes > PART_BYTES_MAX {
                bytes = item.len() + ITEM_BYTES;
                parts.push(message::Selection::default());
            }
        };
        for rule in &self.rules {
            part_for(&mut parts, &rule.pattern);
            let include = rule.effect == Effect::Include;
            let rule = message::FilterRule { include, pattern: rule.pattern.clone() };
            parts.last_mut().expect("never empty").rules.push(rule);
        }
        for name in self.names.iter().flat_map(|names| names.iter()) {
            part_for(&mut parts, name);
            parts.last_mut().expect("never empty").names.push(name.to_vec());
        }
        let count = parts.len();
        parts.iter_mut().take(count - 1).for_each(|part| part.more_follows = true);
        parts
    }

    /// Makes the selection ready to be asked.
    ///
    /// # Errors
    /// If a pattern is none, in words for the user.
    pub(crate) fn compile(&self) -> Result<Matcher, Problem> {
        let (found, max) = (self.rules.len(), limits::RULES_MAX);
        if found > max {
            let hint = "name what is meant by --files-from";
            let (needs, found) = (format!("at most {max}"), format!("{found}"));
            return Err(problem("there are too many patterns", &needs, &found, hint));
        }
        let (found, max) = (
            self.rules.iter().map(|rule| rule.pattern.len()).sum::<usize>(),
            limits::RULES_BYTES_MAX,
        );
        if found > max {
            let hint = "name what is meant by --files-from";
            let (needs, found) = (format!("at most {max} bytes"), format!("{found}"));
            return Err(problem("the patterns are too long", &needs, &found, hint));
        }
        let mut builder = GlobSetBuilder::new();
        let mut effects = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            for (glob, directories_only) in globs_of(&rule.pattern)? {
                builder.add(glob);
                effects.push((rule.effect, directories_only));
            }
        }
        let globs = builder.build().map_err(|error| {
            problem("the patterns cannot be used", "fewer or shorter ones", &error.to_string(), "")
        })?;
        let includes_only =
            !self.rules.is_empty() && self.rules.iter().all(|rule| rule.effect == Effect::Include);
        let bounds = Self { rules: Vec::new(), names: None, ..self.clone() };
        Ok(Matcher { globs, effects, includes_only, bounds })
    }
}

/// Most bytes that a rule or a name takes of a message beside its own.
const ITEM_BYTES: usize = 16;
const PART_BYTES_MAX: usize = limits::MESSAGE_BYTES_MAX / 2;

/// A selection that arrives in parts.
#[derive(Debug, Default)]
pub struct Arriving {
    selection: Selection,
    names: PackedNames,
    items: usize,
    bytes: usize,
}

impl Arriving {
    /// Takes a part; gives the whole when it was the last.
    ///
    /// # Errors
    /// If there is too much of it.
    pub fn take(&mut self, part: message::Selection) -> Result<Option<Selection>, ProtocolError> {
        let patterns = part.rules.iter().map(|rule| rule.pattern.len());
        let names = part.names.iter().map(Vec::len);
        self.items += part.rules.len() + part.names.len();
        self.bytes += patterns.sum::<usize>() + names.sum::<usize>();
        if self.items > limits::SELECTION_ITEMS_MAX || self.bytes > limits::SELECTION_BYTES_MAX {
            return Err(ProtocolError::new("a selection of more than a million items or 16 MiB"));
        }
        if self.selection.rules.len() + part.rules.len() > limits::RULES_MAX {
            return Err(ProtocolError::new("a selection of more than 4096 rules"));
        }
        let selection = &mut self.selection;
        if part.names_given {
            selection.names = Some(Arc::default());
        }
        selection.size_min = part.size_min.or(selection.size_min);
        selection.size_max = part.size_max.or(selection.size_max);
        selection.modified_from = part.modified_from.or(selection.modified_from);
        selection.modified_until = part.modified_until.or(selection.modified_until);
        selection.rules.extend(part.rules.into_iter().map(|rule| Rule {
            effect: if rule.include { Effect::Include } else { Effect::Exclude },
            pattern: rule.pattern,
        }));
        for name in &part.names {
            self.names.push(name);
        }
        if part.more_follows {
            return Ok(None);
        }
        let mut selection = std::mem::take(selection);
        if selection.names.is_some() {
            let mut names = std::mem::take(&mut self.names);
            names.sort();
            selection.names = Some(Arc::new(names));
        }
        Ok(Some(selection))
    }
}

/// Globs of a pattern, and whether each fits directories only.
fn globs_of(pattern: &[u8]) -> Result<Vec<(globset::Glob, bool)>, Problem> {
    let shown = String::from_utf8_lossy(pattern);
    let refused = |found: &str| {
        let what = format!("cannot use the pattern {shown:?}");
        let hint = "`haul push --help` says what patterns are, at --exclude";
        problem(&what, "a pattern such as *.tmp, /top/*.log or cache/", found, hint)
    };
    let text = std::str::from_utf8(pattern).map_err(|_| refused("bytes that are no UTF-8"))?;
    // `dir/***` is the directory and all in it.
    let both = text.strip_suffix("/***").map(|directory| [(directory, true), (text, false)]);
    let parts = match (&both, text.strip_suffix('/')) {
        (Some(both), _) => &both[..],
        (None, Some(directory)) => &[(directory, true)],
        (None, None) => &[(text, false)],
    };
    let mut built = Vec::new();
    for (text, directories_only) in parts {
        if text.trim_matches('/').is_empty() {
            return Err(refused("nothing"));
        }
        let text = text.strip_suffix('*').filter(|it| it.ends_with("/**")).unwrap_or(text);
        let glob = match text.strip_prefix('/') {
            Some(from_top) => from_top.to_owned(),
            None => format!("**/{text}"),
        };
        for glob in patterns::globs(&glob).map_err(|found| refused(&found.to_string()))? {
            let glob =
                GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
            built.push((glob.map_err(|error| refused(&error.to_string()))?, *directories_only));
        }
    }
    Ok(built)
}

/// The answer of a matcher for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    Taken,
    /// A rule fits the name and, where there are only such rules, all below.
    Included,
    /// A directory that is looked into, and taken when something below is.
    Perhaps,
    LeftOut,
}

/// A selection, made ready to be asked.
#[derive(Clone, Debug)]
pub struct Matcher {
    globs: GlobSet,
    effects: Vec<(Effect, bool)>,
    includes_only: bool,
    bounds: Selection,
}

impl Matcher {
    /// Tells whether the entry is meant; `above_included` says that a directory above it was
    /// [`Fit::Included`].
    #[must_use]
    pub fn fit(&self, offer: &FileOffer, above_included: bool) -> Fit {
        let is_directory = offer.kind == FileKind::Directory;
        let by_name = self.fit_name(&offer.name, is_directory, above_included);
        let is_of_part = || self.bounds.part.is_none_or(|part| part.takes(&offer.name));
        if is_directory
            || matches!(by_name, Fit::LeftOut)
            || (self.within_bounds(offer) && is_of_part())
        {
            by_name
        } else {
            Fit::LeftOut
        }
    }

    /// Whether no entry is left out for its name.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.effects.is_empty()
    }

    fn fit_name(&self, name: &[u8], is_directory: bool, above_included: bool) -> Fit {
        if self.effects.is_empty() {
            return Fit::Taken;
        }
        let fitting = self.globs.matches_candidate(&Candidate::new(OsStr::from_bytes(name)));
        let mut fitting = fitting.into_iter().map(|at| self.effects[at]);
        let first = fitting.find(|(_, directories_only)| is_directory || !directories_only);
        match (first.map(|(effect, _)| effect), self.includes_only) {
            (Some(Effect::Include), true) => Fit::Included,
            (Some(Effect::Include), false) | (None, false) => Fit::Taken,
            (Some(Effect::Exclude), _) => Fit::LeftOut,
            (None, true) if above_included => Fit::Included,
            (None, true) if is_directory => Fit::Perhaps,
            (None, true) => Fit::LeftOut,
        }
    }

    /// Whether a regular file is within the limits of size and age; other entries always are.
    fn within_bounds(&self, offer: &FileOffer) -> bool {
        if offer.kind != FileKind::Regular {
            return true;
        }
        let (bounds, size) = (&self.bounds, offer.size_bytes);
        bounds.size_min.is_none_or(|min| size >= min)
            && bounds.size_max.is_none_or(|max| size <= max)
            && bounds.modified_from.is_none_or(|from| offer.mtime_s >= from)
            && bounds.modified_until.is_none_or(|until| offer.mtime_s <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(words: &[&str]) -> Selection {
        let rule = |word: &&str| Rule {
            effect: if word.starts_with('+') { Effect::Include } else { Effect::Exclude },
            pattern: word.as_bytes()[1..].to_vec(),
        };
        Selection { rules: words.iter().map(rule).collect(), ..Selection::default() }
    }

    fn fit(words: &[&str], name: &str) -> Fit {
        let kind = if name.ends_with('/') { FileKind::Directory } else { FileKind::Regular };
        let name = name.trim_end_matches('/').as_bytes().to_vec();
        let offer = FileOffer { name, kind, ..FileOffer::default() };
        rules(words).compile().unwrap().fit(&offer, false)
    }

    #[test]
    fn patterns_fit_as_rsyncs_do() {
        for (pattern, fits, fits_not) in [
            ("*.tmp", &["a.tmp", "d/a.tmp", "d/e/.tmp"][..], &["a.tmpx", "a.tmp/b"][..]),
            ("/a", &["a", "a/"], &["d/a"]),
            ("cache/", &["cache/", "d/cache/"], &["cache", "d/cache"]),
            ("d/*.c", &["d/a.c", "x/d/a.c"], &["d/e/a.c", "xd/a.c"]),
            ("/d/**", &["d/a", "d/e/f"], &["d/", "x/d/a"]),
            ("a?c", &["abc", "d/axc"], &["a/c", "ac"]),
            ("[ab].x", &["a.x", "b.x"], &["c.x"]),
            ("a\\*b", &["a*b"], &["axb"]),
            ("[[:digit:]].log", &["1.log", "d/2.log"], &["a.log", "[.log", ":].log"]),
            ("x[!a[:upper:]]", &["xb", "x1"], &["xa", "xB", "x/"]),
            ("a/***", &["a/", "a/b", "d/a/b/c"], &["a", "ab"]),
            ("a**b", &["ab", "axb", "ax/yb", "d/a/x/y/b"], &["ax/y", "xab"]),
            ("/x**", &["x", "xy", "xy/z"], &["d/xy"]),
        ] {
            let rule = format!("-{pattern}");
            for name in fits {
                assert_eq!(fit(&[&rule], name), Fit::LeftOut, "{pattern} and {name}");
            }
            for name in fits_not {
                assert_eq!(fit(&[&rule], name), Fit::Taken, "{pattern} and {name}");
            }
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let keep_one = ["+keep.log", "-*.log"];
        assert_eq!(fit(&keep_one, "d/keep.log"), Fit::Taken);
        assert_eq!(fit(&keep_one, "d/other.log"), Fit::LeftOut);
        assert_eq!(fit(&keep_one, "other"), Fit::Taken);
        assert_eq!(fit(&["-*.log", "+keep.log"], "keep.log"), Fit::LeftOut);
    }

    #[test]
    fn include_rules_alone_take_nothing_else() {
        let only = ["+*.fits", "+run7/"];
        assert_eq!(fit(&only, "d/a.fits"), Fit::Included);
        assert_eq!(fit(&only, "d/a.txt"), Fit::LeftOut);
        assert_eq!(fit(&only, "d/"), Fit::Perhaps);
        assert_eq!(fit(&only, "d/run7/"), Fit::Included);
        let below = FileOffer { name: b"d/run7/x".to_vec(), ..FileOffer::default() };
        assert_eq!(rules(&only).compile().unwrap().fit(&below, true), Fit::Included);
    }

    #[test]
    fn limits_of_size_and_age_are_for_files() {
        let bounds = Selection {
            size_min: Some(2),
            size_max: Some(5),
            modified_from: Some(10),
            modified_until: Some(20),
            ..Selection::default()
        };
        let matcher = bounds.compile().unwrap();
        let file = |size_bytes, mtime_s| {
            let kind = FileKind::Regular;
            let offer = FileOffer { size_bytes, mtime_s, kind, ..FileOffer::default() };
            matcher.fit(&offer, false)
        };
        for (size, time) in [(2, 10), (5, 20)] {
            assert_eq!(file(size, time), Fit::Taken);
        }
        for (size, time) in [(1, 15), (6, 15), (3, 9), (3, 21)] {
            assert_eq!(file(size, time), Fit::LeftOut);
        }
        let kind = FileKind::Directory;
        assert_eq!(matcher.fit(&FileOffer { kind, ..FileOffer::default() }, false), Fit::Taken);
    }

    #[test]
    fn a_part_has_all_directories_and_its_files_and_links() {
        let part = |number| {
            let part = Some(Part::new(number, 2).unwrap());
            Selection { part, ..Selection::default() }.compile().unwrap()
        };
        assert!(!Selection { part: Part::new(1, 1).ok(), ..Selection::default() }.takes_all());
        for kind in [FileKind::Regular, FileKind::Symlink, FileKind::Directory] {
            let taken = |name: &str| {
                let offer = FileOffer { name: name.into(), kind, ..FileOffer::default() };
                [1, 2].map(|number| part(number).fit(&offer, false) == Fit::Taken)
            };
            let both = ["a", "b", "c", "d", "e", "f"].map(taken);
            let in_each = both.iter().filter(|taken| **taken == [true; 2]).count();
            assert_eq!(in_each, if kind == FileKind::Directory { 6 } else { 0 });
            assert!(both.iter().all(|taken| *taken != [false; 2]));
        }
    }

    #[test]
    fn a_selection_arrives_in_parts() {
        let names: PackedNames = (0..200_000).map(|n| format!("d/name-{n:06}")).collect();
        let mut said = rules(&["+a", "-b/"]);
        said.names = Some(Arc::new(names));
        said.size_max = Some(0);
        said.modified_from = Some(-5);
        let parts = said.to_message();
        assert!(parts.len() > 2);
        let mut arriving = Arriving::default();
        let mut heard = None;
        for part in parts {
            assert!(heard.is_none());
            heard = arriving.take(part).unwrap();
        }
        let heard = heard.unwrap();
        assert_eq!(format!("{heard:?}"), format!("{said:?}"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_in_words() {
        for pattern in [&b"[a"[..], b"", b"/", b"\xff"] {
            let rule = Rule { effect: Effect::Exclude, pattern: pattern.to_vec() };
            let refused = Selection { rules: vec![rule], ..Selection::default() }.compile();
            assert!(refused.unwrap_err().to_string().contains("pattern"));
        }
    }

    /// Reason for the limits: a set of globs takes hundreds of times the bytes of its patterns, and
    /// a peer may send any.
    #[test]
    fn patterns_that_would_take_much_memory_are_refused() {
        let pattern = "?*".repeat(8);
        let selection = |rules: usize| {
            let rule = Rule { effect: Effect::Exclude, pattern: pattern.clone().into_bytes() };
            Selection { rules: vec![rule; rules], ..Selection::default() }
        };
        selection(limits::RULES_MAX).compile().unwrap();
        let pattern = pattern.repeat(2);
        let rule = Rule { effect: Effect::Exclude, pattern: pattern.into_bytes() };
        let more = Selection { rules: vec![rule; limits::RULES_MAX], ..Selection::default() };
        assert_eq!(more.compile().unwrap_err().what, "the patterns are too long");
    }
}
