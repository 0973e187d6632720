//! Names of files as bytes, and how they are shown and stored as text.

pub use haul_report::printable::{is_unseen, printable};
use serde::{Serialize, Serializer, ser::SerializeMap};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_log_is_its_text_and_not_a_list_of_numbers() {
        let shown = |name: &[u8]| format!("{:?}", Name(name.to_vec()));
        assert_eq!(shown("über/a b".as_bytes()), r#""über/a b""#);
        assert_eq!(shown(b"a\nb\"c"), r#""a\nb\"c""#);
        assert_eq!(shown(b"x\xff\xfey"), r#""x\xFF\xFEy""#);
    }
}
