//! What a request gets: a file, a page, or why not.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use super::Options;
use crate::{
    delivery,
    http::{
        content_type,
        request::{Method, Request},
        response::{
            Common, Entity, Piece, Response, of_file, of_status, of_status_because, of_text,
        },
    },
    index_page,
    pace::{Pacing, Rate},
    site::{Found, OpenFile, Site},
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
}

impl Reply {
    pub fn short(response: Response) -> Self {
        Self { response, file: None, rate: None }
    }
}

pub(super) fn common(options: &Options, is_kept: bool) -> Common {
    Common { now: SystemTime::now(), is_open_to_pages: options.is_open_to_pages, is_kept }
}

pub(super) fn answer(site: &Site, options: &Options, request: &Request, is_kept: bool) -> Reply {
    let common = common(options, is_kept);
    let refuse = |status: u16, fields: &[(&str, String)]| {
        Reply::short(of_status(status, Some(request), &common, fields))
    };
    match request.method {
        Method::Get | Method::Head => {}
        Method::Options if options.is_open_to_pages && request.origin.is_some() => {
            let allowed = [
                ("Access-Control-Allow-Methods", ALLOWED.to_owned()),
                ("Access-Control-Allow-Headers", "Range, If-Range".to_owned()),
                ("Access-Control-Max-Age", "86400".to_owned()),
            ];
            return refuse(204, &allowed);
        }
        Method::Options | Method::Other => {
            return refuse(405, &[("Allow", ALLOWED.to_owned())]);
        }
    }
    let asked = request.target.parameter("rate");
    let rate = asked.as_deref().map(Rate::parse);
    if rate == Some(None) {
        let why = "rate= needs bits a second, such as 2M";
        return Reply::short(of_status_because(400, Some(request), &common, &[], why));
    }
    match site.find(&request.target.path) {
        Found::File(file) => {
            delivery::advise(&file, options.readahead);
            let entity = Entity {
                len_bytes: file.len_bytes,
                content_type: file.content_type,
                validators: file.validators.clone(),
            };
            let boundary = BOUNDARIES.fetch_add(1, Ordering::Relaxed);
            let own = options.rate.filter(|_| content_type::is_played(file.content_type));
            let response = of_file(request, &entity, &common, boundary);
            let has_bytes = response.pieces.iter().any(|piece| matches!(piece, Piece::File(_)));
            if !has_bytes {
                return Reply::short(response);
            }
            let rate = rate.flatten().or(own).map(|rate| (rate, options.pacing));
            Reply { response, file: Some(file), rate }
        }
        Found::Directory(listing) if options.has_index => {
            let page = index_page::html(&request.target.path, &listing);
            Reply::short(of_text(request, &common, "text/html; charset=utf-8", page))
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
        Found::Failed(_) => refuse(500, &[]),
    }
}
