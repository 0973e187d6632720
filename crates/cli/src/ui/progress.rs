//! Progress line of a terminal: how far, how fast, what limits; and an outage with its countdown.

use super::{
    Look, Screen, explain,
    line::{Colour, Part, Tone, fitted},
    notices::{Notices, Shows, file_line, lag_text, session_line},
    plain::limiting_text,
    report, units, write_line,
};
use haul_transfer::{Connection, ConnectionState, Event, Lag, Progress, Report};
use std::{
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// The weight of the last interval in the rate that the time left is computed from.
const LAST_INTERVAL_WEIGHT: f64 = 0.3;
/// Interval at which the screen itself counts the seconds of an outage: nothing else happens then.
const COUNT_EVERY: Duration = Duration::from_millis(500);
const BAR_COLUMNS: usize = 12;
/// Signs that clear a line: carriage return, and erase to its end (ECMA-48 8.3.41).
const CLEAR: &str = "\r\x1b[K";

/// A line that moves on standard error; the report goes to `output`.
#[derive(Debug)]
pub struct ProgressLine<Output> {
    output: Output,
    drawing: Arc<Mutex<Drawing>>,
    notices: Notices,
    look: Look,
    look_of_output: Look,
    /// Sender whose end stops the thread that counts.
    _counting: mpsc::Sender<()>,
}

/// State of the line, and how it is drawn.
#[derive(Debug)]
struct Drawing {
    shown: Shown,
    look: Look,
    is_drawn: bool,
}

/// State of the transfer that the line shows.
#[derive(Clone, Debug, Default)]
pub enum Shown {
    #[default]
    Nothing,
    Progress(Box<Progress>, SmoothRate, Option<Lag>),
    Outage(Connection, Instant),
}

impl Drawing {
    fn draw(&mut self) {
        if matches!(self.shown, Shown::Nothing) {
            return self.clear();
        }
        // A line of all columns would leave the cursor on the next one.
        let columns = self.look.columns().unwrap_or(80).saturating_sub(1);
        let line = line_text(&self.shown, Instant::now(), columns, self.look);
        let mut errors = std::io::stderr().lock();
        // The transfer matters more than a terminal that went away.
        let _ = write!(errors, "{CLEAR}{line}").and_then(|()| errors.flush());
        self.is_drawn = true;
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let mut errors = std::io::stderr().lock();
            let _ = write!(errors, "{CLEAR}").and_then(|()| errors.flush());
        }
    }
}

fn lock(drawing: &Mutex<Drawing>) -> MutexGuard<'_, Drawing> {
    drawing.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Output: Write> ProgressLine<Output> {
    /// Begins a progress line; `look` is that of standard error, `look_of_output` that of `output`.
    pub fn new(output: Output, look: Look, look_of_output: Look) -> Self {
        let drawing = Drawing { shown: Shown::default(), look, is_drawn: false };
        let drawing = Arc::new(Mutex::new(drawing));
        let (counting, ended) = mpsc::channel::<()>();
        let counted = drawing.clone();
        // Without the thread the line stands still during an outage.
        let _ = thread::Builder::new().name("haul-screen".into()).spawn(move || {
            while ended.recv_timeout(COUNT_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                let mut drawing = lock(&counted);
                if matches!(drawing.shown, Shown::Outage(..)) {
                    drawing.draw();
                }
            }
        });
        let notices = Notices::default();
        Self { output, drawing, notices, look, look_of_output, _counting: counting }
    }

    fn above(&self, line: &str) {
        let mut drawing = lock(&self.drawing);
        drawing.clear();
        write_line(&mut std::io::stderr(), line);
        drawing.draw();
    }

    fn show(&self, event: &Event) {
        let mut drawing = lock(&self.drawing);
        drawing.shown.take(event);
        drawing.draw();
    }
}

impl Shown {
    /// Takes an event into what the line says.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Progress(progress) => {
                let (mut rate, lag) = match std::mem::take(self) {
                    Self::Progress(_, rate, lag) => (rate, lag),
                    // A server that is silent makes no progress, and its outage is not over.
                    Self::Outage(outage, at)
                        if outage.state == ConnectionState::Silent
                            && progress.interval_bytes == 0 =>
                    {
                        return *self = Self::Outage(outage, at);
                    }
                    Self::Nothing | Self::Outage(..) => (SmoothRate::default(), None),
                };
                rate.add(progress);
                *self = Self::Progress(Box::new(progress.clone()), rate, lag);
            }
            Event::Connection(outage) if outage.state == ConnectionState::Back => {
                *self = Self::Nothing;
            }
            Event::Connection(outage) => *self = Self::Outage(outage.clone(), Instant::now()),
            Event::Session(_) => *self = Self::Nothing,
            Event::Lag(lag) => {
                if let Self::Progress(_, _, shown) = self {
                    *shown = Some(lag.clone());
                }
            }
            _ => {}
        }
    }
}

impl<Output: Write> Screen for ProgressLine<Output> {
    fn event(&mut self, event: &Event) {
        if let Event::Connection(outage) = event
            && outage.state == ConnectionState::Back
        {
            let line = fitted(outage_parts(outage, 0.0), None, usize::MAX, Colour::Off);
            self.above(&format!("haul: {line}"));
        }
        let session = session_line(event, self.look.whole);
        let lines = [session, file_line(event), self.notices.line(event, Shows::All)];
        for line in lines.iter().flatten() {
            self.above(line);
        }
        if let Some(block) = explain::block(event) {
            self.above(&block);
        }
        self.show(event);
    }

    fn finish(&mut self) {
        {
            let mut drawing = lock(&self.drawing);
            drawing.shown = Shown::Nothing;
            drawing.clear();
        }
        for line in self.notices.counted() {
            self.above(&line);
        }
    }

    fn report(&mut self, report: &Report) {
        let text = report::text(report, self.notices.failed(), self.look_of_output);
        write_line(&mut self.output, &text);
    }
}

/// A rate over the last intervals, so that the time left does not jump.
#[derive(Clone, Copy, Debug, Default)]
pub struct SmoothRate {
    rate_bytes_per_s: Option<f64>,
}

impl SmoothRate {
    pub fn add(&mut self, progress: &Progress) {
        if progress.interval_seconds <= 0.0 {
            return;
        }
        let last = progress.interval_bytes as f64 / progress.interval_seconds;
        let before = self.rate_bytes_per_s.unwrap_or(last);
        self.rate_bytes_per_s = Some(before + (last - before) * LAST_INTERVAL_WEIGHT);
    }

    fn seconds_for(&self, bytes: u64) -> Option<f64> {
        self.rate_bytes_per_s.filter(|rate| *rate >= 1.0).map(|rate| bytes as f64 / rate)
    }
}

/// Text of the line, at most `columns` wide.
#[must_use]
pub fn line_text(shown: &Shown, now: Instant, columns: usize, look: Look) -> String {
    match shown {
        Shown::Nothing => String::new(),
        Shown::Outage(outage, told_at) => {
            let passed = now.saturating_duration_since(*told_at).as_secs_f64();
            fitted(outage_parts(outage, passed), None, columns, look.colour)
        }
        Shown::Progress(progress, rate, lag) => {
            let mut parts = progress_parts(progress, rate);
            if let Some(lag) = lag {
                parts.push(Part::new(25, format!("behind: {}", lag_text(lag))));
            }
            let is_tree = progress.files_total > 1;
            let name = progress.current.as_ref().filter(|_| is_tree).map(ToString::to_string);
            fitted(parts, name.as_deref(), columns, look.colour)
        }
    }
}

/// Parts of the line in an outage, `passed` seconds after it was told.
#[must_use]
pub fn outage_parts(outage: &Connection, passed: f64) -> Vec<Part> {
    let whole = |seconds: f64| units::whole_time(seconds.max(0.0));
    let (gone, left) = (whole(outage.seconds + passed), whole(outage.seconds_left - passed));
    let words = match outage.state {
        ConnectionState::Silent => format!("no word from the server for {gone}"),
        ConnectionState::Lost => format!("connection lost {gone} ago, {left} left"),
        ConnectionState::Back => format!("the server is back after {gone}"),
    };
    let more = match outage.state {
        ConnectionState::Silent => format!("given up in {left}"),
        ConnectionState::Lost => format!("since {}", units::clock(outage.since_ms)),
        ConnectionState::Back => String::new(),
    };
    let is_back = outage.state == ConnectionState::Back;
    let why = if is_back { String::new() } else { outage.why.clone() };
    vec![
        Part::new(90, words).toned(Tone::Bad),
        Part::new(80, more),
        Part::new(70, outage.server.clone()),
        Part::new(60, why),
    ]
}

/// Parts of the progress line, in their order. What is left out first has the least number: the
/// name is cut, then go bar, streams, lag, name, files, amount, time left, per cent, limiting
/// stage; the rate stays.
fn progress_parts(progress: &Progress, rate: &SmoothRate) -> Vec<Part> {
    let (received, total) = (progress.bytes_received, progress.bytes_total);
    let left_bytes = total.saturating_sub(received);
    let is_idle = !progress.total_known && left_bytes == 0 && progress.interval_bytes == 0;
    let mut parts = Vec::new();
    if progress.total_known && total > 0 {
        let share = received as f64 / total as f64;
        parts.push(Part::new(10, bar(share)));
        // 100 % is all of it, and no rounding.
        parts.push(Part::new(70, format!("{:>3} %", (share * 100.0).floor().min(100.0))));
    }
    let amount = if is_idle || total == 0 {
        units::bytes(received)
    } else if progress.total_known {
        units::of_bytes(received, total)
    } else {
        format!("{} so far", units::of_bytes(received, total))
    };
    parts.push(Part::new(50, amount));
    parts.push(Part::new(90, units::rate(progress.gbit_per_s)));
    match limiting_text(progress) {
        _ if is_idle => parts.push(Part::new(80, "waits for more to send")),
        Some(limiting) => parts.push(Part::new(80, limiting).toned(Tone::Look)),
        None => {}
    }
    let moves = progress.interval_bytes > 0 && progress.total_known && left_bytes > 0;
    if let Some(seconds) = rate.seconds_for(left_bytes).filter(|_| moves) {
        parts.push(Part::new(60, format!("ETA {}", units::whole_time(seconds))));
    }
    if progress.files_total > 1 {
        let more = if progress.total_known { "" } else { "+" };
        let (settled, total) = (progress.files_settled, progress.files_total);
        parts.push(Part::new(40, format!("{settled}/{total}{more} files")));
    }
    if progress.streams > 0 {
        parts.push(Part::new(20, units::count(progress.streams.into(), "stream")));
    }
    parts
}

fn bar(share: f64) -> String {
    let filled = (share * BAR_COLUMNS as f64) as usize;
    let filled = filled.min(BAR_COLUMNS);
    let head = if filled == BAR_COLUMNS { "" } else { ">" };
    let rest = BAR_COLUMNS - filled - head.len();
    format!("{}{head}{}", "=".repeat(filled), " ".repeat(rest))
}
