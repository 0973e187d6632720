//! Head of an answer, as a viewer reads it: the status, and the length of the film.

/// The longest head of an answer.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    /// Length of the body, where it is known.
    pub body_bytes: Option<u64>,
    /// Length of the head within the given bytes.
    pub len_bytes: usize,
}

/// Bytes that are not the head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoHead {
    #[error("the head of an answer has no end")]
    Endless,
    #[error("an answer has no status")]
    WithoutStatus,
}

/// The head at the beginning of `bytes`; `None` while it is not whole.
///
/// # Errors
/// Says what is no head.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Head>, NoHead> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return match bytes.len() > HEAD_BYTES_MAX {
            true => Err(NoHead::Endless),
            false => Ok(None),
        };
    };
    let text = String::from_utf8_lossy(&bytes[..end]);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or(NoHead::WithoutStatus)?;
    let body_bytes = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    Ok(Some(Head { status, body_bytes, len_bytes: end + 4 }))
}
