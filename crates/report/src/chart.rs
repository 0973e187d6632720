//! Charts as SVG inside a page: bars with ranges, lines over time or over sizes.
//!
//! Colours come from the page's style, so that a chart follows the reader's light or dark scheme;
//! a chart library would draw fixed ones.

use crate::{markup::escaped, units};
use std::fmt::Write as _;

/// Width of all charts in user units; the page scales them.
const WIDTH: f64 = 900.0;
const LINE_CHART_HEIGHT: f64 = 340.0;
const TITLE_HEIGHT: f64 = 30.0;
const BAR_HEIGHT: f64 = 15.0;
const BAR_GAP: f64 = 4.0;
const GROUP_GAP: f64 = 7.0;
/// Width of a letter of the page's font, about.
const LETTER_WIDTH: f64 = 7.2;
/// Number of colours on the page; the next series begins with the first again.
const COLOURS: usize = 8;
/// Longest times, in seconds, that are told in seconds and in minutes.
const SECONDS_MAX: f64 = 600.0;
const MINUTES_MAX: f64 = 4.0 * 3600.0;
/// Fewest steps of a scale.
const STEPS_MIN: f64 = 4.0;

/// A group of bars: a value and the range of its rounds for each series.
#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    /// Values, one for each series in their order; `None` is a gap.
    pub values: Vec<Option<BarValue>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BarValue {
    pub value: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl From<f64> for BarValue {
    fn from(value: f64) -> Self {
        Self { value, lowest: value, highest: value }
    }
}

/// Draws horizontal bars, a group for each label and a colour for each series.
#[must_use]
pub fn bars(title: &str, unit: &str, series: &[&str], bars: &[Bar]) -> String {
    let values = || bars.iter().flat_map(|bar| &bar.values).flatten();
    let top = nice_above(values().map(|value| value.highest).fold(0.0, f64::max));
    let letters = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
    let left = (letters as f64 * LETTER_WIDTH + 16.0).clamp(80.0, WIDTH / 2.0);
    let right = 60.0;
    let x = |value: f64| left + (WIDTH - left - right) * value / top;
    let group = |bar: &Bar| bar.values.len() as f64 * (BAR_HEIGHT + BAR_GAP) + GROUP_GAP;
    let legend_height = if series.len() > 1 { 22.0 } else { 0.0 };
    let begin = TITLE_HEIGHT + legend_height + 18.0;
    let height = begin + bars.iter().map(group).sum::<f64>() + 10.0;
    let mut svg = opening(title, unit, height);
    if series.len() > 1 {
        legend(&mut svg, series, TITLE_HEIGHT + 8.0);
    }
    for step in steps(top) {
        let at = x(step);
        line(&mut svg, "grid", (at, begin - 4.0), (at, height - 6.0));
        text(&mut svg, "soft", "middle", (at, begin - 8.0), &number(step));
    }
    let mut y = begin;
    for bar in bars {
        let middle = y + (group(bar) - GROUP_GAP) / 2.0 + 3.0;
        text(&mut svg, "", "end", (left - 8.0, middle), &bar.label);
        for (at, value) in bar.values.iter().enumerate() {
            if let Some(BarValue { value, lowest, highest }) = *value {
                let width = (x(value) - left).max(0.5);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                     height=\"{BAR_HEIGHT}\" rx=\"2\" style=\"fill:var(--c{})\"/>",
                    at % COLOURS
                );
                let centre = y + BAR_HEIGHT / 2.0;
                if highest > lowest {
                    line(&mut svg, "range", (x(lowest), centre), (x(highest), centre));
                }
                let beyond = (x(highest.max(value)) + 5.0, centre + 4.0);
                text(&mut svg, "soft", "start", beyond, &number(value));
            }
            y += BAR_HEIGHT + BAR_GAP;
        }
        y += GROUP_GAP;
    }
    svg + "</svg>\n"
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

/// Kind of the numbers below a chart, and how they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Seconds, from 0.
    Seconds,
    /// Bytes, each power of two as far from the next.
    Bytes,
    /// Numbers of streams, each power of two as far from the next.
    Streams,
}

/// Draws lines above an axis of time or of sizes.
#[must_use]
pub fn lines(title: &str, unit: &str, across: Across, drawn: &[Line]) -> String {
    let points = || drawn.iter().flat_map(|line| &line.points);
    let top = nice_above(points().map(|point| point.1).fold(0.0, f64::max));
    let place = |value: f64| match across {
        Across::Seconds => value,
        Across::Bytes | Across::Streams => value.max(1.0).log2(),
    };
    let last = points().map(|point| place(point.0)).fold(f64::NEG_INFINITY, f64::max);
    let first = match across {
        Across::Seconds => 0.0,
        Across::Bytes | Across::Streams => {
            points().map(|point| place(point.0)).fold(f64::INFINITY, f64::min)
        }
    };
    let (left, right, begin) = (56.0, 24.0, TITLE_HEIGHT + 34.0);
    let height = LINE_CHART_HEIGHT;
    let bottom = height - 34.0;
    let span = if last > first { last - first } else { 1.0 };
    let x = |value: f64| left + (WIDTH - left - right) * (place(value) - first) / span;
    let y = |value: f64| bottom - (bottom - begin) * value / top;
    let mut svg = opening(title, unit, height);
    let labels: Vec<&str> = drawn.iter().map(|line| line.label.as_str()).collect();
    legend(&mut svg, &labels, TITLE_HEIGHT + 8.0);
    for step in steps(top) {
        line(&mut svg, "grid", (left, y(step)), (WIDTH - right, y(step)));
        text(&mut svg, "soft", "end", (left - 6.0, y(step) + 4.0), &number(step));
    }
    for (value, label) in marks(across, first, last) {
        text(&mut svg, "soft", "middle", (x(value), bottom + 18.0), &label);
    }
    for (at, drawn) in drawn.iter().enumerate() {
        let mut path = String::new();
        for (step, (across, up)) in drawn.points.iter().enumerate() {
            let letter = if step == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", x(*across), y(*up));
        }
        let colour = at % COLOURS;
        // Few sizes were measured, and many times; but of one time there is no line.
        let is_seen = across != Across::Seconds || drawn.points.len() == 1;
        let measured = drawn.points.iter().filter(|_| is_seen);
        for (across, up) in measured {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" style=\"fill:var(--c{colour})\"/>",
                x(*across),
                y(*up)
            );
        }
        let _ = writeln!(svg, "<path d=\"{path}\" style=\"stroke:var(--c{colour})\"/>");
    }
    svg + "</svg>\n"
}

/// Marks below a chart: numbers, and how they are written.
fn marks(across: Across, first: f64, last: f64) -> Vec<(f64, String)> {
    match across {
        Across::Seconds if last > 0.0 => {
            let (unit, seconds) = match last {
                ..=SECONDS_MAX => ("s", 1.0),
                ..=MINUTES_MAX => ("min", 60.0),
                _ => ("h", 3600.0),
            };
            let top = nice_above(last / seconds);
            let within = steps(top).into_iter().filter(|step| *step <= last / seconds);
            within.map(|step| (step * seconds, format!("{} {unit}", number(step)))).collect()
        }
        Across::Bytes if last.is_finite() && first.is_finite() => {
            let powers = first.ceil() as i32..=last.floor() as i32;
            let label = |power: i32| match power {
                30.. => format!("{} GiB", 1_u64 << (power - 30)),
                20..30 => format!("{} MiB", 1_u64 << (power - 20)),
                10..20 => format!("{} KiB", 1_u64 << (power - 10)),
                _ => format!("{} B", 1_u64 << power.max(0)),
            };
            powers.map(|power| (2_f64.powi(power), label(power))).collect()
        }
        Across::Streams if last.is_finite() && first.is_finite() => {
            let powers = first.ceil() as i32..=last.floor() as i32;
            powers.map(|power| (2_f64.powi(power), streams(1 << power.max(0)))).collect()
        }
        _ => Vec::new(),
    }
}

fn streams(count: u64) -> String {
    units::count(count, "stream")
}

fn opening(title: &str, unit: &str, height: f64) -> String {
    let title = escaped(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n<text class=\"title\" x=\"8\" y=\"20\">{title}\
         </text>\n<text class=\"soft\" x=\"{}\" y=\"20\" text-anchor=\"end\">{}</text>\n",
        WIDTH - 8.0,
        escaped(unit)
    )
}

fn legend(svg: &mut String, series: &[&str], y: f64) {
    let mut x = 8.0;
    for (at, label) in series.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"11\" height=\"11\" rx=\"2\" \
             style=\"fill:var(--c{})\"/>",
            at % COLOURS
        );
        text(svg, "", "start", (x + 16.0, y + 10.0), label);
        x += 34.0 + label.chars().count() as f64 * LETTER_WIDTH;
    }
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(svg: &mut String, class: &str, anchor: &str, at: (f64, f64), words: &str) {
    let words = escaped(words);
    let (x, y) = at;
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

/// End of a scale: the next multiple of its step.
fn nice_above(value: f64) -> f64 {
    let step = step_for(value);
    (value / step).ceil().max(1.0) * step
}

/// Marks of a scale: 0 and every step up to its end.
fn steps(top: f64) -> Vec<f64> {
    let step = step_for(top);
    let count = (top / step).round() as u32;
    (0..=count).map(|at| f64::from(at) * step).collect()
}

/// Step of a scale: 1, 2 or 5 times a power of ten, so that there are several steps but not many.
fn step_for(top: f64) -> f64 {
    if !top.is_finite() || top <= 0.0 {
        return 1.0;
    }
    let rough = top / STEPS_MIN;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|factor| factor * power <= rough * 1.000_001);
    factor.unwrap_or(1.0) * power
}

/// A number as short as three digits allow.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        v if v < 0.1 => 3,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_ends_above_its_values_in_round_steps() {
        assert_eq!(steps(nice_above(6.7)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert!(steps(nice_above(0.0)).len() >= 2);
        for value in [0.013, 0.9, 1.0, 42.0, 99.9, 12_345.0] {
            let top = nice_above(value);
            assert!(top >= value && steps(top).len() <= 12, "{value}: {:?}", steps(top));
        }
    }

    #[test]
    fn bars_show_every_value_and_gap_and_no_foreign_markup() {
        let value = BarValue { value: 2.0, lowest: 1.0, highest: 3.0 };
        let drawn = [
            Bar { label: "<b>".into(), values: vec![Some(value), Some(0.5.into())] },
            Bar { label: "refused".into(), values: vec![None, None] },
        ];
        let svg = bars("Rates", "GB/s", &["send", "receive"], &drawn);
        assert_eq!(svg.matches("<rect").count(), 2 + 2, "two bars, two of the legend: {svg}");
        assert_eq!(svg.matches("class=\"range\"").count(), 1);
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn a_long_time_has_minutes_or_hours_below_it() {
        for (seconds, says) in [(600.0, ">500 s<"), (3600.0, ">50 min<"), (86_400.0, ">20 h<")] {
            let line = Line { label: "a".into(), points: vec![(0.0, 1.0), (seconds, 1.0)] };
            let svg = lines("Rate", "Gbit/s", Across::Seconds, &[line]);
            assert!(svg.contains(says), "{says}: {svg}");
        }
    }

    #[test]
    fn lines_without_points_are_no_reason_to_fail() {
        for across in [Across::Seconds, Across::Bytes, Across::Streams] {
            let none = Line { label: "none".into(), points: Vec::new() };
            let svg = lines("Nothing", "GB/s", across, &[none]);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let sizes = vec![(4096.0, 1.0), (65_536.0, 3.0), (4_194_304.0, 4.0)];
        let svg = lines("B", "", Across::Bytes, &[Line { label: "a".into(), points: sizes }]);
        assert!(svg.contains("4 KiB") && svg.contains("4 MiB"), "{svg}");
    }
}
