//! The page of a directory: its files, and a player for those a browser can play.

use std::{fmt::Write, time::SystemTime};

use crate::{http::content_type, site::Listing};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;\
    padding:0 1rem;color:#222;background:#fff}table{border-collapse:collapse;width:100%}\
    td{padding:.2rem .5rem;border-top:1px solid #ddd}td.n{text-align:right;white-space:nowrap;\
    font-variant-numeric:tabular-nums}#player p{color:#a00}\
    video,audio{width:100%;max-height:70vh;background:#000}\
    @media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}a{color:#8bf}\
    td{border-color:#444}}";
const HLS: &str = "application/vnd.apple.mpegurl";
/// A link to a film plays it on the page; with no script it is opened as any link.
const SCRIPT: &str = "const p=document.getElementById('player');\
    for(const a of document.querySelectorAll('a[data-play]'))a.addEventListener('click',e=>{\
    if(e.ctrlKey||e.metaKey||e.shiftKey)return;e.preventDefault();\
    const m=document.createElement(a.dataset.play),h=document.createElement('h2');\
    h.textContent=a.textContent;m.controls=true;m.autoplay=true;m.src=a.href;\
    m.onerror=async()=>{const w=document.createElement('p');let s='';\
    try{const r=await fetch(a.href,{headers:{Range:'bytes=0-0'}});\
    if(!r.ok)s=await r.text();}catch{s='The server cannot be reached.';}\
    w.textContent=s||'This browser cannot play it; a player such as VLC may.';\
    if(m.isConnected)m.replaceWith(w);};\
    p.replaceChildren(h,m);p.scrollIntoView();});";

/// Writes a listing as HTML. `path` is that of the request: it begins and ends with a slash.
#[must_use]
pub fn html(path: &[u8], listing: &Listing) -> Vec<u8> {
    let title = escaped(&String::from_utf8_lossy(path));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
        <link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body>\n\
        <h1>{title}</h1>\n<div id=\"player\"></div>\n<table>\n"
    );
    if path != b"/" {
        page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
    }
    for entry in &listing.entries {
        let kind = content_type::of_name(&entry.name);
        let (slash, size) = match entry.is_directory {
            true => ("/", String::new()),
            false => ("", size(entry.len_bytes)),
        };
        let play = match kind.split('/').next() {
            _ if entry.is_directory => String::new(),
            Some(element @ ("video" | "audio")) => format!(" data-play=\"{element}\""),
            // A playlist of HLS, which some browsers play as any film.
            _ if kind == HLS => " data-play=\"video\"".to_owned(),
            _ => String::new(),
        };
        let _ = writeln!(
            page,
            "<tr><td><a href=\"{}{slash}\"{play}>{}{slash}</a><td class=\"n\">{size}\
            <td class=\"n\">{}",
            encoded(&entry.name),
            escaped(&String::from_utf8_lossy(&entry.name)),
            date(entry.modified),
        );
    }
    page.push_str("</table>\n");
    if listing.has_more {
        page.push_str("<p>This directory has more files than are shown here.</p>\n");
    }
    let _ = write!(page, "<script>{SCRIPT}</script>\n</body></html>\n");
    page.into_bytes()
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            sign => escaped.push(sign),
        }
    }
    escaped
}

/// Name as a link of a page. `./` keeps a name with a colon from being a scheme.
fn encoded(name: &[u8]) -> String {
    format!("./{}", encoded_path(name))
}

/// Path as a part of a URL (RFC 3986, 2.3); slashes stay.
pub(crate) fn encoded_path(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Time as `23 Nov 2026 09:15`, in UTC.
fn date(time: SystemTime) -> String {
    // "Mon, 23 Nov 2026 09:15:10 GMT" (RFC 9110, 5.6.7).
    httpdate::fmt_http_date(time).get(5..22).unwrap_or_default().to_owned()
}

fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return match unit {
                "B" => format!("{bytes} B"),
                unit => format!("{value:.1} {unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::Entry;
    use std::time::UNIX_EPOCH;

    #[test]
    fn films_have_a_player_and_names_cannot_write_the_page() {
        let entry = |name: &[u8], is_directory| Entry {
            name: name.to_vec(),
            is_directory,
            len_bytes: 1_234_567,
            modified: UNIX_EPOCH,
        };
        let entries = vec![
            entry(b"b", true),
            entry(b"a b.mp4", false),
            entry(b"<x>\"&.txt", false),
            entry(b"f\xfcr.ts", false),
            entry(b"live.m3u8", false),
        ];
        let page = html(b"/films/<i>/", &Listing { entries, has_more: true });
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("<a href=\"./b/\">b/</a>"), "{page}");
        assert!(page.contains("<a href=\"./a%20b.mp4\" data-play=\"video\">a b.mp4</a>"));
        assert!(page.contains("<a href=\"./f%FCr.ts\" data-play=\"video\">f\u{fffd}r.ts</a>"));
        assert!(page.contains("<a href=\"./live.m3u8\" data-play=\"video\">live.m3u8</a>"));
        assert!(page.contains("<td class=\"n\">01 Jan 1970 00:00\n"), "{page}");
        assert!(page.contains("1.2 MB") && page.contains("more files"));
        assert!(page.contains("&lt;x&gt;&quot;&amp;.txt") && !page.contains("<x>"));
        assert!(page.contains("<title>/films/&lt;i&gt;/</title>") && page.contains("../"));
    }
}
