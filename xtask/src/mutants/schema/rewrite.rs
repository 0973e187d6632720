//! Text of a source file with all of its mutants in it, each behind a choice made while it runs.
//!
//! The code as it is holds the places inside of it in their new form; the text of a mutant holds
//! them as they were, for one mutant runs at a time. So the file grows by the length of its
//! mutants, however deep they lie.

use std::ops::Range;

use super::sites::{Form, Site};

/// The function that tells which mutant runs, in the module that is added to the crate.
const AT: &str = "crate::haul_mutants::at";

/// Mutants with the bytes of the new text that are theirs.
#[derive(Debug, PartialEq, Eq)]
pub struct Spot {
    pub range: Range<usize>,
    pub mutants: Vec<usize>,
    pub part: Part,
}

/// Share of a place that a spot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it, with the code as it is.
    Whole,
    /// The text of one mutant, or its guard.
    Mutant,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    pub text: String,
    pub spots: Vec<Spot>,
    /// Each match that has arms which are not taken, with their mutants.
    pub matches: Vec<Spot>,
}

/// Something that is put in at a byte of the source.
struct Insertion {
    at: usize,
    site: usize,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Close,
    Open,
}

impl Insertion {
    /// At one byte all that ends there comes first, the inner ones before the outer ones; then what
    /// begins there, the outer ones first.
    fn order(&self) -> (usize, End, usize) {
        let depth = if self.end == End::Open { self.site } else { usize::MAX - self.site };
        (self.at, self.end, depth)
    }
}

/// Rewrites a file. The mutants are chosen by the numbers from `first` on, in the order of the
/// places and of the texts of each.
pub fn rewrite(source: &str, sites: &[Site], first: usize) -> Rewritten {
    let mut firsts = vec![first];
    firsts.extend(sites.iter().scan(first, |next, site| {
        *next += site.texts.len();
        Some(*next)
    }));
    let mut insertions = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        insertions.push(Insertion { at: site.range.start, site: index, end: End::Open });
        if site.form == Form::Expression {
            insertions.push(Insertion { at: site.range.end, site: index, end: End::Close });
        }
    }
    insertions.sort_by_key(Insertion::order);
    let mut rewritten = Rewritten::default();
    let mut starts = vec![0; sites.len()];
    let mut copied = 0;
    // Bytes of the source, and how many bytes of the new text end there.
    let mut moved = Vec::new();
    for Insertion { at, site: index, end } in insertions {
        rewritten.text += &source[copied..at];
        copied = at;
        let (site, first) = (&sites[index], firsts[index]);
        if end == End::Open {
            starts[index] = rewritten.text.len();
            rewritten.open(site, first);
        }
        if end == End::Close || site.form != Form::Expression {
            rewritten.close(site, first);
            let range = starts[index]..rewritten.text.len();
            let mutants = site.texts.iter().map(|(mutant, _)| *mutant).collect();
            rewritten.spots.push(Spot { range, mutants, part: Part::Whole });
        }
        moved.push((at, rewritten.text.len()));
    }
    rewritten.text += &source[copied..];
    for site in sites.iter().filter(|site| site.form == Form::Arm) {
        let range = moved_to(&moved, site.within.start)..moved_to(&moved, site.within.end);
        let mutants = site.texts.iter().map(|(mutant, _)| *mutant).collect();
        rewritten.matches.push(Spot { range, mutants, part: Part::Whole });
    }
    rewritten
}

/// Place in the new text of a byte of the source, behind all that is put in there.
fn moved_to(moved: &[(usize, usize)], byte: usize) -> usize {
    let before = moved.iter().rev().find(|(at, _)| *at <= byte);
    before.map_or(byte, |(at, end)| end + byte - at)
}

impl Rewritten {
    fn open(&mut self, site: &Site, first: usize) {
        let count = site.texts.len();
        self.text += &match site.form {
            Form::Expression => format!("(match {AT}({first}, {count}) {{ 0 => {{ "),
            Form::Entry => format!("match {AT}({first}, {count}) {{ 0 => {{"),
            Form::Arm => " ".to_owned(),
        };
    }

    fn close(&mut self, site: &Site, first: usize) {
        let last = site.texts.len() - 1;
        for (offset, (mutant, text)) in site.texts.iter().enumerate() {
            let number = first + offset;
            let pattern = if offset == last { "_".to_owned() } else { number.to_string() };
            let (before, own, after) = match site.form {
                Form::Expression => (format!(" }} {pattern} => {{ "), text.clone(), ""),
                Form::Entry => (format!("}} {pattern} => {{ "), format!("return {text}"), " "),
                Form::Arm => (String::new(), format!("if {AT}({number}, 1) == 0"), ""),
            };
            self.text += &before;
            let start = self.text.len();
            self.text += &own;
            let range = start..self.text.len();
            self.spots.push(Spot { range, mutants: vec![*mutant], part: Part::Mutant });
            self.text += after;
        }
        self.text += match site.form {
            Form::Expression => " } })",
            Form::Entry => "} } ",
            Form::Arm => "",
        };
    }

    /// The smallest spot around a byte of the new text.
    pub fn spot_at(&self, byte: usize) -> Option<&Spot> {
        let around = self.spots.iter().filter(|spot| spot.range.contains(&byte));
        around.min_by_key(|spot| spot.range.len())
    }

    /// Mutants of the arms of the smallest match around a byte of the new text.
    pub fn arms_at(&self, byte: usize) -> Vec<usize> {
        let around = || self.matches.iter().filter(|spot| spot.range.contains(&byte));
        let smallest = around().map(|spot| spot.range.len()).min();
        let arms = around().filter(|spot| Some(spot.range.len()) == smallest);
        arms.flat_map(|spot| spot.mutants.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::sites;
    use super::*;
    use crate::mutants::tool::{Change, Mutant, with_keys};

    /// The mutant that has `replacement` in the place of the first `original` of a source.
    fn mutant(source: &str, genre: &str, original: &str, replacement: &str) -> Mutant {
        let start = source.find(original).unwrap();
        let place = |byte: usize| {
            let before = &source[..byte];
            let line_start = before.rfind('\n').map_or(0, |at| at + 1);
            (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
        };
        let name = "a.rs:1:1: change".to_owned();
        let change = Change {
            genre: genre.to_owned(),
            start: place(start),
            end: place(start + original.len()),
            replacement: replacement.to_owned(),
        };
        Mutant { change, ..with_keys([name]).remove(0) }
    }

    /// The text of a source with mutants, each of a genre, a part of the source, and what replaces
    /// it; how many were found, and how many are no Rust.
    fn written(source: &str, mutants: &[[&str; 3]]) -> (String, usize, usize) {
        let all: Vec<Mutant> = mutants
            .iter()
            .map(|[genre, original, replacement]| mutant(source, genre, original, replacement))
            .collect();
        let all: Vec<(usize, &Mutant)> = all.iter().enumerate().collect();
        let found = sites::find(source, &all).unwrap();
        let text = rewrite(source, &found.sites, 1).text;
        syn::parse_file(&text).unwrap();
        let count = found.sites.iter().map(|site| site.texts.len()).sum();
        (text.replace("crate::haul_mutants::at", "at"), count, found.refused.len())
    }

    fn text(source: &str, mutants: &[[&str; 3]]) -> String {
        let (text, found, _) = written(source, mutants);
        assert_eq!(found, mutants.len(), "{text}");
        text
    }

    #[test]
    fn operators_of_one_chain_share_a_place_and_keep_how_they_bind() {
        assert_eq!(
            text(
                "fn f() -> u8 { a + b * 2 }",
                &[["BinaryOperator", "+", "-"], ["BinaryOperator", "*", "+"]]
            ),
            "fn f() -> u8 { (match at(1, 2) { 0 => { a + b * 2 } 1 => { a  -  b * 2 } \
             _ => { a + b  +  2 } }) }"
        );
    }

    #[test]
    fn a_place_inside_of_another_stays_as_it_was_in_the_mutants_around_it() {
        assert_eq!(
            text(
                "fn f() { g(!a) == b; }",
                &[["UnaryOperator", "!", ""], ["BinaryOperator", "==", "!="]]
            ),
            "fn f() { (match at(1, 1) { 0 => { g((match at(2, 1) { 0 => { !a } _ => {   a } })) \
             == b } _ => { g(!a)  !=  b } }); }"
        );
    }

    #[test]
    fn places_that_begin_and_end_together_are_nested() {
        assert_eq!(
            text(
                "fn f() { -a + !b }",
                &[
                    ["FnValue", "-a + !b", "3"],
                    ["BinaryOperator", "+", "*"],
                    ["UnaryOperator", "-", ""],
                    ["UnaryOperator", "!", ""],
                ]
            ),
            "fn f() { match at(1, 1) { 0 => {} _ => { return 3 } } (match at(2, 1) { 0 => { \
             (match at(3, 1) { 0 => { -a } _ => {   a } }) + (match at(4, 1) { 0 => { !b } _ => \
             {   b } }) } _ => { -a  *  !b } }) }"
        );
    }

    #[test]
    fn an_arm_is_not_taken_by_its_mutant_and_a_guard_is_what_the_mutant_says() {
        let source = "fn f() { match x { 1 | 2 => {}, n if n < 4 => g(), _ => h() } }";
        assert_eq!(
            text(
                source,
                &[
                    ["MatchArm", "1 | 2 => {},", ""],
                    ["MatchArmGuard", "n < 4", "true"],
                    ["MatchArmGuard", "n < 4", "false"],
                    ["BinaryOperator", "<", ">"],
                ]
            ),
            "fn f() { match x { 1 | 2 if at(1, 1) == 0 => {}, n if (match at(2, 2) { 0 => { \
             (match at(4, 1) { 0 => { n < 4 } _ => { n  >  4 } }) } 2 => { true } _ => { false } \
             }) => g(), _ => h() } }"
        );
    }

    #[test]
    fn a_field_is_left_out_together_with_its_comma() {
        assert_eq!(
            text("fn f() { S { a: 1, b, ..c } }", &[["StructField", "a: 1,", ""]]),
            "fn f() { (match at(1, 1) { 0 => { S { a: 1, b, ..c } } _ => { S {    b, ..c } } }) }"
        );
    }

    #[test]
    fn what_stands_before_a_place_does_not_move_it() {
        let source = "// über + alles\nconst S: &str = \"é + ß\";\n\
                      fn f() { g(\"ö + ö\", a /* ä + */ + // ü\n    b) }";
        let before = source.find("a /*").unwrap();
        let mut with_place = mutant(source, "BinaryOperator", "+ // ü", "*");
        with_place.change.end = (with_place.change.start.0, with_place.change.start.1 + 1);
        let found = sites::find(source, &[(0, &with_place)]).unwrap();
        let text = rewrite(source, &found.sites, 1).text;
        assert_eq!(text[..before], source[..before]);
        assert!(text.contains("{ a /* ä + */  *  // ü\n    b } }))"), "{text}");
    }

    #[test]
    fn what_is_computed_by_the_compiler_has_no_choice() {
        for source in [
            "const A: u8 = b + c;",
            "static A: u8 = b + c;",
            "const fn f() -> u8 { b + c }",
            "fn f() { let x = [0; b + c]; }",
            "fn f() { g::<{ b + c }>() }",
            "fn f(x: [u8; b + c]) {}",
            "enum E { A = b + c }",
            "fn f() { const { b + c } }",
            "fn f() { m!(b + c) }",
            "impl T { const A: u8 = b + c; }",
            "trait T { const A: u8 = b + c; }",
        ] {
            assert_eq!(written(source, &[["BinaryOperator", "+", "-"]]).1, 0, "{source}");
        }
        let source = "fn f() -> impl Fn() { g() }";
        assert_eq!(written(source, &[["FnValue", "g()", "h()"]]).1, 0);
    }

    #[test]
    fn the_and_of_a_let_has_no_choice_and_what_stands_beside_it_has() {
        let source = "fn f() { if let Some(x) = y && a == b && c { } }";
        let (text, found, refused) = written(source, &[["BinaryOperator", "&&", "||"]]);
        assert_eq!((text.as_str(), found, refused), (source, 0, 1));
        let (text, _, _) = written(source, &[["BinaryOperator", "==", "!="]]);
        let beside = "y && (match at(1, 1) { 0 => { a == b } _ => { a  !=  b } }) && c";
        assert!(text.contains(beside), "{text}");
    }

    #[test]
    fn a_mutant_that_is_no_rust_is_refused_without_a_build() {
        let source = "fn f() { a == b && c }";
        let (text, found, refused) = written(source, &[["BinaryOperator", "&&", "=="]]);
        assert_eq!((text.as_str(), found, refused), (source, 0, 1));
    }

    #[test]
    fn a_match_knows_the_mutants_of_its_own_arms() {
        let source = "fn f() { match !a { true => match b + c { 1 => g(), _ => h() }, \
                      false if d => i(), false => j() } }";
        let all = [
            mutant(source, "UnaryOperator", "!", ""),
            mutant(source, "MatchArm", "true => match b + c { 1 => g(), _ => h() },", ""),
            mutant(source, "BinaryOperator", "+", "-"),
            mutant(source, "MatchArm", "1 => g(),", ""),
            mutant(source, "MatchArm", "false => j()", ""),
        ];
        let all: Vec<(usize, &Mutant)> = all.iter().enumerate().collect();
        let rewritten = rewrite(source, &sites::find(source, &all).unwrap().sites, 1);
        let at = |part: &str| rewritten.arms_at(rewritten.text.find(part).unwrap());
        for (part, arms) in [
            ("fn f", vec![]),
            ("!a", vec![1, 4]),
            ("b + c", vec![3]),
            ("h()", vec![3]),
            ("i()", vec![1, 4]),
            ("j()", vec![1, 4]),
        ] {
            assert_eq!(at(part), arms, "{part} in {}", rewritten.text);
        }
    }

    #[test]
    fn a_byte_belongs_to_the_smallest_spot_around_it() {
        let source = "fn f() { g(!a) == b; }";
        let all = [
            mutant(source, "UnaryOperator", "!", ""),
            mutant(source, "BinaryOperator", "==", "!="),
        ];
        let all: Vec<(usize, &Mutant)> = all.iter().enumerate().collect();
        let found = sites::find(source, &all).unwrap();
        let rewritten = rewrite(source, &found.sites, 1);
        let at = |part: &str| {
            let spot = rewritten.spot_at(rewritten.text.find(part).unwrap())?;
            Some((spot.mutants.clone(), spot.part))
        };
        assert_eq!(at("fn f"), None);
        assert_eq!(at("!a"), Some((vec![0], Part::Whole)));
        assert_eq!(at("g(("), Some((vec![1], Part::Whole)));
        assert_eq!(at("!="), Some((vec![1], Part::Mutant)));
        assert_eq!(at("g(!a)"), Some((vec![1], Part::Mutant)));
    }
}
