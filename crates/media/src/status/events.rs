//! `/api/events`: a sample a second as server-sent events (HTML, 9.2), the last minutes first.
//!
//! One thread takes the samples, for all who look and for those who come later. It costs the
//! server's loops one look a second, which counts their streams.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::sample::Samples;

const INTERVAL: Duration = Duration::from_secs(1);
/// Most samples that a page has when it is opened: five minutes.
const HISTORY_MAX: usize = 300;
/// Time that a browser waits before it comes again.
const RETRY_MS: u32 = 2_000;

/// The samples so far, and who waits for the next.
#[derive(Default)]
pub(super) struct Feed {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Default)]
struct Kept {
    /// Number of the last sample; the first is 1.
    number: u64,
    history: VecDeque<Arc<str>>,
    has_ended: bool,
}

/// Next text for one who looks at events.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A text to be sent.
    Event(String),
    /// The last text; then the connection is closed.
    End(String),
}

impl Feed {
    /// Takes samples until the end; for a thread of its own.
    pub fn run(&self, mut samples: Samples) {
        let mut due = Instant::now();
        loop {
            let sample = samples.take().to_string();
            self.publish(&sample);
            due = (due + INTERVAL).max(Instant::now());
            let mut kept = self.lock();
            while !kept.has_ended {
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                let waited = self.changed.wait_timeout(kept, left);
                kept = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if kept.has_ended {
                return;
            }
        }
    }

    fn publish(&self, sample: &str) {
        let mut kept = self.lock();
        kept.number += 1;
        kept.history.push_back(sample.into());
        if kept.history.len() > HISTORY_MAX {
            kept.history.pop_front();
        }
        self.changed.notify_all();
    }

    /// Ends the feed: whoever waits gets the end.
    pub fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits for the sample after `seen`, 0 for none. One that was too slow for a
    /// sample misses it.
    pub fn next(&self, seen: &mut u64) -> Next {
        let mut kept = self.lock();
        while kept.number == *seen && !kept.has_ended {
            kept = self.changed.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        if kept.has_ended {
            return Next::End("event: end\ndata: {}\n\n".to_owned());
        }
        let is_first = *seen == 0;
        *seen = kept.number;
        if !is_first {
            let newest = kept.history.back().cloned().unwrap_or_default();
            return Next::Event(format!("event: sample\ndata: {newest}\n\n"));
        }
        let history: Vec<Arc<str>> = kept.history.iter().cloned().collect();
        drop(kept);
        let history = history.join(",");
        Next::Event(format!("retry: {RETRY_MS}\nevent: history\ndata: [{history}]\n\n"))
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn event(text: &str) -> Next {
        Next::Event(text.to_owned())
    }

    #[test]
    fn who_comes_late_gets_what_was_and_who_is_slow_gets_the_newest() {
        let feed = Feed::default();
        feed.publish("1");
        feed.publish("2");
        let mut seen = 0;
        let history = "retry: 2000\nevent: history\ndata: [1,2]\n\n";
        assert_eq!(feed.next(&mut seen), event(history));
        feed.publish("3");
        feed.publish("4");
        assert_eq!(feed.next(&mut seen), event("event: sample\ndata: 4\n\n"));
        assert_eq!(seen, 4);
    }

    #[test]
    fn the_past_is_bounded_and_the_end_wakes_all() {
        let feed = Arc::new(Feed::default());
        for number in 0..HISTORY_MAX + 5 {
            feed.publish(&number.to_string());
        }
        let mut seen = 0;
        let Next::Event(text) = feed.next(&mut seen) else { panic!() };
        assert!(text.contains("data: [5,6,"), "{text}");
        let waiting = feed.clone();
        let thread = thread::spawn(move || waiting.next(&mut seen));
        feed.end();
        assert!(matches!(thread.join().unwrap(), Next::End(_)));
        assert!(matches!(feed.next(&mut 0), Next::End(_)));
    }
}
