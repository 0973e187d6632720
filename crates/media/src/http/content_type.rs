//! Content types of files, by the end of their name.
//!
//! They are those of IANA's registry, for what a web server sends most, as nginx says it.

/// Content type of unknown files: they are offered for download.
pub const UNKNOWN: &str = "application/octet-stream";

const TYPES: &[(&str, &str)] = &[
    ("3gp", "video/3gpp"),
    ("aac", "audio/aac"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("css", "text/css"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "application/javascript"),
    ("json", "application/json"),
    ("m2ts", "video/mp2t"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/x-m4a"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/x-m4v"),
    ("mid", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("srt", "application/x-subrip"),
    ("svg", "image/svg+xml"),
    ("ts", "video/mp2t"),
    ("txt", "text/plain"),
    ("vob", "video/mpeg"),
    ("vtt", "text/vtt"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("wmv", "video/x-ms-wmv"),
    ("woff2", "font/woff2"),
    ("xml", "text/xml"),
    ("zip", "application/zip"),
];

/// Content type of a file's name, or of a whole path.
#[must_use]
pub fn of_name(name: &[u8]) -> &'static str {
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return UNKNOWN };
    let Ok(end) = std::str::from_utf8(&name[dot + 1..]) else { return UNKNOWN };
    let end = end.to_ascii_lowercase();
    match TYPES.binary_search_by(|(known, _)| (*known).cmp(&end)) {
        Ok(place) => TYPES[place].1,
        Err(_) => UNKNOWN,
    }
}

/// Says whether a browser's player may take it.
#[must_use]
pub fn is_played(content_type: &str) -> bool {
    content_type.starts_with("video/") || content_type.starts_with("audio/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_name_tells_and_the_table_is_in_order() {
        assert!(TYPES.is_sorted());
        for (name, expected) in [
            ("a.mp4", "video/mp4"),
            ("A.MP4", "video/mp4"),
            ("/x.y/a.b.ts", "video/mp2t"),
            ("/x.mp4/a", UNKNOWN),
            ("a.", UNKNOWN),
            ("mp4", UNKNOWN),
            ("a.odd", UNKNOWN),
        ] {
            assert_eq!(of_name(name.as_bytes()), expected, "{name}");
        }
    }
}
