//! Shorthand of stored hosts: `cpu{0..31}` stands for 32 names.

/// Names or lines that a line of a stored host stands for, at most.
const NAMES_MAX: usize = 4096;

/// One stretch of a line: words as they are, or those that take each other's place.
enum Part<'text> {
    Plain(&'text str),
    OneOf(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Braces {
    /// Braces of a name: `{0..31}`, `{0..62..2}` and `{rx,tx}`.
    RangesAndLists,
    /// Braces of a value, ranges only: values hold JSON, which has braces and commas of its own.
    Ranges,
}

/// All names that `text` stands for; two groups multiply.
pub fn names(text: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    for part in parts(text, Braces::RangesAndLists)? {
        let words = match part {
            Part::Plain(words) => vec![words.to_owned()],
            Part::OneOf(words) => words,
        };
        if names.len() * words.len() > NAMES_MAX {
            return Err(format!("stands for more than {NAMES_MAX} names"));
        }
        let longer = |name: &String| words.iter().map(|word| format!("{name}{word}")).collect();
        names = names.iter().flat_map::<Vec<_>, _>(longer).collect();
    }
    Ok(names)
}

/// The lines that `text` stands for, one if it holds no range; ranges go on in step.
pub fn lines(text: &str) -> Result<Vec<String>, String> {
    let parts = parts(text, Braces::Ranges)?;
    let mut count = None;
    for part in &parts {
        let Part::OneOf(words) = part else { continue };
        if *count.get_or_insert(words.len()) != words.len() {
            return Err("has ranges of different lengths".to_owned());
        }
    }
    let line = |index: usize| {
        let word = |part: &Part| match part {
            Part::Plain(words) => (*words).to_owned(),
            Part::OneOf(words) => words[index].clone(),
        };
        parts.iter().map(word).collect()
    };
    Ok((0..count.unwrap_or(1)).map(line).collect())
}

fn parts(text: &str, braces: Braces) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut plain_from = 0;
    let mut at = 0;
    while let Some(open) = text[at..].find('{').map(|found| at + found) {
        let Some(close) = text[open..].find('}').map(|found| open + found) else { break };
        at = open + 1;
        let Some(words) = group(&text[open + 1..close], braces)? else { continue };
        parts.push(Part::Plain(&text[plain_from..open]));
        parts.push(Part::OneOf(words));
        (plain_from, at) = (close + 1, close + 1);
    }
    parts.push(Part::Plain(&text[plain_from..]));
    Ok(parts)
}

/// The words that braces stand for; `None` where they are none of ours.
fn group(inner: &str, braces: Braces) -> Result<Option<Vec<String>>, String> {
    let numbers: Option<Vec<u32>> = inner.split("..").map(|number| number.parse().ok()).collect();
    let (first, last, step) = match numbers.as_deref() {
        Some(&[first, last]) => (first, last, 1),
        Some(&[first, last, step]) => (first, last, step),
        _ if braces == Braces::RangesAndLists && inner.contains(',') => {
            return Ok(Some(inner.split(',').map(str::to_owned).collect()));
        }
        _ => return Ok(None),
    };
    if first > last || step == 0 {
        return Err(format!("has the range {{{inner}}}, which leads nowhere"));
    }
    if (last - first) as usize / step as usize >= NAMES_MAX {
        return Err(format!("has the range {{{inner}}}, which is longer than {NAMES_MAX}"));
    }
    let every = (first..=last).step_by(step as usize);
    Ok(Some(every.map(|number| number.to_string()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_of_a_name_multiply() {
        assert_eq!(names("/a/b").unwrap(), ["/a/b"]);
        assert_eq!(names("cpu{0..2}").unwrap(), ["cpu0", "cpu1", "cpu2"]);
        assert_eq!(names("cpu{1..5..2}/x").unwrap(), ["cpu1/x", "cpu3/x", "cpu5/x"]);
        assert_eq!(names("{r,w}mem_{max,default}").unwrap().len(), 4);
        assert_eq!(names("irqbalance{,.service}").unwrap(), ["irqbalance", "irqbalance.service"]);
    }

    #[test]
    fn ranges_of_a_value_go_on_in_step_and_json_is_left_alone() {
        assert_eq!(
            lines("{10..11}: mlx5_comp{0..1}").unwrap(),
            ["10: mlx5_comp0", "11: mlx5_comp1"]
        );
        let json = r#"[{"kind":"mq","options":{}},{"kind":"fq"}]"#;
        assert_eq!(lines(json).unwrap(), [json]);
        let queues = r#"{"parent":":{1..2}"},"#;
        assert_eq!(lines(queues).unwrap(), [r#"{"parent":":1"},"#, r#"{"parent":":2"},"#]);
        assert!(lines("{0..1} {0..2}").is_err());
    }

    #[test]
    fn what_leads_nowhere_or_too_far_is_refused() {
        for text in ["{3..1}", "{0..9..0}", "{0..4294967295}", "{0..99}{0..99}"] {
            assert!(names(text).is_err(), "{text}");
        }
    }
}
