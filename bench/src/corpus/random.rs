//! Numbers that look random and are the same for the same seed.

/// SplitMix64: small, fast, good enough to choose with.
pub(crate) struct Random(u64);

impl Random {
    /// One for each pair: the nth of a series is known without the others.
    pub(crate) fn of(seed: u64, n: u64) -> Self {
        Self(mixed(seed) ^ mixed(n ^ 0x5eed_0000_0000))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Small numbers far more often than large ones.
    pub(crate) fn skewed(&mut self, bound: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (bound as f64 * unit * unit * unit) as u64
    }
}

/// A number that looks random, the same for the same one.
pub(crate) fn mixed(number: u64) -> u64 {
    Random(number).next()
}
