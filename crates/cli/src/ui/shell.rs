//! Words of a shell: what a user may copy from the screen.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// A path as one word of a shell; `$'\xff'` stands for bytes that no terminal shows.
pub fn shell_word(path: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(byte);
    let bytes = path.as_bytes();
    // An option begins so.
    let dot = if bytes.starts_with(b"-") { "./" } else { "" };
    if !bytes.is_empty() && bytes.iter().all(plain) {
        return format!("{dot}{}", path.display());
    }
    match path.to_str() {
        Some(text)
            if !text.chars().any(|it| it.is_control() || haul_report::printable::is_unseen(it)) =>
        {
            format!("'{dot}{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let byte = |byte: &u8| {
                if plain(byte) { char::from(*byte).to_string() } else { format!("\\x{byte:02x}") }
            };
            format!("$'{dot}{}'", bytes.iter().map(byte).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell_and_no_option() {
        for (path, is) in [
            (&b"/a/plan-1"[..], "/a/plan-1"),
            (b"my plan", "'my plan'"),
            (b"it's $HOME", r"'it'\''s $HOME'"),
            (b"-x", "./-x"),
            (b"na\xff\n", r"$'na\xff\x0a'"),
            (b"", "''"),
        ] {
            assert_eq!(shell_word(OsStr::from_bytes(path)), is);
        }
    }
}
