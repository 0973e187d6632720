//! A crowd at another HTTP server: what viewers see of it.

use super::{
    crowd::{Cell, Run, Sample, arrivals, watched},
    crowd_tables,
    server::{Used, memory_bytes},
};
use crate::{
    host_facts,
    media::request::{Against, BenchMedia},
    workshop::Workshop,
};
use anyhow::{Context, Result, bail, ensure};
use haul_media::viewers::Crowd;
use haul_report::{host_facts::BenchWire, results::Results};
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

/// Periods that a player buffers of another server, which is not told the rate.
const BUFFER_PERIODS: u32 = 3;
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);
/// Most bytes of a page with links.
const PAGE_BYTES_MAX: u64 = 4 << 20;

pub(super) fn results(plan: &BenchMedia, other: &Against, workshop: &Workshop) -> Result<Results> {
    let address = address(other)?;
    let mut films = films(other, address)?;
    films.truncate(plan.crowd.films as usize);
    let mut cell = Cell::new(format!("http://{}{}", other.server, other.path), None);
    let steps = workshop.steps(plan.rounds as usize);
    for round in 0..plan.rounds {
        steps.begin("a crowd at another server");
        let crowd = Crowd {
            address,
            targets: films.clone(),
            arrivals: arrivals(&plan.crowd, round, films.len()),
            rate: plan.crowd.rate,
            period: plan.crowd.period,
            prebuffer: plan.crowd.period,
            start_up: Duration::ZERO,
            asks_again: None,
            buffer: Some(plan.crowd.period * BUFFER_PERIODS),
            time: Duration::MAX,
            until: plan.crowd.time(),
        };
        cell.runs.push(run(crowd, other, workshop)?);
    }
    drop(steps);
    let facts = host_facts::of_media(&workshop.host, Some(ELSEWHERE.to_owned()), wire(other));
    Ok(crowd_tables::against(plan, facts, films.len(), &cell))
}

const ELSEWHERE: &str = "the other server's";

fn wire(other: &Against) -> BenchWire {
    BenchWire::to(&other.server)
}

fn run(crowd: Crowd, other: &Against, workshop: &Workshop) -> Result<Run> {
    let now = || Used::of(&other.pids);
    let before = now()?;
    let looks = |before: Used| {
        move || if other.pids.is_empty() { None } else { Some(now().ok()?.since(before)) }
    };
    let watched = watched(crowd, workshop, looks(before))?;
    let used = match &other.pids[..] {
        [] => None,
        _ => Some(now()?.since(before)),
    };
    let samples: Vec<Sample> = watched.samples;
    Ok(Run {
        seen: watched.seen,
        used,
        memory_bytes: memory_bytes(&other.pids),
        samples,
        counted: None,
        asked_bytes_per_s: 0,
        disk: None,
    })
}

fn address(other: &Against) -> Result<SocketAddr> {
    let found = other.server.to_socket_addrs();
    let mut found = found.with_context(|| format!("{} has no address", other.server))?;
    found.next().with_context(|| format!("{} has no address", other.server))
}

/// Targets of the films: the path itself, or what its directory's page links to.
fn films(other: &Against, address: SocketAddr) -> Result<Vec<String>> {
    let path = &other.path;
    if !path.ends_with('/') {
        return Ok(vec![path.clone()]);
    }
    let page = page(other, address)
        .with_context(|| format!("cannot read the page http://{}{path}", other.server))?;
    let films = links(&page, path);
    ensure!(
        !films.is_empty(),
        "the page http://{}{path} links to no file: give the URL of a film",
        other.server
    );
    Ok(films)
}

fn page(other: &Against, address: SocketAddr) -> Result<String> {
    let mut socket = TcpStream::connect_timeout(&address, PAGE_TIME_MAX)?;
    socket.set_read_timeout(Some(PAGE_TIME_MAX))?;
    let (server, path) = (&other.server, &other.path);
    // HTTP/1.0 gets a body that ends with the connection, in no chunks.
    write!(socket, "GET {path} HTTP/1.0\r\nHost: {server}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    socket.take(PAGE_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").context("it is no answer of HTTP")?;
    let line = head.lines().next().unwrap_or_default();
    if line.split(' ').nth(1) != Some("200") {
        bail!("it answered {line:?}");
    }
    Ok(body.to_owned())
}

/// Paths that a page links to in its own directory, each once, by name.
fn links(page: &str, path: &str) -> Vec<String> {
    let quoted = page.split("href=").skip(1).filter_map(|rest| {
        let quote = rest.chars().next().filter(|sign| ['"', '\''].contains(sign))?;
        rest[1..].split(quote).next()
    });
    let names = quoted.filter_map(|link| {
        let name = link.strip_prefix(path).unwrap_or(link).trim_start_matches("./");
        let name = name.split(['?', '#']).next().unwrap_or_default();
        (!name.is_empty() && !name.contains(['/', ':', ' '])).then(|| format!("{path}{name}"))
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_s_links_are_the_films_of_its_directory() {
        let page = "<a href=\"../\">up</a> <a href='b.mp4'>b</a> <a href=\"/films/a.mp4?x=1\">a</a>
            <a href=\"?C=M\">sort</a> <a href=\"https://else.org/c.mp4\">c</a> <a href=\"sub/\">
            <a href=\"b.mp4\"> <a href=bare>";
        assert_eq!(links(page, "/films/"), ["/films/a.mp4", "/films/b.mp4"]);
    }
}
