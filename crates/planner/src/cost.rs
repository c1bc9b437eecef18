//! What a plan costs, and costs packed into one integer for the search.
//!
//! Costs compare field by field (lexicographically) and add field by field. The search wants one number: [`Scale`] gives
//! each field as many bits of a `u128` as the largest possible sum over the program needs, the most important field
//! uppermost, so that packed costs compare and add like the fields. Where a program is so large that the bits do not
//! suffice, the last fields are counted in units of a power of two, each addend rounded up; a field keeps the bits that
//! this rounding needs, so that no field ever carries into a more important one. The first field is rounded down, if need be,
//! so that a bound on units is one on what they count. A plan is called optimal only where bytes
//! and collectives are exact.

use serde::{Deserialize, Serialize};
pub use shardgrad_core::price::Fields;
use shardgrad_graph::certificate::{IMPOSSIBLE, Weights};

/// What a plan costs, most important first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Cost {
    /// Bytes sent per device: the sum over collectives of the largest count over ranks, scalars included.
    pub bytes: u64,
    /// Collectives, scalars included, by [`shardgrad_core::Transition::weight`].
    pub collectives: u64,
    /// Flops of the largest rank. The flops that all plans share are in it, so least flops is least redundance.
    pub flops: u64,
    /// Bytes of every value of the plan on the largest rank, transitions included: what copies cost.
    pub copies: u64,
}

impl Cost {
    /// The fields, most important first.
    #[must_use]
    pub fn fields(&self) -> Fields {
        [self.bytes, self.collectives, self.flops, self.copies]
    }
}

/// A cost in one integer.
pub type Packed = u128;

/// No plan. The sum of several such costs does not overflow.
pub const INFINITE: Packed = IMPOSSIBLE;

const BITS: u32 = 120;

/// Where each field lies in a packed cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(Weights);

impl Scale {
    /// The scale for sums of at most so many addends that never exceed these bounds.
    #[must_use]
    pub fn for_bounds(bounds: [u128; 4], addends: u128) -> Self {
        let width = |bound: u128| 128 - bound.leading_zeros();
        let mut bits = bounds.map(width);
        let mut dropped = [0; 4];
        for field in [3, 2, 1, 0] {
            // Each addend may be rounded up by one unit.
            let rounding = if field == 0 { 0 } else { addends };
            while bits.iter().sum::<u32>() > BITS && bounds[field] >> dropped[field] > rounding {
                dropped[field] += 1;
                bits[field] = width((bounds[field] >> dropped[field]) + rounding);
            }
        }
        let mut shift = [0; 4];
        for field in (0..3).rev() {
            shift[field] = shift[field + 1] + bits[field + 1];
        }
        Self(Weights { shift, dropped })
    }

    /// The scale as certificates have it.
    #[must_use]
    pub fn weights(&self) -> Weights {
        self.0
    }

    /// Whether every field is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.0.dropped == [0; 4]
    }

    /// Whether bytes and collectives are exact.
    #[must_use]
    pub fn leads_exactly(&self) -> bool {
        self.0.dropped[..2] == [0; 2]
    }

    /// A cost in one integer.
    #[must_use]
    pub fn pack(&self, fields: Fields) -> Packed {
        self.0.pack(fields)
    }

    /// The uppermost field of a packed cost, in its units.
    #[must_use]
    pub fn units(&self, packed: Packed) -> Packed {
        packed >> self.0.shift[0]
    }

    /// A cost of so many units of the uppermost field.
    #[must_use]
    pub fn of_units(&self, units: Packed) -> Packed {
        units << self.0.shift[0]
    }

    /// The uppermost field of a packed cost.
    #[must_use]
    pub fn leading(&self, packed: Packed) -> u64 {
        u64::try_from((packed >> self.0.shift[0]) << self.0.dropped[0]).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_costs_compare_and_add_like_fields() {
        let scale = Scale::for_bounds([1 << 30, 1000, 1 << 40, 1 << 33], 1000);
        assert!(scale.is_exact());
        let costs: [Fields; 6] = [
            [0, 0, 0, 0],
            [0, 0, 0, 1 << 32],
            [0, 0, 1, 0],
            [0, 3, 1 << 39, 5],
            [7, 0, 0, 0],
            [7, 2, 9, 1],
        ];
        for a in costs {
            for b in costs {
                assert_eq!(a.cmp(&b), scale.pack(a).cmp(&scale.pack(b)), "{a:?} {b:?}");
                let sum = [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]];
                assert_eq!(scale.pack(a) + scale.pack(b), scale.pack(sum));
                assert_eq!(scale.leading(scale.pack(sum)), sum[0]);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_dropped_from_the_last_fields() {
        let scale = Scale::for_bounds([1 << 50, 1 << 20, 1 << 60, 1 << 50], 1 << 12);
        assert!(!scale.is_exact());
        assert!(scale.leads_exactly());
        assert!(scale.pack([1, 0, 0, 0]) > scale.pack([0, 1 << 19, 1 << 59, 1 << 49]));
        assert!(scale.pack([0, 1, 0, 0]) > scale.pack([0, 0, 1 << 59, 1 << 49]));
        // Many small addends, each rounded up, do not carry into the field above.
        assert!(scale.pack([0, 0, 0, 1]) * (1 << 12) < scale.pack([0, 0, 1 << 20, 0]));
        assert!(scale.pack([0, 0, 1, 1]) * (1 << 12) < scale.pack([0, 1, 0, 0]));
    }
}
