//! Random numbers from a seed, of no crate: the vectors change when this file does.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Draws a number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end.max(1))) as u32
    }

    /// Draws true in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Draws one of the items; `None` when there is none.
    pub fn one_of<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        items.get(self.below(items.len() as u32) as usize).cloned()
    }

    /// Draws a set of the spans of a file, as runs.
    pub fn spans(&mut self, count: u32, percent: u32) -> haul_protocol::SpanSet {
        let mut set = haul_protocol::SpanSet::new(count);
        for span in (0..count).map(haul_protocol::SpanIndex) {
            if self.chance(percent) {
                set.insert(span);
            }
        }
        set
    }
}
