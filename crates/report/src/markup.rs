//! Escapes text for the inside of HTML and SVG.

/// Text that means nothing to a browser, in elements and in attributes.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            character if character.is_control() && character != '\n' => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}
