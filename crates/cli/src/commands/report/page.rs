//! The page of `haul report`: the fleet's rate, and a chart for each node.

use super::{
    json::seconds_from,
    tables::{failed, finish, nodes, slowest, sums},
};
use crate::ui::units;
use haul_report::{
    chart::{Across, Line, lines},
    html_page::{Page, Section},
};
use haul_transfer::{Fleet, NodeReport, Plan, Rates};
use std::path::Path;

/// The whole page.
pub fn page(plan: &Plan, fleet: &Fleet, place: &Path) -> Page {
    let mut fleets = Section {
        title: "The fleet".to_owned(),
        words: slowest(fleet),
        tables: vec![nodes(fleet, fleet.nodes.len())],
        ..Section::default()
    };
    fleets.charts.push(chart("All nodes", &fleet.rates, fleet));
    let mut sections = vec![fleets];
    let failed = failed(fleet);
    if !failed.is_empty() {
        let title = "What failed".to_owned();
        sections.push(Section { title, words: failed, ..Section::default() });
    }
    let title = "What finishes it".to_owned();
    sections.push(Section { title, words: finish(plan, fleet, place), ..Section::default() });
    sections.extend(fleet.nodes.iter().map(|node| of_node(node, fleet)));
    let mut facts = vec![
        ("plan".to_owned(), place.display().to_string()),
        ("source".to_owned(), plan.source.to_string()),
    ];
    if let Some((began_ms, last_ms)) = fleet.span_ms {
        facts.push(("first run".to_owned(), units::moment(began_ms)));
        facts.push(("last heard".to_owned(), units::moment(last_ms)));
    }
    Page {
        title: format!("haul: {}", plan.source),
        words: sums(plan, fleet),
        facts,
        sections,
        ..Page::default()
    }
}

fn of_node(node: &NodeReport, fleet: &Fleet) -> Section {
    let limited = match (&node.verdict[..], &node.limited_by[..]) {
        ("", "") => "What limited it is not known.".to_owned(),
        ("", stage) => format!("{stage} held it back for {}.", units::percent(node.share)),
        (verdict, _) => verdict.to_owned(),
    };
    Section {
        title: format!("Node {}", node.host),
        words: vec![limited],
        charts: vec![chart(&node.host, &node.rates, fleet)],
        ..Section::default()
    }
}

/// A chart of rates from the begin of the first run to the end of the last, for all nodes alike.
fn chart(title: &str, rates: &Rates, fleet: &Fleet) -> String {
    let (origin_ms, last_ms) = fleet.span_ms.unwrap_or_default();
    let mut points: Vec<(f64, f64)> = Vec::new();
    let end = |points: &[(f64, f64)]| points.last().map_or(0.0, |point| point.0);
    for (at_ms, rate) in rates.points() {
        let at = seconds_from(origin_ms, at_ms);
        if points.is_empty() && at > 0.0 {
            points.extend([(0.0, 0.0), (at, 0.0)]);
        }
        // A rate holds for its whole interval.
        let until = seconds_from(origin_ms, at_ms + (rates.seconds() * 1000.0) as u64);
        points.extend([(at.max(end(&points)), rate), (until, rate)]);
    }
    let whole = seconds_from(origin_ms, last_ms);
    let last = end(&points);
    if !points.is_empty() && last < whole {
        points.extend([(last, 0.0), (whole, 0.0)]);
    }
    lines(title, "Gbit/s", Across::Seconds, &[Line { label: "moved".to_owned(), points }])
}
