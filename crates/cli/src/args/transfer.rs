//! Arguments of `haul push` and `haul pull`, and their check.

use super::{
    connections::LowConnections,
    proxy::LowProxy,
    recording::LowRecording,
    shard_number::{AskedShard, parse_shard},
    ssh::{LowSsh, OtherSide, check_is_here, planned_target},
    tree::LowTree,
    usage_problem,
    values::{Period, StopSignal, parse_limit},
};
use clap::{Args, ValueEnum, builder::PossibleValue, builder::PossibleValuesParser};
use haul_datapath::engines::ENGINES;
use haul_protocol::limits::{SPAN_BYTES_MAX, SPAN_BYTES_MIN, STREAMS_MAX};
use haul_transfer::{
    ClearDigest, Engine, HaulUrl, Plan, Problem, Protection, RETRY_FOR_DEFAULT, Rdma,
    STALL_AFTER_DEFAULT, Shard, SourceSpec, TargetSpec, TransferOptions, internals::parse_size,
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Sends files and directories to a server
///
/// SOURCE is a file, `dir` (the directory itself), `dir/` (its contents), or `zero:SIZE`: that many
/// zero bytes made in memory, to take the disk out of the picture. A file that is really called
/// so is written ./zero:SIZE.
///
/// URL is what `haul serve` printed, with a path behind: `dir/` puts the sources into that
/// directory, `name` gives a single file that name, `null:` throws everything away at the other
/// side. A directory keeps its own name below the path; to give it another, push `dir/` to `new/`.
/// In the path `%25` stands for a %, `%20` for a blank.
///
/// In its place, user@host:path means a machine that ssh reaches and that has haul, too; a path
/// without a / in front is below the home directory there. A word with a colon before any / means
/// another machine: a file of this one is written ./a:b.
#[derive(Debug, Args)]
#[command(override_usage = "\
    haul push [OPTIONS] <SOURCE>... <URL|[USER@]HOST:PATH>\n       \
    haul push [OPTIONS] --plan <PLAN> --shard <K> [URL|[USER@]HOST:PATH]...")]
pub struct LowPush {
    // One list, so that options may stand anywhere among the words.
    #[arg(value_name = "SOURCE", required_unless_present = "plan", num_args = 1..)]
    #[arg(
        help = "Files, `dir`, `dir/` or `zero:SIZE`, and last haul://[TOKEN@]HOST[:PORT]/dir/ or \
                  [USER@]HOST:dir/"
    )]
    pub words: Vec<OsString>,
    /// Move one shard of the plan in this directory, made by `haul plan`
    ///
    /// The plan names the source and the target. URLs that are named beside it, as many as the plan
    /// has, stand in the place of the plan's: with another token, or where a server has moved. The
    /// run keeps a report in PLAN/reports, which `haul report` adds up.
    #[arg(long, value_name = "PLAN", requires = "shard")]
    #[arg(conflicts_with_all = ["files_from", "part", "include", "exclude", "delete"])]
    #[arg(conflicts_with_all = ["watch", "follow", "move_sources"])]
    // A shard would count as done without what they leave out.
    #[arg(conflicts_with_all = ["min_size", "max_size", "min_age", "max_age"])]
    pub plan: Option<PathBuf>,
    /// Number of the shard, from 1: K, K/N, or auto, to take it from the scheduler as --part does
    #[arg(long, value_name = "K", requires = "plan", value_parser = parse_shard)]
    pub shard: Option<AskedShard>,
    #[command(flatten)]
    pub transfer: LowTransfer,
}

/// Fetches files and directories from a server
///
/// URL is what `haul serve` printed, with the path of a file or directory behind: `dir` fetches the
/// directory itself, `dir/` its contents, `zero:SIZE` that many zero bytes. In the path `%25`
/// stands for a %, `%20` for a blank. All URLs name the same server; only the first needs the
/// token. In their place, user@host:path means a machine that ssh reaches and that has haul, too.
///
/// TARGET is an existing directory, a name that ends in `/`, for a single file its new name, or
/// `null:` to throw away what arrives. A directory keeps its own name below it; to give it another,
/// pull `dir/` to `new/`. Without TARGET files come to the directory that you are in.
#[derive(Debug, Args)]
#[command(override_usage = "haul pull [OPTIONS] <URL|[USER@]HOST:PATH>... [TARGET]")]
pub struct LowPull {
    #[arg(value_name = "URL", required = true, num_args = 1..)]
    #[arg(help = "haul://[TOKEN@]HOST[:PORT]/path or [USER@]HOST:path, and last TARGET: the \
                  directory or file name, or `null:`; without it .")]
    pub words: Vec<OsString>,
    #[command(flatten)]
    pub transfer: LowTransfer,
}

/// Options that both directions share.
#[derive(Debug, Args)]
pub struct LowTransfer {
    /// The most bytes a second of all streams together: 500M, or in bits 10Gbit
    ///
    /// K, M, G, T are powers of 1024 for bytes, and powers of 1000 for bits.
    #[arg(long, value_name = "RATE", value_parser = parse_limit)]
    pub bwlimit: Option<u64>,
    /// Data connections; without it chosen from processors, round-trip time and sizes
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(STREAMS_MAX)))]
    pub streams: Option<u32>,
    /// Bytes that are sent, verified and made durable as one, a power of two like 8M
    ///
    /// Without it chosen for each file. A span that was damaged or lost is sent again whole.
    #[arg(long, value_name = "SIZE", value_parser = parse_span_bytes)]
    pub span_size: Option<u64>,
    /// How the data is protected on its way
    #[arg(long, value_name = "PROTECTION", default_value = Protection::default().name())]
    pub protection: ProtectionName,
    /// Bytes after which a private stream is replaced by another, with another key; at most 126G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    pub rekey_after: Option<u64>,
    /// Digest that finds accidents under --protection clear or private; without it crc32c
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<DigestName>,
    /// The engine that reads and sends
    #[arg(long, value_name = "ENGINE", default_value = AUTO, value_parser = send_engines())]
    pub send_engine: String,
    /// The engine that receives and writes
    #[arg(long, value_name = "ENGINE", default_value = AUTO, value_parser = receive_engines())]
    pub receive_engine: String,
    /// Send data by RDMA endpoints (libfabric): a card, or memory that both share on one host
    ///
    /// The server needs --fabric too. With auto, data goes by TCP where RDMA cannot be had, and
    /// --explain says why; a provider that is named must be there. It needs a haul that was built
    /// with libfabric: docs/rdma.md.
    #[arg(long, value_name = "PROVIDER", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = Rdma::Auto.name(), value_parser = providers())]
    pub fabric: Option<String>,
    /// Another signal that ends the run as SIGTERM does: the same command resumes it
    ///
    /// A scheduler may send one before the time is up, as `sbatch --signal=USR1@60` does.
    #[arg(long, value_name = "SIGNAL", hide_short_help = true)]
    pub signal: Option<StopSignal>,
    /// How long to try to get back to a server that went away
    #[arg(long, value_name = "TIME", default_value_t = Period(RETRY_FOR_DEFAULT))]
    pub retry_for: Period,
    /// Wait for a server that cannot be reached at first, too, for as long as --retry-for says
    ///
    /// For cron and for boot. Without it a first connection that fails ends the command.
    #[arg(long)]
    pub wait: bool,
    /// A stream that brought nothing for this long is opened again
    #[arg(long, value_name = "TIME", default_value_t = Period(STALL_AFTER_DEFAULT))]
    pub stall_timeout: Period,
    /// Write a BLAKE3 line for each file, as b3sum does, on this side
    ///
    /// The hashes are made of the bytes that are moved. The names are those below the target's
    /// directory: there, `b3sum --check FILE` and `haul verify FILE .` read the files again. What
    /// this run did not move, as an earlier one had, is read at the end. A file that failed has no
    /// line; a transfer that broke off or was interrupted writes no manifest.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "preflight", "move_sources"])]
    pub manifest: Option<PathBuf>,
    /// Read each file back from the target's disk before it gets its name
    ///
    /// By O_DIRECT where the file system has it, else after the page cache was told to forget it.
    /// A file that is not what arrived is an error, and nothing of it stays.
    #[arg(long)]
    pub verify_target: bool,
    /// Read back what an earlier run left at the target before it is believed
    ///
    /// While the rest is sent; what is not as it was journaled comes again. It is done by itself
    /// where the target's host was started anew since, or the temporary was changed more than 2 s
    /// after its journal. What came with --digest none comes again.
    #[arg(long, conflicts_with_all = ["dry_run", "preflight"])]
    pub recheck: bool,
    /// Read the token from a file, not from the URL or HAUL_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    #[command(flatten)]
    pub connections: LowConnections,
    #[command(flatten)]
    pub ssh: LowSsh,
    #[command(flatten)]
    pub proxy: LowProxy,
    /// Print one JSON object a line: session, progress, connection, file, fallback, stall, resume,
    /// rereading, lag, left_out, explained, error, waiting, report
    #[arg(long)]
    pub json: bool,
    /// Print the whole report: engines, wire, costs and stages
    ///
    /// Without it a report has three lines, unless something failed or one stage held the transfer
    /// back for most of its time.
    #[arg(long)]
    pub report: bool,
    /// Print nothing but what failed (with --json: everything but progress)
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub tree: LowTree,
    #[command(flatten)]
    pub recording: LowRecording,
}

/// `--protection`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtectionName {
    /// A digest that catches accidents; anyone on the path can read and change the data
    Clear,
    /// A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen
    Safe,
    /// TLS 1.3 for the data too: nobody on the path can read a byte either
    Private,
}

impl From<ProtectionName> for Protection {
    fn from(name: ProtectionName) -> Self {
        match name {
            ProtectionName::Clear => Self::Clear,
            ProtectionName::Safe => Self::Safe,
            ProtectionName::Private => Self::Private,
        }
    }
}

/// `--digest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DigestName {
    /// Nothing is verified, and the report says so
    None,
    /// CRC-32C (Castagnoli)
    Crc32c,
    /// XXH3, 128 bits
    #[value(name = "xxh3-128")]
    Xxh3,
}

impl From<DigestName> for ClearDigest {
    fn from(name: DigestName) -> Self {
        match name {
            DigestName::None => Self::None,
            DigestName::Crc32c => Self::Crc32c,
            DigestName::Xxh3 => Self::Xxh3,
        }
    }
}

/// The value that leaves the choice of an engine to haul.
const AUTO: &str = "auto";

fn send_engines() -> PossibleValuesParser {
    engine_names(|engine| engine.open_send.is_some())
}

fn receive_engines() -> PossibleValuesParser {
    engine_names(|engine| engine.open_receive.is_some())
}

pub(crate) fn providers() -> PossibleValuesParser {
    PossibleValuesParser::new(Rdma::all().into_iter().map(Rdma::name))
}

fn engine_names(able: fn(&haul_datapath::EngineInfo) -> bool) -> PossibleValuesParser {
    let auto = PossibleValue::new(AUTO).help("chosen by what is found; the report says why");
    let able = ENGINES.iter().filter(|engine| able(engine));
    let named = able.map(|engine| PossibleValue::new(engine.name).help(engine.summary));
    PossibleValuesParser::new(std::iter::once(auto).chain(named))
}

fn parse_span_bytes(text: &str) -> Result<u64, String> {
    let span_bytes = parse_size(text).map_err(|error| error.to_string())?;
    let allowed = SPAN_BYTES_MIN..=SPAN_BYTES_MAX;
    if span_bytes.is_power_of_two() && allowed.contains(&span_bytes) {
        return Ok(span_bytes);
    }
    let (min, max) = (SPAN_BYTES_MIN >> 10, SPAN_BYTES_MAX >> 30);
    Err(format!("{text:?} is not a power of two from {min}K to {max}G"))
}

/// A checked push that may still lack its token.
#[derive(Debug)]
pub struct CheckedPush {
    pub sources: Vec<SourceSpec>,
    /// The one place to push to.
    pub to: OtherSide,
    /// The plan, and the number of its shard, where the run keeps a report.
    pub shard: Option<(Plan, u32)>,
    pub options: TransferOptions,
}

/// A checked pull that may still lack its token.
#[derive(Debug)]
pub struct CheckedPull {
    pub from: OtherSide,
    pub target: TargetSpec,
    pub options: TransferOptions,
}

impl LowPush {
    /// The plan whose shard is to be moved, if there is one: its directory, and the shard's number.
    #[must_use]
    pub fn planned(&self) -> Option<(&Path, u32)> {
        self.plan.as_deref().zip(self.shard.map(|asked| asked.number))
    }

    /// Checks the words of `haul push`; `planned` is the plan that [`Self::planned`] names, and the
    /// shard.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self, planned: Option<(Plan, Shard)>) -> Result<CheckedPush, Problem> {
        if let (Some((plan, shard)), Some(asked)) = (planned, self.shard) {
            return self.checked_shard(plan, shard, asked);
        }
        let (sources, to) = split_push(&self.words)?;
        let parsed = sources.iter().map(|source| parse_source(source));
        Ok(CheckedPush {
            sources: parsed.collect::<Result<_, _>>()?,
            to: self.transfer.other_side(&[to])?,
            shard: None,
            options: self.transfer.checked(sources)?,
        })
    }

    /// Whether this is a run of many that a scheduler starts alike.
    #[must_use]
    pub fn is_one_of_many(&self) -> bool {
        self.plan.is_some() || self.transfer.tree.part.is_some()
    }

    /// The plan with the targets of this run, where it names others.
    fn directed(&self, plan: Plan) -> Result<Plan, Problem> {
        if self.words.is_empty() {
            return Ok(plan);
        }
        let hint = "with --plan the words are URLs: the source is the plan's";
        let targets = self.words.iter().map(|word| planned_target(word, hint));
        let targets: Vec<String> = targets.collect::<Result<_, _>>()?;
        // A shard goes on where its earlier runs have brought a part of it.
        if targets.len() != plan.targets.len() {
            let what = "cannot take these URLs in the place of the plan's";
            let needs = format!("{}, in the order of the plan", plan.targets.len());
            let hint = "name one for each that `haul plan` was given";
            return Err(usage_problem(what, &needs, &targets.len().to_string(), hint));
        }
        let mut plan = plan;
        plan.targets = targets;
        Ok(plan)
    }

    fn checked_shard(
        &self,
        plan: Plan,
        shard: Shard,
        asked: AskedShard,
    ) -> Result<CheckedPush, Problem> {
        let plan = self.directed(plan)?;
        if let Some(count) = asked.count.filter(|count| !plan.is_run_by(*count)) {
            let what = format!("cannot take shard {}/{count}", asked.number);
            let needs = format!("the {} shards of the plan", plan.shards);
            let hint = "start as many runs as the plan has shards";
            return Err(usage_problem(&what, &needs, &count.to_string(), hint));
        }
        let source = OsString::from_vec(plan.source.0.clone());
        let to = OsString::from(plan.target(asked.number));
        let mut options = self.transfer.checked(std::slice::from_ref(&source))?;
        options.selection.names = Some(Arc::new(shard.names));
        options.selection.names_alone = true;
        options.selection.ranges = (!shard.ranges.is_empty()).then(|| Arc::new(shard.ranges));
        let to = self.transfer.other_side(&[to.as_os_str()])?;
        // What moves nothing is no run of a shard.
        let is_there = asked.number <= plan.shards;
        let is_run = is_there && !self.transfer.tree.dry_run && !self.transfer.tree.preflight;
        let shard = is_run.then_some((plan, asked.number));
        Ok(CheckedPush { sources: vec![SourceSpec::Path(source)], to, shard, options })
    }
}

impl LowPull {
    /// Checks the words of `haul pull`.
    ///
    /// # Errors
    /// Says which argument cannot be taken and why.
    pub fn checked(&self) -> Result<CheckedPull, Problem> {
        let here = OsString::from(".");
        let (words, target) = match self.words.split_last() {
            Some((last, urls)) if !urls.is_empty() && !OtherSide::is_named_by(last) => (urls, last),
            _ => (&self.words[..], &here),
        };
        let mut from = self.transfer.other_side(words)?;
        if let OtherSide::Server(urls) = &mut from {
            give_token_to_all(urls)?;
        }
        Ok(CheckedPull {
            from,
            target: parse_target(target)?,
            options: self.transfer.checked(words)?,
        })
    }
}

/// Gives the one token to all URLs of a pull.
fn give_token_to_all(urls: &mut [HaulUrl]) -> Result<(), Problem> {
    let token = urls.iter().find_map(|url| url.token.clone());
    for url in urls.iter_mut() {
        url.token = url.token.take().or_else(|| token.clone());
    }
    let first = &urls[0];
    let same = |url: &&HaulUrl| url.server() == first.server() && url.token == first.token;
    match urls.iter().find(|url| !same(url)) {
        None => Ok(()),
        Some(other) => Err(usage_problem(
            "cannot pull from two servers at once",
            &format!("all URLs at {} with one token", first.server()),
            &format!("{other}"),
            "run haul pull once for each server",
        )),
    }
}

impl LowTransfer {
    fn other_side(&self, words: &[impl AsRef<OsStr>]) -> Result<OtherSide, Problem> {
        let mut side = OtherSide::named_by(words, &self.ssh, self.token_file.as_deref())?;
        self.proxy.give_to(&mut side)?;
        self.connections.check_way(side.way())?;
        self.check_path(side.has_proxy())?;
        Ok(side)
    }

    /// Refuses what no proxy can carry.
    ///
    /// # Errors
    /// If data is to go by RDMA and by a proxy.
    pub(super) fn check_path(&self, has_proxy: bool) -> Result<(), Problem> {
        if self.fabric.is_some() && has_proxy {
            let needs = "connections that go directly";
            let hint = "leave out --fabric, or take --proxy none";
            return Err(usage_problem("cannot take --fabric", needs, "a proxy", hint));
        }
        Ok(())
    }

    /// Checks the options, for sources as the user named them.
    ///
    /// # Errors
    /// Says which option cannot be taken and why.
    pub(super) fn checked(&self, sources: &[OsString]) -> Result<TransferOptions, Problem> {
        let protection = Protection::from(self.protection);
        if let (Protection::Safe, Some(digest)) = (protection, self.digest) {
            let name = digest.to_possible_value().map_or_else(String::new, |v| v.get_name().into());
            return Err(usage_problem(
                &format!("cannot take --digest {name}"),
                "--protection clear",
                "--protection safe, whose keyed MAC verifies every span already",
                "add --protection clear, or leave out --digest",
            ));
        }
        if self.stall_timeout.0.is_zero() {
            let hint = "write it like --stall-timeout 10s";
            return Err(usage_problem("cannot take --stall-timeout", "some time", "0s", hint));
        }
        // No engine is called `auto`, and no other names come this far.
        let forced = |name: &String| name.parse::<Engine>().ok();
        let mut options = TransferOptions::default();
        options.streams = self.streams;
        options.span_bytes = self.span_size;
        options.rate_bytes_per_s = self.bwlimit;
        options.protection = protection;
        options.rekey_after_bytes = self.rekey_after.unwrap_or(options.rekey_after_bytes);
        options.digest = self.digest.map(ClearDigest::from);
        options.send_engine = forced(&self.send_engine);
        options.receive_engine = forced(&self.receive_engine);
        options.rdma = self.fabric.as_ref().and_then(|name| name.parse().ok());
        options.connect = self.connections.checked();
        options.retry_for = self.retry_for.0;
        options.wait = self.wait;
        options.stall_after = self.stall_timeout.0;
        options.manifest.clone_from(&self.manifest);
        options.verify_target = self.verify_target;
        options.file_options.recheck = self.recheck;
        self.tree.add_to(&mut options, sources)?;
        self.recording.add_to(&mut options)?;
        Ok(options)
    }
}

fn parse_source(word: &OsStr) -> Result<SourceSpec, Problem> {
    let bytes = word.as_bytes();
    if let Some(size) = bytes.strip_prefix(b"zero:") {
        let size = String::from_utf8_lossy(size);
        return parse_size(&size).map(SourceSpec::Zero).map_err(|why| {
            let hint = "a file of that name is written ./zero:...";
            usage_problem(
                "cannot read the source zero:",
                "a size behind the colon",
                &why.to_string(),
                hint,
            )
        });
    }
    let (found, hint) = if bytes.is_empty() {
        ("an empty name", "is a variable in your script empty?")
    } else if bytes == b"null:" {
        ("null:, which only receives", "zero:SIZE is a source without a disk")
    } else if bytes.starts_with(b"haul://") {
        ("a haul:// URL among the sources", "`haul pull URL DIR` fetches; a push has one URL, last")
    } else {
        check_is_here(word, "cannot push this source", "`haul pull` fetches from other machines")?;
        return Ok(SourceSpec::Path(word.to_owned()));
    };
    Err(usage_problem("cannot push this source", "a file or directory", found, hint))
}

fn parse_target(word: &OsStr) -> Result<TargetSpec, Problem> {
    if word.is_empty() {
        let needs = "a directory, a file name or null:";
        let hint = "is a variable in your script empty? Here is .";
        return Err(usage_problem("cannot pull to this target", needs, "an empty name", hint));
    }
    Ok(if word == "null:" { TargetSpec::Null } else { TargetSpec::Path(word.into()) })
}

/// Splits the words of a push: its sources, and last the URL.
fn split_push(words: &[OsString]) -> Result<(&[OsString], &OsStr), Problem> {
    match words {
        [sources @ .., url] if !sources.is_empty() => Ok((sources, url)),
        [only] if OtherSide::is_named_by(only) => {
            let hint = "name files or directories before it: haul push SOURCE URL";
            Err(usage_problem("nothing to push", "a source", "a URL alone", hint))
        }
        _ => {
            let hint = "put the URL that haul serve printed last, or user@host:dir/ for ssh: haul \
                        push SOURCE URL/dir/";
            Err(usage_problem("no place to push to", "a URL", "a source alone", hint))
        }
    }
}

/// Reads a URL, whose bytes that are no UTF-8 are taken as they are: `na\xffme` is the same as
/// `na%FFme`.
pub(super) fn parse_url(word: &OsStr) -> Result<HaulUrl, Problem> {
    let mut text = String::with_capacity(word.len());
    for chunk in word.as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    let mut url = text.parse::<HaulUrl>().map_err(|error| {
        // The word itself is not shown: it may hold a token.
        usage_problem(&error.to_string(), "", "", "")
    })?;
    // The printed URL ends in a slash, and people put `/name` behind it.
    let slashes = url.path.iter().take_while(|byte| **byte == b'/').count();
    url.path.drain(..slashes);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{LowArgs, LowCommand};
    use clap::Parser;

    fn push(words: &[&str]) -> Result<CheckedPush, String> {
        let words = [&["haul", "push"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Push(low) => low.checked(None).map_err(|problem| problem.to_string()),
            other => panic!("not a push: {other:?}"),
        }
    }

    fn pull(words: &[&str]) -> Result<CheckedPull, String> {
        let words = [&["haul", "pull"], words].concat();
        match LowArgs::try_parse_from(words).map_err(|error| error.to_string())?.command {
            LowCommand::Pull(low) => low.checked().map_err(|problem| problem.to_string()),
            other => panic!("not a pull: {other:?}"),
        }
    }

    fn paths_at_server(side: &OtherSide) -> Vec<Vec<u8>> {
        let OtherSide::Server(urls) = side else { panic!("not a server: {side:?}") };
        urls.iter().map(|url| url.path.clone()).collect()
    }

    fn paths_by_ssh(side: &OtherSide) -> (String, Vec<Vec<u8>>) {
        let OtherSide::BySsh { login, paths, .. } = side else { panic!("not by ssh: {side:?}") };
        (login.word(), paths.clone())
    }

    #[test]
    fn a_word_with_a_host_in_front_is_reached_by_ssh() {
        let push_to = push(&["a", "./b:c", "ann@dtn1:run 7%20/"]).unwrap();
        assert_eq!(push_to.sources.len(), 2);
        assert_eq!(paths_by_ssh(&push_to.to), ("ann@dtn1".into(), vec![b"run 7%20/".to_vec()]));
        let here = TargetSpec::Path(".".into());
        for (words, count, target) in [
            (&["h:a"][..], 1, &here),
            (&["h:a", "h:/b"], 2, &here),
            (&["h:a", "h:b", "dir/"], 2, &TargetSpec::Path("dir/".into())),
            (&["h:a", "./x:y"], 1, &TargetSpec::Path("./x:y".into())),
            (&["h:a", "null:"], 1, &TargetSpec::Null),
        ] {
            let pull = pull(words).unwrap();
            let (login, paths) = paths_by_ssh(&pull.from);
            assert_eq!((&login[..], paths.len(), &pull.target), ("h", count, target), "{words:?}");
        }
        for (words, says) in [
            (&["h:a", "other:b"][..], "paths of h alone"),
            (&["h:a", "ann@h:b", "."], "paths of h alone"),
            (&["h:a", "haul://x/b", "."], "paths of h alone"),
            (&["h:a", "--token-file=x"], "eave it out"),
            (&["-o x:y", "."], "unexpected argument"),
            (&["h:a", "--ssh="], "--ssh"),
        ] {
            let refused = pull(words).unwrap_err();
            assert!(refused.contains(says), "{words:?}: {refused}");
        }
    }

    #[test]
    fn a_trailing_slash_of_a_source_is_kept() {
        let push = push(&["dir/", "a", "zero:2K", "haul://host/x/"]).unwrap();
        let path = |text: &str| SourceSpec::Path(text.into());
        assert_eq!(push.sources, [path("dir/"), path("a"), SourceSpec::Zero(2048)]);
        assert_eq!(paths_at_server(&push.to), [b"x/"]);
    }

    #[test]
    fn options_reach_the_request_and_defaults_are_the_librarys() {
        let given = push(&["a", "haul://h", "--bwlimit=8Gbit", "--streams", "3", "--span-size=1M"]);
        let options = given.unwrap().options;
        assert_eq!(options.rate_bytes_per_s, Some(1_000_000_000));
        assert_eq!((options.streams, options.span_bytes), (Some(3), Some(1 << 20)));
        let plain = push(&["a", "haul://h"]).unwrap().options;
        assert_eq!(format!("{plain:?}"), format!("{:?}", TransferOptions::default()));
    }

    /// Options between the words, `haul push a -q URL`, as users of rsync and scp write them.
    #[test]
    fn options_may_stand_anywhere() {
        for words in [
            &["-q", "a", "b", "haul://h/x"][..],
            &["a", "-q", "b", "haul://h/x"],
            &["a", "b", "--bwlimit", "100M", "haul://h/x"],
            &["a", "b", "haul://h/x", "--json"],
        ] {
            let push = push(words).unwrap();
            assert_eq!(push.sources.len(), 2, "{words:?}");
            assert_eq!(paths_at_server(&push.to), [b"x"], "{words:?}");
        }
        assert_eq!(push(&["--", "-a", "haul://h/x"]).unwrap().sources.len(), 1);
    }

    #[test]
    fn every_engine_can_be_named_for_what_it_can_do() {
        for engine in ENGINES {
            let send = push(&["a", "haul://h", "--send-engine", engine.name]);
            assert_eq!(send.is_ok(), engine.open_send.is_some(), "{}", engine.name);
            let receive = push(&["a", "haul://h", "--receive-engine", engine.name]);
            assert_eq!(receive.is_ok(), engine.open_receive.is_some(), "{}", engine.name);
        }
    }

    #[test]
    fn a_digest_is_refused_where_a_mac_verifies() {
        let refused = push(&["a", "haul://h", "--digest=none"]).unwrap_err();
        assert!(refused.contains("needs --protection clear"), "{refused}");
        let taken = push(&["a", "haul://h", "--digest=none", "--protection=clear"]).unwrap();
        assert_eq!(taken.options.digest, Some(ClearDigest::None));
    }

    #[test]
    fn one_token_is_enough_for_all_urls_of_a_pull() {
        let token = haul_transfer::Token::generate([3; 16]).unwrap();
        let first = format!("haul://{}@h/a", token.reveal());
        let request = pull(&[&first, "haul://h/b", "."]).unwrap();
        let OtherSide::Server(urls) = request.from else { panic!("not a server") };
        assert!(urls.len() == 2 && urls.iter().all(|url| url.token.as_ref() == Some(&token)));
        let refused = pull(&[&first, "haul://other/b", "."]).unwrap_err();
        assert!(refused.contains("other:7117") && !refused.contains(&token.reveal()), "{refused}");
    }

    #[test]
    fn a_pull_without_a_target_comes_to_where_its_user_is() {
        let here = TargetSpec::Path(".".into());
        for (words, urls, target) in [
            (&["haul://h/a"][..], 1, &here),
            (&["haul://h/a", "haul://h/b"], 2, &here),
            (&["haul://h/a", "dir"], 1, &TargetSpec::Path("dir".into())),
            (&["haul://h/a", "haul://h/b", "null:"], 2, &TargetSpec::Null),
        ] {
            let pull = pull(words).unwrap();
            let count = paths_at_server(&pull.from).len();
            assert_eq!((count, &pull.target), (urls, target), "{words:?}");
        }
        assert!(pull(&["dir"]).unwrap_err().contains("no haul:// in front"));
        assert!(pull(&["haul://h/a", ""]).unwrap_err().contains("empty name"));
    }

    #[test]
    fn a_name_that_is_no_utf8_can_stand_in_a_url() {
        let url = parse_url(OsStr::from_bytes(b"haul://h/na\xffme")).unwrap();
        assert_eq!(url.path, b"na\xffme");
        assert_eq!(parse_url(OsStr::new("haul://h///a//b/")).unwrap().path, b"a//b/");
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_words() {
        for (words, says) in [
            (&["null:", "haul://h"][..], "only receives"),
            (&["", "haul://h"], "empty name"),
            (&["zero:much", "haul://h"], "is not a size"),
            (&["haul://h/a", "haul://h/b"], "haul pull URL DIR"),
            (&["h:a", "haul://h/b"], "written ./NAME"),
            (&["h:a", "h:b"], "written ./NAME"),
            (&["h:a"], "needs a source"),
            (&["a", "b"], "no haul:// in front"),
            (&["a"], "needs a URL"),
            (&["haul://h"], "needs a source"),
            (&["a", "haul://h/100%"], "written %25"),
            (&["a", "haul://h", "--span-size=3M"], "power of two"),
            (&["a", "haul://h", "--streams=0"], "1..=64"),
        ] {
            let error = push(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
