//! Rust source as a tidy check reads it: code, comments and literals apart, functions found.
//!
//! This is a lexer, not a parser. It knows strings (plain, byte, C and raw), characters against
//! lifetimes, and nested comments, so that a brace or a word inside of them counts for nothing.
//! It does not expand macros, and a file that does not compile may be read wrongly.

/// A source file in two layers. Both have the line and column of every character of the file;
/// what belongs to the other layer, and the inside of literals, is blank.
pub struct RustText {
    pub code: String,
    pub comments: String,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// The line of the word `fn`, counted from 1.
    pub line: usize,
    /// The number of lines from that of `fn` to that of the closing brace, both counted.
    pub lines: usize,
}

/// Splits a source file into its two layers.
pub fn split(source: &str) -> RustText {
    let mut splitter = Splitter {
        characters: source.chars().collect(),
        at: 0,
        code: String::with_capacity(source.len()),
        comments: String::with_capacity(source.len()),
    };
    splitter.run();
    RustText { code: splitter.code, comments: splitter.comments }
}

/// All functions with a body in the `code` layer of a file, also those inside of other functions.
pub fn functions(code: &str) -> Vec<Function> {
    let characters: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < characters.len() {
        if characters[at] == '\n' {
            line += 1;
        }
        if !is_word(characters[at]) {
            at += 1;
            continue;
        }
        let word_end = end_of_word(&characters, at);
        // `r#fn` is a name, not the keyword.
        let is_raw_name = at > 0 && characters[at - 1] == '#';
        if characters[at..word_end] == ['f', 'n']
            && !is_raw_name
            && let Some((name, body)) = name_and_body(&characters, word_end)
        {
            let end = matching_brace(&characters, body).min(characters.len() - 1);
            let inner_lines = characters[at..=end].iter().filter(|c| **c == '\n').count();
            found.push(Function { name, line, lines: inner_lines + 1 });
        }
        at = word_end;
    }
    found
}

/// Whether `word` stands in `line` with no letter, digit or underscore beside it.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn end_of_word(characters: &[char], start: usize) -> usize {
    let length = characters[start..].iter().take_while(|c| is_word(**c)).count();
    start + length
}

/// The name of the function after its keyword and the place of its opening brace. `None` for a
/// function pointer type, and for a declaration without a body.
fn name_and_body(characters: &[char], after_keyword: usize) -> Option<(String, usize)> {
    let blanks = characters[after_keyword..].iter().take_while(|c| c.is_whitespace()).count();
    let start = after_keyword + blanks;
    let is_name = |c: &char| is_word(*c) || *c == '#' || *c == '$';
    let name: String = characters[start..].iter().take_while(|c| is_name(c)).collect();
    if blanks == 0 || name.is_empty() {
        return None;
    }
    let mut open = Vec::new();
    let mut at = start + name.chars().count();
    while at < characters.len() {
        match characters[at] {
            ';' if open.is_empty() => return None,
            '{' if open.is_empty() => return Some((name, at)),
            '{' => at = matching_brace(characters, at),
            '-' | '=' if characters.get(at + 1) == Some(&'>') => at += 1,
            opening @ ('(' | '[' | '<') => open.push(opening),
            ')' => close(&mut open, '('),
            ']' => close(&mut open, '['),
            // A `>` closes a list of generics only; in `[u8; 8 >> 1]` it is an operator.
            '>' if open.last() == Some(&'<') => {
                open.pop();
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Closes the innermost `opening`, and with it every `<` behind it, which was an operator.
fn close(open: &mut Vec<char>, opening: char) {
    while let Some(last) = open.pop() {
        if last == opening {
            return;
        }
    }
}

/// The place of the brace that closes the one at `start`, or the end of the text.
fn matching_brace(characters: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, character) in characters[start..].iter().enumerate() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return start + offset;
        }
    }
    characters.len()
}

#[derive(Clone, Copy)]
enum Layer {
    Code,
    Comment,
    Literal,
}

struct Splitter {
    characters: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

impl Splitter {
    fn run(&mut self) {
        while let Some(character) = self.peek(0) {
            match (character, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.character_or_lifetime(),
                (character, _) if is_word(character) => self.word(),
                _ => self.take(Layer::Code),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn take(&mut self, layer: Layer) {
        let Some(character) = self.peek(0) else { return };
        self.at += 1;
        let blank = if character == '\n' { '\n' } else { ' ' };
        let (code, comment) = match layer {
            Layer::Code => (character, blank),
            Layer::Comment => (blank, character),
            Layer::Literal => (blank, blank),
        };
        self.code.push(code);
        self.comments.push(comment);
    }

    fn take_many(&mut self, count: usize, layer: Layer) {
        for _ in 0..count {
            self.take(layer);
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.take(Layer::Comment);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.peek(0).is_some() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => {
                    self.take(Layer::Comment);
                    continue;
                }
            }
            self.take_many(2, Layer::Comment);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.take(Layer::Literal);
        while let Some(character) = self.peek(0) {
            match character {
                '\\' => self.take_many(2, Layer::Literal),
                '"' => return self.take(Layer::Literal),
                _ => self.take(Layer::Literal),
            }
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        self.take_many(hashes + 1, Layer::Literal);
        while let Some(character) = self.peek(0) {
            let closes = character == '"' && (1..=hashes).all(|n| self.peek(n) == Some('#'));
            if closes {
                return self.take_many(hashes + 1, Layer::Literal);
            }
            self.take(Layer::Literal);
        }
    }

    fn character_or_lifetime(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\\'), _) => {
                self.take_many(3, Layer::Literal);
                while self.peek(0).is_some_and(|c| c != '\'') {
                    self.take(Layer::Literal);
                }
                self.take(Layer::Literal);
            }
            (Some(_), Some('\'')) => self.take_many(3, Layer::Literal),
            _ => self.take(Layer::Code),
        }
    }

    /// Takes a word, and the raw string that it may begin.
    fn word(&mut self) {
        let end = end_of_word(&self.characters, self.at);
        let word: String = self.characters[self.at..end].iter().collect();
        self.take_many(end - self.at, Layer::Code);
        if !matches!(word.as_str(), "r" | "br" | "cr") {
            return;
        }
        let hashes = self.characters[end..].iter().take_while(|c| **c == '#').count();
        if self.peek(hashes) == Some('"') {
            self.raw_string(hashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(source: &str) -> Vec<(String, usize, usize)> {
        let functions = functions(&split(source).code);
        functions.into_iter().map(|f| (f.name, f.line, f.lines)).collect()
    }

    fn one(source: &str) -> (String, usize, usize) {
        let all = lengths(source);
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    #[test]
    fn both_layers_keep_every_line_and_column() {
        let source = "let a = \"x\ny\"; // c\n/* d\n*/ 'é' \u{1f600}\n";
        let text = split(source);
        for layer in [&text.code, &text.comments] {
            let shape = |t: &str| t.lines().map(|l| l.chars().count()).collect::<Vec<_>>();
            assert_eq!(shape(layer), shape(source));
        }
        assert!(text.code.contains("let a =") && !text.code.contains('x'));
        assert!(text.comments.contains("// c") && !text.comments.contains("let"));
    }

    #[test]
    fn a_function_is_counted_from_fn_to_its_closing_brace() {
        let source = "\n#[inline]\npub fn a() {\n    b();\n}\n";
        assert_eq!(one(source), ("a".into(), 3, 3));
    }

    #[test]
    fn braces_in_strings_count_for_nothing() {
        assert_eq!(one("fn a() {\n \"}\\\"}\";\n b\"}\"; c\"}\";\n}\n").2, 4);
        assert_eq!(one("fn a() {\n r\"}\\\";\n r#\"}\"}\"#;\n br##\"}\"#}\"##;\n}\n").2, 5);
        assert_eq!(one("fn a() {\n \"\n}\n\";\n}\n").2, 5);
    }

    #[test]
    fn braces_in_characters_count_for_nothing_and_lifetimes_are_not_characters() {
        assert_eq!(one("fn a<'a>(x: &'a u8) {\n '}'; b'}'; '\\''; '\\\\';\n '}';\n}\n").2, 4);
        assert_eq!(one("fn a() {\n 'x: loop { break 'x; }\n '\\u{7d}'; '}'\n}\n").2, 4);
        assert_eq!(one("fn a() {\n '\"'; '}'; '\"';\n}\n").2, 3);
    }

    #[test]
    fn braces_in_comments_count_for_nothing() {
        assert_eq!(one("fn a() {\n // } it's\n /* } /* } */ } \" */\n}\n").2, 4);
        assert_eq!(one("/// fn x() {\nfn a() {\n}\n").1, 2);
    }

    #[test]
    fn a_function_type_and_a_declaration_have_no_body() {
        assert!(lengths("type F = fn(u8) -> u8;\ntrait T { fn a(&self) -> [u8; 4]; }").is_empty());
        assert!(lengths("struct S { f: fn (u8), g: unsafe extern \"C\" fn(u8) }").is_empty());
    }

    #[test]
    fn braces_in_a_signature_are_not_the_body() {
        let source = "fn a<const N: usize>() -> Foo<{ N + 1 }>\nwhere [(); { N }]:,\n{\n b\n}\n";
        assert_eq!(one(source), ("a".into(), 1, 5));
        assert_eq!(one("fn a(x: [u8; 1 << 4]) -> Vec<Vec<u8>> {\n}\n").2, 2);
        assert_eq!(one("fn a(f: impl Fn(u8) -> Option<u8>) -> [u8; 8 >> 1] {\n}\n").2, 2);
    }

    #[test]
    fn inner_functions_and_methods_are_found_too() {
        let source = "impl A {\n fn b() {\n  fn c() {\n  }\n }\n async unsafe fn d() {}\n}\n";
        let expected = [("b".into(), 2, 4), ("c".into(), 3, 2), ("d".into(), 6, 1)];
        assert_eq!(lengths(source), expected);
    }

    #[test]
    fn raw_names_are_names() {
        assert_eq!(one("fn r#type() {\n r#fn(); r#match {}\n}\n").0, "r#type");
        assert_eq!(one("macro_rules! m { ($n:ident) => {\n fn $n() {\n }\n} }\n").2, 2);
    }

    #[test]
    fn words_end_at_words() {
        assert!(has_word("an unsafe block", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
        assert!(!has_word("mkXXX", "XXX"));
    }
}
