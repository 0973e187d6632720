//! Offers of the recorded sessions.

use super::seeded::Seeded;
use haul_protocol::{FileId, limits, message};

/// Offer of a file of this size.
pub fn plain(file: u32, size_bytes: u64) -> message::FileOffer {
    let (file, name) = (FileId(file), format!("file-{file}").into_bytes());
    let kind = message::FileKind::Regular;
    message::FileOffer { file, name, kind, size_bytes, ..Default::default() }
}

/// Offer that takes memory in every way: by its name, its holes and its extended attributes.
pub fn large(file: u32) -> message::FileOffer {
    let hole = |at: u64| message::Extent { offset_bytes: at * 1000, len_bytes: 500 };
    let xattr = message::Xattr { name: b"user.origin".to_vec(), value: vec![b'x'; 40] };
    let holes = (0..3).map(hole).collect();
    message::FileOffer { holes, xattrs: vec![xattr], ..plain(file, 9000) }
}

/// Draws an offer of any kind under the name `file-NAME`.
pub fn drawn(random: &mut Seeded, file: u32, name: u32) -> message::FileOffer {
    const SPAN: u64 = limits::SPAN_BYTES_MIN;
    let size = [0, 1, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, 3 * SPAN + 5, 6 * SPAN];
    let size_bytes = random.one_of(&size).expect("several");
    let name = format!("file-{name}").into_bytes();
    let mut offer = message::FileOffer { name, mode: 0o644, ..plain(file, size_bytes) };
    match random.below(12) {
        0 => (offer.kind, offer.size_bytes) = (message::FileKind::Directory, 0),
        1 => {
            (offer.kind, offer.size_bytes) = (message::FileKind::Symlink, 0);
            offer.link_target = b"elsewhere".to_vec();
        }
        2 => offer.growth = message::Growth::Growing,
        3 => offer.growth = message::Growth::Grown,
        4 => offer.xattrs = large(0).xattrs,
        _ => {}
    }
    offer
}
