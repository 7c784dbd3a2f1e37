//! Reproducible chance: a small generator, a shuffle, and Zipf's law.
//!
//! Nothing here needs to be unpredictable; it needs to be the same in every run.

/// Mixes 64 bits so that neighbours end far apart (the finaliser of splitmix64). It is a bijection.
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator whose output depends on `seed` alone.
    pub const fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number from 0 to `bound` - 1; 0 if there is none. The bias, below `bound` / 2⁶⁴, does not matter here.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// A number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `items` into any order, each with the same chance (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Zipf's law over the ranks 0 to n - 1: rank k is drawn in proportion to 1 / (k + 1)^s.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// The share of the ranks up to and including this one. Ascending; the last is 1.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// `ranks` ranks with the exponent `s`. Takes 8 bytes a rank.
    pub fn new(ranks: usize, s: f64) -> Zipf {
        let mut total = 0.0;
        let mut cumulative: Vec<f64> = (1..=ranks)
            .map(|rank| {
                total += (rank as f64).powf(-s);
                total
            })
            .collect();
        for share in &mut cumulative {
            *share /= total;
        }
        Zipf { cumulative }
    }

    /// Draws a rank, in time logarithmic in the number of ranks.
    pub fn draw(&self, random: &mut Random) -> usize {
        let fraction = random.fraction();
        self.cumulative.partition_point(|share| *share <= fraction).min(self.cumulative.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published first outputs of splitmix64 for the seed 1234567.
    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        Random::new(1).shuffle::<u32>(&mut []);
    }

    /// 200,000 draws over 100 ranks: the first rank is wanted 1 / H(100) = 19.28 % of the time, the second half of that.
    #[test]
    fn ranks_are_drawn_as_zipf_says() {
        let zipf = Zipf::new(100, 1.0);
        let mut random = Random::new(2);
        let mut drawn = [0u32; 100];
        for _ in 0..200_000 {
            drawn[zipf.draw(&mut random)] += 1;
        }
        let share = |rank: usize| f64::from(drawn[rank]) / 200_000.0;
        assert!((share(0) - 0.1928).abs() < 0.005, "{}", share(0));
        assert!((share(1) - 0.0964).abs() < 0.005, "{}", share(1));
        assert!(drawn.iter().all(|times| *times > 0), "every rank has its chance");
    }

    #[test]
    fn a_flat_law_and_a_single_rank() {
        let mut random = Random::new(3);
        assert_eq!(Zipf::new(1, 1.0).draw(&mut random), 0);
        let flat = Zipf::new(4, 0.0);
        let mut drawn = [0u32; 4];
        for _ in 0..40_000 {
            drawn[flat.draw(&mut random)] += 1;
        }
        assert!(drawn.iter().all(|times| (9_000..11_000).contains(times)), "{drawn:?}");
    }
}
