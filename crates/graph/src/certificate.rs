//! Certificates: what a plan says of its own cost, in a form that [`crate::check::optimality`] verifies.
//!
//! A certificate names the *space* of plans that it speaks of and gives a bound that no plan of the space goes below, as
//! a sum of *bags*. The checker rebuilds the costs of the space from core's tables as factors over variables:
//!
//! * variable i is the choice of program node i: one placement rule per mesh axis;
//! * then, value by value, one for the pinned layout of a value that is no leaf, one for each output whose layout no leaf
//!   decides, and one for the sets of layouts of a value named in [`Bags::sets`];
//! * factor i is what computing node i costs; then, value by value in the same order, what carrying it costs: from where
//!   it is made to its pin if it has one, and from there over all its readers.
//!
//! A bag takes factors out, minimises their sum over one variable, and puts the message, a factor over the other
//! variables, in their place. For every assignment the message is at most the sum it replaces, so whatever the bags are,
//! the sum of what is taken out of the messages bounds the cost of every plan. A bag's claim, its *minimum*, is what is
//! taken out; it is right if no entry of the message is less. The messages themselves are not stored: they follow from
//! the claims.
//!
//! Where bags of the whole space would be too large, the bound is made *axis by axis*. The leading field of every cost is
//! shared out over the axes of more than one device, so that the shares never add up to more than the cost; each axis then has a network of
//! its own, that of the same program on the mesh of which only this axis has more than one device, and bags. The bound is what all of them
//! add up to. The shares follow from the costs:
//!
//! * of the cheapest choice of every node, no axis has a share, and the bound has its cost; of what another choice costs
//!   more, every axis has an equal part, rounded down. A choice of an axis is what choices of the node come to there,
//!   in the order in which they first do, and costs the least of their parts;
//! * the step of a value from placement p to q on an axis costs the least of any path between two layouts that have p
//!   and q there, unless on some path the steps of its axes would so add up to more than it costs: then the least, over such
//!   paths, of that cost times what the path costs, divided by what its steps add up to, rounded down (0 if the product
//!   exceeds 128 bits).
//!
//! Minima of an axis's bags are units of the leading field.

use serde::{Deserialize, Serialize};
use shardgrad_core::price::Fields;
use shardgrad_core::{Machine, Objective};

/// What is said of a plan's cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Certificate {
    /// No plan of a space costs less than a bound.
    Bound(Box<Bound>),
    /// Nothing, and why.
    None {
        /// Why there is no bound to verify.
        because: String,
    },
}

/// A bound on the cost of every plan of a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The plans that it speaks of.
    pub space: Space,
    /// How the fields of a cost become one integer.
    pub scale: Weights,
    /// What the certified plan costs.
    pub cost: Fields,
    /// No plan of the space costs less; equal to `cost` if the plan is optimal. Fields are in units of the scale.
    pub lower: Fields,
    /// Why it holds, if the bound is made of the whole space.
    #[serde(default, skip_serializing_if = "Bags::is_empty")]
    pub bags: Bags,
    /// Why it holds, if it is made axis by axis: the bags of each axis, none for an axis of one device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub axes: Vec<Bags>,
}

/// The plans of a program with the plan's mesh and pins, and with this restriction on the work of contractions.
///
/// Every op is computed once, in one layout; each value reaches its readers over a cheapest tree of transitions; a copy
/// is made pending only for ops that add it to terms which arose pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// What is minimised.
    pub objective: Objective,
    /// Rates of devices and links.
    pub machine: Machine,
    /// By layer and mesh axis: how the layer's contractions share their work.
    pub layers: Vec<Vec<Work>>,
    /// By mesh axis: how all other contractions do.
    pub others: Vec<Work>,
}

/// How a contraction shares its work over one mesh axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// In any way, or not at all.
    Any,
    /// Along some label.
    Shared,
    /// Along its layer's batch.
    Batch,
    /// Along its layer's input features.
    In,
    /// Along its layer's output features.
    Out,
    /// Not at all: every rank repeats it.
    Repeated,
}

/// How costs are packed: field i counts units of `2^dropped[i]` and is shifted by `shift[i]` bits. The first is rounded down, so
/// that a bound on units is one on what they count; the others up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Bits below each field.
    pub shift: [u32; 4],
    /// Bits of each field that are rounded.
    pub dropped: [u32; 4],
}

/// Bags in the order in which they are made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bags {
    /// Values that are carried through a variable of sets of layouts, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<u32>,
    /// The variable that each bag minimises over.
    pub order: Vec<u32>,
    /// The factors of each bag, messages numbered after all factors in the order of their bags; if left out, each bag
    /// has all the factors and messages that mention its variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<Vec<Vec<u32>>>,
    /// The different minima.
    pub minima: Vec<Fields>,
    /// The minimum of each bag, by index.
    pub minimum: Vec<u32>,
}

impl Bags {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Packed costs of this size stand for "not possible". The sum of several does not overflow.
pub const IMPOSSIBLE: u128 = 1 << 122;

impl Weights {
    /// Whether packing cannot overflow: fields in descending order below 2^120, units below 2^63.
    #[must_use]
    pub fn are_sound(&self) -> bool {
        self.shift[0] < 120
            && self.shift.windows(2).all(|pair| pair[0] >= pair[1])
            && self.dropped.iter().all(|&d| d < 63)
    }

    /// A cost in one integer; [`IMPOSSIBLE`] if it does not fit.
    #[must_use]
    pub fn pack(&self, fields: Fields) -> u128 {
        let up = |i: usize| fields[i].div_ceil(1 << self.dropped[i]);
        self.join([fields[0] >> self.dropped[0], up(1), up(2), up(3)])
    }

    /// Fields in units of the scale, in one integer.
    #[must_use]
    pub fn join(&self, units: Fields) -> u128 {
        units.iter().zip(self.shift).fold(0_u128, |sum, (&unit, shift)| {
            let fits = u128::from(unit) >> (122 - shift.min(121)) == 0;
            let term = if fits { u128::from(unit) << shift } else { IMPOSSIBLE };
            (sum + term).min(IMPOSSIBLE)
        })
    }

    /// The fields of a packed cost, in units of the scale.
    #[must_use]
    pub fn split(&self, packed: u128) -> Fields {
        let mut rest = packed;
        self.shift.map(|shift| {
            let unit = rest >> shift;
            rest -= unit << shift;
            u64::try_from(unit).unwrap_or(u64::MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_digits_of_a_packed_cost() {
        let weights = Weights { shift: [90, 60, 30, 0], dropped: [0, 0, 0, 4] };
        assert!(weights.are_sound());
        for fields in [[0, 0, 0, 0], [3, 2, 1, 32], [1 << 20, 1 << 29, 7, 16 << 25]] {
            let units = [fields[0], fields[1], fields[2], fields[3] / 16];
            assert_eq!(weights.split(weights.pack(fields)), units);
            assert_eq!(weights.join(units), weights.pack(fields));
        }
        assert_eq!(weights.pack([0, 0, 0, 1]), 1);
        assert_eq!(weights.pack([u64::MAX, 0, 0, 0]), IMPOSSIBLE);
        assert!(!Weights { shift: [0, 3, 0, 0], dropped: [0; 4] }.are_sound());
        // What the first field counts is rounded down: units of addends bound their sum from below.
        let coarse = Weights { shift: [90, 60, 30, 0], dropped: [8, 8, 0, 0] };
        assert_eq!(coarse.split(coarse.pack([300, 300, 0, 0])), [1, 2, 0, 0]);
    }
}
