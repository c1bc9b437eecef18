//! Sum and max over dims, in index order.

use shardgrad_core::TensorType;
use shardgrad_core::ops::{ReduceDims, Reduction};

use super::number::Number;
use super::strided::{block_of, elements, offsets};
use super::{mismatch, overflow};
use crate::error::Error;
use crate::value::{Value, row_major_strides};

/// The reduction over `dims`; over no element at all it is 0 or −∞.
pub(super) fn reduce<T: Number>(
    reduction: Reduction,
    dims: &ReduceDims,
    operands: &[&Value],
    local: &TensorType,
) -> Result<Value, Error> {
    let op = match reduction {
        Reduction::Sum => "sum",
        Reduction::Max => "max",
    };
    let wrong = || mismatch(op, operands, local);
    let [value] = operands else { return Err(wrong()) };
    let a = T::unwrap(value).ok_or_else(wrong)?;
    let strides = row_major_strides(a.shape());
    let part = |reduced: bool| -> (Vec<usize>, Vec<usize>) {
        (0..a.ndim())
            .filter(|d| dims.dims().contains(d) == reduced)
            .map(|d| (a.shape()[d], strides[d]))
            .unzip()
    };
    let ((kept, kept_strides), (reduced, reduced_strides)) = (part(false), part(true));
    if kept != local.shape.as_slice()
        || reduced.len() != dims.dims().len()
        || local.dtype != T::DTYPE
    {
        return Err(wrong());
    }
    let inner = offsets(&reduced, &reduced_strides);
    let data = elements(a);
    let results = offsets(&kept, &kept_strides)
        .into_iter()
        .map(|start| {
            let mut terms = inner.iter().map(|i| data[start + i]);
            match reduction {
                Reduction::Sum => terms.try_fold(T::ZERO, T::plus),
                Reduction::Max => Some(terms.fold(T::LOWEST, T::larger)),
            }
        })
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| overflow::<T>(op))?;
    block_of(op, local, results)
}
