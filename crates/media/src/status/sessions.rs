//! `/api/sessions`: the answers of files under way as JSON.
//!
//! The one that is most likely to run dry comes first. Another figure is one more line here.

use std::{
    cmp::Ordering,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::{
    figures::{Figures, SESSIONS_MAX},
    sample::{seconds, thousandths},
};
use crate::{
    server::{Session, Snapshot},
    slack::BOUNDS_MS,
};

const LIMIT_DEFAULT: usize = 1_000;
/// Most characters of a text that a stranger wrote.
const TEXT_CHARS_MAX: usize = 500;

/// Reads the value of `limit=`; `None` where it makes no sense.
pub(super) fn limit(parameter: Option<&str>) -> Option<usize> {
    let Some(text) = parameter else { return Some(LIMIT_DEFAULT) };
    text.parse().ok().map(|limit: usize| limit.min(SESSIONS_MAX))
}

/// Shows at most `limit` of the sessions that were looked at, the riskiest first.
pub(super) fn sessions(figures: &Figures, limit: usize) -> Value {
    let snapshot = &figures.snapshot;
    let mut sorted: Vec<&Session> = snapshot.sessions.iter().collect();
    sorted.sort_by(|one, other| riskiest_first(one, other));
    let shown: Vec<Value> =
        sorted.into_iter().take(limit).map(|one| session(one, snapshot)).collect();
    json!({
        "time_s": since_1970_s(snapshot.time),
        "sessions_count": snapshot.sessions_count,
        "looked_at": snapshot.sessions.len(),
        "loops_missing": snapshot.loops_missing,
        "slack_bounds_ms": BOUNDS_MS,
        "sessions": shown,
    })
}

fn session(session: &Session, snapshot: &Snapshot) -> Value {
    let risk = risk(session);
    json!({
        "id": session.id,
        "peer": session.peer,
        "target": cut(&session.target),
        "user_agent": session.user_agent.as_deref().map(cut),
        "since_s": since_1970_s(session.since),
        "age_s": seconds(snapshot.time.duration_since(session.since).unwrap_or_default()),
        "rate_bits_per_s": session.rate_bits_per_s,
        "state": session.state.name(),
        "len_bytes": session.len_bytes,
        "sent_bytes": session.sent_bytes,
        "periods": session.periods,
        "misses": session.misses,
        "held_back": session.held_back,
        "slack_ms": session.slack_ms,
        "slack_counts": session.slack.counts,
        "buffer_s": risk.map(|_| thousandths(session.buffer_s.into())),
        "rebuffer_risk": risk.map(thousandths),
    })
}

/// Risk that a stream runs dry; `None` before the end of its first period, as nothing is known of
/// it.
fn risk(session: &Session) -> Option<f64> {
    (session.periods > 0).then_some(session.rebuffer_risk.into())
}

fn riskiest_first(one: &Session, other: &Session) -> Ordering {
    let risk = |session| risk(session).unwrap_or(-1.0);
    let by_risk = risk(other).total_cmp(&risk(one));
    by_risk.then(other.misses.cmp(&one.misses)).then(one.id.cmp(&other.id))
}

fn since_1970_s(time: SystemTime) -> f64 {
    seconds(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(TEXT_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example::{example, session};

    #[test]
    fn the_riskiest_comes_first_and_of_a_new_one_nothing_is_known() {
        let figures = example(0);
        let found = sessions(&figures, 10);
        let ids: Vec<&Value> =
            found["sessions"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [2, 3, 1]);
        assert_eq!(found["sessions"][0]["rebuffer_risk"], 0.9);
        assert!(found["sessions"][2]["rebuffer_risk"].is_null());
        assert!(found["sessions"][2]["buffer_s"].is_null());
        assert_eq!(found["sessions"][0]["age_s"], 10.0);
        let fewer = sessions(&figures, 1);
        assert_eq!(fewer["sessions"].as_array().unwrap().len(), 1);
        assert_eq!((&fewer["sessions_count"], &fewer["looked_at"]), (&3.into(), &3.into()));
    }

    #[test]
    fn what_a_stranger_wrote_stays_text_and_is_cut() {
        let mut figures = example(0);
        let mut long = session(9, 1.0, 1);
        long.target = "ä".repeat(9_000);
        figures.snapshot.sessions.push(long);
        let text = sessions(&figures, 10).to_string();
        let found: Value = serde_json::from_str(&text).unwrap();
        let target = found["sessions"][0]["target"].as_str().unwrap();
        assert_eq!(target.chars().count(), TEXT_CHARS_MAX);
        assert_eq!(found["sessions"][1]["target"], "/<b>film</b>.mp4?rate=2M");
        assert_eq!(found["sessions"][1]["user_agent"], "VLC \"3\"\n");
    }

    #[test]
    fn a_limit_is_a_number() {
        for (text, expected) in [
            (None, Some(LIMIT_DEFAULT)),
            (Some("0"), Some(0)),
            (Some("20"), Some(20)),
            (Some("99999999"), Some(SESSIONS_MAX)),
            (Some("-1"), None),
            (Some(""), None),
            (Some("all"), None),
        ] {
            assert_eq!(limit(text), expected, "{text:?}");
        }
    }
}
