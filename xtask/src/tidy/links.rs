//! Rule that links lead somewhere: every relative link names a file of the project.
//!
//! Links to the web are not followed, and the part behind `#` is not looked at.

use std::collections::BTreeSet;

use super::{Offence, Project, Rule};

pub(super) const RULE: Rule =
    Rule { name: "links", promise: "relative links in *.md name files of the project", offences };

fn offences(project: &Project) -> Vec<Offence> {
    let places = places_of(project);
    let mut offences = Vec::new();
    for (file, text) in project.written_files().filter(|(file, _)| file.path.ends_with(".md")) {
        for (line, target) in links(text) {
            let Some(relative) = relative_path(&target) else { continue };
            let place = resolve(&file.path, &relative);
            if !place.is_some_and(|place| places.contains(place.as_str())) {
                let message = format!("the link to `{target}` leads to no file of the project");
                offences.push(Offence::at_line(&file.path, line, message));
            }
        }
    }
    offences
}

/// The paths of all files and of the directories that hold them; the root is "".
fn places_of(project: &Project) -> BTreeSet<&str> {
    let mut places = BTreeSet::from([""]);
    for file in &project.files {
        places.insert(&file.path);
        places.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    places
}

/// The path in a link's target, or `None` when the target is on the web or in the same file.
pub fn relative_path(target: &str) -> Option<String> {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let has_scheme = path.split('/').next().is_some_and(|first| first.contains(':'));
    if path.is_empty() || has_scheme || path.starts_with("//") {
        return None;
    }
    Some(path.replace("%20", " "))
}

/// The place that `relative` names in the file `from`; `None` when it is outside of the project.
pub fn resolve(from: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if relative.starts_with('/') {
        parts.clear();
    }
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The targets of all links of a Markdown text with their lines: `[text](target)`, images, and
/// definitions `[name]: target`. Code is left out.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let plain = without_code(text);
    let lines = plain.lines().enumerate();
    let found = lines.flat_map(|(index, line)| {
        targets_in(line).into_iter().map(move |target| (index + 1, target))
    });
    found.collect()
}

/// The text with blanks in place of all code, so that each other byte keeps its place.
pub fn without_code(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut open_fence: Option<String> = None;
    for line in text.split_inclusive('\n') {
        let fence = fence_of(line);
        match (&open_fence, fence) {
            (None, None) => plain.push_str(&without_spans(line)),
            (open, fence) => {
                let is_closed = matches!((open, &fence), (Some(open), Some(fence))
                    if fence.starts_with(open.as_str()));
                if open.is_none() || is_closed {
                    open_fence = fence.filter(|_| !is_closed);
                }
                plain.push_str(&blank(line));
            }
        }
    }
    plain
}

/// Blanks, one for each byte of the text; ends of lines stay.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

/// The run of backticks or tildes that opens or closes a block of code.
fn fence_of(line: &str) -> Option<String> {
    let line = line.trim_start().trim_start_matches("> ");
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let run: String = line.chars().take_while(|c| *c == mark).collect();
    (run.len() >= 3).then_some(run)
}

/// The line with blanks in place of all between backticks.
fn without_spans(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let run: String = rest[start..].chars().take_while(|c| *c == '`').collect();
        let inside = &rest[start + run.len()..];
        let Some(end) = inside.find(&run) else { break };
        text.push_str(&rest[..start]);
        let past = start + 2 * run.len() + end;
        text.push_str(&blank(&rest[start..past]));
        rest = &rest[past..];
    }
    text.push_str(rest);
    text
}

fn targets_in(line: &str) -> Vec<String> {
    let mut targets: Vec<String> =
        line.match_indices("](").map(|(at, _)| inline_target(&line[at + 2..])).collect();
    let trimmed = line.trim_start();
    if trimmed.starts_with('[')
        && !trimmed.starts_with("[^")
        && let Some((_, target)) = trimmed.split_once("]: ")
    {
        targets.push(first_word(target));
    }
    targets
}

/// The target at the start of `text`, up to the parenthesis that closes it or a title.
fn inline_target(text: &str) -> String {
    first_word(&text[..inline_end(text)])
}

/// The place of the parenthesis that closes the target at the start of `text`, or the text's end.
pub fn inline_end(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return at,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

fn first_word(target: &str) -> String {
    let target = target.trim();
    if let Some((inside, _)) = target.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        return inside.into();
    }
    target.split_whitespace().next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(markdown: &str) -> Vec<Option<usize>> {
        let project = Project::of(&[
            ("docs/start.md", markdown),
            ("README.md", "text"),
            ("docs/man/haul push.1", "text"),
            ("docs/a(b).md", "text"),
        ]);
        offences(&project).into_iter().map(|offence| offence.line).collect()
    }

    #[test]
    fn a_link_to_a_file_or_directory_of_the_project_is_in_order() {
        let markdown = "[a](../README.md#top) ![b](man) [c](<man/haul push.1>) [d](/README.md)\n\
            [e](man/haul%20push.1 \"title\") [f](a(b).md) [g](..)\n[h]: start.md\n";
        assert_eq!(broken(markdown), []);
    }

    #[test]
    fn a_link_to_nothing_is_an_offence() {
        assert_eq!(broken("text\n[a](missing.md) [b](README.md)\n"), [Some(2), Some(2)]);
        assert_eq!(broken("[a]: missing.md\n"), [Some(1)]);
        assert_eq!(broken("[a](../../README.md)\n"), [Some(1)]);
    }

    #[test]
    fn the_web_and_anchors_are_not_looked_at() {
        assert_eq!(broken("[a](https://example.com/x) [b](#here) [c](mailto:a@b.c)\n"), []);
    }

    #[test]
    fn code_holds_no_links() {
        let markdown = "```\n[a](missing.md)\n```\n`[a](missing.md)` ``x ` [a](b.md)``\n";
        assert_eq!(broken(markdown), []);
        assert_eq!(broken("~~~~\n~~~\n[a](b.md)\n~~~~\n[a](b.md)\n"), [Some(5)]);
    }
}
