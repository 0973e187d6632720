//! Globs for what rsync's patterns say and globset's globs do not.

/// Ranges of the classes of isalpha(3) and its kin, for ASCII, as they stand within brackets of a
/// glob. None begins with `!` or `^`, and none has the slash, which no brackets fit.
const CLASSES: [(&str, &str); 12] = [
    ("alnum", "a-zA-Z0-9"),
    ("alpha", "a-zA-Z"),
    ("blank", " \t"),
    ("cntrl", "\u{1}-\u{1f}\u{7f}"),
    ("digit", "0-9"),
    ("graph", "~!-.0-}"),
    ("lower", "a-z"),
    ("print", " ~!-.0-}"),
    ("punct", ":-@!-.[-`{-~"),
    ("space", " \t\n\u{b}\u{c}\r"),
    ("upper", "A-Z"),
    ("xdigit", "0-9A-Fa-f"),
];

/// A part of a pattern that rsync takes and no glob can say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a class [: without its end :]")]
    OpenClass,
    #[error("no class [:{0}:]")]
    NoClass(String),
    #[error("** beside other characters of a name more than once, or with [ {{ or \\")]
    Crossings,
}

/// Globs of one pattern: what fits one of them fits it.
///
/// # Errors
/// Says what in it has no such glob.
pub fn globs(pattern: &str) -> Result<Vec<String>, PatternError> {
    with_crossings(&with_classes(pattern)?)
}

/// Pattern with its classes as ranges: `[[:digit:]]` as `[0-9]`.
fn with_classes(pattern: &str) -> Result<String, PatternError> {
    let mut glob = String::new();
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '[' => {
                let (brackets, len) = brackets(rest)?;
                glob.push_str(&brackets);
                rest = &rest[len..];
                continue;
            }
            other => other.len_utf8(),
        };
        glob.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    Ok(glob)
}

/// Brackets at the beginning, with the classes in them as ranges, and their length before.
fn brackets(text: &str) -> Result<(String, usize), PatternError> {
    let mut at = 1 + usize::from(text[1..].starts_with(['!', '^']));
    let mut out = text[..at].to_owned();
    if text[at..].starts_with(']') {
        out.push(']');
        at += 1;
    }
    while let Some(next) = text[at..].chars().next() {
        if let Some(class) = text[at..].strip_prefix("[:") {
            let (name, _) = class.split_once(":]").ok_or(PatternError::OpenClass)?;
            let known = CLASSES.iter().find(|(known, _)| *known == name);
            let (_, ranges) = known.ok_or_else(|| PatternError::NoClass(name.to_owned()))?;
            out.push_str(ranges);
            at += name.len() + 4;
            continue;
        }
        out.push(next);
        at += next.len_utf8();
        if next == ']' {
            return Ok((out, at));
        }
    }
    // The glob's own words for it are good.
    Ok((text.to_owned(), text.len()))
}

/// Globs of one whose `**` crosses directories: `a**b` is `a*b` and `a*/**/*b`.
fn with_crossings(glob: &str) -> Result<Vec<String>, PatternError> {
    let mut parts = glob.split('/');
    let inside = |part: &&str| part.contains("**") && !part.trim_matches('*').is_empty();
    let Some(part) = parts.clone().find(inside) else { return Ok(vec![glob.to_owned()]) };
    let at =
        parts.by_ref().take_while(|other| other != &part).map(|it| it.len() + 1).sum::<usize>();
    let (left, right) = part.split_once("**").unwrap_or((part, ""));
    let behind_is_plain = !glob[at + part.len()..].split('/').any(|other| inside(&other));
    if !behind_is_plain
        || right.contains("**")
        || left.contains(['[', '{', '\\'])
        || right.contains([']', '}'])
    {
        return Err(PatternError::Crossings);
    }
    let (before, behind) = (&glob[..at], &glob[at + part.len()..]);
    let right = right.trim_start_matches('*');
    let crossed = [format!("{left}*{right}"), format!("{left}*/**/*{right}")];
    Ok(crossed.map(|part| format!("{before}{part}{behind}")).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_glob_is_named() {
        for (pattern, found) in [
            ("[[:digits:]]", "no class [:digits:]"),
            ("[[:digit]", "without its end"),
            ("a**b**c", "beside other characters"),
            ("a**b/c**d", "beside other characters"),
            ("[a]**", "beside other characters"),
        ] {
            let why = globs(pattern).unwrap_err().to_string();
            assert!(why.contains(found), "{pattern}: {why}");
        }
    }

    #[test]
    fn classes_fit_what_they_fit_in_c() {
        type Is = fn(&u8) -> bool;
        let is: [(&str, Is); 11] = [
            ("alnum", u8::is_ascii_alphanumeric),
            ("alpha", u8::is_ascii_alphabetic),
            ("blank", |byte| matches!(byte, b' ' | b'\t')),
            ("cntrl", u8::is_ascii_control),
            ("digit", u8::is_ascii_digit),
            ("graph", u8::is_ascii_graphic),
            ("lower", u8::is_ascii_lowercase),
            ("punct", u8::is_ascii_punctuation),
            ("space", |byte| byte.is_ascii_whitespace() || *byte == 11),
            ("upper", u8::is_ascii_uppercase),
            ("xdigit", u8::is_ascii_hexdigit),
        ];
        for (class, is) in is {
            for negated in ["", "!", "^"] {
                let glob = &globs(&format!("[{negated}[:{class}:]]")).unwrap()[0];
                let glob = globset::GlobBuilder::new(glob).literal_separator(true).build().unwrap();
                let glob = glob.compile_matcher();
                for byte in (1..128_u8).filter(|byte| *byte != b'/') {
                    let fits = glob.is_match(std::str::from_utf8(&[byte]).unwrap());
                    assert_eq!(fits, is(&byte) == negated.is_empty(), "{class}: {byte}");
                }
            }
        }
    }

    #[test]
    fn all_else_is_the_same_glob() {
        for pattern in
            ["a", "**/a", "/d/**", "[]a]", "[!]a]", "\\[[:digit:]", "a?b*", "{a,b}", "[a"]
        {
            assert_eq!(globs(pattern).unwrap().len(), 1, "{pattern}");
        }
        assert_eq!(globs("[!]a]").unwrap(), ["[!]a]"]);
    }
}
