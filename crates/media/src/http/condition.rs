//! Conditional requests: whether the client still has the file it means (RFC 9110, 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Validators by which a client knows a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// Strong entity tag, with its quotes.
    pub entity_tag: String,
    pub modified: SystemTime,
}

/// The fields of a request that ask for a condition, as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub if_match: Option<Vec<u8>>,
    pub if_none_match: Option<Vec<u8>>,
    pub if_modified_since: Option<Vec<u8>>,
    pub if_unmodified_since: Option<Vec<u8>>,
    pub if_range: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Send,
    /// Answer 304: the client has the file already.
    NotModified,
    /// Answer 412: the file is not the one that the client means.
    Failed,
}

/// Age from which a date tells a file's version, as dates have whole seconds.
const DATE_SETTLES: Duration = Duration::from_secs(2);

/// Judges a request's conditions in the order of RFC 9110, 13.2.2. Times are compared for being the
/// same, as a file may be put back to an older one.
#[must_use]
pub fn judge(conditions: &Conditions, validators: &Validators) -> Outcome {
    let Conditions { if_match, if_none_match, if_modified_since, if_unmodified_since, .. } =
        conditions;
    let modified = seconds(validators.modified);
    if let Some(since) = if_unmodified_since
        && http_seconds(since).is_none_or(|since| modified > since)
    {
        return Outcome::Failed;
    }
    if let Some(tags) = if_match
        && !lists(tags, &validators.entity_tag, Comparison::Strong)
    {
        return Outcome::Failed;
    }
    if if_none_match.is_none() && if_modified_since.is_none() {
        return Outcome::Send;
    }
    if let Some(since) = if_modified_since
        && http_seconds(since) != Some(modified)
    {
        return Outcome::Send;
    }
    if let Some(tags) = if_none_match
        && !lists(tags, &validators.entity_tag, Comparison::Weak)
    {
        return Outcome::Send;
    }
    Outcome::NotModified
}

/// Whether a range is sent: it is of use to a client only if the file is the one it has a part of
/// (RFC 9110, 13.1.5). A date of the last second says nothing: the file may have changed since,
/// within it (8.8.2.2).
#[must_use]
pub fn range_holds(conditions: &Conditions, validators: &Validators, now: SystemTime) -> bool {
    let is_settled = || {
        let age = now.duration_since(validators.modified);
        age.is_ok_and(|age| age >= DATE_SETTLES)
    };
    match &conditions.if_range {
        None => true,
        // A tag ends with a quote, a date does not. A weak one never holds.
        Some(value) if value.len() >= 2 && value.ends_with(b"\"") => {
            *value == validators.entity_tag.as_bytes()
        }
        Some(value) => is_settled() && http_seconds(value) == Some(seconds(validators.modified)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Strong,
    /// Weak comparison: `W/"a"` is `"a"`.
    Weak,
}

/// Whether a field holds `*`, or tags with commas between them, of which one is `own`.
fn lists(value: &[u8], own: &str, comparison: Comparison) -> bool {
    if value == b"*" {
        return true;
    }
    let mut rest = value;
    while !rest.is_empty() {
        rest = rest.trim_ascii_start();
        let weak = rest.strip_prefix(b"W/").filter(|_| comparison == Comparison::Weak);
        rest = weak.unwrap_or(rest);
        if let Some(behind) = rest.strip_prefix(own.as_bytes())
            && matches!(behind.trim_ascii_start(), [] | [b',', ..])
        {
            return true;
        }
        // A comma within quotes belongs to the tag.
        let mut quoted = false;
        let end = rest.iter().position(|&byte| {
            quoted ^= byte == b'"';
            byte == b',' && !quoted
        });
        rest = end.map_or(&[][..], |end| &rest[end + 1..]);
    }
    false
}

fn http_seconds(value: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    Some(seconds(time))
}

/// Whole seconds since 1970, as HTTP knows no others.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn validators() -> Validators {
        let modified = UNIX_EPOCH + Duration::from_millis(784_111_777_500);
        Validators { entity_tag: "\"a-1\"".to_owned(), modified }
    }

    fn conditions(fields: &[(&str, &str)]) -> Conditions {
        let mut all = Conditions::default();
        for (name, value) in fields {
            let value = Some(value.as_bytes().to_vec());
            match *name {
                "if-match" => all.if_match = value,
                "if-none-match" => all.if_none_match = value,
                "if-modified-since" => all.if_modified_since = value,
                "if-unmodified-since" => all.if_unmodified_since = value,
                _ => all.if_range = value,
            }
        }
        all
    }

    #[test]
    fn what_the_client_has_already_is_not_sent() {
        for (fields, expected) in [
            (&[][..], Outcome::Send),
            (&[("if-none-match", "\"a-1\"")], Outcome::NotModified),
            (&[("if-none-match", "\"b\", W/\"a-1\"")], Outcome::NotModified),
            (&[("if-none-match", "*")], Outcome::NotModified),
            (&[("if-none-match", "\"a\"")], Outcome::Send),
            (&[("if-none-match", "\"x, \"a-1\"\"")], Outcome::Send),
            (&[("if-modified-since", DATE)], Outcome::NotModified),
            (&[("if-modified-since", LATER)], Outcome::Send),
            (&[("if-modified-since", "yesterday")], Outcome::Send),
            (&[("if-modified-since", DATE), ("if-none-match", "\"b\"")], Outcome::Send),
            (&[("if-modified-since", LATER), ("if-none-match", "\"a-1\"")], Outcome::Send),
        ] {
            assert_eq!(judge(&conditions(fields), &validators()), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_file_that_is_another_fails_the_condition() {
        for (fields, expected) in [
            (&[("if-match", "\"a-1\"")], Outcome::Send),
            (&[("if-match", "*")], Outcome::Send),
            (&[("if-match", "W/\"a-1\"")], Outcome::Failed),
            (&[("if-match", "\"b\"")], Outcome::Failed),
            (&[("if-unmodified-since", DATE)], Outcome::Send),
            (&[("if-unmodified-since", LATER)], Outcome::Send),
            (&[("if-unmodified-since", "Sun, 06 Nov 1994 08:49:36 GMT")], Outcome::Failed),
            (&[("if-unmodified-since", "soon")], Outcome::Failed),
        ] {
            assert_eq!(judge(&conditions(fields), &validators()), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_range_is_of_the_very_file_that_the_client_knows() {
        for (value, holds) in [
            ("\"a-1\"", true),
            ("W/\"a-1\"", false),
            ("\"b\"", false),
            (DATE, true),
            (LATER, false),
            ("x", false),
        ] {
            let conditions = conditions(&[("if-range", value)]);
            let own = validators();
            let [soon, later] = [1, 2].map(|seconds| own.modified + Duration::from_secs(seconds));
            assert_eq!(range_holds(&conditions, &own, later), holds, "{value}");
            // A date says nothing yet, a tag does.
            let holds_soon = holds && value.ends_with('"');
            assert_eq!(range_holds(&conditions, &own, soon), holds_soon, "{value}");
        }
        assert!(range_holds(&Conditions::default(), &validators(), UNIX_EPOCH));
    }
}
