//! Ops along one dim of local blocks: slice, pad, concat, cumulative sum.

use shardgrad_core::ops::{Const, CumSum, Pad, Slice};
use smallvec::SmallVec;

use super::strided::{Walk, row_major};
use crate::number::Number;

/// Copies a block into a part of another, or a part of it into another: a walk of (result, operand) from an offset in each.
#[derive(Clone, Debug)]
pub struct Part {
    walk: Walk,
    result: usize,
    operand: usize,
}

impl Part {
    /// Every `step`-th element of a dim from `start` on.
    #[must_use]
    pub fn slice(op: &Slice, operand: &[usize], result: &[usize]) -> Self {
        let mut strides = row_major(operand);
        let offset = op.start * strides[op.dim];
        strides[op.dim] *= op.step;
        Self { walk: Walk::new(result, &row_major(result), &strides), result: 0, operand: offset }
    }

    /// The operand, from `start` on along a dim of the result, `step` apart.
    fn of(operand: &[usize], result: &[usize], dim: usize, start: usize, step: usize) -> Self {
        let mut strides = row_major(result);
        let offset = start * strides[dim];
        strides[dim] *= step;
        Self { walk: Walk::new(operand, &strides, &row_major(operand)), result: offset, operand: 0 }
    }

    /// Runs it; elements of the result that it does not reach stay.
    pub fn run<T: Number>(&self, operand: &[T], result: &mut [T]) {
        let inner = self.walk.inner();
        self.walk.each(|r, o| {
            let (r, o) = (r + self.result, o + self.operand);
            if inner.first == 1 && inner.second == 1 {
                result[r..r + inner.count].copy_from_slice(&operand[o..o + inner.count]);
            } else {
                for i in 0..inner.count {
                    result[r + i * inner.first] = operand[o + i * inner.second];
                }
            }
        });
    }
}

/// Operands in their places, and a value elsewhere.
#[derive(Clone, Debug)]
pub struct Joined {
    parts: SmallVec<[Part; 2]>,
    fill: Option<Const>,
}

impl Joined {
    /// One operand, padded.
    #[must_use]
    pub fn pad(op: &Pad, operand: &[usize], result: &[usize]) -> Self {
        let part = Part::of(operand, result, op.dim, op.before, op.between + 1);
        Self { parts: [part].into_iter().collect(), fill: Some(op.value) }
    }

    /// Operands one behind the other.
    #[must_use]
    pub fn concat<'a>(
        dim: usize,
        operands: impl Iterator<Item = &'a [usize]>,
        result: &[usize],
    ) -> Self {
        let mut start = 0;
        let parts = operands.map(|operand| {
            let part = Part::of(operand, result, dim, start, 1);
            start += operand[dim];
            part
        });
        Self { parts: parts.collect(), fill: None }
    }

    /// What is not covered by operands.
    #[must_use]
    pub fn fill(&self) -> Option<Const> {
        self.fill
    }

    /// Runs it.
    pub fn run<T: Number>(&self, operands: &[Option<&[T]>], fill: Option<T>, result: &mut [T]) {
        if let Some(value) = fill {
            result.fill(value);
        }
        for (part, operand) in self.parts.iter().zip(operands) {
            part.run(operand.unwrap_or_default(), result);
        }
    }
}

/// Running sums along a dim of a block seen as [outer, dim, inner].
#[derive(Clone, Copy, Debug)]
pub struct Running {
    extent: usize,
    inner: usize,
    reverse: bool,
}

impl Running {
    /// The cumulative sum of a block of this shape.
    #[must_use]
    pub fn new(op: &CumSum, shape: &[usize]) -> Self {
        let inner = shape[op.dim + 1..].iter().product();
        Self { extent: shape[op.dim], inner, reverse: op.reverse }
    }

    /// Runs it.
    pub fn run<T: Number>(self, operand: &[T], result: &mut [T], overflow: &mut bool) {
        result.copy_from_slice(operand);
        let page = self.extent * self.inner;
        if page == 0 {
            return;
        }
        for page in result.chunks_exact_mut(page) {
            for j in 1..self.extent {
                let at = |j: usize| if self.reverse { self.extent - 1 - j } else { j } * self.inner;
                let (from, to) = (at(j - 1), at(j));
                for i in 0..self.inner {
                    page[to + i] = page[from + i].add(page[to + i], overflow);
                }
            }
        }
    }
}
