//! Data that shows faults.
//!
//! Constants, symmetric matrices and same-sign ramps hide most faults of sharded code: a block in the wrong place looks
//! like the right one, terms of opposite sign never cancel, a missing reduction is a scale. Every generator here gives
//! mixed signs, and elements that tell features and ranks apart. All are functions of a seed and the element's row-major
//! index, so every mesh sees the same data.

use std::collections::BTreeMap;

use shardgrad_core::TensorType;
use shardgrad_core::ops::Role;
use shardgrad_graph::{Program, Value};

/// What elements look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Whole numbers of size 1 to 4, mixed signs, no two neighbours equal: sums and products are exact.
    Integers,
    /// A ramp of size 0.25 to 1.75 with mixed signs: every element differs from every other.
    Ramp,
    /// Uniform in −1..1.
    Noise,
}

/// The seed's hash of an index: a bijective mix of 64 bits (the finaliser of `SplitMix64`, Steele et al. 2014).
#[must_use]
pub fn hash(seed: u64, index: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0xd1b5_4a32_d192_ed03)
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in 0..1 from the upper 53 bits of a hash.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn unit(seed: u64, index: u64) -> f64 {
    (hash(seed, index) >> 11) as f64 / (1_u64 << 53) as f64
}

/// A value of this type: floats in the given style, integers as labels in `0..classes`.
///
/// ```
/// use shardgrad_core::{DType, TensorType};
/// use shardgrad_testkit::data::{Style, value};
/// let v = value(&TensorType::new([3, 4], DType::F32), Style::Integers, 7, 1).to_f64s();
/// assert!(v.iter().any(|&x| x < 0.0) && v.iter().any(|&x| x > 0.0));
/// assert!(v.iter().all(|x| x.fract() == 0.0 && x.abs() <= 4.0 && *x != 0.0));
/// ```
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn value(ty: &TensorType, style: Style, seed: u64, classes: usize) -> Value {
    let n = ty.elements().max(1) as f64;
    Value::from_fn(ty, |i| {
        let i64 = i as u64;
        if !ty.dtype.is_float() {
            return (hash(seed, i64) % classes.max(1) as u64) as f64;
        }
        let sign = if hash(seed, i64) & 1 == 0 { 1.0 } else { -1.0 };
        // The second element's sign is the opposite of the first's, so that no tensor of two or more is one-signed.
        let sign = if i == 1 && hash(seed, 0) & 1 == hash(seed, 1) & 1 { -sign } else { sign };
        match style {
            Style::Integers => sign * ((i64.wrapping_add(seed)) % 4 + 1) as f64,
            Style::Ramp => sign * (0.25 + 1.5 * i as f64 / n),
            Style::Noise => 2.0 * unit(seed, i64) - 1.0,
        }
    })
}

/// A value for every leaf of a program, each under a seed of its own. Labels and ids lie in the smallest range of classes or
/// rows that the program has. Scalars and optimizer state are positive.
#[must_use]
pub fn inputs(program: &Program, style: Style, seed: u64) -> BTreeMap<String, Value> {
    let classes = program
        .nodes
        .iter()
        .filter_map(|n| n.op.names_one_of().map(|(_, count)| count))
        .min()
        .unwrap_or(2);
    program
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(i, node)| {
            let name = node.leaf_name()?;
            let seed = hash(seed, i as u64);
            let value = value(&node.ty, style, seed, classes);
            let value = match node.leaf_role()? {
                Role::Input | Role::Param => value,
                Role::State | Role::Scalar => {
                    let positive: Vec<f64> = value.to_f64s().iter().map(|v| v.abs()).collect();
                    Value::from_fn(&node.ty, |i| positive[i])
                }
            };
            Some((name.to_owned(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardgrad_core::DType;

    #[test]
    fn data_has_mixed_signs_and_tells_elements_apart() {
        for seed in 0..50 {
            for shape in [vec![2], vec![3, 2], vec![5, 4], vec![2, 3, 2]] {
                let ty = TensorType::new(shape, DType::F64);
                for style in [Style::Integers, Style::Ramp] {
                    let v = value(&ty, style, seed, 0).to_f64s();
                    assert!(v.iter().any(|&x| x < 0.0) && v.iter().any(|&x| x > 0.0), "{v:?}");
                    assert!(v.windows(2).all(|w| w[0].abs() != w[1].abs()), "{v:?}");
                }
                let mut ramp = value(&ty, Style::Ramp, seed, 0).to_f64s();
                ramp.sort_by(f64::total_cmp);
                assert!(ramp.windows(2).all(|w| w[0] != w[1]));
            }
        }
    }
}
