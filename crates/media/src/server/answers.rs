//! Answers to requests: a file, a page, or why not.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime},
};

use super::{rates::Known, snapshot::Mailbox};
use crate::{
    admission::{Asked, Place, Priority, Refusal, Start, Viewer, Why},
    audience::Seat,
    delivery,
    http::{
        content_type,
        request::{Method, Request},
        response::{
            Common, Entity, Piece, Response, of_file, of_page, of_status, of_status_because,
        },
    },
    index_page,
    pace::{Pacing, Rate},
    policy::{Policy, RateChoice},
    server::shared::{Options, Shared},
    site::{Found, OpenFile},
};

const ALLOWED: &str = "GET, HEAD";
/// Methods for those who may ask from pages of other sites.
const ALLOWED_TO_PAGES: &str = "GET, HEAD, OPTIONS";

/// Text that a browser shows whose page was led here by its site's name.
const UNKNOWN: &str = "this name is not known here; start with --host-name NAME";

/// Numbers the parts of answers with several ranges; no file is searched for it, as nginx does.
static BOUNDARIES: AtomicU64 = AtomicU64::new(1);

/// An answer, and what it is made of.
#[derive(Debug)]
pub(super) struct Reply {
    pub response: Response,
    pub file: Option<OpenFile>,
    /// The pace of a paced stream.
    pub pace: Option<Pace>,
    /// The place of an admitted stream.
    pub place: Option<Place>,
    /// The seat of an answer with a file.
    pub seat: Option<Seat>,
}

/// Rate and schedule of a paced stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub rate: Rate,
    pub pacing: Pacing,
    /// Periods over which the start-up comes.
    pub start_up_periods: u32,
    /// Time for which nothing is sent at first.
    pub wait: Duration,
    /// The client named the rate, and the film needs no such one.
    pub is_wish: bool,
}

impl Reply {
    pub fn short(response: Response) -> Self {
        Self { response, file: None, pace: None, place: None, seat: None }
    }
}

pub(super) fn common(options: &Options, is_kept: bool) -> Common {
    Common { now: SystemTime::now(), is_open_to_pages: options.is_open_to_pages, is_kept }
}

/// Client that asks, and how it is told that a rate is known.
pub(super) struct Client<'a> {
    pub peer: IpAddr,
    pub mailbox: &'a Mailbox,
    pub key: usize,
    pub now: Instant,
}

/// Answers a request; `None` where the rate of the film is not known yet: then the client's loop is
/// told later.
pub(super) fn answer(
    shared: &Shared,
    request: &Request,
    is_kept: bool,
    client: &Client<'_>,
) -> Option<Reply> {
    let common = common(&shared.options, is_kept);
    let host = request.host.as_deref();
    if shared.options.host_names.as_ref().is_some_and(|names| !names.know(host)) {
        return Some(Reply::short(of_status_because(421, Some(request), &common, &[], UNKNOWN)));
    }
    match request.method {
        Method::Get | Method::Head => match shared.site.find(&request.target.path) {
            Found::File(file) => of_found(shared, request, &common, file, client),
            found => Some(of_no_file(shared, request, &common, found)),
        },
        Method::Options | Method::Other => Some(of_method(request, &common)),
    }
}

/// Answers a method that gets no file.
fn of_method(request: &Request, common: &Common) -> Reply {
    let (is_open, is_asked_by_a_page) = (common.is_open_to_pages, request.origin.is_some());
    if is_open && request.method == Method::Options {
        let to_pages = [
            ("Access-Control-Allow-Methods", ALLOWED_TO_PAGES.to_owned()),
            ("Access-Control-Allow-Headers", "Range, If-Range".to_owned()),
            ("Access-Control-Max-Age", "86400".to_owned()),
        ];
        let to_others = [("Allow", ALLOWED_TO_PAGES.to_owned())];
        let fields: &[_] = if is_asked_by_a_page { &to_pages } else { &to_others };
        return Reply::short(of_status(204, Some(request), common, fields));
    }
    let allowed = if is_open { ALLOWED_TO_PAGES } else { ALLOWED };
    Reply::short(of_status(405, Some(request), common, &[("Allow", allowed.to_owned())]))
}

fn of_no_file(shared: &Shared, request: &Request, common: &Common, found: Found) -> Reply {
    let refuse = |status: u16, fields: &[(&str, String)]| {
        Reply::short(of_status(status, Some(request), common, fields))
    };
    match found {
        Found::Directory(directory) if shared.options.has_index => {
            let path = &request.target.path;
            let page = shared.pages.get(directory.identity, path, Instant::now(), || {
                shared.site.list(directory).map(|listing| index_page::html(path, &listing))
            });
            match page {
                Ok(page) => Reply::short(of_page(request, common, page)),
                Err(_) => refuse(500, &[]),
            }
        }
        Found::NeedsSlash => {
            let mut to = index_page::encoded_path(&request.target.path) + "/";
            if !request.target.query.is_empty() {
                to = format!("{to}?{}", request.target.query);
            }
            refuse(301, &[("Location", to)])
        }
        Found::Missing => refuse(404, &[]),
        Found::Directory(_) | Found::Forbidden => refuse(403, &[]),
        Found::Failed(_) | Found::File(_) => refuse(500, &[]),
    }
}

/// Answers with a file, at the rate and by the priority that it is to have, if there is a place for
/// it.
fn of_found(
    shared: &Shared,
    request: &Request,
    common: &Common,
    file: OpenFile,
    client: &Client<'_>,
) -> Option<Reply> {
    let policy = shared.policy();
    let is_limited = shared.admission.is_limited();
    let wish = match Wish::of(request, &policy, &file, is_limited) {
        Ok(wish) => wish,
        Err(why) => {
            return Some(Reply::short(of_status_because(400, Some(request), common, &[], why)));
        }
    };
    delivery::advise(&file, shared.options.readahead);
    let entity = Entity {
        len_bytes: file.len_bytes,
        content_type: file.content_type,
        validators: file.validators.clone(),
    };
    let boundary = BOUNDARIES.fetch_add(1, Ordering::Relaxed);
    let response = of_file(request, &entity, common, boundary);
    if !response.pieces.iter().any(|piece| matches!(piece, Piece::File(_))) {
        return Some(Reply::short(response));
    }
    let known = match wish.needs_own(is_limited) {
        true => shared.rates.of(&file, client.mailbox, client.key),
        false => Known::Rate(None),
    };
    let own = match known {
        Known::Later => return None,
        // Whoever is not paced takes no place: nobody gets past the door in a crowd.
        Known::TooMany if is_limited => {
            let retry_after = Some(Duration::from_secs(1));
            let refusal = Refusal { why: Why::Busy, retry_after };
            shared.admission.note_refused(refusal.why);
            return Some(refused(shared, request, common, &policy, refusal));
        }
        Known::TooMany => wish.own(None),
        Known::Rate(rate) => wish.own(rate),
    };
    let rate = wish.rate(own, is_limited);
    let seat = Some(shared.audiences.take_seat(file.identity));
    let Some(rate) = rate else {
        return Some(Reply { response, file: Some(file), pace: None, place: None, seat });
    };
    let has_disk = policy.terms.capacity.disk.is_some();
    let uses_cache = shared.options.method != delivery::Method::Direct;
    let cached = if has_disk && uses_cache { file.cached_share() } else { 0.0 };
    let bytes = response.pieces.iter().map(Piece::len_bytes).sum();
    let (priority, film) = (wish.priority, file.identity);
    let is_seek = begins_within(&response);
    let is_wish = own.is_none_or(|own| rate > own);
    let asked = Asked { rate, priority, cached, bytes, film, is_seek, is_wish };
    Some(match shared.admission.admit(viewer(request, client), asked, client.now) {
        Ok(place) => {
            let Start { start_up, periods, wait } = place.start();
            let pacing = Pacing { start_up, ..shared.options.pacing };
            let pace = Some(Pace { rate, pacing, start_up_periods: periods, wait, is_wish });
            Reply { response, file: Some(file), pace, place: Some(place), seat }
        }
        Err(refusal) => refused(shared, request, common, &policy, refusal),
    })
}

/// Whether an answer begins behind the file's beginning.
fn begins_within(response: &Response) -> bool {
    let start = response.pieces.iter().find_map(|piece| match piece {
        Piece::File(range) => Some(range.start),
        _ => None,
    });
    start > Some(0)
}

fn viewer(request: &Request, client: &Client<'_>) -> Viewer {
    let path = &request.target.path;
    let directory = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    Viewer { peer: client.peer, directory: path[..directory].to_vec() }
}

/// Name in a link whose reader was sent here by a server that had no place.
const HOP: &str = "haul-from";

/// Answers that there is no place: another server may have one, or this one a moment later.
fn refused(
    shared: &Shared,
    request: &Request,
    common: &Common,
    policy: &Policy,
    refusal: Refusal,
) -> Reply {
    if !policy.elsewhere.is_empty() && !request.target.names(HOP) {
        let turn = shared.sent_elsewhere.fetch_add(1, Ordering::Relaxed) as usize;
        let server = &policy.elsewhere[turn % policy.elsewhere.len()];
        let path = index_page::encoded_path(&request.target.path);
        let query = match request.target.query.as_str() {
            "" => format!("{HOP}=1"),
            query => format!("{query}&{HOP}=1"),
        };
        let to = [("Location", format!("{server}{path}?{query}"))];
        return Reply::short(of_status(307, Some(request), common, &to));
    }
    let why = match refusal.why {
        Why::Full(resource) => format!(
            "no place for another stream without risking those that are there ({})",
            resource.name()
        ),
        Why::Busy => "the rates of too many films are being found".to_owned(),
        Why::Late => "streams that are there are late, so nobody more is let in".to_owned(),
    };
    let Some(retry_after) = refusal.retry_after else {
        let why =
            format!("there is no place for a stream of its rate, whoever else is there: {why}");
        return Reply::short(of_status_because(503, Some(request), common, &[], &why));
    };
    let seconds = retry_after.as_secs_f64().ceil().max(1.0);
    let retry = [("Retry-After", format!("{seconds:.0}"))];
    Reply::short(of_status_because(503, Some(request), common, &retry, &why))
}

/// Rate and priority that a request asks for, and what it may have of them.
struct Wish {
    /// Rate of the server's own choice.
    own: RateChoice,
    /// Rate that the client asks for; `None` within is as fast as it is taken.
    asked: Option<Option<Rate>>,
    priority: Priority,
    len_bytes: u64,
}

/// Longest time, in seconds, that a film of unknown rate may play where places are counted.
const PLAYS_S_MAX: u64 = 12 * 3600;

impl Wish {
    fn of(
        request: &Request,
        policy: &Policy,
        file: &OpenFile,
        is_limited: bool,
    ) -> Result<Self, &'static str> {
        let (choice, mut priority) = policy.of_path(&request.target.path);
        let parameter =
            |name| policy.clients_choose.then(|| request.target.parameter(name)).flatten();
        if let Some(asked) = parameter("priority") {
            let asked = Priority::named(&asked).ok_or("priority= needs low, normal or high")?;
            // Nobody gives himself a better place.
            priority = priority.min(asked);
        }
        let asked = match parameter("rate").as_deref() {
            // Where places are counted, nobody goes past the door.
            Some("max") => (!is_limited).then_some(None),
            Some("auto") | None => None,
            Some(asked) => Some(Some(
                Rate::parse(asked).ok_or("rate= needs bits a second, such as 2M; auto; or max")?,
            )),
        };
        let is_played = content_type::is_played(file.content_type);
        let own = if is_played { choice } else { RateChoice::Unpaced };
        Ok(Self { own, asked, priority, len_bytes: file.len_bytes })
    }

    /// Whether the rate depends on what the film's container says.
    fn needs_own(&self, is_limited: bool) -> bool {
        matches!(self.own, RateChoice::Container { .. }) && (self.asked.is_none() || is_limited)
    }

    /// Rate that the server chooses; `container` is what the film says. `None`: as fast as it is
    /// taken.
    fn own(&self, container: Option<Rate>) -> Option<Rate> {
        match self.own {
            RateChoice::Unpaced => None,
            RateChoice::Fixed(rate) => Some(rate),
            RateChoice::Container { factor } => container.map(|rate| rate.times(factor)),
        }
    }

    /// Rate that the client gets, where the server chooses `own`.
    fn rate(&self, own: Option<Rate>, is_limited: bool) -> Option<Rate> {
        match (self.asked, own) {
            (None, own) => own,
            // Slower than it plays is of use to no player, and would keep a place for days.
            (Some(Some(asked)), Some(own)) if is_limited => Some(asked.max(own)),
            (Some(Some(asked)), None) if is_limited => {
                let slowest = Rate::new(self.len_bytes.saturating_mul(8) / PLAYS_S_MAX);
                Some(slowest.map_or(asked, |slowest| asked.max(slowest)))
            }
            (Some(asked), _) => asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_wish_and_where_places_are_counted_not_for_days() {
        let rate = |bits_per_s| Rate { bits_per_s };
        let own = RateChoice::Container { factor: 2.0 };
        let fixed = RateChoice::Fixed(rate(3_000));
        for (own, asked, is_limited, expected) in [
            (own, None, false, Some(4_000)),
            (own, None, true, Some(4_000)),
            (own, Some(None), false, None),
            (own, Some(Some(1_000)), false, Some(1_000)),
            (own, Some(Some(1_000)), true, Some(4_000)),
            (own, Some(Some(9_000)), true, Some(9_000)),
            (fixed, Some(Some(1_000)), true, Some(3_000)),
            (fixed, Some(Some(1_000)), false, Some(1_000)),
            (RateChoice::Unpaced, Some(Some(1_000)), true, Some(2_000)),
            (RateChoice::Unpaced, Some(Some(1_000)), false, Some(1_000)),
            (RateChoice::Unpaced, None, true, None),
        ] {
            let asked = asked.map(|asked: Option<u64>| asked.map(rate));
            let len_bytes = 2_000 / 8 * PLAYS_S_MAX;
            let wish = Wish { own, asked, priority: Priority::Normal, len_bytes };
            let given = wish.rate(wish.own(Some(rate(2_000))), is_limited);
            assert_eq!(given, expected.map(rate), "{own:?} {asked:?} {is_limited}");
        }
    }
}
