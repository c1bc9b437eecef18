//! Slice and pad along one dim, each the other's transpose.
//!
//! `slice` takes every `step`-th element from `start` up to `stop`; `pad` puts `before` elements in front, `after` behind
//! and `between` between each two. In general their dim cannot be split: the blocks of operand and result hold other
//! elements. It can where every element of the smaller side belongs to one run of `step` elements of the larger, the
//! runs filling it: then both sides are cut at the same places wherever block boundaries line up, which
//! [`crate::rules`] checks on the mesh. A slice that leaves nothing out is of this kind.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::signature::{Linearity, Signature, plain_labels};
use super::{Const, expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

/// Elements `start`, `start + step` … below `stop` along a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// The dim.
    pub dim: usize,
    /// The first element.
    pub start: usize,
    /// The end, which is not taken.
    pub stop: usize,
    /// From one element to the next.
    pub step: usize,
}

impl Slice {
    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let [a] = expect_operands("slice", operands)?;
        let refuse = |problem: String| Err(operand_error("slice", operands, problem));
        let Some(&extent) = a.shape.get(self.dim) else {
            return refuse(format!("there is no dim {} to slice", self.dim));
        };
        if self.step == 0 {
            return refuse("the step must be 1 or more".to_owned());
        }
        if self.start >= self.stop || self.stop > extent {
            return refuse(format!(
                "{}..{} is no range of dim {}; it needs at least one element of 0..{extent}",
                self.start, self.stop, self.dim
            ));
        }
        let mut ty = a.clone();
        ty.shape[self.dim] = (self.stop - self.start).div_ceil(self.step);
        Ok(ty)
    }

    pub(super) fn signature(&self, operand: &TensorType, result: &TensorType) -> Signature {
        let (long, short) = (operand.shape[self.dim], result.shape[self.dim]);
        along(self.dim, operand.rank(), runs_fill(long, short, self.start, self.step))
            .linear(Linearity::OneOf(1))
    }
}

/// Puts elements of one value around and between those of a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pad {
    /// The dim.
    pub dim: usize,
    /// How many in front.
    pub before: usize,
    /// How many behind.
    pub after: usize,
    /// How many between two elements.
    pub between: usize,
    /// The value.
    pub value: Const,
}

impl Pad {
    /// Extent of the padded dim.
    fn extent(&self, n: usize) -> Option<usize> {
        let gaps = n.checked_sub(1)?.checked_mul(self.between)?;
        n.checked_add(gaps)?.checked_add(self.before)?.checked_add(self.after)
    }

    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let [a] = expect_operands("pad", operands)?;
        let Some(&n) = a.shape.get(self.dim) else {
            let problem = format!("there is no dim {} to pad", self.dim);
            return Err(operand_error("pad", operands, problem));
        };
        let Some(extent) = self.extent(n) else {
            return Err(operand_error("pad", operands, "the padded dim is too long"));
        };
        let mut ty = a.clone();
        ty.shape[self.dim] = extent;
        Ok(ty)
    }

    /// Zeros added to terms are terms of zero; any other value would be added on every rank.
    pub(super) fn signature(&self, operand: &TensorType, result: &TensorType) -> Signature {
        let (long, short) = (result.shape[self.dim], operand.shape[self.dim]);
        let fills = runs_fill(long, short, self.before, self.between.saturating_add(1));
        let signature = along(self.dim, operand.rank(), fills);
        if self.value.value() == 0.0 { signature.linear(Linearity::OneOf(1)) } else { signature }
    }
}

/// Whether `short` runs of `step` elements are the `long` ones, with an element of interest in each.
fn runs_fill(long: usize, short: usize, first: usize, step: usize) -> bool {
    first < step && short.checked_mul(step) == Some(long)
}

/// One dim changes; its label is split only if blocks can line up.
fn along(dim: usize, rank: usize, splittable: bool) -> Signature {
    let mut labels = plain_labels(rank + 1);
    let other = labels.pop();
    let mut result = labels.clone();
    if !splittable && let Some(other) = other {
        result[dim] = other;
    }
    let unsplittable = if splittable { [None, None] } else { [Some(labels[dim]), other] };
    let mut signature = Signature::new(SmallVec::from_elem(labels, 1), result);
    signature.unsplittable = unsplittable.into_iter().flatten().collect();
    signature
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dim, start, stop, step } = self;
        write!(f, "dim={dim}, start={start}, stop={stop}, step={step}")
    }
}

impl fmt::Display for Pad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dim, before, after, between, value } = self;
        write!(f, "dim={dim}, before={before}, after={after}, between={between}, value={value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn runs_that_fill_the_dim_can_be_split() {
        let ty = |n: usize| TensorType::new([n], DType::F64);
        let splits = |start, stop, step, n: usize| {
            let slice = Slice { dim: 0, start, stop, step };
            let result = slice.infer(&[ty(n)]).unwrap();
            slice.signature(&ty(n), &result).unsplittable.is_empty()
        };
        assert!(splits(0, 6, 1, 6) && splits(0, 6, 2, 6) && splits(1, 6, 2, 6));
        assert!(!splits(0, 5, 1, 6) && !splits(1, 6, 1, 6) && !splits(2, 6, 2, 6));
        // The last run of 7 in twos has one element.
        assert!(!splits(0, 7, 2, 7));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let a = [TensorType::new([4], DType::F64)];
        let slice = |dim, start, stop, step| Slice { dim, start, stop, step }.infer(&a);
        assert!(slice(1, 0, 1, 1).is_err() && slice(0, 0, 1, 0).is_err());
        assert!(slice(0, 2, 2, 1).is_err() && slice(0, 0, 5, 1).is_err());
        let pad = |dim, before, between| {
            Pad { dim, before, after: 0, between, value: Const::new(0.0) }.infer(&a)
        };
        assert!(pad(1, 0, 0).is_err() && pad(0, usize::MAX, 0).is_err());
        assert!(pad(0, 0, usize::MAX).is_err());
        assert_eq!(pad(0, 1, 2).unwrap().shape.as_slice(), [11]);
    }
}
