//! Counter-based random numbers: a value depends on its key only, never on the order in which values are drawn.

/// Mixes a key into 64 well-distributed bits (the finaliser of SplitMix64, Steele et al., OOPSLA 2014).
pub(crate) fn hash(mut key: u64) -> u64 {
    key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// A stream of random numbers fixed by its seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// A stream fixed by `seed` alone.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: hash(seed) }
    }

    /// 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        let value = hash(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// Uniform in [0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in 0..n; `n` must not be 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // Multiply-shift: the bias is below n / 2^64.
        ((u128::from(self.next_u64()) * n as u128) >> 64) as usize
    }

    /// Standard normal (Box-Muller).
    #[cfg(test)]
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
