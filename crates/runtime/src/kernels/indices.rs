//! Values that depend on where an element is in the global tensor.

use shardgrad_core::ops::{Iota, Uniform};
use shardgrad_core::random::Draws;
use shardgrad_core::{Block, Shape};

use crate::init::each_run;
use crate::number::Number;
use crate::tensor::Data;

/// The index along a dim of a block seen as [outer, dim, inner].
#[derive(Clone, Debug)]
pub struct Count {
    start: usize,
    extent: usize,
    inner: usize,
}

impl Count {
    /// The indices of a block.
    #[must_use]
    pub fn new(op: &Iota, block: &Block) -> Self {
        let range = block.ranges.get(op.dim).cloned().unwrap_or(0..0);
        let inner = block.shape().iter().skip(op.dim + 1).product();
        Self { start: range.start, extent: range.len(), inner }
    }

    /// Overwrites `result`.
    #[allow(clippy::cast_precision_loss)]
    pub fn run<T: Number>(&self, result: &mut [T]) {
        if self.inner == 0 {
            return;
        }
        for (at, run) in result.chunks_exact_mut(self.inner).enumerate() {
            run.fill(T::from_f64((self.start + at % self.extent) as f64));
        }
    }
}

/// Random numbers of a block.
#[derive(Clone, Debug)]
pub struct Random {
    stream: u32,
    shape: Shape,
    block: Block,
}

impl Random {
    /// The numbers of a block.
    #[must_use]
    pub fn new(op: &Uniform, block: &Block) -> Self {
        Self { stream: op.stream, shape: op.ty.shape.clone(), block: block.clone() }
    }

    /// Overwrites `result` by the numbers that this key draws.
    pub fn run<T: Number>(&self, key: &Data, result: &mut [T]) {
        let key = match key {
            Data::I32(key) => key.first().copied().map(i64::from),
            Data::I64(key) => key.first().copied(),
            Data::F32(_) | Data::F64(_) => None,
        };
        let mut draws = Draws::new(key.unwrap_or_default(), self.stream);
        let mut at = 0;
        each_run(&self.shape, &self.block, |start, len| {
            for (i, element) in result[at..at + len].iter_mut().enumerate() {
                *element = T::from_f64(draws.at((start + i) as u64));
            }
            at += len;
        });
    }
}
