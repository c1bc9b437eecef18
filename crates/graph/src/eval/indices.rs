//! Ops whose elements depend on where they are in the global value: iota and uniform.

use shardgrad_core::ops::{Iota, Uniform};
use shardgrad_core::random::Draws;
use shardgrad_core::{Block, TensorType};

use super::number::Number;
use super::one_hot::labels;
use super::strided::block_of;
use super::{mismatch, overflow};
use crate::error::Error;
use crate::value::{Value, row_major_strides};

/// Calls `f` with the global index of every element of a block, in row-major order.
fn each_index(block: &Block, mut f: impl FnMut(&[usize])) {
    let strides = row_major_strides(&block.shape());
    let mut index = vec![0; block.ranges.len()];
    for element in 0..block.len() {
        for ((i, range), stride) in index.iter_mut().zip(&block.ranges).zip(&strides) {
            *i = range.start + element / stride % range.len();
        }
        f(&index);
    }
}

/// The index along a dim.
pub(super) fn iota<T: Number>(
    op: &Iota,
    local: &TensorType,
    block: &Block,
) -> Result<Value, Error> {
    if block.shape() != local.shape || op.dim >= local.rank() || local.dtype != T::DTYPE {
        return Err(mismatch("iota", &[], local));
    }
    let mut elements = Vec::with_capacity(block.len());
    #[allow(clippy::cast_precision_loss)]
    each_index(block, |index| elements.push(T::constant(index[op.dim] as f64)));
    let elements = elements.into_iter().collect::<Option<Vec<T>>>();
    block_of("iota", local, elements.ok_or_else(|| overflow::<T>("iota"))?)
}

/// The number that the key and the stream draw for every element.
pub(super) fn uniform<T: Number>(
    op: &Uniform,
    operands: &[&Value],
    local: &TensorType,
    block: &Block,
) -> Result<Value, Error> {
    let wrong = || mismatch("uniform", operands, local);
    let [key] = operands else { return Err(wrong()) };
    let key = labels(key).filter(|key| key.len() == 1).ok_or_else(wrong)?[0];
    if block.shape() != local.shape || block.ranges.len() != op.ty.rank() || local.dtype != T::DTYPE
    {
        return Err(wrong());
    }
    let mut draws = Draws::new(key, op.stream);
    let mut elements = Vec::with_capacity(block.len());
    each_index(block, |index| {
        let place = index.iter().zip(&op.ty.shape).fold(0, |at, (i, n)| at * n + i);
        elements.push(T::constant(draws.at(place as u64)));
    });
    let elements = elements.into_iter().collect::<Option<Vec<T>>>();
    block_of("uniform", local, elements.ok_or_else(|| overflow::<T>("uniform"))?)
}
