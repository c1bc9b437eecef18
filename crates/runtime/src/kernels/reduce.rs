//! Sum and maximum over dims of a local block.
//!
//! Where the reduced dim is the innermost one, eight partial results run side by side, which the compiler turns into
//! vector code; the order of additions depends on the shape alone.

use shardgrad_core::ops::Reduction;

use super::strided::{Walk, row_major};
use crate::number::Number;

const LANES: usize = 8;

/// A reduction between local blocks: a walk of (result, operand).
#[derive(Clone, Debug)]
pub struct Reduce {
    walk: Walk,
    reduction: Reduction,
}

impl Reduce {
    /// The reduction of these dims of an operand of this local shape.
    #[must_use]
    pub fn new(reduction: Reduction, dims: &[usize], operand: &[usize]) -> Self {
        let kept: Vec<usize> = (0..operand.len()).filter(|d| !dims.contains(d)).collect();
        let shape: Vec<usize> = kept.iter().map(|&d| operand[d]).collect();
        let strides = row_major(&shape);
        let along: Vec<usize> = (0..operand.len())
            .map(|d| kept.iter().position(|&k| k == d).map_or(0, |at| strides[at]))
            .collect();
        Self { walk: Walk::new(operand, &along, &row_major(operand)), reduction }
    }

    /// Runs it; over no element at all a sum is 0 and a maximum the lowest value.
    pub fn run<T: Number>(&self, operand: &[T], result: &mut [T], overflow: &mut bool) {
        match self.reduction {
            Reduction::Sum => self.fold(operand, result, T::ZERO, |a, b| a.add(b, overflow)),
            Reduction::Max => self.fold(operand, result, T::LOWEST, T::larger),
        }
    }

    fn fold<T: Number>(
        &self,
        operand: &[T],
        result: &mut [T],
        start: T,
        mut f: impl FnMut(T, T) -> T,
    ) {
        result.fill(start);
        let inner = self.walk.inner();
        self.walk.each(|r, o| {
            if inner.first == 0 {
                let run = strided(operand, o, inner.count, inner.second);
                let folded = run_fold(run, start, &mut f);
                result[r] = f(result[r], folded);
            } else if inner.second == 1 && inner.first == 1 {
                let row = &mut result[r..r + inner.count];
                for (a, b) in row.iter_mut().zip(&operand[o..o + inner.count]) {
                    *a = f(*a, *b);
                }
            } else {
                for i in 0..inner.count {
                    let a = &mut result[r + i * inner.first];
                    *a = f(*a, operand[o + i * inner.second]);
                }
            }
        });
    }
}

/// The innermost dim of a row-major operand has stride 1, unless only one element is left of it.
fn strided<T>(operand: &[T], at: usize, count: usize, stride: usize) -> &[T] {
    debug_assert!(stride == 1 || count == 1);
    &operand[at..at + count]
}

fn run_fold<T: Number>(run: &[T], start: T, f: &mut impl FnMut(T, T) -> T) -> T {
    let mut lanes = [start; LANES];
    let (chunks, rest) = run.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = f(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = f(*lane, *value);
    }
    lanes.into_iter().fold(start, f)
}
