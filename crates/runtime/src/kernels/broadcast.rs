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

/// A broadcast that can be made piece by piece: element i of the result is element (i / run) mod period of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    run: usize,
    period: usize,
}

impl Rearrange {
    /// The same as a [`Repeat`], for the broadcast of a scalar, of rows or of columns.
    #[must_use]
    pub fn repeat(&self) -> Option<Repeat> {
        let (outer, inner) = (self.0.outer(), self.0.inner());
        match (outer, inner.second) {
            ([], 0) => Some(Repeat { run: inner.count, period: 1 }),
            ([], 1) => Some(Repeat { run: 1, period: inner.count }),
            ([rows], 1) if rows.second == 0 => Some(Repeat { run: 1, period: inner.count }),
            ([rows], 0) if rows.second == 1 => {
                Some(Repeat { run: inner.count, period: rows.count })
            }
            _ => None,
        }
    }
}

impl Repeat {
    /// Whether one element is repeated everywhere.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        self.period == 1
    }

    /// Overwrites `result` with the broadcast's elements from `start` on.
    pub fn run<T: Number>(&self, operand: &[T], start: usize, result: &mut [T]) {
        let (mut at, mut done) = (start, 0);
        while done < result.len() {
            let left = result.len() - done;
            let count = if self.run == 1 {
                let from = at % self.period;
                let count = left.min(self.period - from);
                result[done..done + count].copy_from_slice(&operand[from..from + count]);
                count
            } else {
                let count = left.min(self.run - at % self.run);
                result[done..done + count].fill(operand[(at / self.run) % self.period]);
                count
            };
            done += count;
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broadcast made in pieces of any size is the broadcast made at once.
    #[test]
    fn repeats_are_the_broadcast_in_pieces() {
        for (dims, operand, result) in [
            (vec![], vec![], vec![5, 7]),
            (vec![1], vec![7], vec![5, 7]),
            (vec![0], vec![5], vec![5, 7]),
            (vec![1, 2], vec![3, 7], vec![5, 3, 7]),
            (vec![0, 1], vec![3, 5], vec![3, 5, 7]),
            (vec![0], vec![1], vec![1, 7]),
            (vec![0, 1], vec![3, 5], vec![3, 5]),
        ] {
            let op = Broadcast {
                dims: dims.into_iter().collect(),
                shape: result.iter().copied().collect(),
            };
            let source: Vec<i32> = (1..=operand.iter().product::<usize>() as i32).collect();
            let rearrange = Rearrange::broadcast(&op, &operand, &result);
            let mut whole = vec![0; result.iter().product()];
            rearrange.run(&source, &mut whole);
            let repeat = rearrange.repeat().unwrap();
            for piece in 1..=whole.len() {
                let mut pieces = vec![0; whole.len()];
                for (i, part) in pieces.chunks_mut(piece).enumerate() {
                    repeat.run(&source, i * piece, part);
                }
                assert_eq!(pieces, whole, "{operand:?} to {result:?}");
            }
        }
        let middle =
            Broadcast { dims: [1].into_iter().collect(), shape: [2, 3, 4].into_iter().collect() };
        assert_eq!(Rearrange::broadcast(&middle, &[3], &[2, 3, 4]).repeat(), None);
    }
}
