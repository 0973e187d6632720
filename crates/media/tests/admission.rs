//! Tests of the door: who counts for how long, and when it opens again.

#![allow(clippy::unwrap_used)]

use haul_media::{
    admission::{
        Admission, Asked, Place, Priority, Refusal, Terms, Viewer, Why,
        capacity::{Capacity, Resource},
    },
    pace::Rate,
};
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

/// Terms with room for so many streams of 1 Mbit/s, with a margin of a tenth and what lower layers
/// add.
fn terms(streams: f64) -> Terms {
    let bits_per_s = streams * 1_000_000.0 * 1538.0 / 1448.0 / 0.9 + 1.0;
    let capacity = Capacity { network_bits_per_s: Some(bits_per_s), ..Capacity::default() };
    Terms { capacity, ..Terms::default() }
}

/// A film of 1 Mbit/s that plays for a time.
fn film(seconds: u64) -> Asked {
    Asked {
        rate: Rate { bits_per_s: 1_000_000 },
        priority: Priority::Normal,
        cached: 0.0,
        bytes: seconds * 125_000,
        film: (1, 1),
        is_seek: false,
        is_wish: false,
    }
}

fn admit(
    admission: &Arc<Admission>,
    viewer: u8,
    asked: Asked,
    now: Instant,
) -> Result<Place, Refusal> {
    let viewer = Viewer { peer: IpAddr::from([10, 0, 0, viewer]), directory: b"/films".to_vec() };
    admission.admit(viewer, asked, now)
}

/// Share of the limit that is taken.
fn taken(admission: &Admission, now: Instant) -> f64 {
    let door = admission.door(now);
    door.taken.network / door.limit.network
}

#[test]
fn a_start_up_that_is_over_counts_no_more_and_one_that_is_not_does() {
    let admission = Arc::new(Admission::new(terms(10.0)));
    let (now, s) = (Instant::now(), Duration::from_secs);
    let _first = admit(&admission, 1, film(2_400), now).unwrap();
    let _second = admit(&admission, 2, film(2_400), now + s(2)).unwrap();
    // A stream takes a tenth, and two more for a period of 3 s.
    for (at, wanted) in [(2, 0.6), (3, 0.4), (4, 0.4), (5, 0.2)] {
        let found = taken(&admission, now + s(at));
        assert!((found - wanted).abs() < 0.01, "{found} after {at} s");
    }
}

#[test]
fn the_door_opens_when_two_periods_are_over_and_not_before() {
    let admission = Arc::new(Admission::new(terms(10.0)));
    let now = Instant::now();
    admission.missed(false, now);
    let opens = now + Duration::from_secs(6);
    assert!(admission.door(opens - Duration::from_nanos(1)).is_shut);
    assert!(!admission.door(opens).is_shut);
}

#[test]
fn a_place_is_kept_long_after_an_answer_sent_whole_and_shortly_after_one_cut_off() {
    for (missing_bytes, kept_s) in [(0, 30), (1, 6)] {
        let terms = Terms { streams_max: Some(1), ..Terms::default() };
        let admission = Arc::new(Admission::new(terms));
        // Its viewer has 2 s of it in hand.
        let begun = Instant::now().checked_sub(Duration::from_secs(58)).unwrap();
        let place = admit(&admission, 1, film(60), begun).unwrap();
        place.note_sent(film(60).bytes - missing_bytes);
        let before = Instant::now();
        drop(place);
        let after = |s| Instant::now() + Duration::from_secs(s);
        let refused = admit(&admission, 2, film(60), before + Duration::from_secs(kept_s - 1));
        assert_eq!(refused.err().map(|refusal| refusal.why), Some(Why::Full(Resource::Streams)));
        assert!(admit(&admission, 2, film(60), after(kept_s)).is_ok(), "{missing_bytes}");
    }
}

#[test]
fn a_place_that_is_kept_counts_by_new_terms() {
    let admission = Arc::new(Admission::new(terms(10.0)));
    drop(admit(&admission, 1, film(2_400), Instant::now()).unwrap());
    admission.set_terms(terms(5.0));
    let found = taken(&admission, Instant::now() + Duration::from_secs(4));
    assert!((found - 0.2).abs() < 0.01, "{found}");
}

#[test]
fn a_limit_is_what_was_measured_or_a_number_and_every_refusal_is_counted() {
    let by_number = Terms { streams_max: Some(9), ..Terms::default() };
    for (terms, is_limited) in [(Terms::default(), false), (terms(1.0), true), (by_number, true)] {
        let admission = Admission::new(terms);
        assert_eq!(admission.is_limited(), is_limited);
        admission.note_refused(Why::Busy);
        let counted = admission.refusals();
        let of = counted.by_name().filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        assert_eq!(of, [("busy", 1)]);
    }
}
