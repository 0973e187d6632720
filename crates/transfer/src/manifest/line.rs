//! A line of a manifest: a BLAKE3 hash in hexadecimal, two blanks, and a name.
//!
//! It is what `b3sum` prints and `b3sum --check` reads: a name with a newline or a backslash has
//! them written as `\n` and `\\`, and the line begins with a backslash then. `b3sum` has no way to
//! write a name that is not UTF-8 (it refuses to check it); here its bytes that are none are
//! written as `\xff`, in two hexadecimal digits, so that the file is text and the name is kept.
//! `b3sum --check` says of such a line that its escape is invalid, and checks the others.

use crate::content::{Value, hex_of};

/// Most bytes of a line: a name of PATH_MAX, each byte of it escaped, and the hash.
pub const LINE_BYTES_MAX: usize = 4 * 4096 + 68;
const HASH_DIGITS: usize = 64;

/// A file and the hash that it is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// BLAKE3 of the file.
    pub hash: Value,
    /// Name of the file below the directory of the manifest.
    pub name: Vec<u8>,
}

impl Line {
    /// The line with its end.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut name = String::with_capacity(self.name.len());
        let mut escaped = false;
        for chunk in self.name.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => name.push_str("\\\\"),
                    '\n' => name.push_str("\\n"),
                    other => name.push(other),
                }
                escaped |= matches!(character, '\\' | '\n');
            }
            for byte in chunk.invalid() {
                name.push_str(&format!("\\x{byte:02x}"));
                escaped = true;
            }
        }
        format!("{}{}  {name}\n", if escaped { "\\" } else { "" }, hex_of(&self.hash))
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// Says what a line looks like.
    pub fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let (escaped, rest) = match line.strip_prefix(b"\\") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let (digits, rest) = rest.split_at_checked(HASH_DIGITS).ok_or("it is too short")?;
        let hash = parse_hash(digits).ok_or("it does not begin with 64 hexadecimal digits")?;
        let name = match rest {
            [b' ', b' ', name @ ..] if !name.is_empty() => name,
            _ => return Err("the hash is not followed by two blanks and a name"),
        };
        let name = if escaped { unescape(name)? } else { name.to_vec() };
        if name.contains(&0) {
            return Err("the name holds a zero byte");
        }
        Ok(Self { hash, name })
    }
}

fn parse_hash(digits: &[u8]) -> Option<Value> {
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(hash)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn unescape(name: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (plain, behind) = match rest {
            [b'n', behind @ ..] => (b'\n', behind),
            [b'r', behind @ ..] => (b'\r', behind),
            [b'\\', behind @ ..] => (b'\\', behind),
            [b'x', high, low, behind @ ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => return Err("\\x in the name is not followed by two hexadecimal digits"),
            },
            _ => return Err("a backslash in the name is followed by none of n, r, x and \\"),
        };
        bytes.push(plain);
        rest = behind;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_read_as_it_was_written() {
        for name in [
            &b"a"[..],
            b"dir/with  blanks/  x ",
            b"new\nline",
            b"back\\slash\\n",
            b"\\",
            b"\xff\xfe/na\xc3me\n",
            "\u{fffd} \u{20ac}".as_bytes(),
            b"ends in \r",
        ] {
            let line = Line { hash: [0xa5; 32], name: name.to_vec() };
            let text = line.to_text();
            assert!(text.ends_with('\n') && !text.trim_end_matches('\n').contains('\n'), "{text}");
            assert_eq!(Line::parse(text.trim_end_matches('\n').as_bytes()), Ok(line));
        }
    }

    #[test]
    fn lines_are_those_of_b3sum() {
        let hash = *blake3::hash(b"").as_bytes();
        let text = |name: &[u8]| Line { hash, name: name.to_vec() }.to_text();
        let digits = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(text(b"c/d"), format!("{digits}  c/d\n"));
        assert_eq!(text(b"x\nx"), format!("\\{digits}  x\\nx\n"));
        assert_eq!(text(b"y\xffy"), format!("\\{digits}  y\\xffy\n"));
        // Without the backslash in front, one in the name is itself.
        let plain = Line::parse(format!("{digits}  a\\n").as_bytes()).unwrap();
        assert_eq!(plain.name, b"a\\n");
    }

    #[test]
    fn what_is_no_line_is_told_why() {
        let digits = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        for (line, why) in [
            (String::new(), "too short"),
            ("hello".into(), "too short"),
            ("# a comment that is longer than a hash, so that it is looked at at all".into(), "64"),
            (format!("{digits} a"), "two blanks"),
            (format!("{digits}  "), "two blanks"),
            (format!("{digits} *a"), "two blanks"),
            (format!("\\{digits}  a\\q"), "a backslash"),
            (format!("\\{digits}  a\\"), "a backslash"),
            (format!("\\{digits}  a\\xzz"), "\\x"),
            (format!("\\{digits}  a\\x00"), "zero byte"),
            // SHA-512 of sha512sum.
            (format!("{digits}{digits}  a"), "two blanks"),
        ] {
            let found = Line::parse(line.as_bytes()).unwrap_err();
            assert!(found.contains(why), "{line}: {found}");
        }
    }
}
