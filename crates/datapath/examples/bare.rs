//! A bare pair of engines over loopback, without protocol: to measure and tune engines with.
//!
//!     bare --send sendfile --receive discard --file F [--target T] [--tap none|crc|send|receive]
//!          [--congestion cubic] [--span-bytes N] [--buffer-bytes N] [--block-bytes N] [--sync]
//!          [--repeat N]
//!
//! `--tap crc` computes a CRC32C at both ends, `send` and `receive` at one of them.
//!
//! Without --target the bytes are thrown away; `--file zero:SIZE` sends zeros. Each repetition
//! prints one line of JSON. The numbers are of loopback: no network card, one host for both ends.

use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use haul_datapath::{
    Boundary, Buffers, EngineInfo, FileSpan, Host, IfCopied, SpanFile, SpanId, SpanTap, StageTimes,
    Wait, Wire, engines,
    fallback::{Receiver, Sender},
};
use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Options {
    send: String,
    receive: String,
    file: PathBuf,
    target: Option<PathBuf>,
    tap: String,
    congestion: String,
    span_bytes: u64,
    buffer_bytes: usize,
    block_bytes: Option<usize>,
    sync: bool,
    repeat: u32,
}

impl Options {
    fn buffers(&self) -> Buffers {
        Buffers {
            bytes_max: self.buffer_bytes,
            block_bytes: self.block_bytes,
            if_copied: IfCopied::GoOn,
        }
    }

    fn taps(&self, side: &str) -> bool {
        self.tap == "crc" || self.tap == side
    }
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        send: "sendfile".into(),
        receive: "discard".into(),
        file: PathBuf::new(),
        target: None,
        tap: "none".into(),
        congestion: "cubic".into(),
        span_bytes: 64 << 20,
        buffer_bytes: 16 << 20,
        block_bytes: None,
        sync: false,
        repeat: 1,
    };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        if name == "--sync" {
            options.sync = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--send" => options.send = value,
            "--receive" => options.receive = value,
            "--file" => options.file = value.into(),
            "--target" => options.target = Some(value.into()),
            "--tap" => options.tap = value,
            "--congestion" => options.congestion = value,
            "--span-bytes" => options.span_bytes = value.parse()?,
            "--buffer-bytes" => options.buffer_bytes = value.parse()?,
            "--block-bytes" => options.block_bytes = Some(value.parse()?),
            "--repeat" => options.repeat = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

fn engine(name: &str) -> Result<&'static EngineInfo, Failure> {
    engines::find(name).ok_or_else(|| format!("there is no engine {name}").into())
}

struct Crc(crc_fast::Digest);

impl SpanTap for Crc {
    fn see(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// Costs of one end of the wire.
#[derive(Default)]
struct Side {
    cpu_s: f64,
    crcs: Vec<u64>,
    times: StageTimes,
    copied_bytes: u64,
    fallbacks: String,
}

fn cpu_s(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn source(options: &Options) -> Result<(SpanFile, u64), Failure> {
    if let Some(size) = options.file.to_str().and_then(|name| name.strip_prefix("zero:")) {
        return Ok((SpanFile::zeros()?, size.parse()?));
    }
    let file = File::open(&options.file)
        .map_err(|error| format!("cannot open the source {}: {error}", options.file.display()))?;
    let len_bytes = file.metadata()?.len();
    Ok((SpanFile::new(file), len_bytes))
}

fn spans(file: SpanFile, len_bytes: u64, span_bytes: u64) -> Vec<FileSpan> {
    let file = Arc::new(file);
    (0..len_bytes.div_ceil(span_bytes))
        .map(|number| FileSpan {
            id: SpanId(number),
            file: file.clone(),
            offset_bytes: number * span_bytes,
            len_bytes: span_bytes.min(len_bytes - number * span_bytes),
        })
        .collect()
}

fn send(wire: Wire, options: &Options, host: &Host, spans: &[FileSpan]) -> Result<Side, Failure> {
    let mut side = Side::default();
    let candidates = vec![engine(&options.send)?, engine("read-write")?];
    let mut sender =
        Sender::open(candidates, wire, host, options.buffers()).map_err(|error| error.cause)?;
    let mut done = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        if let Some(next) = spans.get(at + 1) {
            sender.prepare(next);
        }
        sender.send_bytes(&[1; 64], Boundary::MoreFollows)?;
        let mut crc = Crc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi));
        let tap: Option<&mut dyn SpanTap> =
            if options.taps("send") { Some(&mut crc) } else { None };
        sender.submit(span, tap, &mut done)?;
        let last = at + 1 == spans.len();
        sender.send_bytes(&[2; 32], if last { Boundary::Flush } else { Boundary::MoreFollows })?;
        side.crcs.push(crc.0.finalize());
    }
    sender.reap(Wait::ForAll, &mut done)?;
    side.copied_bytes = done.iter().map(|done| done.copied_bytes).sum();
    side.times = sender.stage_times();
    side.fallbacks = format!("{:?}", sender.take_fallbacks());
    side.cpu_s = cpu_s(ClockId::ThreadCPUTime);
    Ok(side)
}

fn receive(
    wire: Wire,
    options: &Options,
    host: &Host,
    spans: &[FileSpan],
) -> Result<Side, Failure> {
    let mut side = Side::default();
    let candidates = vec![engine(&options.receive)?, engine("read-write")?];
    let mut receiver =
        Receiver::open(candidates, wire, host, options.buffers()).map_err(|error| error.cause)?;
    let mut done = Vec::new();
    for span in spans {
        receiver.receive_bytes(&mut [0; 64])?;
        let mut crc = Crc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi));
        let tap: Option<&mut dyn SpanTap> =
            if options.taps("receive") { Some(&mut crc) } else { None };
        receiver.submit(span, tap, &mut done)?;
        receiver.receive_bytes(&mut [0; 32])?;
        side.crcs.push(crc.0.finalize());
        if receiver.spans_in_flight() >= receiver.info().spans_in_flight_max {
            receiver.reap(Wait::ForOne, &mut done)?;
        }
    }
    receiver.reap(Wait::ForAll, &mut done)?;
    side.copied_bytes = done.iter().map(|done| done.copied_bytes).sum();
    side.times = receiver.stage_times();
    side.fallbacks = format!("{:?}", receiver.take_fallbacks());
    if options.sync && options.target.is_some() {
        rustix::fs::fdatasync(spans[0].file.file())?;
    }
    side.cpu_s = cpu_s(ClockId::ThreadCPUTime);
    Ok(side)
}

fn run(options: &Options, host: &Host) -> Result<(), Failure> {
    let (source, len_bytes) = source(options)?;
    let target = match &options.target {
        None => SpanFile::sink()?,
        Some(path) => {
            let _ = std::fs::remove_file(path);
            let file = File::options().read(true).write(true).create_new(true).open(path)?;
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len_bytes)?;
            SpanFile::new(file)
        }
    };
    let from = spans(source, len_bytes, options.span_bytes);
    let into = spans(target, len_bytes, options.span_bytes);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    haul_sys::congestion::set_congestion(&listener, &options.congestion)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    haul_sys::congestion::set_congestion(&near, &options.congestion)?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept()?;
    let (near, far) = (Wire::Tcp(near.into()), Wire::Tcp(far.into()));
    let (start, process_s) = (Instant::now(), cpu_s(ClockId::ProcessCPUTime));
    let (sent, received) = std::thread::scope(|threads| {
        let sending = threads.spawn(|| send(near, options, host, &from));
        let receiving = threads.spawn(|| receive(far, options, host, &into));
        (sending.join(), receiving.join())
    });
    let seconds = start.elapsed().as_secs_f64();
    let process_s = cpu_s(ClockId::ProcessCPUTime) - process_s;
    let sent = sent.map_err(|_| "the sending thread panicked")??;
    let received = received.map_err(|_| "the receiving thread panicked")??;
    if options.tap == "crc" && sent.crcs != received.crcs {
        return Err("the digests of both ends differ".into());
    }
    let Options { send, receive, tap, sync, .. } = options;
    let gigabytes = len_bytes as f64 / 1e9;
    println!(
        "{{\"send\":\"{send}\",\"receive\":\"{receive}\",\"tap\":\"{tap}\",\"sync\":{sync},\
         \"wire\":\"loopback\",\"bytes\":{len_bytes},\"seconds\":{seconds:.3},\
         \"gb_per_s\":{:.2},\"send_cpu_s_per_gb\":{:.3},\"receive_cpu_s_per_gb\":{:.3},\
         \"process_cpu_s_per_gb\":{:.3},\"send_copied_bytes\":{},\"receive_copied_bytes\":{},\
         \"send_ms\":{},\"receive_ms\":{},\"send_fallbacks\":{:?},\"receive_fallbacks\":{:?}}}",
        gigabytes / seconds,
        sent.cpu_s / gigabytes,
        received.cpu_s / gigabytes,
        process_s / gigabytes,
        sent.copied_bytes,
        received.copied_bytes,
        stages(sent.times),
        stages(received.times),
        sent.fallbacks,
        received.fallbacks,
    );
    Ok(())
}

/// Stage times as a JSON object, in milliseconds.
fn stages(times: StageTimes) -> String {
    let StageTimes { source_ns, digest_ns, send_ns, receive_ns, target_ns } = times;
    let ms = |ns: u64| ns / 1_000_000;
    format!(
        "{{\"source\":{},\"digest\":{},\"send\":{},\"receive\":{},\"target\":{}}}",
        ms(source_ns),
        ms(digest_ns),
        ms(send_ns),
        ms(receive_ns),
        ms(target_ns)
    )
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let host = Host::read(Path::new("/"));
    for _ in 0..options.repeat {
        run(&options, &host)?;
    }
    Ok(())
}
