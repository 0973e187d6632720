//! A line of figures that fits its place: what does not fit is left out in a fixed order.
//!
//! A line never has more columns than it is given, whatever names and figures it holds, and no
//! control character. The parts of least use go first; the rate goes last.

use unicode_width::UnicodeWidthChar;

/// Blanks between two parts.
const GAP: &str = "  ";
/// The sign where a part was cut.
const CUT: char = '…';
/// Fewest columns of a name: one that is cut to less says nothing.
const NAME_COLUMNS_MIN: usize = 8;
/// Rank of the name: parts of a lower rank make room for it.
const NAME_RANK: u8 = 30;

/// Whether a line may hold the escape sequences of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    Off,
    On,
}

/// The meaning of a coloured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    /// A part that is to be noticed.
    Look,
    Bad,
}

/// A part of a line.
#[derive(Clone, Debug)]
pub struct Part {
    text: String,
    /// Rank of the part: parts of a lower one are left out first.
    rank: u8,
    tone: Tone,
}

impl Part {
    #[must_use]
    pub fn new(rank: u8, text: impl Into<String>) -> Self {
        Self { text: escaped(&text.into()), rank, tone: Tone::Plain }
    }

    #[must_use]
    pub fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// A line of the parts that fit into `columns`, in their order, and behind them what fits of
/// `name`.
#[must_use]
pub fn fitted(parts: Vec<Part>, name: Option<&str>, columns: usize, colour: Colour) -> String {
    let mut parts: Vec<Part> = parts.into_iter().filter(|part| !part.text.is_empty()).collect();
    let name = name.map(escaped).filter(|name| !name.is_empty());
    if let Some(name) = name
        && let Some(with_name) = beside_name(&parts, &name, columns)
    {
        parts = with_name;
    }
    while parts.len() > 1 && columns_of_all(&parts) > columns {
        parts.remove(least(&parts));
    }
    if let [only] = &mut parts[..] {
        only.text = cut_end(&only.text, columns);
    }
    let painted = parts.iter().map(|part| paint(&part.text, part.tone, colour));
    painted.collect::<Vec<_>>().join(GAP)
}

/// The parts with the name behind them, cut to what is left; `None` where it would take the place
/// of something more useful.
fn beside_name(parts: &[Part], name: &str, columns: usize) -> Option<Vec<Part>> {
    let mut parts = parts.to_vec();
    let needed = columns_of(name).min(NAME_COLUMNS_MIN) + GAP.len();
    while columns_of_all(&parts) + needed > columns {
        let least = least(&parts);
        parts.get(least).filter(|part| part.rank < NAME_RANK)?;
        parts.remove(least);
    }
    let left = columns - columns_of_all(&parts) - GAP.len();
    parts.push(Part { text: cut_front(name, left), rank: NAME_RANK, tone: Tone::Plain });
    Some(parts)
}

/// Index of the part that is left out first.
fn least(parts: &[Part]) -> usize {
    let least = parts.iter().enumerate().min_by_key(|(_, part)| part.rank);
    least.map_or(0, |(index, _)| index)
}

/// A text in the colour of its meaning.
#[must_use]
pub fn paint(text: &str, tone: Tone, colour: Colour) -> String {
    // Select graphic rendition, ECMA-48 8.3.117.
    let code = match (colour, tone) {
        (Colour::Off, _) | (_, Tone::Plain) => return text.to_owned(),
        (Colour::On, Tone::Good) => 32,
        (Colour::On, Tone::Look) => 33,
        (Colour::On, Tone::Bad) => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Number of a terminal's columns that a text takes.
#[must_use]
pub fn columns_of(text: &str) -> usize {
    text.chars().map(columns_of_char).sum()
}

fn columns_of_char(character: char) -> usize {
    character.width().unwrap_or(0)
}

fn columns_of_all(parts: &[Part]) -> usize {
    let texts: usize = parts.iter().map(|part| columns_of(&part.text)).sum();
    texts + GAP.len() * parts.len().saturating_sub(1)
}

/// A text without control characters, and without those that hide or turn what stands beside them.
#[must_use]
pub fn escaped(text: &str) -> String {
    let hides = |character: char| {
        matches!(character, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
    };
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || hides(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

fn cut_end(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let kept = taken(text.chars(), columns.saturating_sub(1));
    let mut cut: String = text.chars().take(kept).collect();
    if columns > 0 {
        cut.push(CUT);
    }
    cut
}

/// Cuts the beginning of a text: of a path the end says more.
fn cut_front(text: &str, columns: usize) -> String {
    if columns_of(text) <= columns {
        return text.to_owned();
    }
    let kept = taken(text.chars().rev(), columns.saturating_sub(1));
    let skipped = text.chars().count() - kept;
    let cut = if columns > 0 { CUT.to_string() } else { String::new() };
    cut + &text.chars().skip(skipped).collect::<String>()
}

/// Number of characters that fit into the columns.
fn taken(characters: impl Iterator<Item = char>, columns: usize) -> usize {
    let mut used = 0;
    let fits = |character: &char| {
        used += columns_of_char(*character);
        used <= columns
    };
    characters.take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_least_use_go_first_and_a_name_takes_what_is_left() {
        let parts = || vec![Part::new(1, "bar"), Part::new(90, "10 Gbit/s"), Part::new(50, "ETA")];
        let line = |columns| fitted(parts(), Some("run7/scan.vdif"), columns, Colour::Off);
        assert_eq!(line(80), "bar  10 Gbit/s  ETA  run7/scan.vdif");
        assert_eq!(line(30), "bar  10 Gbit/s  ETA  …can.vdif");
        assert_eq!(line(25), "10 Gbit/s  ETA  …can.vdif", "the bar makes room");
        assert_eq!(line(20), "bar  10 Gbit/s  ETA", "the time left does not");
        assert_eq!(line(15), "10 Gbit/s  ETA");
        assert_eq!(line(10), "10 Gbit/s");
        assert_eq!(line(4), "10 …");
        assert_eq!(line(0), "");
    }

    #[test]
    fn a_wide_name_is_counted_in_columns_and_nothing_in_it_plays_with_the_terminal() {
        assert_eq!(columns_of("観測"), 4);
        assert_eq!(cut_front("観測データ", 5), "…ータ");
        assert_eq!(escaped("a\x1b[2J\u{202e}b\n"), "a\\u{1b}[2J\\u{202e}b\\n");
    }

    #[test]
    fn colour_takes_no_columns() {
        let parts = vec![Part::new(1, "lost").toned(Tone::Bad)];
        assert_eq!(fitted(parts.clone(), None, 4, Colour::Off), "lost");
        assert_eq!(fitted(parts, None, 4, Colour::On), "\x1b[31mlost\x1b[0m");
    }
}
