//! Names of files as bytes, and how they are shown and stored as text.

pub use haul_report::printable::{is_unseen, printable};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use std::fmt::{self, Write};

/// A name as bytes; shown as text, with what is no UTF-8 replaced.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

/// The text in quotes, with what is no UTF-8 as `\xFF`: of two names that differ, this does too.
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            write!(f, "{}", chunk.valid().escape_debug())?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02X}"))?;
        }
        f.write_char('"')
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters of a hostile name must not reach a terminal.
        f.write_str(&printable(&String::from_utf8_lossy(&self.0)))
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Reads the text of a name, as [`Name`] is written.
impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into_bytes()))
    }
}

/// A path in `--json`: `path`, and where that is not exact, because bytes of it are no UTF-8,
/// `path_encoded`, with these percent-encoded as in a URL.
///
/// # Errors
/// If the output cannot be written.
pub fn exact_path<S: Serializer>(name: &Name, serializer: S) -> Result<S::Ok, S::Error> {
    let is_exact = std::str::from_utf8(&name.0).is_ok();
    let mut map = serializer.serialize_map(None)?;
    map.serialize_entry("path", name)?;
    if !is_exact {
        map.serialize_entry("path_encoded", &encode_path(&name.0))?;
    }
    map.end()
}

/// Reads what [`exact_path`] has written.
///
/// # Errors
/// If there is no path.
pub fn read_exact_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    #[derive(Deserialize)]
    struct Exact {
        path: String,
        #[serde(default)]
        path_encoded: Option<String>,
    }
    let Exact { path, path_encoded } = Exact::deserialize(deserializer)?;
    let decoded = path_encoded.and_then(|text| decode_path(&text));
    Ok(Name(decoded.unwrap_or_else(|| path.into_bytes())))
}

/// The path of a URL, with what is no printable ASCII percent-encoded (RFC 3986, 2.1).
pub(crate) fn encode_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Decodes percents: `%41` is `A`; a `%` that two hexadecimal digits do not follow is an error.
pub(crate) fn decode_path(text: &str) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            path.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            path.push(byte);
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_as_it_was_written() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Line {
            #[serde(flatten, serialize_with = "exact_path", deserialize_with = "read_exact_path")]
            path: Name,
        }
        for path in [&b"a b%20"[..], b"na\xffme", b"", "\u{e4}/x".as_bytes()] {
            let line = Line { path: Name(path.to_vec()) };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
        assert!(serde_json::from_str::<Line>("{}").is_err());
    }

    #[test]
    fn a_name_in_a_log_is_its_text_and_not_a_list_of_numbers() {
        let shown = |name: &[u8]| format!("{:?}", Name(name.to_vec()));
        assert_eq!(shown("über/a b".as_bytes()), r#""über/a b""#);
        assert_eq!(shown(b"a\nb\"c"), r#""a\nb\"c""#);
        assert_eq!(shown(b"x\xff\xfey"), r#""x\xFF\xFEy""#);
    }
}
