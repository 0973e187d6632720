//! Reads an SPDX licence expression and says whether a list of licences satisfies it.
//!
//! `AND` binds closer than `OR`; the old `MIT/Apache-2.0` is read as `MIT OR Apache-2.0`.

/// Parentheses deeper than this are refused; the deepest known expression has one.
const DEPTH_MAX: usize = 16;

/// Whether the licences that `is_allowed` accepts satisfy `expression`. `is_allowed` is asked for
/// single licences, such as `MIT` or `Apache-2.0 WITH LLVM-exception`.
///
/// # Errors
///
/// A sentence that says what is wrong with the expression.
pub fn is_satisfied(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let tokens = tokens(expression);
    let mut reader = Reader { tokens: &tokens, at: 0, is_allowed };
    let satisfied = reader.either(0)?;
    match reader.peek() {
        None => Ok(satisfied),
        Some(token) => Err(format!("unexpected `{token}` in `{expression}`")),
    }
}

fn tokens(expression: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(expression.len());
    for character in expression.chars() {
        match character {
            '(' | ')' => spaced.extend([' ', character, ' ']),
            '/' => spaced.push_str(" OR "),
            _ => spaced.push(character),
        }
    }
    spaced.split_whitespace().map(String::from).collect()
}

struct Reader<'a> {
    tokens: &'a [String],
    at: usize,
    is_allowed: &'a dyn Fn(&str) -> bool,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    fn either(&mut self, depth: usize) -> Result<bool, String> {
        let mut satisfied = self.both(depth)?;
        while self.takes("OR") {
            satisfied |= self.both(depth)?;
        }
        Ok(satisfied)
    }

    fn both(&mut self, depth: usize) -> Result<bool, String> {
        let mut satisfied = self.single(depth)?;
        while self.takes("AND") {
            satisfied &= self.single(depth)?;
        }
        Ok(satisfied)
    }

    fn single(&mut self, depth: usize) -> Result<bool, String> {
        if self.takes("(") {
            if depth == DEPTH_MAX {
                return Err(format!("more than {DEPTH_MAX} parentheses inside of each other"));
            }
            let satisfied = self.either(depth + 1)?;
            return if self.takes(")") { Ok(satisfied) } else { Err("`)` is missing".into()) };
        }
        let mut licence = self.name()?;
        if self.takes("WITH") {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Ok((self.is_allowed)(&licence))
    }

    fn name(&mut self) -> Result<String, String> {
        match self.peek().map(String::from) {
            None => Err("a licence is missing at the end".into()),
            Some(token) if matches!(token.as_str(), "AND" | "OR" | "WITH" | ")" | "(") => {
                Err(format!("a licence is missing before `{token}`"))
            }
            Some(token) => {
                self.at += 1;
                Ok(token)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_mit_and_isc(expression: &str) -> Result<bool, String> {
        is_satisfied(expression, &|licence| matches!(licence, "MIT" | "ISC" | "A WITH e"))
    }

    #[test]
    fn one_of_two_is_enough_for_or() {
        for expression in ["MIT", "GPL OR MIT", "GPL/MIT", "MIT / GPL", "GPL OR BSD OR ISC"] {
            assert_eq!(with_mit_and_isc(expression), Ok(true), "{expression}");
        }
        assert_eq!(with_mit_and_isc("GPL OR BSD"), Ok(false));
    }

    #[test]
    fn both_are_needed_for_and_which_binds_closer() {
        assert_eq!(with_mit_and_isc("MIT AND ISC"), Ok(true));
        assert_eq!(with_mit_and_isc("MIT AND GPL"), Ok(false));
        assert_eq!(with_mit_and_isc("MIT OR ISC AND GPL"), Ok(true));
        assert_eq!(with_mit_and_isc("(MIT OR ISC) AND GPL"), Ok(false));
        assert_eq!(with_mit_and_isc("ISC AND (GPL OR (BSD OR MIT))"), Ok(true));
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert_eq!(with_mit_and_isc("A WITH e OR GPL"), Ok(true));
        assert_eq!(with_mit_and_isc("MIT WITH e"), Ok(false));
        assert_eq!(with_mit_and_isc("A"), Ok(false));
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for expression in ["", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT ISC", "MIT WITH", "()"] {
            assert!(with_mit_and_isc(expression).is_err(), "{expression}");
        }
        assert!(with_mit_and_isc(&"(".repeat(9_999)).is_err());
    }
}
