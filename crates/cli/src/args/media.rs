//! `haul media`: what can be chosen, and its check.

use super::{usage_problem, values::Period};
use clap::Args;
use haul_media::{
    delivery::{Method, Readahead},
    pace::{Pacing, Rate},
    server::{Limits, Options},
    tls,
};
use haul_transfer::{events::Problem, size::parse_size};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

const PORT_DEFAULT: u16 = 8080;
const BUFFER_MEMORY: &str = "256M";

fn defaults() -> Options {
    Options::default()
}

/// Serves films and recordings over HTTP to players, browsers and ffmpeg
///
/// Whoever reaches the address may read all files below ROOT, and nothing above it. A directory is
/// shown as a page with players; parts of files, conditions and pages of other sites (CORS) work as
/// players expect. Without --listen only this machine reaches it.
#[derive(Debug, Args)]
pub struct LowMedia {
    /// The directory that is served
    #[arg(value_name = "ROOT")]
    pub root: PathBuf,
    /// The address and port to listen on, such as 0.0.0.0:8080; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Serve HTTPS with the certificate in this file (PEM; first its own, then those that sign it)
    ///
    /// SIGHUP reads it and its key again, as after a renewal; connections under way go on.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM, not encrypted); without it the file of --tls-cert has it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// How bytes get from a file into the network
    ///
    /// one-copy: from the page cache by sendfile(2); direct: past the page cache by O_DIRECT, which
    /// leaves it to other programs; normal: through a buffer by read(2) and write(2). one-copy and
    /// direct let the disk read in the order of the streams' deadlines (io_uring), and no stream
    /// waits for another's read.
    #[arg(long, value_name = "METHOD", default_value = defaults().method.name())]
    pub method: Method,
    /// Read nothing ahead of what is sent, neither the kernel nor haul: for comparison
    #[arg(long)]
    pub no_readahead: bool,
    /// Memory for --method direct; it is touched as it is needed
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(default_value = BUFFER_MEMORY)]
    pub buffer_memory: u64,
    /// Reads that the disk has at a time, in the order of their deadlines
    #[arg(long, value_name = "N", default_value_t = defaults().disk_depth as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub disk_depth: u32,
    /// Send films and sounds at this rate, such as 2M (bits a second), each period in its time
    ///
    /// A request may name its own: /film.mp4?rate=2M. Without either they are sent as fast as they
    /// are taken.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<Rate>,
    /// A period of a paced stream: what it plays in one is sent in the one before
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().pacing.period))]
    pub period: Period,
    /// What a paced stream gets at once, in the time that it plays: the player's buffer
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().pacing.start_up))]
    pub start_up: Period,
    /// Event loops, one a thread; without it one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub loops: Option<u32>,
    /// Connections at a time; the one that is idle longest makes room for a new one
    #[arg(long, value_name = "N", default_value_t = connections_default())]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// How long the head of a request may take
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().limits.head_time_max))]
    pub head_time: Period,
    /// How long a connection may be idle between two requests
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().limits.idle_time_max))]
    pub idle_time: Period,
    /// How long a client may take nothing of its answer
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().limits.stall_time_max))]
    pub stall_time: Period,
    /// How long answers may take to end after SIGTERM; the rest is cut
    #[arg(long, value_name = "TIME", default_value_t = Period(Duration::from_secs(30)))]
    pub drain_time: Period,
    /// Show no pages of directories
    #[arg(long)]
    pub no_index: bool,
    /// Keep pages of other sites from reading (no CORS)
    #[arg(long)]
    pub no_cors: bool,
    /// Write a line for each answer, in the combined log format; - for standard output
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Print one JSON object a line: first {"event":"listening","url":...}
    #[arg(long)]
    pub json: bool,
}

fn connections_default() -> u32 {
    u32::try_from(defaults().limits.connections_max).unwrap_or(u32::MAX)
}

impl LowMedia {
    /// What the library is asked for; the access log and the certificate are the command's.
    ///
    /// # Errors
    /// If an argument makes no sense.
    pub fn checked(&self) -> Result<Options, Problem> {
        let listen = address(&self.listen).ok_or_else(|| {
            let needs = "an address and a port, such as 0.0.0.0:8080 or [::1]:80";
            usage_problem("cannot take --listen", needs, &self.listen, "")
        })?;
        for (name, period) in [
            ("--head-time", &self.head_time),
            ("--idle-time", &self.idle_time),
            ("--stall-time", &self.stall_time),
            ("--period", &self.period),
        ] {
            if period.0.is_zero() {
                let what = format!("cannot take {name}");
                return Err(usage_problem(&what, "more than nothing", "0s", ""));
            }
        }
        if self.json && self.access_log.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            let what = "cannot write the access log to standard output";
            let found = "--json, whose lines go there";
            return Err(usage_problem(what, "a file", found, "name a file with --access-log"));
        }
        let own = defaults();
        let loops = self.loops.map_or(own.loops, |loops| loops as usize);
        let limits = Limits {
            connections_max: (self.max_connections as usize).div_ceil(loops),
            head_time_max: self.head_time.0,
            idle_time_max: self.idle_time.0,
            stall_time_max: self.stall_time.0,
            ..own.limits
        };
        Ok(Options {
            listen,
            loops,
            method: self.method,
            readahead: if self.no_readahead { Readahead::Off } else { Readahead::Kernel },
            buffer_bytes: self.buffer_memory,
            disk_depth: self.disk_depth as usize,
            has_index: !self.no_index,
            is_open_to_pages: !self.no_cors,
            limits,
            rate: self.rate,
            pacing: Pacing { period: self.period.0, start_up: self.start_up.0 },
            access_log: None,
            certificate: None,
        })
    }

    /// Where the certificate and its key lie.
    #[must_use]
    pub fn tls_files(&self) -> Option<tls::Files> {
        let certificate = self.tls_cert.clone()?;
        let key = self.tls_key.clone().unwrap_or_else(|| certificate.clone());
        Some(tls::Files { certificate, key })
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text).ok_or_else(|| "needs bits a second, such as 1500k or 2.5M".to_owned())
}

/// `0.0.0.0:80`, `::1`, `[::1]`, `localhost:80`, `:80`.
fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, PORT_DEFAULT));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "8080"));
    let port = port.parse().ok()?;
    match host {
        "localhost" => Some(SocketAddr::from(([127, 0, 0, 1], port))),
        "" | "*" => Some(SocketAddr::from(([0, 0, 0, 0], port))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_memory_is_the_librarys() {
        assert_eq!(parse_size(BUFFER_MEMORY).ok(), Some(defaults().buffer_bytes));
    }

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for (text, listen) in [
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("10.0.0.1", Some("10.0.0.1:8080")),
            ("::1", Some("[::1]:8080")),
            ("[::]", Some("[::]:8080")),
            ("[::]:0", Some("[::]:0")),
            (":80", Some("0.0.0.0:80")),
            ("localhost", Some("127.0.0.1:8080")),
            ("example.org:80", None),
            ("127.0.0.1:99999", None),
        ] {
            let listen: Option<SocketAddr> = listen.map(|text| text.parse().unwrap());
            assert_eq!(address(text), listen, "{text}");
        }
    }
}
