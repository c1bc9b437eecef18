//! Initial values by global element, so that every layout trains the same network.
//!
//! Element i of the parameter with ordinal o is a function of (seed, o, i) alone: the generator is ChaCha8 keyed by the
//! seed, its stream is the ordinal, and each element owns a fixed number of words of it. Any block can be made without
//! the rest, and is bitwise what the whole tensor has there (Salmon et al. 2011, counter-based generators).

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use shardgrad_core::ops::Role;
use shardgrad_core::{Block, TensorType};

use crate::number::{Number, with_number};
use crate::tensor::Data;

/// 32-bit words of the generator that every element owns.
const WORDS: u64 = 4;

/// How a stored value starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// The same value everywhere.
    Constant(f64),
    /// Uniform between −bound and bound.
    Uniform {
        /// The bound.
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
}

impl Init {
    /// How a leaf starts unless the user says otherwise: weights `[…, in, out]` at U(±1/√in), biases and state at 0.
    #[must_use]
    pub fn of(role: Role, ty: &TensorType) -> Self {
        match role {
            Role::Param if ty.rank() >= 2 && ty.dtype.is_float() => {
                #[allow(clippy::cast_precision_loss)]
                let fan_in = ty.shape[..ty.rank() - 1].iter().product::<usize>() as f64;
                Init::Uniform { bound: 1.0 / fan_in.sqrt() }
            }
            Role::Param | Role::State | Role::Input | Role::Scalar => Init::Constant(0.0),
        }
    }

    /// A block of the parameter with this ordinal.
    #[must_use]
    pub fn block(self, seed: u64, ordinal: u64, ty: &TensorType, block: &Block) -> Data {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(ordinal);
        let mut values = Vec::with_capacity(block.len());
        each_run(&ty.shape, block, |start, len| self.draw(&mut generator, start, len, &mut values));
        with_number!(ty.dtype, T => T::into_data(values.into_iter().map(T::from_f64).collect()))
    }

    fn draw(self, generator: &mut ChaCha8Rng, start: usize, len: usize, values: &mut Vec<f64>) {
        if let Init::Constant(value) = self {
            values.extend(std::iter::repeat_n(value, len));
            return;
        }
        generator.set_word_pos(u128::from(start as u64) * u128::from(WORDS));
        for _ in 0..len {
            let (a, b) = (unit(generator.next_u64()), unit(generator.next_u64()));
            values.push(match self {
                Init::Constant(value) => value,
                Init::Uniform { bound } => bound * (2.0 * a - 1.0),
                // Box and Muller 1958; 1 − a is never 0.
                Init::Normal { deviation } => {
                    deviation * (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
                }
            });
        }
    }
}

/// The upper 53 bits as a number in [0, 1).
#[allow(clippy::cast_precision_loss)]
fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// Calls `f` with (global row-major index of its first element, length) of every run of a block, in order.
pub(crate) fn each_run(shape: &[usize], block: &Block, mut f: impl FnMut(usize, usize)) {
    if block.is_empty() {
        return;
    }
    let Some((last, outer)) = block.ranges.split_last() else {
        return f(0, 1);
    };
    let mut index: Vec<usize> = outer.iter().map(|r| r.start).collect();
    loop {
        let row = index.iter().zip(shape).fold(0, |at, (i, n)| at * n + i);
        f(row * shape[outer.len()] + last.start, last.len());
        let Some(dim) = (0..outer.len()).rev().find(|&d| index[d] + 1 < outer[d].end) else {
            return;
        };
        index[dim] += 1;
        for d in dim + 1..outer.len() {
            index[d] = outer[d].start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardgrad_core::geometry::block;
    use shardgrad_core::transition::all_layouts;
    use shardgrad_core::{DType, Mesh};

    /// Every block of every layout is bitwise the part of the whole, so replicas are equal and shards are not.
    #[test]
    fn blocks_are_parts_of_the_whole() {
        for shape in [&[4_usize, 4][..], &[7], &[], &[2, 3, 5]] {
            for dtype in [DType::F32, DType::F64] {
                let ty = TensorType::new(shape.iter().copied(), dtype);
                for init in [Init::Uniform { bound: 0.5 }, Init::Normal { deviation: 2.0 }] {
                    let whole = init.block(7, 3, &ty, &Block::whole(shape));
                    let whole = whole.to_value(shape).unwrap();
                    for mesh in ["a=1", "a=2", "a=4", "a=2,b=2", "a=5"] {
                        let mesh: Mesh = mesh.parse().unwrap();
                        for layout in all_layouts(&mesh, shape.len(), false) {
                            for rank in 0..mesh.size() {
                                let b = block(shape, &layout, &mesh, rank);
                                let part = init.block(7, 3, &ty, &b);
                                assert_eq!(part, Data::of_block(&whole, &b).unwrap());
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn values_depend_on_seed_and_ordinal_and_are_spread_right() {
        let ty = TensorType::new([100, 100], DType::F64);
        let draw = |init: Init, seed, ordinal| match init.block(
            seed,
            ordinal,
            &ty,
            &Block::whole(&ty.shape),
        ) {
            Data::F64(values) => values,
            other => panic!("{other:?}"),
        };
        let uniform = Init::of(Role::Param, &ty);
        assert_eq!(uniform, Init::Uniform { bound: 0.1 });
        let values = draw(uniform, 1, 0);
        assert_ne!(values, draw(uniform, 2, 0));
        assert_ne!(values, draw(uniform, 1, 1));
        assert_eq!(values, draw(uniform, 1, 0));
        let moments = |v: &[f64]| {
            let n = v.len() as f64;
            let mean = v.iter().sum::<f64>() / n;
            (mean, v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n)
        };
        // Five standard errors: σ/√n of the mean; the variance's own is below 2σ²/√n.
        let (mean, variance) = moments(&values);
        assert!(mean.abs() < 5.0 * 0.1 / 3.0_f64.sqrt() / 100.0);
        assert!((variance - 0.01 / 3.0).abs() < 5.0 * 2.0 * 0.01 / 3.0 / 100.0);
        assert!(values.iter().all(|v| v.abs() <= 0.1));
        let (mean, variance) = moments(&draw(Init::Normal { deviation: 2.0 }, 1, 0));
        assert!(mean.abs() < 5.0 * 2.0 / 100.0 && (variance - 4.0).abs() < 5.0 * 8.0 / 100.0);
    }

    #[test]
    fn biases_and_state_start_at_zero() {
        let bias = TensorType::new([5], DType::F32);
        assert_eq!(Init::of(Role::Param, &bias), Init::Constant(0.0));
        assert_eq!(
            Init::of(Role::State, &TensorType::new([5, 5], DType::F32)),
            Init::Constant(0.0)
        );
    }
}
