//! Broadcast and transpose: each element of the result is one of the operand's.

use shardgrad_core::ops::Broadcast;

use super::strided::{Walk, row_major};
use crate::number::Number;

/// Copies elements along a walk of (result, operand).
#[derive(Clone, Debug)]
pub struct Rearrange(Walk);

impl Rearrange {
    /// A broadcast between local blocks.
    #[must_use]
    pub fn broadcast(op: &Broadcast, operand: &[usize], result: &[usize]) -> Self {
        let strides = row_major(operand);
        let along: Vec<usize> = (0..result.len())
            .map(|d| op.dims.iter().position(|&place| place == d).map_or(0, |at| strides[at]))
            .collect();
        Self(Walk::new(result, &row_major(result), &along))
    }

    /// A transpose between local blocks.
    #[must_use]
    pub fn transpose(perm: &[usize], operand: &[usize], result: &[usize]) -> Self {
        let strides = row_major(operand);
        let along: Vec<usize> = perm.iter().map(|&d| strides[d]).collect();
        Self(Walk::new(result, &row_major(result), &along))
    }

    /// Runs it.
    pub fn run<T: Number>(&self, operand: &[T], result: &mut [T]) {
        let inner = self.0.inner();
        self.0.each(|r, o| {
            let row = &mut result[r..r + inner.count];
            match inner.second {
                0 => row.fill(operand[o]),
                1 => row.copy_from_slice(&operand[o..o + inner.count]),
                stride => {
                    for (i, element) in row.iter_mut().enumerate() {
                        *element = operand[o + i * stride];
                    }
                }
            }
        });
    }
}
