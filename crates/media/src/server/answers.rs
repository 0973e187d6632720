//! What a request gets: a file, a page, or why not.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime},
};

use super::{Options, Shared, rates::Known, snapshot::Mailbox};
use crate::{
    admission::{Asked, Place, Priority, Refusal, Viewer, Why},
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
    site::{Found, OpenFile},
};

const ALLOWED: &str = "GET, HEAD, OPTIONS";

/// Numbers the parts of answers with several ranges; no file is searched for it, as nginx does.
static BOUNDARIES: AtomicU64 = AtomicU64::new(1);

/// An answer, and what it is made of.
#[derive(Debug)]
pub(super) struct Reply {
    pub response: Response,
    pub file: Option<OpenFile>,
    /// Of a stream that is paced.
    pub rate: Option<(Rate, Pacing)>,
    /// Of a stream that is admitted.
    pub place: Option<Place>,
    /// Of an answer with a file.
    pub seat: Option<Seat>,
}

impl Reply {
    pub fn short(response: Response) -> Self {
        Self { response, file: None, rate: None, place: None, seat: None }
    }
}

pub(super) fn common(options: &Options, is_kept: bool) -> Common {
    Common { now: SystemTime::now(), is_open_to_pages: options.is_open_to_pages, is_kept }
}

/// Who asks, and how it is told that a rate is known.
pub(super) struct Client<'a> {
    pub peer: IpAddr,
    pub mailbox: &'a Mailbox,
    pub key: usize,
    pub now: Instant,
}

/// `None` where the rate of the film is not known yet: then the client's loop is told later.
pub(super) fn answer(
    shared: &Shared,
    request: &Request,
    is_kept: bool,
    client: &Client<'_>,
) -> Option<Reply> {
    let common = common(&shared.options, is_kept);
    match request.method {
        Method::Get | Method::Head => match shared.site.find(&request.target.path) {
            Found::File(file) => of_found(shared, request, &common, file, client),
            found => Some(of_no_file(shared, request, &common, found)),
        },
        Method::Options | Method::Other => Some(of_method(shared, request, &common)),
    }
}

/// A method that gets no file.
fn of_method(shared: &Shared, request: &Request, common: &Common) -> Reply {
    let is_asked_by_a_page = request.method == Method::Options && request.origin.is_some();
    if shared.options.is_open_to_pages && is_asked_by_a_page {
        let allowed = [
            ("Access-Control-Allow-Methods", ALLOWED.to_owned()),
            ("Access-Control-Allow-Headers", "Range, If-Range".to_owned()),
            ("Access-Control-Max-Age", "86400".to_owned()),
        ];
        return Reply::short(of_status(204, Some(request), common, &allowed));
    }
    Reply::short(of_status(405, Some(request), common, &[("Allow", ALLOWED.to_owned())]))
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

/// A file, at the rate and by the priority that it is to have, if there is a place for it.
fn of_found(
    shared: &Shared,
    request: &Request,
    common: &Common,
    file: OpenFile,
    client: &Client<'_>,
) -> Option<Reply> {
    let policy = shared.policy();
    let wish = match Wish::of(request, &policy, &file, shared.admission.is_limited()) {
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
    let rate = match wish.rate {
        RateChoice::Unpaced => None,
        RateChoice::Fixed(rate) => Some(rate),
        RateChoice::Container { factor } => {
            match shared.rates.of(&file, client.mailbox, client.key) {
                Known::Rate(rate) => rate.map(|rate| rate.times(factor)),
                Known::Later => return None,
            }
        }
    };
    let seat = Some(shared.audiences.take_seat(file.identity));
    let Some(rate) = rate else {
        return Some(Reply { response, file: Some(file), rate: None, place: None, seat });
    };
    let has_disk = policy.terms.capacity.disk.is_some();
    let uses_cache = shared.options.method != delivery::Method::Direct;
    let cached = if has_disk && uses_cache { file.cached_share() } else { 0.0 };
    let bytes = response.pieces.iter().map(Piece::len_bytes).sum();
    let asked = Asked { rate, priority: wish.priority, cached, bytes };
    let directory = request.target.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let directory = request.target.path[..directory].to_vec();
    let viewer = Viewer { peer: client.peer, directory };
    Some(match shared.admission.admit(viewer, asked, client.now) {
        Ok(place) => Reply {
            response,
            file: Some(file),
            rate: Some((rate, shared.options.pacing)),
            place: Some(place),
            seat,
        },
        Err(refusal) => refused(shared, request, common, &policy, refusal),
    })
}

/// In a link: its reader was sent here by a server that had no place.
const HOP: &str = "haul-from";

/// There is no place: another server may have one, or this one a moment later.
fn refused(
    shared: &Shared,
    request: &Request,
    common: &Common,
    policy: &Policy,
    refusal: Refusal,
) -> Reply {
    shared.counters.refused.fetch_add(1, Ordering::Relaxed);
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
        Why::Late => "streams that are there are late, so nobody more is let in".to_owned(),
    };
    let seconds = refusal.retry_after.as_secs_f64().ceil().max(1.0);
    let retry = [("Retry-After", format!("{seconds:.0}"))];
    Reply::short(of_status_because(503, Some(request), common, &retry, &why))
}

/// What a request asks of the pacing, and what it may have.
struct Wish {
    rate: RateChoice,
    priority: Priority,
}

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
        // Where places are counted, nobody goes past the door.
        let asked = parameter("rate").filter(|asked| !(is_limited && asked == "max"));
        let rate = match asked.as_deref() {
            Some("max") => RateChoice::Unpaced,
            Some(asked) => RateChoice::Fixed(
                Rate::parse(asked).ok_or("rate= needs bits a second, such as 2M, or max")?,
            ),
            None if !content_type::is_played(file.content_type) => RateChoice::Unpaced,
            None => choice,
        };
        Ok(Self { rate, priority })
    }
}
