//! Random numbers by index: the same draw for the same element, whoever makes it and wherever it lies.
//!
//! A draw is a function of a key, a stream and the element's row-major index in the global tensor, and of nothing else, so
//! that every layout draws the same tensor, replicas agree, and a value that is computed again is the same again. The
//! function is Philox 4×32 with ten rounds (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2,
//! 3"): the counter is (element / 4, stream), each counter makes the words of four elements.

/// Multipliers of the two halves.
const MULTIPLY: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// What is added to the key after each round: the golden ratio and √3 − 1.
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
/// Bits of a uniform number: as many as f32 holds exactly.
const BITS: u32 = 24;

/// Philox 4×32-10.
#[must_use]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let product = |i: usize| u64::from(MULTIPLY[i]) * u64::from(counter[2 * i]);
        let (a, b) = (product(0), product(1));
        counter = [high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// A key for one step of a run: 53 bits, so that it passes f64 unchanged.
#[must_use]
pub fn step_key(seed: u64, step: u64) -> i64 {
    let [a, b, ..] = philox([low(step), high(step), 0, 0], [low(seed), high(seed)]);
    ((u64::from(a) << 32 | u64::from(b)) >> 11).cast_signed()
}

/// Numbers of one key and stream, uniform in [0, 1): multiples of 2⁻²⁴, the same in f32 and f64.
#[derive(Clone, Debug)]
pub struct Draws {
    key: [u32; 2],
    stream: u32,
    /// The four draws that were made last, and their number.
    made: Option<(u64, [u32; 4])>,
}

impl Draws {
    /// The numbers of this key and stream.
    ///
    /// ```
    /// use shardgrad_core::random::Draws;
    /// let (mut once, mut again) = (Draws::new(7, 0), Draws::new(7, 0));
    /// let third = once.at(2);
    /// assert_eq!((again.at(0), again.at(2)).1, third);
    /// assert!((0.0..1.0).contains(&third));
    /// ```
    #[must_use]
    pub fn new(key: i64, stream: u32) -> Self {
        let key = key.cast_unsigned();
        Self { key: [low(key), high(key)], stream, made: None }
    }

    /// The number of an element.
    pub fn at(&mut self, element: u64) -> f64 {
        let four = element / 4;
        let words = match self.made {
            Some((made, words)) if made == four => words,
            _ => {
                let words = philox([low(four), high(four), self.stream, 0], self.key);
                self.made = Some((four, words));
                words
            }
        };
        let word = words[(element % 4) as usize];
        f64::from(word >> (32 - BITS)) / f64::from(1_u32 << BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that the authors publish with the algorithm.
    #[test]
    fn philox_gives_the_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn keys_of_steps_and_seeds_differ() {
        let keys = [step_key(0, 0), step_key(0, 1), step_key(1, 0), step_key(0, 1 << 32)];
        assert!(keys.iter().all(|&k| (0..1 << 53).contains(&k)));
        assert!((0..4).all(|i| keys[..i].iter().all(|k| *k != keys[i])));
    }

    #[test]
    fn draws_depend_on_key_stream_and_element_and_are_spread_right() {
        let draw = |key, stream| {
            let mut draws = Draws::new(key, stream);
            (0..4_000).map(|i| draws.at(i)).collect::<Vec<f64>>()
        };
        let values = draw(3, 1);
        for other in [draw(4, 1), draw(3, 2), draw(3 + (1 << 32), 1), draw(-3, 1)] {
            assert!(values.iter().zip(&other).filter(|(a, b)| a == b).count() < 5);
        }
        // Five standard errors of the mean, 1/√(12 n).
        let mean = values.iter().sum::<f64>() / 4_000.0;
        assert!((mean - 0.5).abs() < 5.0 / (12.0 * 4_000.0_f64).sqrt(), "{mean}");
        assert!(values.iter().all(|v| (0.0..1.0).contains(v) && f64::from(*v as f32) == *v));
        // In any order, and far beyond 2³².
        let mut draws = Draws::new(3, 1);
        assert_eq!((draws.at(9), draws.at(2), draws.at(1)), (values[9], values[2], values[1]));
        assert_ne!(draws.at((1 << 34) + 1), values[1]);
    }
}
