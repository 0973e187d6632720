//! Sizes of what one call moves: a list of them, or a range.

use haul_datapath::BLOCK_BYTES_MIN;
use haul_transfer::internals::parse_size;

/// Largest block: no engine has more buffer.
const BLOCK_BYTES_MAX: u64 = 32 << 20;

/// Block sizes in bytes, as a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSizes(pub Vec<usize>);

/// Reads a list of sizes, or a range in steps of four.
///
/// # Errors
/// Names the size that is none, or that no engine takes.
pub fn parse_block_sizes(text: &str) -> Result<BlockSizes, String> {
    const STEP: u64 = 4;
    let one = |text: &str| -> Result<u64, String> {
        let bytes = parse_size(text.trim()).map_err(|error| error.to_string())?;
        let possible = BLOCK_BYTES_MIN as u64..=BLOCK_BYTES_MAX;
        if possible.contains(&bytes) {
            return Ok(bytes);
        }
        let (least, most) = (BLOCK_BYTES_MIN >> 10, BLOCK_BYTES_MAX >> 20);
        Err(format!("{text:?} is not from {least}K to {most}M"))
    };
    let sizes: Vec<u64> = match text.split_once("..") {
        Some((first, last)) => {
            let (first, last) = (one(first)?, one(last)?);
            if first > last {
                return Err(format!("{text:?} begins with the larger size"));
            }
            std::iter::successors(Some(first), |size| Some(size * STEP))
                .take_while(|size| *size <= last)
                .collect()
        }
        None => text.split(',').map(one).collect::<Result<_, _>>()?,
    };
    Ok(BlockSizes(sizes.into_iter().map(|size| size as usize).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_a_list_or_a_range_in_steps_of_four() {
        let sizes = |text| parse_block_sizes(text).map(|sizes| sizes.0);
        assert_eq!(sizes("4K,1M"), Ok(vec![4096, 1 << 20]));
        assert_eq!(sizes("4K..70K"), Ok(vec![4096, 16_384, 65_536]));
        for bad in ["", "1K", "4K..", "1M..4K", "1G", "4K;8K"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }
}
