//! Ops that only move elements: broadcast, transpose, reshape.

use shardgrad_core::TensorType;
use shardgrad_core::ops::Broadcast;

use super::mismatch;
use super::number::Number;
use super::strided::{block_of, elements, offsets};
use crate::error::Error;
use crate::value::{Value, row_major_strides};

/// Element i of the result is the operand's element at `strides` · i.
fn gather<T: Number>(
    op: &'static str,
    operands: &[&Value],
    local: &TensorType,
    strides: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> Result<Value, Error> {
    let wrong = || mismatch(op, operands, local);
    let [value] = operands else { return Err(wrong()) };
    let a = T::unwrap(value).filter(|_| local.dtype == T::DTYPE).ok_or_else(wrong)?;
    let strides = strides(a.shape()).ok_or_else(wrong)?;
    let data = elements(a);
    let moved = offsets(&local.shape, &strides).into_iter().map(|o| data[o]).collect();
    block_of(op, local, moved)
}

/// Dim i of the operand becomes dim `dims[i]`; the value repeats along the others.
pub(super) fn broadcast<T: Number>(
    op: &Broadcast,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    gather::<T>("broadcast", operands, local, |shape| {
        let fits = op.dims.len() == shape.len()
            && op.dims.iter().zip(shape).all(|(&d, n)| local.shape.get(d) == Some(n));
        let from = row_major_strides(shape);
        let mut strides = vec![0; local.rank()];
        for (i, &d) in op.dims.iter().enumerate().filter(|_| fits) {
            strides[d] = from[i];
        }
        fits.then_some(strides)
    })
}

/// Dim i of the result is dim `perm[i]` of the operand.
pub(super) fn transpose<T: Number>(
    perm: &[usize],
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    gather::<T>("transpose", operands, local, |shape| {
        let fits = perm.len() == shape.len()
            && perm.len() == local.rank()
            && perm.iter().zip(&local.shape).all(|(&d, n)| shape.get(d) == Some(n));
        let from = row_major_strides(shape);
        fits.then(|| perm.iter().map(|&d| from[d]).collect())
    })
}

/// The same elements in row-major order.
pub(super) fn reshape<T: Number>(operands: &[&Value], local: &TensorType) -> Result<Value, Error> {
    gather::<T>("reshape", operands, local, |shape| {
        let fits = shape.iter().product::<usize>() == local.elements();
        fits.then(|| row_major_strides(&local.shape))
    })
}
