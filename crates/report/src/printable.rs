//! Text from elsewhere, without what could play with a terminal or a log.

/// The text with control characters, and with those that nobody sees, as escape sequences.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_unseen(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Characters that nobody sees, and that change what others seem to be: marks of direction, spaces
/// of no width, separators of lines (Unicode's category Cf in part, Zl, Zp).
#[must_use]
pub fn is_unseen(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(character, '\u{61c}' | '\u{feff}')
}
