//! The lines of `haul media --json` after the first, printed on a thread of their own.
//!
//! Nobody may be reading, and the server goes on and ends all the same.

use crate::ui;
use haul_media::status::Samples;
use serde_json::Value;
use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Interval between two samples: a line for those who watch, and little for those who keep them.
const INTERVAL: Duration = Duration::from_secs(10);
/// Longest time that the last line may take.
const END_MAX: Duration = Duration::from_secs(3);
/// Interval between checks for the end of the last line.
const END_LOOK: Duration = Duration::from_millis(5);

pub struct Lines {
    last: Sender<Value>,
    thread: JoinHandle<()>,
}

impl Lines {
    /// Starts the thread that prints the lines.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(mut samples: Samples) -> io::Result<Self> {
        let (last, receiver) = channel();
        // The rates of the first line are those since now.
        let _ = samples.take();
        let run = move || print_all(samples, &receiver);
        let thread = thread::Builder::new().name("haul-media-lines".to_owned()).spawn(run)?;
        Ok(Self { last, thread })
    }

    /// Prints the last line, if somebody reads it.
    pub fn end(self, line: &Value) {
        let _ = self.last.send(line.clone());
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < END_MAX {
            thread::sleep(END_LOOK);
        }
    }
}

fn print_all(mut samples: Samples, last: &Receiver<Value>) {
    loop {
        match last.recv_timeout(INTERVAL) {
            Ok(line) => return ui::json::print(&line),
            Err(RecvTimeoutError::Timeout) => ui::json::print(&samples.take()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
