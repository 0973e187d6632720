//! Arguments of `haul probe net`, and their check.

use crate::args::{
    connections::LowConnections,
    proxy::LowProxy,
    results::LowResults,
    transfer::providers,
    usage_problem,
    values::{Period, parse_rate},
};
use clap::{Args, ValueEnum};
use haul_protocol::limits::{
    PROBE_BLOCK_BYTES_MAX, PROBE_BLOCK_BYTES_MIN, PROBE_DATAGRAM_BYTES_MAX, PROBE_INTERVAL_MS_MIN,
    PROBE_MS_MAX,
};
use haul_transfer::{
    HaulUrl, Problem, Rdma,
    internals::{
        net::{
            BLOCK_BYTES_DEFAULT, DATAGRAM_RATE_DEFAULT, INTERVAL_DEFAULT, NetProbe, OMIT_DEFAULT,
            Receive, STREAMS_DEFAULT, TIME_DEFAULT, Transport, Ways,
        },
        parse_size,
    },
};
use std::{path::PathBuf, time::Duration};

/// Time of a round with --quick: a look.
const QUICK_TIME: Duration = Duration::from_secs(1);
const QUICK_OMIT: Duration = Duration::from_millis(250);
const QUICK_STREAMS: [u32; 2] = [1, 4];

/// Measures the network to a server, memory to memory
///
/// By the data streams of transfers, through the same port and token: a sweep of numbers of
/// streams, each with its rate over time, round trips, retransmits, what held the sockets back, and
/// the cost on both sides. Also what the path takes whole (MTU, black holes), and the buffers that
/// it needs against those that both hosts allow. No file is read or written. It takes all that the
/// network gives, so leave others room by --rate.
///
/// Bytes to the server need a token that may write, bytes from it one that may read.
#[derive(Debug, Args)]
pub struct LowProbeNet {
    #[arg(value_name = "URL", help = "A server: haul://[TOKEN@]HOST[:PORT]")]
    pub url: String,
    /// Numbers of data streams; without it 1,2,4,8, with --quick 1,4, with --udp 1
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    pub streams: Vec<u32>,
    /// Server to client
    #[arg(long, short = 'R', conflicts_with = "bidir")]
    pub reverse: bool,
    /// Both ways at once, so many streams each
    #[arg(long)]
    pub bidir: bool,
    /// The counted time of a round; without it 5s, with --quick 1s
    #[arg(long, short, value_name = "TIME")]
    pub time: Option<Period>,
    /// Not counted at a round's begin, while windows open; without it 1s, with --quick 250ms
    #[arg(long, value_name = "TIME")]
    pub omit: Option<Period>,
    /// How often figures are taken
    #[arg(long, value_name = "TIME", default_value_t = Period(INTERVAL_DEFAULT))]
    pub interval: Period,
    /// Congestion controls side by side, like cubic,bbr; without it as transfers choose
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "udp")]
    pub congestion: Vec<String>,
    /// Fate of the bytes at the receivers: taken into memory, or dropped by the kernel
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "udp")]
    #[arg(default_value = Receive::Copy.name())]
    pub receive: Vec<ReceiveName>,
    /// The most bytes a second of all streams of a way: 500M, or in bits 10Gbit
    ///
    /// With --udp the rate to send at; without it 1Gbit.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// Datagrams at a rate, not streams: loss, jitter, reordering
    #[arg(long, short)]
    pub udp: bool,
    /// Measure RDMA endpoints (libfabric), too, each round behind one by TCP
    ///
    /// The server needs --fabric too. It takes the best provider that both hosts have, or the one
    /// that is named: docs/rdma.md.
    #[arg(long, value_name = "PROVIDER", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = Rdma::Auto.name(), value_parser = providers())]
    #[arg(conflicts_with = "udp")]
    pub fabric: Option<String>,
    /// Bytes of a datagram, with --udp; without it what the path takes whole
    #[arg(long, value_name = "SIZE", value_parser = parse_datagram, requires = "udp")]
    pub datagram: Option<u32>,
    /// Bytes that one send or receive moves
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    #[arg(default_value_t = Block::default())]
    pub block: Block,
    /// How often all of it is measured, one after the other
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Do not look for the path's MTU, which takes UDP
    #[arg(long)]
    pub no_path_mtu: bool,
    /// Less of everything: a look, no measurement
    #[arg(long)]
    pub quick: bool,
    /// Read the token from a file, not from the URL or HAUL_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub connections: LowConnections,
    #[command(flatten)]
    pub proxy: LowProxy,
    #[command(flatten)]
    pub output: LowResults,
}

/// `--receive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReceiveName {
    /// Into memory, as when a file is written
    Copy,
    /// The kernel throws them away without a copy, as for null:
    Discard,
}

/// A block size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block(u32);

impl Default for Block {
    fn default() -> Self {
        Self(BLOCK_BYTES_DEFAULT)
    }
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(1 << 20) => write!(f, "{}M", bytes >> 20),
            bytes if bytes.is_multiple_of(1 << 10) => write!(f, "{}K", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

fn parse_block(text: &str) -> Result<Block, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    if (PROBE_BLOCK_BYTES_MIN..=PROBE_BLOCK_BYTES_MAX).contains(&bytes) {
        return Ok(Block(bytes));
    }
    let max = PROBE_BLOCK_BYTES_MAX >> 20;
    Err(format!("{text:?} is not from {PROBE_BLOCK_BYTES_MIN} to {max}M"))
}

fn parse_datagram(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    if (PROBE_BLOCK_BYTES_MIN..=PROBE_DATAGRAM_BYTES_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("{text:?} is not from {PROBE_BLOCK_BYTES_MIN} to {PROBE_DATAGRAM_BYTES_MAX}"))
}

impl LowProbeNet {
    /// Checks the words of `haul probe net`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<NetProbe, Problem> {
        let mut url: HaulUrl = self.url.parse().map_err(|error: haul_transfer::UrlError| {
            // The word itself is not shown: it may hold a token.
            usage_problem(&error.to_string(), "", "", "")
        })?;
        self.proxy.give_to_url(&mut url)?;
        let is_direct = url.proxy.is_none();
        if !is_direct && (self.udp || self.fabric.is_some()) {
            let needs = "a server that is reached directly";
            let hint = "leave out --udp and --fabric, or take --proxy none";
            return Err(usage_problem("cannot probe so", needs, "a proxy", hint));
        }
        let (time, omit, interval) = self.times()?;
        let streams = match () {
            () if !self.streams.is_empty() => self.streams.clone(),
            () if self.udp => vec![1],
            () if self.quick => QUICK_STREAMS.into(),
            () => STREAMS_DEFAULT.into(),
        };
        let congestion = match self.congestion.as_slice() {
            [] => vec![None],
            named => named.iter().cloned().map(Some).collect(),
        };
        let receive = self.receive.iter().map(|name| match name {
            ReceiveName::Copy => Receive::Copy,
            ReceiveName::Discard => Receive::Discard,
        });
        let transport = match self.udp {
            true => Transport::Udp { datagram_bytes: self.datagram },
            false => Transport::Tcp,
        };
        Ok(NetProbe {
            connect: self.connections.checked(),
            transport,
            ways: match (self.reverse, self.bidir) {
                (_, true) => Ways::Both,
                (true, false) => Ways::ToClient,
                (false, false) => Ways::ToServer,
            },
            streams,
            congestion,
            receive: receive.collect(),
            rounds: self.rounds,
            time,
            omit,
            interval,
            block_bytes: self.block.0,
            rate_bytes_per_s: self.rate.or(self.udp.then_some(DATAGRAM_RATE_DEFAULT)),
            // Datagrams go by no proxy.
            path_mtu: !self.no_path_mtu && is_direct,
            rdma: self.fabric.as_ref().and_then(|name| name.parse().ok()),
            ..NetProbe::new(url)
        })
    }

    fn times(&self) -> Result<(Duration, Duration, Duration), Problem> {
        let own = if self.quick { (QUICK_TIME, QUICK_OMIT) } else { (TIME_DEFAULT, OMIT_DEFAULT) };
        let time = self.time.map_or(own.0, |time| time.0);
        let omit = self.omit.map_or(own.1, |omit| omit.0);
        let interval = self.interval.0;
        let whole = time.checked_add(omit).unwrap_or(Duration::MAX);
        let most = Duration::from_millis(PROBE_MS_MAX.into());
        if time < Duration::from_millis(PROBE_INTERVAL_MS_MIN.into()) || whole > most {
            let needs = format!(
                "{PROBE_INTERVAL_MS_MIN}ms at least, and {} s at most with what is omitted",
                most.as_secs()
            );
            let found = format!("{time:?}, and {omit:?} omitted");
            return Err(usage_problem("cannot take --time", &needs, &found, ""));
        }
        if interval < Duration::from_millis(PROBE_INTERVAL_MS_MIN.into()) {
            let needs = format!("{PROBE_INTERVAL_MS_MIN}ms at least");
            let found = format!("{interval:?}");
            return Err(usage_problem("cannot take --interval", &needs, &found, ""));
        }
        Ok((time, omit, interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand, probe::LowProbeCommand};
    use clap::Parser;

    fn checked(words: &[&str]) -> Result<NetProbe, String> {
        let words = [&["haul", "probe", "net", "haul://host"], words].concat();
        let low = LowArgs::try_parse_from(words).map_err(|error| error.to_string())?;
        let LowCommand::Probe(low) = low.command else { panic!("not a probe") };
        let LowProbeCommand::Net(low) = low.command else { panic!("another probe") };
        low.checked().map_err(|problem| problem.to_string())
    }

    #[test]
    fn without_words_it_is_a_sweep_to_the_server() {
        let probe = checked(&[]).unwrap();
        assert_eq!((probe.streams, probe.ways), (vec![1, 2, 4, 8], Ways::ToServer));
        assert_eq!((probe.time, probe.block_bytes), (TIME_DEFAULT, 128 << 10));
        assert_eq!((probe.rate_bytes_per_s, probe.transport), (None, Transport::Tcp));
        let probe = checked(&["--udp"]).unwrap();
        assert_eq!((probe.streams, probe.rate_bytes_per_s), (vec![1], Some(125_000_000)));
    }

    #[test]
    fn lists_are_compared_and_quick_is_short() {
        let words =
            ["--congestion", "cubic,bbr", "--receive", "copy,discard", "--quick", "--bidir"];
        let probe = checked(&words).unwrap();
        assert_eq!(probe.congestion, [Some("cubic".to_owned()), Some("bbr".to_owned())]);
        assert_eq!(probe.receive, [Receive::Copy, Receive::Discard]);
        assert_eq!((probe.ways, probe.time), (Ways::Both, QUICK_TIME));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (words, says) in [
            (&["--reverse", "--bidir"][..], "cannot be used with"),
            (&["--time", "11m"], "600 s at most"),
            (&["--time", "0s"], "50ms"),
            (&["--interval", "10ms"], "50ms"),
            (&["--block", "17M"], "16M"),
            (&["--datagram", "1K"], "--udp"),
            (&["--udp", "--datagram", "64K"], "65507"),
            (&["--udp", "--congestion", "bbr"], "cannot be used with"),
            (&["--streams", "65"], "1..=64"),
        ] {
            let error = checked(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
