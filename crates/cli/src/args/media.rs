//! Arguments of `haul media`, and their check.

use super::{LowState, usage_problem, values::Period};
use clap::{Args, Subcommand};
use haul_media::{
    delivery::{Behind, Method, Readahead},
    http::host_names::HostNames,
    pace::{Pacing, Rate},
    policy::RateChoice,
    server::{Limits, Options},
    status, tls,
};
use haul_transfer::{Problem, internals::parse_size};
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

const PORT_DEFAULT: u16 = 8080;
const STATUS_PORT_DEFAULT: u16 = 8081;
const BUFFER_MEMORY: &str = "256M";

/// The rate of a film by default: a quarter more than its container's average.
pub const AUTO: RateChoice = RateChoice::Container { factor: 1.25 };

fn defaults() -> Options {
    Options::default()
}

/// Serves films and recordings over HTTP to players, browsers and ffmpeg
///
/// Whoever reaches the address may read all files below ROOT, and nothing above it. A directory is
/// shown as a page with players; parts of files, conditions and pages of other sites (CORS) work as
/// players expect. Without --listen only this machine reaches it, and pages that its browser shows
/// may not.
///
/// A second address, which only this machine reaches too (--status), shows what the server does: /
/// is a dashboard for browsers, /metrics is for Prometheus, /api/sessions?limit=N has the streams
/// as JSON, /api/events a sample a second (SSE).
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LowMedia {
    #[command(subcommand)]
    pub command: Option<LowMediaCommand>,
    /// The directory that is served
    #[arg(value_name = "ROOT", required = true)]
    pub root: Option<PathBuf>,
    /// The address and port to listen on, such as 0.0.0.0:8080; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Address and port of the dashboard and its figures, or off
    ///
    /// Whoever reaches it sees who plays what. Without it 127.0.0.1:8081, or a free port where that
    /// is taken.
    #[arg(long, value_name = "ADDR|off")]
    pub status: Option<String>,
    /// A name that requests may be for (their Host field), such as a proxy's; may be given again
    ///
    /// The dashboard, and a server that only this machine reaches, answer requests for addresses,
    /// localhost and this machine's own name, and 421 to others, as another site's page may have
    /// its name lead here (DNS rebinding). With --cors on the server answers all.
    #[arg(long, value_name = "NAME")]
    pub host_name: Vec<String>,
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
    /// leaves it to other programs. Both let the disk read in the order of the streams' deadlines
    /// (io_uring), and no stream waits for another's read. For comparison: two-copy reads like
    /// one-copy and sends through a buffer by read(2) and send(2); normal only does the latter.
    #[arg(long, value_name = "METHOD", default_value = defaults().method.name())]
    pub method: Method,
    /// Read nothing ahead of what is sent, neither the kernel nor haul: for comparison
    #[arg(long)]
    pub no_readahead: bool,
    /// Pages of a film that one viewer alone watches: keep, drop, or auto
    ///
    /// auto drops them behind the viewer while less than an eighth of memory is unused, so that a
    /// long film does not push popular ones out of the page cache. The first 16 MiB of each film
    /// stay until the kernel needs them. For one-copy: direct leaves nothing there, and normal all.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = behind)]
    pub cache: Behind,
    /// Memory for --method direct; it is touched as it is needed
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[arg(default_value = BUFFER_MEMORY)]
    pub buffer_memory: u64,
    /// Reads that the disk has at a time, in the order of their deadlines
    #[arg(long, value_name = "N", default_value_t = defaults().disk_depth as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub disk_depth: u32,
    /// The rate of films and sounds: bits a second, such as 2M; auto; or max
    ///
    /// auto is that of each film's container (MP4, MPEG-TS and -PS, Matroska, WebM) and a quarter
    /// more, as no film needs its average all the time. Where it does not tell (MP3, FLAC, Ogg,
    /// AVI), and with max, it is sent as fast as it is taken, and takes no place. A request may
    /// name its own: /film.mp4?rate=2M. Where not everybody is admitted, it may not be slower than
    /// the film's, and max does not count. [default: auto]
    #[arg(long, value_name = "RATE", value_parser = rate_argument)]
    pub rate: Option<RateChoice>,
    /// Rates and priorities of paths, limits and other servers (TOML); SIGHUP reads it again
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Measure what a stream costs this disk, network and processor, for some seconds, and end
    ///
    /// From then on haul media of the same ROOT and method admits a stream only if all admitted
    /// ones keep their deadlines; the others get 503 and when to ask again.
    #[arg(long)]
    pub measure: bool,
    /// Admit no more paced streams than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_streams: Option<u64>,
    /// Rate of the network, such as 10G; kept with what --measure finds
    ///
    /// Without it --measure keeps the speed of the fastest card, as far as one tells it.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub network: Option<Rate>,
    /// Share of what was measured that stays free for what was not, in percent [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<u8>,
    /// The URL of a server where a stream is sent that finds no place here; may be repeated
    #[arg(long, value_name = "URL")]
    pub elsewhere: Vec<String>,
    #[command(flatten)]
    pub state: LowState,
    /// A paced stream is sent in parts that play this long, each while the one before is played
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().pacing.period))]
    pub period: Period,
    /// Time of play that a paced stream gets at once, for its player's buffer
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().pacing.start_up))]
    pub start_up: Period,
    /// Event loops, one a thread; without it one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub loops: Option<u32>,
    /// Connections at a time; the one that is idle longest makes room for a new one
    #[arg(long, value_name = "N", default_value_t = connections_default())]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
    /// Connections of one address at a time, of IPv6 of one /64: more are closed at once
    ///
    /// Without it any number, as many viewers may sit behind one address or proxy.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections_per_address: Option<u32>,
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
    /// Whether pages of other sites may read (CORS): on, off, or auto
    ///
    /// auto is off where only this machine reaches the server, as any page that its browser shows
    /// could read all films then; and on elsewhere, as players on other sites need it.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = cors)]
    pub cors: Cors,
    /// Write a line for each answer, in the combined log format; - for standard output
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Print one JSON object a line: first {"event":"listening","url":...,"status":...,"tls":...}
    ///
    /// Then every 10 s {"event":"sample",...} with the figures of /api/events and rates since the
    /// line before, and at last {"event":"ended",...}.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum LowMediaCommand {
    /// How many viewers there may be, by what was measured, and what limits them
    Capacity(LowCapacity),
}

/// Says how many viewers of a rate `haul media ROOT --measure` found room for, and why.
#[derive(Debug, Args)]
pub struct LowCapacity {
    /// The directory that was measured
    #[arg(value_name = "ROOT")]
    pub root: PathBuf,
    /// Rates of streams, in bits a second
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = rate)]
    #[arg(default_value = "1.5M,4M,8M,25M")]
    pub rate: Vec<Rate>,
    /// The method that was measured: one-copy, direct, two-copy or normal
    #[arg(long, value_name = "METHOD", default_value = defaults().method.name())]
    pub method: Method,
    /// A period of a stream
    #[arg(long, value_name = "TIME", default_value_t = Period(defaults().pacing.period))]
    pub period: Period,
    /// Rate of the network, such as 10G; without it what was measured
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub network: Option<Rate>,
    /// Share of what was measured that stays free for what was not, in percent [default: 10]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<u8>,
    #[command(flatten)]
    pub state: LowState,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn connections_default() -> u32 {
    u32::try_from(defaults().limits.connections_max).unwrap_or(u32::MAX)
}

/// Permission for pages of other sites to read what is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cors {
    /// Pages of all sites may, unless only this machine reaches the server.
    Auto,
    On,
    Off,
}

/// The address of the dashboard.
#[derive(Clone, Debug)]
pub enum StatusPlace {
    Off,
    /// The usual address, or any port where it is taken, as nobody named one.
    Preferred(status::Options),
    Named(status::Options),
}

impl LowMedia {
    /// Checks the address that the dashboard is asked for at.
    ///
    /// # Errors
    /// If it is no address.
    pub fn status_place(&self) -> Result<StatusPlace, Problem> {
        let names = HostNames::new(&self.host_name);
        let Some(text) = &self.status else {
            let listen = SocketAddr::from(([127, 0, 0, 1], STATUS_PORT_DEFAULT));
            return Ok(StatusPlace::Preferred(status::Options { listen, names }));
        };
        if text == "off" {
            return Ok(StatusPlace::Off);
        }
        let listen = address(text, STATUS_PORT_DEFAULT).ok_or_else(|| {
            let needs = "off, or an address and a port";
            let hint = "such as --status 0.0.0.0:8081 or --status [::1]:8081";
            usage_problem("cannot take --status", needs, text, hint)
        })?;
        Ok(StatusPlace::Named(status::Options { listen, names }))
    }

    /// Checks the words into the library's options; the access log and the certificate are the
    /// command's.
    ///
    /// # Errors
    /// If an argument makes no sense.
    pub fn checked(&self) -> Result<Options, Problem> {
        let listen = address(&self.listen, PORT_DEFAULT).ok_or_else(|| {
            let needs = "an address and a port, such as 0.0.0.0:8080 or [::1]:80";
            usage_problem("cannot take --listen", needs, &self.listen, "")
        })?;
        let is_own = listen.ip().to_canonical().is_loopback();
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
        let connections_max = self.max_connections as usize;
        let loops = self.loops.map_or(own.loops, |loops| loops as usize).min(connections_max);
        let limits = Limits {
            connections_max: connections_max / loops,
            connections_of_address_max: self.max_connections_per_address,
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
            behind: self.cache,
            buffer_bytes: self.buffer_memory,
            disk_depth: self.disk_depth as usize,
            has_index: !self.no_index,
            is_open_to_pages: match self.cors {
                Cors::Auto => !is_own,
                Cors::On => true,
                Cors::Off => false,
            },
            host_names: (is_own && self.cors != Cors::On).then(|| HostNames::new(&self.host_name)),
            limits,
            pacing: Pacing { period: self.period.0, start_up: self.start_up.0 },
            access_log: None,
            certificate: None,
        })
    }

    /// Paths of the certificate and its key.
    #[must_use]
    pub fn tls_files(&self) -> Option<tls::Files> {
        let certificate = self.tls_cert.clone()?;
        let key = self.tls_key.clone().unwrap_or_else(|| certificate.clone());
        Some(tls::Files { certificate, key })
    }
}

fn cors(text: &str) -> Result<Cors, String> {
    match text {
        "auto" => Ok(Cors::Auto),
        "on" => Ok(Cors::On),
        "off" => Ok(Cors::Off),
        _ => Err("needs auto, on or off".to_owned()),
    }
}

fn behind(text: &str) -> Result<Behind, String> {
    match text {
        "auto" => Ok(Behind::Auto),
        "keep" => Ok(Behind::Keep),
        "drop" => Ok(Behind::Drop),
        _ => Err("needs auto, keep or drop".to_owned()),
    }
}

/// Reads a percentage, `10` or `10%`.
fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent = number.parse().ok().filter(|percent| (0..=90).contains(percent));
    percent.ok_or_else(|| "needs a number of percent, 0 to 90".to_owned())
}

fn rate(text: &str) -> Result<Rate, String> {
    Rate::parse(text).ok_or_else(|| "needs bits a second, such as 1500k or 2.5M".to_owned())
}

fn rate_argument(text: &str) -> Result<RateChoice, String> {
    rate_choice(text).map_err(|needs| format!("needs {needs}"))
}

/// Reads a rate, `2M`, `auto` or `max`.
///
/// # Errors
/// What is needed, if it is none of them.
pub fn rate_choice(text: &str) -> Result<RateChoice, String> {
    match text {
        "auto" => Ok(AUTO),
        "max" => Ok(RateChoice::Unpaced),
        text => match Rate::parse(text) {
            Some(rate) => Ok(RateChoice::Fixed(rate)),
            None => Err("bits a second, such as 1500k or 2.5M; auto; or max".to_owned()),
        },
    }
}

/// Reads an address: `0.0.0.0:80`, `::1`, `[::1]`, `localhost:80`, `:80`.
fn address(text: &str, port_default: u16) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, port_default));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, port_default),
    };
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
    fn percents_are_taken_as_people_write_them() {
        for (text, expected) in [("10", Some(10)), ("10%", Some(10)), ("0 %", Some(0))] {
            assert_eq!(percent(text).ok(), expected, "{text}");
        }
        for text in ["91", "-1", "10%%", "0.1", ""] {
            assert!(percent(text).is_err(), "{text}");
        }
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
            assert_eq!(address(text, PORT_DEFAULT), listen, "{text}");
        }
    }
}
