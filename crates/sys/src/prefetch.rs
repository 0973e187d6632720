//! Prefetching: memory is asked for before it is read.

/// The size of a line of the processor's cache; several processors move two at a time.
const LINE_BYTES: usize = 64;

/// Brings `bytes` into the processor's cache, while it goes on with other work.
///
/// The hardware's own prefetching follows a run of addresses to the end of a page and starts anew
/// in the next. Nothing happens where the instruction is not known.
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction reads nothing that could be observed and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the instruction reads nothing that could be observed and never faults.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{}]",
                in(reg) line.as_ptr(),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}
