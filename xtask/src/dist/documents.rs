//! Documents of a release: their links lead to files that are in it.
//!
//! A document has another place in a release than in the project, and not all that it names comes
//! along. A link to a file that is there is pointed at its place; of any other the words stay.

use std::collections::BTreeMap;

use crate::tidy::links::{inline_end, relative_path, resolve, without_code};

/// Paths of files and directories of the project, and their places in a release.
pub type Places = BTreeMap<String, String>;

/// The text of the document `from` of the project, as it is to be read at its place `to`.
pub fn relinked(text: &str, from: &str, to: &str, places: &Places) -> String {
    let plain = without_code(text);
    let mut told = String::with_capacity(text.len());
    let mut done = 0;
    for (middle, _) in plain.match_indices("](") {
        let start = middle + 2;
        let end = start + inline_end(&plain[start..]);
        let Some(open) = opening(&plain[..middle]).filter(|open| *open >= done) else { continue };
        let target = &text[start..end];
        let Some(path) = relative_path(target) else { continue };
        match resolve(from, &path).and_then(|path| places.get(&path)) {
            Some(place) => {
                let anchor = target.find('#').map_or("", |at| &target[at..]);
                told.extend([&text[done..start], &relative(to, place), anchor]);
                done = end;
            }
            None => {
                told.extend([&text[done..open], &text[open + 1..middle]]);
                done = (end + 1).min(text.len());
            }
        }
    }
    told + &text[done..]
}

/// The place of the bracket that opens the words of a link, which end where `text` does.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The path from the file `from` to the file or directory `to`, both below the same directory.
fn relative(from: &str, to: &str) -> String {
    let above: Vec<&str> = from.split('/').collect();
    let above = &above[..above.len() - 1];
    let parts: Vec<&str> = to.split('/').collect();
    let same = above.iter().zip(&parts).take_while(|(one, other)| one == other).count();
    let same = same.min(parts.len() - 1);
    let up = above[same..].iter().map(|_| "..");
    up.chain(parts[same..].iter().copied()).collect::<Vec<_>>().join("/")
}

/// Links of the documents below `tree` that lead nowhere there, each with its document.
#[cfg(test)]
pub fn dead_links(tree: &std::path::Path) -> Vec<String> {
    let mut dead = Vec::new();
    let mut directories = vec![tree.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                let own = path.strip_prefix(tree).unwrap().to_str().unwrap();
                for (line, target) in crate::tidy::links::links(&text) {
                    let Some(relative) = relative_path(&target) else { continue };
                    let place = resolve(own, &relative);
                    if !place.is_some_and(|place| tree.join(place).exists()) {
                        dead.push(format!("{own}:{line}: {target}"));
                    }
                }
            }
        }
    }
    dead
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let places = [("docs/install.md", "INSTALL.md"), ("docs/man", "man"), ("A.md", "A.md")];
        let places = places.map(|(path, place)| (path.to_owned(), place.to_owned())).into();
        relinked(text, "docs/install.md", "INSTALL.md", &places)
    }

    #[test]
    fn a_link_to_a_file_of_the_release_leads_to_its_place() {
        assert_eq!(read("a [b `c`](../A.md#top), [d](man/)."), "a [b `c`](A.md#top), [d](man).");
        assert_eq!(relative("usr/share/doc/haul/README.md", "usr/share/man"), "../../man");
        assert_eq!(relative("docs/a.md", "docs"), "../docs");
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_becomes_its_words() {
        assert_eq!(read("[a\nb](../code.rs) c ([d](e.md)), [f](../A.md)"), "a\nb c (d), [f](A.md)");
    }

    #[test]
    fn the_web_anchors_and_code_stay_as_they_are() {
        let text = "[a](https://example.com/x) [b](#here)\n`[c](d.md)`\n```\n[e](f.md)\n```\n";
        assert_eq!(read(text), text);
    }
}
